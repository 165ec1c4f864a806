"""The hooks of a queue: which functions of the app are called with which events.

They are told through the observers of the queue, in batches, and only of events that a hook listens to. How one function is
called is decided in :mod:`pgqueue.app.hooks.hook`, and which events a verdict is in :mod:`pgqueue.values.jobs.event`.

In tests (:attr:`pgqueue.store.connections.database.Database.calls_hooks`, drains) nothing runs beside the test: a plain function is
called at once, in the caller; an ``async def`` one before the call that caused the event returns.
"""

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, get_args

from pgqueue.app.hooks.hook import AnyEvent, Hook, HookState, log
from pgqueue.app.hooks.observer import Observers
from pgqueue.errors import InvalidOption
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.event import (
    NAMES,
    Event,
    Given,
    JobEventName,
    WorkerEvent,
    WorkerEventName,
    of_claim,
    of_job,
    of_verdict,
)
from pgqueue.values.jobs.job import Claim, EnqueueAnswer, NewJob, Outcome
from pgqueue.values.jobs.verdict import Succeeded, Verdict
from pgqueue.values.payloads.codec import Codec, args_shown
from pgqueue.values.payloads.storable import object_of

START_TIMEOUT = 10.0
"""Seconds that a worker waits for the hooks of its start before it claims."""
STOP_TIMEOUT = 5.0
"""Seconds that a worker waits at its end for all hooks."""

OBSERVED: dict[str, tuple[str, ...]] = {
    "enqueued": ("enqueued",),
    "claimed": ("claimed",),
    "started": ("started",),
    "reclaimed": ("reclaimed",),
    **dict.fromkeys(("succeeded", "failed", "retried", "dead", "cancelled"), ("ended", "reclaimed")),
    **dict.fromkeys(get_args(WorkerEventName), ()),
}
"""Which events of the observers are needed for each event of hooks."""


class Hooks:
    """The hooks of one queue."""

    def __init__(
        self,
        observers: Observers,
        *,
        codec: Callable[[], Codec | None],
        in_test: Callable[[], bool],
        around: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """``in_test`` tells whether the queue is in a test that has no worker.

        ``around`` makes what surrounds each call in a thread.
        """
        self._observers = observers
        self._codec = codec
        self._in_test = in_test
        self._around = around
        self._hooks: dict[str, tuple[Hook, ...]] = {}
        self._observed: set[str] = set()
        self._loops: list[asyncio.AbstractEventLoop] = []
        self._drains = 0
        self._kept: deque[tuple[Hook, AnyEvent]] = deque()

    @property
    def states(self) -> tuple[HookState, ...]:
        """How each hook does."""
        return tuple(hook.state for hook in self._each())

    def require(self, event: str) -> None:
        """Refuse an event that there is not.

        Raises:
            InvalidOption: there is no such event.
        """
        if event not in NAMES:
            raise InvalidOption(
                f"on({event!r}): the events are {', '.join(NAMES)}{did_you_mean(str(event), NAMES)}"
            )

    def add(self, event: str, function: Callable[[Any], object]) -> None:
        """Have a function called with each event of this name, from now on.

        Raises:
            InvalidOption: this is no function.
        """
        if not callable(function) or isinstance(function, type):
            raise InvalidOption(f"on({event!r}): {function!r:.80} is no function")
        self._hooks[event] = (*self._hooks.get(event, ()), Hook(event, function, around=self._around))
        for name in OBSERVED[event]:
            if name not in self._observed:
                self._observed.add(name)
                self._observers.tell(name, getattr(self, f"_{name}"))

    @asynccontextmanager
    async def serving(
        self, about: Callable[[WorkerEventName], WorkerEvent], stopping: asyncio.Event
    ) -> AsyncIterator[None]:
        """Tell of a worker's start and stop, around its work; ``async def`` hooks run on its event loop meanwhile.

        Args:
            about: makes the event.
            stopping: set when the worker is to stop, so that it does not wait for the hooks of its start.
        """
        loop = asyncio.get_running_loop()
        self._loops.append(loop)
        try:
            await self._tell_start(about("worker_started"), stopping)
            yield
        finally:
            self._tell("worker_stopped", [about("worker_stopped")])
            try:
                await _idle(self._each(), STOP_TIMEOUT)
            finally:
                self._loops.remove(loop)
                if loop not in self._loops:  # else another worker runs on it
                    mine = [hook for hook in self._each() if not self._loops or hook.runs_on(loop)]
                    await asyncio.gather(*(hook.leave() for hook in mine))

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Have hooks called at once, for the length of a block: a drain."""
        self._drains += 1
        try:
            yield
        finally:
            self._drains -= 1

    def flush(self) -> None:
        """In tests: call ``async def`` hooks with the events that wait, and return when they have returned."""
        while self._kept:
            thread = threading.Thread(target=lambda: asyncio.run(self.aflush()))  # in this one a loop may run
            thread.start()
            thread.join()

    async def aflush(self) -> None:
        """As :meth:`flush`, in the event loop of the caller."""
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - for the type checker
        asked = me.cancelling()
        while self._kept:
            hook, event = self._kept.popleft()
            await hook.acall(event, is_cancelled=lambda: me.cancelling() > asked)

    def _called_at_once(self) -> bool:
        return self._drains > 0 or (not self._loops and self._in_test())

    def _each(self) -> list[Hook]:
        return [hook for hooks in self._hooks.values() for hook in hooks]

    def _tell(self, name: str, events: Sequence[AnyEvent]) -> None:
        at_once = self._called_at_once()
        loop = self._loops[-1] if self._loops else None
        for hook in self._hooks.get(name, ()):
            if not at_once:
                hook.put(events, loop)
                continue
            for event in events:
                if hook.is_async:
                    self._kept.append((hook, event))
                else:
                    hook.call(event)

    async def _tell_start(self, event: WorkerEvent, stopping: asyncio.Event) -> None:
        self._tell("worker_started", [event])
        hooks = self._hooks.get("worker_started", ())
        if hooks:
            waiting = asyncio.create_task(_idle(hooks, START_TIMEOUT))
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait([waiting, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not waiting.done():
                waiting.cancel()
            elif not waiting.result():
                log.warning(
                    "the worker starts before the hooks of its start have returned",
                    extra={"seconds": START_TIMEOUT},
                )

    def _read(self, given: Given) -> dict[str, Any]:
        # The arguments of a job that was just enqueued are in clear.
        return object_of(given.args) if isinstance(given, NewJob) else args_shown(self._codec(), given)

    def _enqueued(self, jobs: Sequence[NewJob], results: Sequence[EnqueueAnswer]) -> None:
        taken = [pair for pair in zip(jobs, results, strict=True) if pair[1].outcome is not Outcome.REJECTED]
        if taken:
            self._tell("enqueued", [of_job("enqueued", done.id, job, self._read) for job, done in taken])

    def _claimed(self, claims: Sequence[Claim]) -> None:
        self._tell("claimed", [of_claim("claimed", claim, self._read) for claim in claims])

    def _started(self, claims: Sequence[Claim]) -> None:
        self._tell("started", [of_claim("started", claim, self._read) for claim in claims])

    def _ended(self, verdicts: Sequence[Verdict]) -> None:
        if "succeeded" not in self._hooks:  # most are of no interest then
            verdicts = [one for one in verdicts if type(one) is not Succeeded]
        self._tell_each(event for verdict in verdicts for event in of_verdict(verdict, self._read))

    def _reclaimed(self, verdicts: Sequence[Verdict]) -> None:
        self._tell("reclaimed", [of_claim("reclaimed", verdict.claim, None) for verdict in verdicts])
        self._tell_each(event for verdict in verdicts for event in of_verdict(verdict, None))

    def _tell_each(self, events: Iterable[Event]) -> None:
        by_name: defaultdict[JobEventName, list[Event]] = defaultdict(list)
        for event in events:
            by_name[event.name].append(event)
        for name, some in by_name.items():
            self._tell(name, some)


async def _idle(hooks: Iterable[Hook], seconds: float) -> bool:
    """Wait until these hooks have been called with all waiting events; return False if the time passes first."""
    waiting = [asyncio.wrap_future(hook.idle()) for hook in hooks]
    if not waiting:
        return True
    _, late = await asyncio.wait(waiting, timeout=seconds)
    for one in late:
        one.cancel()
    return not late

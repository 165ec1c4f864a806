"""One hook: a function of the app, and the events that it has not been called with yet.

A hook is called with one event at a time, in order: an ``async def`` function on the event loop of this process's worker,
every other one in a thread of its own. In a process without a worker, an ``async def`` hook is called in such a thread, too,
each call with an event loop of its own. The thread, or the task, ends when no event waits.

So a hook that blocks, is slow, or never returns delays no job and no other hook. At most :data:`MOST_WAITING` events,
or :data:`MOST_BYTES`, wait for a hook. Those beyond are dropped, counted and logged. What a hook raises is logged and counted.
"""

import asyncio
import atexit
import contextvars
import inspect
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple
from weakref import WeakSet

from pgqueue.app.logger import bounded_logger
from pgqueue.values.jobs.event import Event, WorkerEvent

log = bounded_logger("pgqueue.hooks")

MOST_WAITING = 10_000
MOST_BYTES = 64_000_000
"""Of the arguments and errors of the events that wait for one hook."""
LOG_EVERY = 15.0
"""Seconds between two log records about one hook that is too slow."""
LONG_CALL = 30.0
"""Seconds after which a call of a hook is logged that has not returned."""
LEAVE_TIMEOUT = 1.0
"""Seconds that a call of an ``async def`` hook may take to end once it was cancelled."""
EXIT_TIMEOUT = 5.0
"""Seconds that a process waits at its end for hooks in threads."""

AnyEvent = Event | WorkerEvent


class HookState(NamedTuple):
    """How a hook does.

    Attributes:
        hook: the function's module and name.
        event: which event it is called with.
        called: how many calls have ended.
        failed: how many of them raised.
        waiting: how many events wait for it.
        dropped: how many events it was not called with, since too many waited or the worker stopped.
    """

    hook: str
    event: str
    called: int
    failed: int
    waiting: int
    dropped: int


class Hook:
    """A function that is called with each event of one name."""

    def __init__(
        self,
        event: str,
        function: Callable[[Any], Any],
        *,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """``around`` makes what surrounds each call of a function that is called in a thread."""
        self.event = event
        self._around = around
        called = function if inspect.isroutine(function) else getattr(function, "__call__", None)  # noqa: B004
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self._function = function
        self._name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
        self._events: deque[AnyEvent] = deque()
        self._called = self._failed = self._dropped = self._bytes = 0
        self._called_at: float | None = None
        self._logged_at = -LOG_EVERY
        self._lock = threading.Lock()
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self._waiters: list[Future[None]] = []
        _all.add(self)

    @property
    def state(self) -> HookState:
        """How it does."""
        return HookState(self._name, self.event, self._called, self._failed, len(self._events), self._dropped)

    def put(self, events: Sequence[AnyEvent], loop: asyncio.AbstractEventLoop | None) -> None:
        """Have the function called with these events soon. In any thread; waits for nothing.

        Args:
            events: of the hook's name.
            loop: the event loop of a worker of this process, if there is one.
        """
        with self._lock:
            dropped = self._dropped
            for event in events:
                if len(self._events) < MOST_WAITING and self._bytes < MOST_BYTES:
                    self._events.append(event)
                    self._bytes += event.size
                else:
                    self._dropped += 1
            starts = not self._busy
            self._busy = True
        if starts:
            self._start(loop if self.is_async else None)
        elif self._dropped > dropped or self._takes_long():
            self._log_slowness()

    def call(self, event: AnyEvent) -> None:
        """Call the function in this thread. What it raises is logged: SystemExit, too, would end the thread."""
        self._called_at = time.monotonic()
        try:
            with self._around():
                result = self._function(event)
                if self.is_async:
                    asyncio.run(result)
                elif inspect.iscoroutine(result):
                    result.close()
                    raise TypeError("the hook returned a coroutine: write it as `async def`")  # noqa: TRY301
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # of the person who runs the tests
            self._note_failure(event, error)
        self._note_end()

    async def acall(self, event: AnyEvent, *, is_cancelled: Callable[[], bool]) -> None:
        """Call an ``async def`` function in this task, as :meth:`call` does.

        Args:
            event: with which.
            is_cancelled: returns whether the task is cancelled; else an error of that kind is the hook's own.
        """
        self._called_at = time.monotonic()
        try:
            await self._function(event)
        except BaseException as error:
            if is_cancelled():
                raise
            self._note_failure(event, error)
        self._note_end()

    def idle(self) -> "Future[None]":
        """Done when the function has been called with all events that wait."""
        done: Future[None] = Future()
        with self._lock:
            if self._busy:
                self._waiters.append(done)
                return done
        done.set_result(None)
        return done

    def runs_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the function is being called on this event loop."""
        return self._task is not None and self._task.get_loop() is loop

    async def leave(self) -> None:
        """The worker ends: drop what waits, and stop a call that is under way on its event loop."""
        if not self._busy:
            return
        self._drop()
        self._log("a hook had not returned, or not been called with all events, when its worker stopped")
        task, self._task = self._task, None
        if task is None:
            _all.discard(self)  # the process does not wait for its thread again
            return
        task.cancel()
        await asyncio.wait([task], timeout=LEAVE_TIMEOUT)
        self._drop()
        self._next()

    def _drop(self) -> None:
        with self._lock:
            self._dropped += len(self._events)
            self._events.clear()
            self._bytes = 0

    def reset(self) -> None:
        """Forget what waits, and the thread or task that calls the function: this process has neither."""
        self._events.clear()
        self._bytes = 0
        self._lock = threading.Lock()
        self._busy = False
        self._task = None

    def _start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._start_task, context=contextvars.Context())
                return
        try:
            threading.Thread(target=self._serve, name=f"pgqueue hook {self._name}", daemon=True).start()
        except RuntimeError as error:  # the system has no thread: the next event tries again
            self._busy = False
            self._log("no thread for a hook", error=error)

    def _start_task(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._aserve(), name=f"pgqueue hook {self._name}")

    def _serve(self) -> None:
        while (event := self._next()) is not None:
            self.call(event)

    async def _aserve(self) -> None:
        task = self._task
        while self._task is task and (event := self._next()) is not None:
            await self.acall(event, is_cancelled=lambda: self._task is not task)
            await asyncio.sleep(0)  # a hook that waits for nothing must not keep the loop

    def _next(self) -> AnyEvent | None:
        """Return the next event; None: no event waits, and the caller must end."""
        with self._lock:
            if self._events:
                event = self._events.popleft()
                self._bytes -= event.size
                return event
            self._busy = False
            self._task = None
            waiters, self._waiters = self._waiters, []
        for one in waiters:
            if one.set_running_or_notify_cancel():
                one.set_result(None)
        return None

    def _note_end(self) -> None:
        self._called += 1
        self._called_at = None

    def _note_failure(self, event: AnyEvent, error: BaseException) -> None:
        self._failed += 1
        about = {"job": event.job, "task": event.task} if isinstance(event, Event) else {}
        self._log("a hook failed; no job is affected", error=error, **about)

    def _takes_long(self) -> bool:
        called_at = self._called_at
        return called_at is not None and time.monotonic() - called_at > LONG_CALL

    def _log_slowness(self) -> None:
        if time.monotonic() - self._logged_at < LOG_EVERY:
            return
        self._logged_at = time.monotonic()
        self._log(
            "a hook has not returned for a long time"
            if self._takes_long()
            else "a hook is slower than its events, and events are dropped"
        )

    def _log(self, words: str, *, error: BaseException | None = None, **about: object) -> None:
        state = self.state
        fields = {
            "hook": state.hook,
            "event": state.event,
            "waiting": state.waiting,
            "dropped": state.dropped,
        }
        with suppress(Exception):  # a filter of the program's logging may raise
            log.log(
                logging.WARNING if error is None else logging.ERROR,
                words,
                extra={**fields, **about},
                exc_info=error,
            )


_all: WeakSet[Hook] = WeakSet()


@atexit.register
def _finish() -> None:
    """Let hooks in threads finish at the end of the process: else a script that enqueues and ends would call none."""
    until = time.monotonic() + EXIT_TIMEOUT
    for hook in list(_all):
        with suppress(TimeoutError):
            hook.idle().result(max(0.0, until - time.monotonic()))


def _reset_after_fork() -> None:
    # In a fork the threads are the parent's, and so are the events that waited.
    for hook in list(_all):
        hook.reset()


os.register_at_fork(after_in_child=_reset_after_fork)

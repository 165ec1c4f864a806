"""Who runs now and who waits: claims in hand, up to a number of them running.

A *runner* holds a slot, and runs one claim after the other for as long as there is one of its kind at the head
of the line: an asyncio task for ``async def`` tasks, a thread for plain functions. So a streak of short jobs
costs no task, no thread and no wake-up per job. Only one new runner is on its way at a time; when it has found
work it calls for the next one. While a job waits for something the next one is started, and short jobs that
never wait have no crowd of runners around them.

What a job leaves behind ends with it: a runner that was cancelled, or whose context variables were changed,
gives way to a fresh one.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from pgqueue.values.job import Claim
from pgqueue.values.verdict import Cancelled, Returned, Verdict
from pgqueue.worker.attempt import Attempt, Stop
from pgqueue.worker.completer import Completer
from pgqueue.worker.deadlines import Deadlines
from pgqueue.worker.executor import Executor
from pgqueue.worker.hand import Hand
from pgqueue.worker.pools import Threads

BREATH = 0.005
"""After so many seconds of unbroken work a runner lets the loop see to everything else."""


class Slots:
    """Starts waiting claims as slots become free, and passes verdicts to the completer.

    Attributes:
        hand: the claims.
        low: so few waiting claims are worth a call of ``on_room``.
    """

    def __init__(
        self, hand: Hand, executor: Executor, completer: Completer, *, on_room: Callable[[], object]
    ) -> None:
        """Begin with no runner.

        Args:
            hand: where claims wait.
            executor: runs attempts.
            completer: records their verdicts.
            on_room: called when an attempt has ended and there are few claims left to start.
        """
        self.hand = hand
        self.low = 0
        self._executor = executor
        self._completer = completer
        self._on_room = on_room
        self._threads = Threads()
        self._deadlines = Deadlines(hand.running, self._time_out)
        self._surroundings = contextvars.copy_context()  # else a job would see what the last one left behind
        self._loop: asyncio.AbstractEventLoop
        self._home: int
        self._called = False
        self._emptied = asyncio.Event()
        self._waiting_since = 0.0

    def add(self, claims: Iterable[Claim]) -> None:
        """Take claims, and start what can be started."""
        self._loop, self._home = asyncio.get_running_loop(), threading.get_ident()
        self.hand.waiting.extend(claims)
        self._waiting_since = time.monotonic()
        self._summon()

    def return_waiting(self, *, older_than: float = 0.0) -> int:
        """Give back, unspent, the claims that have not started.

        Args:
            older_than: only if no claim was taken for so many seconds.

        Returns:
            How many went back.
        """
        if time.monotonic() - self._waiting_since < older_than:
            return 0
        dropped = self.hand.drop()
        self._completer.add(*map(Returned, dropped))
        return len(dropped)

    def cancel(self, job_ids: Iterable[int]) -> None:
        """Somebody asked to cancel these jobs: stop those that run, and end those that have not started."""
        asked = set(job_ids)
        self._completer.add(*map(Cancelled, self.hand.drop(asked)))
        for attempt in self._running():
            if attempt.claim.id in asked:
                attempt.stop(Stop.CANCEL)

    def stop(self, why: Stop) -> None:
        """Stop whatever runs. Plain functions cannot be stopped: they are told, and left to themselves."""
        for attempt in self._running():
            attempt.stop(why)
            if self._executor.is_plain(attempt.claim):
                self._give_up(attempt, self._executor.stopped(attempt))

    def abandon(self) -> None:
        """Let go of everything: it is no longer this worker's."""
        self.hand.drop()
        self.stop(Stop.LOST)
        for attempt in self._running():
            self.hand.settle(attempt, None)
        self._collect()

    async def emptied(self) -> None:
        """Wait until nothing runs, and the completer has every verdict."""
        while self.hand.taken:
            self._emptied.clear()
            await self._emptied.wait()
        self._collect()

    def close(self) -> None:
        """Let go of the threads; those that run end with their function."""
        self._deadlines.close()
        self._threads.close()

    def _running(self) -> list[Attempt]:
        return list(self.hand.running.values())

    def _summon(self) -> None:
        """Have a runner come, if one is needed. Called in the loop and in threads."""
        plain = self.hand.reserve()
        if plain is None:
            return
        if plain:
            self._threads.start(self._serve_plain)
        else:
            self._call(self._start_serving)

    def _start_serving(self) -> None:
        self._loop.create_task(self._serve(), name="pgqueue runner", context=self._surroundings.copy())

    async def _serve(self) -> None:
        """Be a runner of ``async def`` tasks."""
        self.hand.arrived()
        me, before, began = asyncio.current_task(), contextvars.copy_context(), time.monotonic()
        assert me is not None  # noqa: S101 - for the type checker
        while (attempt := self.hand.take(plain=False)) is not None:
            attempt.runner = me
            self._summon()
            self.hand.settle(attempt, await self._executor.run(attempt))
            self._call_collect()
            if me.cancelling() or _differs(contextvars.copy_context(), before):
                self.hand.free_slot()
                break
            if time.monotonic() - began > BREATH:
                await asyncio.sleep(0)
                began = time.monotonic()
        self._leave()

    def _serve_plain(self) -> None:
        """Be a runner of plain functions, in a thread."""
        self.hand.arrived()
        while (attempt := self.hand.take(plain=True)) is not None:
            self._summon()
            self._deadlines.watch(attempt, self._executor.limit(attempt.claim), self._loop)
            verdict = self._surroundings.copy().run(self._executor.run_plain, attempt, self._loop)
            if not self.hand.settle(attempt, verdict):
                return  # it was given up, and its slot with it
            self._call_collect()
        self._call(self._leave)

    def _call_collect(self) -> None:
        """Have verdicts passed on, all that there are when the loop comes to it."""
        if not self._called:
            self._called = True
            self._call_soon(self._collect)

    def _collect(self) -> None:
        """Pass verdicts on, and say so when there is little left to start."""
        self._called = False  # first: what is settled from now on is called for again
        self._completer.add(*self.hand.verdicts())
        if len(self.hand.waiting) <= self.low:
            self._on_room()

    def _leave(self) -> None:
        """A runner has gone; the next claim may need one of the other kind."""
        self._summon()
        if not self.hand.taken:
            self._emptied.set()

    def _time_out(self, attempt: Attempt) -> None:
        self._give_up(attempt, self._executor.timed_out(attempt))

    def _give_up(self, attempt: Attempt, verdict: Verdict | None) -> None:
        """Leave a plain function to itself: its slot is free, and its late word will not be heard."""
        if self.hand.settle(attempt, verdict):
            self.hand.free_slot()
            self._collect()
            self._leave()

    def _call(self, what: Callable[[], None]) -> None:
        """Call something in the loop: at once where this is the loop, else soon."""
        if threading.get_ident() == self._home:
            what()
        else:
            self._call_soon(what)

    def _call_soon(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(what)


def _differs(now: contextvars.Context, before: contextvars.Context) -> bool:
    """Whether a job has left something in the context variables; quick where nothing was set."""
    try:
        return now != before
    except Exception:  # noqa: BLE001 - comparing other people's values may raise anything
        return True

"""Runners: what waits is run, up to a number of attempts at a time.

A *runner* holds a slot, and runs one claim after the other for as long as there is one of its kind at the head
of the line: an asyncio task for ``async def`` tasks, a thread for plain functions. So a streak of short jobs
costs no task, no thread and no wake-up per job. Only one new runner is on its way at a time; when it has found
work it calls for the next one. While a job waits for something the next one is started, and short jobs that
never wait have no crowd of runners around them.

What a job leaves behind ends with it: a runner that was cancelled, or whose context variables were changed,
gives way to a fresh one.

Where no thread is to be had, because the system starts no more or because too many functions were given up and have
not returned, claims of plain functions go back for a while: other workers may have threads.
"""

import asyncio
import contextvars
import math
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

from pgqueue.values.job import Claim
from pgqueue.values.verdict import Cancelled, Returned, Verdict
from pgqueue.worker.claims import Attempt, Claims, Stop
from pgqueue.worker.completer import Completer
from pgqueue.worker.executor import Executor
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.signals import TaskLoop
from pgqueue.worker.threads import Deadlines, Threads

log = worker_log()

# asyncio itself holds its tasks weakly: one that has been given up, and waits for what nothing else holds, would be
# destroyed as garbage in the middle of its work.
_runners: set["asyncio.Task[None]"] = set()

BREATH = 0.005
"""After this many seconds of unbroken work a runner lets the loop see to everything else."""
LEFT_BEHIND = 4
"""At most this many times the concurrency may plain functions run on after they were given up."""
NO_THREAD_DELAY = timedelta(seconds=5)
"""When claims that found no thread are tried again."""
LOG_EVERY = 15.0
"""Seconds between two log records about missing threads."""


class Runners:
    """Starts waiting claims as slots become free, and passes verdicts to the completer.

    Attributes:
        hand: the claims.
        low: at this many waiting claims or fewer, ``on_room`` is called.
    """

    def __init__(
        self,
        hand: Claims,
        executor: Executor,
        completer: Completer,
        *,
        on_room: Callable[[], object],
        home: TaskLoop | None = None,
    ) -> None:
        """Begin with no runner.

        Args:
            hand: where claims wait.
            executor: runs attempts.
            completer: records their verdicts.
            on_room: called when an attempt has ended and there are few claims left to start.
            home: the worker's event loop.
        """
        self.hand = hand
        self.low = 0
        self._executor = executor
        self._completer = completer
        self._on_room = on_room
        self._home = home or TaskLoop()
        self._threads = Threads()
        self._deadlines = Deadlines(hand.running, self._time_out)
        self._surroundings = contextvars.copy_context()  # else a job would see what the last one left behind
        self._called = False
        self._emptied = asyncio.Event()
        self._waiting_since = 0.0
        self._logged_at = -math.inf

    def add(self, claims: Sequence[Claim]) -> None:
        """Take claims, and start what can be started. Claims of a lease that was lost are left alone."""
        self._home.here()
        if not self.hand.add(claims):
            log.warning("claims of a lost lease are not run", extra={"jobs": len(claims)})
            return
        self._waiting_since = time.monotonic()
        self._summon()

    def return_waiting(self, *, older_than: float = 0.0) -> int:
        """Give back, unspent, the claims that have not started. May be called in any thread.

        Args:
            older_than: only if no claim was taken for this many seconds.

        Returns:
            How many went back.
        """
        if time.monotonic() - self._waiting_since < older_than:
            return 0
        returned = self.hand.drop(Returned)
        if returned:
            self._home.call(self._collect)
        return returned

    def cancel(self, job_ids: Iterable[int]) -> None:
        """Stop these jobs where they run, and end those that have not started. May be called in any thread."""
        asked = set(job_ids)
        if self.hand.drop(Cancelled, asked):
            self._home.call(self._collect)
        for attempt in self._running():
            if attempt.claim.id in asked:
                self._tell(attempt, Stop.CANCEL)

    def stop(self, why: Stop) -> None:
        """Stop what runs. Plain functions cannot be stopped: they are told, and left to themselves."""
        for attempt in self._running():
            attempt.stop(why)
            if attempt.plain:
                self._give_up(attempt, self._executor.stopped(attempt))

    def give_back(self) -> None:
        """The worker ends: give back what runs on though it was told to stop."""
        for attempt in self._running():
            self.hand.settle(attempt, self._executor.stopped(attempt))
        self._collect()

    def abandon(self, former: UUID) -> None:
        """Let go of everything: the lease of this worker id is lost. May be called in any thread."""
        for attempt in self.hand.abandon(former):
            attempt.context.cancelled = True
            self._tell(attempt, Stop.LOST)
        self._home.call(self._leave)

    def time_out(self) -> None:
        """Give up plain functions that are overdue. For another thread, while the event loop is blocked.

        A thread of its own judges each: the retry policy is the user's code, too.
        """
        for attempt in self._deadlines.overdue():
            self._threads.start(partial(self._time_out, attempt))

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

    def _tell(self, attempt: Attempt, why: Stop) -> None:
        """Have an attempt stop: a coroutine in its loop only."""
        if attempt.plain:
            attempt.stop(why)
        else:
            self._home.call(partial(attempt.stop, why))

    def _summon(self) -> None:
        """Have a runner come, if one is needed. Called in the loop and in threads."""
        plain = self.hand.reserve()
        if plain is None:
            return
        if not plain:
            self._home.call(self._start_serving)
            return
        try:
            if self.hand.left_behind >= LEFT_BEHIND * self.hand.size:
                raise RuntimeError("too many plain functions that timed out have not returned")  # noqa: TRY301
            self._threads.start(self._serve_plain)
        except RuntimeError as error:
            self.hand.unreserve()
            self._turn_away(error)

    def _turn_away(self, why: RuntimeError) -> None:
        """There is no thread: give plain functions back for a while, and go on with the others."""
        returned = self.hand.drop(partial(Returned, delay=NO_THREAD_DELAY), plain=True)
        if time.monotonic() - self._logged_at > LOG_EVERY:
            self._logged_at = time.monotonic()
            log.error(
                "no thread for plain functions: their jobs go back for a while",
                extra={
                    "jobs": returned,
                    "delay": str(NO_THREAD_DELAY),
                    "not_returned": self.hand.left_behind,
                    "error": str(why),
                },
            )
        self._home.call(self._collect)
        self._home.call(self._leave)

    def _start_serving(self) -> None:
        assert self._home.loop is not None  # noqa: S101 - for the type checker
        context = self._surroundings.copy()
        runner = self._home.loop.create_task(self._serve(), name="pgqueue runner", context=context)
        _runners.add(runner)
        runner.add_done_callback(_runners.discard)

    async def _serve(self) -> None:
        """Be a runner of ``async def`` tasks."""
        self.hand.arrived()
        me, before, began = asyncio.current_task(), contextvars.copy_context(), time.monotonic()
        assert me is not None  # noqa: S101 - for the type checker
        while (attempt := self.hand.take(plain=False)) is not None:
            attempt.runner = me
            self._summon()
            if self.hand.replaced:
                self._stop_replaced()
            verdict = await self._executor.run(attempt)
            attempt.runner = None  # from now on a word to this attempt must not reach the next one
            self.hand.settle(attempt, verdict)
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
        loop = self._home.loop
        assert loop is not None  # noqa: S101 - for the type checker
        while (attempt := self.hand.take(plain=True)) is not None:
            self._summon()
            if self.hand.replaced:
                self._stop_replaced()
            self._deadlines.watch(attempt, self._executor.limit(attempt.claim), loop)
            verdict = self._surroundings.copy().run(self._executor.run_plain, attempt, loop)
            self.hand.settle(attempt, verdict)
            self._call_collect()
            if attempt.detached:  # it was given up, and its slot with it
                self.hand.came_back()
                break
        self._home.call_soon(self._leave)

    def _stop_replaced(self) -> None:
        """Stop attempts whose job this worker has claimed anew."""
        replaced, self.hand.replaced = self.hand.replaced, []
        for attempt in replaced:
            log.warning(
                "job claimed anew while an attempt of it runs: the former attempt is stopped",
                extra={"job": attempt.claim.id, "task": attempt.claim.task},
            )
            self._tell(attempt, Stop.LOST)

    def _call_collect(self) -> None:
        """Have verdicts passed on, all that there are when the loop comes to it."""
        if not self._called:
            self._called = True
            self._home.call_soon(self._collect)

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
        if self.hand.give_up(attempt, verdict):
            self._home.call(self._collect)
            self._home.call(self._leave)


def _differs(now: contextvars.Context, before: contextvars.Context) -> bool:
    """Whether a job has left something in the context variables; quick where nothing was set."""
    try:
        return now != before
    except Exception:  # noqa: BLE001 - comparing other people's values may raise anything
        return True

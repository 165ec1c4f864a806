"""Runners: they run the claims that wait, up to a number of attempts at a time.

A *runner* has a slot, and runs one claim after the other while the next claim is of its kind: an asyncio task for
``async def`` tasks, a thread for plain functions. So a streak of short jobs costs no task, no thread and no wake-up per
job. Only one new runner is on its way at a time; when it has found work it starts the next one. While a job waits for
something, the next runner starts.

What a job leaves behind ends with it: a runner that was cancelled, or whose context variables were changed, is replaced
by a fresh one. A runner that ends for any reason records what became of its attempt, and gives its slot back.

A function may go on after its timeout: a plain one cannot be ended, and a coroutine may not heed its cancellation. It keeps its
slot until it returns. Its job ends at once, or, where a limit counts it, when the function returns. If the system starts no more
threads, claims of plain functions are requeued with a delay: other workers may have room.
"""

import asyncio
import contextvars
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from uuid import UUID

from pgqueue.app.hooks.observer import Observers
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Cancelled, Returned, Stop, Verdict
from pgqueue.worker import batches
from pgqueue.worker.attempt import CLEAN_UP, Attempt, BatchAttempt, differs, keeps_job, limit
from pgqueue.worker.claims import NO_WAITS, Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.executor import Executor
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.signals import Signals
from pgqueue.worker.threads import Deadlines, Threads

log = worker_log()

# asyncio itself holds its tasks weakly: a runner whose job has ended, and that waits for what nothing else holds, would be
# destroyed as garbage in the middle of its work.
_runners: set["asyncio.Task[None]"] = set()

LONGEST_STREAK = 0.005
"""Seconds of unbroken work after which a runner lets the loop do everything else."""
NO_THREAD_DELAY = timedelta(seconds=5)
"""When claims that found no runner are tried again."""
LOG_EVERY = 15.0
"""Seconds between two log records about that."""


class Runners:
    """Starts waiting claims as slots become free."""

    def __init__(
        self,
        claims: Claims,
        executor: Executor,
        completer: Completer,
        *,
        signals: Signals,
        observers: Observers | None = None,
    ) -> None:
        self._claims = claims
        self._executor = executor
        self._completer = completer
        self._signals = signals
        self._observers = observers or Observers()
        self._threads = Threads()
        self._deadlines = Deadlines(claims.running, self._time_out)
        self._surroundings = contextvars.copy_context()  # else a job would see what the last one left behind
        self._collecting = False
        self._started: deque[Claim] = deque()
        self._telling = False
        self._emptied = asyncio.Event()
        self._added_at = 0.0
        self._release: asyncio.TimerHandle | None = None
        self._logged_at = -math.inf

    @property
    def idle_threads(self) -> int:
        """How many threads wait for a plain function."""
        return self._threads.idle

    def known(self) -> list[int]:
        """The ids of all jobs that this worker knows to be in its name. May be called in any thread."""
        return self._completer.known()

    def add(self, claims: Sequence[Claim], waits: Mapping[int, float] = NO_WAITS, since: float = 0.0) -> None:
        """Take claims, and start what can be started. Claims of a lease that was lost are left alone.

        Args:
            claims: in order.
            waits: in how many seconds some of them start, by job.
            since: from when on the waits count, in seconds of the monotonic clock.
        """
        self._signals.here()
        if not self._claims.add(claims, waits, since):
            log.warning("claims of a lost lease are not run", extra={"jobs": len(claims)})
            return
        if claims and self._observers.claimed:
            self._observers.claimed(claims)
        self._added_at = time.monotonic()
        if self._claims.held.count:
            self._release_due()
        else:
            self._summon()

    def resize(self, size: int) -> None:
        """Have this many slots, and use them. Called in the loop."""
        self._claims.resize(size)
        self._summon()
        self._signals.look.set()

    def return_stale(self, older_than: float) -> int:
        """Requeue claims that wait for a slot, but for a heavy one, if none was added in this many seconds. Called once a second, in the loop."""
        if self._claims.rests:
            self._claims.rests = False
            self._signals.look.set()
        if time.monotonic() - self._added_at < older_than:
            return 0
        heavy = self._claims.heavy()
        return self.return_waiting(held=False, but=None if heavy is None else heavy[0].id)

    def return_heavy(self, job_id: int) -> None:
        """Requeue a claim that waits for several slots, which another worker has. This one claims nothing for a second."""
        self._claims.rests = self._claims.drop(Returned, {job_id}, held=False) > 0
        self._signals.call(self._collect)

    def return_waiting(self, *, held: bool = True, but: int | None = None) -> int:
        """Requeue claims that have not started, all ``but`` a job, also those that may not yet if ``held``; how many. Any thread may call it."""
        with self._claims.lock:
            ids = None if but is None else {one.id for one in self._claims.unstarted()} - {but}
        returned = self._claims.drop(Returned, ids, held=held)
        if returned:
            self._signals.call(self._collect)
        return returned

    def cancel(self, job_ids: Iterable[int]) -> None:
        """Stop these jobs where they run, and end those that have not started. May be called in any thread."""
        asked = set(job_ids)
        if self._claims.drop(Cancelled, asked):
            self._signals.call(self._collect)
        for attempt in self._running():
            if attempt.claim.id in asked:
                self._tell(attempt, Stop.CANCEL)

    def stop(self, why: Stop) -> None:
        """Stop what runs. Plain functions cannot be stopped: they are told, and their jobs end."""
        for attempt in self._running():
            attempt.stop(why)
            if attempt.plain:
                self._overrun(attempt, self._executor.stopped(attempt), keep=False)

    def give_back(self) -> None:
        """The worker ends: requeue what still runs after it was told to stop."""
        for attempt in self._running():
            self._claims.settle(attempt, self._executor.stopped(attempt))
        self._collect()

    def abandon(self, former: UUID) -> None:
        """Drop everything: the lease of this worker id is lost. May be called in any thread."""
        attempts, lost = self._claims.abandon(former)
        for attempt in attempts:
            attempt.context.cancelled = True
            self._tell(attempt, Stop.LOST)
        self._signals.call(self._leave)
        lost += [verdict.claim for verdict in self._completer.forget(former)]
        if lost and self._observers.lost:
            self._observers.lost(lost)

    async def while_blocked(self, connection: WorkerConnection) -> None:
        """Do in the heartbeat's thread what cannot wait for the worker's event loop, which a task blocks.

        Attempts of plain functions time out, claims that cannot start are requeued, and verdicts are recorded. Each
        such attempt is judged in a thread of its own: the retry policy is the user's code, too.

        Args:
            connection: one that nothing else uses.
        """
        self._tell_started()
        for attempt in self._deadlines.overdue():
            self._threads.start(partial(self._time_out, attempt))
        returned = self.return_waiting()
        if returned:
            log.info("returned claims that a blocked event loop cannot start", extra={"jobs": returned})
        async with connection as own:
            await self._completer.stand_in(own, tell_started=self._tell_started)

    async def emptied(self) -> None:
        """Wait until no job runs, and the completer knows of every verdict."""
        while self._claims.taken > self._claims.kept:
            self._emptied.clear()
            await self._emptied.wait()
        self._collect()

    def close(self) -> None:
        """Release the threads; a thread that runs a function ends with it."""
        if self._release is not None:
            self._release.cancel()
        self._deadlines.close()
        self._threads.close()

    def _release_due(self) -> None:
        """Start claims whose instant has come, and batches whose first claim has waited for long enough. Called in the loop."""
        if self._release is not None:
            self._release.cancel()
        seconds = self._claims.release_due()
        loop = asyncio.get_running_loop()
        self._release = None if seconds is None else loop.call_later(max(0.0, seconds), self._release_due)
        self._summon()

    def _running(self) -> list[Attempt]:
        return list(self._claims.running.values())

    def _tell(self, attempt: Attempt, why: Stop) -> None:
        if attempt.plain:
            attempt.stop(why)
        else:
            # A coroutine is stopped in its loop only.
            self._signals.call(partial(attempt.stop, why))

    def _summon(self) -> None:
        """Start a runner, if one is needed. Called in the loop and in threads."""
        plain = self._claims.reserve()
        if plain is None:
            return
        try:
            if plain:
                self._threads.start(self._serve_plain)
            else:
                self._signals.call(self._start_serving)
        except RuntimeError as error:
            self._claims.unreserve()
            self._turn_away(error)

    def _turn_away(self, why: RuntimeError) -> None:
        """There is no thread: requeue plain functions with a delay, and go on with the others."""
        returned = self._claims.drop(partial(Returned, delay=NO_THREAD_DELAY), plain=True)
        if time.monotonic() - self._logged_at > LOG_EVERY:
            self._logged_at = time.monotonic()
            fields = {"jobs": returned, "delay": str(NO_THREAD_DELAY), "error": str(why)}
            log.error(
                "the worker cannot start more plain functions: it returns their jobs to the queue for a while",
                extra={**fields, "not_returned": self._claims.not_returned},
            )
        self._signals.call(self._collect)
        self._signals.call(self._leave)

    def _start_serving(self) -> None:
        assert self._signals.loop is not None  # noqa: S101 - for the type checker
        context = self._surroundings.copy()
        runner = self._signals.loop.create_task(self._serve(), name="pgqueue runner", context=context)
        _runners.add(runner)
        runner.add_done_callback(_runners.discard)

    async def _serve(self) -> None:
        claims, run, overrun = self._claims, self._executor.run, self._time_out
        started = self._observers.started
        claims.coming = False
        me, before, began = asyncio.current_task(), contextvars.copy_context(), time.monotonic()
        assert me is not None  # noqa: S101 - for the type checker
        attempt = None
        try:
            while (attempt := claims.take(plain=False)) is not None:
                try:
                    attempt.runner, attempt.overrun = me, overrun
                    if claims.waiting and not claims.coming:
                        self._summon()
                    if started.told or claims.replaced:
                        self._note_start(attempt)
                    verdict = await (
                        run(attempt) if type(attempt) is not BatchAttempt else self._run_batch(attempt)
                    )
                except BaseException as error:  # noqa: BLE001 - the slot of this runner must not be lost, whatever it is
                    self._break_off(attempt, error)
                    return
                attempt.runner = None  # from now on, stopping this attempt must not reach the next one
                if me.cancelling() and self._forget_if_torn_down(attempt):
                    verdict = None
                claims.settle(attempt, verdict)
                if not self._collecting:
                    self._call_collect()
                if me.cancelling() or attempt.extra or differs(contextvars.copy_context(), before):
                    return
                if time.monotonic() - began > LONGEST_STREAK:
                    await asyncio.sleep(0)
                    began = time.monotonic()
        finally:
            claims.leave(attempt)
            self._leave()

    async def _run_batch(self, attempt: BatchAttempt) -> None:
        self._call_collect()  # so few claims wait now that the fetcher may have to look
        await batches.run(self._executor, attempt)

    def _forget_if_torn_down(self, attempt: Attempt) -> bool:
        """Whether the program ends the loop. Then this cancellation may not be the job's fault, and no verdict is kept."""
        if attempt.stopped is not None or not self._signals.torn_down:
            return False
        for one in attempt.members:
            one.verdict = None
        return True

    def _serve_plain(self) -> None:
        claims, loop, started = self._claims, self._signals.loop, self._observers.started
        assert loop is not None  # noqa: S101 - for the type checker
        claims.coming, attempt = False, None
        try:
            while (attempt := claims.take(plain=True)) is not None:
                try:
                    if claims.waiting and not claims.coming:
                        self._summon()
                    if started.told or claims.replaced:
                        self._note_start(attempt)
                    self._deadlines.watch(attempt, limit(attempt), loop)
                    surroundings = self._surroundings.copy()
                    if type(attempt) is not BatchAttempt:
                        verdict = surroundings.run(self._executor.run_plain, attempt, loop)
                    else:
                        self._call_collect()
                        verdict = None
                        surroundings.run(batches.run_plain, self._executor, attempt, loop)
                except BaseException as error:  # noqa: BLE001 - the slot of this runner must not be lost, whatever it is
                    self._break_off(attempt, error)
                    return
                claims.settle(attempt, verdict)
                if not self._collecting:
                    self._call_collect()
                if attempt.extra:
                    return
        finally:
            claims.leave(attempt)
            self._signals.call_soon(self._leave)

    def _break_off(self, attempt: Attempt, error: BaseException) -> None:
        """Record an attempt that has ended its runner."""
        for one in attempt.members:
            if not one.decided:
                one.decide(self._executor.broken_off(one, error))
        self._claims.settle(attempt, None if attempt.members else self._executor.broken_off(attempt, error))
        self._call_collect()

    def _note_start(self, attempt: Attempt) -> None:
        """Tell observers of starts, in batches; and stop attempts whose job this worker has claimed again."""
        if self._observers.started:
            self._started += [one.claim for one in attempt.members or (attempt,)]
            if not self._telling:
                self._telling = True
                self._signals.call_soon(self._tell_started)
        replaced, self._claims.replaced = self._claims.replaced, []
        for earlier in replaced:
            fields = {"job": earlier.claim.id, "task": earlier.claim.task}
            log.warning(
                "job claimed again while an attempt of it runs: the earlier one is stopped", extra=fields
            )
            self._tell(earlier, Stop.LOST)
        if replaced:
            self._observers.lost([earlier.claim for earlier in replaced])

    def _tell_started(self) -> None:
        self._telling = False  # first: what starts from now on has to be asked for again
        started: list[Claim] = []
        with suppress(IndexError):  # another thread may tell of the last ones
            started.extend(self._started.popleft() for _ in range(len(self._started)))
        if started:
            self._observers.started(started)

    def _call_collect(self) -> None:
        self._collecting = True
        self._signals.call_soon(self._collect)

    def _collect(self) -> None:
        self._collecting = False  # first: verdicts that are settled from now on have to be announced again
        self._completer.look()
        self._signals.waiting(self._claims.queued)

    def _leave(self) -> None:
        """A runner has ended: the next claim may need one of the other kind."""
        self._summon()
        if self._claims.taken <= self._claims.kept:
            self._emptied.set()

    def _time_out(self, attempt: Attempt) -> None:
        """Judge an attempt whose time is over, and whose function goes on: a plain one, or a coroutine that heeds no cancellation."""
        if not attempt.plain:
            fields = {"job": attempt.claim.id, "task": attempt.claim.task, "seconds": CLEAN_UP}
            log.error("coroutine goes on after its timeout; it keeps its slot until it ends", extra=fields)
        for one in attempt.members or (attempt,):
            self._overrun(one, self._executor.timed_out(one), keep=keeps_job(one))
        if attempt.members and attempt.runner is not None:
            attempt.runner.cancel()

    def _overrun(self, attempt: Attempt, verdict: Verdict | None, *, keep: bool) -> None:
        """Leave a function to itself: its late result is not recorded."""
        if self._claims.overrun(attempt, verdict, keep=keep):
            self._signals.call(self._collect)
            self._signals.call(self._leave)

"""The attempts of a drain: which job or batch runs next and in whose name, the worker's own executor, and a place to run in.

:class:`DrainState` knows what a drain knows between two jobs; nothing in it waits.
"""

import asyncio
import contextvars
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pgqueue.app.context import Context
from pgqueue.app.flows import workflow
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import InvalidOption, JobControl, JobError, Waiting
from pgqueue.store.jobs import finish
from pgqueue.store.jobs.ending import States
from pgqueue.store.limits.served_lanes import ServedLanes
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases
from pgqueue.testing.claims import DrainClaim, next_claim
from pgqueue.testing.trouble import INJECTED, WorkerDied
from pgqueue.values.jobs.job import Claim, Job, JobState
from pgqueue.values.jobs.options import BatchPolicy
from pgqueue.values.jobs.verdict import Returned, Verdict, as_recorded
from pgqueue.values.payloads.codec import args_shown, with_encoded_errors
from pgqueue.values.queues.served_queues import Order, parse_served
from pgqueue.values.queues.shares import split_of
from pgqueue.values.workers.crashes import CrashCount
from pgqueue.worker import batches
from pgqueue.worker.attempt import Attempt, BatchAttempt, limit, run_to_the_end
from pgqueue.worker.before_attempt import end_as_crashed
from pgqueue.worker.executor import Executor
from pgqueue.worker.held_claims import group_of

MOST_OTHERS = 1_000
"""Jobs of other tasks among which a drain looks for those of a batch."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt that a drain has run.

    Attributes:
        id: the job's.
        task: the task's name.
        args: the arguments, as plain JSON values.
        attempt: which attempt it was, from 1.
        outcome: the state in which it left the job.
        error: what it raised, the exception itself; or None.
    """

    id: int
    task: str
    args: dict[str, Any]
    attempt: int
    outcome: JobState
    error: BaseException | None


class DrainState:
    """What a drain knows between two jobs.

    Attributes:
        worker: in whose name it claims. When a worker dies, the next one takes over.
        executor: runs the attempts.
        found: the job to run next, or all jobs of a batch.
        others: jobs that were claimed while those of a batch were looked for; they go back.
        ran: those that have ended.
        error: what the drain is to raise; it runs no further job then.
        began: whether it claims jobs, so that its worker may be registered.
    """

    def __init__(
        self,
        queue: PgQueue,
        queues: Iterable[str] | Mapping[str, int] | None,
        order: Order,
        *,
        raises: bool,
        limit: int,
    ) -> None:
        if not isinstance(queue, PgQueue):
            raise InvalidOption(f"drain({queue!r}): give the queue; every job that is due in it is run")
        if limit < 1:
            raise InvalidOption(f"limit={limit!r}: run at least one job")
        workflow.register(queue)
        self._queue = queue
        self._served = parse_served(queues, order=order, declared=queue.queues)
        self._split = split_of(self._served)
        self._raises = raises
        self._limit = limit
        self.executor = RecordingExecutor(queue)
        self._lanes = ServedLanes(
            lambda: queue.limits,
            lambda: queue.limiting,
            self._served,
            left_out=self.executor.served.left_out,
        )
        self.found: list[Claim] = []
        self.others: list[Verdict] = []
        self.ran: list[Ran] = []
        self.error: BaseException | None = None
        self.began = False
        self._enter_worker()

    def look(self) -> Plan[DrainClaim]:
        """Claim the next job."""
        if len(self.ran) >= self._limit:
            raise JobError(
                f"drain ran {self._limit} jobs, the last of {self.ran[-1].task}, and gave up; "
                "does a job enqueue itself? If not, give drain(limit=...)"
            )
        return next_claim(
            self.worker, self._served, self._split, self._lanes, self.executor.served.left_out()
        )

    def sort(self, found: DrainClaim) -> bool:
        """Take a claim to run next or with those of its batch, or as another one; False: there was none."""
        self._lanes.claimed()
        self.executor.timeouts = found.timeouts
        claim = found.claim
        if claim is None:
            return False
        if not self.found:
            if claim.task not in self._queue.tasks:
                self._queue.load_task(claim.task)
            self._batching = self._batching_of(claim)
            self._group = self._group_of(claim)
        if self._group_of(claim) == self._group:
            self.found.append(claim)
        else:
            self.others.append(Returned(claim))
        return True

    def wants_more(self) -> bool:
        """Whether jobs of the same batch are to be looked for."""
        if not self.found or self._batching is None or len(self.others) >= MOST_OTHERS:
            return False
        return len(self.found) < min(self._batching.size, self._limit - len(self.ran))

    def take_others(self) -> list[Verdict]:
        """What is to be recorded of the other jobs; none is left."""
        others, self.others = self.others, []
        return others

    def begin(self, found: Sequence[Claim]) -> Attempt:
        """Prepare the attempt; tell observers."""
        self._queue.observers.claimed(found)
        self._queue.observers.started(found)
        claim = found[0]
        task = self._queue.tasks.get(claim.task)
        if task is not None and task.batching is not None:
            return BatchAttempt(found, task, self.executor)
        plain = task is not None and not task.is_async
        return Attempt(claim, task, Context(claim, self.executor), plain=plain)

    def finish(self, verdicts: Sequence[Verdict]) -> Plan[States]:
        """Record how they ended. Where the database refuses that, a test's own transaction goes on."""
        recording = finish.finish(
            self.worker.id,
            with_encoded_errors(self._queue.codec, verdicts),
            keep=self._queue.keeps_history,
        )
        return recording.in_transaction()

    def note_recorded(self, verdicts: Sequence[Verdict], states: States) -> None:
        """Tell observers what was recorded, and which jobs were no longer the attempt's."""
        observers = self._queue.observers
        if ended := [as_recorded(one, states[one.claim.id]) for one in verdicts if one.claim.id in states]:
            observers.ended(ended)
        if lost := [one.claim for one in verdicts if one.claim.id not in states]:
            observers.lost(lost)

    def note_reclaimed(self, verdicts: Sequence[Verdict]) -> None:
        """Tell observers of lost workers' jobs that were taken over."""
        if verdicts:
            self._queue.observers.reclaimed(verdicts)

    def end(self, found: Sequence[Claim], jobs: Mapping[int, Job | None]) -> None:
        """Note what became of jobs, by id: without a record they succeeded, and no history is kept."""
        self.found = []
        errors = [self._note(claim, jobs[claim.id]) for claim in found]
        if any(isinstance(error, WorkerDied) for error in errors):
            self._enter_worker()
        for error in errors:
            if error is not None and not isinstance(error, WorkerDied) and self._wants_raised(error):
                self.error = error
                return

    def result(self) -> list[Ran]:
        """What the drain returns. Not raised in its generator: a task's StopIteration would be a RuntimeError there.

        Raises:
            BaseException: the first error of a task that the test is to see.
        """
        if self.error is not None:
            raise self.error
        return self.ran

    def _note(self, found: Claim, job: Job | None) -> BaseException | None:
        error = self.executor.errors.pop(found.id, None)
        outcome = JobState.SUCCEEDED if job is None else job.state
        args = args_shown(self._queue.codec, found)
        self.ran.append(Ran(found.id, found.task, args, found.attempt, outcome, error))
        return error

    def _batching_of(self, claim: Claim) -> BatchPolicy | None:
        task = self._queue.tasks.get(claim.task)
        return None if task is None else task.batching

    def _group_of(self, claim: Claim) -> object:
        batching = self._batching_of(claim)
        return claim.id if batching is None else group_of(claim, batching.by, self._queue.codec)

    def _wants_raised(self, error: BaseException) -> bool:
        """Whether a test is to see an error: it is neither a task's decision, nor asked for by the test."""
        if isinstance(error, KeyboardInterrupt):  # of the person who runs the tests
            return True
        expected = isinstance(error, JobControl | Waiting) or INJECTED in getattr(error, "__notes__", ())
        return self._raises and not expected

    def _enter_worker(self) -> None:
        self.worker = leases.WorkerInfo.here(1, self._served.entries)


class RecordingExecutor(Executor):
    """The worker's executor, which keeps what attempts raised; of an attempt whose worker died it says nothing.

    A job that has killed as many workers as its task allows runs here, and is dead if its worker dies once more: a test has
    one process.

    Attributes:
        errors: by job id.
    """

    def __init__(self, queue: PgQueue) -> None:
        super().__init__(queue, observers=queue.observers)
        self.errors: dict[int, BaseException] = {}
        self._alone: dict[int, CrashCount] = {}

    async def run_alone(self, attempt: Attempt, begun: CrashCount) -> None:
        """Remember that the attempt would have a process of its own."""
        self._alone[attempt.claim.id] = begun

    def failed(self, attempt: Attempt, error: BaseException, *, logged: bool = False) -> Verdict | None:
        """As a worker does; where that process died, the job is dead."""
        begun = self._alone.pop(attempt.claim.id, None)
        if begun is None or not isinstance(error, WorkerDied):
            return super().failed(attempt, error, logged=logged)
        self.note(attempt.claim, error)
        return end_as_crashed(attempt, begun, attempt.context.seconds, "its own process").verdict

    def note(self, claim: Claim, error: BaseException) -> bool:
        """Keep an error; nothing is recorded of an attempt whose worker died."""
        self.errors[claim.id] = error
        return not isinstance(error, WorkerDied)


class Loop:
    """An event loop in a thread of its own, for ``async def`` tasks of a blocking test; started when needed."""

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        """``close`` is awaited in the loop at its end."""
        self._close = close
        self._started = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event

    def run(self, executor: Executor, attempt: Attempt) -> list[Verdict]:
        """Run an attempt, of one job or of a batch: a plain function in this thread, another in the loop."""
        if attempt.plain:
            return contextvars.copy_context().run(run_plain, executor, attempt, self._running())
        return asyncio.run_coroutine_threadsafe(_run(executor, attempt), self._running()).result()

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._thread is None:
            self._thread = threading.Thread(target=run_to_the_end, args=[self._serve()], name="pgqueue-close")
            self._thread.start()
            self._started.wait()
        return self._loop

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._stopped.wait()
        await self._close()


async def arun(executor: Executor, attempt: Attempt) -> list[Verdict]:
    """Run an attempt: a plain function in another thread, any other in this loop.

    Raises:
        asyncio.CancelledError: the caller was cancelled meanwhile, which the task took for its own.
    """
    me, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert me is not None  # noqa: S101 - for the type checker
    asked_before = me.cancelling()
    if attempt.plain:
        verdicts = await _in_thread(partial(run_plain, executor, attempt, loop))
    else:  # what it sets in context variables stays in its task
        verdicts = await asyncio.create_task(_run(executor, attempt))
    if me.cancelling() > asked_before:
        raise asyncio.CancelledError
    return verdicts


async def _in_thread(call: Callable[[], list[Verdict]]) -> list[Verdict]:
    """In the thread in which Django's own asynchronous code calls plain functions: there is the connection of its test."""
    if "django.db" in sys.modules:
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - Django has it

        return await sync_to_async(call)()
    return await asyncio.to_thread(call)


def run_plain(executor: Executor, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> list[Verdict]:
    """Run an attempt of a plain function in this thread.

    It cannot be stopped when its time is up: its context says so, and what it returns later is not recorded.
    """
    seconds = limit(attempt)
    if seconds > threading.TIMEOUT_MAX:  # as one that is not limited has it
        return _run_plain(executor, attempt, loop)
    passed: list[Verdict] = []
    timer = threading.Timer(seconds, lambda: passed.extend(_timed_out(executor, attempt)))
    timer.daemon = True
    timer.start()
    try:
        verdicts = _run_plain(executor, attempt, loop)
    finally:
        timer.cancel()
        timer.join()
    return passed or verdicts


async def _run(executor: Executor, attempt: Attempt) -> list[Verdict]:
    try:
        if not isinstance(attempt, BatchAttempt):
            return _known_verdicts([await executor.run(attempt)])
        await batches.run(executor, attempt)
    except GeneratorExit as error:
        if not attempt.members:
            return _known_verdicts([executor.broken_off(attempt, error)])
    return _known_verdicts(one.verdict for one in attempt.members)


def _run_plain(executor: Executor, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> list[Verdict]:
    if not isinstance(attempt, BatchAttempt):
        return _known_verdicts([executor.run_plain(attempt, loop)])
    batches.run_plain(executor, attempt, loop)
    return _known_verdicts(one.verdict for one in attempt.members)


def _timed_out(executor: Executor, attempt: Attempt) -> list[Verdict]:
    return _known_verdicts(executor.timed_out(one) for one in attempt.members or (attempt,))


def _known_verdicts(verdicts: Iterable[Verdict | None]) -> list[Verdict]:
    return [one for one in verdicts if one is not None]

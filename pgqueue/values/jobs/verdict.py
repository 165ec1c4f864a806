"""What becomes of a job after an attempt: the pure decision, and the error that is recorded.

How an exception becomes the text of an error is decided in :mod:`pgqueue.values.jobs.error_text`; the database adds the time,
and bounds how many errors are kept. How a verdict is recorded is decided
in :mod:`pgqueue.store.jobs.finish`.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from pgqueue import errors
from pgqueue.errors import Dead, ResultNotKept, RetryLater, Snooze, Waiting, WaitTimedOut
from pgqueue.values.jobs.error_text import describe, text_of
from pgqueue.values.jobs.job import AttemptError, Claim, Job, JobState
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.signals import SignalWait
from pgqueue.values.workers.lease import duration_text, spoken_bytes

Reason = Literal["exhausted", "refused", "undecodable", "asked", "unknown", "expired", "crashed", "deadline"]

NOT_KEPT = "pgqueue.errors.ResultNotKept"
"""The type of the error that is recorded with a job whose result is not kept."""
_LOGGED = "__pgqueue_logged__"
NOT_RETURNED: Final = b"null"
"""Stored as the result where it was not kept, or the task completed its job before it returned; a returned None is SQL null."""


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The attempt returned; ``result`` is its value as JSON, None, or ``NOT_RETURNED``; ``error`` says why that is not kept."""

    label: ClassVar = "succeeded"
    spends: ClassVar = True
    claim: Claim
    seconds: float
    result: bytes | None = None
    error: AttemptError | None = None


class Again(msgspec.Struct, frozen=True):
    """The attempt failed; the job runs again after ``delay``, or with the ``run_at`` that it has if that is None."""

    label: ClassVar = "retried"
    spends: ClassVar = True
    claim: Claim
    delay: timedelta | None
    error: AttemptError


class Died(msgspec.Struct, frozen=True):
    """The attempt failed for good. ``seconds``: how long it ran, None: it did not."""

    label: ClassVar = "dead"
    spends: ClassVar = True
    claim: Claim
    seconds: float | None
    reason: Reason
    error: AttemptError


class Returned(msgspec.Struct, frozen=True):
    """The job goes back, its attempt not counted: after ``delay``, or with the ``run_at`` that it has if that is None."""

    label: ClassVar = "returned"
    spends: ClassVar = False
    claim: Claim
    delay: timedelta | None = None


class Unknown(msgspec.Struct, frozen=True):
    """The worker does not know the task: the job goes back for ``delay``, its attempt not counted.

    Once workers have not known it for ``after``, the job is dead, unless a worker that is alive may know it.
    """

    label: ClassVar = "unknown"
    spends: ClassVar = False
    claim: Claim
    delay: timedelta
    after: timedelta


class Waits(msgspec.Struct, frozen=True):
    """The job is blocked until what it waits for has happened, or its deadline has passed; its attempt is not counted."""

    label: ClassVar = "waiting"
    spends: ClassVar = False
    claim: Claim
    awaited: SignalWait


class Cancelled(msgspec.Struct, frozen=True):
    """The job was asked to cancel, and its attempt has ended; or its task ended it so.

    ``skipped``: a condition of its flow kept it from running.
    """

    label: ClassVar = "cancelled"
    spends: ClassVar = True
    claim: Claim
    error: AttemptError | None = None
    skipped: bool = False


Verdict: TypeAlias = Succeeded | Again | Died | Returned | Unknown | Waits | Cancelled
"""Each has a ``label``, by which metrics count it, and says whether it ``spends`` the attempt."""


class Stop(Enum):
    """Why an attempt was stopped by the worker."""

    SHUTDOWN = auto()
    """The worker stops and its grace is over: the job is requeued."""
    CANCEL = auto()
    """A caller cancelled the job."""
    LOST = auto()
    """The job is no longer this attempt's: the worker lost its lease, or claimed the job again."""


def judge(claim: Claim, error: BaseException, *, retry: Retry, seconds: float) -> Verdict:
    """Decide on a job whose attempt raised.

    Args:
        claim: the attempt.
        error: what it raised.
        retry: the task's policy.
        seconds: how long the attempt ran.

    Returns:
        What is to be recorded.
    """
    described = describe(error, claim.attempt)
    match error:
        case Snooze():
            return Returned(claim, error.delay)
        case Waiting(awaited=SignalWait() as awaited):  # of another job, where a take is left by it
            return Waits(claim, awaited) if awaited.job_id == claim.id else Returned(claim)
        case Dead():
            return Died(claim, seconds, "asked", described)
        case errors.Cancelled():
            reason = msgspec.structs.replace(described, traceback=None)
            return Cancelled(claim, reason if described.message else None)
        case _:
            return _after_failure(claim, error, described, retry=retry, seconds=seconds)


def judge_by_default(claim: Claim, error: BaseException, *, seconds: float) -> Verdict:
    """As :func:`judge`, by the default policy. Never raises, even if the error's attributes do."""
    try:
        return judge(claim, error, retry=Retry(), seconds=seconds)
    except BaseException:  # noqa: BLE001 - the attributes of a user's error may raise anything
        return failed_verdict(claim, describe(error, claim.attempt), seconds=seconds)


def _after_failure(
    claim: Claim, error: BaseException, described: AttemptError, *, retry: Retry, seconds: float
) -> Verdict:
    age = timedelta(seconds=claim.failing_seconds + seconds)
    match error:
        case _ if claim.attempt >= claim.max_attempts:
            return Died(claim, seconds, "exhausted", described)
        case RetryLater():
            return Again(claim, error.delay, described)
        case WaitTimedOut():  # each further attempt would be told the same
            return Died(claim, seconds, "deadline", described)
        case ResultNotKept(final=True):
            return Died(claim, seconds, "refused", described)
        case _ if not retry.wants_again(error, claim.attempt, age):
            return Died(claim, seconds, "refused", described)
        case _:
            return Again(claim, retry.delay(error, claim.attempt, age), described)


def lost_verdict(
    claim: Claim,
    *,
    seconds: float,
    how: str = "stopped renewing its lease",
    crashed: bool = False,
    memory: int | None = None,
) -> Verdict:
    """Decide on a job whose worker will not record how the attempt ended: the attempt is spent.

    Args:
        claim: the attempt.
        seconds: how long ago the job was claimed.
        how: what the worker did, for the error's message.
        crashed: whether the attempt counts as one that ended with its worker.
        memory: the worker's, in bytes, at its last heartbeat; None: not known.
    """
    had = "" if memory is None else f"; last RSS {spoken_bytes(memory)}"
    error = AttemptError(
        attempt=claim.attempt,
        type="WorkerLost",
        message=f"worker {claim.worker_id} {how}{had}",
        crashed=crashed,
        memory=memory,
        seconds=round(seconds, 6),
        worker=claim.worker_id,
    )
    if claim.attempt >= claim.max_attempts:
        return Died(claim, seconds, "exhausted", error)
    return Again(claim, None, error)


def expired_verdict(claim: Claim, now: float) -> Died | None:
    """What becomes of a claim whose attempt is about to start, if that is too late; None: it is not.

    Args:
        claim: the attempt.
        now: seconds of this process's monotonic clock.
    """
    if claim.expires_in is None or (late := now - claim.asked_at - claim.expires_in) < 0:
        return None
    said = f"it was to be started {duration_text(late)} before a worker could start it, and was not started"
    return Died(claim, None, "expired", AttemptError(claim.attempt - 1, "Expired", said))


def expired_words(by: str) -> str:
    """What is said of a job that no worker had claimed by then."""
    return f"it was to be started by {by}, and was not started"


def given_up(verdict: Unknown) -> Died:
    """What becomes of a job whose task no worker has known for as long as the verdict says."""
    claim = verdict.claim
    known = f"no worker that serves queue {claim.queue} has known task {claim.task}"
    error = AttemptError(
        claim.attempt, "UnknownTask", f"{known} for {duration_text(verdict.after.total_seconds())}"
    )
    return Died(claim, None, "unknown", error)


def as_stopped(verdict: Verdict, why: Stop | None) -> Verdict:
    """The verdict on an attempt that was told to stop: a cancelled job does not run again, and a job of a stopping worker does."""
    match why, verdict:
        case Stop.CANCEL, Again() | Died() | Returned() | Waits():
            return Cancelled(verdict.claim, getattr(verdict, "error", None))
        case Stop.SHUTDOWN, Cancelled():
            return Returned(verdict.claim)
        case _:
            return verdict


def as_recorded(verdict: Verdict, state: JobState) -> Verdict:
    """The verdict as the database has recorded it, given the state in which that left the job.

    A job that a caller has cancelled does not run again, a job whose task no worker knows may be dead, and one that was to
    wait for a signal goes back to its queue if the signal is there.
    """
    if state is JobState.CANCELLED and not isinstance(verdict, Cancelled):
        return Cancelled(verdict.claim, getattr(verdict, "error", None))
    if state is JobState.DEAD and isinstance(verdict, Unknown):
        return given_up(verdict)
    if state is not JobState.BLOCKED and isinstance(verdict, Waits):
        return Returned(verdict.claim)
    return verdict


def fallbacks(verdict: Verdict, refusal: Exception) -> Sequence[Verdict]:
    """What to record in place of a verdict that the database refused to store, the best first.

    Args:
        verdict: what was refused.
        refusal: the database's error.

    Returns:
        A success without its result, with the reason; a success without the reason; a failure whose error is the refusal;
        a failure that does not quote it. A failure spends the attempt, so that the job cannot run again for ever.
    """
    claim = verdict.claim
    failures = [
        failed_verdict(claim, describe(refusal, claim.attempt)),
        failed_verdict(claim, _untold(claim.attempt)),
    ]
    if not isinstance(verdict, Succeeded) or (verdict.result is None and verdict.error is None):
        return failures
    silent = without_result(claim, verdict.seconds, f"the database refused it: {text_of(refusal)}")
    return [silent, Succeeded(claim, verdict.seconds, NOT_RETURNED), *failures]


def failed_verdict(
    claim: Claim, error: AttemptError, *, delay: timedelta = timedelta(minutes=1), seconds: float = 0.0
) -> Verdict:
    """An attempt that failed and is not judged by the retry policy: again after a delay, or dead if it was the last."""
    if claim.attempt >= claim.max_attempts:
        return Died(claim, seconds, "exhausted", error)
    return Again(claim, delay, error)


def _untold(attempt: int) -> AttemptError:
    return AttemptError(attempt, "VerdictRefused", "the database refused to store how this attempt ended")


def without_result(claim: Claim, seconds: float, reason: str) -> Succeeded:
    """The verdict on an attempt whose result cannot be kept: a caller that asks for the result is told the reason."""
    return Succeeded(claim, seconds, NOT_RETURNED, error=describe(ResultNotKept(reason), claim.attempt))


def why_not_kept(job: Job) -> AttemptError | None:
    """The note among a succeeded job's errors that says why its result is not kept; None: it is kept.

    An attempt of it that failed with the same type of error, as one that asked for another job's result, is no note.
    """
    last = job.errors[-1] if job.state is JobState.SUCCEEDED and job.errors else None
    return last if last is not None and (last.type, last.attempt) == (NOT_KEPT, job.attempts) else None


def note_logged(error: BaseException) -> None:
    """Note that a framework has logged the error's traceback, so that the worker does not log it again."""
    with suppress(Exception):  # an error of the user's may refuse attributes
        setattr(error, _LOGGED, True)


def error_to_log(error: BaseException) -> BaseException | None:
    """The error, for its traceback to be logged; None: that is done."""
    with suppress(Exception):  # as may its attributes
        return None if getattr(error, _LOGGED, False) else error
    return error

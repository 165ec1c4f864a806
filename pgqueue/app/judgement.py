"""What becomes of an attempt, for workers and takes, and the line in the log that says so.

The rules are those of :mod:`pgqueue.values.jobs.verdict`. Here is what may fail around them: a retry policy is the user's code.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from pgqueue.errors import PayloadNotDecodable
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.retry import Retry
from pgqueue.values.jobs.verdict import (
    Again,
    Died,
    Reason,
    Verdict,
    expired_verdict,
    judge,
    judge_by_default,
)
from pgqueue.values.payloads.codec import Codec, logged_error, logged_undecodable

Log: TypeAlias = logging.Logger | logging.LoggerAdapter[Any]

WHY_DEAD: Mapping[Reason, str] = {
    "exhausted": "this was its last attempt",
    "refused": "its retry policy does not retry this error",
    "undecodable": "its arguments cannot be read",
    "asked": "the task raised Dead",
    "unknown": "no worker has known its task for too long",
    "expired": "it was not started in time",
    "crashed": "it killed too many workers",
    "deadline": "what it waited for did not happen before the deadline",
}


def why_dead(reason: Reason) -> str:
    """Why a job is dead, in words and as it is recorded."""
    return f"{WHY_DEAD[reason]} (reason: {reason})" if reason in WHY_DEAD else reason


def judge_error(
    log: Log, codec: Codec | None, claim: Claim, error: BaseException, *, retry: Retry, seconds: float
) -> Verdict:
    """What an error makes of an attempt. Where the policy itself fails, the default one decides.

    Args:
        log: where to tell of that.
        codec: the queue's.
        claim: the job.
        error: what its attempt raised.
        retry: the policy.
        seconds: how long the attempt ran.
    """
    try:
        return _with_run(judge(claim, error, retry=retry, seconds=seconds), seconds)
    except BaseException as failure:  # a policy may raise anything, and it would end the runner or the take
        log.error(  # noqa: TRY400 - a codec may hide what it says
            "retry policy failed; the default one decides",
            extra={"task": claim.task},
            exc_info=logged_error(codec, failure),
        )
        return _with_run(judge_by_default(claim, error, seconds=seconds), seconds)


def _with_run(verdict: Verdict, seconds: float) -> Verdict:
    """The verdict, whose error says how long the attempt ran, and where."""
    if not isinstance(verdict, Again | Died):
        return verdict
    error = msgspec.structs.replace(verdict.error, seconds=round(seconds, 6), worker=verdict.claim.worker_id)
    return msgspec.structs.replace(verdict, error=error)


def judge_lateness(log: Log, claim: Claim) -> Died | None:
    """The verdict on a job whose attempt is about to start, if it is too late for that."""
    verdict = expired_verdict(claim, time.monotonic())
    if verdict is not None and verdict.error is not None:
        fields = {"job": claim.id, "task": claim.task, "error": verdict.error.message}
        log.warning("job is dead: %s", why_dead("expired"), extra=fields)
    return verdict


def judge_undecodable(log: Log, codec: Codec | None, claim: Claim, error: PayloadNotDecodable) -> Died:
    """The verdict on a job whose arguments cannot be read."""
    fields = {"job": claim.id, "task": claim.task, "error": logged_undecodable(codec, error)}
    log.error("job is dead: %s", why_dead("undecodable"), extra=fields)
    return Died(claim, 0.0, "undecodable", describe(error, claim.attempt))

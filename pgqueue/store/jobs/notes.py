"""What jobs note while they run: results of steps, a checkpoint, their progress, their last log lines.

Steps and checkpoints are noted under the fence, committed at once or with the transaction that the job has open. Progress and
log lines are written for many jobs in one statement. The notes of ended jobs are removed by the worker's upkeep.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.jobs.ending import AT_ONCE
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.attempt_log import StoredLog
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.note import Progress, StoredReport, report_of
from pgqueue.values.payloads.codec import JobPart

NoteKey: TypeAlias = tuple[Literal["step", "checkpoint"], str]
"""The kind of a note, and which step; a checkpoint has no name."""
BYTES_AT_ONCE = 4 * 1024 * 1024
"""Bytes of log lines in one statement."""


class NotedLog(NamedTuple):
    """The log of an attempt as it is stored.

    Attributes:
        value: as JSON.
        at: when it was written.
        part: what to tell the codec.
    """

    value: str
    at: datetime
    part: JobPart


class StoredProgress(NamedTuple):
    """The progress of a job as it is stored.

    Attributes:
        progress: with the message as a codec encoded it.
        part: what to tell the codec.
    """

    progress: Progress
    part: JobPart


@plan
def recall(job_id: int) -> Steps[dict[NoteKey, str | None]]:
    """The steps and the checkpoint that are noted of a job, as JSON; None: it is long, and :func:`recall_long` brings it."""
    rows = yield Statement("notes/recall", {"id": job_id})
    return {(kind, name): value for kind, name, value in rows}


@plan
def recall_long(job_id: int, key: NoteKey) -> Steps[str | None]:
    """A note as JSON; None: it is not there."""
    rows = yield Statement("notes/recall_long", {"id": job_id, "kind": key[0], "name": key[1]})
    return rows[0][0] if rows else None


@plan
def keep(claim: Claim, key: NoteKey, value: str, *, now: datetime | None = None) -> Steps[bool]:
    """Note a step's result or a checkpoint, in place of a former one; False: the attempt no longer holds its job.

    Args:
        claim: the attempt.
        key: what to note.
        value: as JSON.
        now: the instant; the database's own by default.
    """
    kind, name = key
    params = {"id": claim.id, "worker": claim.worker_id, "fence": claim.fence}
    noted = yield Statement("notes/keep", {**params, "kind": kind, "name": name, "value": value, "now": now})
    return bool(noted)


@plan
def report(reports: Sequence[StoredReport], *, now: datetime | None = None) -> Steps[None]:
    """Note how far jobs are, each at most once. Nothing is noted of attempts that no longer hold their jobs.

    Args:
        reports: in any order.
        now: the instant; the database's own by default.
    """
    ordered = sorted(reports, key=lambda one: one.claim.id)
    for start in range(0, len(ordered), AT_ONCE):
        portion = ordered[start : start + AT_ONCE]
        yield Statement(
            "notes/report",
            {
                "ids": numbers([one.claim.id for one in portion]),
                "workers": texts(str(one.claim.worker_id) for one in portion),
                "fences": numbers([one.claim.fence for one in portion]),
                "values": texts(one.value for one in portion),
                "now": now,
            },
            returns=False,
        )


@plan(reads=True)
def progress(job_id: int) -> Steps[StoredProgress | None]:
    """How far a job is, as it last reported; None: it has not, or it is gone."""
    rows = yield Statement("notes/progress", {"id": job_id})
    return noted_of(*rows[0]) if rows else None


@plan
def keep_logs(logs: Sequence[StoredLog], *, now: datetime | None = None) -> Steps[None]:
    """Note the last log lines of attempts, in place of those that were noted of them before.

    Args:
        logs: in the order in which they were made: of one attempt the last one counts.
        now: the instant; the database's own by default.
    """
    newest = {(one.claim.id, one.name): one.value for one in logs}
    for portion in _portions(sorted(newest.items())):
        yield Statement(
            "notes/log",
            {
                "ids": numbers([job for (job, _), _ in portion]),
                "names": texts(name for (_, name), _ in portion),
                "values": texts(value for _, value in portion),
                "now": now,
            },
            returns=False,
        )


def _portions(logs: Sequence[tuple[tuple[int, str], str]]) -> Iterator[list[tuple[tuple[int, str], str]]]:
    portion: list[tuple[tuple[int, str], str]] = []
    size = 0
    for one in logs:
        if portion and (size + len(one[1]) > BYTES_AT_ONCE or len(portion) == AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(one)
        size += len(one[1])
    if portion:
        yield portion


@plan(reads=True)
def logs(job_id: int) -> Steps[list[NotedLog]]:
    """The last log lines of the attempts of a job, the oldest first; empty: none are kept, or the job is gone."""
    rows = yield Statement("notes/logs", {"id": job_id})
    return [NotedLog(value, at, JobPart("note", task, meta)) for value, at, task, meta in rows]


def noted_of(value: str, at: datetime, task: str, meta: str | None) -> StoredProgress | None:
    """The progress in a row; None: it was written by another program, and cannot be read."""
    said = report_of(value)
    return (
        None
        if said is None
        else StoredProgress(Progress(said.done, said.total, said.message, at), JobPart("note", task, meta))
    )

"""What jobs note while they run: results of steps, a checkpoint, their progress.

Steps and checkpoints are noted under the fence, committed at once or with the transaction that the job has open. Progress
is written for many jobs in one statement. The notes of ended jobs are removed by the worker's upkeep.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.jobs.ending import AT_ONCE
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.note import Progress, StoredReport, report_of
from pgqueue.values.payloads.codec import JobPart

NoteKey: TypeAlias = tuple[Literal["step", "checkpoint"], str]
"""The kind of a note, and which step; a checkpoint has no name."""


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


def noted_of(value: str, at: datetime, task: str, meta: str | None) -> StoredProgress | None:
    """The progress in a row; None: it was written by another program, and cannot be read."""
    said = report_of(value)
    return (
        None
        if said is None
        else StoredProgress(Progress(said.done, said.total, said.message, at), JobPart("note", task, meta))
    )

"""What jobs in memory note: each public method of :class:`Notebook` answers the plan of its name in :mod:`pgqueue.store.jobs.notes`."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pgqueue.store.jobs.notes import NoteKey, StoredProgress, noted_of
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.note import StoredReport

if TYPE_CHECKING:
    from pgqueue.testing.table import JobTable


class Notebook:
    """The notes of all jobs of a queue."""

    def __init__(self, table: "JobTable") -> None:
        self._table = table
        self._notes: dict[int, dict[NoteKey, str]] = {}
        self._reports: dict[int, tuple[str, datetime, Claim]] = {}

    def recall(self, job_id: int) -> dict[NoteKey, str]:
        """The steps and the checkpoint of a job."""
        return dict(self._notes.get(job_id, {}))

    def recall_long(self, job_id: int, key: NoteKey) -> str | None:
        """One of them."""
        return self.recall(job_id).get(key)

    def keep(self, claim: Claim, key: NoteKey, value: str, *, now: datetime) -> bool:  # noqa: ARG002 - nothing asks when
        """Note a step's result or a checkpoint; False: the attempt no longer holds its job."""
        if not self._table.claims.holds(claim):
            return False
        self._notes.setdefault(claim.id, {})[key] = value
        return True

    def report(self, reports: Sequence[StoredReport], *, now: datetime) -> None:
        """Note how far jobs are."""
        self._reports |= {
            one.claim.id: (one.value, now, one.claim)
            for one in reports
            if self._table.claims.holds(one.claim)
        }

    def progress(self, job_id: int) -> StoredProgress | None:
        """How far a job is."""
        if job_id not in self._reports or self._table.show(job_id) is None:
            return None
        value, at, claim = self._reports[job_id]
        return noted_of(value, at, claim.task, claim.meta)

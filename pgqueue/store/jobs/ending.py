"""What the plans that end jobs share: the state that each job is in now, and the end of jobs that no worker has."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.jobs.job import AttemptError, JobState
from pgqueue.values.jobs.verdict import expired_words
from pgqueue.values.payloads.codec import error_text

States: TypeAlias = dict[int, JobState]
"""The state that each job is in now, by its id."""

AT_ONCE = 1_000
"""Jobs in one statement. To find an element in an array of texts, PostgreSQL goes through those before it."""


def states_of(rows: Iterable[Sequence[Any]]) -> States:
    """The states in the answer of a statement; the first two columns are the id and the state."""
    return {row[0]: JobState(row[1]) for row in rows}


@plan
def cancelled(job_ids: Iterable[int], *, now: datetime | None) -> Steps[list[Row]]:
    """End jobs as cancelled that no worker has; the rows of ``sql/jobs/end.sql`` for those."""
    return (yield from _end_waiting(sorted(job_ids), "cancelled", None, None, now))


@plan
def expired(due: Mapping[int, str], *, now: datetime | None) -> Steps[list[Row]]:
    """End jobs as expired that no worker has; the rows of ``sql/jobs/end.sql`` for those.

    Args:
        due: by when each was to be started, as text, by its id; at most :data:`AT_ONCE`.
        now: the instant to record; the database's own by default.
    """
    ids = sorted(due)
    errors = texts(error_text(AttemptError(0, "Expired", expired_words(due[one]))) for one in ids)
    return (yield from _end_waiting(ids, "dead", texts(["expired"] * len(ids)), errors, now))


def _end_waiting(
    ids: Sequence[int], outcome: str, reasons: str | None, errors: str | None, now: datetime | None
) -> Steps[list[Row]]:
    rows: list[Row] = []
    for start in range(0, len(ids), AT_ONCE):
        portion = ids[start : start + AT_ONCE]
        rows += yield Statement(
            "jobs/end",
            {
                "worker": None,
                "ids": numbers(portion),
                "fences": None,
                "fence": None,
                "outcomes": texts([outcome] * len(portion)),
                "seconds": None,
                "reasons": reasons,
                "errors": errors,
                "results": None,
                "keep": True,
                "now": now,
            },
        )
    return rows

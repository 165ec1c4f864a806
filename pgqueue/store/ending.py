"""What the plans that end jobs share: the state that each job is in now, and the end of jobs that no worker has."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.job import JobState

States: TypeAlias = dict[int, JobState]
"""The state that each job is in now, by its id."""

AT_ONCE = 1_000
"""Jobs in one statement. To find an element in an array of texts, PostgreSQL goes through those before it."""


def states_of(rows: Iterable[Sequence[Any]]) -> States:
    """The states in the answer of a statement; the first two columns are the id and the state."""
    return {row[0]: JobState(row[1]) for row in rows}


@plan
def cancelled(job_ids: Iterable[int], *, now: datetime | None) -> Steps[list[Row]]:
    """End jobs as cancelled that no worker has; the rows of ``sql/end.sql`` for those."""
    ids = sorted(job_ids)
    rows: list[Row] = []
    for start in range(0, len(ids), AT_ONCE):
        portion = ids[start : start + AT_ONCE]
        rows += yield Statement(
            "end",
            {
                "worker": None,
                "ids": numbers(portion),
                "fences": None,
                "fence": None,
                "outcomes": texts(["cancelled"] * len(portion)),
                "seconds": None,
                "reasons": None,
                "errors": None,
                "results": None,
                "keep": True,
                "now": now,
            },
        )
    return rows

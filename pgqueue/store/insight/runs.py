"""Plans that look at runs: the writes of one name, and their jobs, which are found by the ids in the writes' records.

Live and dead jobs are counted by their primary keys; what is not among them has ended. So a list takes no longer for jobs that have
ended long ago.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from pgqueue.errors import InvalidOption
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.insight.runs import Run

Ids = tuple[int, int]
"""The first and the last id of a range."""
_RANGE = re.compile(r"\[(\d+),(\d+)\)")
LOOKED_BACK = 60.0
"""Seconds over which a rate is measured."""


class WrittenRun(NamedTuple):
    """What was written by a name.

    Attributes:
        keys: the key columns of its writes, as Spark's JSON; an empty text: a write kept none.
        ids: the ids of its jobs.
        first_at: when the first write was committed.
        unqueued: how many rows did not become jobs.
    """

    keys: tuple[str, ...]
    ids: tuple[Ids, ...]
    first_at: datetime
    unqueued: int


@plan
def written(name: str) -> Steps[WrittenRun | None]:
    """What was written by a name; None: nothing yet."""
    rows = yield Statement("insight/run_written", {"run": name})
    if not rows:
        return None
    keys, ids, first_at, unqueued = rows[0]
    return WrittenRun(
        tuple(keys),
        tuple((int(first), int(after) - 1) for first, after in _RANGE.findall(ids)),
        first_at,
        unqueued,
    )


@plan(reads=True)
def runs(*, limit: int = 20) -> Steps[list[Run]]:
    """The latest runs, without what takes long to count."""
    rows = yield Statement("insight/run_list", {"run": None, "limit": limit})
    return [_run(row) for row in rows]


@plan
def glance(name: str) -> Steps[Run]:
    """A run, without what takes long to count; on the primary, which knows a run that was just written.

    Raises:
        InvalidOption: there is no such run.
    """
    return _run((yield from _row(name)))


@plan(reads=True)
def run(name: str) -> Steps[Run]:
    """A run, with all its counts.

    Raises:
        InvalidOption: there is no such run.
    """
    return (yield from counted(name))


@plan
def counted(name: str) -> Steps[Run]:
    """As :func:`run`; on the primary, as :func:`glance`."""
    row = yield from _row(name)
    ((succeeded, cancelled, lately, ended_at),) = yield Statement("insight/run_ended", {"ids": row[9]})
    found = _run(row)
    seconds = max(1.0, min(LOOKED_BACK, (row[16] - found.first_at).total_seconds()))
    rate = lately / seconds
    return replace(
        found,
        succeeded=succeeded,
        cancelled=cancelled,
        gone=max(0, found.ended - succeeded - cancelled),
        rate=rate,
        seconds_left=found.live / rate if rate and found.live else None,
        ended_at=ended_at,
    )


def unknown(name: str) -> InvalidOption:
    """The error to raise where there is no run of this name."""
    return InvalidOption(
        f"there is no run {name!r:.200}: nothing was written by this name; `pgqueue runs list` shows the names"
    )


def _row(name: str) -> Steps[Sequence[Any]]:
    rows = yield Statement("insight/run_list", {"run": name, "limit": 1})
    if not rows:
        raise unknown(name)
    return rows[0]


def _run(row: Sequence[Any]) -> Run:
    name, tasks, writes, first_at, last_at, rows, rejected, refused, changed, _, jobs = row[:11]
    blocked, scheduled, ready, running, dead = row[11:16]
    return Run(
        name=name,
        tasks=tuple(tasks),
        writes=writes,
        first_at=first_at,
        last_at=last_at,
        rows=rows,
        jobs=jobs,
        rejected=rejected,
        refused=refused,
        changed=changed,
        blocked=blocked,
        scheduled=scheduled,
        ready=ready,
        running=running,
        dead=dead,
        ended=jobs - blocked - scheduled - ready - running - dead,
    )

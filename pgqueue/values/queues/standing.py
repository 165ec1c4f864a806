"""How a queue stands: what a look at a sample of the tables says about all of them. Pure rules.

What is read is decided in :mod:`pgqueue.store.queues.queues`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pgqueue.values.queues.settings import NO_SETTINGS, KnownQueue, QueueSettings

COUNTED = 101
"""Of a large table, ready jobs of each queue are counted up to this number at least; beyond it the sample says how many there are."""
WHOLE = 100.0
"""Percent."""
WAITING = ("blocked", "scheduled", "ready", "running")
STATES = ("ready", "running", "scheduled", "blocked", "dead")
"""In the order in which tables show them."""


class QueueStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How one queue stands.

    Attributes:
        queue: its name.
        paused_at: since when no worker claims from it; None: it is not paused.
        paused_by: who paused it.
        paused_why: why.
        closed_at: since when enqueues to it are refused; None: they are not.
        closed_by: who closed it.
        closed_why: why.
        settings: what holds for its jobs where their enqueue and their task say nothing.
        blocked: how many jobs wait for another job, a limit or their turn.
        scheduled: how many jobs wait for their time.
        ready: how many jobs can be claimed.
        running: how many jobs a worker has claimed; of a large table, how many ran at their workers' last heartbeats.
        dead: how many jobs are in the dead table.
        oldest_ready: seconds for which the ready job that waits longest has been ready; None: no job is ready.
        rate: jobs that ended in a second, over the last minute or over what the history's last pages hold of it.
        estimated: the states whose numbers are scaled from a sample of the tables' pages, to two digits.
        unknown: how many of its first waiting jobs have a task that no live worker runs.
        unknown_tasks: the names of those tasks.
        unknown_since: since when no live worker has run one of them; None: there is none.
    """

    queue: str
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_why: str | None = None
    closed_at: datetime | None = None
    closed_by: str | None = None
    closed_why: str | None = None
    settings: QueueSettings = NO_SETTINGS
    blocked: int = 0
    scheduled: int = 0
    ready: int = 0
    running: int = 0
    dead: int = 0
    oldest_ready: float | None = None
    rate: float = 0.0
    estimated: tuple[str, ...] = ()
    unknown: int = 0
    unknown_tasks: tuple[str, ...] = ()
    unknown_since: datetime | None = None


class UnknownTaskJobs(msgspec.Struct, frozen=True):
    """Jobs of a task that no live worker runs: the fields of ``sql/insight/unknown_tasks.sql``, in its order.

    Attributes:
        task: its name.
        queue: the queue of the jobs.
        jobs: how many of the first 20,000 that wait there.
        since: since when no live worker has run it, as a worker that claimed one of them found.
        seconds: for how long that is.
    """

    task: str
    queue: str
    jobs: int
    since: datetime
    seconds: float


class QueueHead(msgspec.Struct, frozen=True):
    """A queue that has ready jobs: the fields of ``sql/insight/standing_heads.sql``, in its order."""

    queue: str
    oldest: datetime
    bound: int
    ready: int


class StandingSample(msgspec.Struct, frozen=True):
    """Jobs on the sampled pages: the fields of ``sql/insight/standing_sample.sql``, in its order."""

    queue: str
    state: str
    jobs: int


def share(pages: int, sampled: int, *, whole: int) -> float:
    """How many percent of a table to read: all of it up to ``whole`` pages, else about ``sampled`` pages."""
    return WHOLE if pages <= whole else WHOLE * sampled / pages


class LargeTables(msgspec.Struct, frozen=True):
    """What is known of jobs where a table is large, so that only a sample of its pages is read.

    Attributes:
        live: how many percent of the live jobs' pages were read.
        dead: how many percent of the dead jobs' pages were read.
        running: how many jobs ran at their workers' last heartbeats, by queue.
        met: queues and states of which there are jobs.
    """

    live: float = WHOLE
    dead: float = WHOLE
    running: Mapping[str, int] = {}
    met: Collection[tuple[str, str]] = ()


NOT_LARGE = LargeTables()


def standings(
    *,
    now: datetime,
    heads: Iterable[QueueHead],
    samples: Iterable[StandingSample],
    large: LargeTables = NOT_LARGE,
    rates: Mapping[str, float],
    known: Iterable[KnownQueue],
    unknown: Sequence[UnknownTaskJobs] = (),
) -> list[QueueStanding]:
    """Every queue that was met, in the order of names.

    Args:
        now: the database's time.
        heads: the queues with ready jobs, as the index has them.
        samples: what stands on the pages that were read.
        large: what else is known, where that is not all of a table.
        rates: jobs that ended in a second, by queue.
        known: the queues that were paused, closed or given settings.
        unknown: the tasks that no live worker runs.
    """
    numbers: dict[str, dict[str, int]] = defaultdict(dict)
    exact: dict[str, set[str]] = defaultdict(set)
    for one in samples:
        percent = large.dead if one.state == "dead" else large.live
        numbers[one.queue][one.state] = _scaled(one.jobs, percent)
    for queue, state in large.met:
        numbers[queue][state] = max(1, numbers[queue].get(state, 0))
    oldest: dict[str, float] = {}
    for head in heads:
        oldest[head.queue] = max(0.0, (now - head.oldest).total_seconds())
        if head.ready < head.bound:
            numbers[head.queue]["ready"] = head.ready
            exact[head.queue].add("ready")
        else:
            numbers[head.queue]["ready"] = max(head.bound, numbers[head.queue].get("ready", 0))
    if large.live < WHOLE:
        for queue in {*numbers, *large.running}:
            numbers[queue]["running"] = large.running.get(queue, 0)
    unknown_of: dict[str, list[UnknownTaskJobs]] = defaultdict(list)
    for task in unknown:
        unknown_of[task.queue].append(task)
    rows = {one.queue: one for one in known}
    sampled = [
        *(("blocked", "scheduled", "ready") if large.live < WHOLE else ()),
        *(("dead",) if large.dead < WHOLE else ()),
    ]
    return [
        QueueStanding(
            oldest_ready=oldest.get(queue),
            rate=rates.get(queue, 0.0),
            estimated=tuple(
                state
                for state in sampled
                if state not in exact[queue] and not (state == "ready" and queue not in oldest)
            ),
            dead=numbers[queue].get("dead", 0),
            unknown=sum(task.jobs for task in unknown_of[queue]),
            unknown_tasks=tuple(sorted(task.task for task in unknown_of[queue])),
            unknown_since=min((task.since for task in unknown_of[queue]), default=None),
            **_stored_fields(rows.get(queue), queue),
            **dict[str, Any]({state: numbers[queue].get(state, 0) for state in WAITING}),
        )
        for queue in sorted({*numbers, *rates, *rows})
    ]


def _scaled(jobs: int, percent: float) -> int:
    """What a sample says of all pages, to two digits."""
    if percent == WHOLE:
        return jobs
    about = round(jobs * WHOLE / percent)
    return round(about, 2 - len(str(about)))


def _stored_fields(row: KnownQueue | None, queue: str) -> dict[str, Any]:
    return msgspec.structs.asdict(row or KnownQueue(queue=queue))


def rates_of(
    rows: Sequence[tuple[str, int, datetime]], *, now: datetime, since: datetime, whole: bool
) -> dict[str, float]:
    """Jobs that ended in a second, by queue.

    Args:
        rows: queue, how many jobs ended, and when the first of all of them did: ``sql/insight/standing_rates.sql``.
        now: the database's time.
        since: from when on was asked.
        whole: the pages that were read hold all jobs that ended since then.
    """
    return {
        queue: count / max((now - (since if whole else max(first, since))).total_seconds(), 0.001)
        for queue, count, first in rows
    }


def with_declared(names: Collection[str] | None, found: Sequence[QueueStanding]) -> Sequence[QueueStanding]:
    """How queues stand, those among them that an app declares and of which nothing is known, in the order of names."""
    known = {one.queue for one in found}
    new = [QueueStanding(queue=name) for name in names or () if name not in known]
    return sorted((*found, *new), key=lambda one: one.queue) if new else found

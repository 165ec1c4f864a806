"""Plans of queues as such: pause, close and resume them, store their settings, keep their bounds, tell how they stand.

What is done to the jobs of a queue is in :mod:`pgqueue.store.bulk.bulk`. A pattern (``mail-*``) stands for the
queues that there are when the plan runs, not for later ones.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from pgqueue.store import audit
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.workers import workers
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.options import check_text, is_pattern, matching_names
from pgqueue.values.queues.defaults import QueueCache, QueueDefaults, closed_error, full
from pgqueue.values.queues.settings import Existing, KnownQueue, QueueSettings
from pgqueue.values.queues.standing import (
    COUNTED,
    NOT_LARGE,
    WHOLE,
    LargeTables,
    QueueHead,
    QueueStanding,
    StandingSample,
    rates_of,
    share,
    standings,
)

AGED_AT_ONCE = 500


@plan
def names(pattern: str) -> Steps[list[str]]:
    """The queues that a pattern stands for. A name stands for itself, whether or not there is such a queue."""
    check_text("queue", pattern)
    if not is_pattern(pattern):
        return [pattern]
    return matching_names(pattern, [row[0] for row in (yield Statement("queues/names", {}))])


@plan(transaction=True)
def pause(
    queue: str,
    *,
    why: str | None = None,
    by: str | None = None,
    also: Sequence[str] = (),
    now: datetime | None = None,
) -> Steps[list[str]]:
    """Stop queues from being claimed from; what runs goes on.

    Args:
        queue: a name that a job can have, or a pattern.
        why: why, for people to read.
        by: who, for people to read.
        also: the queues of the pattern that other shards have.
        now: the instant; the database's own by default.

    Returns:
        The queues that were not paused before.
    """
    found = sorted({*(yield from names(queue)), *also})
    rows = yield Statement("queues/pause", {"queues": found, "why": why, "by": by, "now": now})
    return (yield from _note_each("pause", queue, rows, why=why, by=by))


@plan(transaction=True)
def close(
    queue: str,
    *,
    why: str | None = None,
    by: str | None = None,
    also: Sequence[str] = (),
    now: datetime | None = None,
) -> Steps[list[str]]:
    """Refuse enqueues to queues, whose jobs go on; parameters as for :func:`pause`. Those that were not closed before."""
    found = sorted({*(yield from names(queue)), *also})
    rows = yield Statement("queues/close", {"queues": found, "why": why, "by": by, "now": now})
    return (yield from _note_each("close", queue, rows, why=why, by=by))


@plan(transaction=True)
def resume(queue: str, *, by: str | None = None) -> Steps[list[str]]:
    """Let queues be claimed from again, and take new jobs; those that were paused or closed."""
    found = yield from names(queue)
    rows = yield Statement("queues/resume", {"queues": found})
    return (yield from _note_each("resume", queue, rows, by=by))


@plan
def known() -> Steps[list[KnownQueue]]:
    """The queues that were declared, paused, closed or given settings."""
    return [known_queue(row) for row in (yield Statement("queues/known", {}))]


@plan(transaction=True)
def declare(
    queue: str,
    settings: QueueSettings,
    *,
    existing: Existing,
    by: str | None = None,
    now: datetime | None = None,
) -> Steps[QueueSettings]:
    """Give a queue settings; what holds then.

    Args:
        queue: its name.
        settings: which.
        existing: what is done with other settings that it has.
        by: who, for people to read.
        now: the instant; the database's own by default.

    Raises:
        QueueExists: it has other settings, and ``existing`` is ``fail``; nothing was changed.
    """
    held = yield from _hold(queue)
    chosen = settings.over(held, existing=existing, queue=queue)
    yield from _put(queue, held, chosen, by=by, now=now)
    return chosen


@plan(transaction=True)
def change(
    queue: str,
    settings: QueueSettings,
    *,
    unset: Sequence[str] = (),
    by: str | None = None,
    why: str | None = None,
    now: datetime | None = None,
) -> Steps[QueueSettings]:
    """Change the settings that are given, and take away those in ``unset``; what holds then. Others stay."""
    held = yield from _hold(queue)
    chosen = held.but(settings, unset)
    yield from _put(queue, held, chosen, by=by, why=why, now=now)
    return chosen


@plan
def age(*, now: datetime | None = None) -> Steps[int]:
    """Raise the priority of jobs that have waited for long, where their queue has ageing; how many were raised.

    Of each priority at most :data:`AGED_AT_ONCE` are, those that have waited longest.
    """
    ((raised,),) = yield Statement("queues/age", {"now": now, "limit": AGED_AT_ONCE})
    return int(raised)


def known_queue(row: Sequence[Any]) -> KnownQueue:
    """A queue, from a row."""
    return KnownQueue(
        queue=row[0],
        paused_at=row[1],
        paused_by=row[2],
        paused_why=row[3],
        closed_at=row[4],
        closed_by=row[5],
        closed_why=row[6],
        settings=_settings(row[7:]),
    )


def _note_each(
    action: str, queue: str, rows: Sequence[Any], *, by: str | None, why: str | None = None
) -> Steps[list[str]]:
    changed = sorted(row[0] for row in rows)
    if changed:
        yield from audit.note(action, queue, by=by, why=why, queues=", ".join(changed))
    return changed


def _hold(queue: str) -> Steps[QueueSettings]:
    (row,) = yield Statement("queues/hold", {"queue": queue})
    return _settings(row)


def _put(
    queue: str,
    held: QueueSettings,
    chosen: QueueSettings,
    *,
    by: str | None,
    now: datetime | None,
    why: str | None = None,
) -> Steps[None]:
    if chosen == held:
        return
    fields = msgspec.structs.asdict(chosen)
    yield Statement("queues/set", {"queue": queue, **fields, "by": by, "now": now}, returns=False)
    if chosen.keep_history != held.keep_history:
        yield Statement("retention/look_again", {}, returns=False)
    yield from audit.note("set", queue, by=by, why=why, **fields)


def _settings(row: Sequence[Any]) -> QueueSettings:
    priority, max_attempts, timeout, keep_history, keep_dead, backlog, when_full, ageing, ageing_to = row
    return QueueSettings(
        priority=priority,
        max_attempts=max_attempts,
        timeout=None if timeout is None else timedelta(seconds=timeout),
        keep_history=None if keep_history is None else timedelta(seconds=keep_history),
        keep_dead=None if keep_dead is None else timedelta(seconds=keep_dead),
        backlog=backlog,
        when_full=when_full,
        ageing=None if ageing is None else timedelta(seconds=ageing),
        ageing_to=ageing_to,
    )


log = logging.getLogger("pgqueue")


@plan
def require_room(queue: str, *, count: int = 1, known: QueueCache | None = None) -> Steps[None]:
    """Refuse jobs for a queue that is closed or full; log a warning, where its setting says so.

    Args:
        queue: which.
        count: how many jobs.
        known: what this process remembers of queues; it learns whether there is room for one job.

    Raises:
        QueueClosed: it takes no new jobs.
        BacklogFull: with these jobs it would have more ready jobs than its bound, and refuses them.
    """
    if known is not None:
        known.refuse(queue)
    began = 0.0 if known is None else known.clock()
    rows = yield Statement("queues/room", {"queue": queue, "count": count})
    is_closed, bound, when_full, is_full = rows[0] if rows else (False, None, None, False)
    if is_closed:
        raise closed_error(queue)
    refuses = bound if is_full and when_full == "refuse" else None
    if known is not None and bound is not None:
        known.note_room(queue, refuses, took=known.clock() - began)
    if refuses is not None:
        raise full(queue, refuses, count)
    if is_full and (known is None or known.warns(queue)):
        log.warning("queue is full: %s", full(queue, bound, count), extra={"queue": queue, "backlog": bound})


def count_bounded(jobs: Iterable[NewJob], defaults: QueueDefaults) -> Counter[str]:
    """How many of these jobs are for each queue that has a bound."""
    return Counter(job.queue for job in jobs if job.queue in defaults.bounded)


@plan
def require_rooms(counts: Counter[str]) -> Steps[None]:
    """Refuse jobs of which some are for a full queue; parameters and errors as for :func:`require_room`."""
    for queue, count in sorted(counts.items()):
        yield from require_room(queue, count=count)


WHOLE_PAGES = 16_000
"""A table of up to this many pages (125 MiB) is read whole: a million jobs with short arguments take 0.2 to 0.3 s."""
SAMPLED_PAGES = 150
"""Of a larger table: some 12,000 jobs. Each page that is not in memory takes 0.2 ms."""
COUNTED_IN_ALL = 50_000
"""Of a larger table, ready jobs of all queues are counted by index up to this number: some 10 ms."""
MOST_MET = 1_000
"""Of a larger table, up to this number of queues is looked for whose jobs wait in lanes."""
LAST_PAGES = 500
"""Of today's history: some 20,000 jobs that ended last."""
RATED = timedelta(minutes=1)


@plan(reads=True)
def queue_standings(*, now: datetime | None = None) -> Steps[list[QueueStanding]]:
    """How every queue stands.

    Args:
        now: the instant; the database's own by default.
    """
    ((live, dead, history, at),) = yield Statement("insight/standing_sizes", {"now": now})
    large = yield from _large_tables(live, dead, now)
    sample = yield Statement("insight/standing_sample", {"jobs": large.live, "dead": large.dead})
    counted, in_all = (COUNTED, COUNTED_IN_ALL) if large.live < WHOLE else (0, 0)
    heads = yield Statement("insight/standing_heads", {"counted": counted, "in_all": in_all})
    settings = yield from known()
    unknown = yield from workers.unknown_tasks(now=now)
    midnight = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = max(at - RATED, midnight)
    first_page = max(0, history - LAST_PAGES)
    ended = yield Statement(
        "insight/standing_rates",
        {
            "from_page": f"({first_page},0)",
            "since": since,
            "day": midnight,
        },
    )
    return standings(
        now=at,
        heads=[QueueHead(*row) for row in heads],
        samples=[StandingSample(*row) for row in sample],
        large=large,
        rates=rates_of(
            [(row[0], row[1], row[2]) for row in ended], now=at, since=since, whole=first_page == 0
        ),
        known=settings,
        unknown=unknown,
    )


def _large_tables(live: int, dead: int, now: datetime | None) -> Steps[LargeTables]:
    """How much of the tables is to be read, by their pages; and what is known of jobs besides, where that is not all."""
    of_live, of_dead = (share(pages, SAMPLED_PAGES, whole=WHOLE_PAGES) for pages in (live, dead))
    if of_live == of_dead == WHOLE:
        return NOT_LARGE
    running = (yield Statement("insight/standing_running", {"now": now})) if of_live < WHOLE else []
    in_lanes = yield Statement("limits/queues", {"limit": MOST_MET})
    met = [(row[0], row[1]) for row in (yield Statement("insight/standing_met", {}))]
    met += [(row[0], "blocked") for row in in_lanes]
    return LargeTables(of_live, of_dead, {row[0]: row[1] for row in running}, met)

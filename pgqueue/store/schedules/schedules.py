"""Plans for schedules: store them, those that an app declares among them; list, pause, resume and remove them.

Their ticks are fired in :mod:`pgqueue.store.schedules.ticks`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import structs

from pgqueue.errors import UnknownSchedule
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.shards import shards
from pgqueue.values.jobs.options import check_text
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.payloads.storable import object_of
from pgqueue.values.schedules.schedule import Applied, NewSchedule, Schedule, ScheduleChange, Timing

Same: TypeAlias = Callable[[str, str], bool]
"""Whether the arguments that are stored of a schedule, by its name, are those that it is to have, encoded otherwise."""
NOT_THERE = "there is no schedule {!r}; `pgqueue schedules list` shows those that there are"
_TIMING = (
    "cron", "every", "at", "timezone", "anchor", "start", "end", "gap", "repeat", "jitter", "missed", "missed_limit", "tolerance",
    "overlap",
)  # fmt: skip
"""The options of a timing, in the order of the columns in every statement."""


@plan(transaction=True)
def put(
    new: NewSchedule,
    *,
    replace: bool,
    keep_unseen: bool = False,
    same: Same | None = None,
    now: datetime | None = None,
) -> Steps[ScheduleChange]:
    """Add a schedule, or change the one of its name.

    Args:
        new: the schedule.
        replace: whether to change one that was made at run time.
        keep_unseen: keep the stored unique key, and for how long its jobs may wait, if the new job has none: pages do not show
            them, and the key may be encoded.
        same: tells whether stored arguments can stay; None: where they are the same text.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: it has no tick that is yet to come.
    """
    clock = (yield Statement("connections/clock", {"now": now}))[0][0]
    new.require_tick(clock)
    if keep_unseen:
        new = yield from _keeping_unseen(new)
    (new,) = yield from _keeping_args([new], same)
    return (yield from _put(new, clock, replace=replace))


@plan(transaction=True)
def apply(
    declared: Sequence[NewSchedule],
    modules: Sequence[str],
    *,
    same: Same | None = None,
    now: datetime | None = None,
) -> Steps[Applied]:
    """Store the schedules that an app declares, all or none, and remove those that its modules no longer declare.

    Of several shards only the first has schedules. On another one none is stored, so that no tick fires twice.

    Args:
        declared: the schedules.
        modules: the modules whose schedules these are; those of other modules stay.
        same: as for :func:`put`.
        now: the instant; the database's own by default.
    """
    yield Statement("schedules/apply_lock", {}, returns=False)
    clock = (yield Statement("connections/clock", {"now": now}))[0][0]
    shard = yield from shards.state()
    if shard is not None and not shard.is_first:
        declared = []
    removed = yield from _remove([], modules, [one.name for one in declared])
    declared = yield from _keeping_args(declared, same)
    changes = {}
    for one in sorted(declared, key=lambda new: new.name):  # two apps lock rows in one order: no deadlock
        changes[one.name] = yield from _put(one, clock, replace=True)
    return Applied.of(changes, removed)


@plan
def listed(
    *, name: str | None = None, task: str | None = None, after: str = "", limit: int = 100
) -> Steps[list[Schedule]]:
    """Schedules in the order of their names.

    Args:
        name: only the one of this name.
        task: only those of this task.
        after: only those behind this name; for the next page, the last name of the page before.
        limit: at most how many.
    """
    params = {"name": name, "task": task, "after": after, "limit": limit}
    return [_schedule(row) for row in (yield Statement("schedules/list", params))]


@plan
def dated(name: str, *, now: datetime | None = None) -> Steps[tuple[Schedule, datetime]]:
    """A schedule, and what time it is.

    Args:
        name: its name.
        now: the instant; the database's own by default.

    Raises:
        UnknownSchedule: there is none of this name.
    """
    found = yield from listed(name=check_text("name", name))
    clock = (yield Statement("connections/clock", {"now": now}))[0][0]
    if not found:
        raise UnknownSchedule(NOT_THERE.format(name))
    return found[0], clock


@plan
def pause(name: str, by: str | None, *, now: datetime | None = None) -> Steps[bool]:
    """Fire no tick of a schedule until it is resumed; False: it was paused already.

    Raises:
        UnknownSchedule: there is none of this name.
    """
    rows = yield Statement("schedules/pause", {"name": check_text("name", name), "by": by, "now": now})
    return bool(require_row(name, rows)[0])


@plan
def resume(name: str, *, now: datetime | None = None) -> Steps[bool]:
    """Fire a schedule's ticks again; what became due meanwhile is missed. False: it was neither paused nor set aside.

    Where its place is in the future, since a clock was wrong, it is moved to this instant; a tick that fired stays fired.

    Raises:
        UnknownSchedule: there is none of this name.
    """
    rows = yield Statement("schedules/resume", {"name": check_text("name", name), "now": now})
    return bool(require_row(name, rows)[0])


@plan(transaction=True)
def remove(name: str) -> Steps[bool]:
    """Delete a schedule; its jobs stay. False: there was none of this name."""
    return bool((yield from _remove([check_text("name", name)], [], [])))


def _keeping_unseen(new: NewSchedule) -> Steps[NewSchedule]:
    job = new.job
    for _, _, _, key, until_started, expires_in in (
        yield Statement("schedules/owners", {"names": [new.name]})
    ):
        if job.unique_key is None:
            unique = Unique(until="started") if until_started else Unique()
            job = structs.replace(job, unique_key=key, unique=unique)
        if job.expires_in is None:
            job = structs.replace(job, expires_in=expires_in)
    return replaced(new, job=job)


def _keeping_args(new: Sequence[NewSchedule], same: Same | None) -> Steps[list[NewSchedule]]:
    if same is None:
        return [*new]
    rows = yield Statement("schedules/owners", {"names": [one.name for one in new]})
    # Arguments that are the same stay as they are stored, so nothing is written.
    return [keeping_args(one, {row[0]: row[2] for row in rows}, same) for one in new]


def keeping_args(new: NewSchedule, stored: Mapping[str, str], same: Same) -> NewSchedule:
    """A schedule, with its stored arguments where these are the same."""
    args = stored.get(new.name)
    if args is None or not same(new.name, args):
        return new
    return replaced(new, job=structs.replace(new.job, args=args.encode()))


def _put(new: NewSchedule, clock: datetime, *, replace: bool) -> Steps[ScheduleChange]:
    job, timing = new.job, new.timing
    params = {name: getattr(timing, name) for name in _TIMING} | {
        "name": new.name,
        "module": new.module,
        "task": job.task,
        "queue": job.queue,
        "args": job.args.decode(),
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "unique_key": job.unique_key,
        "unique_until_started": job.unique.until == "started",
        "meta": None if job.meta is None else job.meta.decode(),
        "expires_in": job.expires_in,
        "start_at": timing.start,
        "end_at": timing.end,
        "next_at": timing.next(clock),
        "replace": replace,
        "now": clock,
    }
    rows = yield Statement("schedules/put", params)
    if rows:
        return ScheduleChange.ADDED if rows[0][0] else ScheduleChange.CHANGED
    owners = {row[0]: row[1] for row in (yield Statement("schedules/owners", {"names": [new.name]}))}
    return (
        ScheduleChange.UNCHANGED
        if replace and owners.get(new.name, "") == new.module
        else ScheduleChange.TAKEN
    )


def _remove(names: Sequence[str], modules: Sequence[str], declared: Sequence[str]) -> Steps[tuple[str, ...]]:
    params = {"names": [*names], "modules": [*modules], "declared": [*declared]}
    removed = sorted(row[0] for row in (yield Statement("schedules/remove", params)))
    if removed:
        yield Statement("schedules/forget_waiting", {"names": removed}, returns=False)
    return tuple(removed)


def timing_of(columns: Sequence[Any]) -> Timing:
    """The timing in the columns of a row, in the order in which statements bring them.

    Raises:
        InvalidOption: they make no sense.
    """
    return Timing(**dict(zip(_TIMING, columns, strict=True)))


def require_row(name: str, rows: Sequence[Row]) -> Row:
    """The first row.

    Raises:
        UnknownSchedule: there is none.
    """
    if not rows:
        raise UnknownSchedule(NOT_THERE.format(name))
    return rows[0]


def _schedule(row: Row) -> Schedule:
    name, module, created_at, task, queue, args, priority, max_attempts, unique_key, meta = row[:10]
    settled, next_at, paused_at, paused_by, failed_at, error, last = row[24:]
    timing, rule, following = None, str(row[10] or row[11] or row[12]), None
    try:
        timing = timing_of(row[10:24])
        rule = str(timing)
        following = timing.next(settled) if next_at and not paused_at and not error else None
    except Exception as wrong:  # noqa: BLE001 - a row that makes no sense is shown, too
        error = error or str(wrong)
    return Schedule(
        name=name,
        task=task,
        queue=queue,
        args=object_of(args),
        priority=priority,
        max_attempts=max_attempts,
        unique_key=unique_key,
        meta=None if meta is None else object_of(meta),
        timing=timing,
        rule=rule,
        module=module,
        created_at=created_at,
        next=following,
        last=last,
        paused_at=paused_at,
        paused_by=paused_by,
        failed_at=failed_at,
        error=error,
    )

"""Prune and drop: prune drops from the database the history that is verified in the lake; drop removes old days from the lake.

Prune: a day is dropped only if its record says that it is verified, and if its rows are as they were then: the same number, and the
same versions or, where the table was rewritten, the same checksum. The transaction that drops the day looks, while no other
can write to it. Dropping a partition needs an exclusive
lock on the whole history: prune asks for it in short attempts, so that workers do not wait long behind it. Dead jobs are not
touched: they stay until a user revives or purges them.

Drop: a day is dropped only if the database has no rows of it any more: rows that appear later are exported as the day's only
rows. Its roll-ups stay, too, so plots and reports reach further back than the jobs.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_random

from pgqueue.errors import Duration, as_delay
from pgqueue.spark.lake.columns import ENDED, ENDED_TABLE
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay, Verification
from pgqueue.spark.lake.steps import lake_step, writer_lock
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.lake import DatabaseDay
from pgqueue.store.plan import run

KEEP = timedelta(days=7)
LOCK_WAIT = timedelta(minutes=1)
EVERY = (1 << 63) - 1
UNVERIFIED = "not verified: run `pgqueue pipeline verify`"


class Fate(StrEnum):
    """The result for a day that the database holds."""

    PRUNED = "pruned"
    KEPT = "kept"
    """It is too new to be dropped."""
    WAITING = "waiting"
    """It is not exported, or not verified."""
    REFUSED = "refused"
    """It has changed since it was verified."""
    BUSY = "busy"
    """Other transactions used the history during the whole wait."""
    DROPPED = "dropped"
    """Its rows were dropped from the lake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedDay:
    """The result for a day, with its reason.

    Attributes:
        day: the UTC day.
        fate: the result.
        rows: rows that were dropped.
        reason: why the day was not dropped, and what to do.
    """

    day: date
    fate: Fate
    rows: int = 0
    reason: str = ""


def prune(
    database: Database,
    lake: Lake,
    *,
    keep: Duration = KEEP,
    days: Collection[date] | None = None,
    lock_wait: Duration = LOCK_WAIT,
    now: datetime | None = None,
    tell: Callable[[PrunedDay], object] = lambda _: None,
) -> list[PrunedDay]:
    """Drop the days of the history that are verified in the lake.

    Args:
        database: where the jobs are.
        lake: where they were exported.
        keep: how far back to keep whole days, counted from the database's clock, in seconds or as a timedelta.
        days: these days only.
        lock_wait: how long to try to get the exclusive lock on the history, in all; then each day gets one more attempt.
        now: the time, in place of the database's clock.
        tell: called with each day's result.

    Returns:
        The result for each day of the history, also for days that could not be dropped.

    Raises:
        PipelineError: another process is writing to the lake.
        LakeError: there is no lake, or it is not this database's.
    """
    keep, lock_wait = as_delay("keep", keep), as_delay("lock_wait", lock_wait)
    found, ends = [], time.monotonic() + lock_wait.total_seconds()
    with lake_step(database, lake, "prune") as (_, size):
        seen = database.run(plans.horizon(now=now))
        first_kept = (seen.at - keep).astimezone(UTC).date()
        entries = {entry.day: entry for entry in lake.days()}
        below = {day: entry.below for day, entry in entries.items()}
        for one in database.run(plans.there(below, seen.xmax)):
            if one.stands and (days is None or one.day in days):
                reason = _reason_to_keep(one, entries.get(one.day), first_kept)
                found.append(reason or _prune_day(database, lake, entries[one.day], ends))
                size.days += found[-1].fate is Fate.PRUNED
                size.rows += found[-1].rows
                tell(found[-1])
    return found


def drop(
    database: Database,
    lake: Lake,
    *,
    keep: Duration,
    days: Collection[date] | None = None,
    now: datetime | None = None,
    tell: Callable[[PrunedDay], object] = lambda _: None,
) -> list[PrunedDay]:
    """Drop the lake's old days. Their files are deleted a week later, when readers have finished.

    Args:
        database: the lake's.
        lake: the lake.
        keep: how far back to keep whole days, counted from the database's clock, in seconds or as a timedelta.
        days: these days only.
        now: the time, in place of the database's clock.
        tell: called with each day's result.

    Returns:
        The result for each old day, also for days that could not be dropped.

    Raises:
        InvalidOption: ``keep`` is negative.
        PipelineError: another process is writing to the lake.
        LakeError: there is no lake, or it is not this database's.
    """
    length = as_delay("keep", keep)
    found = []
    with writer_lock(database) as lock:
        lake.require(database.run(plans.origin(database.catalogue.schema)))
        seen = database.run(plans.horizon(now=now))
        first_kept = (seen.at - length).astimezone(UTC).date()
        entries = lake.days()
        known = {entry.day: entry.below for entry in entries}
        standing = {
            one.day for one in database.run(plans.there(known, seen.xmax)) if one.stands or one.waiting
        }
        for entry in entries:
            if entry.day >= first_kept or (days is not None and entry.day not in days):
                continue
            reason = _why_in_the_lake(database, entry, stands=entry.day in standing)
            if not reason:
                lock.require_held()
                _drop(lake, entry)
            fate = Fate.WAITING if reason else Fate.DROPPED
            found.append(PrunedDay(day=entry.day, fate=fate, rows=0 if reason else entry.rows, reason=reason))
            tell(found[-1])
        lake.sweep(ENDED)
    return found


def _reason_to_keep(one: DatabaseDay, entry: EndedDay | None, first_kept: date) -> PrunedDay | None:
    if one.day >= first_kept:
        return PrunedDay(day=one.day, fate=Fate.KEPT, reason="too new (--keep)")
    if entry is None:
        return PrunedDay(
            day=one.day, fate=Fate.WAITING, reason="not in the lake: run `pgqueue pipeline export`"
        )
    if one.waiting:
        return PrunedDay(
            day=one.day,
            fate=Fate.WAITING,
            reason=f"{one.waiting} rows came late: run `pgqueue pipeline export` and `verify`",
        )
    if entry.verified_at is None:
        return PrunedDay(day=one.day, fate=Fate.WAITING, reason=UNVERIFIED)
    return None


def _prune_day(database: Database, lake: Lake, entry: EndedDay, ends: float) -> PrunedDay:
    day = entry.day
    try:
        _until(ends, database.run, plans.gather(day))
        with database.transaction() as connection:
            done = _drop_day(StepRunner(connection, database.catalogue), lake, entry, day, ends)
    except RetryError:
        others = "; ".join(map(str, database.run(plans.readers()))) or "it has just ended"
        reason = f"other transactions used the history during the whole wait (--wait): {others}; run it again, or end them"
        return PrunedDay(day=day, fate=Fate.BUSY, reason=reason)
    lake.passed("pruned")
    return done


def _drop_day(runs: StepRunner, lake: Lake, entry: EndedDay, day: date, ends: float) -> PrunedDay:
    """In a transaction: lock the day, compare it once more, and drop it."""
    if _until(ends, run, plans.hold(day), runs) is None:
        return PrunedDay(day=day, fate=Fate.KEPT, reason="gone meanwhile")
    lake.passed("held")
    known = run(plans.verified_days(), runs).get(day)
    if known is None or known.below != entry.below or entry.verified is None:
        return PrunedDay(day=day, fate=Fate.WAITING, reason=UNVERIFIED)
    if reason := _why_changed(runs, lake, entry.verified, day, known.pruned_below):
        return PrunedDay(day=day, fate=Fate.REFUSED, reason=reason)
    _until(ends, run, plans.drop(day), runs)
    lake.passed("dropped")
    return PrunedDay(day=day, fate=Fate.PRUNED, rows=entry.verified.standing.rows)


def _why_changed(runs: StepRunner, lake: Lake, verified: Verification, day: date, since: int) -> str:
    """Whether the day's history was changed since it was verified; empty: it was not.

    Rows of the same versions need not be read again. Where the versions differ, as after a rewrite of the table, the values
    decide.
    """
    if run(plans.versions(day, since=since), runs) == (verified.standing.rows, verified.versions):
        return ""
    asked = plans.contents(day, since=since, below=EVERY, dead=plans.NO_DEAD, hidden=lake.hidden())
    held = run(asked, runs).history
    if held == verified.standing:
        return ""
    return (
        f"its history has changed since it was verified: it has {held.rows} rows (checksum {held.checksum}), and had "
        f"{verified.standing.rows} ({verified.standing.checksum}). Run `pgqueue pipeline verify --day {day}`, which says "
        "what to do"
    )


def _until(ends: float, attempt: Callable[..., bool | None], *args: object) -> bool | None:
    """Repeat the attempt until it does not return False, with pauses in which other transactions get their locks.

    The last attempt begins before this instant of the monotonic clock; there is one in any case.
    """
    return Retrying(
        retry=retry_if_result(lambda done: done is False),
        wait=wait_random(0.5, 1.5),
        stop=stop_after_delay(max(0.0, ends - time.monotonic())),
    )(attempt, *args)


def _why_in_the_lake(database: Database, entry: EndedDay, *, stands: bool) -> str:
    if stands:
        return "the database has rows of it: run `pgqueue pipeline export`, `verify` and `prune`"
    dead = database.run(plans.counts(entry.day, below=entry.below)).dead
    if dead:
        return f"{dead} of its dead jobs are in the database: revive or purge them"
    return ""


def _drop(lake: Lake, entry: EndedDay) -> None:
    now = datetime.now(UTC)
    dropped = EndedDay(
        table=ENDED,
        day=entry.day,
        generation=entry.generation + 1,
        written_at=now,
        batches=(),
        erased=entry.erased,
        dropped_at=now,
    )
    lake.commit(ENDED_TABLE, [], [dropped], replaced=[entry.day], why="prune --keep-lake")

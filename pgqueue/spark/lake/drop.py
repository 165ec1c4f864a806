"""Drop: removes old days from the lake.

A day is dropped only if the database has no rows of it any more: rows that appear later are exported as the day's only rows. Its
roll-ups stay, too, so plots and reports reach further back than the jobs.
"""

from collections.abc import Callable, Collection
from datetime import UTC, date, datetime

from pgqueue.errors import Duration, as_delay
from pgqueue.spark.lake.columns import ENDED, ENDED_TABLE
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, PrunedDay
from pgqueue.spark.lake.record import EndedDay
from pgqueue.spark.lake.writer_lock import writer_lock
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans


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
        known = {entry.day: entry.below for entry in entries if entry.day is not None}
        standing = {
            one.day for one in database.run(plans.there(known, seen.xmax)) if one.stands or one.waiting
        }
        for entry in entries:
            assert entry.day is not None  # noqa: S101 - for the type checker: ended jobs have days
            if entry.day >= first_kept or (days is not None and entry.day not in days):
                continue
            reason = _reason_to_keep(database, entry, stands=entry.day in standing)
            if not reason:
                lock.require_held()
                _drop(lake, entry)
            fate = Fate.WAITING if reason else Fate.DROPPED
            found.append(PrunedDay(day=entry.day, fate=fate, rows=0 if reason else entry.rows, reason=reason))
            tell(found[-1])
        lake.sweep(ENDED)
    return found


def _reason_to_keep(database: Database, entry: EndedDay, *, stands: bool) -> str:
    assert entry.day is not None  # noqa: S101 - for the type checker: ended jobs have days
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
    lake.commit(ENDED_TABLE, [], [dropped], replaced=[entry.day])

"""The state of each day: open, closed, exported, verified or pruned. Needs no Spark."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from pgqueue.errors import Duration, as_delay
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.lake import MARGIN, DatabaseDay, VerifiedDay, first_open_day


class DayState(StrEnum):
    """The state of a day."""

    OPEN = "open"
    """It is not over, or its margin has not passed."""
    CLOSED = "closed"
    """It is over, and the next export writes rows of it."""
    EXPORTED = "exported"
    """It is in the lake, and not verified yet."""
    VERIFIED = "verified"
    """The lake and the database hold the same rows."""
    PRUNED = "pruned"
    """It was verified, and the database has dropped its history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayStatus:
    """A day, with its state and sizes.

    Attributes:
        day: the UTC day.
        state: its state.
        rows: rows in the lake.
        bytes: their size in the lake.
        files: the number of their files.
        waiting: rows in the database, dead jobs included, that are not in the lake.
        generation: how often it was written; 0: never.
        verified_at: when it was verified.
    """

    day: date
    state: DayState
    rows: int
    bytes: int
    files: int
    waiting: int
    generation: int
    verified_at: datetime | None


def status(
    database: Database, lake: Lake, *, margin: Duration = MARGIN, now: datetime | None = None
) -> list[DayStatus]:
    """Every day of which the database or the lake has rows, oldest first.

    Args:
        database: where the jobs are.
        lake: where they go; it need not exist yet.
        margin: as for the export.
        now: the time, in place of the database's clock.

    Raises:
        LakeError: the lake is not this database's, or not one of this release.
    """
    if lake.exists():
        lake.require(database.run(plans.origin(database.catalogue.schema)))
    entries = {entry.day: entry for entry in lake.days()} if lake.exists() else {}
    seen = database.run(plans.horizon(now=now))
    there = {
        one.day: one
        for one in database.run(plans.there({day: one.below for day, one in entries.items()}, seen.xmax))
    }
    known = database.run(plans.verified_days())
    first_open = first_open_day(seen.at, as_delay("margin", margin))
    return [
        _status(day, entries.get(day), there.get(day), known.get(day), is_open=day >= first_open)
        for day in sorted(entries.keys() | {day for day, one in there.items() if one.stands or one.waiting})
    ]


def _status(
    day: date, entry: EndedDay | None, there: DatabaseDay | None, known: VerifiedDay | None, *, is_open: bool
) -> DayStatus:
    waiting = 0 if there is None else there.waiting
    return DayStatus(
        day=day,
        state=_state(entry, waiting, known, stands=there is not None and there.stands, is_open=is_open),
        rows=0 if entry is None else entry.rows,
        bytes=0 if entry is None else entry.bytes,
        files=0 if entry is None else len(entry.files),
        waiting=waiting,
        generation=0 if entry is None else entry.generation,
        verified_at=None if entry is None else entry.verified_at,
    )


def _state(
    entry: EndedDay | None, waiting: int, known: VerifiedDay | None, *, stands: bool, is_open: bool
) -> DayState:
    if is_open:
        return DayState.OPEN
    if entry is None or waiting:
        return DayState.CLOSED
    if entry.verified_at is None:
        return DayState.EXPORTED
    pruned = known is not None and known.pruned_below > 0 and not stands
    return DayState.PRUNED if pruned else DayState.VERIFIED

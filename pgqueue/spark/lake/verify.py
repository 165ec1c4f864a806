"""Verify: checks that the lake holds the rows that the database holds.

The rows in a day's files, read back by DuckDB, or by Spark where they are many, are compared with the rows of the same
transactions in the database: their number, and a checksum over every column. The files must also have as many rows as were
exported, and the checksum of a former verification.

- The **history** must agree exactly, less the rows that were pruned since it was verified.
- **Dead jobs** may be revived or purged after their export. If all are still in the database, they must agree exactly;
  otherwise each remaining one must be in the lake with the same values.

A day that agrees is recorded in the lake and in the database's ``lake_days``: from then on its history may be dropped.
"""

import re
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from pgqueue.errors import LakeError, NotVerified
from pgqueue.spark.lake import checksum
from pgqueue.spark.lake.ahead import ThreadedDatabase, ahead
from pgqueue.spark.lake.checksum import InFiles, of_frame
from pgqueue.spark.lake.columns import ENDED, ENDED_SCHEMA
from pgqueue.spark.lake.database_rows import dead
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay, Verification
from pgqueue.spark.lake.steps import WriterLock, lake_step
from pgqueue.spark.session import SessionOrStart, require_no_interrupt, when_needed
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.lake import Checksum, Contents, VerifiedDay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE_EVERY = 5.0
"""Seconds after which the days that agree are recorded, in one commit: a killed run repeats no more than these."""
UNREADABLE = re.compile(r"\[FAILED_READ_FILE.*|\[PATH_NOT_FOUND.*")
"""Spark's message for a file that cannot be read; several Python errors carry it."""


class DayFinding(StrEnum):
    """The result of comparing a day."""

    VERIFIED = "verified"
    GONE = "gone"
    """The database dropped the history before it was verified; only the files could be checked."""
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The result of a day, with its figures.

    Attributes:
        day: the UTC day.
        finding: the result.
        history: the history's rows in the lake.
        dead: the dead jobs in the lake.
        standing: how many of these dead jobs are still in the database.
        reason: where the day differs, and what to do; empty if it agrees.
    """

    day: date
    finding: DayFinding
    history: int
    dead: int
    standing: int
    reason: str = ""


def verify(
    spark: SessionOrStart,
    database: Database,
    lake: Lake,
    *,
    days: Collection[date] | None = None,
    everything: bool = False,
    tell: Callable[[VerifyResult], object] = lambda _: None,
) -> list[VerifyResult]:
    """Compare the lake's days with the database.

    Args:
        spark: the session that reads large days, or what starts it once one is needed.
        database: where the jobs are.
        lake: what to compare with it.
        days: these days only.
        everything: whether to compare days that are verified already, too.
        tell: called with each day's result as soon as it has been recorded.

    Returns:
        The result of each day, also of days that differ: see :func:`require_verified`.

    Raises:
        PipelineError: another process is writing to the lake.
        LakeError: there is no lake, or it is another database's, or a day is not in it.
    """
    found: list[VerifyResult] = []
    told, noted_at = 0, time.monotonic()
    with lake_step(database, lake, "verify") as (lock, size):
        verifier = _Verifier(when_needed(spark), database, lake, lock)
        due = verifier.due(days, everything=everything or days is not None)
        with ahead(verifier.read, due, verifier.in_threads.interrupt) as read:
            for entry, result in read:
                held, in_files = result()
                found.append(verifier.verify(entry, held, in_files or verifier.read_by_spark(entry)))
                size.days, size.rows = size.days + 1, size.rows + entry.rows
                if len(found) == len(due) or time.monotonic() - noted_at > NOTE_EVERY:
                    verifier.note()
                    for one in found[told:]:
                        tell(one)
                    told, noted_at = len(found), time.monotonic()
    return found


def require_verified(found: Collection[VerifyResult]) -> None:
    """Raise if a day differs.

    Raises:
        NotVerified: the message says which days differ, in what, and what to do.
    """
    if differing := [one for one in found if one.finding is DayFinding.DIFFERS]:
        raise NotVerified("; ".join(f"day {one.day}: {one.reason}" for one in differing))


class _Verifier:
    """One run, while no other process writes to the lake."""

    def __init__(
        self, spark: "Callable[[], SparkSession]", database: Database, lake: Lake, lock: WriterLock
    ) -> None:
        self.spark = spark
        self.database = database
        self.lake = lake
        self.lock = lock
        self.known = database.run(plans.verified_days())
        self.hidden = lake.hidden()
        self.dead = database.run(plans.dead_bounds())
        self.in_threads = ThreadedDatabase(database)
        self._agreed: list[tuple[EndedDay, Verification]] = []

    def due(self, days: Collection[date] | None, *, everything: bool) -> list[EndedDay]:
        entries = self.lake.days()
        if missing := sorted(set(days or ()) - {entry.day for entry in entries}):
            raise LakeError(
                f"day {missing[0]} is not in {self.lake.uri}: export it first, or check the days given"
            )
        wanted = [entry for entry in entries if days is None or entry.day in days]
        return [entry for entry in wanted if everything or not self._is_noted(entry)]

    def read(self, entry: EndedDay) -> tuple[Contents, InFiles | LakeError | None]:
        """Return what the database holds of a day, and what its files hold; None: Spark has to read them. Called in a thread."""
        if entry.rows > checksum.MOST_ROWS:
            return self._database_contents(entry), None
        with ThreadPoolExecutor(1) as beside:  # DuckDB takes as long as the database, and uses another core
            in_files = beside.submit(self._by_duckdb, entry)
            return self._database_contents(entry), in_files.result()

    def read_by_spark(self, entry: EndedDay) -> InFiles | LakeError:
        """Return what the files of a large day hold, or why they cannot be read.

        Called in the main thread: only there does an interrupt end Spark's work.
        """
        try:
            return of_frame(self.lake.ended(self.spark(), [entry.day]), self._known(entry.day).pruned_below)
        except Exception as error:
            require_no_interrupt(error)
            said = UNREADABLE.search(str(error))
            if said is None:
                raise
            return LakeError(f"a file cannot be read: {said[0]}")

    def verify(self, entry: EndedDay, held: Contents, read: InFiles | LakeError) -> VerifyResult:
        day = entry.day
        found, reason = _files(entry, read)
        gone = not held.history.rows and found.standing.rows > 0
        reason = reason or self._dead_differ(entry, held.dead, found.dead)
        if not reason and not gone:
            reason = _history_differs(found.standing, held.history)
        finding = DayFinding.DIFFERS if reason else DayFinding.GONE if gone else DayFinding.VERIFIED
        if finding is DayFinding.VERIFIED:
            self._agreed.append((entry, _verification(found, held)))
        return VerifyResult(
            day=day,
            finding=finding,
            history=entry.history,
            dead=entry.dead,
            standing=held.dead.rows,
            reason=reason,
        )

    def note(self) -> None:
        """Record the days that agree."""
        if not self._agreed:
            return
        self.lock.require_held()
        # In the lake first: the database's record allows the history to be dropped.
        self.lake.note(
            [msgspec.structs.replace(entry, verified=verified) for entry, verified in self._agreed]
        )
        for entry, verified in self._agreed:
            noted = plans.note_verified(
                entry.day,
                history=verified.history,
                dead=verified.dead,
                below=entry.below,
                lake=self.lake.uri,
            )
            self.database.run(noted)
            self.lake.passed("noted")
        self._agreed = []

    def _is_noted(self, entry: EndedDay) -> bool:
        known = self._known(entry.day)
        return entry.verified is not None and known.below == entry.below and known.lake == self.lake.uri

    def _known(self, day: date) -> VerifiedDay:
        return self.known.get(day, VerifiedDay(day, 0, 0, ""))

    def _database_contents(self, entry: EndedDay) -> Contents:
        day = entry.day
        return self.in_threads.run(
            plans.contents(
                day,
                since=self._known(day).pruned_below,
                below=entry.below,
                dead=self.dead.get(day, plans.NO_DEAD),
                hidden=self.hidden,
            )
        )

    def _by_duckdb(self, entry: EndedDay) -> InFiles | LakeError:
        named = [file.path.removeprefix(f"{ENDED}/") for file in entry.files]
        pruned_below = self._known(entry.day).pruned_below
        try:
            return checksum.in_files(self.lake.folder.at(ENDED), named, ENDED_SCHEMA, pruned_below)
        except LakeError as error:
            return error

    def _dead_differ(self, entry: EndedDay, standing: Checksum, exported: Checksum) -> str:
        """Return how the database's remaining dead jobs differ from the lake's; empty: they agree."""
        if standing == exported:
            return ""
        rows = dead(self.database, entry.day, below=entry.below, hidden=self.hidden)
        with checksum.errors():
            other = checksum.not_among(rows, self.lake.dataset(ENDED, ENDED_SCHEMA, [entry.day]), most=3)
        if not other:
            return ""
        named = ", ".join(map(str, other))
        return f"dead jobs are not in the lake as the database has them (ids {named}, …); {_again(entry)}"


def _verification(found: InFiles, held: Contents) -> Verification:
    return Verification(
        at=datetime.now(UTC),
        history=found.history,
        dead=found.dead,
        standing=held.history,
        versions=held.versions,
    )


def _files(entry: EndedDay, found: InFiles | LakeError) -> tuple[InFiles, str]:
    """Return what the files hold, and how that differs from what was exported and verified; empty: they agree."""
    if isinstance(found, LakeError):
        return InFiles(), f"{found}; {_again(entry)}"
    if (found.history.rows, found.dead.rows) != (entry.history, entry.dead):
        return found, (
            f"its files hold {found.history.rows} rows of the history and {found.dead.rows} dead jobs, and {entry.history} "
            f"and {entry.dead} were exported; {_again(entry)}"
        )
    former = entry.verified
    if former is not None and (found.history, found.dead) != (former.history, former.dead):
        return found, f"its files were changed since they were verified at {former.at}; {_again(entry)}"
    return found, ""


def _history_differs(exported: Checksum, held: Checksum) -> str:
    if held == exported:
        return ""
    what = "fewer" if held.rows < exported.rows else "more" if held.rows > exported.rows else "other"
    return (
        f"the database holds {what} rows of its history than the lake: {held.rows} (checksum {held.checksum}), not "
        f"{exported.rows} ({exported.checksum}). One of them was changed since the export. If the database is right, run "
        "`pgqueue pipeline export --again` with this day; if the lake is right, drop the rows yourself"
    )


def _again(entry: EndedDay) -> str:
    return f"export it again while the database has it: `pgqueue pipeline export --again {entry.day}`"

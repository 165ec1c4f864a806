"""Export: writes closed days of ended jobs to the lake.

A day is exported when it is over. The export waits for the transactions that were in progress, since they may add rows to
it. Where one of them stays open, the rows of all transactions below it are exported, and the others are left to the next
export, which finds them by their transaction numbers and adds them to the day as another generation; so it does with rows
that appear later (a user inserted history with an old time). An export never removes rows from the lake: jobs that were
pruned from the database, and dead jobs that were revived or purged, stay in it.

Small days are read and written by this process, through Arrow, two at a time; then large ones by Spark, one after the other,
each on all its cores. The rows and their order are the same. Days are committed one by one.
No table is locked, and no snapshot is held while Spark reads.
"""

import errno
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from pgqueue.errors import (
    ConnectionFailed,
    DaysNotExported,
    Duration,
    InvalidOption,
    LakeError,
    PipelineError,
    as_delay,
)
from pgqueue.spark.config import HiddenColumns
from pgqueue.spark.lake import database_rows, day_files
from pgqueue.spark.lake.ahead import ahead
from pgqueue.spark.lake.columns import ENDED, ENDED_TABLE
from pgqueue.spark.lake.compact import merge
from pgqueue.spark.lake.contracts import keep_contracts
from pgqueue.spark.lake.database_rows import final_below
from pgqueue.spark.lake.day_files import DayFiles
from pgqueue.spark.lake.files import ROWS_PER_FILE
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import EndedDay, ExportBatch
from pgqueue.spark.lake.steps import WriterLock, log_step, writer_lock
from pgqueue.spark.session import SessionOrStart, in_a_line, require_no_interrupt, when_needed
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.label import label_of
from pgqueue.store.pipeline import extract
from pgqueue.store.pipeline import extract_where as where
from pgqueue.store.pipeline import lake as plans
from pgqueue.store.pipeline.lake import MARGIN, Checksum, Session, first_open_day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("pgqueue.pipeline")

WAIT = timedelta(minutes=1)
MANY_FILES = 10
"""An export of late rows merges the files of a day that has this many."""
TOGETHER = 100_000
"""Rows of small days from which on they are committed together."""
TELL_EVERY = 5.0
"""Seconds after which small days are committed, however few rows they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDay:
    """A day that was written.

    Attributes:
        day: the UTC day.
        generation: the day's generation after this export.
        history: rows that came from the history.
        dead: rows that came from the dead jobs.
        files: how many files were added.
        bytes: their size.
        seconds: how long it took.
    """

    day: date
    generation: int
    history: int
    dead: int
    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How to export.

    Attributes:
        margin: how long after its end a day is closed, in seconds or as a timedelta.
        wait: how long to wait for transactions that may still add to a closed day, in seconds or as a timedelta.
        rows_per_file: about the most rows in a file; a queue with more rows gets several files.
        again: days to write again from the database, in place of the lake's rows.
        hide: the columns that a new lake leaves out or hashes; None: none, or those that an existing lake hides.
        change_data_feed: whether to switch on Delta's change data feed of the ended jobs; it stays on.
        now: the time, in place of the database's clock.
    """

    margin: Duration = MARGIN
    wait: Duration = WAIT
    rows_per_file: int = ROWS_PER_FILE
    again: Collection[date] = ()
    hide: HiddenColumns | None = None
    change_data_feed: bool = False
    now: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("margin", "wait"):
            object.__setattr__(self, name, as_delay(name, getattr(self, name)))
        if self.rows_per_file < 1:
            raise InvalidOption(f"rows_per_file={self.rows_per_file!r}: use a number above zero")


def export(
    spark: SessionOrStart,
    database: Database,
    lake: Lake,
    *,
    options: ExportOptions | None = None,
    tell: Callable[[ExportedDay], object] = lambda _: None,
    tell_open: Callable[[Sequence[Session]], object] = lambda _: None,
) -> list[ExportedDay]:
    """Write every closed day that is not in the lake, and late rows of days that are.

    Where a transaction stays open that may add rows to these days, what is final is written, and the rest is left to the
    next export.

    Args:
        spark: the session that reads and writes large days, or what starts it once one is needed.
        database: where the jobs are.
        lake: where they go; it is made if it does not exist.
        options: how to export.
        tell: called with each day as soon as it is committed.
        tell_open: called with the transactions that stayed open, before the first day is written.

    Raises:
        PipelineError: another process writes to the lake, the connection that held its lock was lost, or the transaction
            numbers of ended jobs are another server's.
        psycopg.OperationalError: the server fails; the days after this one were not tried.
        DaysNotExported: some days could not be exported; the message names them, and the rows where it is theirs. The other
            days were exported.
        LakeError: the lake is another database's, or of a later release, or hides other columns.
        ConfigurationError: the key of the lake's hashes is missing, or is another one.
    """
    given = options or ExportOptions()
    with writer_lock(database) as lock:
        lake.create(database.run(plans.origin(database.catalogue.schema)), given.hide, label_of(database)[0])
        if given.change_data_feed:
            lake.table(ENDED).feed_changes(ENDED_TABLE)
        with log_step(lake, "export", database) as size:
            lake.sweep(ENDED)
            exporter = _Exporter(when_needed(spark), database, lake, given, lock)
            due = exporter.due()
            if exporter.open:
                log.warning(
                    "rows of transactions from %d on are left to the next export, since these are open: %s",
                    exporter.final,
                    "; ".join(map(str, exporter.open)),
                )
                tell_open(exporter.open)
            exporter.export(due, tell)
            exporter.merge_files()
            database_rows.keep_workers(database, lake)
            database_rows.keep_deploys(database, lake)
            keep_contracts(database, lake)
            size.days = len(exporter.exported)
            size.rows = sum(one.history + one.dead for one in exporter.exported)
            _require_all(exporter.failed, len(exporter.exported))
    return exporter.exported


def _require_server(error: Exception, lock: WriterLock) -> None:
    """Raise an error that is not the day's: the server is gone, or it fails (no disk, no memory, shutting down)."""
    lock.require_held()
    if isinstance(error, psycopg.OperationalError | ConnectionFailed):
        raise error


def _require_all(failed: Mapping[date, str], exported: int) -> None:
    if failed:
        told = "; ".join(f"day {day}: {why}" for day, why in failed.items())
        raise DaysNotExported(f"{len(failed)} of {len(failed) + exported} days were not exported: {told}")


class _Exporter:
    """One run of the export, while no other process writes to the lake.

    Attributes:
        final: the rows of transactions below this number are final; set once there is something to do.
        open: transactions that stayed open, which may add rows to closed days; as far as this role may see them.
        former: the days that were in the lake before.
        rows: about how many rows of each day are not in the lake.
        dead: the bounds of the dead jobs of each day, of those that were there when it was set.
        unseen_from: the dead jobs of transactions below this number were there.
        reader: reads small days.
        exported: the days that were written.
        failed: the days that could not be, and why.
        total: how many days this run is to write.
    """

    def __init__(
        self,
        spark: "Callable[[], SparkSession]",
        database: Database,
        lake: Lake,
        options: ExportOptions,
        lock: WriterLock,
    ) -> None:
        self.spark = spark
        self.database = database
        self.lake = lake
        self.options = options
        self.lock = lock
        self.final = 0
        self.open: Sequence[Session] = ()
        self.former: Mapping[date, EndedDay] = {}
        self.rows: Mapping[date, int] = {}
        self.dead: Mapping[date, tuple[int, int]] = {}
        self.unseen_from = 0
        self.hidden = lake.hidden()
        self.reader = database_rows.DayReader(database, self.hidden)
        self.exported: list[ExportedDay] = []
        self.failed: dict[date, str] = {}
        self.total = 0

    def due(self) -> list[date]:
        """The closed days with rows that are not in the lake; waits for open transactions that may add some.

        Raises:
            PipelineError: the transaction numbers of ended jobs are another server's.
        """
        self.database.run(extract.check_numbers(self.database.run(extract.look())))
        seen = self.database.run(plans.horizon(now=self.options.now))
        self.former = {entry.day: entry for entry in self.lake.days()}
        known = {day: entry.below for day, entry in self.former.items() if day not in self.options.again}
        there = self.database.run(plans.there(known, seen.xmax))
        self.rows = {one.day: one.waiting for one in there}
        self.dead, self.unseen_from = self.database.run(plans.dead_bounds()), seen.xmin
        first_open = first_open_day(seen.at, as_delay("margin", self.options.margin))
        due = {one.day for one in there if one.waiting and one.day < first_open}
        again = self._again({one.day for one in there if one.stands and one.day < first_open})
        if due | again:
            barrier = self.database.run(plans.barrier())
            wait = as_delay("wait", self.options.wait)
            self.final, self.open = final_below(self.database, barrier, wait)
        return sorted(due | again)

    def export(self, due: Sequence[date], tell: Callable[[ExportedDay], object]) -> None:
        """Write days, the small ones first, several in a commit; ``tell`` is called with each that is committed."""
        self.total = len(due)
        self.lake.table(ENDED).require(ENDED_TABLE)
        large, made, begun = [], dict[date, DayFiles](), time.monotonic()
        with self.reader, ahead(self._by_arrow, due, self.reader.interrupt) as read:
            for day, make in read:
                files = self._try(day, make)
                if files is None:
                    large.append(day)
                elif files.files:
                    made[day] = files
                if (
                    sum(one.rows for one in made.values()) >= TOGETHER
                    or time.monotonic() - begun > TELL_EVERY
                ):
                    self._commit(made, tell)
                    made, begun = {}, time.monotonic()
            self._commit(made, tell)
        if large:  # the reader's connections are closed: Spark may take hours
            spark = self.spark()
            for day in large:
                files = self._try(day, partial(self._by_spark, spark, day))
                self._commit({day: files} if files and files.files else {}, tell)

    def merge_files(self) -> None:
        """Merge the files of days to which exports have added many."""
        files = self.lake.table(ENDED).files()  # of the open table: the records would be read from the store
        many = {one.day for one in self.exported if len(files.get(one.day, ())) >= MANY_FILES}
        if many:
            entries = [one for one in self.lake.days() if one.day in many]
            merge(self.lake, self.lock, entries, self.options.rows_per_file)

    def _try(self, day: date, make: Callable[[], DayFiles | None]) -> DayFiles | None:
        """Return what is made of a day, or note why nothing is; None: the day is left to Spark."""
        self.lock.require_held()  # another export may have begun
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - an error of one day must not stop the days after it
            require_no_interrupt(error)
            _require_server(error, self.lock)
            self._require_lake(error)
            self._note_failure(day, error)
            return DayFiles()

    def _require_lake(self, error: Exception) -> None:
        """Raise an error that is not the day's: the lake cannot be reached, read or written."""
        failed = next((one for one in (error, error.__cause__) if isinstance(one, OSError)), None)
        if failed is not None and failed.errno != errno.ENAMETOOLONG:  # a name is of one queue
            raise LakeError(
                f"the export stopped after {len(self.exported)} of {self.total} days, since the lake {self.lake.uri} fails: "
                f"{in_a_line(error)}; run it again when the lake can be written"
            ) from error

    def _note_failure(self, day: date, error: Exception) -> None:
        why = f"{day_files.unfit(self.database, day)}{in_a_line(error)}"
        log.error("day %s was not exported: %s; export continues with the next day", day, why)
        self.failed[day] = why

    def _commit(self, made: Mapping[date, DayFiles], tell: Callable[[ExportedDay], object]) -> None:
        if not made:
            return
        started = time.monotonic()
        again = [day for day in made if day in self.options.again]
        try:
            entries = [self._entry(day, files) for day, files in made.items()]
            self.lock.require_held()
            self.lake.commit(
                ENDED_TABLE,
                [file for files in made.values() for file in files.files],
                entries,
                replaced=[day for day in made if self._former(day) is None],
                why="export --again" if again else "export",
            )
        except LakeError as error:
            self._require_lake(error)
            raise
        seconds = (time.monotonic() - started) / len(made)
        for (day, files), entry in zip(made.items(), entries, strict=True):
            done = ExportedDay(
                day=day,
                generation=entry.generation,
                history=files.history,
                dead=files.dead,
                files=len(files.files),
                bytes=sum(one.bytes for one in files.files),
                seconds=files.seconds + seconds,
            )
            self.exported.append(done)
            tell(done)

    def _entry(self, day: date, made: DayFiles) -> EndedDay:
        batch = ExportBatch(
            generation=self.lake.table(ENDED).generation(day) + 1,
            since=self._since(day),
            below=self.final,
            highest=made.highest,
            exported_at=datetime.now(UTC),
            history=Checksum(made.history),
            dead=Checksum(made.dead),
        )
        former = self._former(day)
        return EndedDay(
            table=ENDED,
            day=day,
            generation=batch.generation,
            written_at=batch.exported_at,
            batches=(*(former.batches if former else ()), batch),
            erased=self.former[day].erased if day in self.former else (),
        )

    def _again(self, whole: Collection[date]) -> set[date]:
        known = self.database.run(plans.verified_days())
        for day in self.options.again:
            if day not in whole or (day in known and known[day].pruned_below):
                raise PipelineError(
                    f"day {day} cannot be exported again: its history, or a part of it, is not in the database any more"
                )
        return set(self.options.again)

    def _by_arrow(self, day: date) -> DayFiles | None:
        """Write a day's rows from this process; return None if they have too many rows or bytes."""
        if self.rows[day] > min(database_rows.MOST_ROWS, self.options.rows_per_file):
            return None
        dead = where.dead_within(*self.dead.get(day, plans.NO_DEAD), self.unseen_from)
        return day_files.by_arrow(
            self.reader, self.lake, day, since=self._since(day), below=self.final, dead=dead
        )

    def _by_spark(self, spark: "SparkSession", day: date) -> DayFiles:
        return day_files.by_spark(
            spark,
            self.database,
            self.lake,
            day,
            since=self._since(day),
            below=self.final,
            rows_per_file=self.options.rows_per_file,
        )

    def _former(self, day: date) -> EndedDay | None:
        return None if day in self.options.again else self.former.get(day)

    def _since(self, day: date) -> int:
        """Return the transaction number below which the day's rows are in the lake."""
        former = self._former(day)
        return 0 if former is None else former.below

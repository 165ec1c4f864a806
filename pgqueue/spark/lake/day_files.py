"""The files of a day, which do not count yet: small days are written by this process, large ones by Spark."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from psycopg.sql import Composable

from pgqueue.errors import PipelineError
from pgqueue.spark.lake import database_rows
from pgqueue.spark.lake.columns import ENDED
from pgqueue.spark.lake.files import WrittenFile
from pgqueue.spark.lake.lake import Lake
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import lake as plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The files of a day, and what is in them.

    Attributes:
        files: the files.
        history: rows that came from the history.
        dead: rows that came from the dead jobs.
        highest: the highest transaction number of a row; None: no rows.
        seconds: how long it took to make them.
    """

    files: Sequence[WrittenFile] = ()
    history: int = 0
    dead: int = 0
    highest: int | None = None
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.history + self.dead


def by_arrow(
    reader: database_rows.DayReader, lake: Lake, day: date, *, since: int, below: int, dead: Composable
) -> DayFiles | None:
    """Write the rows of some transactions from this process; None: they have too many bytes."""
    started = time.monotonic()
    rows = reader.ended(day, since=since, below=below, dead=dead)
    if rows is None:
        return None
    of_dead = pc.sum(pc.equal(rows["outcome"], "dead")).as_py() or 0
    files = lake.write_rows(ENDED, day, rows)
    highest = pc.max(rows["ended_in"]).as_py()
    return DayFiles(files, rows.num_rows - of_dead, of_dead, highest, time.monotonic() - started)


def by_spark(
    spark: "SparkSession",
    database: Database,
    lake: Lake,
    day: date,
    *,
    since: int,
    below: int,
    rows_per_file: int,
) -> DayFiles:
    """Have Spark's executors write the rows of some transactions.

    Raises:
        PipelineError: the files have other rows than the database.
    """
    started = time.monotonic()
    held = database.run(plans.counts(day, since=since, below=below))
    if not held.rows:
        return DayFiles()
    frame = database_rows.ended(spark, database, day, since=since, below=below, hidden=lake.hidden())
    files = lake.write(ENDED, database_rows.arrange_rows(frame, held.queues, rows_per_file))
    history, dead = lake.written(files)
    # A user may revive or purge dead jobs while Spark reads, but no new ones can be added to these transactions.
    if (history, dead) != (held.history, held.dead):
        left = database.run(plans.counts(day, since=since, below=below))
        if history != held.history or not left.dead <= dead <= held.dead:
            raise PipelineError(
                f"day {day} was not exported: its files have {history} rows of the history and {dead} dead jobs, and the "
                f"database held {held.history} and {held.dead}; run it again, and should it happen again, report it"
            )
    return DayFiles(files, history, dead, held.highest, time.monotonic() - started)


def unfit(database: Database, day: date) -> str:
    """Name the rows of a day that no lake can hold, for a message; empty: there are none."""
    rows = database.run(plans.unfit(day))
    if not rows:
        return ""
    named = ", ".join(f"{name} of job {number}" for number, name in rows)
    return f"{named}: a time that is infinite or outside the years 1 to 9999; correct it in the database: "

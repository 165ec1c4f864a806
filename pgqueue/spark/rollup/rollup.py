"""Roll-ups: sums up a lake's days by hour, in Parquet and in PostgreSQL, and keeps the sums up to date.

The tables, and what each is computed from::

    ended jobs of a day ──► rollup/busy, rollup/failures, rollup/tenants
                        └─► rollup/hours ◄── rollup/busy of this day, and of later days that reach back to it
                                  └─► rollup/days
    workers ──► rollup/workers ◄── rollup/busy of the same days
    all but busy ──► PostgreSQL's rollup_… tables, one day in one transaction

Each table's day records what it was made from: the generation of the day of ended jobs, the settings on which it
depends, the version of these rules, and the later days that reached back to it. If one of these has changed, the day is
made again. So one rule covers late rows, a later day's long jobs, a new promise, and the work that a killed run left.
PostgreSQL records, too, from which files of the lake its figures came.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, timedelta
from typing import TYPE_CHECKING, TypeAlias

from pgqueue.errors import LakeError
from pgqueue.spark.lake.alone import alone
from pgqueue.spark.rollup import busy as rollup_busy
from pgqueue.spark.rollup import jobs as rollup_jobs
from pgqueue.spark.rollup.failures import failures
from pgqueue.spark.rollup.rows import rows_of
from pgqueue.store.pipeline import rollups
from pgqueue.store.pipeline.lake import origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgqueue.spark.config import Config
    from pgqueue.spark.lake.lake import Lake
    from pgqueue.spark.lake.record import Day
    from pgqueue.store.database import Database

MadeFrom: TypeAlias = dict[str, str]

RULES = "1"
"""Counts how often the meaning of a figure changed: older figures are made again."""
BUSY = "busy"
ROWS_AT_ONCE = 20_000_000
"""Days are computed in batches of about this many jobs: small days together, and a killed run repeats one batch."""
SETTINGS = {
    # Sketches are objects. Above this number of groups in a task, Spark sorts the rows instead of looking each group
    # up; its default of 128 is less than the hours of six tasks. The two sketches of a group take about 10 KB.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "4096",
}


def rollup(
    spark: "SparkSession",
    database: "Database | None",
    lake: "Lake",
    config: "Config",
    *,
    days: Iterable[date] | None = None,
) -> list[date]:
    """Bring the roll-ups up to date; a second run finds nothing to do.

    Args:
        spark: the session that computes.
        database: where to write the tables; None: only to the lake.
        lake: the lake to sum up.
        config: promises, tenants, costs.
        days: the days to check, and the earlier days in which their jobs ran; by default all days of the lake.

    Returns:
        The days of which something was written, oldest first.

    Raises:
        LakeError: there is no lake, or it does not have one of the days.
        LakeOfAnother: it is another database's.
        PipelineError: another process is writing to the lake. Without a database the caller must prevent this.
    """
    if database is None:
        return sorted(_in_lake(_Work(spark, lake, config, days)))
    lake.require(database.run(origin(database.catalogue.schema)))
    with alone(database) as lock:
        work = _Work(spark, lake, config, days, lock.still)
        done = _in_lake(work)
        done |= _sent(database, lake, sorted(done | work.chosen))
    return sorted(done)


def _in_lake(work: "_Work") -> set[date]:
    with _settings(work.spark):
        return work.of_one_day() | work.across_days()


class _Work:
    """The work to do in the lake."""

    def __init__(
        self,
        spark: "SparkSession",
        lake: "Lake",
        config: "Config",
        days: Iterable[date] | None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.check = check
        self.config = config
        self.ended = {entry.day: entry for entry in lake.days() if entry.day is not None}
        self.chosen = set(self.ended if days is None else days)
        if missing := sorted(self.chosen - self.ended.keys()):
            there = f"{min(self.ended)} to {max(self.ended)}" if self.ended else "none"
            raise LakeError(
                f"{lake.uri} does not have {', '.join(map(str, missing))} (days in it: {there}): "
                "export them first, or check --days"
            )

    def of_one_day(self) -> set[date]:
        """Write the tables that depend on the jobs of one day only; returns the days."""
        plain = {day: self._base(day) for day in self.chosen}
        configured = {day: {**made, "config": self.config.fingerprint()} for day, made in plain.items()}
        done = set()
        for batch in self._batches(self._stale(BUSY, plain)):
            self._write_busy({day: plain[day] for day in batch})
            done.update(batch)
        for batch in self._batches(self._stale("failures", plain)):
            done.update(self._write("failures", plain, batch, lambda days: failures(self._jobs(days))))
        for batch in self._batches(self._stale("tenants", configured)):
            done.update(self._write("tenants", configured, batch, self._tenants))
        return done

    def across_days(self) -> set[date]:
        """Write the tables that also depend on later days' jobs; returns the days."""
        later = self._later()
        plain = {day: {**self._base(day), "later": _said(later[day])} for day in self.chosen}
        made = {day: {**one, "config": self.config.fingerprint()} for day, one in plain.items()}
        done = set()
        for table, wanted, frame in (
            ("hours", made, self._hours(later)),
            ("days", made, self._days),
            ("workers", plain, self._workers(later)),
        ):
            current = self._with_those_reached(table, wanted, later)
            for batch in self._batches(self._stale(table, current)):
                done.update(self._write(table, current, batch, frame))
        return done

    # What a table's day should be made from, and what it was made from

    def _base(self, day: date) -> MadeFrom:
        return {"ended": str(self.ended[day].generation), "rules": RULES}

    def _made(self, table: str) -> dict[date, MadeFrom]:
        entries = self.lake.entries(f"rollup/{table}")
        return {entry.day: entry.made_from for entry in entries if entry.day is not None}

    def _stale(self, table: str, wanted: Mapping[date, MadeFrom]) -> list[date]:
        made = self._made(table)
        return sorted(day for day, one in wanted.items() if not one.items() <= made.get(day, {}).items())

    def _later(self) -> dict[date, dict[int, str]]:
        """For each day, the later days whose jobs ran in it: the number of days later, and the generation."""
        later: dict[date, dict[int, str]] = {day: {} for day in self.ended}
        for day, made in self._made(BUSY).items():
            for back in range(1, int(made["reaches"]) + 1):
                later.setdefault(day - timedelta(days=back), {})[back] = made["ended"]
        return later

    def _with_those_reached(
        self, table: str, wanted: Mapping[date, MadeFrom], later: Mapping[date, dict[int, str]]
    ) -> dict[date, MadeFrom]:
        """The chosen days, and other days for which only the later days changed.

        Other days with more changes wait until they are chosen.
        """
        known = {"rules": RULES, "config": self.config.fingerprint()}
        others = {
            day: {**made, "later": _said(later.get(day, {}))}
            for day, made in self._made(table).items()
            if day not in wanted and all(made.get(name, value) == value for name, value in known.items())
        }
        return {**wanted, **others}

    # Writing

    def _batches(self, days: Iterable[date]) -> Iterator[list[date]]:
        batch: list[date] = []
        rows = 0
        for day in days:
            if batch and rows + self.ended[day].rows > ROWS_AT_ONCE:
                yield batch
                batch, rows = [], 0
            batch.append(day)
            rows += self.ended[day].rows
        if batch:
            yield batch

    def _write(
        self,
        table: str,
        wanted: Mapping[date, MadeFrom],
        days: list[date],
        frame: Callable[[list[date]], "DataFrame"],
    ) -> list[date]:
        self.check()
        self.lake.replace_days(f"rollup/{table}", days, frame(days), made_from=wanted)
        return days

    def _write_busy(self, wanted: Mapping[date, MadeFrom]) -> None:
        """Write when jobs ran, and record how many days each day's jobs reach back."""
        found = rollup_busy.parts(self.lake.ended(self.spark, wanted)).persist()
        try:
            reaches = {row.day: row.reaches for row in rollup_busy.reaching(found).collect()}
            noted = {day: {**made, "reaches": str(reaches.get(day, 0))} for day, made in wanted.items()}
            self._write(BUSY, noted, list(noted), lambda _: found)
        finally:
            found.unpersist()

    # The tables

    def _jobs(self, days: Iterable[date]) -> "DataFrame":
        return rollup_jobs.timed(self.lake.ended(self.spark, days))

    def _busy(self, days: Iterable[date], later: Mapping[date, dict[int, str]]) -> "DataFrame":
        """When jobs ran, of these days and of those that reach back to them."""
        reaching = {day + timedelta(days=back) for day in days for back in (0, *later[day])}
        return self.lake.day_table(self.spark, f"rollup/{BUSY}", sorted(reaching))

    def _tenants(self, days: list[date]) -> "DataFrame":
        return rollup_jobs.tenants(self._jobs(days), self.config)

    def _hours(self, later: Mapping[date, dict[int, str]]) -> Callable[[list[date]], "DataFrame"]:
        own = {day: {**self._base(day), "config": self.config.fingerprint()} for day in self.chosen}
        stale = set(self._stale("hours", own))

        def frame(days: list[date]) -> "DataFrame":
            """If only later days changed, the figures of the day's own jobs are taken from the existing hours."""
            fresh, kept = [day for day in days if day in stale], [day for day in days if day not in stale]
            parts = [rollup_jobs.own_hours(self._jobs(fresh), self.config.slos)] if fresh else []
            if kept:
                former = self.lake.day_table(self.spark, "rollup/hours", kept)
                parts.append(rollup_jobs.own_part(former))
            busy = rollup_busy.of_jobs(self._busy(days, later), days)
            whole = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
            return rollup_jobs.hours(whole, busy, self.config.slos)

        return frame

    def _days(self, days: list[date]) -> "DataFrame":
        return rollup_jobs.days(self.lake.day_table(self.spark, "rollup/hours", days), self.config.slos)

    def _workers(self, later: Mapping[date, dict[int, str]]) -> Callable[[list[date]], "DataFrame"]:
        workers = self.lake.workers(self.spark)
        return lambda days: rollup_busy.of_workers(self._busy(days, later), days, workers)


def _sent(database: "Database", lake: "Lake", days: Iterable[date]) -> set[date]:
    """Copy the lake's figures of some days to PostgreSQL; returns the days that were out of date."""
    made = database.run(rollups.made())
    tables = {
        table: {entry.day: entry for entry in lake.entries(f"rollup/{table}")} for table in rollups.ROLLUPS
    }
    done = set()
    for day in days:
        entries = {table: of[day] for table, of in tables.items()}
        made_from = _written(entries)
        if made.get(day) != made_from:
            rows = {table: rows_of(lake, entries[table], names) for table, names in rollups.ROLLUPS.items()}
            database.run(rollups.replace_day(day, made_from, rows))
            done.add(day)
    return done


def _written(entries: Mapping[str, "Day"]) -> str:
    """Identifies the files of a lake by their times; another lake's files have other times."""
    return " ".join(
        f"{table}@{one.generation}/{one.written_at:%Y%m%dT%H%M%S.%fZ}" for table, one in entries.items()
    )


def _said(later: Mapping[int, str]) -> str:
    """Like ``1@3``: the third generation of the next day reached back."""
    return " ".join(f"{back}@{generation}" for back, generation in sorted(later.items()))


@contextmanager
def _settings(spark: "SparkSession") -> Iterator[None]:
    """Use our settings for the length of the block: other code may own the session."""
    former: dict[str, str | None] = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in former.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)

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

Small days are computed by DuckDB in this process, large ones by Spark, with the same statements.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from pgqueue.errors import LakeError
from pgqueue.spark.lake.steps import Size, log_step, writer_lock
from pgqueue.spark.rollup import in_duckdb
from pgqueue.spark.rollup.attempts import DEFAULT
from pgqueue.spark.rollup.tables import BUSY, DAYS, PROMISES, Engine, T, folder, rows_of
from pgqueue.spark.session import SessionOrStart, when_needed
from pgqueue.store.pipeline import rollups
from pgqueue.store.pipeline.lake import origin
from pgqueue.values.redaction import Redaction

if TYPE_CHECKING:
    from pgqueue.spark.config import Config, Slo
    from pgqueue.spark.lake.lake import Lake
    from pgqueue.spark.lake.records import DayRecord
    from pgqueue.store.connections.database import Database

MadeFrom: TypeAlias = dict[str, str]

RULES = "1"
"""Counts how often the meaning of a figure changed: older figures are made again."""
ROWS_AT_ONCE = 20_000_000
"""Spark computes days of about this many jobs at once: a killed run repeats one batch. DuckDB has smaller batches."""


def rollup(
    spark: SessionOrStart,
    database: "Database | None",
    lake: "Lake",
    config: "Config",
    *,
    days: Iterable[date] | None = None,
    redaction: Redaction = DEFAULT,
) -> list[date]:
    """Bring the roll-ups up to date; a second run finds nothing to do.

    Args:
        spark: the session that computes large days, or what starts it once one is needed.
        database: where to write the tables; None: only to the lake.
        lake: the lake to sum up.
        config: promises, tenants, costs.
        days: the days to check, and the earlier days in which their jobs ran; by default all days of the lake.
        redaction: hides the secrets in the messages of failures, such as the ``redaction`` of your queue. Under another rule
            they are read again.

    Returns:
        The days of which something was written, oldest first.

    Raises:
        LakeError: there is no lake, or it does not have one of the days.
        LakeOfAnother: it is another database's.
        PipelineError: another process is writing to the lake. Without a database the caller must prevent this.
    """
    if database is None:
        work = _RollupWork(spark, lake, config, days, redaction=redaction)
        with log_step(lake, "rollup") as size:
            done = _in_lake(work)
            _measure(work, done, size)
        return sorted(done)
    lake.require(database.run(origin(database.catalogue.schema)))
    with writer_lock(database) as lock:
        work = _RollupWork(spark, lake, config, days, redaction=redaction, check=lock.require_held)
        with log_step(lake, "rollup", database) as size:
            done = _in_lake(work)
            done |= _send_figures(database, lake, sorted(done | work.chosen))
            _measure(work, done, size)
    return sorted(done)


def _in_lake(work: "_RollupWork") -> set[date]:
    return work.of_one_day() | work.across_days()


def _measure(work: "_RollupWork", done: Collection[date], size: Size) -> None:
    size.days = len(done)
    size.rows = sum(entry.rows for day, entry in work.ended.items() if day in done)


class _RollupWork:
    def __init__(
        self,
        spark: SessionOrStart,
        lake: "Lake",
        config: "Config",
        days: Iterable[date] | None,
        *,
        redaction: Redaction,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.spark = when_needed(spark)
        self.lake = lake
        self.check = check
        self.config = config
        self.redaction = redaction
        self.ended = {entry.day: entry for entry in lake.days()}
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
        redacted = {day: {**made, "secrets": self._secrets()} for day, made in plain.items()}
        done = set()
        for batch in self._batches(self._stale(BUSY, plain)):
            self._write_busy({day: plain[day] for day in batch})
            done.update(batch)
        for batch in self._batches(self._stale("failures", redacted)):
            done.update(self._write("failures", redacted, batch, self._failures))
        for batch in self._batches(self._stale("tenants", configured)):
            done.update(self._write("tenants", configured, batch, self._tenants))
        return done

    def across_days(self) -> set[date]:
        """Write the tables that also depend on later days' jobs; returns the days."""
        later = self._later()
        plain = {day: {**self._base(day), "later": _generation_text(later[day])} for day in self.chosen}
        made = {day: {**one, "config": self.config.fingerprint()} for day, one in plain.items()}
        done = set()
        for table, wanted, rows in (
            ("hours", made, self._hours(later)),
            ("days", made, self._days),
            ("workers", plain, self._workers(later)),
        ):
            current = self._with_those_reached(table, wanted, later)
            for batch in self._batches(self._stale(table, current)):
                done.update(self._write(table, current, batch, rows))
        return done

    # What a table's day should be made from, and what it was made from

    def _base(self, day: date) -> MadeFrom:
        return {"ended": str(self.ended[day].generation), "rules": RULES}

    def _secrets(self) -> str:
        return hashlib.sha256(self.redaction.rule.encode()).hexdigest()[:12]

    def _made(self, table: str) -> dict[date, MadeFrom]:
        entries = self.lake.entries(folder(table))
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
            day: {**made, "later": _generation_text(later.get(day, {}))}
            for day, made in self._made(table).items()
            if day in self.ended
            and day not in wanted
            and all(made.get(name, value) == value for name, value in known.items())
        }
        return {**wanted, **others}

    # Writing

    def _batches(self, days: Iterable[date]) -> Iterator[list[date]]:
        """Yield small days together, for DuckDB; then large days together, for Spark."""
        found = list(days)
        small = [day for day in found if self._is_small(day)]
        large = [day for day in found if not self._is_small(day)]
        yield from self._together(small, in_duckdb.ROWS_AT_ONCE)
        yield from self._together(large, ROWS_AT_ONCE)

    def _together(self, days: Iterable[date], most: int) -> Iterator[list[date]]:
        """Yield batches of days with up to ``most`` jobs; a day with more jobs is a batch of its own."""
        batch: list[date] = []
        rows = 0
        for day in days:
            if batch and rows + self.ended[day].rows > most:
                yield batch
                batch, rows = [], 0
            batch.append(day)
            rows += self.ended[day].rows
        if batch:
            yield batch

    def _is_small(self, day: date) -> bool:
        return self.ended[day].rows <= in_duckdb.MOST_ROWS

    def _engine(self, days: Iterable[date]) -> AbstractContextManager[Engine[Any]]:
        if all(map(self._is_small, days)):
            return in_duckdb.open_engine(self.lake, self.redaction)
        from pgqueue.spark.rollup.in_spark import InSpark  # noqa: PLC0415 - PySpark

        return nullcontext(InSpark(self.lake, self.spark(), self.redaction))

    def _write(
        self,
        table: str,
        wanted: Mapping[date, MadeFrom],
        days: list[date],
        rows: Callable[[Engine[Any], list[date]], object],
    ) -> list[date]:
        self.check()
        with self._engine(days) as engine:
            engine.replace(table, days, rows(engine, days), wanted)
        return days

    def _write_busy(self, wanted: Mapping[date, MadeFrom]) -> None:
        """Write when jobs ran, and record how many days each day's jobs reach back."""
        self.check()
        with (
            self._engine(wanted) as engine,
            engine.kept(engine.run("busy", ended=engine.ended(wanted))) as found,
        ):
            told = engine.fetched(engine.run("reaching", busy=found)).to_pylist()
            reaches = {row["day"]: row["reaches"] for row in told}
            noted = {day: {**made, "reaches": str(reaches.get(day, 0))} for day, made in wanted.items()}
            engine.replace(BUSY, list(noted), found, noted)

    # The tables

    def _hours(self, later: Mapping[date, dict[int, str]]) -> Callable[[Engine[T], list[date]], T]:
        own = {day: {**self._base(day), "config": self.config.fingerprint()} for day in self.chosen}
        stale = set(self._stale("hours", own))

        def rows(engine: Engine[T], days: list[date]) -> T:
            promises = engine.small(_promises(self.config.slos))
            # If only later days changed, the figures of the day's own jobs are taken from the existing hours.
            jobs = engine.run("timed", ended=engine.ended(day for day in days if day in stale))
            sums = engine.run(
                "hours",
                fresh=engine.run("own_hours", jobs=jobs, promises=promises),
                kept=engine.of_days("hours", [day for day in days if day not in stale]),
                busy=self._busy(engine, days, later),
            )
            return engine.run("judged", sums=sums, promises=promises)

        return rows

    def _days(self, engine: Engine[T], days: list[date]) -> T:
        sums = engine.run("days", hours=engine.of_days("hours", days))
        return engine.run("judged", sums=sums, promises=engine.small(_promises(self.config.slos)))

    def _tenants(self, engine: Engine[T], days: list[date]) -> T:
        values = {
            "path": self.config.tenant,
            "price": None if self.config.cost is None else self.config.cost.per_run_second,
        }
        return engine.run("tenants", values, jobs=engine.run("timed", ended=engine.ended(days)))

    @staticmethod
    def _failures(engine: Engine[T], days: list[date]) -> T:
        return engine.run("failures", failed=engine.failed(days))

    def _workers(self, later: Mapping[date, dict[int, str]]) -> Callable[[Engine[T], list[date]], T]:
        def rows(engine: Engine[T], days: list[date]) -> T:
            busy = self._busy(engine, days, later)
            return engine.run("workers", busy=busy, days=engine.small(_table(days)), workers=engine.workers())

        return rows

    @staticmethod
    def _busy(engine: Engine[T], days: Iterable[date], later: Mapping[date, dict[int, str]]) -> T:
        """Return when jobs ran in these days, also jobs of the days that reach back to them."""
        wanted = list(days)
        reaching = {day + timedelta(days=back) for day in wanted for back in (0, *later[day])}
        return engine.run(
            "within", busy=engine.of_days(BUSY, sorted(reaching)), days=engine.small(_table(wanted))
        )


def _send_figures(database: "Database", lake: "Lake", days: Iterable[date]) -> set[date]:
    """Copy the lake's figures of some days to PostgreSQL; return the days that were out of date."""
    made = database.run(rollups.rollup_days())
    tables = {table: {entry.day: entry for entry in lake.entries(folder(table))} for table in rollups.ROLLUPS}
    done = set()
    for day in days:
        entries = {table: of[day] for table, of in tables.items()}
        made_from = _files_id(entries)
        if made.get(day) != made_from:
            rows = {table: rows_of(lake, entries[table], names) for table, names in rollups.ROLLUPS.items()}
            database.run(rollups.replace_day(day, made_from, rows))
            done.add(day)
    return done


def _files_id(entries: Mapping[str, "DayRecord"]) -> str:
    """Identifies the files of a lake by their times; another lake's files have other times."""
    return " ".join(
        f"{table}@{one.generation}/{one.written_at:%Y%m%dT%H%M%S.%fZ}" for table, one in entries.items()
    )


def _generation_text(later: Mapping[int, str]) -> str:
    """Like ``1@3``: the third generation of the next day reached back."""
    return " ".join(f"{back}@{generation}" for back, generation in sorted(later.items()))


def _promises(slos: Iterable["Slo"]) -> pa.Table:
    rows = [
        {
            "queue": one.queue,
            "task": one.task,
            "wait": _microseconds(one.wait),
            "run": _microseconds(one.run),
            "objective": one.objective,
        }
        for one in slos
    ]
    return pa.Table.from_pylist(rows, PROMISES)


def _table(days: Sequence[date]) -> pa.Table:
    return pa.table([days], schema=DAYS)


def _microseconds(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(microseconds=1)

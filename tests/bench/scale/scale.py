"""Measures the pipeline on made-up history of a given size, beside plain SQL and DuckDB.

Two things are timed. The *pipeline* is what a user runs: every table of the roll-up, written to the lake and to
PostgreSQL. The *same roll-up* is one query to three engines: counts, and the 50th, 90th and 99th percentile of wait and
run time, for each queue, task and hour. The three answers are compared, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from bench.scale import in_duckdb
from bench.scale.agree import MIDDLES, RANKS, Agreement, Exact, Key, SketchedHour, compare
from bench.scale.measure import StepUsage, measure_step
from pyspark.sql import Row, SparkSession

from pgqueue.spark.config import Config, Slo
from pgqueue.spark.demo.days import Wish
from pgqueue.spark.demo.history import generate
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import require_verified, verify
from pgqueue.spark.rollup.in_spark import InSpark
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.rollup.tables import PROMISES
from pgqueue.store.catalogue import in_schema
from pgqueue.store.connections.database import Database

T = TypeVar("T")
COUNTED = ("jobs", "succeeded", "cancelled", "dead", "attempts")
ASKED = ("p50", "p90", "p99")
CONFIG = Config(tenant="$.tenant", slos=(Slo(queue="mail", wait=timedelta(seconds=30), objective=0.99),))


class TimedStep(msgspec.Struct, frozen=True):
    """A step that was timed.

    Attributes:
        name: the step's name.
        seconds: how long it took.
        megabytes: the most memory of its processes; 0: not measured.
    """

    name: str
    seconds: float
    megabytes: int


class ScaleResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements at one size.

    Attributes:
        rows: the number of ended jobs.
        days: the number of days.
        skew: the share of jobs in the busiest queue; None: not set.
        steps: in the order in which they ran.
        lake_files: the number of files of ended jobs.
        lake_bytes: their size.
        groups: rows of the roll-up.
        percentiles: how many were compared with plain SQL's.
        missed: how many of the pipeline's lie beyond the sketches' bound; one in a hundred is allowed.
        disagreements: descriptions of the differences; empty: the answers agree.
    """

    rows: int
    days: int
    skew: float | None
    steps: list[TimedStep]
    lake_files: int
    lake_bytes: int
    groups: int
    percentiles: int
    missed: int
    disagreements: list[str]

    def seconds(self, name: str) -> float | None:
        """How long a step took; None: it did not run."""
        return next((step.seconds for step in self.steps if step.name == name), None)


class ScaleSetup(NamedTuple):
    """Where to measure.

    Attributes:
        spark: the session.
        database: an empty schema in it.
        place: an empty folder.
        server: PostgreSQL's main process, if it is on this machine.
    """

    spark: SparkSession
    database: Database
    place: Path
    server: int | None


def scale(ground: ScaleSetup, wish: Wish, told: Callable[[str], object] = lambda _: None) -> ScaleResult:
    """Measure everything at one size.

    Args:
        ground: where.
        wish: the history to make.
        told: called with the name of each step before it runs.
    """
    lake = Lake(ground.place)
    steps: list[TimedStep] = []

    def timed(name: str, do: Callable[[], T], *, root: int | None = None) -> T:
        told(name)
        result, took = measure_step(do, root=root)
        steps.append(TimedStep(name, round(took.seconds, 3), took.megabytes))
        return result

    timed("generate", lambda: generate(ground.database, wish), root=ground.server)
    for name, do in _pipeline(ground, lake):
        timed(name, do)
    by_spark = timed("same in Spark", lambda: _by_spark(lake, ground.spark))
    in_sql = timed("same in SQL", lambda: by_sql(ground.database, RANKS), root=ground.server)
    files = [file for day in lake.days() for file in day.files]
    answers = {"pipeline": _of_lake(lake, ground.spark), "Spark": by_spark}
    told("same in DuckDB")
    answer, took = _by_duckdb([str(ground.place / file.path) for file in files])
    steps.append(TimedStep("same in DuckDB", round(answer.seconds, 3), took.megabytes))
    answers["DuckDB"] = _as_sketched(answer.rows)
    agreed = {name: compare(in_sql, rows) for name, rows in answers.items()}
    return ScaleResult(
        rows=wish.rows,
        days=wish.days,
        skew=wish.skew,
        steps=steps,
        lake_files=len(files),
        lake_bytes=sum(file.bytes for file in files),
        groups=agreed["pipeline"].groups,
        percentiles=agreed["pipeline"].percentiles,
        missed=agreed["pipeline"].missed,
        disagreements=list(_disagreements(agreed)),
    )


def by_sql(database: Database, ranks: Sequence[float]) -> list[Exact]:
    """Roll up all ended jobs in plain SQL.

    Args:
        database: where they are.
        ranks: the percentiles' ranks, from 0 to 1.
    """
    statement = in_schema(Path(__file__).with_name("rollup.sql").read_text(), database.catalogue.schema)
    with database.connect() as connection:
        rows = connection.execute(statement.encode(), {"ranks": list(ranks)}).fetchall()
    return [
        Exact(queue, task, hour, tuple(counts), wait, run) for queue, task, hour, *counts, wait, run in rows
    ]


def _pipeline(ground: ScaleSetup, lake: Lake) -> Iterator[tuple[str, Callable[[], object]]]:
    """The steps of a user's pipeline."""
    spark, database = ground.spark, ground.database
    yield "export", lambda: export(spark, database, lake)
    yield "verify", lambda: require_verified(verify(spark, database, lake))
    yield "rollup", lambda: rollup(spark, database, lake, CONFIG)


def _by_spark(lake: Lake, spark: SparkSession) -> dict[Key, SketchedHour]:
    """The same roll-up with Spark's sketches, read from the lake."""
    engine = InSpark(lake, spark)
    none = engine.small(PROMISES.empty_table())
    own = engine.run("own_hours", jobs=engine.run("timed", ended=lake.ended(spark)), promises=none)
    names = [f"{what}_{name}" for what in ("wait", "run") for name in ASKED]
    judged = engine.run("judged", sums=own, promises=none)
    found = judged.selectExpr("queue", "task", "unix_seconds(hour) as hour", *COUNTED, *names)
    return {_key(row): _sketched_hour(row) for row in found.toLocalIterator()}


def _of_lake(lake: Lake, spark: SparkSession) -> dict[Key, SketchedHour]:
    """The pipeline's roll-up, without hours in which no job ended: the other answers lack these."""
    names = [f"{what}_{name}" for what in ("wait", "run") for name in ASKED]
    hours = lake.day_table(spark, "rollup/hours").where("jobs > 0")
    found = hours.selectExpr("queue", "task", "unix_seconds(hour) as hour", *COUNTED, *names)
    return {_key(row): _sketched_hour(row) for row in found.collect()}


def _by_duckdb(files: Sequence[str]) -> tuple[in_duckdb.DuckdbAnswer, StepUsage]:
    with in_duckdb.start() as process:
        return measure_step(lambda: in_duckdb.finish(process, files, RANKS), root=process.pid)


def _as_sketched(rows: Iterable[Exact]) -> dict[Key, SketchedHour]:
    """Exact percentiles, as answers to compare."""
    return {
        (row.queue, row.task, row.hour): SketchedHour(
            row.counts, row.wait and row.wait[MIDDLES], row.run and row.run[MIDDLES]
        )
        for row in rows
    }


def _sketched_hour(row: Row) -> SketchedHour:
    values: dict[str, Any] = row.asDict()
    waits, runs = ([values[f"{what}_{name}"] for name in ASKED] for what in ("wait", "run"))
    return SketchedHour(
        tuple(values[name] for name in COUNTED),
        None if waits[0] is None else waits,
        None if runs[0] is None else runs,
    )


def _key(row: Row) -> Key:
    return (row["queue"], row["task"], datetime.fromtimestamp(row["hour"], UTC))


def _disagreements(agreed: Mapping[str, Agreement]) -> Iterator[str]:
    for name, agreement in agreed.items():
        if not agreement.holds:
            yield (
                f"{name}: of {agreement.groups:,} groups {agreement.miscounted:,} have other counts than SQL; of "
                f"{agreement.percentiles:,} percentiles {agreement.missed:,} lie beyond the bound, {agreement.lost:,} far "
                f"beyond; {'; '.join(agreement.examples)}"
            )

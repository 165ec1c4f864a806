"""Measuring at scale: three engines are asked the same, and it is noticed when they do not say the same."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.scale import command as scaling
from bench.scale import in_duckdb
from bench.scale.agree import BOUND, OUTERMOST, RANKS, Exact, SketchedHour, compare
from bench.scale.scale import ScaleResult, TimedStep, by_sql
from click.testing import CliRunner, Result

from pgqueue import PgQueue
from pgqueue.errors import ConfigurationError

HOUR = datetime(2026, 3, 28, 7, tzinfo=UTC)
KEY = ("mail", "send", HOUR)
COUNTS = (1000, 990, 5, 5, 1010)
VALUES = [1000.0 * rank for rank in RANKS]
"""Of a thousand values, each is its rank."""
EXACT = Exact("mail", "send", HOUR, COUNTS, VALUES, None)


def scaled(*words: str) -> Result:
    return CliRunner().invoke(scaling.scale, words)


def sketched(p50: float = 500.0, counts: tuple[int, ...] = COUNTS) -> dict[Any, SketchedHour]:
    return {KEY: SketchedHour(counts, [p50, 900.0, 990.0], None)}


@pytest.mark.usefixtures("spark")
def test_the_pipeline_spark_sql_and_duckdb_agree(dsn: str, tmp_path: Path) -> None:
    words = ("--rows", "1500", "--days", "1", "--skew", "0.9", "--json", "--out", str(tmp_path))
    told = scaled("--dsn", dsn, *words)
    assert told.exit_code == 0, told.output
    (size,) = json.loads(told.stdout)["sizes"]
    assert size["disagreements"] == []
    assert [step["name"] for step in size["steps"]] == [
        *("generate", "export", "verify", "rollup", "same in Spark", "same in SQL", "same in DuckDB")
    ]
    assert size["percentiles"] > size["groups"] > 50
    assert size["lake_files"] >= 1
    assert size["steps"][1]["megabytes"] > 10  # of a step of some milliseconds the first look may see less
    assert json.loads((tmp_path / "figures.json").read_text())["sizes"] == [size]
    assert {path.name for path in tmp_path.glob("*.svg")} == {"pipeline.svg", "engines.svg", "memory.svg"}
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select to_regnamespace('pgqueue_scale')").fetchone() == (None,)


def test_jobs_that_never_started_waited_for_no_time_rather_than_0_s(dsn: str, tmp_path: Path) -> None:
    queue = PgQueue(dsn)
    queue.enqueue(queue.task(print)).cancel()
    (in_sql,) = by_sql(queue.database, RANKS)
    queue.close()
    assert (in_sql.counts, in_sql.wait, in_sql.run) == ((1, 0, 1, 0, 0), None, None)

    times = {"run_at": HOUR, "started_at": None, "ended_at": HOUR}
    job = {"queue": "mail", "task": "send", "outcome": "cancelled", "attempts": 0, **times}
    types = {name: pa.timestamp("us", tz="UTC") for name in times}
    file = tmp_path / "part.parquet"
    pq.write_table(pa.table({name: pa.array([value], types.get(name)) for name, value in job.items()}), file)
    (in_duck,) = in_duckdb.finish(in_duckdb.start(), [str(file)], RANKS).rows
    assert in_duck == Exact("mail", "send", HOUR, (1, 0, 1, 0, 0), None, None)


def test_engines_that_disagree_end_the_command_with_1(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = ScaleResult(
        rows=10, days=1, skew=None, steps=[TimedStep("export", 2.0, 5)], lake_files=1, lake_bytes=2, groups=3, percentiles=4,
        missed=4, disagreements=["Spark: nothing is as it was"],
    )  # fmt: skip
    monkeypatch.setattr(
        scaling, "_measured", lambda *_: scaling.ScaleFigures("2026-03-28", "1", "4", 2, [size])
    )
    told = scaled("--dsn", dsn, "--rows", "10")
    assert told.exit_code == 1
    assert "they disagree: Spark: nothing is as it was" in told.stderr
    assert "THEY DISAGREE" in told.stdout


def test_roll_ups_that_say_the_same_agree() -> None:
    agreed = compare([EXACT], sketched())
    assert agreed.holds
    assert (agreed.groups, agreed.percentiles, agreed.missed) == (1, 3, 0)


@pytest.mark.parametrize(
    ("other", "example"),
    [
        pytest.param({}, "mail, send, 2026-03-28 07:00", id="a group is missing"),
        pytest.param(sketched(counts=(999, 989, 5, 5, 1009)), "(999, 989", id="a job is missing"),
        pytest.param(sketched() | {("mail", "x", HOUR): sketched()[KEY]}, "mail, x", id="a group too many"),
        pytest.param(sketched(p50=1000 * (0.5 + OUTERMOST) + 2), "wait [537", id="a percentile is far off"),
        pytest.param(sketched(p50=1000 * (0.5 - OUTERMOST) - 2), "wait [46", id="far off below"),
        pytest.param({KEY: SketchedHour(COUNTS, None, None)}, "wait None", id="a percentile is missing"),
    ],
)
def test_what_does_not_agree_is_told(other: Mapping[Any, SketchedHour], example: str) -> None:
    agreed = compare([EXACT], other)
    assert not agreed.holds
    assert example in "; ".join(agreed.examples)


def test_a_few_percentiles_may_lie_beyond_the_bound_and_many_may_not() -> None:
    beyond = 1000 * (0.5 + BOUND) + 2
    hours = [HOUR.replace(day=day, hour=hour) for day in range(1, 11) for hour in range(10)]
    exact = [msgspec.structs.replace(EXACT, hour=hour) for hour in hours]

    def answers(off: int) -> dict[Any, SketchedHour]:
        return {
            ("mail", "send", hour): sketched(beyond if number < off else 500.0)[KEY]
            for number, hour in enumerate(hours)
        }

    assert compare(exact, answers(3)).missed == 3
    assert compare(exact, answers(3)).holds
    assert not compare(exact, answers(4)).holds


def test_a_schema_that_was_not_made_here_is_left_alone(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("create schema pgqueue_scale create table precious (a int)")
    told = scaled("--dsn", dsn, "--rows", "10")
    assert isinstance(told.exception, ConfigurationError)
    assert 'schema "pgqueue_scale" exists and was not made by `make bench-pipeline`' in str(told.exception)
    with psycopg.connect(dsn) as connection:
        connection.execute("select from pgqueue_scale.precious")

"""Small days are rolled up by DuckDB in this process, large ones by Spark, with the same figures."""

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasketches  # type: ignore[import-untyped]  # it has no types
import pyarrow as pa
import pytest
from spark.lake_history import no_session
from spark.rollup_days import ENGINES, Job, at, error, figures, job, new_lake, put, put_workers, rolled_up

from pgqueue.errors import LakeError
from pgqueue.spark.config import Config, Cost, Slo
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.rollup import in_duckdb
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.rollup.tables import PROMISES, SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark takes its time on a machine that is busy with other things
DAYS = [date(2026, 11, 19), date(2026, 11, 20), date(2026, 11, 21)]
TEXTS = ["mail", "", " ", "é 🎉\t\n", "'; drop", "\\", "{x} :y $1 %s", "a" * 300, "null", "\x1f"]
TENANTS: list[Any] = [
    "a",
    "",
    'é 🎉 " \\ \n',
    7,
    -3,
    2**63,
    2.5,
    True,
    None,
    [1, "é"],
    {"b": [1, 2.5]},
    "x" * 300,
]
ERRORS: list[Any] = [
    None,
    [],
    "[",
    "null",
    "5",
    [error(1, at("19 01:00"), "Timeout", "after 30 s at 10.0.0.1, 'x'")],
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PATHS = ["$['t']", "$.list[0].t", "$.list[0]['a b \" \\ é']", "$.größe"]


def hostile(seed: int, day: date, count: int) -> list[Job]:
    """Ended jobs of a day: every outcome, names and arguments of every kind, clocks that were wrong, runs over midnight."""
    chance = random.Random(seed)  # noqa: S311 - made-up rows
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)

    def made() -> Job:
        ended = midnight + timedelta(microseconds=chance.choice([0, 1, chance.randrange(86_400 * 10**6)]))
        tenant = chance.choice(TENANTS)
        one = job(
            ended,
            ran=chance.choice([None, 0, -5, chance.expovariate(0.1), 90_000 * chance.random()]),
            waited=chance.uniform(-5, 50),
            queue=chance.choice(TEXTS[:4]),
            task=chance.choice(TEXTS),
            outcome=chance.choice(["succeeded", "succeeded", "cancelled", "dead"]),
            attempts=chance.choice([0, 1, 3, 2**15 - 1]),
            worker_id=chance.choice([None, "w1", "w2", "é"]),
            errors=chance.choice(ERRORS),
            args={"t": tenant, "list": [{"t": tenant, 'a b " \\ é': tenant}], "größe": tenant},
        )
        return (
            one | {"started_at": chance.choice([one["started_at"], EPOCH])} if chance.random() < 0.02 else one
        )

    return [made() for _ in range(count)]


def lakes(folder: Path) -> tuple[Lake, Lake]:
    """Two lakes with the same jobs: on the first day, in the hours of the others, too."""
    made = []
    for name in ENGINES:
        lake = new_lake(Lake(folder / name))
        for seed, day in enumerate(DAYS):
            put(lake, day, hostile(seed, day, 300 * seed))
        put_workers(
            lake,
            [
                ("w1", at("20 10:15:00"), at("21 12:45:00.000001"), 2, "é 🎉"),
                ("w2", at("01 00:00:00"), None, 4, None),
                ("gone", at("20 10:15:00"), at("20 10:14:00"), 4, "a clock was wrong"),
            ],
        )
        made.append(lake)
    return made[0], made[1]


def types(lake: Lake, table: str) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in lake.table(f"rollup/{table}").schema()]


def nearly(row: dict[str, Any]) -> dict[str, Any]:
    """The row, with figures that need not be equal to the last digit."""
    return {name: pytest.approx(value) if isinstance(value, float) else value for name, value in row.items()}


@pytest.mark.parametrize("path", ["$.t", None])
def test_both_engines_have_the_same_figures_of_every_kind_of_job(
    spark: "SparkSession", tmp_path: Path, path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slos = (
        Slo(queue="mail", wait=timedelta(seconds=9), objective=0.9),
        Slo(queue="mail", task="{x} :y $1 %s", run=timedelta(seconds=3), objective=0.5),
        Slo(queue="é 🎉\t\n", task="'; drop", objective=0.99),
    )
    config = Config(tenant=path, cost=None if path is None else Cost(per_run_second=0.25), slos=slos)
    for lake, (engine, most) in zip(lakes(tmp_path), ENGINES.items(), strict=True):
        monkeypatch.setattr(in_duckdb, "MOST_ROWS", most)
        start = no_session if engine == "DuckDB" else spark
        assert rollup(start, None, lake, config) == DAYS
        put(
            lake, DAYS[1], [job(at("20 00:30"), ran=7_200)]
        )  # its hours of the day before are made from the former ones
        assert rollup(start, None, lake, config) == DAYS[:2]
    here, there = Lake(tmp_path / "DuckDB"), Lake(tmp_path / "Spark")
    for table in SCHEMAS:
        expected = figures(there, table)
        assert figures(here, table) == ([*map(nearly, expected)] if table == "days" else expected)
        assert types(here, table) == types(there, table)


def test_both_engines_find_a_tenant_at_the_same_paths(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = lakes(tmp_path)
    for path in PATHS:
        config = Config(tenant=path)
        monkeypatch.setattr(in_duckdb, "MOST_ROWS", ENGINES["DuckDB"])
        rollup(no_session, None, here, config)
        monkeypatch.setattr(in_duckdb, "MOST_ROWS", ENGINES["Spark"])
        rollup(spark, None, there, config)
        assert {row["tenant"] for row in figures(here, "tenants")} > {"a"}
        assert figures(here, "tenants") == figures(there, "tenants")


def test_a_sketch_of_many_jobs_is_within_its_bound_and_merges_with_those_of_spark(
    spark: "SparkSession", tmp_path: Path
) -> None:
    lake = new_lake(Lake(tmp_path / "lake"))
    values = [second / 1_000 for second in range(20_000)]
    random.Random(3).shuffle(values)  # noqa: S311 - figures, not secrets
    put(lake, DAYS[0], [job(at("19 10:59:30"), ran=value) for value in values])
    rollup(no_session, None, lake, Config())
    (row,) = [one for one in rolled_up(lake, "hours") if one["jobs"]]
    assert [row["run_p50"], row["run_p90"]] == pytest.approx([10, 18], abs=20 * 0.0133)
    frame = lake.day_table(spark, "rollup/hours").where("jobs > 0")
    merged = frame.selectExpr(
        "kll_sketch_agg_double(run_p50) as spark_s", "kll_merge_agg_double(run_sketch) as sketch"
    )
    ((n, p90, spark_s),) = merged.selectExpr(
        "kll_sketch_get_n_double(sketch)", "kll_sketch_get_quantile_double(sketch, 0.9D)", "spark_s"
    ).collect()
    assert (n, p90) == (20_000, row["run_p90"])
    assert datasketches.kll_doubles_sketch.deserialize(bytes(spark_s)).n == 1


def test_a_large_day_is_left_to_spark_and_a_small_one_is_not(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lakes(tmp_path)[0]
    monkeypatch.setattr(in_duckdb, "MOST_ROWS", 500)
    with pytest.raises(AssertionError, match="a session was started"):
        rollup(no_session, None, lake, Config())
    with pytest.raises(AssertionError, match="a session was started"):
        rollup(no_session, None, lake, Config(), days=DAYS[2:])
    assert {entry.day for entry in lake.entries("rollup/busy")} == {*DAYS[:2]}, "small days come first"
    started = []

    def start() -> "SparkSession":
        started.append(1)
        return spark

    assert rollup(start, None, lake, Config()) == DAYS
    assert started == [1], "one session for all batches"


def test_a_file_that_cannot_be_read_is_named_in_one_line(tmp_path: Path) -> None:
    lake = lakes(tmp_path)[0]
    (entry,) = [one for one in lake.days() if one.day == DAYS[1]]
    broken = tmp_path / "DuckDB" / entry.files[0].path
    broken.write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    with pytest.raises(LakeError, match="DuckDB cannot be rolled up: ") as told:
        rollup(no_session, None, lake, Config())
    assert "\n" not in str(told.value)


def test_an_hour_in_which_nothing_runs_any_more_goes_when_its_day_is_made_again(tmp_path: Path) -> None:
    row = dict.fromkeys(SCHEMAS["hours"].names) | {"day": DAYS[0], "hour": at("19 10:00"), "queue": "mail"}
    with in_duckdb.open_engine(new_lake(Lake(tmp_path / "lake"))) as engine:
        kept = engine.small(pa.Table.from_pylist([row | {"task": "send", "jobs": 0}], SCHEMAS["hours"]))
        fresh = engine.run(
            "own_hours",
            jobs=engine.run("timed", ended=engine.ended([])),
            promises=engine.small(PROMISES.empty_table()),
        )
        busy = engine.small(SCHEMAS["busy"].empty_table())
        assert engine.fetched(engine.run("hours", fresh=fresh, kept=kept, busy=busy)).num_rows == 0

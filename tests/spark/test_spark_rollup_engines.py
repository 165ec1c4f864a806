"""Small days are rolled up by DuckDB in this process, large ones by Spark, with the same figures.

Why attempts failed: which of them are counted, and what makes two reasons one.
"""

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasketches  # type: ignore[import-untyped]  # it has no types
import pyarrow as pa
import pytest
from spark.lake_history import no_session
from spark.rollup_days import (
    ENGINES,
    Job,
    Rows,
    at,
    error,
    figures,
    job,
    new_lake,
    put,
    put_workers,
    rolled_up,
)

from pgqueue.errors import LakeError
from pgqueue.spark.config import Config, Cost, Slo
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.rollup import in_duckdb
from pgqueue.spark.rollup.attempts import UNREADABLE, attempts_of, reason_of
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.rollup.tables import PROMISES, SCHEMAS
from pgqueue.values.jobs.verdict import NOT_KEPT

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


FRI = date(2026, 11, 20)


def failures(folder: Path, jobs: Sequence[Job]) -> Rows:
    """The roll-up of these jobs of Friday."""
    lake = new_lake(Lake(folder / "lake"))
    put(lake, FRI, jobs)
    rollup(no_session, None, lake, Config())
    return rolled_up(lake, "failures")


def test_every_failed_attempt_has_a_reason_also_of_jobs_that_succeeded_later(tmp_path: Path) -> None:
    jobs = [
        job(
            at("20 10:10"),
            attempts=3,
            errors=[
                error(1, at("19 23:50"), "Timeout", "no answer from 10.0.0.1 after 30 s"),
                error(2, at("20 10:00"), "Timeout", "no answer from 10.0.0.2 after 31.5 s"),
            ],
        ),
        job(
            at("20 10:20"),
            outcome="dead",
            errors=[
                error(1, at("20 10:15"), "Timeout", "no answer from 10.0.0.3 after 30 s"),
                error(2, at("20 10:20"), "KeyError", "'id'"),
            ],
        ),
        job(  # the note on a result that is not kept is no failure; an attempt that failed with this error is one
            at("20 10:30"),
            attempts=2,
            errors=[
                error(1, at("20 10:25"), NOT_KEPT, "that of another job"),
                error(2, at("20 10:30"), NOT_KEPT, "too long"),
            ],
        ),
        job(
            at("20 10:30"), outcome="dead", errors=[error(1, at("20 10:30"), NOT_KEPT, "that of another job")]
        ),
        job(at("20 10:30"), errors=None),
        job(at("20 10:30"), errors=[]),
    ]
    found = failures(tmp_path, jobs)
    key = {"day": FRI, "hour": at("20 10:00"), "queue": "mail", "task": "send"}
    assert sorted(found, key=lambda row: str(row["error_type"])) == [
        key
        | {"error_type": "KeyError", "reason": "<text>", "failures": 1, "jobs": 1, "dead": 1}
        | {"first_at": at("20 10:20"), "last_at": at("20 10:20"), "sample": "'id'"},
        key
        | {
            "error_type": "Timeout",
            "reason": "no answer from <n> after <n> s",
            "failures": 3,
            "jobs": 2,
            "dead": 0,
        }
        | {"first_at": at("19 23:50"), "last_at": at("20 10:15")}
        | {"sample": "no answer from 10.0.0.1 after 30 s"},
        key
        | {"error_type": NOT_KEPT, "reason": "that of another job", "failures": 2, "jobs": 2, "dead": 1}
        | {"first_at": at("20 10:25"), "last_at": at("20 10:30"), "sample": "that of another job"},
    ]


def test_errors_in_no_form_of_ours_are_counted_and_break_nothing(tmp_path: Path) -> None:
    jobs = [
        job(at("20 10:10"), errors=said)
        for said in ("{", '"gone"', "null", "[null]", '[{"message": {"a": 1}, "attempt": "x", "at": "then"}]')
    ]
    found = failures(tmp_path, jobs)
    assert sorted((row["error_type"], row["reason"], row["failures"], row["sample"]) for row in found) == [
        ("", "{<text>:<n>}", 1, '{"a":1}'),
        ("unreadable", "<text>", 1, '"gone"'),
        ("unreadable", "{", 1, "{"),
    ]


def test_failures_of_an_earlier_death_are_left_to_the_day_that_tells_of_it(tmp_path: Path) -> None:
    def lives(died: datetime) -> Job:
        first = [error(1, at("18 10:00"), "First", "life"), error(2, died, "First", "life")]
        return job(at("20 10:00"), errors=[*first, error(1, at("20 09:00"), "Second", "life")])

    east = timezone(timedelta(hours=2))  # in which PostgreSQL may have written the times
    for died, counts in ((at("19 23:59:59"), {"Second": 1}), (at("20 00:00"), {"First": 2, "Second": 1})):
        found = failures(tmp_path / f"{died.day}", [lives(died.astimezone(east))])
        assert {row["error_type"]: row["failures"] for row in found} == counts


REASONS = {
    "worker 01890a5d-ac96-774b-bcce-b302099a8057 stopped": "worker <uuid> stopped",
    "No user jörg.meier+x@mail.example.com found": "No user <email> found",
    "can't open '/tmp/a b' or \"x\" or `y` or “z” or «w»": "can't open <text> or <text> or <text> or <text> or <text>",
    "Zoë's file, Ann's file": "Zoë's file, Ann's file",
    "no such file: /var/lib/x-1.txt, C:\\a\\b.txt or ~/c": "no such file: <path>, <path> or <path>",
    "and/or 5/6 ok": "and/or <n>/<n> ok",
    "GET https://example.com/a?b=1, then wss://x": "GET <url>, then <url>",
    "at 0xDEADbeef, commit 1a2b3c4d5e, facade deadbeef": "at <hex>, commit <hex>, facade deadbeef",
    "2026-11-20T10:00:00.123+01:00 and 2026-11-20 10:00 gone": "<time> and <time> gone",
    "10.0.0.1:5432 took 1,234.5 ms, shard12": "<n> took <n> ms, shard<n>",
    "  line 1\n\t line 2  ": "line <n> line <n>",
    "größe 7 für 日本 8": "größe <n> für 日本 <n>",
    "x" * 3_000: "x" * 200,
    "": "",
}


def test_messages_that_differ_in_names_and_numbers_have_one_reason() -> None:
    assert {message: reason_of(message) for message in REASONS} == REASONS


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        ("", []),
        ("[", [(None, None, UNREADABLE, "[")]),
        ("[1]", [(None, None, UNREADABLE, "[1]")]),
        ('[{"attempt": NaN}]', [(None, None, UNREADABLE, '[{"attempt": NaN}]')]),
        ("[" * 100_000, [(None, None, UNREADABLE, "[" * 100_000)]),
        ('{"attempt": 1, "message": "alone"}', [(1, None, None, "alone")]),
        ('[{"attempt": true, "at": 5, "type": null}]', [(None, None, None, None)]),
        ('[{"attempt": 2147483648}]', [(None, None, None, None)]),
        ('[{"at": "0001-01-01T00:00:00+05:00"}]', [(None, None, None, None)]),
        ('[{"at": "2026-11-20T10:00:00"}]', [(None, at("20 10:00"), None, None)]),
        ('[{"message": "\\ud800!"}]', [(None, None, None, "?!")]),
        ('[{"message": [1.5, "é"]}]', [(None, None, None, '[1.5,"é"]')]),
    ],
)
def test_errors_of_any_form_are_read(errors: str, found: list[tuple[Any, ...]]) -> None:
    assert attempts_of(errors) == found

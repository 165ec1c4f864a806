"""Roll-ups follow the lake: late rows, long jobs, another configuration, kills; and PostgreSQL follows the roll-ups.

What ``pipeline.toml`` may say, and what is refused before anything starts.
"""

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cli.commands import pgqueue, printed
from docs.pages import DOCS, blocks
from psycopg.rows import dict_row
from spark.lake_history import no_session
from spark.rollup_days import Job, at, error, figures, job, new_lake, put, put_workers, rolled_up

from pgqueue.errors import ConfigurationError, LakeError, LakeOfAnother, PipelineError
from pgqueue.spark.config import Config, Cost, Slo, load, parse
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.records import DayRecord
from pgqueue.spark.lake.steps import STEPS, writer_lock
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.rollup.tables import rows_of
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline.lake import origin
from pgqueue.store.pipeline.rollups import ROLLUPS

WED, THU, FRI = date(2026, 11, 18), date(2026, 11, 19), date(2026, 11, 20)
TABLES = (*ROLLUPS, "busy")
WORKER = "01890a5d-ac96-774b-bcce-b302099a8057"
TOLD = """
tenant = "$.tenant"
[cost]
per_run_second = 0.5
[[slo]]
queue = "mail"
wait = "30s"
objective = 0.9
"""
CONFIG = parse(TOLD)
HARD = ('a,"b"\n\\N', "\\.", "\\N", "", "ü\t日本", "'; drop table jobs")


def thursday() -> list[Job]:
    failed = [error(1, at("19 09:00"), "ValueError", 'no "such"\nthing, 7')]
    hard = [job(at("19 10:00:07"), ran=2, args={"tenant": name}, worker_id=WORKER) for name in HARD]
    return [
        job(at("19 09:30"), waited=60, errors=failed, attempts=2),
        job(at("19 12:00"), ran=None, outcome="cancelled"),
        *hard,
    ]


def friday() -> list[Job]:
    return [job(at("20 02:15"), ran=4 * 3_600, queue="reports", task="nightly", worker_id=WORKER)]


def lake_at(path: Path, *days: list[Job]) -> Lake:
    lake = new_lake(Lake(path / "lake"))
    fill(lake, *days)
    return lake


def fill(lake: Lake, *days: list[Job]) -> None:
    for jobs in days:
        put(lake, jobs[0]["day"], jobs)
    put_workers(lake, [(WORKER, at("01 00:00"), None, 8, "host")])


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    opened = Database(dsn)
    yield opened
    opened.close()


@pytest.fixture
def lake(database: Database, tmp_path: Path) -> Lake:
    """The database's lake, with two days in it."""
    made = Lake(tmp_path / "lake")
    made.create(database.run(origin("pgqueue")))
    fill(made, thursday(), friday())
    return made


def in_lake(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    return {name: rolled_up(lake, name) for name in TABLES}


def alike(lake: Lake, other: Lake) -> bool:
    return all(figures(lake, name) == figures(other, name) for name in TABLES)


def in_postgres(dsn: str) -> dict[str, list[dict[str, Any]]]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        connection.execute("set time zone 'UTC'")
        found = {
            name: connection.execute(f"select * from pgqueue.rollup_{name}".encode()).fetchall()
            for name in ROLLUPS
        }
    for row in found["workers"]:
        row["worker_id"] = str(row["worker_id"])
    return {name: ordered(rows) for name, rows in found.items()}


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        rows, key=lambda row: [str(row.get(name)) for name in ("day", "hour", "queue", "task", "tenant")]
    )


def generations(lake: Lake) -> dict[str, dict[date, int]]:
    return {
        name: {entry.day: entry.generation for entry in lake.entries(f"rollup/{name}") if entry.day}
        for name in TABLES
    }


def everything(lake: Lake, dsn: str) -> tuple[Any, ...]:
    with psycopg.connect(dsn) as connection:
        made = connection.execute("select day, made_from, made_at from pgqueue.rollup_made").fetchall()
    paths = [path for path in lake.folder.paths() if not path.startswith(f"{STEPS}/")]
    return sorted(made), {path: lake.folder.read(path) for path in paths}


def test_postgres_holds_what_the_lake_holds_and_a_rerun_changes_nothing(
    lake: Lake, dsn: str, tmp_path: Path
) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(f'lake = "{lake.uri}"\n{TOLD}')
    words = ("pipeline", "rollup", "--config", str(config))
    said = pgqueue(*words, "--no-postgres", "--days", "2026-11-19..2026-11-20", "--days", "2026-11-20").stdout
    assert said == "2 days rolled up: 2026-11-19, 2026-11-20\n"
    in_the_lake = generations(lake)

    done = printed(pgqueue(*words, "--json", dsn=dsn))
    assert done == {"days": [str(THU), str(FRI)], "lake": lake.uri, "postgres": True}
    assert generations(lake) == in_the_lake, "it was there already, and PostgreSQL has it from there"
    found = in_lake(lake)
    assert {*HARD, None} <= {row["tenant"] for row in found["tenants"]}
    assert in_postgres(dsn) == {name: found[name] for name in ROLLUPS}
    views_are_right(dsn)

    before = everything(lake, dsn)
    assert pgqueue(*words, dsn=dsn).stdout == "nothing to do: every day is up to date\n"
    assert everything(lake, dsn) == before


def views_are_right(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        rates = connection.execute(
            "select jobs_per_second, retries_per_job, slo_attained from pgqueue.rollup_rates "
            "where hour = '2026-11-19 09:00+00' and task = 'send'"
        ).fetchall()
        fleet = connection.execute(
            "select workers, slots, running_at_once, utilisation from pgqueue.rollup_fleet "
            "where hour = '2026-11-20 01:00+00'"
        ).fetchall()
        budgets = connection.execute(
            "select queue, task, good, total, attained, budget_left from pgqueue.rollup_budgets"
        ).fetchall()
    assert rates == [(pytest.approx(1 / 3_600), 1, 0)]
    assert fleet == [(1, 8, 1, 1 / 8)]
    assert budgets == [("mail", "send", 6, 7, pytest.approx(6 / 7), pytest.approx(1 - (1 / 7) / 0.1))]


def test_days_follow_late_rows_long_jobs_and_the_configuration_and_no_more_than_that(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, thursday())
    assert rollup(no_session, None, lake, CONFIG) == [THU]
    once = {name: {THU: 1} for name in TABLES}
    assert generations(lake) == once

    put(lake, FRI, friday())  # one of its jobs began on Thursday
    assert rollup(no_session, None, lake, CONFIG, days=[FRI]) == [THU, FRI]
    twice = {name: {THU: 2 if name in {"hours", "days", "workers"} else 1, FRI: 1} for name in TABLES}
    assert generations(lake) == twice
    both = lake_at(tmp_path / "both", thursday(), friday())
    rollup(no_session, None, both, CONFIG)
    assert alike(lake, both), "Thursday's own jobs, which were not read again, are still counted"

    late = [job(at("19 12:00"), waited=5), job(at("19 00:30"), ran=7_200, queue="reports", task="nightly")]
    put(lake, THU, late)
    assert rollup(no_session, None, lake, CONFIG) == [THU]
    assert generations(lake) == {name: {**days, THU: days[THU] + 1} for name, days in twice.items()}

    before = generations(lake)
    later = [job(at("20 00:10"), ran=1_800, queue="reports", task="nightly", worker_id=WORKER)]
    put(lake, FRI, later)
    other = parse(TOLD.replace("30s", "90s"))
    assert rollup(no_session, None, lake, other) == [THU, FRI]
    again = {
        THU: {"hours", "days", "tenants", "workers"},  # for the configuration and for Friday's job
        FRI: set(TABLES),
    }
    assert generations(lake) == {
        name: {day: number + (name in again[day]) for day, number in days.items()}
        for name, days in before.items()
    }

    fresh = lake_at(tmp_path / "fresh", [*thursday(), *late], [*friday(), *later])
    rollup(no_session, None, fresh, other)
    assert alike(lake, fresh)


class Killed(BaseException):
    """What no handler of ours catches."""


class Dying(Lake):
    """A lake in which the process dies after a given number of steps."""

    steps = 0

    def passed(self, point: str) -> None:
        assert point
        self.steps -= 1
        if self.steps == 0:
            raise Killed


def test_killed_after_any_step_the_next_run_ends_the_same(tmp_path: Path) -> None:
    lake = Dying(lake_at(tmp_path, thursday(), friday()).uri)
    kills = 0
    while True:
        kills += 1
        lake.steps = kills
        try:
            rollup(no_session, None, lake, CONFIG)
            break
        except Killed:
            pass
    assert kills > len(TABLES)
    assert rollup(no_session, None, lake, CONFIG) == []

    whole = lake_at(tmp_path / "whole", thursday(), friday())
    rollup(no_session, None, whole, CONFIG)
    assert alike(lake, whole)


def test_killed_on_the_way_to_postgres_the_former_day_stands_and_the_next_run_sends_it(
    lake: Lake, dsn: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollup(no_session, database, lake, CONFIG)
    former = in_postgres(dsn)
    put(lake, THU, [job(at("19 11:00"), ran=3, waited=1)])

    def dying(read: Callable[..., Iterator[bytes]]) -> Callable[..., Iterator[bytes]]:
        def broken(lake: Lake, entry: DayRecord, columns: tuple[str, ...]) -> Iterator[bytes]:
            if entry.table == "rollup/workers":
                assert in_postgres(dsn) == former, "a reader sees the former day in the meantime"
                raise Killed
            yield from read(lake, entry, columns)

        return broken

    with monkeypatch.context() as patch:
        patch.setattr("pgqueue.spark.rollup.rollup.rows_of", dying(rows_of))
        with pytest.raises(Killed):
            rollup(no_session, database, lake, CONFIG)
    assert in_postgres(dsn) == former

    before = generations(lake)
    assert rollup(no_session, database, lake, CONFIG) == [THU]
    assert generations(lake) == before, "the lake had it already"
    found = in_lake(lake)
    assert in_postgres(dsn) == {name: found[name] for name in ROLLUPS} != former


def test_only_days_of_this_databases_lake_are_rolled_up_and_by_one_at_a_time(
    lake: Lake, dsn: str, database: Database, tmp_path: Path
) -> None:
    with pytest.raises(LakeError, match=r"does not have 2026-11-18 \(days in it: 2026-11-19 to 2026-11-20\)"):
        rollup(no_session, None, lake, CONFIG, days=[WED])
    with pytest.raises(LakeOfAnother):
        rollup(no_session, database, lake_at(tmp_path / "other", thursday()), CONFIG)
    with writer_lock(database), pytest.raises(PipelineError, match="another process is writing"):
        rollup(no_session, database, lake, CONFIG)
    assert not lake.entries("rollup/hours")
    assert pgqueue("pipeline", "rollup", "--lake", f"{tmp_path}/none", dsn=dsn).stderr.startswith(
        "pgqueue: error: file:"
    )


def test_an_empty_lake_has_nothing_to_roll_up(tmp_path: Path) -> None:
    assert rollup(no_session, None, new_lake(Lake(tmp_path / "lake")), Config()) == []


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ((), "no lake: give --lake, set PGQUEUE_LAKE, or write lake"),
        (("--lake", "x", "--days", "yesterday"), "use a day such as 2026-11-20, or days such as"),
        (("--lake", "x", "--days", "2026-11-20..2026-11-19"), "the last day is before the first"),
        (("--lake", "x", "--config", "absent.toml"), "cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused_before_spark_starts(words: tuple[str, ...], refusal: str) -> None:
    result = pgqueue("pipeline", "rollup", *words)
    assert result.exit_code == 2
    assert refusal in result.stderr


def test_deployed_notes_when_a_version_went_live_and_the_last_word_on_an_instant_counts(dsn: str) -> None:
    words = ("pipeline", "deployed")
    assert pgqueue(*words, dsn=dsn).stderr.startswith("no version is recorded")
    first = printed(pgqueue(*words, "1.0", "--at", "2026-11-19T10:00:00+01:00", "--json", dsn=dsn))
    assert first == {"deployed_at": "2026-11-19T09:00:00Z", "version": "1.0"}
    assert pgqueue(*words, "2.0 ü", dsn=dsn).stdout.startswith("2.0 ü: live since ")
    pgqueue(*words, "1.1", "--at", "2026-11-19T09:00:00Z", dsn=dsn)
    assert [one["version"] for one in printed(pgqueue(*words, "--json", dsn=dsn))] == ["2.0 ü", "1.1"]
    assert "name the VERSION" in pgqueue(*words, "--at", "2026-11-19T09:00:00Z", dsn=dsn).stderr
    assert "VERSION is empty" in pgqueue(*words, " ", dsn=dsn).stderr


WHOLE = """
lake = "s3://bucket/lake"
tenant = "$.shop['the id'].ids[0]"

[cost]
per_run_second = 0.00002
currency = "EUR"

[[slo]]
queue = "mail"
wait = "30s"
objective = 0.99

[[slo]]
queue = "mail"
task = "send"
wait = "1.5m"
run = "250ms"
objective = 0.5
"""


def test_everything_that_may_be_said_is_read() -> None:
    assert parse(WHOLE) == Config(
        lake="s3://bucket/lake",
        tenant="$.shop['the id'].ids[0]",
        cost=Cost(per_run_second=0.00002, currency="EUR"),
        slos=(
            Slo(queue="mail", wait=timedelta(seconds=30), objective=0.99),
            Slo(
                queue="mail",
                task="send",
                wait=timedelta(seconds=90),
                run=timedelta(milliseconds=250),
                objective=0.5,
            ),
        ),
    )


def test_the_file_that_the_docs_show_can_be_read() -> None:
    (shown,) = [block.code for block in blocks(DOCS / "pipeline" / "rollups.md") if block.language == "toml"]
    assert [slo.task for slo in parse(shown).slos] == [None, "send_digest"]


def test_nothing_need_be_said() -> None:
    assert parse("") == load(None) == Config()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("lake = ", "this is no TOML: "),
        ('lakes = "x"', "unknown key 'lakes'; did you mean 'lake'?"),
        ('zzz = "x"', "unknown key 'zzz'; use lake, tenant, cost, slo"),
        ("lake = 3", "lake = 3: use a string"),
        ('lake = ""', "lake = '': use a string that is not empty"),
        ('tenant = "tenant"', "tenant = 'tenant': use a JSON path"),
        ('tenant = "$"', "tenant = '$': use a JSON path"),
        ('tenant = "$.a-b"', "tenant = '$.a-b': use a JSON path"),
        ("cost = 3", "cost: 3 is no table"),
        ('[export]\nhash = ["errors"]', "'errors' cannot be in it; use unique_key, args, result, meta"),
        ('[export]\nleave_out = "args"', "export: leave_out = 'args': use a list of columns"),
        ('[export]\nleave_out = ["args"]\nhash = ["args"]', "export: args is in leave_out and in hash"),
        ("[cost]\nper_second = 1", "cost: unknown key 'per_second'; did you mean 'per_run_second'?"),
        ("[cost]", "cost: per_run_second is missing; give a number"),
        ("[cost]\nper_run_second = -1", "cost: per_run_second = -1: use a price of zero or more"),
        ("[cost]\nper_run_second = inf", "cost: per_run_second = inf: use a price"),
        ("[cost]\nper_run_second = true", "cost: per_run_second = True: use a number"),
        ('[slo]\nqueue = "a"', "slo: write [[slo]], with two brackets"),
        ('[[slo]]\nqueue = "a"\nobjektive = 1', "slo 1: unknown key 'objektive'; did you mean 'objective'?"),
        ('[[slo]]\nwait = "1s"\nobjective = 0.9', "slo 1: queue is missing"),
        ('[[slo]]\nqueue = "a"\nwait = "1s"', "slo 1: objective is missing"),
        ('[[slo]]\nqueue = "a"\nobjective = 0.9', "slo 1: wait and run are both missing"),
        (
            '[[slo]]\nqueue = "a"\nwait = "1s"\nobjective = 1',
            "objective = 1: use a share above 0 and below 1",
        ),
        (
            '[[slo]]\nqueue = "a"\nwait = "1s"\nobjective = 0',
            "objective = 0: use a share above 0 and below 1",
        ),
        ('[[slo]]\nqueue = "a"\nwait = "1s"\nobjective = 99', "objective = 99: use a share"),
        ('[[slo]]\nqueue = "a"\nwait = "1s"\nobjective = nan', "objective = nan: use a share"),
        (
            '[[slo]]\nqueue = "a"\nwait = "soon"\nobjective = 0.9',
            "slo 1: wait = 'soon': use a length of time",
        ),
        (
            '[[slo]]\nqueue = "a"\nwait = 30\nobjective = 0.9',
            "wait = 30: use a length of time such as '250ms'",
        ),
        ('[[slo]]\nqueue = "a"\nrun = "0s"\nobjective = 0.9', "run = '0s': use a length of time"),
        (f'[[slo]]\nqueue = "a"\nrun = "{"9" * 30}d"\nobjective = 0.9', "that is too long"),
        (
            '[[slo]]\nqueue = "a"\ntask = "t"\nwait = "1s"\nobjective = 0.9\n' * 2,
            "slo 1 and slo 2 are both about queue 'a', task 't'; keep one of them",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(said: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(said)
    assert words in str(refused.value)


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('lakes = "x"')
    with pytest.raises(ConfigurationError, match=r"pipeline\.toml: unknown key 'lakes'"):
        load(file)
    with pytest.raises(ConfigurationError, match=r"absent\.toml' cannot be read"):
        load(tmp_path / "absent.toml")
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(file)


def test_the_fingerprint_changes_with_what_figures_depend_on_and_with_nothing_else() -> None:
    base = parse(WHOLE).fingerprint()
    others = ('"s3://bucket/lake"', '"elsewhere"'), ('"EUR"', '"USD"')
    assert {parse(WHOLE.replace(*other)).fingerprint() for other in others} == {base}
    matters = ("0.99", "0.98"), ('"30s"', '"31s"'), ("0.00002", "0.00003"), ("['the id']", ".id")
    assert len({base, *(parse(WHOLE.replace(*other)).fingerprint() for other in matters)}) == 5

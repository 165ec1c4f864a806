"""Erased jobs are nowhere: not in the lake's files, its roll-ups, the history, the dead jobs; all others stay as they are."""

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from cli.commands import pgqueue, printed
from looking import ask
from pyarrow import parquet
from spark.lake_history import DAY, NEXT, died, ended, history_ids, no_session

from pgqueue import PgQueue
from pgqueue.errors import ConfigurationError, InvalidOption, LakeError
from pgqueue.spark.config import Config
from pgqueue.spark.erasing import EraseCondition, ErasedDay, erase, erase_everywhere, of_key, of_tenant
from pgqueue.spark.lake.columns import ENDED, ENDED_SCHEMA
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.files import WrittenFile
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, prune
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.spark.rollup.rollup import rollup

if TYPE_CHECKING:
    from click.testing import Result

WHO = "Ada 'x' Ž of-the-test"
CONFIG = Config(tenant="$['customer id']")
THIRD = date(2026, 1, 22)
MARK = """
with args as (select json_build_object('customer id', %(who)s::text, 'n', 1) as args)
update pgqueue.{table} set args = (select args from args), task = 'bill',
    errors = jsonb_build_array(jsonb_build_object('attempt', 1, 'type', 'KeyError', 'error', 'no account of ' || %(who)s::text,
                                                  'failed_at', '2026-01-20T00:00:01Z'))
where id = any(%(ids)s)"""


def marked(dsn: str, table: str, ids: list[int], who: str = WHO) -> list[int]:
    """Give jobs to a tenant, whose name is also in their errors."""
    ask(dsn, MARK.format(table=table), who=who, ids=ids)
    return ids


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def wanted(queue: PgQueue, dsn: str, lake: Lake) -> list[int]:
    """Three exported, verified days: the tenant has jobs of the history and a dead one; the first day is pruned. Their ids."""
    first, second, _ = (ended(dsn, day, 10) for day in (DAY, NEXT, THIRD))
    dead = died(dsn, NEXT, 2)
    ids = [*marked(dsn, "job_history", [first[0], first[7], second[3]]), *marked(dsn, "dead_jobs", dead[:1])]
    marked(dsn, "job_history", [first[1]], "Ada")
    export(no_session, queue.database, lake)
    verify(no_session, queue.database, lake)
    rollup(no_session, queue.database, lake, CONFIG)
    assert [one.fate for one in prune(queue.database, lake, days=[DAY])] == [Fate.PRUNED]
    return ids


def everything(lake: Lake) -> str:
    """All text in every file below the lake, of any version."""
    root = Path(lake.uri.removeprefix("file://"))
    tables = [parquet.read_table(path).to_pylist() for path in root.rglob("*.parquet")]
    logs = [path.read_text() for path in root.rglob("*.json")]
    return str(tables) + str(logs)


def in_database(dsn: str) -> str:
    """All text of jobs in the database's tables."""
    found: list[Any] = [
        ask(dsn, f"select * from pgqueue.{table}")
        for table in ("job_history", "dead_jobs", "rollup_tenants", "rollup_failures", "rollup_hours")
    ]
    return str(found)


def rows(lake: Lake, day: date) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.dataset(ENDED, ENDED_SCHEMA, [day]).to_table().to_pylist()
    return found


def test_a_tenant_is_erased_from_the_lake_its_roll_ups_and_the_database_and_all_others_stay(
    queue: PgQueue, dsn: str, lake: Lake, wanted: list[int]
) -> None:
    before = {day: rows(lake, day) for day in (DAY, NEXT, THIRD)}
    assert WHO in everything(lake)
    assert "of-the-test" in in_database(dsn)

    found, verified = erase_everywhere(
        no_session, queue.database, lake, CONFIG, of_tenant(WHO, CONFIG), reason="request 7"
    )

    assert found == [ErasedDay(day=DAY, rows=2, database=0), ErasedDay(day=NEXT, rows=2, database=2)]
    assert [(one.day, one.finding) for one in verified] == [
        (DAY, DayFinding.VERIFIED),
        (NEXT, DayFinding.VERIFIED),
    ]
    assert "of-the-test" not in everything(lake)
    assert "of-the-test" not in in_database(dsn)
    for day, former in before.items():
        assert rows(lake, day) == [row for row in former if row["id"] not in wanted]
    assert not set(history_ids(dsn)) & set(wanted)
    tenants = {row[0] for row in ask(dsn, "select tenant from pgqueue.rollup_tenants where tenant <> ''")}
    assert tenants == {"Ada"}
    first, second, third = lake.days()
    assert [(one.rows, one.reason) for one in (*first.erased, *second.erased)] == [(2, "request 7")] * 2
    assert (third.generation, third.erased) == (1, ())
    assert (second.history, second.dead) == (9, 1)


def test_what_was_erased_stays_erased_and_the_days_go_on(
    queue: PgQueue, dsn: str, lake: Lake, wanted: list[int]
) -> None:
    erase_everywhere(no_session, queue.database, lake, CONFIG, of_tenant(WHO, CONFIG))
    late = ended(dsn, NEXT, 2)

    assert [(one.day, one.history) for one in export(no_session, queue.database, lake)] == [(NEXT, 2)]
    assert [one.finding for one in verify(no_session, queue.database, lake)] == [DayFinding.VERIFIED]
    again = ExportOptions(again=[NEXT])
    assert [one.history for one in export(no_session, queue.database, lake, options=again)] == [11]
    assert {one.finding for one in verify(no_session, queue.database, lake, everything=True)} == {
        DayFinding.VERIFIED
    }
    assert not {row["id"] for row in rows(lake, NEXT)} & set(wanted)
    assert {row["id"] for row in rows(lake, NEXT)} >= set(late)
    assert len(lake.days()[1].erased) == 1
    assert {one.fate for one in prune(queue.database, lake)} == {Fate.PRUNED}


class Killed(BaseException):
    """The process ends here."""


POINTS = ("erased from the database", "written", "recorded", "committed", "noted", "swept")


@pytest.mark.parametrize("point", POINTS)
def test_an_erasure_that_was_killed_is_finished_by_the_same_call(
    queue: PgQueue, dsn: str, lake: Lake, wanted: list[int], *, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    kept = [row for row in rows(lake, DAY) if row["id"] not in wanted]

    def killed(*_: object, **__: object) -> None:
        raise Killed

    def passed(_: Lake, name: str) -> None:
        if name == point:
            raise Killed

    if point == "swept":
        monkeypatch.setattr(Lake, "sweep", killed)
    else:
        monkeypatch.setattr(Lake, "passed", passed)
    with pytest.raises(Killed):
        erase_everywhere(no_session, queue.database, lake, CONFIG, of_tenant(WHO, CONFIG))
    monkeypatch.undo()

    erase_everywhere(no_session, queue.database, lake, CONFIG, of_tenant(WHO, CONFIG))

    assert "of-the-test" not in everything(lake)
    assert "of-the-test" not in in_database(dsn)
    assert rows(lake, DAY) == kept
    assert {one.finding for one in verify(no_session, queue.database, lake, everything=True)} == {
        DayFinding.VERIFIED
    }


def test_jobs_are_chosen_by_key_or_by_any_column_and_only_of_the_days_that_are_given(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    for day in (DAY, NEXT):
        ended(dsn, day, 9)
    export(no_session, queue.database, lake)

    assert [one.rows for one in erase(queue.database, lake, of_key("key 3"), dry_run=True)] == [1, 1]
    assert [one.day for one in erase(queue.database, lake, of_key("key 3"), days=[NEXT])] == [NEXT]
    chosen = EraseCondition("outcome = 'cancelled' or priority > 100 or unique_key = 'key 3' -- and so on")
    assert [one.rows for one in erase(queue.database, lake, chosen)] == [2, 1]
    assert [entry.rows for entry in lake.days()] == [7, 7]
    assert len(history_ids(dsn)) == 14
    whole = erase(queue.database, lake, EraseCondition(f"day = date '{DAY}'"))
    assert [one.rows for one in whole] == [7]
    assert [(entry.rows, len(entry.files)) for entry in lake.days()] == [(0, 0), (7, 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("customer = 1", 'Referenced column "customer" not found'),
        ("unique_key =", "syntax error"),
        ("unique_key in (select content from read_text('/etc/passwd'))", "disabled by configuration"),
        ("args", "Conversion|convert|Cannot"),
    ],
)
def test_a_condition_that_cannot_be_used_changes_nothing(
    queue: PgQueue, dsn: str, lake: Lake, *, text: str, said: str
) -> None:
    ended(dsn, DAY, 3)
    export(no_session, queue.database, lake)
    with pytest.raises((InvalidOption, LakeError), match=said) as told:
        erase(queue.database, lake, EraseCondition(text))
    assert "\n" not in str(told.value)
    assert lake.days()[0].rows == len(history_ids(dsn)) == 3


def test_a_tenant_needs_a_configured_path() -> None:
    with pytest.raises(ConfigurationError, match="jobs have no tenants"):
        of_tenant("7", Config())


def test_files_that_changed_since_they_were_verified_are_not_written_again(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    ended(dsn, DAY, 6)
    export(no_session, queue.database, lake)
    verify(no_session, queue.database, lake)
    (file,) = lake.days()[0].files
    path = f"{lake.uri}/{file.path}".removeprefix("file://")
    parquet.write_table(parquet.ParquetFile(path).read().slice(1), path)

    with pytest.raises(LakeError, match=f"verify --day {DAY}"):
        erase(queue.database, lake, of_key("key 3"))
    assert len(history_ids(dsn)) == 6


def test_a_new_file_that_lacks_a_row_is_not_committed(
    queue: PgQueue, dsn: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 6)
    export(no_session, queue.database, lake)
    before = rows(lake, DAY)
    write = Lake.write_rows

    def without_one(lake: Lake, table: str, day: date | None, rows: pa.Table) -> list[WrittenFile]:
        return write(lake, table, day, rows.slice(1))

    monkeypatch.setattr(Lake, "write_rows", without_one)
    with pytest.raises(LakeError, match="written with other rows"):
        erase(queue.database, lake, of_key("key 3"))
    assert rows(lake, DAY) == before


@pytest.mark.usefixtures("wanted")
def test_the_verb_counts_erases_and_says_what_it_did(dsn: str, lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(f"lake = {json.dumps(lake.uri)}\ntenant = \"$['customer id']\"\n")

    def run(*words: str) -> "Result":
        return pgqueue("pipeline", "erase", "--config", str(file), *words, dsn=dsn)

    counted = run("--tenant", WHO, "--dry-run")
    assert (counted.stdout, counted.exit_code) == ("4 jobs of 2 days would be erased\n", 0), counted.stderr
    assert WHO in everything(lake)
    done = run("--tenant", WHO, "--reason", "request 7")
    assert done.stdout == "4 jobs of 2 days erased from the lake, 2 of them from the database, too\n"
    assert (
        done.stderr
        == f"{DAY}: 2 jobs erased, 0 from the database\n{NEXT}: 2 jobs erased, 2 from the database\n"
    )
    assert WHO not in everything(lake)
    assert run("--tenant", WHO).stdout == "no such jobs in the lake\n"
    assert printed(run("--key", "key 6", "--json")) == {
        "days": [
            {"day": str(day), "rows": 1, "database": there, "in_flows": 0}
            for day, there in ((DAY, 0), (NEXT, 1), (THIRD, 1))
        ],
        "differing": [],
        "dry_run": False,
    }
    ask(dsn, "update pgqueue.job_history set priority = 99 where finished_at >= '2026-01-22'")
    differing = run("--key", "key 3")
    assert differing.exit_code == 1
    assert f"day {THIRD}: the database holds other rows of its history than the lake" in differing.stderr
    for words in ((), ("--key", "1", "--where", "true")):
        refused = run(*words)
        assert refused.exit_code == 2
        assert "give one of --tenant, --key and --where" in refused.stderr

"""Columns that a lake leaves out or hashes: never in its files, the same in both engines, and verified as such."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from docs.pages import DOCS, blocks
from looking import ask
from pyarrow import dataset
from spark.lake_history import DAY, died, ended, history_ids, no_session

from pgqueue import PgQueue
from pgqueue.errors import ConfigurationError, LakeError
from pgqueue.spark.checks import check
from pgqueue.spark.config import Check, Config, HiddenColumns, parse
from pgqueue.spark.erasing import EraseCondition, erase, of_key, of_tenant
from pgqueue.spark.lake import database_rows
from pgqueue.spark.lake.columns import KEY
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.prune import Fate, prune
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.spark.rollup.rollup import rollup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "a key of this test, long enough"  # noqa: S105 - of this test only
HIDE = HiddenColumns(leave_out=("errors", "result"), hashed=("args", "meta", "unique_key"))
ODD = """
update pgqueue.job_history set meta = case when id % 2 = 0 then '{"trace": "\\u2028"}'::jsonb end,
    unique_key = case when id % 3 = 0 then e'kéy \\x1f \\x1e 邮' else unique_key end"""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)


def hidden_lake(queue: PgQueue, folder: Path, hide: HiddenColumns = HIDE) -> Lake:
    lake = Lake(folder)
    export(no_session, queue.database, lake, options=ExportOptions(hide=hide))
    return lake


def rows(lake: Lake) -> list[dict[str, Any]]:
    place = lake.uri.removeprefix("file://")
    paths = [f"{place}/{file.path}" for file in lake.days()[0].files]
    found: list[dict[str, Any]] = dataset.dataset(paths).to_table().to_pylist()
    return found


def test_both_engines_hide_the_same_and_a_day_that_agrees_may_be_pruned(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 40)
    died(dsn, DAY, 3)
    ask(dsn, ODD)
    told = {row[0]: row[1:] for row in ask(dsn, "select id, args::text, unique_key from pgqueue.job_history")}
    here, there = hidden_lake(queue, tmp_path / "here"), Lake(tmp_path / "there")
    with monkeypatch.context() as patched:
        patched.setattr(database_rows, "MOST_ROWS", -1)
        export(spark, queue.database, there, options=ExportOptions(hide=HIDE))

    assert rows(here) == rows(there)
    for row in rows(here):
        assert row["errors"] is row["result"] is None
        if row["outcome"] != "dead":
            args, key = (
                one and hashlib.sha256((SECRET + one).encode()).hexdigest() for one in told[row["id"]]
            )
            assert (row["args"], row["unique_key"]) == (f'"{args}"', key)
    assert SECRET.encode() not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )
    assert rollup(no_session, queue.database, here, Config(tenant="$.n")) == [DAY]
    ask(dsn, "delete from pgqueue.dead_jobs where id = (select min(id) from pgqueue.dead_jobs)")
    assert [one.finding for one in verify(spark, queue.database, here)] == [DayFinding.VERIFIED]
    ask(dsn, "update pgqueue.job_history set priority = priority")  # other versions of the same values
    assert [one.fate for one in prune(queue.database, here)] == [Fate.PRUNED]
    assert history_ids(dsn) == []


@pytest.mark.parametrize("column", ["args", "unique_key"])
def test_a_value_that_was_changed_differs_behind_its_hash(
    queue: PgQueue, dsn: str, tmp_path: Path, column: str
) -> None:
    ended(dsn, DAY, 6)
    lake = hidden_lake(queue, tmp_path / "lake")
    other = {"args": "'[]'", "unique_key": "'another'"}[column]
    ask(
        dsn,
        f"update pgqueue.job_history set {column} = {other} where id = (select min(id) from pgqueue.job_history)",
    )
    assert [one.finding for one in verify(no_session, queue.database, lake)] == [DayFinding.DIFFERS]


def test_a_lake_keeps_its_choice_and_its_key(
    queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 3)
    monkeypatch.setenv(KEY, "short")
    with pytest.raises(ConfigurationError, match=f"set {KEY} to its secret key, 16 characters or more"):
        hidden_lake(queue, tmp_path / "lake")
    assert not Lake(tmp_path / "lake").exists()
    monkeypatch.setenv(KEY, SECRET)
    lake = hidden_lake(queue, tmp_path / "lake")
    for other in (HiddenColumns(), replace(HIDE, leave_out=())):
        with pytest.raises(
            LakeError, match=r"leaves out errors, result and hashes .* is decided when it is made"
        ):
            export(no_session, queue.database, lake, options=ExportOptions(hide=other))
    assert export(no_session, queue.database, Lake(lake.uri)) == []
    monkeypatch.setenv(KEY, "the key of another lake")
    for step in (export, verify):
        with pytest.raises(ConfigurationError, match="is not the key with which this lake was made"):
            step(no_session, queue.database, Lake(lake.uri))


def test_a_hashed_key_is_erased_and_what_is_hidden_cannot_choose(
    queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(dsn, DAY, 6)
    lake = hidden_lake(queue, tmp_path / "lake")
    for condition in (of_tenant("1", Config(tenant="$.n")), EraseCondition("ERRORS is null")):
        with pytest.raises(LakeError, match="this lake leaves out errors, result and hashes args"):
            erase(queue.database, lake, condition)
    with monkeypatch.context() as patched:
        patched.delenv(KEY)
        with pytest.raises(ConfigurationError):
            erase(queue.database, lake, EraseCondition("id > 0"))
    assert len(rows(lake)) == 6
    (one,) = erase(queue.database, lake, of_key("key 3"))
    assert (one.rows, one.database) == (1, 1)
    assert len(rows(lake)) == len(history_ids(dsn)) == 5


def test_checks_leave_out_what_they_cannot_see(queue: PgQueue, dsn: str, tmp_path: Path) -> None:
    ended(dsn, DAY, 3)
    died(dsn, DAY, 1)
    ask(dsn, "update pgqueue.job_history set attempts = 1 where outcome = 'succeeded'")
    lake = hidden_lake(queue, tmp_path / "lake")
    found = check(queue.database, lake)
    assert {"dead_without_an_error", "errors_are_no_list"}.isdisjoint(one.name for one in found)
    assert len(found) == 6
    assert all(one.passed for one in found)
    with pytest.raises(LakeError, match="the condition needs result"):
        check(queue.database, lake, [Check(name="mine", where="result is null")])


def test_the_file_that_the_docs_show_can_be_read() -> None:
    (shown,) = [block.code for block in blocks(DOCS / "pipeline" / "life.md") if block.language == "toml"]
    assert parse(shown).hide == HiddenColumns(("errors", "result"), ("unique_key",))
    assert parse("[export]").hide == HiddenColumns()

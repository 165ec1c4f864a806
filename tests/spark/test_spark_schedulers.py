"""The pages about Airflow, Dagster and dbt: their code runs the pipeline, and reads the lake.

Airflow and Dagster are not among the suite's libraries, so their decorators have stand-ins here: what the decorated functions
say and do is the page's own.
"""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import duckdb
import jinja2
import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable
from docs.pages import DOCS, Block, blocks
from looking import ask
from spark.lake_history import DAY, NEXT, died, ended, history_ids

from pgqueue.cli.main import main

JOBS = 6


@pytest.fixture
def lake(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lake is to be of a database with two closed days."""
    ended(dsn, DAY, JOBS)
    ended(dsn, NEXT, JOBS)
    died(dsn, NEXT, 1)
    ask(dsn, "update pgqueue.job_history set attempts = 1 where outcome = 'succeeded'")
    monkeypatch.setenv("PGQUEUE_DSN", dsn)
    monkeypatch.setenv("PGQUEUE_LAKE", str(tmp_path / "lake"))
    return tmp_path / "lake"


def code(page: str) -> list[Block]:
    return [block for block in blocks(DOCS / "pipeline" / page) if block.language not in {"", "sh"}]


def here(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process, which is faster."""
    assert command[0] == "pgqueue"
    told = CliRunner().invoke(main, command[1:])
    return subprocess.CompletedProcess(command, told.exit_code, told.stdout, told.stderr)


class Task:
    """A task of a DAG, and the tasks after it."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.later: list[Task] = []

    def __rshift__(self, later: "Task | list[Task]") -> "Task | list[Task]":
        self.later += later if isinstance(later, list) else [later]
        return later

    def all(self) -> Iterator["Task"]:
        yield self
        for task in self.later:
            yield from task.all()


def standing_in(monkeypatch: pytest.MonkeyPatch, name: str, **holds: object) -> None:
    module = ModuleType(name)
    vars(module).update(holds)
    monkeypatch.setitem(sys.modules, name.partition(".")[0], module)
    monkeypatch.setitem(sys.modules, name, module)


def test_the_dag_of_airflow_exports_verifies_and_prunes(
    dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[Task] = []

    def bash(function: Callable[[], str] | None = None, **_: object) -> Any:
        def made() -> Task:
            assert function is not None
            tasks.append(Task(function()))
            return tasks[-1]

        return bash if function is None else made

    def dag(*, schedule: str, catchup: bool, **_: object) -> Callable[[Any], Any]:
        assert (len(schedule.split()), catchup) == (5, False)
        return lambda function: function

    standing_in(monkeypatch, "airflow.sdk", dag=dag, task=SimpleNamespace(bash=bash))
    (block,) = code("airflow.md")
    exec(block.code, {"__name__": "pgqueue_lake"})  # noqa: S102 - the page's own words

    for task in tasks[0].all():
        done = here(shlex.split(task.command))
        assert done.returncode == 0, done.stderr
    assert [task.command.split()[2] for task in tasks[0].all()] == [
        "export",
        "verify",
        "rollup",
        "check",
        "prune",
    ]
    assert history_ids(dsn) == []
    assert DeltaTable(lake / "ended").to_pyarrow_dataset().count_rows() == 2 * JOBS + 1


def test_the_assets_of_dagster_say_what_each_step_did(
    dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(function: Any = None, **_: object) -> Any:
        return plain if function is None else function

    class Failure(Exception):
        def __init__(self, description: str) -> None:
            super().__init__(description)

    standing_in(
        monkeypatch,
        "dagster",
        asset=plain,
        asset_check=plain,
        AssetCheckResult=SimpleNamespace,
        AssetCheckSeverity=SimpleNamespace(WARN="warn"),
        Definitions=SimpleNamespace,
        Failure=Failure,
        MaterializeResult=SimpleNamespace,
    )
    (block,) = code("dagster.md")
    names: dict[str, Any] = {"__name__": "pgqueue_assets"}
    exec(block.code, names)  # noqa: S102 - the page's own words
    names["subprocess"] = SimpleNamespace(run=here)

    with pytest.raises(Failure, match="is no lake"):
        names["verified_days"]()
    days = [str(DAY), str(NEXT)]
    assert names["ended_jobs"]().metadata == {"days": days, "rows": 2 * JOBS + 1}
    assert names["verified_days"]().metadata == {"days": days}
    assert names["rollups"]().metadata == {"days": days}
    assert names["jobs_are_sound"]().passed
    assert names["pruned_history"]().metadata == {"days": days}
    assert len(names["defs"].assets) == 4
    assert history_ids(dsn) == []
    assert lake.exists()


def test_the_models_of_dbt_read_the_tables_that_the_sources_name(lake: Path) -> None:
    for step in ("export", "rollup"):
        assert here(["pgqueue", "pipeline", step]).returncode == 0
    profile, sources, *models = code("dbt.md")
    assert yaml.safe_load(profile.code)["lake"]["outputs"]["here"]["plugins"] == [{"module": "delta"}]
    database = duckdb.connect()

    def source(name: str, table: str) -> str:
        told = next(one for one in yaml.safe_load(sources.code)["sources"] if one["name"] == name)
        place = next(one["meta"]["delta_table_path"] for one in told["tables"] if one["name"] == table)
        path = jinja2.Template(place).render(env_var={"PGQUEUE_LAKE": str(lake)}.__getitem__)
        database.register(f"{name}_{table}", DeltaTable(path).to_pyarrow_dataset())
        return f"{name}_{table}"

    late, reliability = (
        database.sql(jinja2.Template(model.code).render(source=source)).fetchall() for model in models
    )
    assert sorted(late) == [(DAY, "mail", "send", JOBS, 0), (NEXT, "mail", "send", JOBS + 1, 0)]
    assert {(row[0], row[3], row[5]) for row in reliability} == {(DAY, JOBS, 0), (date(2026, 1, 21), 7, 1)}
    for told in yaml.safe_load(sources.code)["sources"]:
        for table in told["tables"]:
            named = {column["name"] for column in table.get("columns", ())}
            source(told["name"], table["name"])
            assert named <= set(database.table(f"{told['name']}_{table['name']}").columns)

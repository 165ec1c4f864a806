"""The pipeline on a cluster of processes: its master is given by an option and by ``spark-submit``."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli.commands import pgqueue
from databases import Copies, dsn_of
from looking import ask, wait_until
from spark import cluster_app
from spark.lake_history import DAY, NEXT, died, ended, no_session
from spark.rollup_days import figures
from spark.standalone import standalone

from pgqueue import PgQueue
from pgqueue.cli import submit
from pgqueue.errors import SparkMissing
from pgqueue.spark import session as sessions
from pgqueue.spark.config import Config
from pgqueue.spark.lake import checksum, database_rows
from pgqueue.spark.lake.columns import ENDED, ENDED_TABLE
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import DayFinding, verify
from pgqueue.spark.rollup import in_duckdb as rollup_in_duckdb
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.rollup.tables import SCHEMAS
from pgqueue.store.pipeline import lake as plans

BEFORE_NEXT_LOOK = 0.01
"""Seconds between two looks at whether a file is being written."""


def executors(master: int) -> list[int]:
    """The processes of executors among the descendants of a process."""
    parents: dict[int, int] = {}
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except (OSError, IndexError, ValueError):  # it has just ended
            continue
    return [pid for pid in found if _descends(pid, master, parents)]


def _descends(pid: int, from_: int, parents: dict[int, int]) -> bool:
    while pid > 1 and pid != from_:
        pid = parents.get(pid, 1)
    return pid == from_


def writes(application: "subprocess.Popen[bytes]", lake: Path) -> bool:
    """Wait until a file of the lake is being written; False: the application ended before."""
    while application.poll() is None:
        if [*lake.glob("ended/*/*.parquet")]:
            return True
        time.sleep(BEFORE_NEXT_LOOK)
    return False


def submitted(application: str, *words: str, master: str, conf: Sequence[str]) -> list[str]:
    """The words that submit an application to a cluster."""
    settings = [word for one in ("spark.ui.enabled=false", *conf) for word in ("--conf", one)]
    program = str(Path(sys.executable).with_name("spark-submit"))
    return [program, "--master", master, *settings, application, *words]


def ids_in(lake: Lake) -> list[int]:
    """What the lake holds, doubled rows twice."""
    found: list[int] = lake.dataset(ENDED, ENDED_TABLE).to_table(columns=["id"])["id"].to_pylist()
    return sorted(found)


@dataclass(frozen=True, slots=True)
class Run:
    """The application's only run, for all tests of a cluster: each JVM that it starts takes seconds of CPU.

    Attributes:
        dsn: of its database; no job in it ends any more.
        queue: on that database.
        ids: of the jobs that had ended there.
        folder: where the application left what it found.
        said: what it printed.
        killed: how many executors were killed during the first export.
    """

    dsn: str
    queue: PgQueue
    ids: list[int]
    folder: Path
    said: str
    killed: int

    def lake(self, name: str) -> Lake:
        return Lake(self.folder / name)


@pytest.fixture(scope="module")
def run(copies: Copies, migrated_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The application, from its start until its driver is killed during its last export."""
    folder = tmp_path_factory.mktemp("cluster")
    with copies.one() as name, standalone(folder) as master:
        queue = PgQueue(dsn := dsn_of(migrated_server, name))
        ids = _history(dsn, queue, folder)
        with (
            (folder / "stdout").open("wb") as out,
            (folder / "stderr").open("wb") as err,
            subprocess.Popen(  # noqa: S603 - our own words
                _application(dsn, folder, master),
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                cwd=folder, stdout=out, stderr=err, start_new_session=True,
            ) as application,
        ):  # fmt: skip
            found = executors(os.getpid()) if writes(application, folder / cluster_app.FIRST) else []
            for one in found[:1]:
                os.kill(one, signal.SIGKILL)
            writes(application, folder / cluster_app.LAST)
            os.killpg(application.pid, signal.SIGKILL)
        assert application.returncode == -signal.SIGKILL, (folder / "stderr").read_text()[-3_000:]
        yield Run(dsn, queue, ids, folder, (folder / "stdout").read_text(), len(found[:1]))
        queue.close()


def _history(dsn: str, queue: PgQueue, folder: Path) -> list[int]:
    """Jobs that have ended, and two equal lakes with them: ``here`` and ``there``; their ids."""
    ids = sorted([*ended(dsn, DAY, 800), *died(dsn, DAY, 5), *ended(dsn, NEXT, 300, queue="reports")])
    export(no_session, queue.database, Lake(folder / "here"))
    shutil.copytree(folder / "here", folder / "there")
    return ids


def _application(dsn: str, folder: Path, master: str) -> list[str]:
    conf = (
        *("spark.speculation=true", "spark.speculation.interval=100ms", "spark.speculation.multiplier=1.1"),
        *("spark.speculation.quantile=0.5", "spark.speculation.minTaskRuntime=2s"),
        *("spark.task.maxFailures=8", "spark.sql.shuffle.partitions=2", "spark.driver.host=127.0.0.1"),
        *("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
        f"spark.executor.extraJavaOptions={os.environ['SPARK_SUBMIT_OPTS']}",
    )
    words = (dsn, str(folder / "there"), str(folder))
    return submitted(str(Path(cluster_app.__file__)), *words, master=master, conf=conf)


@pytest.mark.timeout(900)  # the first of them waits for the application
def test_an_export_that_was_submitted_to_a_cluster_is_exact_though_an_executor_is_killed(run: Run) -> None:
    lake = run.lake(cluster_app.FIRST)
    assert run.killed == 1
    assert f"2 days exported: {len(run.ids):,} rows" in run.said
    assert ids_in(lake) == run.ids
    assert {one.finding for one in verify(no_session, run.queue.database, lake)} == {DayFinding.VERIFIED}


@pytest.mark.timeout(900)  # the first of them waits for the application
def test_an_export_whose_driver_is_killed_while_it_writes_is_exact_when_it_is_run_again(run: Run) -> None:
    lake = run.lake(cluster_app.LAST)
    assert lake.days() == []

    wait_until(
        lambda: run.queue.database.run(plans.holder()) == []
    )  # the server notices that its client is gone
    assert [one.day for one in export(no_session, run.queue.database, lake)] == [DAY, NEXT]
    assert ids_in(lake) == run.ids
    assert {one.finding for one in verify(no_session, run.queue.database, lake)} == {DayFinding.VERIFIED}


@pytest.mark.timeout(900)  # the first of them waits for the application
def test_on_a_cluster_each_part_of_the_pipeline_is_exact_though_executors_are_killed(run: Run) -> None:
    """Source, shuffle, stream, sink, a sink with two attempts of a task at a time, roll-up: in one application."""
    found = {path.stem: json.loads(path.read_text()) for path in run.folder.glob("*.json")}
    happened = {path.name.removesuffix("-happened") for path in run.folder.glob("*-happened")}
    assert happened == found.keys() == {"source", "shuffle", "stream", "sink", "sink_twice", "rollup"}
    assert found["source"] == found["stream"] == run.ids
    assert found["shuffle"] == {"mail": 805, "reports": 300}
    enqueued = (
        "select task, count(*), count(distinct args->>'n') from pgqueue.jobs group by task order by task"
    )
    assert ask(run.dsn, enqueued) == [
        ("sink", *[cluster_app.JOBS] * 2),
        ("sink_twice", *[cluster_app.JOBS] * 2),
    ]
    assert found["rollup"] == [str(DAY), str(NEXT)]
    rollup(no_session, None, run.lake("here"), Config())
    for table in SCHEMAS:
        assert figures(run.lake("there"), table) == figures(run.lake("here"), table)


@pytest.mark.parametrize("verb", ["export", "verify", "rollup"])
def test_the_master_and_the_settings_of_the_command_are_those_of_the_session(
    queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    ended(dsn, DAY, 1)
    export(sessions.session, queue.database, Lake(tmp_path))  # of a day so small that it starts none
    ended(dsn, NEXT, 1)
    for engine in (database_rows, checksum, rollup_in_duckdb):
        monkeypatch.setattr(engine, "MOST_ROWS", -1)
    asked: dict[str, Any] = {}

    def session(**given: Any) -> None:
        assert not asked, "it is started once"
        asked.update(given)
        raise SparkMissing("not here")

    monkeypatch.setattr(sessions, "session", session)
    words = [
        "--master",
        "spark://host:7077",
        "--conf",
        "spark.executor.memory=4g",
        "--conf",
        "spark.app.name=a=b",
    ]
    done = pgqueue("pipeline", verb, "--lake", str(tmp_path), *words, dsn=dsn)
    assert (done.exit_code, "not here" in done.stderr) == (2, True)
    assert asked == {
        "master": "spark://host:7077",
        "settings": {"spark.executor.memory": "4g", "spark.app.name": "a=b"},
    }
    wrong = pgqueue("pipeline", verb, "--lake", str(tmp_path), "--conf", "spark.app.name", dsn=dsn)
    assert (wrong.exit_code, "write NAME=VALUE" in wrong.stderr) == (2, True)


def test_the_file_for_spark_submit_runs_the_command_without_its_own_folder_on_the_path(
    tmp_path: Path,
) -> None:
    where = subprocess.run(
        [sys.executable, "-m", "pgqueue.cli.submit", "--where"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert where == submit.__file__
    (tmp_path / "shop.py").write_text(
        "import importlib.util\nassert importlib.util.find_spec('verbs') is None\nfrom pgqueue import PgQueue\nqueue = PgQueue()\n"
    )
    said = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, where, "--app", "shop:queue", "pipeline", "--help"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "Export ended jobs to a lake" in said

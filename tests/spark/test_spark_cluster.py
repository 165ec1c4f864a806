"""The pipeline on a cluster of processes (``local-cluster``): its master is given by an option and by ``spark-submit``."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli.commands import pgqueue
from looking import ask, wait_until
from spark import cluster_app
from spark.lake_history import DAY, NEXT, died, ended
from spark.rollup_days import figures, no_session
from spark.standalone import SHORT_LIVED, standalone

from pgqueue import PgQueue
from pgqueue.cli import submit
from pgqueue.errors import SparkMissing
from pgqueue.spark import session as sessions
from pgqueue.spark.config import Config
from pgqueue.spark.lake import in_arrow, in_duckdb
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import ENDED, ENDED_TABLE, Lake
from pgqueue.spark.lake.verify import Finding, verify
from pgqueue.spark.rollup import in_duckdb as rollup_in_duckdb
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.spark.rollup.tables import SCHEMAS
from pgqueue.store.pipeline import lake as plans

CLUSTER = "local-cluster[2,1,1024]"
"""Two executors of one core and 1 GB, each a process of its own."""


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


def kill_one_while_it_writes(exporting: "subprocess.Popen[str]", lake: Path) -> int:
    """Kill an executor with SIGKILL as soon as a file is being written; how many were killed."""
    while exporting.poll() is None:
        files = [*lake.glob("ended/*/*.parquet")]
        found = executors(exporting.pid) if files else []
        if found:
            os.kill(found[0], signal.SIGKILL)
            return 1
        time.sleep(0.05)
    return 0


def submitted(application: str, *words: str, master: str = CLUSTER, conf: Sequence[str] = ()) -> list[str]:
    """The words that submit an application to a cluster."""
    settings = [word for one in ("spark.ui.enabled=false", *conf) for word in ("--conf", one)]
    program = str(Path(sys.executable).with_name("spark-submit"))
    return [program, "--master", master, *settings, application, *words]


def ids_in(lake: Lake) -> list[int]:
    """What the lake holds, doubled rows twice."""
    found: list[int] = lake.dataset(ENDED, ENDED_TABLE).to_table(columns=["id"])["id"].to_pylist()
    return sorted(found)


def surroundings() -> dict[str, str]:
    return {**os.environ, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable}


def exporting(lake: Path, dsn: str, rows_per_file: int) -> "subprocess.Popen[str]":
    """An export on the cluster."""
    words = ("pipeline", "export", "--lake", str(lake), "--rows-per-file", str(rows_per_file), "--dsn", dsn)
    return subprocess.Popen(  # noqa: S603 - our own words
        submitted(submit.__file__, *words),
        env=surroundings(),
        cwd=lake.parent,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.timeout(600)
def test_an_export_that_was_submitted_to_a_cluster_is_exact_though_an_executor_is_killed(
    queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ids = [*ended(dsn, DAY, 800), *died(dsn, DAY, 5)]
    lake = tmp_path / "lake"
    with exporting(lake, dsn, 80) as export_there:
        killed = kill_one_while_it_writes(export_there, lake)
        said, _ = export_there.communicate()

    assert (export_there.returncode, killed) == (0, 1), said
    assert f"1 day exported: {len(ids):,} rows" in said
    assert ids_in(Lake(lake)) == sorted(ids)
    assert [one.finding for one in verify(no_session, queue.database, Lake(lake))] == [Finding.VERIFIED]


@pytest.mark.timeout(600)
def test_an_export_whose_driver_is_killed_while_it_writes_is_exact_when_it_is_run_again(
    queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ids = [*ended(dsn, DAY, 800), *died(dsn, DAY, 5), *ended(dsn, NEXT, 3)]
    lake = tmp_path / "lake"
    with exporting(lake, dsn, 80) as export_there:
        while export_there.poll() is None and not [*lake.glob("ended/*/*.parquet")]:
            time.sleep(0.05)
        os.killpg(export_there.pid, signal.SIGKILL)
    assert export_there.returncode == -signal.SIGKILL, "it was writing"
    assert Lake(lake).days() == []

    wait_until(lambda: queue.database.run(plans.holder()) == [])  # the server notices that its client is gone
    assert [one.day for one in export(no_session, queue.database, Lake(lake))] == [DAY, NEXT]
    assert ids_in(Lake(lake)) == sorted(ids)
    assert {one.finding for one in verify(no_session, queue.database, Lake(lake))} == {Finding.VERIFIED}


@pytest.mark.timeout(600)
def test_on_a_cluster_each_part_of_the_pipeline_is_exact_though_executors_are_killed(
    queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    """Source, shuffle, stream, sink, a sink with two attempts of a task at a time, roll-up, report: in one application."""
    ids = sorted([*ended(dsn, DAY, 800), *died(dsn, DAY, 5), *ended(dsn, NEXT, 300, queue="reports")])
    here = Lake(tmp_path / "here")
    export(no_session, queue.database, here)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    rollup(no_session, None, here, Config())
    conf = (
        *("spark.speculation=true", "spark.speculation.interval=100ms", "spark.speculation.multiplier=1.1"),
        *("spark.speculation.quantile=0.5", "spark.speculation.minTaskRuntime=2s"),
        *("spark.task.maxFailures=8", "spark.sql.shuffle.partitions=2", "spark.driver.host=127.0.0.1"),
        *("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
    )
    words = (dsn, str(tmp_path / "there"), str(tmp_path))
    with standalone(tmp_path) as master:
        done = subprocess.run(  # noqa: S603 - our own words
            submitted(str(Path(cluster_app.__file__)), *words, master=master, conf=conf),
            env=surroundings(), cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3_000:]
    found = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    happened = {path.name.removesuffix("-happened") for path in tmp_path.glob("*-happened")}
    assert (
        happened == found.keys() == {"source", "shuffle", "stream", "sink", "sink_twice", "rollup", "report"}
    )
    assert found["source"] == found["stream"] == ids
    assert found["shuffle"] == {"mail": 805, "reports": 300}
    enqueued = (
        "select task, count(*), count(distinct args->>'n') from pgqueue.jobs group by task order by task"
    )
    assert ask(dsn, enqueued) == [("sink", *[cluster_app.JOBS] * 2), ("sink_twice", *[cluster_app.JOBS] * 2)]
    assert found["rollup"] == [str(DAY), str(NEXT)]
    for table in SCHEMAS:
        assert figures(Lake(tmp_path / "there"), table) == figures(here, table)
    assert "</html>" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("verb", ["export", "verify", "rollup", "report"])
def test_the_master_and_the_settings_of_the_command_are_those_of_the_session(
    queue: PgQueue, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    ended(dsn, DAY, 1)
    export(sessions.session, queue.database, Lake(tmp_path))  # of a day so small that it starts none
    ended(dsn, NEXT, 1)
    for engine in (in_arrow, in_duckdb, rollup_in_duckdb):
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

"""The pipeline on a cluster of processes (``local-cluster``): its master is given by an option and by ``spark-submit``."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cli.commands import pgqueue
from spark.lake_history import DAY, NEXT, died, ended, lake_ids

from pgqueue import PgQueue
from pgqueue.cli import submit
from pgqueue.errors import SparkMissing
from pgqueue.spark import session as sessions
from pgqueue.spark.lake import in_arrow, in_duckdb
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import Finding, verify
from pgqueue.spark.rollup import in_duckdb as rollup_in_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.mark.timeout(300)
def test_an_export_that_was_submitted_to_a_cluster_is_exact_though_an_executor_is_killed(
    spark: "SparkSession", queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ids = [*ended(dsn, DAY, 800), *died(dsn, DAY, 5)]
    lake = tmp_path / "lake"
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", CLUSTER, "--conf", "spark.ui.enabled=false",
               str(submit.__file__), "pipeline", "export", "--lake", str(lake), "--rows-per-file", "80", "--dsn", dsn]  # fmt: skip
    with subprocess.Popen(  # noqa: S603 - our own words
        command,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as exporting:
        killed = kill_one_while_it_writes(exporting, lake)
        said, _ = exporting.communicate()

    assert (exporting.returncode, killed) == (0, 1), said
    assert f"1 day exported: {len(ids):,} rows" in said
    assert lake_ids(spark, Lake(lake)) == sorted(ids)
    assert [one.finding for one in verify(spark, queue.database, Lake(lake))] == [Finding.VERIFIED]


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

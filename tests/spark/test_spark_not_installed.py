"""A pipeline of small days needs neither PySpark nor Java, and says which extra is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from looking import ask
from spark.lake_history import DAY, NEXT, died, ended

from pgqueue import PgQueue
from pgqueue.spark.lake.lake import Lake

WITHOUT = """
import json, sys
without, calls = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(without))  # an import of them fails, as if they were not installed
from pgqueue.cli.main import main
for words in calls:
    try:
        main(words)
    except SystemExit as ended:
        if ended.code:
            raise
"""


def pgqueue(
    dsn: str, lake: Path, *calls: tuple[str, ...], without: tuple[str, ...] = ("pyspark",)
) -> subprocess.CompletedProcess[str]:
    """Call the command where packages are not installed, and no Java is, until a call fails."""
    words = [["--dsn", dsn, "pipeline", *call, "--lake", str(lake)] for call in calls]
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", WITHOUT, json.dumps([without, words])],
        capture_output=True, text=True, check=False, env=bare | {"PATH": "/nowhere"},
    )  # fmt: skip


def test_each_step_of_small_days_needs_neither_pyspark_nor_java(
    queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    ids, lake = [*ended(dsn, DAY, 20), *died(dsn, DAY, 3)], tmp_path / "lake"
    told = pgqueue(
        dsn,
        lake,
        ("export",),
        ("verify",),
        ("rollup",),
        ("report",),
        ("status", "--json"),
        ("whatif", "--days", str(DAY), "--workers", "2"),
        ("erase", "--where", f"id = {ids[0]}"),
    )
    assert told.returncode == 0, told.stderr
    assert queue.retry(ids[-1])  # not all dead jobs are in the database: each of the others is looked for
    ended(dsn, DAY, 2)
    ended(dsn, NEXT, 5)
    told = pgqueue(dsn, lake, ("export",), ("verify",), ("compact",), ("prune", "--keep", "0"), ("rollup",))
    assert told.returncode == 0, told.stderr
    assert ask(dsn, "select count(*) from pgqueue.job_history") == [(0,)]
    assert sum(day.rows for day in Lake(lake).days()) == len(ids) + 2 + 5 - 1


@pytest.mark.usefixtures("queue")
def test_a_day_that_is_left_to_spark_names_the_extra(dsn: str, tmp_path: Path) -> None:
    ended(dsn, DAY, 9)
    told = pgqueue(dsn, tmp_path / "lake", ("export", "--rows-per-file", "8"))
    assert told.returncode == 2
    assert "PySpark is not installed: pip install 'pgqueue-jobs[spark]'" in told.stderr


@pytest.mark.parametrize("missing", ["deltalake", "duckdb", "pyarrow"])
def test_a_package_of_the_pipeline_that_is_missing_names_the_extra(
    dsn: str, tmp_path: Path, missing: str
) -> None:
    told = pgqueue(dsn, tmp_path, ("verify",), without=(missing,))
    assert told.returncode == 2
    (said,) = told.stderr.splitlines()
    assert f"the pipeline needs the package {missing.replace('_', '-')}" in said
    assert "pip install 'pgqueue-jobs[pipeline]'" in said

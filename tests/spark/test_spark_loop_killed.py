"""The driver is killed while it waits, and a worker while it works: started again, each row has come back once, with its result."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from looking import ask

import pgqueue.spark
from pgqueue.spark.writing.log import writes

ROWS = 400
JOBS = """
import time
from pgqueue import PgQueue
queue = PgQueue()

@queue.task(name="bill", max_attempts=5)
def bill(order_id: int) -> int:
    time.sleep(0.02)
    return order_id * 2
"""
PROGRAM = """
import pgqueue.spark
from pgqueue.spark.session import session

spark = session(master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
rows = spark.range(400, numPartitions=2).selectExpr("id as order_id", "concat('row ', id) as label")
found = pgqueue.spark.apply(rows, "bill", key="order_id", run="r1", app="loop_jobs:queue")
back = found.selectExpr("count(*)", "count(distinct order_id)", "sum(cast(result as long))", "count_if(state = 'succeeded')",
                        "count_if(label = concat('row ', order_id))").first()
print("back", *back, flush=True)
"""


@contextmanager
def process(arguments: list[str], folder: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process, and those that it starts; they are killed at the end."""
    started = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **env, "PYTHONPATH": str(folder), "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    with started.stdout:
        try:
            yield started
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def ended(dsn: str) -> int:
    count: int = ask(dsn, "select count(*) from pgqueue.job_history")[0][0]
    return count


def wait_while(holds: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    """Wait until something holds no more: Java may take a minute to start."""
    while holds():
        assert running.poll() is None, "it ended"
        time.sleep(0.1)


@pytest.mark.timeout(900)
def test_a_driver_and_a_worker_are_killed_and_each_row_comes_back_once(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "loop_jobs.py").write_text(JOBS)
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {"PGQUEUE_DSN": dsn}
    worker = ["-m", "pgqueue", "--app", "loop_jobs:queue", "worker", "--concurrency", "2"]
    with process(worker, tmp_path, env), process(["program.py"], tmp_path, env) as driver:
        wait_while(lambda: ended(dsn) <= ROWS // 8, driver)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    # the worker was killed, too, with jobs in its hands
    left = pgqueue.spark.status("r1", dsn)
    assert left.jobs == ROWS
    assert left.live > 0

    with process(worker, tmp_path, env), process(["program.py"], tmp_path, env) as driver:
        assert driver.stdout is not None
        said = driver.stdout.readline().split()
    assert said == [
        "back",
        str(ROWS),
        str(ROWS),
        str(sum(2 * one for one in range(ROWS))),
        str(ROWS),
        str(ROWS),
    ]
    assert [(one.rows, one.enqueued) for one in writes(dsn)] == [(ROWS, ROWS)]
    assert ended(dsn) == ROWS

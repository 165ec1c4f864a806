"""A Spark of its own, which tries failed tasks again, and is killed: what is enqueued, and what is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import LiteralString

import psycopg
from looking import ask, wait_until
from spark.sinking import attempts, orders, staged_rows, writing

from pgqueue.spark.writing.log import writes

ROWS = 100_000
PROGRAM = '''
import sys
from pyspark import TaskContext
from pyspark.sql.functions import udf
from pgqueue.spark.session import session

dsn, folder = sys.argv[1:]
spark = session(master="local[2, 4]", settings={
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.sql.warehouse.dir": folder,
})

@udf("long")
def fails_once(order_id):
    """Fail the first two attempts at the second partition, in the middle of it."""
    if order_id == 90_000 and TaskContext.get().attemptNumber() < 2:
        raise ValueError("not yet")
    return order_id

@udf("long")
def hangs(order_id):
    """Wait at a gate that does not open, in the middle of the second partition."""
    if order_id == 90_000:
        import psycopg
        psycopg.connect(dsn).execute("select pg_advisory_lock(1)")
    return order_id

def write(column, run):
    frame = spark.range(100_000, numPartitions=2).select(column("id").alias("order_id"))
    frame.write.format("pgqueue").options(task="bill", dsn=dsn, run=run).mode("append").save()

write(fails_once, "retried")
print("written", flush=True)
write(hangs, "killed")
'''


def test_tasks_that_are_tried_again_enqueue_once_and_a_killed_driver_enqueues_nothing(
    dsn: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with psycopg.connect(dsn, autocommit=True) as gate:
        gate.execute("select pg_advisory_lock(1)")
        process = subprocess.Popen(  # noqa: S603 - our own words
            [sys.executable, str(program), dsn, str(tmp_path)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            try:
                assert process.stdout.readline() == "written\n"
                assert sorted(orders(dsn)) == list(range(ROWS))
                wait_until(lambda: staged_rows(dsn) > ROWS / 2)  # the first partition and a part of the other
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    assert sorted(orders(dsn)) == list(range(ROWS))
    assert [(one.run, one.rows, one.enqueued) for one in writes(dsn)] == [("retried", ROWS, ROWS)]
    wait_until(lambda: not _connected(dsn))  # Spark's Python processes outlive it by a moment
    _is_swept_in_a_day(dsn)


def _connected(dsn: str) -> int:
    statement: LiteralString = (
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    count: int = ask(dsn, statement)[0][0]
    return count


def _is_swept_in_a_day(dsn: str) -> None:
    writing(dsn, "order_id")
    assert staged_rows(dsn) > ROWS / 2
    ask(dsn, "update pgqueue.sink_attempts set staged_at = now() - interval '25 hours'")
    writing(dsn, "order_id")
    assert staged_rows(dsn) == attempts(dsn) == 0

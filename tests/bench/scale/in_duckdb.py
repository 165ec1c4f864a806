"""The same roll-up with DuckDB, over the lake's Parquet files, in a separate process, so that its memory is measured alone.

Run as a program it reads a :class:`DuckdbTask` as JSON, and writes an :class:`DuckdbAnswer`. Hours are
counted from 1970, because DuckDB returns times with a zone only where pytz is installed.
"""

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb
import msgspec
from bench.scale.agree import Exact

TESTS = Path(__file__).parents[2]
ROLLUP = """
select queue, task, epoch_us(ended_at) // 3600000000 as hour, count(*),
       count(*) filter (where outcome = 'succeeded'), count(*) filter (where outcome = 'cancelled'),
       count(*) filter (where outcome = 'dead'), sum(attempts)::bigint,
       quantile_disc(wait, $ranks) filter (where wait is not null),
       quantile_disc(run, $ranks) filter (where run is not null)
from (
    select queue, task, outcome, ended_at, attempts,
           case when started_at is not null then greatest(epoch_us(started_at) - epoch_us(run_at), 0) / 1e6 end as wait,
           case when started_at is not null then greatest(epoch_us(ended_at) - epoch_us(started_at), 0) / 1e6 end as run
    from read_parquet($files, hive_partitioning = true)
)
group by all"""


class DuckdbTask(msgspec.Struct, frozen=True):
    """What to compute: the files, and the ranks of the percentiles."""

    files: list[str]
    ranks: list[float]


class DuckdbAnswer(msgspec.Struct, frozen=True):
    """DuckDB's rows, and the seconds it took, without its start."""

    rows: list[Exact]
    seconds: float
    version: str


def start() -> "subprocess.Popen[bytes]":
    """Start the process; it waits for its task."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench.scale.in_duckdb"],
        cwd=TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def finish(process: "subprocess.Popen[bytes]", files: Sequence[str], ranks: Sequence[float]) -> DuckdbAnswer:
    """Send the task, and wait for the answer."""
    out, _ = process.communicate(msgspec.json.encode(DuckdbTask(list(files), list(ranks))))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return msgspec.json.decode(out, type=DuckdbAnswer)


def _answer(task: DuckdbTask) -> DuckdbAnswer:
    connection = duckdb.connect()
    since = perf_counter()
    rows = connection.execute(ROLLUP, {"files": task.files, "ranks": task.ranks}).fetchall()
    seconds = perf_counter() - since
    return DuckdbAnswer([_exact(row) for row in rows], seconds, duckdb.__version__)


def _exact(row: Sequence[Any]) -> Exact:
    queue, task, hour, *counts, wait, run = row
    return Exact(queue, task, datetime.fromtimestamp(hour * 3600, UTC), tuple(counts), wait, run)


if __name__ == "__main__":
    sys.stdout.buffer.write(
        msgspec.json.encode(_answer(msgspec.json.decode(sys.stdin.buffer.read(), type=DuckdbTask)))
    )

"""What it costs to have each end of a job in a Delta table within seconds: ``python tests/bench/decoding.py [--jobs 100000] [--rounds 3]``.

A worker drains jobs without work, in these ways, in turn:

- ``alone``: ``wal_level = replica``, and nobody reads;
- ``logical``: ``wal_level = logical``, and nobody reads;
- ``pgoutput``: a process reads a logical slot each second by SQL, decodes the inserts, and appends them to a Delta table; the commit
  has the position in the log, and then the slot is moved there;
- ``killed``: the same, and the process is killed (SIGKILL) after every other commit, before it moves the slot, and started again;
- ``slot away``: the same slot, and nobody reads it;
- ``export``: a process runs pgqueue's own export each ``--every`` seconds; it is told that today is over.

The script prints jobs per second, the processor time of the servers and of the reader, the bytes of the log, and the longest time from a
commit until its rows could be read in the Delta table; it checks that each job is there once. No other PostgreSQL may work meanwhile.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from pgqueue import PgQueue
from pgqueue.embedded import Server, embedded_binaries, throwaway_server
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.lake import Lake
from pgqueue.store.schema import schema
from pgqueue.worker.worker import Worker

WAYS = ("alone", "logical", "pgoutput", "killed", "slot away", "export")
BY_SLOT = {"pgoutput", "killed", "slot away"}
NOTED = "slot"
SLOT, PUBLICATION = "pgqueue_ends", "pgqueue_ends"
CHANGES = (
    f"select data from pg_logical_slot_peek_binary_changes('{SLOT}', null, %s, 'proto_version', '1',"
    f" 'publication_names', '{PUBLICATION}')"
)
AT_ONCE = 50_000
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass
class Ends:
    """What a reader of a slot has found since its last commit; transactions that end before ``noted`` are in the table."""

    noted: int = 0
    position: int = 0
    skipped: bool = False

    columns: dict[int, list[str]] = field(default_factory=dict)
    rows: list[dict[str, str | None]] = field(default_factory=list)
    committed: list[datetime] = field(default_factory=list)

    def take(self, data: bytes) -> None:
        """Decode a message of pgoutput: relations and inserts; all else is passed over."""
        kind = data[:1]
        if kind == b"B":
            self.skipped = int.from_bytes(data[1:9], "big") < self.noted
            micros = int.from_bytes(data[9:17], "big")
            self.committed.append(EPOCH + timedelta(microseconds=micros))
        elif kind == b"C":
            self.position = int.from_bytes(data[10:18], "big")
        elif kind == b"R":
            relation, names = _relation(data)
            self.columns[relation] = names
        elif kind == b"I" and not self.skipped:
            names = self.columns[int.from_bytes(data[1:5], "big")]
            self.rows.append(dict(zip(names, _values(data[6:]), strict=True)))


def _relation(data: bytes) -> tuple[int, list[str]]:
    relation, rest = int.from_bytes(data[1:5], "big"), data[5:]
    _, _, rest = rest.partition(b"\0")
    _, _, rest = rest.partition(b"\0")
    count, rest, names = int.from_bytes(rest[1:3], "big"), rest[3:], []
    for _ in range(count):
        name, _, rest = rest[1:].partition(b"\0")
        names.append(name.decode())
        rest = rest[8:]
    return relation, names


def _values(data: bytes) -> Iterator[str | None]:
    place = 2
    for _ in range(int.from_bytes(data[:2], "big")):
        kind, place = data[place : place + 1], place + 1
        if kind == b"t":
            length, place = int.from_bytes(data[place : place + 4], "big"), place + 4
            yield data[place : place + length].decode()
            place += length
        else:
            yield None


def read_slot(dsn: str, place: str, stop: Path, every: float, *, dies: bool) -> dict[str, Any]:
    """Append what a slot tells to a Delta table, until the file ``stop`` is there and nothing is left."""
    there = DeltaTable.is_deltatable(place)
    noted = (DeltaTable(place).transaction_version(NOTED) or 0) if there else 0
    lags, commits, known = [0.0], 0, Ends(noted=noted)
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            last = stop.exists()
            began = time.monotonic()
            found = connection.execute(CHANGES, [AT_ONCE], binary=True).fetchall()
            for (data,) in found:
                known.take(data)
            if known.rows:
                _append(place, known.rows, known.position)
                if dies and noted % 2 == 0:  # by chance
                    os.kill(os.getpid(), signal.SIGKILL)
                now = datetime.now(UTC)
                lags.append(max((now - one).total_seconds() for one in known.committed))
                commits += 1
            if found:
                connection.execute(
                    f"select pg_replication_slot_advance('{SLOT}', '0/0'::pg_lsn + %s::numeric)",
                    [known.position],
                )
            known.rows, known.committed = [], []
            if last and not found:
                return {"lag": max(lags), "commits": commits}
            if len(found) < AT_ONCE:
                time.sleep(max(0.0, every - (time.monotonic() - began)))


def _append(place: str, rows: list[dict[str, str | None]], position: int) -> None:
    names = (
        "id",
        "queue",
        "task",
        "run_at",
        "created_at",
        "started_at",
        "finished_at",
        "attempts",
        "args",
        "result",
        "ended_in",
    )
    table = pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})
    noted = CommitProperties(app_transactions=[Transaction(NOTED, position)])
    write_deltalake(place, table, mode="append", commit_properties=noted)


def run_exports(dsn: str, place: str, stop: Path, every: float) -> dict[str, Any]:
    """Export today's rows again and again, until the file ``stop`` is there and nothing is left."""
    queue, lake = PgQueue(dsn), Lake(place)
    tomorrow = datetime.combine(datetime.now(UTC).date() + timedelta(days=1), datetime.min.time(), UTC)
    options = ExportOptions(now=tomorrow + timedelta(minutes=5), wait=0)
    lags, before, runs, took = [0.0], time.monotonic(), 0, [0.0]
    while True:
        last = stop.exists()
        began = time.monotonic()
        done = export(_no_session, queue.database, lake, options=options)
        now = time.monotonic()
        lags.append(now - before)  # the oldest row ended after the last export had looked
        took.append(now - began)
        before, runs = began, runs + 1
        if last and not done:
            queue.close()
            return {"lag": max(lags), "commits": runs, "took": statistics.median(took[1:])}
        time.sleep(max(0.0, every - (now - began)))


def _no_session() -> Any:
    raise AssertionError


def main() -> None:
    """Drain in each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--read", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        way, dsn, place, stop = given.read
        began = time.process_time()
        told = (
            read_slot(dsn, place, Path(stop), 1.0, dies=way == "killed")
            if way in BY_SLOT
            else run_exports(dsn, place, Path(stop), given.every)
        )
        sys.stdout.write(json.dumps({**told, "cpu": time.process_time() - began}))
        return
    ways = given.ways.split(",")
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with throwaway_server(embedded_binaries()) as server:
        for number in range(given.rounds):
            for way in ways if number % 2 == 0 else reversed(ways):
                found[way].append(_measure(server, way, given.jobs, given.every))
                _print(way, found[way][-1])
    sys.stdout.write("medians\n")
    for way in ways:
        _print(way, {key: statistics.median(one[key] for one in found[way]) for key in found[way][0]})


def _print(way: str, one: dict[str, float]) -> None:
    sys.stdout.write(f"{way:10} " + ", ".join(f"{key} {value:,.1f}" for key, value in one.items()) + "\n")
    sys.stdout.flush()


def _measure(server: Server, way: str, jobs: int, every: float) -> dict[str, float]:
    server.stop()
    server.settings = {
        "wal_level": "replica" if way in {"alone", "export"} else "logical",
        "max_wal_size": "4GB",
    }
    server.start()
    with tempfile.TemporaryDirectory() as folder, psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("drop schema if exists pgqueue cascade")
        schema.migrate(server.dsn, schema="pgqueue")
        if way in BY_SLOT:
            connection.execute(
                f"create publication {PUBLICATION} for table pgqueue.job_history, pgqueue.dead_jobs"
                " with (publish = 'insert', publish_via_partition_root = true)"
            )
            connection.execute(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
        try:
            return asyncio.run(_drain(server, connection, way, jobs, folder=Path(folder), every=every))
        finally:
            if way in BY_SLOT:
                connection.execute(f"select pg_drop_replication_slot('{SLOT}')")
                connection.execute(f"drop publication {PUBLICATION}")


async def _drain(
    server: Server, connection: psycopg.Connection[Any], way: str, jobs: int, *, folder: Path, every: float
) -> dict[str, float]:
    queue = PgQueue(server.dsn)

    @queue.task(name="work")
    async def work(_number: int) -> int:
        return 1

    await queue.aenqueue_many(work.call(number) for number in range(jobs))
    connection.execute("vacuum analyze")
    connection.execute("checkpoint")
    stop, place = folder / "stop", folder / "table"
    reader = None
    if way in {"pgoutput", "killed", "export"}:
        words = [
            sys.executable,
            __file__,
            "--every",
            str(every),
            "--read",
            way,
            server.dsn,
            str(place),
            str(stop),
        ]
        reader = asyncio.create_task(_reader(words))
        await asyncio.sleep(5)  # until it has imported what it needs
    lsn = connection.execute("select pg_current_wal_lsn()").fetchone()
    began, servers = time.monotonic(), _processor_time(server)
    await Worker(queue, concurrency=64, until_empty=True).run()
    took, servers = time.monotonic() - began, _processor_time(server) - servers
    written = connection.execute("select pg_wal_lsn_diff(pg_current_wal_lsn(), %s)", lsn).fetchone()
    kept = connection.execute(
        "select coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0) from pg_replication_slots"
    ).fetchone()
    assert written is not None
    assert kept is not None
    figures = {
        "jobs/s": jobs / took,
        "servers µs/job": servers / jobs * 1e6,
        "log bytes/job": float(written[0]) / jobs,
        "log kept MB": float(kept[0]) / 1e6,
    }
    if reader is not None:
        stop.touch()
        out = await reader
        figures |= {"reader µs/job": out["cpu"] / jobs * 1e6, "lag s": out["lag"], "commits": out["commits"]}
        if way == "killed":
            figures["kills"] = out["kills"]
        _check(place / "ended" if way == "export" else place, jobs)
    await queue.aclose()
    return figures


async def _reader(words: list[str]) -> dict[str, Any]:
    """Run a reader, and run it again each time that it was killed; what it told in the end."""
    kills = 0
    while True:
        process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        if process.returncode == 0:
            return {**json.loads(out), "kills": kills}
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"the reader ended with {process.returncode}")
        kills += 1


def _processor_time(server: Server) -> float:
    """Seconds of a server's processes, those that have ended among them."""
    parent = (server.data / "postmaster.pid").read_text().split()[0]
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(") ")[2].split()
            if path.parent.name == parent:
                total += sum(map(int, fields[11:15]))
            elif fields[1] == parent:
                total += sum(map(int, fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def _check(place: Path, jobs: int) -> None:
    ids = DeltaTable(place).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    if len(ids) != jobs or len(set(ids)) != jobs:
        raise SystemExit(f"{len(ids):,} rows and {len(set(ids)):,} jobs, not {jobs:,}")


if __name__ == "__main__":
    main()

"""A streaming replica answers what only looks; the primary answers the rest, and all of it while the replica is away."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from looking import ask, wait_until
from psycopg.conninfo import make_conninfo
from servers import on_the_oldest, standby_of

import pgqueue.store
from pgqueue import PgQueue, chain
from pgqueue.cli.main import main
from pgqueue.embedded import Server, embedded_binaries, throwaway_server
from pgqueue.errors import ConfigurationError
from pgqueue.spark.source import here
from pgqueue.store.connections.replica import ReplicatedDatabase, with_replica
from pgqueue.store.flows import flow_queries
from pgqueue.store.insight import ended, insight, over_time, runs, searching, series, story, why
from pgqueue.store.jobs import control, known_tasks, notes
from pgqueue.store.limits import limit_control
from pgqueue.store.plan import Plan
from pgqueue.store.queues import queues
from pgqueue.store.schema import schema
from pgqueue.store.workers import workers
from pgqueue.testing.databases import hasten
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.shards import ReplicaStatus

STORE = Path(pgqueue.store.__file__).parent
HOUR = timedelta(hours=1)
FLOW = 1
pytestmark = pytest.mark.skipif(on_the_oldest(), reason="the standby is made with the embedded binaries")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary with the tables, and its hot standby."""
    with throwaway_server(embedded_binaries()) as primary:
        hasten(primary.dsn)
        schema.migrate(primary.dsn)
        with standby_of(primary) as standby:
            yield primary, standby


@pytest.fixture
def replay(pair: tuple[Server, Server]) -> Iterator[Callable[[str], None]]:
    """``replay("off")`` stops what the standby replays, ``replay("on")`` continues and waits until it has all."""

    def change(to: str) -> None:
        with (
            psycopg.connect(pair[1].dsn, autocommit=True) as standby,
            psycopg.connect(pair[0].dsn) as primary,
        ):
            if to == "off":
                standby.execute("select pg_wal_replay_pause()")
                while standby.execute("select pg_get_wal_replay_pause_state()").fetchall() != [("paused",)]:
                    pass
                return
            standby.execute("select pg_wal_replay_resume()")
            primary.execute("set synchronous_commit = on")
            primary.execute("select pg_logical_emit_message(true, 'tests', '')")
            primary.commit()  # writes what was committed without waiting for the disk, too
            (written,) = primary.execute("select pg_current_wal_lsn()").fetchall()
            while standby.execute("select pg_last_wal_replay_lsn() < %s::pg_lsn", written).fetchall() == [
                (True,)
            ]:
                pass

    yield change
    change("on")


@pytest.fixture
def looked(pair: tuple[Server, Server]) -> Iterator[PgQueue]:
    """A queue whose looks the standby answers, with a task."""
    queue = PgQueue(pair[0].dsn, replica=pair[1].dsn)
    queue.task(name="mail")(_nothing)
    yield queue
    queue.close()


def _nothing() -> None:
    """Do nothing."""


Pair = tuple[Server, Server]
Replay = Callable[[str], None]


def test_looks_are_answered_by_the_replica_and_what_was_just_committed_by_the_primary(
    looked: PgQueue, replay: Replay
) -> None:
    old = looked.find_task("mail").enqueue()
    replay("on")
    replay("off")
    new = looked.find_task("mail").enqueue()
    looked.control.pause("default")

    assert [job.id for job in looked.insight.search().jobs] == [old.id], (
        "the standby has not replayed the second"
    )
    assert sum(one.ready for one in looked.insight.queues()) == 1
    assert looked.job(old.id).state == new.status() == "ready", "a handle asks the primary"
    assert looked.job(new.id).id == new.id, "and the primary is asked for what the replica does not know"
    assert ask(looked, "select name from pgqueue.queues where paused_at is not null") == [("default",)]
    assert not [one for one in looked.insight.queues() if one.paused_at], (
        "the standby has not replayed the pause"
    )
    assert old.cancel() == old.status() == "cancelled"
    assert looked.job(old.id).state == "ready", "as the standby has it"
    wait_until(
        lambda: getattr(looked.insight.replica(), "bytes", 0)
    )  # the server writes its log a moment later
    behind = looked.insight.replica()
    assert behind is not None
    assert behind.answers
    replay("on")
    assert {job.id for job in looked.insight.search().jobs} >= {old.id, new.id}
    assert looked.insight.replica() == ReplicaStatus(answers=True, behind=0.0, bytes=0)


async def test_awaited_looks_go_the_same_way_and_a_callers_transaction_never_leaves_its_connection(
    looked: PgQueue, replay: Replay
) -> None:
    replay("on")
    replay("off")
    before = len((await looked.insight.asearch()).jobs)
    with looked.database.transaction() as connection:
        handle = looked.find_task("mail").using(connection=connection).enqueue()
        assert looked.database.run(control.show(handle.id), connection) is not None
    assert len((await looked.insight.asearch()).jobs) == before
    assert await handle.astatus() == "ready"
    await looked.aclose()


def test_a_replica_that_is_down_is_said_once_and_the_primary_answers_until_it_is_back(
    pair: Pair, looked: PgQueue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = looked.find_task("mail").enqueue()
    looked.insight.search()
    pair[1].stop()
    try:
        with caplog.at_level(logging.INFO, "pgqueue.replica"):
            assert handle.id in {job.id for job in looked.insight.search().jobs}
            assert handle.id in {job.id for job in looked.insight.search().jobs}
        assert [record.levelname for record in caplog.records if record.name == "pgqueue.replica"] == [
            "WARNING"
        ]
        down = looked.insight.replica()
        assert down is not None
        assert not down.answers
        assert "the primary does" in str(down)
    finally:
        pair[1].start()
    monkeypatch.setattr("pgqueue.store.connections.replica.time.monotonic", lambda: float("inf"))
    caplog.clear()
    with caplog.at_level(logging.INFO, "pgqueue.replica"):
        looked.insight.search()
    assert [record.getMessage() for record in caplog.records] == ["the replica answers again"]


def test_a_query_that_the_standby_cancels_is_answered_by_the_primary_and_the_replica_stays_in_use(
    pair: Pair, looked: PgQueue, replay: Replay, caplog: pytest.LogCaptureFixture
) -> None:
    handle = looked.find_task("mail").enqueue()
    hurried = PgQueue(pair[0].dsn, replica=make_conninfo(pair[1].dsn, options="-c statement_timeout=100ms"))
    with psycopg.connect(pair[0].dsn) as primary, psycopg.connect(pair[1].dsn, autocommit=True) as standby:
        primary.execute("lock table pgqueue.jobs in access exclusive mode")
        with psycopg.connect(pair[0].dsn, autocommit=True) as other:
            other.execute("select pg_switch_wal()")
        while standby.execute(LOCKED).fetchall() != [(1,)]:
            pass
        replay("off")
        primary.commit()
    with caplog.at_level(logging.INFO, "pgqueue.replica"):
        assert handle.id in {job.id for job in hurried.insight.search().jobs}
    assert [record.getMessage() for record in caplog.records] == [
        "the replica cancelled a query; the primary answers it"
    ]
    replay("on")
    caplog.clear()
    hurried.insight.search()
    assert not caplog.records, "it is asked again at once"
    hurried.close()


LOCKED = (
    "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and relation = 'pgqueue.jobs'::regclass"
)


LOOKS: dict[str, Callable[[], Plan[Any]]] = {
    "control.show": lambda: control.show(1),
    "control.newest": control.newest,
    "control.counts": control.counts,
    "control.worker_problems": control.worker_problems,
    "workers.unknown_tasks": workers.unknown_tasks,
    "queues.queue_standings": queues.queue_standings,
    "why.why": lambda: why.why(1),
    "notes.progress": lambda: notes.progress(1),
    "notes.logs": lambda: notes.logs(1),
    "insight.running": insight.running,
    "insight.errors": insight.errors,
    "insight.dead_by_task": lambda: insight.dead_by_task(limit=5),
    "insight.keys_used": insight.keys_used,
    "insight.schedules": insight.schedules,
    "insight.deploys": insight.deploys,
    "searching.search": lambda: searching.search(
        JobFilter.checked({"everything": True}), states=None, unique_key=None, before=None, limit=10
    ),
    "searching.due": lambda: searching.due(JobFilter()),
    "searching.details": lambda: searching.details([1]),
    "story.story": lambda: story.story(1),
    "runs.runs": runs.runs,
    "runs.run": lambda: runs.run("r1"),
    "over_time.series": lambda: over_time.series(HOUR),
    "over_time.totals": lambda: over_time.totals(HOUR),
    "over_time.compare": lambda: over_time.compare(HOUR, HOUR),
    "over_time.recent_failures": over_time.recent_failures,
    "ended.ended": lambda: ended.ended(HOUR, HOUR / 60),
    "series.depths": lambda: series.depths(HOUR),
    "known_tasks.listed": lambda: known_tasks.listed(None, 9),
    "limit_control.listed": lambda: limit_control.listed({}),
    "flow_queries.flows": flow_queries.flows,
    "flow_queries.flow": lambda: flow_queries.flow(FLOW),
    "flow_queries.nodes": lambda: flow_queries.nodes(FLOW, parent=0),
}
"""A call of every plan that only looks."""


def test_no_plan_that_looks_writes_or_locks_rows(queue: PgQueue, dsn: str) -> None:
    text = "\n".join(f"# {path.stem}\n{path.read_text()}" for path in STORE.rglob("*.py"))
    modules = re.split(r"^# (\w+)$", text, flags=re.MULTILINE)[1:]
    marked = {
        f"{module}.{name}"
        for module, code in zip(modules[::2], modules[1::2], strict=True)
        for name in re.findall(r"@plan\(reads=True\)\ndef (\w+)", code)
    }
    assert marked == set(LOOKS)
    task = queue.task(name="mail")(_nothing)
    assert chain(task.call(), task.call()).enqueue().id
    ask(
        dsn,
        "insert into pgqueue.sink_writes (id, run, task, rows, enqueued, rejected, changed) "
        "values (gen_random_uuid(), 'r1', 'mail', 0, 0, 0, 0)",
    )
    found = queue.database.run(flow_queries.flows())
    reading = PgQueue(make_conninfo(dsn, options="-c default_transaction_read_only=on"))
    for name, look in LOOKS.items():
        plan = look()
        if "flow_id" in plan.arguments:
            plan = plan.but(flow_id=found[0].id)
        if "job_id" in plan.arguments:
            plan = plan.but(job_id=queue.insight.search().jobs[0].id)
        assert plan.kind.reads, name
        reading.database.run(plan)
    reading.close()


def test_the_command_says_how_old_what_it_shows_may_be(pair: Pair, looked: PgQueue, replay: Replay) -> None:
    handle = looked.find_task("mail").enqueue()
    replay("on")
    where = ["--dsn", pair[0].dsn, "--replica-dsn", pair[1].dsn]
    listed = CliRunner().invoke(main, [*where, "jobs", "list", "--json"])
    assert handle.id in {job["id"] for job in json.loads(listed.stdout)}
    assert re.fullmatch(r"note: from a replica, \d+\.\d s behind\n", listed.stderr)
    shown = CliRunner().invoke(main, [*where, "top", "--once"])
    assert re.search(r"; from a replica, \d+\.\d s behind", shown.stdout)


def test_spark_reads_from_the_replica_and_writes_to_the_primary(
    pair: Pair, looked: PgQueue, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = looked.find_task("mail").enqueue()
    replay("on")
    monkeypatch.setenv("PGQUEUE_DSN", pair[0].dsn)
    monkeypatch.setenv("PGQUEUE_REPLICA_DSN", pair[1].dsn)
    source = here()({"table": "jobs"})
    reader = source.reader(source.schema())
    replay("off")
    looked.find_task("mail").enqueue()
    read: list[int] = []
    for part in reader.partitions():
        for batch in reader.read(part):
            read += batch.column("id").to_pylist()  # type: ignore[union-attr]  # it is Arrow's
    assert max(read) == handle.id, "what the standby has"
    assert here()({})._for_writing()["dsn"] == pair[0].dsn  # noqa: SLF001 - a writer would be made of it
    ended = here()({"table": "ended"})
    assert ended.streamReader(ended.schema()).initialOffset()


def test_a_replica_of_the_environment_belongs_to_the_database_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGQUEUE_DSN", "postgresql://primary/shop")
    monkeypatch.setenv("PGQUEUE_REPLICA_DSN", "postgresql://standby/shop")
    assert isinstance(PgQueue().database, ReplicatedDatabase)
    assert not isinstance(PgQueue("postgresql://other/shop").database, ReplicatedDatabase)
    changed = with_replica(PgQueue("postgresql://other/shop").database, "postgresql://standby/shop")
    assert isinstance(changed.but(schema="jobs"), ReplicatedDatabase)
    assert not isinstance(changed.but(dsn="postgresql://third/shop"), ReplicatedDatabase)
    with pytest.raises(ConfigurationError, match="--dsn"):
        with_replica(changed.__class__.__new__(_Framework), "postgresql://standby/shop")


class _Framework(ReplicatedDatabase):
    """A framework's database."""

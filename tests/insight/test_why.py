"""What the statements of ``queue.why`` find: of workers, limits and flows, while jobs go, and of rows that make no sense."""

import json
import re
from collections.abc import Sequence
from contextlib import closing, nullcontext
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from looking import ask
from msgspec.structs import astuple
from psycopg.conninfo import make_conninfo
from store.samples import NOON

from pgqueue import Limit, PgQueue, Rate, chain
from pgqueue.embedded import embedded_binaries, embedded_server, throwaway_server
from pgqueue.store.insight import why as plans
from pgqueue.store.plan import Row, Step, run
from pgqueue.store.schema import schema
from pgqueue.values.insight.why_facts import MOST_AHEAD, WhyFacts


@pytest.fixture
def note(queue: PgQueue) -> Any:
    @queue.task(name="note")
    def note() -> None: ...

    return note


def worker(queue: PgQueue, **given: Any) -> None:
    """A worker that serves all queues, and has a free slot."""
    fields = {"id": uuid4(), "host": "box", "pid": 1, "concurrency": 2, "version": "0", **given}
    names = ", ".join(fields)
    values = ", ".join(f"%({name})s" for name in fields)
    ask(
        queue,
        f"insert into pgqueue.workers (lease_until, {names}) values (now() + interval '5 min', {values})",
        **fields,
    )


def block(queue: PgQueue, *, pid: int, minutes: int) -> None:
    ask(
        queue,
        "update pgqueue.workers set blocked_since = now() - %s, blocked_task = 'report', blocked_where = 'jobs.py:3' "
        "where pid = %s",
        timedelta(minutes=minutes),
        pid,
    )


def test_of_blocked_workers_only_one_that_could_run_the_job_is_named(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, pid=1)
    worker(queue, pid=2, quiet=True)
    worker(queue, pid=3, tasks=["other"])
    worker(queue, pid=4, ask_end="stop")
    for pid in range(1, 5):
        block(queue, pid=pid, minutes=pid)
    found = queue.why(job.id)
    assert re.search(
        "; 1 worker serves queue 'default', and none claims jobs now: the event loop of box, process 1, has been blocked "
        r"for [\d.]+ s by asyncio task report at jobs\.py:3$",
        found.sentence,
    )
    assert (found.evidence["serving"], found.evidence["knowing"], found.evidence["blocked_workers"]) == (
        2,
        1,
        1,
    )


def test_a_running_job_names_its_own_worker_also_while_that_is_quiet(queue: PgQueue, note: Any) -> None:
    job, held_by = note.enqueue(), uuid4()
    worker(queue, pid=7, id=held_by, quiet=True)
    worker(queue, pid=8)
    block(queue, pid=7, minutes=3)
    block(queue, pid=8, minutes=9)
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', attempts = 1, worker_id = %s, claimed_at = now()",
        held_by,
    )
    assert queue.why(job.id).evidence["blocked_pid"] == 7


def test_a_job_waits_for_a_free_slot_of_the_workers_that_know_its_task(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, pid=1, running=[11, 12])
    worker(queue, pid=2, concurrency=9, slots=1, running=[13])
    worker(queue, pid=3, tasks=["other"], running=[])
    worker(queue, pid=4, quiet=True, running=[])
    found = queue.why(job.id)
    assert (found.reason, found.evidence["busy"], {*found.evidence["running"]}) == (
        "no free slot",
        2,
        {11, 12, 13},
    )
    assert "at the 2 workers that serve queue 'default' and may know its task, by jobs 1" in found.sentence
    ask(queue, "update pgqueue.workers set running = '{11}' where pid = 1")
    assert queue.why(job.id).reason == "waiting"
    ask(queue, "update pgqueue.workers set running = null where pid = 1")  # a take: not said
    assert queue.why(job.id).reason == "waiting"


def test_a_worker_that_stops_or_was_asked_to_serves_no_more(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, pid=1)
    assert queue.why(job.id).reason == "waiting"
    ask(queue, "update pgqueue.workers set ask_end = 'restart'")
    assert queue.why(job.id).sentence.endswith(
        "of queue 'default' 1 live worker stops, and no other serves it"
    )
    ask(queue, "update pgqueue.workers set answer = 'no supervisor starts it again'")
    assert queue.why(job.id).reason == "waiting"
    ask(
        queue, "update pgqueue.workers set ask_end = null, answer = null, look_within = 60, looked_at = now()"
    )
    assert queue.why(job.id).reason == "waiting"
    ask(
        queue, "update pgqueue.workers set looked_at = null"
    )  # what a worker says that was told to stop by a signal
    assert queue.why(job.id).evidence["stopping"] == 1


def test_behind_many_jobs_of_a_large_table_the_number_is_an_estimate(
    queue: PgQueue, note: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue_many(note.call() for _ in range(3_000))
    last = note.enqueue()
    worker(queue)
    assert ", behind 3,000 ready jobs; " in queue.why(last.id).sentence
    monkeypatch.setattr(plans, "WHOLE_PAGES", 1)
    monkeypatch.setattr(plans, "SAMPLED_PAGES", 1e-9)
    found = queue.why(last.id)
    assert (found.evidence["ahead"], found.evidence["ahead_estimated"]) == (1_000, True)
    monkeypatch.setattr(plans, "SAMPLED_PAGES", 10)
    found = queue.why(last.id)
    assert 1_000 <= found.evidence["ahead"] <= 9_000
    assert ", behind about " in found.sentence


def test_a_limit_of_which_the_database_has_no_numbers_is_named(queue: PgQueue) -> None:
    @queue.task(name="send", limit=Limit(1, name="api"))
    def send() -> None: ...

    job = send.enqueue()
    worker(queue)
    ask(queue, "delete from pgqueue.limits")
    found = queue.why(job.id)
    assert (found.reason, found.evidence["limits"][0]["name"]) == ("limit unknown", "name:api")
    queue.control.limits.set("name:api", Limit(1))
    assert queue.why(job.id).reason == "waiting"
    ask(queue, "update pgqueue.limits set most = 0")
    assert "limit 'name:api' is 0" in queue.why(job.id).sentence


def test_the_causes_of_workers_come_before_those_of_limits(queue: PgQueue) -> None:
    @queue.task(name="send", limit=Limit(1, name="api"))
    def send() -> None: ...

    job = send.enqueue()
    queue.control.limits.set("name:api", Limit(1))
    ask(queue, "update pgqueue.limits set most = 0")
    assert queue.why(job.id).evidence["causes"] == ["no worker", "limit full"]
    queue.control.pause("default")
    assert queue.why(job.id).evidence["causes"] == ["paused", "no worker", "limit full"]


def test_lanes_and_rates_that_make_no_sense_break_nothing(queue: PgQueue) -> None:
    @queue.task(name="call", limit=Rate("1/minute", by="key"))
    def call(key: str) -> None: ...

    job = call.enqueue("x' \u202e\n\\")
    worker(queue)
    queue.control.limits.set("task:call:key:per-minute", Rate("1/minute"))
    lane = ask(queue, "select lane from pgqueue.jobs")[0][0]
    for tat in (2**63 - 1, -(2**63), 0):
        ask(
            queue,
            "insert into pgqueue.rates values (%s, %s) on conflict (key) do update set tat = excluded.tat",
            lane,
            tat,
        )
        assert 0 <= queue.why(job.id).evidence["limits"][0]["opens_in"] <= 60.1
    for odd in ("\n\n", " ", "\n a\n", "queue:default", "x" * 1_000, "a\na", "' or %s {}"):
        ask(queue, "update pgqueue.jobs set lane = %s, cost = 2147483647", odd)
        assert queue.why(job.id).sentence.startswith("it waits in its lane")


@pytest.mark.parametrize(
    "errors",
    ['"x"', "{}", "[1]", "[null]", '[{"type": 7, "message": [1], "crashed": true}]', '[{"crashed": 1}]'],
)
def test_errors_that_are_none_break_nothing(queue: PgQueue, note: Any, errors: str) -> None:
    job = note.enqueue()
    ask(queue, "update pgqueue.jobs set errors = %s::jsonb, attempts = 3, flags = 16", errors)
    assert "died with it" in queue.why(job.id).sentence


def test_a_job_of_a_flow_whose_rows_are_gone_says_what_is_left(queue: PgQueue, note: Any) -> None:
    handle = chain(note.call(), note.call()).enqueue()
    waits = handle.jobs[1].id
    ask(queue, "delete from pgqueue.edges")
    assert (
        queue.why(waits).sentence
        == f"it is blocked, and waits for the start of its group, of flow {handle.id}"
    )
    ask(queue, "delete from pgqueue.nodes")
    assert queue.why(waits).sentence.startswith("it is blocked, and waits for 'node:")
    ask(queue, "delete from pgqueue.waits")
    assert "nothing is recorded that it waits for" in queue.why(waits).sentence


def test_a_job_whose_row_is_locked_names_the_session_that_holds_it(
    queue: PgQueue, note: Any, dsn: str
) -> None:
    job = note.enqueue()
    worker(queue)
    with psycopg.connect(dsn, application_name="report") as other:
        other.execute("select from pgqueue.jobs where id = %s for update", [job.id])
        found = queue.why(job.id)
        assert (found.reason, found.evidence["locked_by"]) == ("locked", other.info.backend_pid)
        assert f"by a transaction of session {other.info.backend_pid} (report), which has" in found.sentence
        queue.control.pause("default")
        assert queue.why(job.id).evidence["causes"] == ["paused"]
        queue.control.resume("default")
        other.rollback()
        assert queue.why(job.id).reason == "waiting"
        other.execute("update pgqueue.jobs set priority = 3 where id = %s", [job.id])
        assert queue.why(job.id).reason == "locked"


def test_a_job_that_is_locked_in_a_released_savepoint_names_the_session_unless_two_may_hold_it(
    queue: PgQueue, note: Any, dsn: str
) -> None:
    """Each plan on the caller's connection is run in a savepoint, so an enqueue that replaces a job locks it so."""
    job, another = note.enqueue(), note.enqueue()
    worker(queue)
    lock = "select from pgqueue.jobs where id = %s for update"
    with (
        psycopg.connect(dsn, application_name="report") as other,
        psycopg.connect(dsn) as later,
        psycopg.connect(dsn) as without,
    ):
        without.execute("select pg_current_xact_id()")
        other.execute("select 1")
        with other.transaction():
            other.execute(lock, [job.id])
        assert queue.why(job.id).evidence["locked_by"] == other.info.backend_pid
        assert queue.why(another.id).reason == "waiting"
        later.execute(lock, [another.id])
        assert queue.why(another.id).evidence["locked_by"] == later.info.backend_pid
        assert queue.why(job.id).evidence["locked_by"] == other.info.backend_pid
        other.rollback()
        assert queue.why(job.id).reason == "waiting"
        other.execute("select 1")
        with other.transaction():
            other.execute(lock, [job.id])
        assert queue.why(job.id).evidence.get("locked_by") is None, "it may be each of two"


def test_a_session_that_never_used_the_table_is_not_said_to_lock_a_job() -> None:
    """The row of a job that two transactions lock has the number of their pair, which may be that of a third transaction."""
    with embedded_server() as server, closing(PgQueue(server)) as queue:
        schema.migrate(server)
        worker(queue)
        with psycopg.connect(server) as other, psycopg.connect(server) as holder:
            number = other.execute("select pg_current_xact_id()::text::bigint").fetchall()[0][0]
            ask(
                queue,
                "insert into pgqueue.jobs (task, args) select 'note', '{}' from generate_series(1, %s)",
                number,
            )
            holder.execute("select from pgqueue.jobs for share")
            with psycopg.connect(server, autocommit=True) as pairing:
                for job in range(1, number + 1):
                    pairing.execute("select from pgqueue.jobs where id = %s for share", [job])
                of_pair = "select id from pgqueue.jobs where xmax::text::bigint = %s"
                ((job,),) = pairing.execute(of_pair, [number]).fetchall()
            assert queue.why(job).evidence.get("locked_by") is None


def test_no_session_is_named_for_a_prepared_transaction_nor_one_of_a_copy_of_the_database() -> None:
    with throwaway_server(embedded_binaries()) as server:
        with psycopg.connect(server.dsn, autocommit=True) as first:
            first.execute("alter system set max_prepared_transactions = 1")
            first.execute("create database original")
            original = make_conninfo(server.dsn, dbname="original")
            schema.migrate(original)
            first.execute("create database copy template original")
        server.stop()
        server.start()
        lock = "select from pgqueue.jobs where id = %s for update"
        use = "select pg_current_xact_id() from (select from pgqueue.jobs where false for update) as none right join (select) as one on true"
        with (
            closing(PgQueue(original)) as queue,
            psycopg.connect(make_conninfo(server.dsn, dbname="copy")) as of_the_copy,
            psycopg.connect(original) as older,
            psycopg.connect(original) as holder,
        ):
            worker(queue)
            ((job,),) = ask(queue, "insert into pgqueue.jobs (task, args) values ('note', '{}') returning id")
            of_the_copy.execute(use)
            holder.execute("select 1")
            with holder.transaction():
                holder.execute(lock, [job])
            assert queue.why(job).evidence["locked_by"] == holder.info.backend_pid
            holder.rollback()

            older.execute(use)
            holder.execute(lock, [job])
            holder.execute("prepare transaction 'one'")
            holder.commit()
            assert queue.why(job).evidence.get("locked_by") is None
            older.rollback()
            holder.autocommit = True
            holder.execute("rollback prepared 'one'")


BEHIND = WhyFacts("ready", "default", "note", NOON, 0, 3, ahead=MOST_AHEAD)
LIMITED = WhyFacts("blocked", "default", "note", NOON, 0, 3, in_lane=True)
NODE = WhyFacts("blocked", "default", "note", NOON, 0, 3, waits_for=["node:7"], waits_until=[None])
COLUMNS = WhyFacts.__struct_fields__.index("ahead_estimated")


@pytest.mark.parametrize(
    ("facts", "statements", "reason"),
    [
        (BEHIND, ["insight/standing_sizes", "insight/why_ahead"], "no worker"),
        (LIMITED, ["insight/why_limits"], "no worker"),
        (NODE, ["insight/why_node"], "blocked"),
    ],
)
def test_a_job_that_goes_between_two_statements_is_told_as_it_was(
    facts: WhyFacts, statements: list[str], reason: str
) -> None:
    found: dict[str, list[Row]] = {
        "insight/standing_sizes": [(9, 9, 9, NOON)],
        "insight/why_ahead": [(0,)],
        "insight/why": [astuple(facts)[:COLUMNS]],
    }
    asked: list[str] = []

    class Answers:
        def execute(self, step: Step, /) -> Sequence[Row]:
            asked.append(step.name)
            return found.get(step.name, [])

        def transaction(self) -> nullcontext[None]:
            return nullcontext()

    assert run(plans.why(5), Answers()).reason == reason
    assert asked == ["insight/why", *statements]


def test_the_evidence_is_plain_json(queue: PgQueue, note: Any) -> None:
    @queue.task(name="send", limit=Limit(1, by="key"))
    def send(key: str) -> None: ...

    for job in (note.enqueue(), send.enqueue("x"), *chain(note.call(), note.call()).enqueue().jobs):
        evidence = queue.why(job.id).evidence
        assert json.loads(json.dumps(evidence)) == evidence

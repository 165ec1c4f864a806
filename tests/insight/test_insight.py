"""What a look at the queue answers, of made jobs at a known instant.

A search of jobs: what it finds, in PostgreSQL and in memory, and where it stops.
"""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
import pytest
from looking import ask
from store.samples import LEASE, MINUTE, NOON, adding, new_job, running, taking, worker_info

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import insight, searching
from pgqueue.store.jobs import finish
from pgqueue.store.limits import limit_control
from pgqueue.store.workers import leases
from pgqueue.testing import drain, in_memory
from pgqueue.values.jobs.job import AttemptError, Claim
from pgqueue.values.jobs.verdict import Died
from pgqueue.values.workers.health import WorkerHealth


def died(queue: PgQueue, claimed: Claim, message: str, at: Any = NOON, kind: str = "ValueError") -> None:
    error = AttemptError(attempt=claimed.attempt, type=kind, message=message)
    queue.database.run(
        finish.finish(claimed.worker_id, [Died(claimed, 1.0, "asked", error)], keep=True, now=at)
    )


def test_running_jobs_are_told_with_their_workers_and_since_when(queue: PgQueue) -> None:
    run = queue.database.run
    run(adding(new_job("bill"), new_job("mail")))
    first, second = run(taking())

    found = run(insight.running(now=NOON + MINUTE))

    assert found.complete
    assert [(one.job_id, one.task, one.attempt, one.seconds) for one in found.jobs] == [
        (first.id, "bill", 1, 60.0),
        (second.id, "mail", 1, 60.0),
    ]
    assert {one.worker for one in found.jobs} == {"host:1"}
    assert all(one.lost for one in found.jobs), "its lease has passed after a minute"
    assert not any(one.lost for one in run(insight.running(now=NOON)).jobs)
    assert [one.task for one in run(insight.running(task="mail", now=NOON)).jobs] == ["mail"]
    assert run(insight.running(queue="other", now=NOON)).jobs == ()


def test_jobs_that_two_workers_lost_have_one_error(queue: PgQueue) -> None:
    for worker in (uuid4(), uuid4()):
        died(queue, queue.database.run(running()), f"worker {worker} stopped renewing its lease", NOON)

    assert [one.jobs for one in queue.insight.errors().groups] == [2]


def test_the_dead_are_grouped_by_task_and_error_whatever_the_numbers_in_the_message(queue: PgQueue) -> None:
    run = queue.database.run
    claims = []
    for number in range(5):
        claimed = run(running(queue="default"))
        claims.append(claimed)
        died(queue, claimed, f"no order {10**number}\nsecond line {number}", NOON + number * MINUTE)
    other = run(running(task="mail"))
    died(queue, other, "refused", kind="SMTPError")

    found = run(insight.errors())

    assert (found.jobs, found.complete) == (6, True)
    most, least = found.groups
    assert (most.task, most.type, most.message, most.jobs, most.reason) == (
        "bill",
        "ValueError",
        "no order 10000",
        5,
        "asked",
    )
    assert (most.first_at, most.last_at, most.last_job) == (NOON, NOON + 4 * MINUTE, claims[-1].id)
    assert most.queues == ("default",)
    assert (least.type, least.jobs) == ("SMTPError", 1)
    assert [one.task for one in run(insight.errors(task="mail")).groups] == ["mail"]
    assert run(insight.errors(queue="none")).groups == ()


def test_of_many_dead_jobs_the_last_are_read_and_the_answer_says_so(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insight, "COUNTED", 2)
    for number in range(3):
        claimed = queue.database.run(running())
        died(queue, claimed, f"error {number}", NOON + number * MINUTE)

    found = queue.insight.errors()

    assert (found.jobs, found.complete) == (2, False)
    assert found.groups[0].first_at == NOON + MINUTE, "the last two"


def test_a_schedule_that_is_not_fired_is_late_and_one_that_is_paused_is_not(queue: PgQueue) -> None:
    @queue.task(name="report")
    def report() -> None: ...

    queue.schedules.add("hourly", report.call(), "0 * * * *")
    queue.schedules.add("paused", report.call(), "0 * * * *")
    queue.schedules.add("yearly", report.call(), "0 0 1 1 *")
    queue.schedules.pause("paused")
    due = queue.schedules.get("hourly").next
    assert due is not None

    found = queue.database.run(insight.schedules(now=due + 5 * MINUTE))

    assert [(one.name, one.state, one.lag) for one in found[:2]] == [
        ("hourly", "active", 300.0),
        ("paused", "paused", 0.0),
    ]
    assert found[1].next_at is None
    assert found[2].lag == 0.0 or found[2].next_at == due


def test_the_store_tells_tables_indices_history_and_who_holds_vacuum_back(queue: PgQueue, dsn: str) -> None:
    with psycopg.connect(dsn, application_name="a long report") as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select count(*) from pgqueue.jobs")
        pid = reader.info.backend_pid

        found = queue.insight.store()

    names = {one.name for one in found.tables}
    assert {"jobs", "dead_jobs", "job_history", "workers"} <= names
    assert not any(name.startswith("job_history_2") for name in names), "partitions are counted with theirs"
    assert found.bytes == sum(one.bytes for one in found.tables)
    assert "jobs_ready" in {one.name for one in found.indices}
    assert found.history_days >= 8
    assert found.history_from is not None
    assert found.history_to is not None
    assert found.history_to - found.history_from == timedelta(days=found.history_days - 1)
    held = next(one for one in found.horizon if one.name == "a long report")
    assert (held.kind, held.state) == ("session", "idle in transaction")
    assert held.pid == pid
    assert held.since is not None
    assert held.query_at is not None


async def test_each_answer_is_awaited_too_and_becomes_json(queue: PgQueue) -> None:
    @queue.task(name="bill")
    def bill() -> None: ...

    queue.schedules.add("hourly", bill.call(), "0 * * * *")
    claimed = queue.database.run(running())
    died(queue, claimed, "no")
    queue.database.run(running())
    see = queue.insight

    for blocking, awaited in [
        (see.queues(), await see.aqueues()),
        (see.running(), await see.arunning()),
        (see.errors(), await see.aerrors()),
        (see.schedules(), await see.aschedules()),
        (see.limits(), await see.alimits()),
        (see.store(), await see.astore()),
        (see.series(), await see.aseries()),
        (see.totals(), await see.atotals()),
    ]:
        made = msgspec.to_builtins(blocking)
        assert type(made) is type(msgspec.to_builtins(awaited))
        assert msgspec.json.encode(made)


def test_of_a_large_table_running_jobs_are_those_that_workers_named_and_those_under_limits(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insight, "WHOLE_PAGES", -1)
    run = queue.database.run
    worker = worker_info()
    run(leases.register(worker, LEASE, now=NOON))
    run(adding(*(new_job(f"task-{n}") for n in range(4))))
    claims = run(taking(worker=worker.id))
    named = WorkerHealth(running=[claims[1].id, claims[0].id, 12345])
    run(leases.renew(worker.id, LEASE, health=named, now=NOON))
    connection.execute("update pgqueue.jobs set lane = 'gate' where id = %s", [claims[3].id])
    connection.commit()

    found = run(insight.running(now=NOON))

    assert not found.complete
    assert [one.task for one in found.jobs] == ["task-0", "task-1", "task-3"]
    assert [one.task for one in run(insight.running(task="task-1", now=NOON)).jobs] == ["task-1"]


def test_limits_tell_what_runs_and_waits_and_of_a_large_table_about_how_many(
    queue: PgQueue, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("insert into pgqueue.limits (name, most, declared) values ('gate', 3, '3')")
    connection.execute(
        "insert into pgqueue.jobs (queue, task, status, lane, in_lane) select 'mail', 'send', 'blocked', 'gate', true "
        "from generate_series(1, 30000)"
    )
    connection.execute(
        "insert into pgqueue.jobs (queue, task, status, lane, claimed_at, worker_id) "
        "values ('mail', 'send', 'running', 'gate', now(), gen_random_uuid())"
    )
    connection.commit()

    (gate,) = queue.insight.limits()
    assert (gate.name, gate.running, gate.waiting, gate.lost, gate.estimated) == ("gate", 1, 30_000, 1, False)
    monkeypatch.setattr(limit_control, "WHOLE_PAGES", 150)
    (gate,) = queue.insight.limits()
    assert gate.estimated
    assert 15_000 < gate.waiting < 60_000
    assert gate.running == 1


def _sell(order_id: int, note: str = "") -> None:
    if not order_id:
        raise ConnectionError("no answer" + note)


def _filled(queue: PgQueue) -> PgQueue:
    """Jobs 1 to 6: dead, succeeded, then four that wait."""
    sell = queue.task(name="shop.sell", max_attempts=1)(_sell)
    mail = queue.task(name="shop.mail", queue="mail")(_sell)
    sell.enqueue(0)
    sell.enqueue(1)
    drain(queue, raises=False)
    sell.enqueue(2)
    mail.using(unique_key="once").enqueue(3, note="hello_world")
    mail.using(delay=3600).enqueue(4)
    sell.enqueue(10**15 + 5, note='a "quoted" wörd')
    return queue


CASES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [6, 5, 4, 3, 2, 1]),
    ({"limit": 2}, [6, 5]),
    ({"before": 3}, [2, 1]),
    ({"before": 0}, []),
    ({"state": "dead"}, [1]),
    ({"state": ["succeeded", "scheduled"]}, [5, 2]),
    ({"state": "running"}, []),
    ({"queue": "ma*"}, [5, 4]),
    ({"task": "shop.sell", "state": "ready"}, [6, 3]),
    ({"unique_key": "once"}, [4]),
    ({"args": {"order_id": 2}}, [3]),
    ({"args": {"note": "hello_world"}}, [4]),
    ({"args": {"note": 'a "quoted" wörd'}}, [6]),
    ({"args": {"order_id": 10**15 + 5}}, [6]),
    ({"args": {"order_id": "2"}}, []),
    ({"error": "ConnectionError"}, [1]),
    ({"error": "ValueError"}, []),
]


@pytest.mark.parametrize(("criteria", "ids"), CASES)
@pytest.mark.parametrize("place", ["postgresql", "memory"])
def test_a_search_finds_the_jobs_that_match_newest_first(
    queue: PgQueue, place: str, criteria: dict[str, Any], ids: list[int]
) -> None:
    if place == "memory":
        with in_memory(queue):
            found = _filled(queue).insight.search(**criteria)
    else:
        found = _filled(queue).insight.search(**criteria)
    assert [job.id for job in found.jobs] == ids
    assert found.looked_to is None


def test_a_search_stops_after_a_number_of_jobs_and_goes_on_from_there(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(queue)
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "LOOKED_AT", 2)
    monkeypatch.setattr(searching, "READ", 1)

    found = queue.insight.search(args={"note": "hello_world"})
    assert [job.id for job in found.jobs] == [4]
    found = queue.insight.search(task="no such task", state="ready")
    assert (found.jobs, found.looked_to) == ((), 4)
    assert queue.insight.search(task="no such task", state="ready", before=4).looked_to is None
    assert queue.insight.search(args={"order_id": 0}).looked_to == 5, "their arguments must be read"


def test_running_jobs_are_found_behind_any_backlog(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "LOOKED_AT", 1)
    sell = queue.task(name="shop.sell")(_sell)
    first = sell.enqueue(1)
    with queue.take(1, timeout=5):
        for number in range(5):
            sell.enqueue(number)
        found = queue.insight.search(state="running")
    assert ([job.id for job in found.jobs], found.looked_to) == ([first.id], None)


@pytest.mark.parametrize("criteria", [{}, {"state": ["ready", "dead"]}, {"queue": "mail"}])
def test_the_live_job_of_a_key_is_found_behind_any_number_of_newer_jobs(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, criteria: dict[str, Any]
) -> None:
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "LOOKED_AT", 1)
    sell = queue.task(name="shop.sell", queue="mail", max_attempts=1)(_sell)
    keyed = sell.using(unique_key="once").enqueue(1)
    for _ in range(3):
        sell.using(priority=9).enqueue(0)
    with queue.take(3, timeout=5) as jobs:
        for job in jobs:
            job.fail("no stock")

    found = queue.insight.search(unique_key="once", **criteria)
    assert ([job.id for job in found.jobs], found.looked_to is None) == ([keyed.id], False)
    assert queue.insight.search(unique_key="once", state="dead").jobs == ()
    assert queue.insight.search(unique_key="once", queue="default").jobs == ()
    assert queue.insight.search(unique_key="once", before=keyed.id).jobs == ()
    assert [job.id for job in queue.insight.search(unique_key="once", state="ready").jobs] == [keyed.id]


def test_a_found_job_has_its_last_error_and_no_long_arguments(queue: PgQueue) -> None:
    job = queue.task(name="shop.sell")(_sell).enqueue(1, note="x" * 20_000)
    errors = '[{"attempt": 1, "type": "A", "message": "a"}, {"attempt": 2, "type": "B", "message": "b"}]'
    ask(queue, "update pgqueue.jobs set errors = %s::jsonb", errors)
    (found,) = queue.insight.search().jobs
    assert (found.id, [one.type for one in found.errors]) == (job.id, ["B"])
    assert found.args["$not_kept"] > 20_000


def test_a_time_of_the_enqueue_is_a_criterion(queue: PgQueue) -> None:
    _filled(queue)
    at = queue.job(3).created_at
    ask(queue, "update pgqueue.jobs set created_at = %s where id = 6", at + timedelta(hours=1))
    assert [job.id for job in queue.insight.search(enqueued_after=at + timedelta(minutes=1)).jobs] == [6]
    assert 6 not in [job.id for job in queue.insight.search(enqueued_before=at + timedelta(minutes=1)).jobs]


def test_a_search_that_makes_no_sense_is_refused(queue: PgQueue) -> None:
    for criteria in ({"state": "lost"}, {"queue": ""}, {"limit": 0}, {"unique_key": "a\0"}, {"args": "x"}):
        with pytest.raises(InvalidOption):
            queue.insight.search(**criteria)

"""Why a job does not run, attacked: hostile names, what is gone between two statements, workers that are not able to run it."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, LiteralString
from uuid import uuid4

import pytest
from cli.commands import pgqueue
from looking import ask

from pgqueue import Limit, PgQueue, Rate, chain
from pgqueue.store.insight import why as store_why
from pgqueue.store.plan import Row, Statement, Steps, plan


@plan
def found_by(statement: Statement) -> Steps[Sequence[Row]]:
    """The rows of one statement of another plan."""
    return (yield statement)


HOSTILE = 'ev"il\n\x1b[31m; drop table jobs; --\u202e<script>'


@pytest.fixture
def note(queue: PgQueue) -> Any:
    @queue.task(name="note")
    def note(number: int = 0) -> None: ...

    return note


def worker(queue: PgQueue, says: LiteralString = "draining = null", **values: object) -> str:
    """A worker that is alive, and what its row says besides; its id."""
    name = str(uuid4())
    ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version) "
        "values (%s, now() + interval '5 min', 'box', 42, 2, '0')",
        name,
    )
    ask(queue, "update pgqueue.workers set " + says + " where id = %(name)s", name=name, **values)
    return name


BLOCKED: LiteralString = "blocked_task = 'slow', blocked_where = 'jobs.py:3 in slow', blocked_since = now()"


def test_a_blocked_worker_that_would_not_run_the_job_is_not_named(queue: PgQueue, note: Any) -> None:
    """A worker that drains, stops, or does not know the task takes no job, so its event loop keeps none from its start."""
    job = note.enqueue()
    worker(queue, BLOCKED + ", draining = true, host = 'drains'")
    worker(queue, BLOCKED + ", tasks = '{other}', host = 'other'")
    worker(queue, BLOCKED + ", host = 'able'")
    found = job.why()
    assert (found.reason, found.evidence["blocked_host"]) == ("worker blocked", "able")
    worker(queue)
    assert job.why().reason == "waiting"
    ask(queue, "delete from pgqueue.workers where host in ('able', 'box')")
    found = job.why()
    assert (found.reason, "blocked" in found.sentence) == ("task unknown", False)


def test_a_worker_that_says_nothing_of_its_slots_may_have_free_ones(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, "running = null, look_within = null, looked_at = null")
    assert job.why().reason == "waiting"
    ask(queue, "update pgqueue.workers set running = '{1, 2}'")
    assert job.why().reason == "no free slot"
    ask(queue, "update pgqueue.workers set slots = 3")
    assert job.why().reason == "waiting"


def test_workers_that_are_busy_and_blocked_are_told_apart(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, "running = '{8, 9}'")
    worker(queue, BLOCKED)
    found = job.why()
    assert found.reason == "no free slot"
    assert "at 1 of the 2 workers" in found.sentence
    assert "jobs.py:3 in slow" in found.sentence
    assert (found.evidence["busy"], found.evidence["blocked_workers"]) == (1, 1)
    assert found.evidence["causes"] == ["no free slot", "worker blocked"]


def test_a_busy_worker_that_does_not_look_for_jobs_is_counted_once(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, "running = '{8, 9}', looked_at = now() - interval '5 min', look_within = 60")
    worker(queue)
    assert job.why().reason == "waiting"


def test_hostile_names_and_messages_stay_on_one_line_of_the_terminal(
    queue: PgQueue, note: Any, dsn: str
) -> None:
    name = 'ev"il;\x1b[31m--\u202e<script>'
    job = note.using(queue=name, delay=60).enqueue()
    worker(queue, "host = %(host)s, running = '{1, 2}'", host=HOSTILE)
    queue.control.pause(name, by=HOSTILE, why=HOSTILE)
    ask(
        queue,
        "update pgqueue.jobs set attempts = 1, errors = %s::jsonb",
        json.dumps([{"type": HOSTILE, "message": HOSTILE}]),
    )
    shown = pgqueue("why", str(job.id), dsn=dsn).stdout
    assert not {"\x1b", "\u202e"} & set(shown)
    assert shown.count("\n") == 1
    found = json.loads(pgqueue("why", str(job.id), "--json", dsn=dsn).stdout)
    assert found["evidence"]["queue"] == name


@pytest.mark.parametrize(
    "errors",
    [
        "null",
        "7",
        "{}",
        "[]",
        "[null]",
        "[7]",
        '["x"]',
        '[{"crashed": "yes"}]',
        '[{"type": 7, "message": {}}]',
    ],
)
def test_errors_that_pgqueue_did_not_write_are_no_obstacle(queue: PgQueue, note: Any, errors: str) -> None:
    job = note.enqueue()
    ask(queue, "update pgqueue.jobs set attempts = 1, errors = %s::jsonb", errors)
    assert job.why().state == "ready"


def test_a_job_that_starts_or_goes_between_two_statements_is_explained(queue: PgQueue) -> None:
    @queue.task(name="send", limit=[Limit(1), Rate("1/hour", name="api")])
    def send(number: int) -> None: ...

    job = send.enqueue(1)
    steps = store_why.why(job.id).steps()
    first = next(steps)
    assert isinstance(first, Statement)
    second = steps.send(queue.database.run(found_by(first)))
    assert isinstance(second, Statement)
    assert second.name == "insight/why_limits"
    ask(queue, "delete from pgqueue.jobs")
    with pytest.raises(StopIteration) as ended:
        steps.send(queue.database.run(found_by(second)))
    assert ended.value.value.state == "blocked"


def test_a_limit_that_is_removed_while_a_job_waits_is_said_to_be_unknown(queue: PgQueue) -> None:
    @queue.task(name="send", limit=Limit(1, name="api"))
    def send(number: int) -> None: ...

    job = send.enqueue(1)
    worker(queue)
    ask(queue, "delete from pgqueue.limits")
    found = job.why()
    assert (found.reason, "'name:api'" in found.sentence) == ("limit unknown", True)


def test_a_job_whose_flow_is_gone_is_said_to_wait_for_what_is_recorded(queue: PgQueue, note: Any) -> None:
    flow = chain(note.call(1), note.call(2)).enqueue()
    (last,) = [one.id for one in queue.insight.search(state="blocked").jobs]
    ask(queue, "delete from pgqueue.flows where id = %s", flow.id)
    found = queue.why(last)
    assert (found.reason, found.sentence.startswith("it is blocked, and ")) == ("blocked", True)


def test_times_out_of_every_range_have_an_instant(queue: PgQueue, note: Any) -> None:
    job = note.using(delay=timedelta(days=9)).enqueue()
    for odd in ("infinity", "-infinity", "200000-01-01", "4000-01-01 BC"):
        ask(
            queue,
            "update pgqueue.jobs set status = 'scheduled', run_at = %s::timestamptz, expires_at = %s::timestamptz",
            odd,
            odd,
        )
        assert job.why().state == "scheduled"

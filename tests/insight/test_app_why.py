"""Why a job does not run: what is said of it, and what JobNotDone says when the time is over.

Why a job does not run, attacked: hostile names, what is gone between two statements, workers that are not able to run it.
"""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from cli.commands import pgqueue
from looking import ask
from running import Running

from pgqueue import Limit, PgQueue, Rate, Why, chain
from pgqueue.errors import JobNotDone, JobNotFound
from pgqueue.store.insight import why as store_why
from pgqueue.store.jobs import admission
from pgqueue.store.plan import Row, Statement, Steps, plan


@pytest.fixture
def note(queue: PgQueue) -> Any:
    @queue.task(name="note")
    def note() -> None: ...

    return note


def worker(
    queue: PgQueue, *, queues: list[str] | None = None, tasks: list[str] | None = None, alive: bool = True
) -> str:
    name = str(uuid4())
    ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, queues, tasks) "
        "values (%s, now() + %s, 'box', 42, 20, '0', %s, %s)",
        name,
        timedelta(minutes=5 if alive else -5),
        queues,
        tasks,
    )
    return name


def said(queue: PgQueue, job_id: int) -> tuple[str, str]:
    """The reason and the sentence, in which each instant is AT."""
    found = queue.why(job_id)
    return found.reason, timeless(found.sentence)


def timeless(sentence: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "AT", sentence)


def test_a_ready_job_without_any_worker_says_how_to_start_one(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, alive=False)
    reason, sentence = said(queue, job.id)
    assert reason == "no worker"
    assert sentence.startswith("it is ready, and has been due for 0")
    assert sentence.endswith(" s; no worker is alive: start one with `pgqueue worker`")


def test_a_job_in_a_queue_that_no_worker_serves_says_so(queue: PgQueue, note: Any) -> None:
    job = note.using(queue="mail").enqueue()
    worker(queue, queues=["default", "urgent"])
    reason, sentence = said(queue, job.id)
    assert reason == "no worker"
    assert "; the only live worker does not serve queue 'mail': start one that serves it (" in sentence


def test_a_job_of_a_paused_queue_says_how_to_resume_it(queue: PgQueue, note: Any) -> None:
    job = note.using(queue="mail").enqueue()
    worker(queue)
    queue.control.pause("mail", by="ann", why="SMTP is down")
    ask(queue, "update pgqueue.queues set paused_at = now() - interval '3 hours'")
    reason, sentence = said(queue, job.id)
    assert (reason, sentence.split("; ")[1]) == (
        "paused",
        "queue 'mail' has been paused for 3 h, since AT, by ann (SMTP is down): run `pgqueue queues resume mail`",
    )
    evidence = job.why().evidence
    assert (evidence["paused_by"], evidence["paused_why"], evidence["serving"]) == ("ann", "SMTP is down", 1)


def test_a_job_whose_workers_are_quiet_or_do_not_look_for_jobs_says_so(queue: PgQueue, note: Any) -> None:
    job, name = note.enqueue(), worker(queue)
    ask(queue, "update pgqueue.workers set looked_at = now() - interval '5 min', look_within = 600")
    assert said(queue, job.id)[0] == "waiting"
    ask(queue, "update pgqueue.workers set look_within = 60 where id = %s", name)
    assert said(queue, job.id)[1].endswith(
        "; no worker of queue 'default' has looked for jobs in time, of 1 live worker"
    )
    ask(queue, "update pgqueue.workers set quiet = true")
    assert said(queue, job.id)[1].endswith(
        "; of queue 'default' 1 live worker is quiet (`pgqueue workers resume` ends that), and no other serves it"
    )


def test_a_job_that_has_expired_and_is_not_yet_dead_says_so(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    ask(queue, "update pgqueue.jobs set expires_at = (now() - interval '1 min')")
    assert said(queue, job.id)[1].endswith(
        "; it has expired: a worker moves it to the dead jobs at its next sweep"
    )


def test_the_command_prints_the_sentence_or_with_json_its_evidence(note: Any, dsn: str) -> None:
    job = note.using(delay=timedelta(hours=3)).enqueue()
    told = pgqueue("why", str(job.id), dsn=dsn).stdout
    assert timeless(told).startswith("it is due in 3 h, at AT; no worker is alive")
    found = json.loads(pgqueue("why", str(job.id), "--json", dsn=dsn).stdout)
    assert (found["job_id"], found["reason"], found["evidence"]["alive"]) == (job.id, "not due", 0)


def test_the_command_fails_where_there_is_no_record_of_the_job(dsn: str) -> None:
    told = pgqueue("why", "999", dsn=dsn)
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.startswith("there is no record of it: ")
    found = pgqueue("why", "999", "--json", dsn=dsn)
    assert (found.exit_code, json.loads(found.stdout)["reason"], found.stderr) == (1, "no record", "")


def test_a_job_whose_task_no_worker_has_says_so(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, tasks=["other"])
    reason, sentence = said(queue, job.id)
    assert reason == "task unknown"
    assert "no live worker of queue 'default' runs task 'note': is its module" in sentence
    worker(queue, tasks=["note"])
    assert said(queue, job.id)[0] == "waiting"


def test_a_job_whose_task_no_worker_has_says_since_when(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    worker(queue, tasks=["other"])
    ask(
        queue,
        "insert into pgqueue.unknown_tasks select 'default', 'note', now() - interval '5 minutes', now()",
    )
    told = said(queue, job.id)[1]  # a busy machine takes a second to ask
    assert re.search(
        r"no live worker of queue 'default' runs task 'note', and none has for 5(\.\d+)? min: is", told
    )


def test_a_ready_job_says_how_many_come_before_it(queue: PgQueue, note: Any) -> None:
    first = note.using(priority=1).enqueue()
    queue.enqueue_many(note.call() for _ in range(1_200))
    last, urgent = note.enqueue(), note.using(priority=2).enqueue()
    note.using(queue="mail", priority=9).enqueue()
    worker(queue)
    worker(queue, queues=["default"])
    assert ", behind 1 ready job; 2 workers with 40 slots serve its queue" in said(queue, first.id)[1]
    assert ", behind 1,202 ready jobs; " in said(queue, last.id)[1]
    assert "; it is next, and 2 workers with 40 slots serve its queue" in said(queue, urgent.id)[1]


def test_a_scheduled_job_says_when_it_is_due_and_what_else_is_in_its_way(queue: PgQueue, note: Any) -> None:
    job = note.using(delay=timedelta(hours=3)).enqueue()
    assert said(queue, job.id) == (
        "not due",
        "it is due in 3 h, at AT; no worker is alive: start one with `pgqueue worker`",
    )
    ask(
        queue,
        'update pgqueue.jobs set attempts = 2, errors = \'[{"type": "OSError"}, {"type": "KeyError", "message": "no x\\nmore"}]\'::jsonb',
    )
    worker(queue)
    assert said(queue, job.id)[1] == (
        "it is due in 3 h, at AT, after 2 of 25 attempts failed, the last with KeyError: no x; 1 worker with 20 slots serves its queue"
    )


def test_a_running_job_says_where_and_since_when(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    name = worker(queue)
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', attempts = 3, worker_id = %s, "
        "claimed_at = now() - interval '10 minutes'",
        name,
    )
    assert said(queue, job.id) == (
        "running",
        "attempt 3 of 25 has been running for 10 min, since AT, on box, process 42",
    )
    ask(queue, "update pgqueue.workers set heard_at = now() - interval '1 hour'")
    assert "; its worker was last heard of 60 min ago: if it stays silent, " in said(queue, job.id)[1]
    ask(queue, "update pgqueue.workers set heard_at = now()")
    queue.cancel(job.id)
    assert said(queue, job.id)[1].endswith("; its worker has been asked to cancel it")
    ask(queue, "delete from pgqueue.workers")
    reason, sentence = said(queue, job.id)
    assert (reason, "its worker is gone: no worker is alive" in sentence) == ("worker lost", True)
    worker(queue)
    assert "its worker is gone: another worker takes the job over" in said(queue, job.id)[1]


BLOCKED = """
update pgqueue.workers set blocked_since = now() - %s, blocked_job = %s, blocked_task = 'report',
                           blocked_where = 'jobs.py:3 in report' where id = %s
"""


def block(queue: PgQueue, name: str, job: int | None, *, minutes: int = 3) -> None:
    """What a worker's heartbeat says while its event loop is blocked."""
    ask(queue, BLOCKED, timedelta(minutes=minutes), job, name)


def test_a_running_job_says_that_it_blocks_the_loop_or_is_held_up_by_another(
    queue: PgQueue, note: Any
) -> None:
    job, name = note.enqueue(), worker(queue)
    block(queue, worker(queue), 1, minutes=30)
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', attempts = 1, worker_id = %s, claimed_at = now() - interval '10 min'",
        name,
    )
    assert "block" not in said(queue, job.id)[1]
    block(queue, name, job.id)
    assert said(queue, job.id) == (
        "running",
        (
            "attempt 1 of 25 has been running for 10 min, since AT, on box, process 42; "
            "it has blocked its worker's event loop for 3 min at jobs.py:3 in report"
        ),
    )
    block(queue, name, job.id + 1)
    assert said(queue, job.id)[1].endswith(
        f"; the event loop of its worker has been blocked for 3 min by task report (job {job.id + 1}) at jobs.py:3 in report"
    )


def test_a_ready_job_says_that_all_workers_of_its_queue_are_blocked(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    one, other = worker(queue), worker(queue, queues=["default"])
    worker(queue, queues=["mail"])
    block(queue, one, None)
    block(queue, worker(queue, alive=False), 7, minutes=30)
    block(queue, worker(queue, queues=["mail"]), 7, minutes=30)
    assert said(queue, job.id)[0] == "waiting"
    block(queue, other, 5, minutes=2)
    reason, sentence = said(queue, job.id)
    assert (reason, sentence.split("; ")[1]) == (
        "worker unresponsive",
        (
            "2 workers serve queue 'default', and none claims jobs now: "
            "the event loop of box, process 42, has been blocked for 3 min by asyncio task report at jobs.py:3 in report"
        ),
    )


def test_a_blocked_job_says_what_it_waits_for(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    queue.database.run(admission.block([job.id], ["limit mail", "job 7"]))
    assert said(queue, job.id) == ("blocked", "it is blocked, and waits for 'job 7', 'limit mail'")
    ask(
        queue,
        "insert into pgqueue.waits select repeat(n::text, 500), %s from generate_series(1, 9) as n",
        job.id,
    )
    assert said(queue, job.id)[1] == (
        "it is blocked, and waits for " + ", ".join(f"'{str(n) * 200}'" for n in range(1, 6)) + ", and more"
    )
    ask(queue, "delete from pgqueue.waits")
    assert "nothing is recorded that it waits for" in said(queue, job.id)[1]


async def test_a_job_that_has_ended_says_how(queue: PgQueue, note: Any, running: Running) -> None:
    job, other = note.enqueue(), note.enqueue()
    other.cancel()
    async with running(queue):
        await job.aresult(timeout=20)
        assert (await queue.awhy(job.id)).reason == (await job.awhy()).reason == "ended"
    assert said(queue, job.id)[1].startswith("it succeeded ")
    assert said(queue, other.id)[1].startswith("it was cancelled ")


def test_a_job_without_a_record_may_not_be_committed_yet(
    queue: PgQueue, note: Any, connection: psycopg.Connection[object]
) -> None:
    job = note.using(connection=connection).enqueue()
    words = r"it was not committed \(yet\), or was rolled back, or its history has been dropped"
    with pytest.raises(JobNotFound, match=words):
        job.status()
    with pytest.raises(JobNotFound, match=words):
        job.result()
    assert queue.why(job.id) == Why(
        job.id,
        None,
        "no record",
        "there is no record of it: it was not committed (yet), or was rolled back, or its history has been dropped",
    )


async def test_a_wait_that_is_over_says_why(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    words = rf"^job {job.id} has not ended within 0\.2 s: it is ready, .* no worker is alive"
    with pytest.raises(JobNotDone, match=words):
        job.result(timeout=0.2)
    with pytest.raises(JobNotDone, match=words):
        await job.aresult(timeout=timedelta(seconds=0.2))
    await queue.aclose()


def test_times_that_no_program_can_do_sums_with_are_no_obstacle(queue: PgQueue, note: Any) -> None:
    job = note.enqueue()
    for odd in ("infinity", "-infinity", "200000-01-01", "4000-01-01 BC"):
        ask(queue, "update pgqueue.jobs set run_at = %s::timestamptz", odd)
        assert queue.why(job.id).state == "ready"


@plan
def found_by(statement: Statement) -> Steps[Sequence[Row]]:
    """The rows of one statement of another plan."""
    return (yield statement)


HOSTILE = 'ev"il\n\x1b[31m; drop table jobs; --\u202e<script>'


@pytest.fixture
def numbered(queue: PgQueue) -> Any:
    @queue.task(name="note")
    def numbered(number: int = 0) -> None: ...

    return numbered


def live_worker(queue: PgQueue, says: LiteralString = "quiet = null", **values: object) -> str:
    """A live_worker that is alive, and what its row says besides; its id."""
    name = str(uuid4())
    ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version) "
        "values (%s, now() + interval '5 min', 'box', 42, 2, '0')",
        name,
    )
    ask(queue, "update pgqueue.workers set " + says + " where id = %(name)s", name=name, **values)
    return name


BLOCKED_NOW: LiteralString = (
    "blocked_task = 'slow', blocked_where = 'jobs.py:3 in slow', blocked_since = now()"
)


def test_a_blocked_worker_that_would_not_run_the_job_is_not_named(queue: PgQueue, numbered: Any) -> None:
    """A live_worker that is quiet, stops, or does not know the task takes no job, so its event loop keeps none from its start."""
    job = numbered.enqueue()
    live_worker(queue, BLOCKED_NOW + ", quiet = true, host = 'quiet'")
    live_worker(queue, BLOCKED_NOW + ", tasks = '{other}', host = 'other'")
    live_worker(queue, BLOCKED_NOW + ", host = 'able'")
    found = job.why()
    assert (found.reason, found.evidence["blocked_host"]) == ("worker unresponsive", "able")
    live_worker(queue)
    assert job.why().reason == "waiting"
    ask(queue, "delete from pgqueue.workers where host in ('able', 'box')")
    found = job.why()
    assert (found.reason, "blocked" in found.sentence) == ("task unknown", False)


def test_a_worker_that_says_nothing_of_its_slots_may_have_free_ones(queue: PgQueue, numbered: Any) -> None:
    job = numbered.enqueue()
    live_worker(queue, "running = null, look_within = null, looked_at = null")
    assert job.why().reason == "waiting"
    ask(queue, "update pgqueue.workers set running = '{1, 2}'")
    assert job.why().reason == "no free slot"
    ask(queue, "update pgqueue.workers set slots = 3")
    assert job.why().reason == "waiting"


def test_workers_that_are_busy_and_blocked_are_told_apart(queue: PgQueue, numbered: Any) -> None:
    job = numbered.enqueue()
    live_worker(queue, "running = '{8, 9}'")
    live_worker(queue, BLOCKED_NOW)
    found = job.why()
    assert found.reason == "no free slot"
    assert "at 1 of the 2 workers" in found.sentence
    assert "jobs.py:3 in slow" in found.sentence
    assert (found.evidence["busy"], found.evidence["blocked_workers"]) == (1, 1)
    assert found.evidence["causes"] == ["no free slot", "worker unresponsive"]


def test_a_busy_worker_that_does_not_look_for_jobs_is_counted_once(queue: PgQueue, numbered: Any) -> None:
    job = numbered.enqueue()
    live_worker(queue, "running = '{8, 9}', looked_at = now() - interval '5 min', look_within = 60")
    live_worker(queue)
    assert job.why().reason == "waiting"


def test_hostile_names_and_messages_stay_on_one_line_of_the_terminal(
    queue: PgQueue, numbered: Any, dsn: str
) -> None:
    name = 'ev"il;\x1b[31m--\u202e<script>'
    job = numbered.using(queue=name, delay=60).enqueue()
    live_worker(queue, "host = %(host)s, running = '{1, 2}'", host=HOSTILE)
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
def test_errors_that_pgqueue_did_not_write_are_no_obstacle(
    queue: PgQueue, numbered: Any, errors: str
) -> None:
    job = numbered.enqueue()
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
    live_worker(queue)
    ask(queue, "delete from pgqueue.limits")
    found = job.why()
    assert (found.reason, "'name:api'" in found.sentence) == ("limit unknown", True)


def test_a_job_whose_flow_is_gone_is_said_to_wait_for_what_is_recorded(queue: PgQueue, numbered: Any) -> None:
    flow = chain(numbered.call(1), numbered.call(2)).enqueue()
    (last,) = [one.id for one in queue.insight.search(state="blocked").jobs]
    ask(queue, "delete from pgqueue.flows where id = %s", flow.id)
    found = queue.why(last)
    assert (found.reason, found.sentence.startswith("it is blocked, and ")) == ("blocked", True)


def test_times_out_of_every_range_have_an_instant(queue: PgQueue, numbered: Any) -> None:
    job = numbered.using(delay=timedelta(days=9)).enqueue()
    for odd in ("infinity", "-infinity", "200000-01-01", "4000-01-01 BC"):
        ask(
            queue,
            "update pgqueue.jobs set status = 'scheduled', run_at = %s::timestamptz, expires_at = %s::timestamptz",
            odd,
            odd,
        )
        assert job.why().state == "scheduled"

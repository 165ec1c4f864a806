"""What a queue says of its jobs where neither the enqueue nor the task does; and a closed queue takes none."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, until
from running import Running
from worker.helping import ended

from pgqueue import Context, JobState, PgQueue, Retry, Throttle, Unique, chain
from pgqueue.errors import QueueClosed
from pgqueue.store import retention
from pgqueue.values.queues.defaults import FRESH_FOR, QueueCache

Ways = dict[str, Callable[..., int]]


@pytest.fixture
def ways(queue: PgQueue) -> Ways:
    """Each way to enqueue a job of the task ``send`` to the queue mail, with options."""
    task = queue.task(name="send", queue="mail")(lambda: None)

    def keyed(**options: Any) -> int:
        return task.using(unique_key="a", **options).enqueue().id

    def for_period(**options: Any) -> int:
        return task.using(unique_key="b", unique=Unique(period=timedelta(minutes=1)), **options).enqueue().id

    def trailing(**options: Any) -> int:
        return task.using(unique_key="e", unique=Throttle(60, trailing=True), **options).enqueue().id

    return {
        "trailing": trailing,
        "plain": lambda **options: task.using(**options).enqueue().id,
        "delayed": lambda **options: task.using(delay=60, **options).enqueue().id,
        "many": lambda **options: queue.enqueue_many([task.using(**options).call()])[0].id,
        "keyed": keyed,
        "for a period": for_period,
        "keyed in a batch": lambda **options: (
            queue.enqueue_many([task.using(unique_key="c", **options).call()])[0].id
        ),
        "in a flow": lambda **options: job_of(queue, chain(task.using(**options).call()).enqueue().id),
        "keyed in a flow": lambda **options: job_of(
            queue, chain(task.using(unique_key="d", **options).call()).enqueue().id
        ),
    }


def job_of(queue: PgQueue, flow: int) -> int:
    """The job of a flow of one job."""
    ((job,),) = ask(queue, "select job_id from pgqueue.nodes where flow_id = %s and job_id is not null", flow)
    return int(job)


WAYS = (
    "trailing",
    "plain",
    "delayed",
    "many",
    "keyed",
    "for a period",
    "keyed in a batch",
    "in a flow",
    "keyed in a flow",
)


@pytest.mark.parametrize("way", WAYS)
def test_an_enqueue_has_what_the_call_says_or_else_the_queue(queue: PgQueue, ways: Ways, way: str) -> None:
    queue.control.declare("mail", priority=7, max_attempts=3)
    job = queue.job(ways[way]())
    assert (job.priority, job.max_attempts) == (7, 3)
    if "keyed" in way or "period" in way:
        queue.cancel(job.id)
        ask(queue, "delete from pgqueue.unique_holds returning 1")
    job = queue.job(ways[way](priority=-1, max_attempts=9))
    assert (job.priority, job.max_attempts) == (-1, 9)


def test_the_task_says_it_before_the_queue_and_the_package_says_it_last(queue: PgQueue) -> None:
    queue.control.declare("mail", priority=7, max_attempts=3)
    options: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({}, (7, 3)),
        ({"priority": 0}, (0, 3)),
        ({"max_attempts": 25}, (7, 25)),
        ({"retry": 5}, (7, 5)),
        ({"retry": Retry()}, (7, 3)),
        ({"queue": "other"}, (0, 25)),
    ]
    for number, (said, expected) in enumerate(options):
        task = queue.task(name=f"task{number}", **{"queue": "mail", **said})(lambda: None)
        job = queue.job(task.enqueue().id)
        assert (job.priority, job.max_attempts) == expected, said


@pytest.mark.parametrize("way", WAYS)
def test_a_closed_queue_takes_no_jobs_until_it_is_resumed(queue: PgQueue, ways: Ways, way: str) -> None:
    queue.control.close("mail", by="ann")
    with pytest.raises(QueueClosed, match="queue 'mail' is closed"):
        ways[way]()
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(0,)]
    queue.control.resume("mail")
    assert ask(queue, "select id from pgqueue.jobs where id = %s", ways[way]())


async def test_the_jobs_of_a_closed_queue_run(queue: PgQueue, ways: Ways, running: Running) -> None:
    job = ways["plain"]()
    queue.control.close("mail")
    async with running(queue):
        await until(lambda: queue.job(job).state.ended)
    assert queue.job(job).state is JobState.SUCCEEDED
    assert [one.queue for one in queue.insight.queues() if one.closed_at] == ["mail"]


async def test_a_flow_that_runs_adds_jobs_to_a_closed_queue(queue: PgQueue, running: Running) -> None:
    late = queue.task(name="late", queue="mail")(lambda: None)

    @queue.task(name="grow", max_attempts=1)
    def grow(ctx: Context) -> None:
        queue.control.close("mail")
        ctx.flow.add("late", late.call())

    chain(grow.call()).enqueue()
    async with running(queue):
        await until(lambda: ask(queue, "select 1 from pgqueue.job_history where task = 'late'"))


def test_the_sql_function_has_what_the_queue_says_and_refuses_a_closed_one(queue: PgQueue) -> None:
    queue.control.declare("mail", priority=7, max_attempts=3)
    ((job,),) = ask(queue, "select pgqueue.enqueue('send', queue => 'mail')")
    assert (queue.job(job).priority, queue.job(job).max_attempts) == (7, 3)
    ((job,),) = ask(
        queue, "select pgqueue.enqueue('send', queue => 'mail', priority => 0, max_attempts => 1)"
    )
    assert (queue.job(job).priority, queue.job(job).max_attempts) == (0, 1)
    ((job,),) = ask(
        queue, "select pgqueue.enqueue('send', queue => 'mail', priority => null, max_attempts => null)"
    )
    assert (queue.job(job).priority, queue.job(job).max_attempts) == (7, 3)
    ((job,),) = ask(queue, "select pgqueue.enqueue('send')")
    assert (queue.job(job).priority, queue.job(job).max_attempts) == (0, 25)
    queue.control.close("mail")
    with pytest.raises(psycopg.errors.CheckViolation, match="is closed"):
        ask(queue, "select pgqueue.enqueue('send', queue => 'mail')")


def test_a_schedules_jobs_have_what_the_queue_says_at_the_tick(queue: PgQueue) -> None:
    task = queue.task(name="send", queue="mail")(lambda: None)
    queue.schedules.add("daily", task.call(), "@daily")
    queue.control.declare("mail", priority=7, max_attempts=3)
    fired = queue.schedules.fire("daily")
    assert fired is not None
    assert (queue.job(fired.id).priority, queue.job(fired.id).max_attempts) == (7, 3)


def test_what_is_remembered_of_a_queue_is_asked_again_after_a_second(queue: PgQueue, ways: Ways) -> None:
    now = [0.0]
    queue.database.known = QueueCache(lambda: now[0])
    assert queue.job(ways["plain"]()).priority == 0
    ask(queue, "insert into pgqueue.queues (name, priority) values ('mail', 7) returning 1")
    assert queue.job(ways["plain"]()).priority == 0, "it is remembered"
    assert queue.job(ways["plain"](priority=3)).priority == 3
    now[0] += FRESH_FOR + 0.01
    assert queue.job(ways["plain"]()).priority == 7


async def test_a_queues_timeout_ends_attempts_whose_task_names_none(queue: PgQueue, running: Running) -> None:
    @queue.task(name="wait", queue="mail", max_attempts=1)
    async def wait() -> None:
        await asyncio.sleep(3600)

    async with running(queue, sweep=3600) as worker:
        executor = worker.parts.executor  # its timeouts say when a poll has read the queue's
        queue.control.set("mail", timeout=0.05)
        await until(lambda: executor.timeouts == {"mail": timedelta(seconds=0.05)})
        job = wait.enqueue()
        (record,) = await ended(queue, job)
        assert record.state is JobState.DEAD
        assert record.errors[-1].type.endswith("TimedOut")
        queue.control.set("mail", unset=["timeout"])
        await until(lambda: not executor.timeouts)


async def test_a_queue_that_keeps_no_history_keeps_no_job_that_succeeded(
    queue: PgQueue, running: Running
) -> None:
    def send(*, fails: bool = False) -> None:
        if fails:
            raise ValueError

    mail, other = (queue.task(name=name, queue=name, max_attempts=1)(send) for name in ("mail", "other"))
    queue.control.declare("mail", keep_history=0)
    jobs = [mail.enqueue(), other.enqueue(), mail.enqueue(fails=True)]
    async with running(queue):
        await until(lambda: ask(queue, "select count(*) from pgqueue.jobs") == [(0,)])
    assert ask(queue, "select queue from pgqueue.job_history") == [("other",)]
    assert ask(queue, "select id from pgqueue.dead_jobs") == [(jobs[2].id,)]


def test_dead_jobs_are_kept_as_long_as_their_queue_says(queue: PgQueue) -> None:
    ask(
        queue,
        "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, reason,"
        " queue, task, args) select n, now(), now(), now() - n * interval '1 day', 0, 0, 1, 1, 'asked',"
        " case when n % 2 = 0 then 'mail' else 'other' end, 't', '{}' from generate_series(1, 6) n returning 1",
    )
    queue.control.declare("mail", keep_dead=timedelta(days=3))
    assert queue.database.run(retention.drop_dead()) == 2
    assert ask(queue, "select id from pgqueue.dead_jobs order by id") == [(1,), (2,), (3,), (5,)]
    queue.database.run(retention.keep_for(None, timedelta(days=4), said_by="test"))
    queue.control.set("mail", keep_dead=timedelta(days=365))
    assert queue.database.run(retention.drop_dead()) == 1
    assert ask(queue, "select id from pgqueue.dead_jobs order by id") == [(1,), (2,), (3,)]

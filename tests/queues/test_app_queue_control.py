"""Queues as operators see them: paused by name and pattern, with who and why; settings, declared and changed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from looking import ask, wait_until
from running import Running
from worker.helping import ended

from pgqueue import Dead, JobState, Limit, PgQueue
from pgqueue.errors import InvalidOption, QueueClosed, QueueExists, UnknownQueue
from pgqueue.store.workers.leases import WorkerInfo, register
from pgqueue.values.queues.settings import NO_SETTINGS, QueueSettings


def known(queue: PgQueue) -> dict[str, Any]:
    return {one.queue: one for one in queue.insight.queues()}


def test_a_pause_keeps_the_first_name_and_reason_and_goes_with_the_resume(queue: PgQueue) -> None:
    assert queue.control.pause("mail", why="SMTP is down", by="ann")
    assert not queue.control.pause("mail", why="again", by="bob")
    paused = known(queue)["mail"]
    assert (paused.paused_by, paused.paused_why) == ("ann", "SMTP is down")

    assert queue.control.resume("mail", by="bob")
    assert not queue.control.resume("mail")
    again = known(queue)["mail"]
    assert (again.paused_at, again.paused_by, again.paused_why) == (None, None, None)
    noted = ask(queue, "select said_by, action, target, details ->> 'why' from pgqueue.audit order by id")
    assert noted == [("ann", "pause", "mail", "SMTP is down"), ("bob", "resume", "mail", None)]


def test_a_close_keeps_the_first_name_and_reason_and_goes_with_the_resume(queue: PgQueue) -> None:
    assert queue.control.close("mail", why="it moves", by="ann")
    assert not queue.control.close("mail", why="again", by="bob")
    closed = known(queue)["mail"]
    assert (closed.closed_by, closed.closed_why) == ("ann", "it moves")
    assert queue.control.resume("mail")
    assert known(queue)["mail"].closed_at is None


def test_a_pattern_stands_for_the_queues_that_there_are(queue: PgQueue) -> None:
    task = queue.task(name="send")(lambda: None)
    for name in ("mail-a", "mail-b", "reports", "mail.c"):
        task.using(queue=name).enqueue()
    assert queue.control.pause("mail-*")
    assert {name for name, one in known(queue).items() if one.paused_at} == {"mail-a", "mail-b"}
    assert not queue.control.pause("nothing-*")
    assert queue.control.pause("*")
    assert {name for name, one in known(queue).items() if one.paused_at} == {
        "mail-a",
        "mail-b",
        "mail.c",
        "reports",
    }
    assert queue.control.resume("*")
    assert not [one for one in known(queue).values() if one.paused_at]


def test_a_pattern_stands_for_queues_of_dead_jobs_and_of_live_workers_too(queue: PgQueue) -> None:
    queue.task(name="send", queue="mail-dead", max_attempts=1)(lambda: None).enqueue()
    with queue.take(1, timeout=5) as jobs:
        jobs[0].fail(Dead("no such address"))
    for lease, entries in ((1, ["mail-served", "mail-a*", "!mail-not"]), (-1, ["mail-gone"])):
        worker = WorkerInfo(uuid4(), "host", 1, 1, "0", entries)
        queue.database.run(register(worker, timedelta(hours=lease)))
    assert queue.control.pause("mail-*")
    assert known(queue).keys() == {"mail-dead", "mail-served"}


async def test_a_process_that_changes_a_queue_knows_it_at_once(queue: PgQueue) -> None:
    """What others change acts within a second, as a process remembers for so long what a queue says."""
    send = queue.task(name="send", queue="mail")(lambda: None)

    async def sent() -> int:
        return (await queue.ajob((await send.aenqueue()).id)).priority

    assert await sent() == 0
    queue.control.declare("mail", priority=5)
    assert await sent() == 5
    queue.control.set("mail", priority=6)
    assert await sent() == 6
    queue.control.close("mail")
    with pytest.raises(QueueClosed):
        await sent()
    queue.control.resume("mail")
    assert await sent() == 6
    await queue.control.aclose("mail")
    with pytest.raises(QueueClosed):
        await sent()


def test_settings_that_change_nothing_are_not_noted(queue: PgQueue) -> None:
    for _ in range(2):
        queue.control.set("mail", priority=5)
        queue.control.declare("mail", priority=5)
    assert ask(queue, "select action, target from pgqueue.audit") == [("set", "mail")]


def test_a_declaration_that_contradicts_itself_changes_nothing(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="the queue has no backlog, so it is never full"):
        queue.control.declare("mail", when_full="refuse")
    with pytest.raises(InvalidOption, match="the queue has no ageing"):
        queue.control.declare("mail", ageing_to=5)
    assert known(queue) == {}


def test_an_update_of_the_row_clears_who_paused_it(queue: PgQueue) -> None:
    queue.control.pause("mail", why="SMTP is down", by="ann")
    ask(queue, "update pgqueue.queues set paused_at = null where name = 'mail' returning 1")
    ask(queue, "update pgqueue.queues set paused_at = now() where name = 'mail' returning 1")
    assert known(queue)["mail"].paused_by is None


def test_sql_functions_pause_and_resume(queue: PgQueue) -> None:
    assert ask(queue, "select pgqueue.pause_queue('mail', why => 'SMTP is down', said_by => 'ann')") == [
        (True,)
    ]
    assert ask(queue, "select pgqueue.pause_queue('mail')") == [(False,)]
    assert (known(queue)["mail"].paused_by, known(queue)["mail"].paused_why) == ("ann", "SMTP is down")
    assert ask(queue, "select pgqueue.resume_queue('mail')") == [(True,)]
    assert ask(queue, "select pgqueue.resume_queue('mail')") == [(False,)]
    with pytest.raises(psycopg.errors.CheckViolation, match="white space"):
        ask(queue, "select pgqueue.pause_queue('two words')")


async def test_a_resume_by_sql_wakes_an_idle_worker(queue: PgQueue, running: Running) -> None:
    @queue.task(queue="mail")
    async def send() -> None: ...

    queue.control.pause("mail")
    job = send.enqueue()
    async with running(queue, poll=60):
        await ended(queue, queue.task(name="other", queue="other")(lambda: None).enqueue())
        assert job.status() is JobState.READY
        ask(queue, "select pgqueue.resume_queue('mail')")
        await ended(queue, job)


def test_a_declaration_keeps_replaces_or_fails_where_there_are_other_settings(queue: PgQueue) -> None:
    control = queue.control
    first = control.declare("mail", priority=5, timeout=30)
    assert first == QueueSettings(priority=5, timeout=timedelta(seconds=30))
    assert control.declare("mail", priority=6) == first
    assert control.declare("mail", priority=5, timeout=timedelta(seconds=30), existing="fail") == first
    with pytest.raises(
        QueueExists, match=r"'mail' has other settings: priority=5 \(given: 6\), timeout=0:00:30"
    ):
        control.declare("mail", priority=6, existing="fail")
    assert known(queue)["mail"].settings == first
    assert control.declare("mail", priority=6, existing="replace") == QueueSettings(priority=6)
    assert known(queue)["mail"].settings == QueueSettings(priority=6)


def test_a_change_leaves_the_other_settings(queue: PgQueue) -> None:
    queue.control.declare("mail", priority=5, max_attempts=3)
    assert queue.control.set("mail", priority=7) == QueueSettings(priority=7, max_attempts=3)
    assert queue.control.set("mail", unset=["priority", "max_attempts"]) == NO_SETTINGS


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"priority": 101}, "from -100 to 100"),
        ({"max_attempts": 0}, "from 1 to 32767"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"keep_dead": -1}, "keep_dead"),
        ({"keep_history": 3}, "whole days"),
        ({"prioriti": 3}, "did you mean"),
        ({"existing": "merge"}, "use one of 'keep', 'replace', 'fail'"),
    ],
)
def test_settings_out_of_range_are_refused_and_change_nothing(
    queue: PgQueue, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOption, match=said):
        queue.control.declare("mail", **settings)
    assert known(queue) == {}


def test_a_pattern_is_refused_where_one_queue_is_meant(queue: PgQueue) -> None:
    """Else settings would be stored that hold for no queue, and jobs moved to one that no command can name."""
    job = queue.task(name="send")(lambda: None).enqueue()
    for wrong in (
        lambda: queue.control.declare("mail-*", priority=1),
        lambda: queue.control.set("mail-*", priority=1),
        lambda: queue.control.limits.set("queue:mail-*", Limit(1)),
        lambda: queue.control.jobs(queue="default").move("mail-*"),
    ):
        with pytest.raises(InvalidOption, match=r"'mail-\*': name one queue"):
            wrong()
    assert [one.settings for one in known(queue).values()] == [NO_SETTINGS]
    assert queue.job(job.id).queue == "default"


def test_an_undeclared_name_is_refused(dsn: str) -> None:
    queue = PgQueue(dsn, queues=["mail"])
    for wrong in (
        lambda: queue.control.declare("nail"),
        lambda: queue.control.set("nail", priority=1),
        lambda: queue.control.jobs(queue="mail").move("nail"),
    ):
        with pytest.raises(UnknownQueue, match="mail"):
            wrong()


def test_two_operators_who_change_different_settings_lose_neither(queue: PgQueue) -> None:
    queue.control.declare("mail")
    together = threading.Barrier(2)

    def change(setting: str) -> None:
        for value in range(1, 30):
            together.wait()
            given: Any = {setting: value}
            queue.control.set("mail", **given)
            together.wait()
            held = known(queue)["mail"].settings
            assert (held.priority, held.max_attempts) == (value, value)
            together.wait()

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(change, name) for name in ("priority", "max_attempts")]
    for one in done:
        one.result()


def test_a_resume_locks_queues_in_the_order_of_names_as_a_pause_does(queue: PgQueue, dsn: str) -> None:
    """Else two operators who pause and resume by a pattern wait for each other, and the database ends one of them."""
    for name in ("c", "b", "a"):  # where rows stand says nothing about names
        queue.control.pause(name)
    with ThreadPoolExecutor(1) as threads, psycopg.connect(dsn) as pausing:
        pausing.execute("select from pgqueue.queues where name = 'a' for update")
        resumed = threads.submit(queue.control.resume, "*")
        wait_until(
            lambda: ask(
                queue,
                "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
            )
        )
        pausing.execute("set local lock_timeout = '10s'")
        pausing.execute("select from pgqueue.queues where name in ('b', 'c') for update")
        pausing.commit()
        assert resumed.result()


async def test_awaited_twins_do_the_same(queue: PgQueue) -> None:
    assert await queue.control.apause("mail", by="ann")
    assert (await queue.insight.aqueues())[0].paused_by == "ann"
    assert await queue.control.aresume("mail")
    assert await queue.control.aclose("mail")
    assert (await queue.control.adeclare("mail", priority=1)).priority == 1
    assert (await queue.control.aset("mail", max_attempts=2)).max_attempts == 2

"""Workers look at alerts: each is told once, by however many of them and whatever crashes, and a bad one stops none."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from looking import ask, until, wait_until
from running import Running
from store.crowd import ask as ask_one
from store.crowd import asking, at_once

from pgqueue import (
    Alert,
    Backlog,
    DeadJobs,
    Failures,
    LateSchedule,
    Limit,
    OldestReady,
    PgQueue,
    SaturatedLimit,
    StalledWorkers,
    Task,
    UnservedTask,
)
from pgqueue.errors import InvalidOption
from pgqueue.store.alerts import alerts
from pgqueue.store.plan import Steps, plan
from pgqueue.store.queues import queues
from pgqueue.store.workers import leases
from pgqueue.values.alerts.alert import Rule
from pgqueue.values.payloads.codec import Codec, JobPart
from pgqueue.values.queues.standing import QueueStanding
from pgqueue.worker import alerts as worker_alerts
from pgqueue.worker import upkeep

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


WATCHED = """
from pgqueue import Alert, Backlog, PgQueue

queue = PgQueue()


@queue.alert("busy mail", Backlog(queue="mail", over=0))
@queue.task(name="ops.page", queue="ops")
def page(alert: Alert) -> None: ...
"""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers ask every 0.05 s what is due, without a poll that finds it."""
    monkeypatch.setattr(upkeep, "SELDOM_AT_LEAST", 0.05)


def page_of(queue: PgQueue, told: Callable[[Alert], object] | None = None) -> Task[[Alert], None]:
    """A task of alerts, whose queue is not looked at."""

    @queue.task(name="ops.page", queue="ops")
    def page(alert: Alert) -> None:
        if told is not None:
            told(alert)

    return page


def waiting(queue: PgQueue, count: int = 1, name: str = "mail") -> None:
    """Put jobs of an unknown task in line."""
    ask(queue, "select pgqueue.enqueue('send', '{}', queue => %s) from generate_series(1, %s)", name, count)


def state_of(queue: PgQueue, name: str) -> str:
    return {one.name: one.state for one in queue.alerts.list()}[name]


async def test_a_worker_stores_what_its_app_declares_and_tells_the_task_once(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Alert] = []
    queue.alert("busy mail", Backlog(queue="mail", over=1))(page_of(queue, seen.append))
    waiting(queue, 2)
    async with running(queue, queues=["ops"]):
        await until(lambda: seen)
        ask(queue, "update pgqueue.alerts set next_at = now()")
        await until(lambda: ask(queue, "select 1 from pgqueue.alerts where next_at > now()"))
    (told,) = seen
    assert (told.name, told.value, told.threshold, told.queue) == ("busy mail", 2.0, 1.0, "mail")
    (status,) = queue.alerts.list()
    assert (status.module, status.state, status.told) == (__name__, "firing", 1)
    (record,) = [one for one in caplog.records if one.message == "alert told"]
    assert vars(record)["alert"] == "busy mail"


async def test_many_workers_at_once_tell_an_alert_once(queue: PgQueue, running: Running) -> None:
    seen: list[Alert] = []
    task = page_of(queue, seen.append)
    for number in range(5):
        queue.alert(f"busy {number}", Backlog(queue="mail", over=number))(task)
    waiting(queue, 5)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(running(queue, queues=["ops"]))
        await until(lambda: len({one.name for one in seen}) == 5)
        for _ in range(5):
            ask(queue, "update pgqueue.alerts set next_at = now()")
            await until(lambda: not ask(queue, "select 1 from pgqueue.alerts where next_at <= now()"))
    assert sorted(one.name for one in seen) == [f"busy {number}" for number in range(5)]


async def test_a_storm_of_alerts_reads_the_standings_of_all_queues_a_few_times(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, real = [], queues.queue_standings

    @plan
    def counted(*, now: datetime | None = None) -> Steps[list[QueueStanding]]:
        read.append(now)
        return (yield from real(now=now))

    monkeypatch.setattr(queues, "queue_standings", counted)
    monkeypatch.setattr(worker_alerts, "READ_AGAIN_AFTER", 10)
    seen: list[Alert] = []
    task = page_of(queue, seen.append)
    for number in range(25):
        queue.alert(f"busy {number}", Backlog(queue=f"mail{number}", over=0))(task)
        waiting(queue, 1, f"mail{number}")
    async with running(queue, queues=["ops"], concurrency=10):
        await until(lambda: len(seen) == 25)
    assert len(read) == 3


def test_a_look_goes_past_an_alert_that_another_worker_looks_at(queue: PgQueue, dsn: str) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page_of(queue))
    queue.alerts.apply()
    waiting(queue)
    with psycopg.connect(dsn) as other:
        assert other.execute("select from pgqueue.alerts for no key update").fetchall()
        assert queue.database.run(alerts.look("busy mail")) == alerts.AlertLook()
    assert queue.database.run(alerts.look("busy mail")).alert is not None
    (before,) = queue.alerts.list()
    assert queue.database.run(alerts.look("busy mail")) == alerts.AlertLook()
    assert queue.alerts.list() == [before], "it is not due again, so it is not looked at"
    assert len(queue.insight.search(queue="ops").jobs) == 1


def test_looks_at_the_same_moment_tell_it_once(queue: PgQueue, dsn: str) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page_of(queue))
    queue.alerts.apply()
    waiting(queue)
    looked = at_once(dsn, *[asking(alerts.look("busy mail"))] * 8)
    assert len([one for one in looked if one.alert is not None]) == 1
    assert len(queue.insight.search(queue="ops").jobs) == 1


def test_a_worker_that_dies_between_the_look_and_the_commit_has_told_nothing(
    queue: PgQueue, dsn: str
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page_of(queue))
    queue.alerts.apply()
    waiting(queue)
    with psycopg.connect(dsn) as dying:
        assert ask_one(dying, alerts.look("busy mail")).alert is not None
        pid = dying.info.backend_pid
        ask(queue, "select pg_terminate_backend(%s)", pid)
        with pytest.raises(psycopg.OperationalError):
            dying.execute("select 1")
    assert state_of(queue, "busy mail") == "ok"
    assert queue.insight.search(queue="ops").jobs == ()
    assert queue.database.run(alerts.look("busy mail")).alert is not None
    assert len(queue.insight.search(queue="ops").jobs) == 1


def test_a_worker_that_is_killed_within_a_look_has_told_nothing(
    queue: PgQueue, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "watched.py").write_text(WATCHED)
    waiting(queue)
    ask(
        queue,
        "create function pgqueue.held_up() returns trigger language plpgsql as 'begin perform pg_sleep(1); return new; end'",
    )
    ask(
        queue,
        "create trigger slow before update on pgqueue.alerts for each row execute function pgqueue.held_up()",
    )
    within = (
        "select 1 from pg_stat_activity where query like %s and state = 'active' and pid <> pg_backend_pid()"
    )
    command = [sys.executable, "-m", "pgqueue", "--app", "watched:queue", "--dsn", dsn, "worker"]
    with subprocess.Popen([*command, "--queues", "nothing"], cwd=tmp_path) as worker:  # noqa: S603 - our own
        wait_until(lambda: ask(queue, within, "%update pgqueue.alerts%"))
        worker.kill()
    wait_until(lambda: not ask(queue, within, "%update pgqueue.alerts%"))
    assert (state_of(queue, "busy mail"), queue.insight.search(queue="ops").jobs) == ("ok", ())
    ask(queue, "drop trigger slow on pgqueue.alerts")
    assert queue.database.run(alerts.look("busy mail")).alert is not None
    assert len(queue.insight.search(queue="ops").jobs) == 1


async def test_a_bad_alert_is_named_and_the_others_are_told(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """One names no limit, one is of another release, the database refuses the job of one."""
    seen: list[Alert] = []
    task = page_of(queue, seen.append)
    queue.alert("a full limit", SaturatedLimit(limit="none"))(task)
    queue.alert("b unknown", DeadJobs())(task)
    queue.alert("c refused", Backlog(queue="mail", over=0))(task)
    queue.alert("d busy mail", Backlog(queue="mail", over=0))(task)
    queue.alerts.apply()
    ask(queue, """update pgqueue.alerts set rule = '{"kind":"Later","over":1}' where name = 'b unknown'""")
    ask(queue, "update pgqueue.alerts set task = 'bad' where name = 'c refused'")
    ask(queue, "alter table pgqueue.jobs add constraint refused check (task <> 'bad')")
    waiting(queue)
    app = PgQueue(queue.database.dsn)
    page_of(app, seen.append).function.__module__ = "another"
    async with running(app, queues=["ops"]):
        await until(lambda: seen)
        await until(lambda: len([one for one in queue.alerts.list() if one.error]) == 3)
        ask(queue, "update pgqueue.alerts set next_at = now()")
        await until(lambda: not ask(queue, "select 1 from pgqueue.alerts where next_at <= now()"))
    assert [one.name for one in seen] == ["d busy mail"]
    errors = {one.name: one.error for one in queue.alerts.list()}
    assert "none of this name" in str(errors["a full limit"])
    assert "cannot be read" in str(errors["b unknown"])
    assert errors["c refused"]
    logged = [vars(one)["alert"] for one in caplog.records if one.message.startswith("alert not looked at")]
    assert sorted(logged) == ["a full limit", "b unknown", "c refused"], "each once, though it failed twice"


async def test_an_alert_that_cannot_be_told_is_logged_once_and_told_when_its_queue_takes_jobs(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Alert] = []
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page_of(queue, seen.append))
    waiting(queue)
    queue.control.close("ops")
    async with running(queue, queues=["ops"]):
        for _ in range(2):
            await until(lambda: ask(queue, "select 1 from pgqueue.alerts where error is not null"))
            ask(queue, "update pgqueue.alerts set next_at = now(), failed_at = null")
            await until(lambda: ask(queue, "select 1 from pgqueue.alerts where failed_at is not null"))
        queue.control.resume("ops")
        ask(queue, "update pgqueue.alerts set next_at = now()")
        await until(lambda: seen)
    assert len([one for one in caplog.records if one.message.startswith("alert not told")]) == 1
    assert len(seen) == 1


async def test_a_look_that_takes_too_long_is_cancelled_and_the_others_go_on(
    queue: PgQueue, running: Running, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Alert] = []
    task = page_of(queue, seen.append)
    monkeypatch.setattr(alerts, "TIMEOUT", timedelta(milliseconds=50))
    queue.alert("a dead", DeadJobs())(task)
    queue.alert("old mail", OldestReady(queue="mail", over=0.001))(task)
    waiting(queue)
    with psycopg.connect(dsn) as other:
        other.execute("lock table pgqueue.dead_jobs")
        async with running(queue, queues=["ops"]):
            await until(lambda: seen)
            await until(lambda: queue.alerts.list()[0].error)
    assert [one.name for one in seen] == ["old mail"]
    assert "QueryCanceled" in str(queue.alerts.list()[0].error)


async def test_a_worker_whose_alerts_cannot_be_stored_runs_jobs_all_the_same(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []
    work = queue.task(name="work")(lambda: done.append(1))
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page_of(queue))
    ask(queue, "alter table pgqueue.alerts add constraint refused check (task <> 'ops.page')")
    async with running(queue):
        await work.aenqueue()
        await until(lambda: done)
    assert "the alerts that this app declares could not be stored" in caplog.text
    caplog.clear()


async def test_an_alert_whose_task_no_worker_knows_is_told_once_and_its_job_waits(
    queue: PgQueue, running: Running
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page_of(queue))
    queue.alerts.apply()
    waiting(queue)
    app = PgQueue(queue.database.dsn)
    async with running(app, queues=["ops"]):
        await until(lambda: any(one.unknown for one in queue.insight.queues()))
        ask(queue, "update pgqueue.alerts set next_at = now()")
        await until(lambda: not ask(queue, "select 1 from pgqueue.alerts where next_at <= now()"))
    assert [one.task for one in queue.insight.search(queue="ops").jobs] == ["ops.page"]


async def test_the_task_of_a_queue_with_a_codec_is_told(queue: PgQueue, running: Running) -> None:
    class Reversed(Codec):
        def encode(self, data: bytes, part: JobPart) -> str:  # noqa: ARG002 - as the base's
            return data.decode()[::-1]

        def decode(self, text: str, part: JobPart) -> bytes:  # noqa: ARG002 - as the base's
            return text[::-1].encode()

    seen: list[Alert] = []
    queue.codec = Reversed()
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page_of(queue, seen.append))
    waiting(queue)
    async with running(queue, queues=["ops"]):
        await until(lambda: seen)
    assert seen[0].queue == "mail"


async def test_a_task_with_a_limit_is_told_under_its_limit(queue: PgQueue, running: Running) -> None:
    seen: list[Alert] = []

    @queue.task(name="ops.page", queue="ops", limit=Limit(1))
    def page(alert: Alert) -> None:
        seen.append(alert)

    queue.alert("busy mail", Backlog(queue="mail", over=0))(page)
    waiting(queue)
    async with running(queue, queues=["nothing"]):
        await until(lambda: queue.insight.search(queue="ops").jobs)
        assert [one.state for one in queue.insight.search(queue="ops").jobs] == ["blocked"], (
            "it waits in its lane"
        )
    async with running(queue, queues=["ops"]):
        await until(lambda: seen)


def look_at(queue: PgQueue, rule: Rule) -> Alert | None:
    """What a task is told of a condition now."""
    queue.alert("one", rule)(page_of(queue))
    queue.alerts.apply()
    return queue.database.run(alerts.look("one")).alert


def test_failed_attempts_are_counted_over_midnight(queue: PgQueue) -> None:
    midnight = ask(queue, "select date_trunc('day', now(), 'UTC')")[0][0]
    for minutes in (-90, -3, -1, 1):
        ask(
            queue,
            "insert into pgqueue.series_written (at, queue, task, failed) values (%s, 'mail', 'send', 2)",
            midnight + minutes * MINUTE,
        )
    queue.alert("one", Failures(task="send", within=10 * MINUTE, over=5))(page_of(queue))
    queue.alert("two", Failures(task="other", within=10 * MINUTE, over=0))(queue.tasks["ops.page"])
    queue.alerts.apply()
    told = queue.database.run(alerts.look("one", now=midnight + 2 * timedelta(days=1)))
    assert told.alert is None
    ask(queue, "update pgqueue.alerts set next_at = '2000-01-01', looked_at = null")
    alert = queue.database.run(alerts.look("one", now=midnight + 2 * MINUTE)).alert
    assert alert is not None
    assert (alert.value, alert.task) == (6.0, "send")
    assert queue.database.run(alerts.look("two", now=midnight + 2 * MINUTE)).alert is None


def test_a_schedule_that_is_late_or_set_aside_is_told_and_a_paused_one_is_not(queue: PgQueue) -> None:
    for name in ("late", "aside", "paused", "ended"):
        ask(queue, "select pgqueue.schedule(%s, 'report', every => '1 hour')", name)
    ask(queue, "update pgqueue.schedules set next_at = now() - interval '10 min' where name = 'late'")
    ask(
        queue,
        "update pgqueue.schedules set next_at = now() - interval '20 min', error = 'no' where name = 'aside'",
    )
    ask(
        queue,
        "update pgqueue.schedules set next_at = now() - interval '1 h', paused_at = now() where name = 'paused'",
    )
    ask(queue, "update pgqueue.schedules set next_at = null where name = 'ended'")
    alert = look_at(queue, LateSchedule(over=15 * MINUTE))
    assert alert is not None
    assert (alert.schedule, alert.task) == ("aside", "report")
    assert alert.value is not None
    assert 1200 <= alert.value < 1300
    queue.alert("late", LateSchedule(schedule="late", over=5 * MINUTE))(queue.tasks["ops.page"])
    queue.alert("ended", LateSchedule(schedule="ended", over=5 * MINUTE))(queue.tasks["ops.page"])
    queue.alerts.apply()
    one = queue.database.run(alerts.look("late")).alert
    assert one is not None
    assert one.schedule == "late"
    assert queue.database.run(alerts.look("ended")).alert is None


def test_a_worker_that_does_not_look_is_told(queue: PgQueue) -> None:
    info = leases.WorkerInfo(uuid4(), "web-1", 4711, 1, "1", None)
    queue.database.run(leases.register(info, timedelta(minutes=10)))
    task = page_of(queue)
    queue.alert("stalled", StalledWorkers())(task)
    queue.alerts.apply()
    ask(queue, "update pgqueue.workers set cannot_listen_since = now(), not_returned = 1")
    assert queue.database.run(alerts.look("stalled")).alert is None, "it finds jobs by polling"
    ask(queue, "update pgqueue.workers set looked_at = now() - interval '1 min', look_within = 30")
    ask(queue, "update pgqueue.alerts set next_at = now()")
    alert = queue.database.run(alerts.look("stalled")).alert
    assert alert is not None
    assert (alert.value, alert.worker) == (1.0, "web-1:4711")
    assert alert.summary.endswith("web-1:4711")


def test_a_task_that_no_live_worker_runs_is_told_while_its_jobs_wait(queue: PgQueue) -> None:
    queue.alert("unserved", UnservedTask(over=5 * MINUTE))(page_of(queue))
    queue.alert("of mail", UnservedTask(over=5 * MINUTE, queue="mail"))(queue.tasks["ops.page"])
    queue.alerts.apply()
    ask(queue, "insert into pgqueue.jobs (task, queue) values ('gone', 'default'), ('new', 'default')")
    ask(
        queue,
        "insert into pgqueue.unknown_tasks values ('default', 'gone', now() - interval '10 minutes', now()), "
        "('default', 'new', now(), now()), ('mail', 'cancelled', now() - interval '1 hour', now())",
    )
    alert = queue.database.run(alerts.look("unserved")).alert
    assert alert is not None
    assert (alert.queue, alert.task) == ("default", "gone")
    assert "queue default, task gone: no live worker has run it for 10 min, over 5 min" in alert.summary
    assert queue.database.run(alerts.look("of mail")).alert is None, "no job of that task waits"


def test_a_full_limit_is_told_after_its_time_and_of_its_fullest_key(queue: PgQueue) -> None:
    @queue.task(name="charge", limit=Limit(2, by="shop", name="stripe"))
    def charge(shop: str) -> None: ...

    task = page_of(queue)
    queue.alert("full", SaturatedLimit(limit="name:stripe"), after=10 * MINUTE)(task)
    queue.alerts.apply()
    ask(queue, "insert into pgqueue.limits (name, most, declared) values ('name:stripe', 2, '2')")
    for shop in ("a", "b", "b"):
        charge.enqueue(shop)
    ask(
        queue,
        "update pgqueue.jobs set status = 'running', worker_id = gen_random_uuid() where args ->> 'shop' = 'a'",
    )
    now = ask(queue, "select now()")[0][0]
    assert queue.database.run(alerts.look("full", now=now)).alert is None
    assert state_of(queue, "full") == "ok"
    ask(queue, "update pgqueue.jobs set status = 'running', worker_id = gen_random_uuid()")
    for minutes in (1, 10):
        assert queue.database.run(alerts.look("full", now=now + minutes * MINUTE)).alert is None
    assert state_of(queue, "full") == "pending"
    alert = queue.database.run(alerts.look("full", now=now + 11 * MINUTE)).alert
    assert alert is not None
    assert (alert.limit, alert.value, alert.threshold, alert.since) == ("name:stripe", 2.0, 2.0, now + MINUTE)


def test_a_rate_is_never_full(queue: PgQueue) -> None:
    ask(
        queue,
        "insert into pgqueue.limits (name, every, burst, declared) values ('api', 1000, 1, '1000/second')",
    )
    with pytest.raises(InvalidOption, match="is a rate"):
        look_at(queue, SaturatedLimit(limit="api"))


def test_the_oldest_job_is_found_in_its_queue_among_thousands(queue: PgQueue) -> None:
    """More queues than the statement leaps over: then the jobs that were enqueued first are read."""
    ask(queue, "select pgqueue.enqueue('send', '{}', queue => 'old')")
    ask(queue, "update pgqueue.jobs set run_at = now() - interval '1 hour'")
    ask(queue, "select pgqueue.enqueue('send', '{}', queue => 'q' || n) from generate_series(1, 2100) as n")
    alert = look_at(queue, OldestReady(over=MINUTE))
    assert alert is not None
    assert alert.queue == "old"
    queue.alert("named", OldestReady(queue="old", over=MINUTE))(queue.tasks["ops.page"])
    queue.alert("other", OldestReady(queue="ol", over=MINUTE))(queue.tasks["ops.page"])
    queue.alerts.apply()
    named = queue.database.run(alerts.look("named")).alert
    assert named is not None
    assert named.value is not None
    assert named.value >= 3600
    assert queue.database.run(alerts.look("other")).alert is None


def test_of_one_queue_the_oldest_of_each_priority_counts(queue: PgQueue) -> None:
    for priority in (5, 0, -5):
        ask(queue, "select pgqueue.enqueue('send', '{}', queue => 'mail', priority => %s)", priority)
    ask(queue, "update pgqueue.jobs set run_at = now() - interval '1 hour' where priority = -5")
    alert = look_at(queue, OldestReady(queue="mail", over=MINUTE))
    assert alert is not None

"""Alerts as an app uses them, on a test's clock: on PostgreSQL, and in a transaction of the test's own."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from neighbours.places import HOUR, MINUTE, NOON, SECOND, a_clock, a_database, each_database, one_database

from pgqueue import (
    Alert,
    Backlog,
    DeadJobs,
    Failures,
    LateSchedule,
    OldestReady,
    PgQueue,
    SaturatedLimit,
    StalledWorkers,
    Task,
)
from pgqueue.errors import InvalidOption, UnknownQueue
from pgqueue.testing import Clock, drain
from pgqueue.values.alerts.alert import AlertCondition
from pgqueue.values.schedules.schedule import Applied

queue, clock, emptied, database = each_database, a_clock, a_database, one_database

Page = Task[[Alert], None]


@pytest.fixture
def seen() -> list[Alert]:
    """What the task of alerts was told."""
    return []


@pytest.fixture
def page(queue: PgQueue, seen: list[Alert]) -> Page:
    """A task that notes what it is told; its queue is not one that is looked at."""

    @queue.task(name="ops.page", queue="ops")
    def page(alert: Alert) -> None:
        seen.append(alert)

    return page


@pytest.fixture
def mail(queue: PgQueue) -> Task[[], None]:
    """A task of the queue that is looked at."""

    @queue.task(name="send", queue="mail")
    def send() -> None: ...

    return send


@pytest.fixture
def look(queue: PgQueue, clock: Clock) -> Callable[[timedelta], None]:
    """Look at alerts and run their jobs, some time after noon."""

    def look(after: timedelta) -> None:
        clock.travel(NOON + after - clock.now)
        drain(queue, queues=["ops"])

    return look


Look = Callable[[timedelta], None]


class OneOfTheApp(AlertCondition, frozen=True):
    """A condition that is none of pgqueue's."""


SLOW = OldestReady(queue="mail", over=5 * MINUTE)


def test_an_alert_is_told_once_while_it_goes_on(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("slow mail", SLOW)(page)
    assert queue.alerts.apply() == Applied(added=("slow mail",), changed=(), removed=(), taken=())
    mail.enqueue()
    for minutes in range(30):
        look(minutes * MINUTE)
    (told,) = seen
    assert (told.name, told.state, told.kind, told.queue) == ("slow mail", "firing", "OldestReady", "mail")
    assert (told.value, told.threshold) == (360.0, 300.0)
    assert told.since == told.at == NOON + 6 * MINUTE
    assert str(told) == "slow mail is firing: queue mail: a job has been ready for 6 min, over 5 min"
    (status,) = queue.alerts.list()
    assert (status.state, status.told, status.value, status.active) == ("firing", 1, 29 * 60.0, True)


def test_it_is_told_again_only_after_it_was_over(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    """Flapping: the condition comes and goes within ``clear_for``."""
    queue.alert("busy mail", Backlog(queue="mail", over=0), clear_for=10 * MINUTE)(page)
    queue.alerts.apply()
    job = mail.enqueue()
    look(0 * MINUTE)
    for minutes in range(1, 20, 2):
        job.cancel()
        look(minutes * MINUTE)
        job = mail.enqueue()
        look((minutes + 1) * MINUTE)
    assert len(seen) == 1
    job.cancel()
    look(30 * MINUTE)
    assert queue.alerts.list()[0].state == "clearing"
    look(39 * MINUTE)
    assert queue.alerts.list()[0].state == "clearing"
    look(40 * MINUTE)
    assert queue.alerts.list()[0].state == "ok"
    mail.enqueue()
    look(41 * MINUTE)
    assert [one.at for one in seen] == [NOON, NOON + 41 * MINUTE]
    assert [one.reminder for one in seen] == [0, 0]


def test_the_condition_must_hold_for_a_time_before(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0), after=10 * MINUTE)(page)
    queue.alerts.apply()
    first = mail.enqueue()
    look(0 * MINUTE)
    look(9 * MINUTE)
    assert queue.alerts.list()[0].state == "pending"
    first.cancel()
    look(10 * MINUTE)
    assert queue.alerts.list()[0].state == "ok"
    mail.enqueue()
    look(11 * MINUTE)
    look(20 * MINUTE)
    assert seen == []
    look(21 * MINUTE)
    assert [(one.since, one.at) for one in seen] == [(NOON + 11 * MINUTE, NOON + 21 * MINUTE)]


def test_it_is_repeated_and_its_end_is_told_where_that_is_asked(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0), repeat_every=HOUR, resolved=True)(page)
    queue.alerts.apply()
    job = mail.enqueue()
    for minutes in range(0, 150, 10):
        look(minutes * MINUTE)
    assert [(one.state, one.reminder, one.at - NOON) for one in seen] == [
        ("firing", 0, 0 * HOUR),
        ("firing", 1, 1 * HOUR),
        ("firing", 2, 2 * HOUR),
    ]
    job.cancel()
    look(160 * MINUTE)
    look(165 * MINUTE)
    look(170 * MINUTE)
    assert [(one.state, one.value, one.since, one.at - NOON) for one in seen[3:]] == [
        ("resolved", 0.0, NOON, 165 * MINUTE)
    ]


def test_a_silenced_alert_is_told_when_the_silence_is_over_and_it_still_holds(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0), resolved=True)(page)
    queue.alerts.apply()
    assert queue.alerts.silence("busy mail", HOUR, by="ann") == NOON + HOUR
    mail.enqueue()
    look(0 * MINUTE)
    look(59 * MINUTE)
    (status,) = queue.alerts.list()
    assert (status.state, status.silenced_until, status.silenced_by) == ("firing", NOON + HOUR, "ann")
    assert seen == []
    look(60 * MINUTE)
    assert [(one.since, one.at) for one in seen] == [(NOON, NOON + HOUR)]
    assert queue.alerts.list()[0].silenced_by is None


def test_a_silence_can_be_ended_and_hides_an_alert_that_is_over_by_then(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0), resolved=True, clear_for=MINUTE)(page)
    queue.alerts.apply()
    queue.alerts.silence("busy mail", HOUR)
    job = mail.enqueue()
    look(0 * MINUTE)
    job.cancel()
    look(1 * MINUTE)
    look(2 * MINUTE)
    mail.enqueue()
    look(3 * MINUTE)
    assert seen == []
    queue.alerts.unsilence("busy mail")
    look(4 * MINUTE)
    assert [one.since for one in seen] == [NOON + 3 * MINUTE]


def test_a_clock_that_is_set_back_neither_repeats_an_alert_nor_stops_the_looks(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0), clear_for=5 * MINUTE, repeat_every=HOUR)(page)
    queue.alerts.apply()
    job = mail.enqueue()
    look(3 * HOUR)
    assert len(seen) == 1
    look(0 * HOUR)  # three hours back
    assert queue.alerts.list()[0].looked_at == NOON
    look(1 * HOUR - 15 * SECOND)
    assert len(seen) == 1
    look(1 * HOUR)
    assert [one.reminder for one in seen] == [0, 1]
    job.cancel()
    look(2 * HOUR)
    look(1 * HOUR)
    assert queue.alerts.list()[0].state == "clearing"
    look(1 * HOUR + 5 * MINUTE)
    assert queue.alerts.list()[0].state == "ok"


def test_an_alert_that_goes_on_over_midnight_is_one(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0), after=30 * MINUTE)(page)
    queue.alerts.apply()
    mail.enqueue()
    for minutes in range(705, 760, 5):
        look(minutes * MINUTE)
    assert [(one.since, one.at) for one in seen] == [(NOON + 705 * MINUTE, NOON + 735 * MINUTE)]


def test_a_closed_queue_of_the_task_keeps_the_alert_until_it_takes_jobs(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0), resolved=True, clear_for=MINUTE)(page)
    queue.alert("any dead", DeadJobs(), clear_for=MINUTE)(page)
    queue.alerts.apply()
    job = mail.enqueue()
    queue.control.close("ops")
    look(0 * MINUTE)
    (dead, busy) = queue.alerts.list()
    assert (dead.error, busy.state, busy.told) == (None, "firing", 0)
    assert busy.error is not None
    assert "not told" in busy.error
    assert busy.failed_at == NOON
    queue.control.resume("ops")
    look(1 * MINUTE)
    assert [(one.since, one.at) for one in seen] == [(NOON, NOON + MINUTE)]
    assert queue.alerts.list()[1].error is None
    job.cancel()
    look(2 * MINUTE)
    queue.control.close("ops")
    look(3 * MINUTE)
    assert queue.alerts.list()[1].state == "clearing"
    queue.control.resume("ops")
    look(4 * MINUTE)
    assert [one.state for one in seen] == ["firing", "resolved"]


def test_a_condition_that_makes_no_sense_is_noted_and_the_others_are_told(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("a full limit", SaturatedLimit(limit="none"))(page)
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page)
    queue.alerts.apply()
    mail.enqueue()
    look(0 * MINUTE)
    assert [one.name for one in seen] == ["busy mail"]
    assert "there is none of this name" in str(queue.alerts.list()[0].error)


def test_each_condition_is_read(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    @queue.task(name="fails", queue="bad")
    def fails() -> None:
        raise ValueError("no")

    @queue.schedule(every=HOUR, name="hourly")
    @queue.task(name="hourly", queue="bad")
    def hourly() -> None: ...

    queue.alert("oldest of all", OldestReady(over=60))(page)
    queue.alert("oldest of none", OldestReady(queue="none", over=60))(page)
    queue.alert("backlog of all", Backlog(over=1))(page)
    queue.alert("backlog of mail", Backlog(queue="mail", over=2))(page)
    queue.alert("dead", DeadJobs(over=1, task="fails"))(page)
    queue.alert("dead lately", DeadJobs(over=1, within=HOUR, queue="bad"))(page)
    queue.alert("dead elsewhere", DeadJobs(queue="mail"))(page)
    queue.alert("stalled", StalledWorkers())(page)
    for _ in range(2):
        fails.using(max_attempts=1).enqueue()
    drain(queue, raises=False)
    queue.alerts.apply()
    mail.enqueue()
    mail.enqueue()
    look(2 * MINUTE)
    assert {one.name: (one.value, one.queue, one.task) for one in seen} == {
        "oldest of all": (120.0, "mail", None),
        "backlog of all": (2.0, None, None),
        "dead": (2.0, None, "fails"),
        "dead lately": (2.0, "bad", None),
    }
    values = {one.name: one.value for one in queue.alerts.list()}
    assert values["oldest of none"] is None
    assert values["stalled"] == 0
    look(2 * HOUR)
    assert {one.name: one.state for one in queue.alerts.list()}["dead lately"] == "clearing"


def test_a_paused_queue_has_no_oldest_job(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("slow", OldestReady(over=60))(page)
    queue.alerts.apply()
    mail.enqueue()
    queue.control.pause("mail")
    look(1 * HOUR)
    assert seen == []
    queue.control.resume("mail")
    look(2 * HOUR)
    assert [one.queue for one in seen] == ["mail"]


def test_an_alert_belongs_to_the_module_that_declares_it(queue: PgQueue, page: Page) -> None:
    queue.alert("mine", DeadJobs(over=1))(page)
    assert queue.alerts.apply().added == ("mine",)
    assert queue.alerts.apply() == Applied(added=(), changed=(), removed=(), taken=())

    other = _app_of_module(queue, "other.jobs", "mine", DeadJobs(over=2))
    assert other.alerts.apply().taken == ("mine",)
    third = _app_of_module(queue, "third.jobs", "theirs", DeadJobs(over=2))
    assert third.alerts.apply().added == ("theirs",)
    assert {one.name: one.module for one in queue.alerts.list()} == {"mine": __name__, "theirs": "third.jobs"}

    changed = _app_of_module(queue, __name__, "mine", DeadJobs(over=5))
    assert changed.alerts.apply() == Applied(added=(), changed=("mine",), removed=(), taken=())
    gone = _app_of_module(queue, __name__, None, None)
    assert gone.alerts.apply().removed == ("mine",)
    assert [one.name for one in queue.alerts.list()] == ["theirs"]


def test_another_threshold_does_not_tell_a_firing_alert_again(
    queue: PgQueue, page: Page, mail: Task[[], None], look: Look, seen: list[Alert]
) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0))(page)
    queue.alerts.apply()
    mail.enqueue()
    mail.enqueue()
    look(0 * MINUTE)
    _app_of_module(queue, __name__, "busy mail", Backlog(queue="mail", over=1)).alerts.apply()
    look(0 * MINUTE + SECOND)
    assert queue.alerts.list()[0].threshold == 1
    assert len(seen) == 1


def _app_of_module(queue: PgQueue, module: str, name: str | None, rule: Any) -> PgQueue:
    """Another app on the same jobs, whose task is of a module."""
    app = PgQueue("")
    app.database = queue.database

    def page(alert: Alert) -> None: ...

    page.__module__ = module
    task = app.task(name="ops.page", queue="ops")(page)
    if name is not None:
        app.alert(name, rule)(task)
    return app


def test_the_jobs_are_as_the_task_says(queue: PgQueue, mail: Task[[], None], page: Page) -> None:
    queue.alert("busy mail", Backlog(queue="mail", over=0))(
        page.using(queue="urgent", priority=9, max_attempts=3)
    )
    queue.alerts.apply()
    mail.enqueue()
    drain(queue, queues=["nothing"])
    (job,) = queue.insight.search(queue="urgent").jobs
    assert (job.task, job.priority, job.max_attempts) == ("ops.page", 9, 3)
    assert job.meta == {"pgqueue_alert": "busy mail"}
    assert queue.alerts.list()[0].job_id == job.id


def test_what_cannot_be_an_alert_is_refused(queue: PgQueue, page: Page) -> None:
    with pytest.raises(InvalidOption, match="no condition"):
        queue.alert("x", "OldestReady")(page)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no condition"):  # workers could not read it
        queue.alert("x", OneOfTheApp())(page)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no task"):
        queue.alert("x", DeadJobs())(print)  # type: ignore[type-var]
    for name in ("", " x", "x" * 201, "\0", None):
        with pytest.raises(InvalidOption, match="name"):
            queue.alert(name, DeadJobs())  # type: ignore[arg-type]
    queue.alert("x", DeadJobs())(page)
    with pytest.raises(InvalidOption, match="declared twice"):
        queue.alert("x", DeadJobs())(page)
    wrong: list[dict[str, Any]] = [{"after": -1}, {"clear_for": "soon"}, {"repeat_every": 0}]
    for options in wrong:
        with pytest.raises(InvalidOption):
            queue.alert("y", DeadJobs(), **options)
    refused: list[tuple[Callable[..., object], dict[str, Any]]] = [
        (OldestReady, {"over": 0}),
        (OldestReady, {"over": 60, "queue": "\0"}),
        (Backlog, {"over": -1}),
        (Backlog, {"over": 1.5}),
        (DeadJobs, {"over": 20_000}),
        (Failures, {"over": 1, "within": 30}),
        (Failures, {"over": 1, "within": timedelta(days=31)}),
        (LateSchedule, {"over": "x"}),
        (SaturatedLimit, {"limit": 7}),
    ]
    for rule, options in refused:
        with pytest.raises(InvalidOption):
            rule(**options)
    with pytest.raises(InvalidOption, match="there is none of this name"):
        queue.alerts.silence("unknown", 60)


def test_a_task_that_cannot_be_told_is_refused_before_a_worker_starts(queue: PgQueue) -> None:
    @queue.task(name="wrong")
    def wrong(number: int) -> None: ...

    @queue.task(name="none")
    def none() -> None: ...

    queue.alert("x", DeadJobs())(wrong)  # type: ignore[type-var]
    with pytest.raises(InvalidOption, match=r"one argument, a pgqueue\.Alert"):
        queue.alerts.declared()
    app = PgQueue("", queues=["mail"])

    @app.task(name="page", queue="mail")
    def page(alert: Alert) -> None: ...

    app.alert("x", DeadJobs())(page.using(delay=5))
    with pytest.raises(InvalidOption, match="delay"):
        app.alerts.declared()
    strict = PgQueue("", queues=["mail"])
    strict.alert("y", DeadJobs())(strict.task(name="page", queue="mail")(page.function))
    strict.queues = frozenset({"ops"})
    with pytest.raises(UnknownQueue):
        strict.alerts.declared()

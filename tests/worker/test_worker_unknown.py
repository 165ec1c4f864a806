"""A job of a task that no worker knows: it goes back, is counted and named, and ends dead after a time."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from looking import ask, until
from running import Running
from store.crowd import ask as on
from store.hostile import put
from store.samples import LEASE, MINUTE, NOON, adding, new_job, shown, taking, worker_info
from worker.helping import ended

from pgqueue import Context, JobState, Limit, PgQueue, Rate
from pgqueue.errors import InvalidOption
from pgqueue.store.jobs import claim, control, enqueue, finish
from pgqueue.store.workers import leases
from pgqueue.values.flows.flow import BUILTIN
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.options import LONGEST_NAME
from pgqueue.values.jobs.verdict import Unknown
from pgqueue.worker.attempt import Attempt
from pgqueue.worker.executor import Executor
from pgqueue.worker.served_tasks import MOST_LEFT_OUT, ServedTasks
from pgqueue.worker.worker import Worker

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
AT_ONCE, QUARTER = timedelta(), timedelta(seconds=15)


def _returned(own: psycopg.Connection[object], taken: Claim, now: datetime) -> list[int]:
    verdict = Unknown(taken, AT_ONCE, 3 * DAY)
    return [*on(own, finish.finish(taken.worker_id, [verdict], keep=True, now=now))]


def _again(own: psycopg.Connection[object], worker: UUID, now: datetime) -> Claim:
    (taken,) = on(own, claim.claim(worker, {"default": 1}, now=now))
    return taken


def _noted(own: psycopg.Connection[Any]) -> list[Any]:
    return own.execute(
        "select queue, task, since, met_at from pgqueue.unknown_tasks order by 1, 2"
    ).fetchall()


def _given_up_after(own: psycopg.Connection[object], taken: Claim, passed: timedelta) -> None:
    """A worker meets the job every half hour until then."""
    for half_hours in range(passed // (HOUR / 2) + 1):
        now = NOON + half_hours * HOUR / 2
        _returned(own, taken, now)
        if half_hours < passed // (HOUR / 2):
            taken = _again(own, taken.worker_id, now)


def test_a_job_nobody_knows_goes_back_at_once_with_its_place_and_is_dead_after_three_days(
    connection: psycopg.Connection[object],
) -> None:
    (job_id,) = on(connection, adding(new_job()))
    (taken,) = on(connection, taking())

    _given_up_after(connection, taken, 3 * DAY - HOUR / 2)

    job = on(connection, shown(job_id))
    assert (job.state, job.attempts, job.run_at) == (JobState.READY, 0, NOON)
    taken = _again(connection, taken.worker_id, NOON + 3 * DAY)
    assert _returned(connection, taken, NOON + 3 * DAY) == [job_id]
    job = on(connection, shown(job_id))
    assert (job.state, job.reason, job.ended_at) == (JobState.DEAD, "unknown", NOON + 3 * DAY)
    (error,) = job.errors
    assert error.type == "UnknownTask"
    assert error.message == "no worker that serves queue default has known task bill for 3 days"


def test_a_job_that_became_due_later_has_its_own_three_days(connection: psycopg.Connection[object]) -> None:
    on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    _given_up_after(connection, taken, 2 * DAY)
    (later,) = on(connection, adding(new_job(), now=NOON + 2 * DAY))
    claims = on(connection, claim.claim(taken.worker_id, {"default": 2}, now=NOON + 2 * DAY))
    verdicts = [Unknown(one, AT_ONCE, 3 * DAY) for one in claims]
    for hours in range(25):
        on(connection, finish.finish(taken.worker_id, verdicts, keep=True, now=NOON + 2 * DAY + hours * HOUR))
        now = NOON + 2 * DAY + hours * HOUR
        again = on(connection, claim.claim(taken.worker_id, {"default": 2}, now=now))
        verdicts = [Unknown(one, AT_ONCE, 3 * DAY) for one in again]
    assert [one.claim.id for one in verdicts] == [later]


def test_the_time_begins_anew_where_no_worker_met_the_task_for_an_hour(
    connection: psycopg.Connection[object],
) -> None:
    on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    _returned(connection, taken, NOON)
    taken = _again(connection, taken.worker_id, NOON)
    _returned(connection, taken, NOON + HOUR)
    assert _noted(connection) == [("default", "bill", NOON, NOON + HOUR)]
    taken = _again(connection, taken.worker_id, NOON)
    _returned(connection, taken, NOON + 2 * HOUR + QUARTER)
    assert _noted(connection) == [("default", "bill", NOON + 2 * HOUR + QUARTER, NOON + 2 * HOUR + QUARTER)]


@pytest.mark.parametrize(
    ("other", "is_noted"),
    [
        ({"tasks": ["bill"]}, False),
        ({"tasks": None}, False),
        ({"tasks": ["bill"], "queues": ["def*"]}, False),
        ({"tasks": ["other"]}, True),
        ({"tasks": ["bill"], "queues": ["mail"]}, True),
        ({"tasks": ["bill"], "queues": ["!default"]}, True),
        ({"tasks": ["bill"], "lease": -LEASE}, True),
        ({"tasks": ["bill"], "quiet": True}, True),
    ],
    ids=[
        "it runs the task",
        "an older release",
        "a pattern",
        "it runs others",
        "it serves others",
        "it serves the others",
        "it is gone",
        "it is quiet",
    ],
)
def test_a_task_is_noted_only_where_no_other_live_worker_may_run_it(
    connection: psycopg.Connection[object], other: dict[str, object], is_noted: object
) -> None:
    on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    _register(connection, other)

    _returned(connection, taken, NOON)

    assert bool(_noted(connection)) is is_noted


def test_a_worker_that_runs_the_task_takes_the_note_away_at_its_start_and_when_it_has_loaded_it(
    connection: psycopg.Connection[object],
) -> None:
    on(connection, adding(new_job(), new_job("report")))
    claims = on(connection, taking())
    on(
        connection,
        finish.finish(
            claims[0].worker_id, [Unknown(one, AT_ONCE, DAY) for one in claims], keep=True, now=NOON
        ),
    )
    _register(connection, {"tasks": ["bill"], "queues": ["mail"]})
    assert len(_noted(connection)) == 2

    worker = _register(connection, {"tasks": ["bill"]})
    assert _noted(connection) == [("default", "report", NOON, NOON)]

    on(connection, leases.know_tasks(worker, ["bill", "report"], None))
    assert _noted(connection) == []
    assert connection.execute("select tasks from pgqueue.workers where id = %s", [worker]).fetchall() == [
        (["bill", "report"],)
    ]


def test_notes_of_tasks_whose_jobs_have_gone_are_removed_after_a_day(
    connection: psycopg.Connection[object],
) -> None:
    on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    _returned(connection, taken, NOON)
    connection.execute("update pgqueue.jobs set task = 'report'")
    taken = msgspec.structs.replace(_again(connection, taken.worker_id, NOON), task="report")
    _returned(connection, taken, NOON + DAY + MINUTE)
    assert [task for _, task, *_ in _noted(connection)] == ["report"]


def test_a_name_that_no_index_holds_is_not_noted_and_its_job_goes_back(
    connection: psycopg.Connection[object],
) -> None:
    put(connection, task="repeat('x', 9000)")
    (taken,) = on(connection, taking())
    assert _returned(connection, taken, NOON)
    assert _noted(connection) == []


def _register(own: psycopg.Connection[object], other: dict[str, object]) -> UUID:
    info = worker_info(queues=other.get("queues"))  # type: ignore[arg-type]  # a list or None
    info = msgspec.structs.replace(info, tasks=other["tasks"])
    on(own, leases.register(info, other.get("lease", LEASE), now=NOON))  # type: ignore[arg-type]  # a timedelta
    own.execute("update pgqueue.workers set quiet = %s where id = %s", [other.get("quiet"), info.id])
    return info.id


def test_one_that_was_to_be_cancelled_is_cancelled(connection: psycopg.Connection[object]) -> None:
    (job_id,) = on(connection, adding(new_job()))
    (taken,) = on(connection, taking())
    on(connection, control.cancel(job_id, now=NOON))

    assert _returned(connection, taken, NOON) == [job_id]
    assert on(connection, shown(job_id)).state is JobState.CANCELLED


def test_counts_and_the_pulse_name_the_tasks_nobody_knows(connection: psycopg.Connection[object]) -> None:
    now = datetime.now(UTC)
    on(
        connection,
        adding(new_job(), new_job("report"), new_job(queue="mail"), new_job(delay=MINUTE), now=now),
    )
    info = worker_info()
    on(connection, leases.register(info, LEASE, now=now))
    taken = on(connection, claim.claim(info.id, {"default": 2}, now=now))
    on(connection, finish.finish(info.id, [Unknown(one, AT_ONCE, DAY) for one in taken], keep=True, now=now))
    on(connection, adding(new_job(), now=now))  # no worker has met this one, and no worker runs it either

    counts, _ = on(connection, control.counts())
    (ready,) = [one for one in counts if one.state is JobState.READY and one.queue == "default"]
    assert (ready.count, ready.unknown) == (3, 3)
    assert (ready.unknown_tasks, ready.unknown_since) == (("bill", "report"), now)
    assert {one.unknown for one in counts if one is not ready} == {0}
    pulse = on(connection, control.pulse(now=now))
    assert [(one.task, one.queue, one.jobs, one.since) for one in pulse.unknown] == [
        ("bill", "default", 2, now),
        ("report", "default", 1, now),
    ]
    assert on(connection, control.pulse(now=now + 6 * MINUTE)).unknown == (), "no worker has met them lately"


async def test_a_worker_says_which_task_it_does_not_know_and_which_may_be_meant(
    queue: PgQueue, dsn: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(name="shop.send_receipt")
    async def send_receipt() -> None: ...

    with psycopg.connect(dsn, autocommit=True) as own:
        put(own, task="'shop.send_reciept'")
    caplog.set_level(logging.WARNING)
    async with running(queue, unknown_after=timedelta(hours=1)):
        await until(lambda: ask(queue, "select since from pgqueue.unknown_tasks"))
        await ended(queue, send_receipt.enqueue())
    (record,) = [record for record in caplog.records if "not registered" in record.message]
    assert vars(record)["nearest"] == "shop.send_receipt"
    assert vars(record)["dead_after"] == "1:00:00"


async def test_a_running_worker_gives_up_all_jobs_of_a_task_after_the_time_that_it_was_told(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    long_ago = "now() - interval '2 hours'"
    with psycopg.connect(dsn, autocommit=True) as own:
        put(own, task="'gone'", run_at="now() - interval '1 minute'")
        for _ in range(50):
            put(own, task="'gone'", run_at=long_ago)
        own.execute(
            f"insert into pgqueue.unknown_tasks select 'default', 'gone', {long_ago}, now() - interval '1 minute'"
        )
    async with running(queue, unknown_after=timedelta(hours=1), concurrency=2):
        await until(
            lambda: (
                ask(queue, "select reason, count(*) from pgqueue.dead_jobs group by 1") == [("unknown", 50)]
            )
        )
        await until(lambda: ask(queue, "select status from pgqueue.jobs") == [("ready",)])
    assert ask(queue, "select attempts from pgqueue.jobs") == [(0,)]


async def test_workers_say_which_tasks_they_run_so_a_job_that_none_runs_is_given_up_beside_others(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    @queue.task(name="noop")
    async def noop() -> None: ...

    with psycopg.connect(dsn, autocommit=True) as own:
        put(own, task="'gone'", run_at="now() - interval '2 hours'")
        own.execute(
            "insert into pgqueue.unknown_tasks select 'default', 'gone', now() - interval '2 hours', now() - interval '1 minute'"
        )
    async with running(queue, unknown_after=3600), running(queue, unknown_after=3600):
        await until(lambda: ask(queue, "select reason from pgqueue.dead_jobs") == [("unknown",)])
        assert ask(queue, "select distinct tasks from pgqueue.workers") == [(["noop", *sorted(BUILTIN)],)]


async def test_a_job_that_one_worker_does_not_run_reaches_the_one_that_does(
    queue: PgQueue, running: Running
) -> None:
    """Promise 1: of two workers the one that has never heard of the task leaves it out of its claims."""

    @queue.task(name="new")
    async def new() -> None: ...

    other = PgQueue(queue.database.dsn)
    async with running(other) as old:
        ids = [new.enqueue() for _ in range(30)]
        await until(lambda: ask(queue, "select task from pgqueue.unknown_tasks") == [("new",)])
        assert old.parts.executor.served.left_out() == ["new"]
        async with running(queue):
            for one in ids:
                await ended(queue, one)
        assert ask(queue, "select task from pgqueue.unknown_tasks") == []
    assert ask(queue, "select max(attempts) from pgqueue.all_jobs where task = 'new'") == [(1,)]


async def test_an_unknown_task_is_looked_for_once_a_minute_and_not_once_a_job(
    queue: PgQueue, connection: psycopg.Connection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for: list[str] = []
    monkeypatch.setattr(queue, "load_task", looked_for.append)
    executor = Executor(queue)
    on(connection, adding(new_job("gone"), new_job("gone")))
    for claimed in on(connection, taking()):
        verdict = await executor.run(Attempt(claimed, None, Context(claimed, executor), plain=False))
        assert verdict == Unknown(claimed, AT_ONCE, 3 * DAY)
    assert looked_for == ["gone"]


async def test_a_worker_says_that_it_runs_a_task_which_was_registered_after_its_start(
    queue: PgQueue, running: Running
) -> None:
    async with running(queue) as worker:

        @queue.task(name="late")
        async def late() -> None: ...

        await worker.parts.heartbeat.do(worker.parts.heartbeat.beat)
        assert ask(queue, "select tasks from pgqueue.workers") == [(sorted(["late", *BUILTIN]),)]


async def test_a_job_in_a_lane_reaches_the_worker_that_runs_its_task(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(name="new", limit=Limit(1))
    async def new() -> None: ...

    other = PgQueue(queue.database.dsn)
    async with running(queue):  # which stores the limit
        await ended(queue, new.enqueue())
    async with running(other):
        ids = [new.enqueue() for _ in range(3)]
        await until(lambda: ask(queue, "select task from pgqueue.unknown_tasks") == [("new",)])
        async with running(queue):
            for one in ids:
                await ended(queue, one)


async def test_a_worker_runs_the_chosen_tasks_only_and_its_row_says_so(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(name="mail.send")
    async def send() -> None: ...

    @queue.task(name="mail.bulk")
    async def bulk() -> None: ...

    @queue.task(name="report")
    async def report() -> None: ...

    left = [bulk.enqueue(), report.enqueue()]
    async with running(queue, tasks=["mail.*", "!mail.bulk"]) as one:
        await ended(queue, send.enqueue())
        (worker,) = queue.workers.list()
        assert worker.tasks == ("mail.*", "!mail.bulk")
        assert ask(queue, "select tasks from pgqueue.workers") == [(sorted(["mail.send", *BUILTIN]),)]
        assert queue.why(left[1].id).reason == "task unknown"
        await one.parts.upkeep.note_unknown_tasks()
        assert ask(queue, NOTED) == [("mail.bulk",), ("report",)], "it never claims these jobs, so it looks"
        runs_it = msgspec.structs.replace(worker_info(), tasks=["report"])
        queue.database.run(leases.register(runs_it, LEASE))
        await one.parts.upkeep.note_unknown_tasks()
        assert ask(queue, NOTED) == [("mail.bulk",)], "a live worker runs the other one"
    untouched = [(one.id, 0, 0) for one in left]
    assert ask(queue, "select id, attempts, fence from pgqueue.jobs order by id") == untouched


NOTED = "select task from pgqueue.unknown_tasks order by 1"


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ("mail", r"tasks='mail': give a list of names, \['mail'\]"),
        ([], "name at least one task, or None for all"),
        (["repotr"], "'repotr' stands for none of the app's tasks; did you mean 'report'"),
        (["mail.*"], "stands for none of the app's tasks"),
        (["report", "!report"], "contradict each other"),
        (["!*"], "leave no task of the app"),
        (["two words"], "a name has no white space"),
    ],
)
def test_a_worker_refuses_tasks_that_make_no_sense(queue: PgQueue, tasks: object, said: str) -> None:
    @queue.task(name="report")
    async def report() -> None: ...

    with pytest.raises(InvalidOption, match=said):
        Worker(queue, tasks=tasks)  # type: ignore[arg-type]  # some are wrong on purpose


def test_too_many_unknown_tasks_and_too_long_names_are_put_off_for_a_time() -> None:
    tasks = ServedTasks({}, clock=lambda: 0.0)
    assert all(tasks.leave_out(f"task-{number}") for number in range(MOST_LEFT_OUT))
    assert not tasks.leave_out("one more")
    assert not ServedTasks({}).leave_out("x" * (LONGEST_NAME + 1))
    assert len(tasks.left_out()) == MOST_LEFT_OUT
    assert (tasks.is_unknown("task-1"), tasks.is_unknown("one more")) == (True, False), (
        "it goes aside, after a claim"
    )
    tasks.try_again("task-0")
    assert tasks.leave_out("one more")


def test_a_task_is_left_out_for_a_minute_or_until_it_is_registered() -> None:
    now = 0.0
    registered: dict[str, Any] = {}
    tasks = ServedTasks(registered, clock=lambda: now)
    tasks.leave_out("late")
    tasks.leave_out("unknown")
    registered["late"] = object()
    assert tasks.left_out() == ["unknown"]
    now = 61.0
    assert tasks.left_out() == []


def test_a_worker_refuses_to_give_up_at_once(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="unknown_after"):
        Worker(queue, unknown_after=0)


async def test_a_worker_that_does_not_run_a_task_uses_up_no_start_of_its_rate(
    queue: PgQueue, running: Running
) -> None:
    """Each worker of another release took a start once a minute, and the job seldom came to the worker that runs it."""

    @queue.task(name="hourly", limit=Rate(every=3600))
    async def hourly() -> None: ...

    other = PgQueue(queue.database.dsn)
    async with running(queue):  # which stores the limit
        await until(lambda: ask(queue, "select name from pgqueue.limits"))
    async with running(other) as old:
        job = hourly.enqueue()
        await until(lambda: ask(queue, "select task from pgqueue.unknown_tasks"))
        assert old.parts.executor.served.left_out() == ["hourly"]
        async with running(queue):
            await ended(queue, job)


async def test_a_job_under_a_rate_is_given_up_where_no_worker_has_run_its_task_for_long(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    @queue.task(name="hourly", limit=Rate(every=3600))
    async def hourly() -> None: ...

    async with running(queue):
        await until(lambda: ask(queue, "select name from pgqueue.limits"))
    hourly.enqueue()
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("update pgqueue.jobs set run_at = now() - interval '2 hours'")
        own.execute(
            "insert into pgqueue.unknown_tasks select 'default', 'hourly', now() - interval '2 hours', now() - interval '1 minute'"
        )
    async with running(PgQueue(dsn), unknown_after=3600):
        await until(lambda: ask(queue, "select reason from pgqueue.dead_jobs") == [("unknown",)])


@pytest.mark.parametrize("limits", [None, Limit(1, by="number")], ids=["ready", "in lanes"])
async def test_a_task_that_no_worker_runs_is_noted_however_many_jobs_of_others_are_before_its_own(
    queue: PgQueue, running: Running, limits: Limit | None
) -> None:
    @queue.task(name="video", limit=limits)
    async def video(number: int) -> None: ...

    @queue.task(name="mail", limit=limits)
    async def mail(number: int) -> None: ...

    @queue.task(name="chosen")
    async def chosen() -> None: ...

    async with running(queue, tasks=["chosen"]) as one:
        queue.enqueue_many(video.using(priority=5).call(number) for number in range(300))
        mail.enqueue(1)
        await one.parts.upkeep.note_unknown_tasks()
        assert ask(queue, NOTED) == [("mail",), ("video",)]


async def test_any_worker_renews_the_note_of_a_task_that_none_runs(
    queue: PgQueue, dsn: str, running: Running
) -> None:
    """One that has no free slot claims no job, and so meets none of its tasks."""
    async with running(queue, concurrency=1) as one:
        one.parts.claims.quiet = True
        with psycopg.connect(dsn, autocommit=True) as own:
            put(own, task="'gone'")
            own.execute(
                "insert into pgqueue.unknown_tasks select 'default', 'gone', now() - interval '9 minutes', now() - interval '6 minutes'"
            )
        await one.parts.upkeep.note_unknown_tasks()
        assert ask(queue, "select met_at > now() - interval '1 minute' from pgqueue.unknown_tasks") == [
            (True,)
        ]


async def test_a_task_is_chosen_by_its_name_also_for_jobs_of_its_former_names(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(name="video.cut", aliases=["shop.cut"])
    async def cut() -> None: ...

    @queue.task(name="mail.send", aliases=["old.send"])
    async def send() -> None: ...

    left, wanted = new_job("shop.cut"), new_job("old.send")
    on_queue = queue.database
    on_queue.run(enqueue.enqueue(left))
    added = on_queue.run(enqueue.enqueue(wanted))
    async with running(queue, tasks=["mail.*"]) as one:
        await until(lambda: queue.job(added.id).state is JobState.SUCCEEDED)
        assert one.parts.executor.served.left_out() == ["video.cut", "shop.cut"]
    assert ask(queue, "select task, status from pgqueue.jobs") == [("shop.cut", "ready")]


async def test_no_job_of_an_ordered_lane_goes_past_one_that_the_worker_does_not_run(
    queue: PgQueue, running: Running
) -> None:
    account = Limit(1, by="account", name="account", ordered=True)
    ran: list[str] = []

    @queue.task(name="deposit", limit=account)
    async def deposit(account: int) -> None:
        ran.append(f"deposit {account}")

    @queue.task(name="withdraw", limit=account)
    async def withdraw(account: int) -> None:
        ran.append(f"withdraw {account}")

    deposit.enqueue(1)
    last = withdraw.enqueue(1)
    other = withdraw.enqueue(2)
    async with running(queue, tasks=["withdraw"]):
        await ended(queue, other)
        assert ran == ["withdraw 2"]
        async with running(queue, tasks=["deposit"]):
            await ended(queue, last)
    assert ran == ["withdraw 2", "deposit 1", "withdraw 1"]

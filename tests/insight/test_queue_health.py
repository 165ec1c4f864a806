"""``queue.insight.health()``: one answer to "is it all right?", and the problems behind it, the worst first."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from insight.planted import MINUTE, enqueue, measured, run_first, whole, worker
from looking import ask

from pgqueue import Alert, Limit, OldestReady, PgQueue, Rate
from pgqueue.store.insight import health
from pgqueue.store.limits import lanes
from pgqueue.store.workers import upkeep
from pgqueue.values.insight.health import Health, Problem
from pgqueue.values.insight.problems import judge_health


def _nothing(**_: Any) -> None: ...


def _of_key(key: str) -> None: ...


def kinds(found: Health) -> list[str]:
    return [one.kind for one in found.problems]


def only(found: Health) -> Problem:
    (problem,) = found.problems
    return problem


def test_a_fresh_database_asks_for_a_worker(queue: PgQueue) -> None:
    found = queue.insight.health()
    assert (found.well, whole(found.sentence), only(found).level) == (
        False,
        "No worker is alive; no job is ready.",
        "warning",
    )


def test_all_is_right_where_a_worker_serves_every_queue(queue: PgQueue) -> None:
    enqueue(queue, "mail", "sms", minutes=3)
    worker(queue)
    worker(queue, "mail", pid=2)
    found = queue.insight.health()
    assert (found.well, found.problems) == (True, ())
    assert whole(found.sentence) == "All right: 2 workers serve 2 queues, the oldest ready job waits 3 min."
    assert msgspec.json.decode(msgspec.json.encode(found))["well"] is True


def test_no_worker_at_all_is_the_worst_problem(queue: PgQueue) -> None:
    enqueue(queue, "mail", "mail", "sms", minutes=10)
    problem = only(queue.insight.health())
    assert (
        whole(problem.sentence) == "No worker is alive: 3 jobs wait, the oldest for 10 min in mail and sms."
    )
    assert (problem.kind, problem.level, problem.jobs, problem.command) == (
        "no worker",
        "critical",
        3,
        "pgqueue worker",
    )


def test_queues_that_no_worker_serves_are_one_line(queue: PgQueue) -> None:
    worker(queue, "mail")
    enqueue(queue, *(f"q{number:03}" for number in range(300)), minutes=10)
    enqueue(queue, "mail")
    problem = only(queue.insight.health())
    said = "No worker serves q000, q001, q002, q003, q004 and 295 more: 300 jobs wait, the oldest for 10 min."
    assert (whole(problem.sentence), problem.count, problem.name) == (said, 300, None)


def test_one_queue_that_no_worker_serves_is_named_with_the_command(queue: PgQueue) -> None:
    worker(queue, "mail")
    enqueue(queue, "sms")
    problem = only(queue.insight.health())
    assert (problem.kind, problem.name, problem.command) == (
        "queue not served",
        "sms",
        "pgqueue worker --queues sms",
    )


def test_a_queue_whose_jobs_all_wait_in_lanes_is_not_served_either(queue: PgQueue) -> None:
    task = queue.task(name="sync", queue="sync", limit=Limit(1, name="api"))(_nothing)
    queue.database.run(lanes.declare(queue.limits))
    task.enqueue()
    worker(queue, "mail")
    assert only(queue.insight.health()).name == "sync"


def test_workers_that_are_quiet_serve_no_queue(queue: PgQueue) -> None:
    worker(queue, quiet=True)
    enqueue(queue, "mail")
    problem = only(queue.insight.health())
    assert problem.sentence.startswith("No worker serves mail: 1 job waits, the oldest for ")
    assert problem.sentence.endswith("; 1 worker that serves it is quiet.")
    assert problem.command == "pgqueue workers resume all"


def test_a_paused_queue_is_told_calmly_and_its_jobs_are_not_the_oldest(queue: PgQueue) -> None:
    worker(queue)
    enqueue(queue, "archive", minutes=60)
    enqueue(queue, "mail", minutes=2)
    queue.control.pause("archive", by="ann", why="disk")
    found = queue.insight.health()
    assert whole(found.sentence) == "All right: 1 worker serves 1 queue, the oldest ready job waits 2 min."
    assert (found.well, kinds(found), found.oldest_in) == (True, ["queue paused"], "mail")
    assert only(found).sentence.startswith("Queue archive has been paused for ")
    assert only(found).sentence.endswith(", by ann: disk; 1 job waits.")


def test_a_paused_queue_needs_no_worker(queue: PgQueue) -> None:
    worker(queue, "mail")
    enqueue(queue, "archive")
    assert kinds(queue.insight.health()) == ["queue not served"]
    queue.control.pause("archive", by="ann")
    assert kinds(queue.insight.health()) == ["queue paused"]


def test_a_stalled_and_an_unresponsive_worker_are_named(queue: PgQueue) -> None:
    now = datetime.now(UTC)
    worker(queue, host="a", looked_at=now - 40 * MINUTE, look_within=35.0)
    worker(
        queue,
        host="b",
        blocked_since=now - MINUTE,
        blocked_task="shop.report",
        blocked_where="jobs.py:3 in report",
    )
    found = queue.insight.health()
    assert [(one.kind, one.name) for one in found.problems] == [
        ("worker stalled", "a:1"), ("worker unresponsive", "b:1")
    ]  # fmt: skip
    assert whole(found.sentence) == "Worker a:1 has claimed no job, and asked for none, for 40 min."
    assert "by asyncio task shop.report at jobs.py:3 in report" in found.problems[1].sentence


def test_a_lost_worker_leaves_a_trace_with_the_number_of_its_jobs(queue: PgQueue) -> None:
    worker(queue)
    worker(queue, pid=5512, lease="-3 min")
    enqueue(queue, "mail", "mail", "mail")
    ask(
        queue,
        """update pgqueue.jobs set status = 'running', attempts = 1, claimed_at = now() - interval '5 min',
                  worker_id = (select id from pgqueue.workers where pid = 5512) returning id""",
    )
    before = only(queue.insight.health())
    assert (
        before.sentence
        == "Worker vm:5512 has lost its lease: a live worker takes its jobs over at its next sweep."
    )
    queue.database.run(upkeep.reclaim())
    after = only(queue.insight.health())
    assert whole(after.sentence) == "Worker vm:5512 was lost 3 min ago, with 3 jobs, which were taken over."
    assert (after.level, after.jobs) == ("warning", 3)
    ask(queue, "update pgqueue.former_workers set ended_at = ended_at - interval '2 hours' returning id")
    assert (queue.insight.health().well, only(queue.insight.health()).level) == (True, "info")
    ask(queue, "update pgqueue.former_workers set ended_at = ended_at - interval '23 hours' returning id")
    assert queue.insight.health().problems == ()


async def test_a_worker_that_stops_in_order_is_not_lost(queue: PgQueue) -> None:
    enqueue(queue, "mail")
    with queue.take(1, timeout=5) as jobs:
        assert jobs
    assert ask(queue, "select count(*) from pgqueue.former_workers") == [(1,)]
    assert kinds(queue.insight.health()) == ["no worker"]


@pytest.mark.parametrize(("minutes", "level"), [(0, None), (1, "info"), (9, "info"), (11, "warning")])
def test_a_full_limit_is_told_and_is_a_problem_once_a_job_has_waited_for_long(
    queue: PgQueue, minutes: int, level: str | None
) -> None:
    task = queue.task(name="sync", limit=Limit(1, name="api"))(_nothing)
    queue.database.run(lanes.declare(queue.limits))
    worker(queue)
    for _ in range(3):
        task.using(run_at=datetime.now(UTC) - minutes * MINUTE).enqueue()
    run_first(queue)
    found = queue.insight.health()
    assert kinds(found) == ([] if level is None else ["limit full"])
    if level is not None:
        assert (found.well, only(found).level) == (level == "info", level)
        said = f"Limit name:api holds back 2 jobs, the oldest for {minutes} min: 1 at once, 1 running."
        assert whole(only(found).sentence) == said.replace("for 1 min", "for 60 s")


def test_jobs_that_wait_for_slots_are_not_held_back_by_a_limit_with_free_places(queue: PgQueue) -> None:
    task = queue.task(name="sync", limit=Limit(2, by="key"))(_of_key)
    queue.database.run(lanes.declare(queue.limits))
    worker(queue)
    for key in ("a", "b", "b"):
        task.using(run_at=datetime.now(UTC) - 60 * MINUTE).enqueue(key)
    run_first(queue)
    assert queue.insight.health().problems == ()


def test_a_full_limit_of_a_paused_queue_holds_nothing_back(queue: PgQueue) -> None:
    task = queue.task(name="sync", queue="sync", limit=Limit(1, name="api"))(_nothing)
    queue.database.run(lanes.declare(queue.limits))
    worker(queue)
    for _ in range(3):
        task.using(run_at=datetime.now(UTC) - 60 * MINUTE).enqueue()
    run_first(queue)
    assert kinds(queue.insight.health()) == ["limit full"]
    queue.control.pause("sync")
    assert kinds(queue.insight.health()) == ["queue paused"]


def test_a_rate_that_holds_jobs_back_for_long_is_named(queue: PgQueue) -> None:
    task = queue.task(name="call", limit=Rate("1/hour", name="api"))(_nothing)
    queue.database.run(lanes.declare(queue.limits))
    worker(queue)
    for _ in range(2):
        task.using(run_at=datetime.now(UTC) - 60 * MINUTE).enqueue()
    problem = only(queue.insight.health())
    assert (
        problem.sentence
        == "Limit name:api holds back 2 jobs, the oldest for 60 min: one each 3600 s, 0 running."
    )


def test_a_limit_of_zero_is_a_problem_at_once(queue: PgQueue) -> None:
    task = queue.task(name="sync", limit=Limit(1, name="api"))(_nothing)
    queue.database.run(lanes.declare(queue.limits))
    worker(queue)
    task.enqueue()
    ask(queue, "update pgqueue.limits set most = 0 where name = 'name:api' returning name")
    assert only(queue.insight.health()).level == "critical"


def test_a_task_that_fails_since_a_deploy_is_named_with_it(queue: PgQueue) -> None:
    worker(queue)
    for minutes in (25, 35, 45):
        measured(queue, "charge", minutes, succeeded=99, failed=1)
        measured(queue, "index", minutes, succeeded=99, failed=1)
    ask(
        queue,
        "insert into pgqueue.deploys (deployed_at, version) values (now() - interval '20 min', 'v42') returning version",
    )
    measured(queue, "charge", 5, succeeded=5, failed=45)
    measured(queue, "index", 5, succeeded=50, failed=0)
    problem = only(queue.insight.health())
    assert whole(problem.sentence) == (
        "Task charge fails since the deploy of v42, 20 min ago: 45 of 50 attempts of the last 10 min failed (90 %), "
        "1.0 % did before."
    )
    assert (problem.kind, problem.level, problem.name) == ("task fails", "critical", "charge")


def test_a_task_that_has_been_mended_is_no_problem(queue: PgQueue) -> None:
    worker(queue)
    measured(queue, "charge", 80, succeeded=99, failed=1)
    measured(queue, "charge", 40, succeeded=5, failed=95)
    measured(queue, "charge", 3, succeeded=30, failed=0)
    assert queue.insight.health().problems == ()


def test_a_task_of_which_most_attempts_fail_is_named_without_a_past(queue: PgQueue) -> None:
    worker(queue)
    measured(queue, "charge", 3, succeeded=1, failed=4)
    assert only(queue.insight.health()).level == "critical"
    ask(queue, "update pgqueue.series_written set failed = 3 returning failed")
    assert queue.insight.health().problems == (), "4 attempts are too few to judge"


def test_late_schedules_and_those_that_are_set_aside_are_named(queue: PgQueue) -> None:
    worker(queue)
    task = queue.task(name="report")(_nothing)
    for name in ("a", "b", "c"):
        queue.schedules.add(name, task.call(), "0 * * * *")
    ask(
        queue,
        "update pgqueue.schedules set next_at = now() - interval '5 min' where name <> 'c' returning name",
    )
    ask(
        queue,
        "update pgqueue.schedules set error = 'boom', failed_at = now() where name = 'b' returning name",
    )
    found = queue.insight.health()
    assert [(one.kind, one.name) for one in found.problems] == [
        ("schedule set aside", "b"),
        ("schedule late", "a"),
    ]


def test_a_firing_alert_is_critical_and_a_silenced_one_calm(queue: PgQueue) -> None:
    worker(queue)

    @queue.alert("slow", OldestReady(over=60))
    @queue.task(name="page")
    def page(alert: Alert) -> None: ...

    queue.alerts.apply()
    ask(
        queue,
        """update pgqueue.alerts set held_at = now() - interval '6 min', firing_at = now() - interval '6 min',
                  looked_at = now(), summary = 'a job has been ready for 2 min' returning name""",
    )
    problem = only(queue.insight.health())
    assert (problem.level, whole(problem.sentence)) == (
        "critical", "Alert slow has been firing for 6 min: a job has been ready for 2 min.",
    )  # fmt: skip
    queue.alerts.silence("slow", timedelta(hours=1), by="root")
    found = queue.insight.health()
    assert (found.well, only(found).kind) == (True, "alert silenced")
    assert " is firing, silenced by root for another " in only(found).sentence


def test_the_worst_problem_comes_first(queue: PgQueue) -> None:
    enqueue(queue, "mail", "sms")
    worker(queue, "sms", looked_at=datetime.now(UTC) - 40 * MINUTE, look_within=35.0)
    queue.control.pause("archive", by="ann")
    found = queue.insight.health()
    assert kinds(found) == ["queue not served", "worker stalled", "queue paused"]
    assert found.sentence == found.problems[0].sentence


def test_every_fact_is_read_at_a_given_instant(queue: PgQueue) -> None:
    worker(queue, lease="1 hour")
    later = datetime.now(UTC) + timedelta(hours=2)
    facts = queue.database.run(health.facts({}, now=later))
    assert facts.now == later
    assert not judge_health([], facts).well


async def test_the_awaited_answer_is_the_same(queue: PgQueue) -> None:
    enqueue(queue, "mail")
    found = await queue.insight.ahealth()
    assert kinds(found) == ["no worker"]
    await queue.aclose()

"""Operations on many jobs, on a test's clock: on PostgreSQL, and in a transaction of the test's own."""

from datetime import timedelta
from typing import Any

import pytest
from neighbours.places import MINUTE, NOON, a_clock, a_database, each_database, one_database
from tenacity import wait_fixed

from pgqueue import JobState, PgQueue, Retry, chain
from pgqueue.errors import InvalidOption
from pgqueue.testing import Clock, drain
from pgqueue.values.bulk.operation import SkipReason

queue, clock, emptied, database = each_database, a_clock, a_database, one_database

CRITERIA: list[dict[str, Any]] = [
    {"everything": True},
    {"queue": "mail*"},
    {"queue": "mail_b"},
    {"task": "*.send", "state": "ready"},
    {"state": ["scheduled", "blocked"]},
    {"args": {"n": 1}},
    {"args": {"n": True}},
    {"args": {"tags": ["b"]}},
    {"args": {"tags": [{"k": 1}]}},
    {"args": {"tags": {}}},
    {"args": {}},
    {"meta": {"tenant": "acme"}},
    {"enqueued_after": NOON + MINUTE},
    {"enqueued_before": NOON + MINUTE},
    {"min_priority": 1, "max_priority": 5},
    {"ids": [1, 3]},
    {"ids": []},
    {"error": "ValueError"},
    {"message": "no money"},
]


def some_jobs(queue: PgQueue, clock: Clock) -> None:
    """Jobs 1 to 5: one of each kind, the last one failed once."""

    @queue.task(name="shop.send")
    def send(n: Any = None, tags: Any = None) -> None: ...

    @queue.task(name="fail", retry=Retry(wait=wait_fixed(60)))
    def fail() -> None:
        raise ValueError("no money")

    fail.using(queue="other").enqueue()
    drain(queue, raises=False)
    send.using(queue="mail", priority=5).enqueue(1, ["a", "b"])
    send.using(queue="mail_b", meta={"tenant": "acme", "more": [1]}).enqueue(
        n=True, tags=[{"k": 1.0, "l": 2}]
    )
    clock.travel(MINUTE / 2)
    send.using(queue="mailxb", delay=3600).enqueue(1.0)
    clock.travel(MINUTE / 2)
    chain(send.call("1"), send.call(3)).enqueue()


@pytest.mark.parametrize("criteria", CRITERIA, ids=str)
def test_a_filter_means_the_same_jobs(queue: PgQueue, clock: Clock, criteria: dict[str, Any]) -> None:
    some_jobs(queue, clock)
    jobs = queue.control.jobs(**criteria)
    live = {job.id for job in queue.insight.search().jobs}
    expected = {job.id for job in queue.insight.search().jobs if jobs.filter.matches(job)}
    found = jobs.preview()
    assert found.count == sum(one.count for one in found.groups) == len(expected)
    assert {job.id for job in found.sample} <= expected
    assert jobs.reprioritise(77).done == len(expected)
    assert {job.id for job in queue.insight.search().jobs if job.priority == 77} == expected
    assert live == {job.id for job in queue.insight.search().jobs}


def test_each_operation_does_what_its_name_says(queue: PgQueue, clock: Clock) -> None:
    some_jobs(queue, clock)
    assert queue.control.jobs(queue="mail*").move("slow", by="ann").done == 3
    assert queue.control.jobs(queue="*").move("slow", by="ann").done == 3
    assert {job.queue for job in queue.insight.search().jobs} == {"slow"}
    assert queue.control.jobs(state="scheduled").cancel(by="bob").done == 2
    assert queue.control.jobs(everything=True).cancel(by="bob").done == 4
    assert {job.state for job in queue.insight.search().jobs} == {JobState.CANCELLED}
    assert queue.control.jobs(everything=True).preview().count == 0
    said = [(one.by, one.action, one.jobs, one.unfinished) for one in queue.insight.audit(limit=4)]
    assert said == [
        ("bob", "cancel", 4, False),
        ("bob", "cancel", 2, False),
        ("ann", "move", 3, False),
        ("ann", "move", 3, False),
    ]
    with pytest.raises(InvalidOption, match="contradict"):
        queue.control.jobs(everything=True, queue="mail")


def test_running_jobs_are_asked_by_a_cancel_and_left_alone_by_the_others(queue: PgQueue) -> None:
    seen: list[Any] = []

    @queue.task(name="operate", max_attempts=1)
    def operate() -> None:
        jobs = queue.control.jobs(task="operate")
        waiting = queue.control.jobs(task="operate", state="waiting")
        seen.extend((jobs.move("b").done, waiting.cancel().done, jobs.reprioritise(9).done))
        seen.append(
            (
                jobs.preview("reprioritise", priority=1).count,
                jobs.preview("reprioritise", priority=1).left_alone,
                jobs.preview().count,
            )
        )
        done = jobs.cancel()
        seen.extend(((done.done, done.asked), jobs.preview().count, jobs.cancel().asked))
        raise ValueError("stopped")

    job = operate.enqueue()
    drain(queue, raises=False)
    assert seen == [0, 0, 0, (0, 1, 1), (0, 1), 0, 0]
    assert job.status() is JobState.CANCELLED


def test_dead_jobs_are_retried_and_deleted(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="fail", max_attempts=1)
    def fail(message: str) -> None:
        raise ConnectionError(message)

    first = fail.using(unique_key="one").enqueue("no mail server")
    second = fail.enqueue("no money")
    drain(queue, raises=False)
    clock.travel(MINUTE)
    third = fail.using(queue="mail").enqueue("no mail server")
    drain(queue, raises=False)
    twin = fail.using(unique_key="one").enqueue("x")

    assert queue.control.dead(everything=True).preview().count == 3
    assert queue.control.dead(died_before=NOON + MINUTE).preview().count == 2
    assert queue.control.dead(error="ConnectionError", message="money").purge().done == 1
    done = queue.control.dead(message="mail server").retry()
    assert (done.done, done.skipped) == (1, {SkipReason.KEY_HELD: 1})
    assert [(one.id, one.why) for one in done.examples] == [(first.id, SkipReason.KEY_HELD)]
    assert (first.status(), third.status(), twin.status()) == ("dead", "ready", "ready")
    assert second.id not in {job.id for job in queue.insight.search().jobs}
    assert queue.control.dead(queue="d*").retry(without_key=True).done == 1


def test_what_becomes_of_a_flow_is_the_same(queue: PgQueue) -> None:
    @queue.task(name="fail", max_attempts=1)
    def fail() -> None:
        raise ValueError("no")

    flow = chain(fail.call(), fail.call()).enqueue()
    drain(queue, raises=False)
    before = queue.flows.get(flow.id).state
    assert queue.control.dead(task="fail").retry().done == 1
    again = queue.flows.get(flow.id).state
    assert (before, again) == ("failed", "running")
    assert queue.control.jobs(task="fail").cancel().done >= 1
    assert queue.flows.get(flow.id).state == "failed"


def test_what_operators_do_to_schedules_flows_and_a_job_is_noted(queue: PgQueue, clock: Clock) -> None:
    step = queue.task(name="step")(lambda: None)
    daily: dict[str, Any] = {"every": timedelta(days=1), "start": clock.now - timedelta(days=9)}
    queue.schedules.add("daily", step.call(), by="abe", **daily)
    queue.schedules.put("weekly", step.call(), "@weekly")
    queue.schedules.put("daily", step.call(), by="nobody", **daily)
    queue.schedules.pause("daily", by="ann")
    queue.schedules.resume("daily", by="bob")
    queue.schedules.fire("daily", by="cid")
    start, end = clock.now - timedelta(days=5, hours=1), clock.now - timedelta(days=3)
    filled = queue.schedules.backfill("daily", start, end, by="dan")
    queue.schedules.remove("daily", by="eve")
    flow = chain(step.call(), step.call()).enqueue()
    queue.flows.cancel(flow.id, by="flo")
    assert not queue.flows.cancel(flow.id, by="nobody")
    queue.flows.retry(flow.id, by="gus", what="all")
    later = step.using(delay=60).enqueue()
    assert queue.control.run_now(later.id, by="hal")
    assert not queue.control.run_now(later.id, by="nobody")
    assert later.status() == "ready"

    said = [(one.by, one.action, one.target, one.jobs, one.details) for one in queue.insight.audit(limit=9)]

    given = {"from": start.isoformat(), "to": end.isoformat()}
    assert said[::-1] == [
        (
            "abe",
            "schedule add",
            "daily",
            None,
            {"task": "step", "queue": "default", "rule": "every 1 day, 0:00:00"},
        ),
        ("ann", "schedule pause", "daily", None, {}),
        ("bob", "schedule resume", "daily", None, {}),
        ("cid", "schedule fire", "daily", 1, {}),
        ("dan", "schedule backfill", "daily", len(filled), given),
        ("eve", "schedule remove", "daily", None, {}),
        ("flo", "workflow cancel", str(flow.id), None, {}),
        ("gus", "workflow retry", str(flow.id), 2, {"what": "all"}),
        ("hal", "run now", f"job {later.id}", 1, {}),
    ]

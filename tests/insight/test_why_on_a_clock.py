"""Why a job does not run, on a test's clock: on PostgreSQL, and in a transaction of the test's own, the evidence is the same."""

from datetime import timedelta
from typing import Any

import pytest
from neighbours.places import a_clock, a_database, each_database, one_database
from tenacity import stop_after_attempt, wait_fixed

from pgqueue import Limit, PgQueue, Rate, Retry, Workflow, chain, group
from pgqueue.testing import Clock, drain
from pgqueue.testing.trouble import dying

queue, clock, emptied, database = each_database, a_clock, a_database, one_database

WORKERS = {"no worker", "task unknown", "waiting"}


def causes(queue: PgQueue, job_id: int) -> tuple[list[str], dict[str, Any], str]:
    """The causes that are not about workers, of which these tests have none; the evidence; the sentence."""
    found = queue.why(job_id)
    return [one for one in found.evidence["causes"] if one not in WORKERS], found.evidence, found.sentence


def test_a_full_limit_is_held_by_the_jobs_that_run(queue: PgQueue) -> None:
    @queue.task(name="send", limit=Limit(1, by="customer"))
    def send(customer: int) -> None: ...

    jobs = [send.enqueue(7) for _ in range(3)]
    with dying(send):
        drain(queue)
    found, evidence, sentence = causes(queue, jobs[2].id)
    assert found == ["limit full", "turn"]
    (limit,) = evidence["limits"]
    assert (limit["name"], limit["most"], limit["running"]) == ("task:send:customer", 1, 1)
    assert [one["job"] for one in limit["held_by"]] == [jobs[0].id]
    assert f"limit 'task:send:customer' is full, 1 of 1: held by job {jobs[0].id} (" in sentence
    assert (evidence["ahead_in_lane"], evidence["in_other_lanes"]) == (1, 0)


def test_a_job_that_keeps_its_place_holds_its_limit(queue: PgQueue) -> None:
    @queue.task(name="send", limit=Limit(1, by="customer", ordered=True), retry=Retry(wait=wait_fixed(60)))
    def send(customer: int) -> None:
        raise OSError(f"no {customer}")

    jobs = [send.enqueue(7) for _ in range(2)]
    drain(queue, raises=False)
    found, evidence, _ = causes(queue, jobs[1].id)
    assert found == ["limit full"]
    assert evidence["limits"][0]["held_by"] == [{"job": jobs[0].id, "worker": None}]
    first = queue.why(jobs[0].id).sentence
    assert first.startswith(
        "it is due in 60 s, at 2031-05-04 12:01:00 UTC, after 1 of 25 attempts failed, the last with OSError: no 7; "
    )


def test_a_rate_opens_at_an_instant(queue: PgQueue, clock: Clock) -> None:
    @queue.task(name="call", limit=Rate(every=60))
    def call(number: int) -> None: ...

    jobs = [call.enqueue(number) for number in range(3)]
    drain(queue)
    found, evidence, _ = causes(queue, jobs[1].id)
    assert (found, evidence["limits"][0]["opens_in"]) == (["rate"], 60.0)
    assert causes(queue, jobs[2].id)[0] == ["rate", "turn"]
    clock.travel(60)
    assert causes(queue, jobs[1].id)[0] == []


def test_a_share_waits_in_turn_with_other_keys(queue: PgQueue) -> None:
    @queue.task(name="work", fair_by="tenant")
    def work(tenant: str) -> None: ...

    jobs = [work.enqueue(tenant) for tenant in "aab"]
    assert causes(queue, jobs[1].id)[0] == ["turn"]
    evidence = queue.why(jobs[1].id).evidence
    assert (evidence["ahead_in_lane"], evidence["in_other_lanes"]) == (1, 1)


def test_a_limited_queue_holds_its_ready_jobs(queue: PgQueue) -> None:
    @queue.task(name="plain")
    def plain() -> None: ...

    queue.control.limits.set("queue:default", Limit(1))
    jobs = [plain.enqueue(), plain.enqueue()]
    with dying(plain):
        drain(queue)
    found, evidence, _ = causes(queue, jobs[1].id)
    assert (found, evidence["limits"][0]["name"]) == (["limit full"], "queue:default")
    queue.control.limits.unset("queue:default")
    assert causes(queue, jobs[1].id)[0] == []


def test_a_kept_place_takes_none_of_its_queue_as_a_whole(queue: PgQueue) -> None:
    @queue.task(name="send", limit=Limit(1, by="customer", ordered=True), retry=Retry(wait=wait_fixed(60)))
    def send(customer: int) -> None:
        raise OSError(f"no {customer}")

    @queue.task(name="plain")
    def plain() -> None: ...

    queue.control.limits.set("queue:default", Limit(1))
    send.enqueue(7)
    drain(queue, raises=False)
    found, evidence, _ = causes(queue, plain.enqueue().id)
    assert (found, [one["running"] for one in evidence["limits"]]) == ([], [0])
    found, evidence, _ = causes(queue, send.enqueue(7).id)
    assert (found, [one["running"] for one in evidence["limits"]]) == (["limit full"], [1, 0])


@pytest.fixture
def fail(queue: PgQueue) -> Any:
    @queue.task(name="fail", retry=Retry(stop=stop_after_attempt(1)))
    def fail() -> None:
        raise OSError("the disk is full")

    return fail


@pytest.fixture
def note(queue: PgQueue) -> Any:
    @queue.task(name="note")
    def note() -> None: ...

    return note


def waiting_flow(note: Any, failing: Any) -> Any:
    """A flow whose last job waits for the retry of what failed."""
    flow = Workflow("shop")
    first = flow.add("charge", failing)
    flow.add("ship", note.call(), after=[first], if_failed="wait")
    return flow.enqueue()


def test_a_job_of_a_flow_waits_for_the_node_before_it(queue: PgQueue, note: Any) -> None:
    handle = chain(note.call(), note.call()).enqueue()
    found, evidence, sentence = causes(queue, handle.jobs[1].id)
    assert found == ["blocked"]
    assert [(one["label"], one["job"], one["job_state"]) for one in evidence["nodes"]] == [
        ("1", handle.jobs[0].id, "ready")
    ]
    assert (
        sentence == f"it is blocked, and waits for '1' (job {handle.jobs[0].id}, ready), of flow {handle.id}"
    )


def test_a_job_waits_for_a_node_that_is_dead(queue: PgQueue, note: Any, fail: Any) -> None:
    handle = waiting_flow(note, fail.call())
    drain(queue, raises=False)
    dead, job = handle.jobs
    found, evidence, sentence = causes(queue, job.id)
    assert (found, evidence["nodes"][0]["is_dead"]) == (["dead node"], True)
    assert sentence == (
        f"it waits for 'charge' (job {dead.id}), which is dead (exhausted): OSError: the disk is full; "
        f"retry it with `pgqueue dead retry {dead.id}`"
    )


def test_a_job_waits_for_a_group_in_which_a_job_is_dead(queue: PgQueue, note: Any, fail: Any) -> None:
    handle = waiting_flow(note, group([note.call(), group([note.call(), fail.call()])]))
    drain(queue, raises=False)
    found, evidence, sentence = causes(queue, handle.jobs[-1].id)
    (node,) = evidence["nodes"]
    assert (found, node["kind"], node["job"]) == (["dead node"], "group", handle.jobs[2].id)
    assert f"which has failed, in which job {handle.jobs[2].id} is dead" in sentence
    assert "OSError: the disk is full" in sentence


def test_a_member_of_a_group_waits_for_what_its_group_waits_for(queue: PgQueue, note: Any) -> None:
    handle = chain(note.call(), group([chain(note.call(), note.call()), note.call()])).enqueue()
    for job in handle.jobs[1:]:
        assert queue.why(job.id).evidence["nodes"][0]["job"] == handle.jobs[0].id


def test_a_flow_waits_for_the_flow_of_its_key(queue: PgQueue, note: Any) -> None:
    flow = Workflow("shop", key="k", in_turn=True)
    flow.add("note", note.call())
    first, second = flow.enqueue(), flow.enqueue()
    (job,) = second.jobs
    assert queue.why(job.id).sentence == (
        f"it is blocked: flow {second.id} waits for its turn, behind flow {first.id}"
    )


def test_a_suspect_says_so(queue: PgQueue, note: Any, clock: Clock) -> None:
    job = note.enqueue()
    with dying(note):
        drain(queue)
    clock.travel(timedelta(minutes=2))
    with dying(note):
        drain(queue)
    assert (job.why().evidence["suspect"], job.why().evidence["crashes"]) == (True, 1)


def test_a_job_that_runs_and_one_that_ended_say_since_when(queue: PgQueue, note: Any, clock: Clock) -> None:
    ended = note.enqueue()
    drain(queue)
    runs = note.enqueue()
    with dying(note):
        drain(queue)
    clock.travel(5)
    assert runs.why().sentence.startswith(
        "attempt 1 of 25 has been running for 5 s, since 2031-05-04 12:00:00 UTC"
    )
    assert ended.why().sentence == "it succeeded 5 s ago, at 2031-05-04 12:00:00 UTC"
    assert ended.why().evidence["causes"] == ["ended"]

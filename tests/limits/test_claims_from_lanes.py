"""Claims from lanes, plan by plan, at given instants: which jobs start, when, and what SQL makes of limits.

What else is done to jobs that wait in lanes: operations, pauses, expiry, locks that are held for long.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg
import pytest
from looking import ask, wait_until
from promises.processes import LEASE, at_the_gate, do, listed

from pgqueue import Debounce, Limit, PgQueue, Rate, Task, chain
from pgqueue.store.arrays import texts
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import finish
from pgqueue.store.limits import lanes, limit_control, limits, served_lanes
from pgqueue.store.limits.limits import LaneClaims
from pgqueue.store.limits.served_lanes import REMEMBERED_FOR, ServedLanes
from pgqueue.store.plan import Statement, Steps, plan, run
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.values.limits.limit import LimitNumbers
from pgqueue.values.limits.state import WaitingLane

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
WORKERS = 3


class Workers:
    """Workers that claim from lanes, at instants that the test gives."""

    def __init__(self, queue: PgQueue) -> None:
        self.queue = queue
        self.ids = [listed(queue, LEASE) for _ in range(WORKERS)]
        self.seconds = 0.0
        self.lanes = [
            ServedLanes(lambda: queue.limits, lambda: queue.limiting, clock=lambda: self.seconds)
            for _ in self.ids
        ]

    def claim(self, worker: int, room: int, seconds: float = 0.0, **told: Any) -> LaneClaims:
        if told:
            self.lanes[worker].learn(**{"limited": (), "weighted": False, "seen": True, **told})
        plan = self.lanes[worker].claim(self.ids[worker], room, now=NOON + timedelta(seconds=seconds))
        taken = do(self.queue, plan)
        self.lanes[worker].claimed()
        return taken

    def starts(self, worker: int, room: int, seconds: float) -> list[float]:
        """At which seconds after noon the claimed jobs start."""
        taken = self.claim(worker, room, seconds)
        return [round(seconds + taken.waits.get(one.id, 0.0), 6) for one in taken.claims]


@pytest.fixture
def workers(queue: PgQueue) -> Workers:
    return Workers(queue)


@pytest.mark.parametrize("kept", ["in_lane = true, place_at = null", "in_lane = null, place_at = now()"])
def test_a_job_that_any_statement_sets_running_leaves_its_lane_and_keeps_no_place(
    queue: PgQueue, kept: str
) -> None:
    """Statements of users know neither column; a job that stays in its lane is claimed twice."""

    @queue.task(limit=Limit(1))
    def work() -> None: ...

    job = work.enqueue()
    state = "blocked" if "in_lane = true" in kept else "scheduled"
    ask(queue, f"update pgqueue.jobs set status = %s, {kept} where id = %s", state, job.id)
    (worker,) = Workers(queue).ids[:1]
    claimed = "update pgqueue.jobs set status = 'running', worker_id = %s, claimed_at = now() where id = %s"
    ask(queue, claimed, worker, job.id)
    assert ask(queue, "select status, in_lane, place_at from pgqueue.jobs") == [("running", None, None)]


def test_starts_are_exactly_one_interval_apart_over_three_workers_and_a_pause_is_not_made_up_for(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(limit=Rate(every=0.04))
    def tick() -> None: ...

    queue.enqueue_many(tick.call() for _ in range(12))
    found = [*workers.starts(0, 2, 0.0), *workers.starts(1, 9, 0.0)]  # what starts within 0.1 s
    assert found == [0.0, 0.04, 0.08]
    assert workers.starts(2, 9, 0.0) == []
    assert workers.starts(2, 9, 0.05) == [0.12]
    assert workers.starts(1, 1, 0.06) == [0.16]
    assert workers.starts(0, 2, 5.0) == [5.0, 5.04]
    assert workers.starts(1, 9, 5.001) == [5.08]


def test_a_worker_that_dies_with_a_start_leaves_a_gap_and_moves_no_other_start(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(limit=Rate(every=0.04))
    def tick() -> None: ...

    queue.enqueue_many(tick.call() for _ in range(5))
    assert workers.starts(0, 2, 0.0) == [0.0, 0.04]
    ask(queue, "delete from pgqueue.workers where id = %s", workers.ids[0])
    assert workers.starts(0, 2, 0.02) == []  # a worker off the list claims nothing
    assert workers.starts(1, 1, 0.02) == [0.08]


def test_a_job_that_costs_more_than_the_first_of_its_lane_waits_and_those_behind_it_too(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(limit=Rate("10/second", burst=6, cost="size"))
    def send(size: int = 1) -> None: ...

    jobs = queue.enqueue_many([send.call(), send.call(6), send.call(6), send.call()])
    assert workers.starts(0, 9, 0.0) == [0.0, 0.1]
    assert [job.status() for job in jobs[2:]] == [JobState.BLOCKED] * 2
    assert queue.job(jobs[2].id).attempts == 0
    assert workers.starts(1, 9, 0.1) == []
    assert workers.starts(1, 9, 0.6) == [0.7]
    assert workers.starts(1, 9, 0.7) == [0.8]


def test_a_worker_is_told_when_a_rate_lets_the_next_job_be_claimed(queue: PgQueue, workers: Workers) -> None:
    @queue.task(limit=Rate(every=5))
    def tick() -> None: ...

    queue.enqueue_many(tick.call() for _ in range(2))
    assert workers.claim(0, 9).again_in == pytest.approx(4.9)
    assert workers.claim(1, 9, 1.0).again_in == pytest.approx(3.9)


def test_a_limit_that_an_operator_sets_counts_for_running_workers_and_what_the_code_says_does_not_replace_it(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(limit=Limit(5, name="api"))
    def call() -> None: ...

    queue.enqueue_many(call.call() for _ in range(9))
    assert len(workers.claim(0, 2).claims) == 2
    ask(queue, "update pgqueue.limits set most = 3, set_at = now()")
    assert len(workers.claim(0, 9).claims) == 1
    assert not workers.claim(1, 9).claims
    assert ask(queue, "select most, declared from pgqueue.limits") == [(3, "5 at once")]


def test_a_share_of_weight_3_starts_3_jobs_for_one(queue: PgQueue, workers: Workers) -> None:
    @queue.task(fair_by="tenant")
    def work(tenant: str) -> None: ...

    queue.enqueue_many(work.call(tenant) for tenant in ("a", "b") for _ in range(100))
    queue.control.limits.weigh({"tenant": "a"}, 3, by="ann")
    (share,) = queue.insight.weights()
    assert {(share,)} < {*ask(queue, "select distinct lane from pgqueue.jobs")}
    polled = do(queue, upkeep.poll())
    assert polled.weighted
    claims = [one for _ in range(10) for one in workers.claim(0, 8, weighted=polled.weighted).claims]
    assert len(claims) == 80
    assert abs(sum('"a"' in one.args for one in claims) - 60) <= 3
    queue.control.limits.weigh({"tenant": "a"}, None)
    assert not do(queue, upkeep.poll()).weighted
    assert {one.name for one in queue.insight.limits()} == set()


def test_a_claim_reads_the_weights_of_its_own_shares_and_a_poll_reads_none(queue: PgQueue) -> None:
    """With 100,000 weights each poll of each worker took 0.2 s."""

    @queue.task(fair_by="tenant")
    def work(tenant: str) -> None: ...

    queue.enqueue_many(work.call(tenant) for tenant in ("a", "b"))
    for tenant in ("a", "c", "d"):
        queue.control.limits.weigh({"tenant": tenant}, 3)
    assert do(queue, upkeep.poll()).weighted is True
    lanes = [lane for (lane,) in ask(queue, "select lane from pgqueue.jobs order by lane")]
    steps = limits.take(
        uuid4(), [WaitingLane("default", lane) for lane in lanes], 5, declared={}, weighted=True
    ).steps()
    asked = next(steps)
    assert isinstance(asked, Statement)
    assert (asked.name, asked.params) == ("limits/weights", {"shares": texts(lanes)})


def test_jobs_of_sql_and_of_schedules_wait_in_the_lanes_that_python_makes(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(
        name="send", limit=[Limit(1, by=("customer", "kind")), Limit(7, name="api")], fair_by="tenant"
    )
    def send(customer: int, kind: str, tenant: dict[str, str]) -> None: ...

    call = send.call(7, 'a "quoted" \n text/with ␟ signs ' * 9, tenant={"b": "1", "a": "2"})
    (handle,) = queue.enqueue_many([call])
    workers.claim(0, 0)  # a worker stores what its tasks say
    args = call.job.args.decode()
    ask(queue, "select pgqueue.enqueue('send', %s::jsonb)", args)
    ask(queue, "select pgqueue.enqueue('other', %s::jsonb)", args)
    lanes = ask(queue, "select lane, status, in_lane from pgqueue.jobs where task = 'send'")
    assert len(lanes) == 2
    assert len({*lanes}) == 1
    assert lanes[0][1:] == ("blocked", True)
    assert ask(queue, "select lane, status from pgqueue.jobs where task = 'other'") == [(None, "ready")]
    assert handle.status() is JobState.BLOCKED
    assert "waits in its lane" in queue.why(handle.id).sentence


def test_states_of_rates_that_have_passed_are_deleted(queue: PgQueue, workers: Workers) -> None:
    @queue.task(limit=Rate(every=5, by="customer"))
    def tick(customer: int) -> None: ...

    queue.enqueue_many(tick.call(number) for number in range(4))
    assert len(workers.claim(0, 9).claims) == 4
    assert do(queue, upkeep.drop_rates(now=NOON)) == 0
    assert do(queue, upkeep.drop_rates(now=NOON + timedelta(seconds=50))) == 0  # a clock may be set back
    with queue.database.pooled() as connection, connection.transaction():
        connection.execute("select from pgqueue.rates limit 1 for update")
        assert do(queue, some_rates(2)) == 2
        assert do(queue, some_rates(2)) == 1
    assert do(queue, upkeep.drop_rates(now=NOON + timedelta(minutes=2))) == 1


@plan
def some_rates(limit: int) -> Steps[int]:
    """Delete at most this many states of rates; how many there were to delete."""
    rows = yield Statement("limits/drop_rates", {"now": NOON + timedelta(minutes=2), "limit": limit})
    return int(rows[0][0])


def test_a_limit_is_set_at_the_given_instant(queue: PgQueue) -> None:
    do(queue, limit_control.change("queue:mail", LimitNumbers(3, None, None), {}, by="ann", now=NOON))
    assert ask(queue, "select set_at, set_by from pgqueue.limits") == [(NOON, "ann")]


def test_the_instant_to_which_waits_belong_is_that_of_the_statement(queue: PgQueue) -> None:
    """Not that at which its transaction began, which may have waited for locks since."""

    @plan(transaction=True)
    def advance() -> Steps[int]:
        params = {"keys": texts(["key"]), "tats": "{1}", "now": None}
        ((first,),) = yield Statement("limits/advance", params)
        ((second,),) = yield Statement("limits/advance", params)
        return int(second - first)

    assert do(queue, advance()) > 0


def test_another_workers_lock_is_passed_over_and_the_other_lanes_are_served(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(name="a", limit=Limit(1))
    def a() -> None: ...

    @queue.task(name="b", limit=Limit(1))
    def b() -> None: ...

    queue.enqueue_many([a.call(), b.call()])
    do(queue, lanes.declare(queue.limits))
    with queue.database.pooled() as connection, connection.transaction():
        connection.execute("select from pgqueue.limits where name = 'task:a' for update")
        taken = workers.claim(0, 9)
        assert ([one.task for one in taken.claims], taken.again_in) == (["b"], limits.AGAIN)
    assert [one.task for one in workers.claim(0, 9).claims] == ["a"]


def test_two_transactions_that_add_jobs_of_one_full_lane_do_so_one_after_the_other(
    queue: PgQueue, dsn: str
) -> None:
    @queue.task(name="render", limit=Limit(1, when_full="oldest"))
    def render() -> None: ...

    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as connection:
        first = render.using(connection=connection).enqueue()
        second = pool.submit(render.enqueue)
        wait_until(lambda: at_the_gate(dsn))
        connection.commit()
        assert second.result(60).id == first.id
    assert len(queue.insight.search().jobs) == 1


def test_a_round_of_lanes_ends_where_no_lane_may_start_a_job(
    queue: PgQueue, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that knew of more lanes than one look asks for looked without a rest while their limits were full."""
    monkeypatch.setattr(served_lanes, "AT_ONCE", 3)

    @queue.task(limit=[Limit(1, by="number"), Limit(1, name="api")])
    def call(number: int) -> None: ...

    queue.enqueue_many(call.call(number) for number in range(8))
    assert len(workers.claim(0, 9).claims) == 1
    unfinished = []
    for _ in range(9):
        assert not workers.claim(0, 9).claims
        unfinished.append(workers.lanes[0].unfinished)
    assert unfinished.count(False) >= 3
    assert True in unfinished


@pytest.mark.parametrize("depth", [1, 3, 40])
def test_every_job_of_many_lanes_in_two_queues_is_claimed_in_the_order_of_its_lane(
    queue: PgQueue, workers: Workers, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """However many jobs a lane has: where they are few, the worker reads on; where they are many, it skips."""
    monkeypatch.setattr(served_lanes, "AT_ONCE", 4)

    @queue.task(limit=Limit(1_000, by="number"))
    def call(number: int, turn: int) -> None: ...

    for name in ("mail", "reports"):
        there = call.using(queue=name)
        queue.enqueue_many(there.call(number, turn) for turn in range(depth) for number in range(11))
    found: dict[tuple[str, str], list[int]] = {}
    looks = 0
    while sum(map(len, found.values())) < 22 * depth:
        looks += 1
        for one in workers.claim(0, 500).claims:
            found.setdefault((one.queue, one.lane or ""), []).append(one.id)
        assert looks <= 12
    assert len(found) == 22
    assert all(ids == sorted(ids) for ids in found.values())


def test_lanes_of_a_paused_queue_are_passed_over_where_the_worker_reads_on(
    queue: PgQueue, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_lanes, "AT_ONCE", 3)

    @queue.task(queue="mail", limit=Limit(1, by="number"))
    def call(number: int) -> None: ...

    queue.enqueue_many(call.call(number) for number in range(9))
    assert len(workers.claim(0, 9).claims) == 3
    queue.control.pause("mail")
    assert not any(workers.claim(0, 9).claims for _ in range(4))
    queue.control.resume("mail")
    assert sum(len(workers.claim(0, 9).claims) for _ in range(4)) == 6


def test_few_lanes_with_many_jobs_are_remembered_for_a_moment_and_others_found_after_it(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(fair_by="tenant")
    def send(tenant: str) -> None: ...

    def served(room: int) -> set[str]:
        return {(one.lane or "")[-3:-1] for one in workers.claim(0, room).claims}

    queue.enqueue_many(send.call(tenant) for tenant in "ab" * 20)
    assert served(4) == {'a"', 'b"'}
    queue.enqueue_many(send.call("c") for _ in range(9))
    assert served(4) == {'a"', 'b"'}
    workers.seconds += REMEMBERED_FOR
    assert served(6) == {'a"', 'b"', 'c"'}
    queue.enqueue_many([send.call("d")])
    assert served(35) == {'a"', 'b"', 'c"'}  # all that these have, and as much as there was room for
    assert served(1) == {'d"'}  # they are remembered, and have no more


def test_jobs_enqueued_at_once_wait_in_the_lanes_of_those_enqueued_one_by_one(queue: PgQueue) -> None:
    @queue.task(limit=[Limit(2, by="text"), Rate("9/second", burst=9, cost="size")], fair_by="tenant")
    def send(text: str, size: int = 1, tenant: str = "acme") -> None: ...

    calls = [
        *(
            send.call(text)
            for text in ("plain", "tab\t", "line\nfeed", "back\\slash \\n", 'quo"te', "\u2028 é")
        ),
        send.call("costs", size=7, tenant="x\\t"),
        send.using(delay=60).call("later"),
        send.using(unique_key="key").call("unique"),
    ]
    for one in queue.enqueue_many(calls):
        one.cancel()
    said = "select args->>'text', status, lane, in_lane, cost from pgqueue.jobs order by id"
    handles = queue.enqueue_many(calls)
    at_once = ask(queue, said)
    for one in handles:
        one.cancel()
    for call in calls:
        send.using(delay=60 if call.job.delay else None, unique_key=call.job.unique_key).enqueue(
            **msgspec.json.decode(call.job.args)
        )
    assert at_once == ask(queue, said)
    assert [row[1] for row in at_once].count("scheduled") == 1
    assert {row[3] for row in at_once if row[1] == "blocked"} == {True}


def test_waits_count_from_when_the_database_was_asked_its_time_however_long_the_commit_takes() -> None:
    noon = 1_000_000_000_000_000
    job = (7, 1, 1, 25, 0, "default", "tick", "{}", NOON, NOON, 0.0, None, 0, None, "task:tick", None, 1)
    answers: dict[str, list[tuple[Any, ...]]] = {
        "limits/lock": [("task:tick", None, 40_000, 1, True, 0.0)],
        "limits/arrivals": [(noon, "task:tick", noon + 30_000)],
        "limits/claim": [job],
        "limits/advance": [(noon + 10_000,)],
    }
    steps = limits.take(UUID(int=1), [WaitingLane("default", "task:tick")], 1, declared={}).steps()
    began = time.monotonic()
    asked = next(steps)
    try:
        while True:
            assert isinstance(asked, Statement)
            asked = steps.send(answers[asked.name])
    except StopIteration as end:
        taken: LaneClaims = end.value
    assert taken.waits == {7: 0.02}
    assert began <= taken.since <= time.monotonic()


@pytest.fixture
def send(queue: PgQueue) -> Task[[int], None]:
    @queue.task(name="send", limit=Limit(1, by="customer"))
    def send(customer: int) -> None: ...

    return send


def claimed(workers: Workers, seconds: float = 0.0) -> list[int]:
    return sorted(one.id for one in workers.claim(0, 99, seconds).claims)


def test_operations_on_many_jobs_reach_those_in_lanes(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    jobs = queue.enqueue_many(send.call(7) for _ in range(4))
    assert queue.control.jobs(task="send", ids=[jobs[2].id]).reprioritise(9).done == 1
    assert claimed(workers) == [jobs[2].id]
    assert queue.control.jobs(task="send", state="blocked").cancel().done == 3
    assert ask(queue, "select count(*) from pgqueue.jobs where in_lane") == [(0,)]


def test_jobs_that_are_moved_wait_in_the_same_lane_of_the_other_queue(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    jobs = queue.enqueue_many(send.call(7) for _ in range(3))
    assert claimed(workers) == [jobs[0].id]
    assert queue.control.jobs(task="send", state="blocked").move("other").done == 2
    assert claimed(workers) == []  # the limit counts the jobs of all queues
    ask(queue, "delete from pgqueue.jobs where status = 'running'")
    assert claimed(workers) == [jobs[1].id]


def test_jobs_of_a_paused_queue_stay_in_their_lanes_and_others_do_not_wait_for_them(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    first, second = send.enqueue(7), send.using(queue="other").enqueue(8)
    queue.control.pause("def*")
    assert claimed(workers) == [second.id]
    queue.control.resume("def*")
    assert claimed(workers) == [first.id]


def test_a_closed_queue_serves_its_lanes(queue: PgQueue, workers: Workers, send: Task[[int], None]) -> None:
    job = send.enqueue(7)
    queue.control.close("default")
    assert claimed(workers) == [job.id]


def test_jobs_in_lanes_expire_and_the_next_one_starts(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    late = send.using(expires_at=NOON).enqueue(7)
    kept = send.enqueue(7)
    do(queue, finish.expire(now=NOON))
    assert late.status() is JobState.DEAD
    assert claimed(workers) == [kept.id]


def test_a_job_with_a_delay_enters_its_lane_when_it_is_due(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    job = send.using(run_at=NOON).enqueue(7)
    assert claimed(workers) == []
    do(queue, upkeep.poll(now=NOON))
    assert claimed(workers) == [job.id]


def test_a_debounced_job_has_its_limit(queue: PgQueue, workers: Workers) -> None:
    @queue.task(name="index", unique=Debounce(10, by="page"), limit=Limit(1))
    def index(page: int) -> None: ...

    index.enqueue(1)
    job = index.enqueue(1)
    index.enqueue(2)
    do(queue, upkeep.poll(now=NOON))
    assert claimed(workers) == [job.id]


def test_jobs_of_flows_wait_in_lanes_when_their_turn_comes(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    chain(send.call(7), send.call(7)).enqueue()
    (first,) = workers.claim(0, 9).claims
    assert claimed(workers) == []
    do(queue, finish.finish(first.worker_id, [Succeeded(first, 0.1)], keep=True, now=NOON))
    assert len(claimed(workers)) == 1


def test_a_dead_job_is_revived_into_its_lane(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    job = send.enqueue(7)
    send.enqueue(7)
    ask(queue, "select pgqueue.set_aside(%s, 'test', now())", job.id)
    assert queue.retry(job.id)
    assert job.status() is JobState.BLOCKED
    assert len(claimed(workers)) == 1


def test_a_limit_that_is_taken_away_from_its_task_goes_on_for_the_jobs_that_wait(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    """And a program that does not know the limit uses what is stored."""
    queue.enqueue_many(send.call(7) for _ in range(3))
    workers.claim(0, 0)
    with closing(PgQueue(queue.database.dsn)) as other:

        @other.task(name="send")
        def plain(customer: int) -> None: ...

        served = ServedLanes(lambda: other.limits, lambda: other.limiting)
        assert len(do(queue, served.claim(workers.ids[1], 9)).claims) == 1
        assert len(do(queue, served.claim(workers.ids[1], 9)).claims) == 0


def test_of_two_releases_with_other_numbers_the_last_to_start_says_what_holds(
    queue: PgQueue, workers: Workers
) -> None:
    def release(most: int) -> ServedLanes:
        app = PgQueue(queue.database.dsn)

        @app.task(name="send", limit=Limit(most, by="customer"))
        def send(customer: int) -> None: ...

        app.enqueue_many(send.call(7) for _ in range(4))
        lanes = ServedLanes(lambda: app.limits, lambda: app.limiting)
        app.close()
        return lanes

    def claims(worker: int) -> int:
        found = do(queue, workers.lanes[worker].claim(workers.ids[worker], 9)).claims
        workers.lanes[worker].claimed()
        return len(found)

    workers.lanes[:2] = [release(1), release(3)]
    assert [claims(0), claims(1)] == [1, 2]
    assert claims(0) == 0  # it does not store its number again


def test_a_limit_whose_row_a_user_holds_locked_stops_its_own_jobs_only(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    @queue.task(name="other", limit=Limit(1))
    def other() -> None: ...

    do(queue, lanes.declare(queue.limits))
    send.enqueue(7)
    job = other.enqueue()
    with psycopg.connect(queue.database.dsn) as connection:
        connection.execute("select from pgqueue.limits where name = 'task:send:customer' for update")
        assert claimed(workers) == [job.id]
        assert workers.claim(0, 9).again_in == limits.AGAIN
        do(
            queue, ServedLanes(lambda: queue.limits, lambda: queue.limiting).claim(workers.ids[2], 9)
        )  # a new worker starts


def test_a_row_of_a_job_that_a_user_holds_locked_is_passed_over(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    first, second = queue.enqueue_many(send.call(7) for _ in range(2))
    with psycopg.connect(queue.database.dsn) as connection:
        connection.execute("select from pgqueue.jobs where id = %s for update", [first.id])
        assert claimed(workers) == [second.id]


def test_a_rate_of_a_year_and_a_clock_of_ten_years_ahead_or_behind(queue: PgQueue, workers: Workers) -> None:
    @queue.task(name="yearly", limit=Rate("1/365d"))
    def yearly() -> None: ...

    queue.enqueue_many(yearly.call() for _ in range(4))
    year = 365 * 86_400.0
    assert len(workers.claim(0, 9, 10 * year).claims) == 1  # the clock was wrong
    assert len(workers.claim(0, 9).claims) == 0
    assert len(workers.claim(0, 9, year - 1).claims) == 0
    assert len(workers.claim(0, 9, year + 1).claims) == 1  # a year after the clock was right again, not ten
    assert len(workers.claim(0, 9, 11 * year).claims) == 1


def test_the_last_of_many_lanes_is_served_and_each_look_is_bounded(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    queue.enqueue_many(send.call(number) for number in range(3_000))
    ask(queue, "analyze pgqueue.jobs")
    last = max(ask(queue, "select lane, id from pgqueue.jobs"))[1]
    looks = 0
    while last not in claimed(workers):
        looks += 1
        assert looks <= 3_000 / 99 + 2


def test_a_worker_that_hangs_in_its_claim_stops_no_other_and_the_server_ends_it(
    queue: PgQueue, workers: Workers, send: Task[[int], None], dsn: str
) -> None:
    """As the worker's connection has it: a transaction that is idle for 5 s is ended, and its locks are free."""
    hung = ServedLanes(lambda: queue.limits, lambda: queue.limiting)
    connection = psycopg.connect(dsn)
    workers.claim(0, 0)  # the limit is stored
    send.enqueue(7)
    (claim,) = run(hung.claim(workers.ids[1], 9), StepRunner(connection, catalogue_of("pgqueue"))).claims
    assert workers.claim(0, 9).again_in == limits.AGAIN
    connection.execute("set idle_in_transaction_session_timeout = '200ms'")  # in the transaction that claims
    wait_until(lambda: claimed(workers) == [claim.id])
    with pytest.raises(psycopg.Error, match="idle-in-transaction"):
        connection.execute("select")
    connection.close()


def test_what_a_claim_stored_of_limits_is_stored_again_if_it_was_rolled_back(
    queue: PgQueue, workers: Workers, send: Task[[int], None], dsn: str
) -> None:
    """Else jobs that SQL enqueues would run without the limits of their task."""
    assert send.name in queue.tasks
    with psycopg.connect(dsn) as connection:
        run(workers.lanes[0].claim(workers.ids[0], 9), StepRunner(connection, catalogue_of("pgqueue")))
        connection.rollback()
    do(queue, workers.lanes[0].claim(workers.ids[0], 9))
    assert ask(queue, "select task from pgqueue.limited_tasks") == [("send",)]


def test_ready_jobs_of_a_limited_queue_count_from_claim_to_claim_and_a_pause_stops_them(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(name="plain", queue="mail")
    def plain() -> None: ...

    queue.control.limits.set("queue:mail", Limit(2))
    queue.enqueue_many(plain.call() for _ in range(5))
    queue.control.pause("mail")
    assert len(workers.claim(0, 9, limited=("mail",)).claims) == 0
    queue.control.resume("mail")
    assert len(workers.claim(0, 9, limited=("mail",)).claims) == 2
    assert len(workers.claim(1, 9, limited=("mail",)).claims) == 0


def test_what_an_operator_has_set_holds_when_another_release_declares_another_number(queue: PgQueue) -> None:
    do(queue, lanes.declare({"name:api": Limit(1).numbers}))
    queue.control.limits.set("name:api", Limit(5))
    do(queue, lanes.declare({"name:api": Limit(2).numbers}))
    assert [one.numbers[0] for one in queue.insight.limits()] == [5]


def test_a_worker_keeps_to_the_limit_of_a_queue_before_its_first_poll(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    queue.enqueue_many(send.call(number) for number in range(9))
    queue.control.limits.set("queue:default", Limit(2))
    assert len(workers.claim(0, 1).claims) == 1
    assert len(workers.claim(1, 9).claims) == 1
    assert len(workers.claim(1, 9).claims) == 0


def test_a_place_that_ready_jobs_do_not_use_goes_to_a_lane_at_once(
    queue: PgQueue, workers: Workers, send: Task[[int], None]
) -> None:
    queue.enqueue_many(send.call(number % 3) for number in range(9))
    queue.control.limits.set("queue:default", Limit(1))
    for _ in range(9):
        (claim,) = workers.claim(0, 9, limited=["default"]).claims
        do(queue, finish.record(workers.ids[0], [Succeeded(claim, 0.1)], keep=True))

"""Claims from lanes, plan by plan, at given instants: which jobs start, when, and what SQL makes of limits."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, wait_until
from promises.processes import LEASE, at_the_gate, do, listed

from pgqueue import Limit, PgQueue, Rate
from pgqueue.store import limits, upkeep
from pgqueue.store.limits import Taken
from pgqueue.values.job import JobState
from pgqueue.worker import lanes
from pgqueue.worker.lanes import Lanes

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
WORKERS = 3


class Workers:
    """Workers that claim from lanes, at instants that the test gives."""

    def __init__(self, queue: PgQueue) -> None:
        self.queue = queue
        self.ids = [listed(queue, LEASE) for _ in range(WORKERS)]
        self.lanes = [Lanes(lambda: queue.limits, lambda: queue.limiting) for _ in self.ids]

    def claim(self, worker: int, room: int, seconds: float = 0.0, **told: Any) -> Taken:
        """Claim at noon and so many seconds."""
        if told:
            self.lanes[worker].learn(**{"limited": (), "weights": {}, "seen": True, **told})
        plan = self.lanes[worker].claim(self.ids[worker], room, now=NOON + timedelta(seconds=seconds))
        return do(self.queue, plan)

    def starts(self, worker: int, room: int, seconds: float) -> list[float]:
        """At which seconds after noon the claimed jobs start."""
        taken = self.claim(worker, room, seconds)
        return [round(seconds + taken.waits.get(one.id, 0.0), 6) for one in taken.claims]


@pytest.fixture
def workers(queue: PgQueue) -> Workers:
    return Workers(queue)


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


def test_a_burst_starts_at_once_and_cost_counts(queue: PgQueue, workers: Workers) -> None:
    @queue.task(limit=Rate("10/second", burst=6, cost="size"))
    def send(size: int = 1) -> None: ...

    queue.enqueue_many([send.call(4), send.call(2), send.call(), send.call(6)])
    assert [workers.starts(0, 9, 0.0) for _ in range(3)] == [
        [0.0],
        [0.0],
        [0.1],
    ]  # what a job costs is known of a lane's first
    assert workers.starts(0, 9, 0.5) == []
    assert workers.starts(0, 9, 0.6) == [0.7]


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


def test_two_windows_at_once_both_hold(queue: PgQueue, workers: Workers) -> None:
    @queue.task(limit=[Rate("10/second"), Rate("3/minute", burst=3)])
    def send() -> None: ...

    queue.enqueue_many(send.call() for _ in range(9))
    assert workers.starts(0, 9, 0.0) == [0.0, 0.1]
    assert workers.starts(0, 9, 0.2) == [0.2]
    assert workers.starts(0, 9, 0.3) == []
    assert workers.starts(0, 9, 20.0) == [20.0]


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


def test_a_tenant_with_many_jobs_does_not_delay_anothers_beyond_its_turn(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(fair_by="tenant")
    def work(tenant: str) -> None: ...

    queue.enqueue_many(work.call("large") for _ in range(200))
    queue.enqueue_many(work.call("small") for _ in range(10))
    tenants = [one.args for claims in (workers.claim(0, 4).claims for _ in range(5)) for one in claims]
    assert len(tenants) == 20  # all slots are filled
    assert sum("small" in args for args in tenants) == 10
    assert len(workers.claim(0, 4).claims) == 4


def test_a_share_of_weight_3_starts_3_jobs_for_one(queue: PgQueue, workers: Workers) -> None:
    @queue.task(fair_by="tenant")
    def work(tenant: str) -> None: ...

    queue.enqueue_many(work.call(tenant) for tenant in ("a", "b") for _ in range(100))
    queue.control.limits.weigh({"tenant": "a"}, 3, by="ann")
    (share,) = queue.control.limits.weights()
    assert {(share,)} < {*ask(queue, "select distinct lane from pgqueue.jobs")}
    polled = do(queue, upkeep.poll())
    assert dict(polled.weights) == {share: 3}
    claims = [one for _ in range(10) for one in workers.claim(0, 8, weights=polled.weights).claims]
    assert len(claims) == 80
    assert abs(sum('"a"' in one.args for one in claims) - 60) <= 3
    queue.control.limits.weigh({"tenant": "a"}, None)
    assert do(queue, upkeep.poll()).weights == {}
    assert {one.name for one in queue.control.limits.list()} == set()


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
    assert do(queue, upkeep.drop_rates(now=NOON + timedelta(minutes=2))) == 4


def test_another_workers_lock_is_passed_over_and_the_other_lanes_are_served(
    queue: PgQueue, workers: Workers
) -> None:
    @queue.task(name="a", limit=Limit(1))
    def a() -> None: ...

    @queue.task(name="b", limit=Limit(1))
    def b() -> None: ...

    queue.enqueue_many([a.call(), b.call()])
    do(queue, limits.declare(queue.limits))
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
    assert len(queue.jobs()) == 1


def test_a_round_of_lanes_ends_where_no_lane_may_start_a_job(
    queue: PgQueue, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that knew of more lanes than one look asks for looked without a rest while their limits were full."""
    monkeypatch.setattr(lanes, "AT_ONCE", 3)

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

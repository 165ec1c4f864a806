"""Claims of limited jobs do not read what remains of ended ones: they count running jobs, and claim from lanes, behind a mark."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import psycopg
import pytest
from looking import ask
from promises.processes import listed

from pgqueue import Limit, PgQueue, Task
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs import finish
from pgqueue.store.jobs.marks import LONGEST, SHARE
from pgqueue.store.limits import served_lanes
from pgqueue.store.limits.limits import LaneClaims
from pgqueue.store.limits.served_lanes import BARREN_FOR, LONGEST_REST, REST, ServedLanes
from pgqueue.store.plan import Plan, Row, Statement, Step, run
from pgqueue.values.jobs.job import AttemptError
from pgqueue.values.jobs.verdict import Again, Succeeded
from pgqueue.values.limits.state import COUNT_ALL_AFTER, CountedClaims

T = TypeVar("T")


class Server:
    """A connection that notes what it was asked; a statement takes as many seconds of the clock as the test says."""

    def __init__(self, dsn: str) -> None:
        self.now = 100.0
        self.takes: Mapping[str, float] = {}
        self.asked: list[Statement] = []
        self.process: int | None = None
        self.connection = psycopg.connect(dsn, autocommit=True)
        self._inner = StepRunner(self.connection, catalogue_of("pgqueue"))

    def execute(self, step: Step) -> Sequence[Row]:
        assert isinstance(step, Statement)
        self.asked.append(step)
        self.now += self.takes.get(step.name, 0.0)
        rows = self._inner.execute(step)
        if step.name == "limits/lock" and self.process is not None:
            return [(*row[:-1], self.process) for row in rows]
        return rows

    def transaction(self) -> AbstractContextManager[None]:
        return self._inner.transaction()

    def run(self, plan: Plan[T]) -> T:
        self.asked.clear()
        return run(plan, self)

    def counted_from(self) -> Any:
        """From which claim on the last plan counted."""
        return [one.params["since"] for one in self.asked if one.name == "limits/running"][-1]


class OneWorker:
    """A worker that claims from lanes."""

    def __init__(self, queue: PgQueue, server: Server) -> None:
        self.id = listed(queue)
        self.server = server
        self.lanes = ServedLanes(lambda: queue.limits, lambda: queue.limiting, clock=lambda: server.now)

    def claim(self, room: int = 500) -> LaneClaims:
        found = self.server.run(self.lanes.claim(self.id, room))
        self.lanes.claimed()
        return found

    def fail(self, taken: LaneClaims) -> None:
        self.server.run(
            finish.finish(
                self.id, [Again(one, None, AttemptError(1, "E", "why")) for one in taken.claims], keep=True
            )
        )

    def complete(self, taken: LaneClaims) -> None:
        self.server.run(finish.finish(self.id, [Succeeded(one, 0.0) for one in taken.claims], keep=True))


@pytest.fixture
def server(dsn: str) -> Iterator[Server]:
    one = Server(dsn)
    yield one
    one.connection.close()


@pytest.fixture
def workers(queue: PgQueue, server: Server) -> tuple[OneWorker, OneWorker]:
    return OneWorker(queue, server), OneWorker(queue, server)


@pytest.fixture
def send(queue: PgQueue) -> Task[[int], None]:
    @queue.task(name="send", limit=Limit(3))
    def send(customer: int) -> None: ...

    return send


def test_running_jobs_are_counted_from_the_first_one_and_those_of_other_workers_are_counted_too(
    queue: PgQueue, workers: tuple[OneWorker, OneWorker], send: Task[[int], None]
) -> None:
    first, second = workers
    queue.enqueue_many(send.call(number) for number in range(12))
    taken = first.claim(1)
    first.complete(taken)
    kept = first.claim(1)
    assert first.server.counted_from() == 1, "the number of its own first claim"
    assert len(second.claim().claims) == 2, "one of the three places is taken"
    assert second.server.counted_from() == 0, "it has counted none before"
    assert not first.claim().claims
    assert first.server.counted_from() == 2, "the claim that it has kept"
    first.complete(kept)
    assert len(first.claim().claims) == 1, "two are running in another worker"


@pytest.mark.parametrize("seconds", [COUNT_ALL_AFTER - 0.1, COUNT_ALL_AFTER])
def test_all_running_jobs_are_counted_again_now_and_then(seconds: float) -> None:
    counted = CountedClaims()
    assert counted.since(["a"], 1, 100.0) == 0
    counted.learn(["a"], 1, 7)
    counted.learn(["b"], 1, 9)
    assert counted.since(["a", "b"], 1, 100.0 + seconds) == (7 if seconds < COUNT_ALL_AFTER else 0)
    assert counted.since(["b", "c"], 1, 100.0 + seconds) == 0, "c was not counted before"


def test_what_is_known_of_claims_holds_for_one_process_of_the_server(
    queue: PgQueue, workers: tuple[OneWorker, OneWorker], server: Server, send: Task[[int], None]
) -> None:
    """A server that lost the end of its log gives out numbers again: the claims behind it have lower ones than those before."""
    first, second = workers
    queue.enqueue_many(send.call(number) for number in range(12))
    first.complete(first.claim())
    first.complete(first.claim())
    ask(queue, "select setval('pgqueue.limited_claims', 1, false)")
    server.process = 5
    assert len(second.claim(2).claims) == 2
    assert len(first.claim().claims) == 1


def test_a_running_job_that_comes_under_another_limit_is_counted_there(
    queue: PgQueue, workers: tuple[OneWorker, OneWorker], send: Task[[int], None]
) -> None:
    """It was claimed under locks of other limits, so its number says nothing here."""

    @queue.task(name="call", limit=Limit(1, name="old"))
    def call() -> None: ...

    first, second = workers
    queue.enqueue_many(send.call(number) for number in range(3))
    first.complete(first.claim())
    call.enqueue()
    assert len(second.claim().claims) == 1
    ask(
        queue, "update pgqueue.jobs set claim_number = 0"
    )  # as if first had counted before that claim was committed
    queue.control.limits.move("name:old", "task:send")
    queue.enqueue_many(send.call(number) for number in range(3))
    assert len(first.claim().claims) == 2
    assert first.server.counted_from() == 1


def test_lanes_are_not_looked_for_again_at_once_where_that_takes_long(
    queue: PgQueue, workers: tuple[OneWorker, OneWorker], server: Server, send: Task[[int], None]
) -> None:
    worker, _ = workers
    server.takes = {"limits/find": 0.02}
    queue.enqueue_many(send.call(number) for number in range(2))
    worker.complete(worker.claim())
    taken = worker.claim()
    assert not taken.claims
    assert taken.again_in == pytest.approx(SHARE * 0.02)
    send.using(queue="mail").enqueue(3)
    assert not worker.claim().claims
    assert "limits/find" not in [one.name for one in server.asked]
    server.now += SHARE * 0.02
    assert len(worker.claim().claims) == 1
    server.takes = {"limits/find": 60.0}
    server.now += 1.0
    worker.claim()
    server.now += LONGEST
    worker.claim()
    assert "limits/find" in [one.name for one in server.asked]


def test_a_round_that_took_long_and_found_no_place_is_no_reason_for_the_next_one(
    queue: PgQueue, workers: tuple[OneWorker, OneWorker], server: Server, send: Task[[int], None]
) -> None:
    first, second = workers
    server.takes = {"limits/find": 0.1}
    queue.enqueue_many(send.call(number) for number in range(6))
    first.claim()
    second.claim()
    assert not first.lanes.rests, "its round has found jobs"
    assert second.lanes.rests
    server.now += REST * 0.1 - 0.01
    assert second.lanes.rests
    server.now += 0.02
    server.takes = {"limits/find": 9.0}
    assert (second.lanes.rests, second.claim().claims) == (False, [])
    server.now += LONGEST_REST - 0.01
    assert second.lanes.rests
    server.now += 0.02
    assert not second.lanes.rests


def test_a_lane_is_claimed_behind_its_mark_while_looks_from_its_head_are_slow_and_its_head_is_looked_at_again(
    queue: PgQueue, workers: tuple[OneWorker, OneWorker], server: Server, send: Task[[int], None]
) -> None:
    worker, _ = workers
    queue.enqueue_many(send.call(number) for number in range(9))
    server.takes = {"limits/claim": 0.05}
    first = worker.claim()
    server.takes = {}
    worker.complete(first)
    urgent = send.using(priority=9).enqueue(1)
    behind = worker.claim(2)
    assert urgent.id not in [one.id for one in behind.claims]
    worker.complete(behind)
    taken = worker.claim(7)
    assert taken.again_in is not None
    assert 0 < taken.again_in <= SHARE * 0.05
    worker.complete(taken)
    server.now += SHARE * 0.05
    assert urgent.id in [one.id for one in worker.claim(1).claims]


def test_lanes_of_a_task_that_a_worker_leaves_out_are_neither_locked_nor_counted(
    queue: PgQueue, server: Server
) -> None:
    """With 100,000 of them, jobs of other limited tasks started 25 s late."""

    @queue.task(name="left", limit=Limit(1, by="number"))
    def left(number: int) -> None: ...

    @queue.task(name="mail", limit=Limit(1, by="number"))
    def mail(number: int) -> None: ...

    queue.enqueue_many(one.call(number) for number in range(3) for one in (left, mail))
    lanes = ServedLanes(lambda: queue.limits, lambda: queue.limiting, left_out=lambda: ["left"])
    taken = server.run(lanes.claim(listed(queue), 9))
    assert [one.task for one in taken.claims] == ["mail"] * 3
    (locked,) = [one.params["names"] for one in server.asked if one.name == "limits/lock"]
    assert locked == '{"task:mail:number"}'


def test_an_ordered_lane_is_claimed_from_its_head_however_slow_that_is(
    queue: PgQueue, workers: tuple[OneWorker, OneWorker], server: Server
) -> None:
    """A retry goes back to its place before the mark, and no later job of its key may start before it."""

    @queue.task(name="post", limit=Limit(1, by="account", ordered=True))
    def post(account: int, number: int) -> None: ...

    worker, _ = workers
    queue.enqueue_many(post.call(1, number) for number in range(4))
    server.takes = {"limits/claim": 0.05}
    first = worker.claim()
    worker.fail(first)
    (again,) = worker.claim().claims
    assert again.id == first.claims[0].id


def test_a_lane_that_has_only_jobs_of_other_workers_is_left_alone_for_a_second(
    queue: PgQueue, server: Server
) -> None:
    """Each claim read it to its end, and its limit was locked meanwhile."""
    api = Limit(9, name="api")

    @queue.task(name="left", limit=api)
    def left() -> None: ...

    @queue.task(name="mine", limit=api)
    def mine() -> None: ...

    queue.enqueue_many(left.call() for _ in range(3))
    worker = listed(queue)
    lanes = ServedLanes(
        lambda: queue.limits, lambda: queue.limiting, clock=lambda: server.now, left_out=lambda: ["left"]
    )

    def claimed() -> list[str]:
        return [one.task for one in server.run(lanes.claim(worker, 9)).claims]

    assert claimed() == []
    mine.enqueue()
    assert claimed() == []
    assert "limits/lock" not in [one.name for one in server.asked]
    server.now += BARREN_FOR
    assert claimed() == ["mine"]


def test_a_job_that_is_claimed_alone_is_the_head_of_its_lane_which_a_refusal_names(
    queue: PgQueue,
    workers: tuple[OneWorker, OneWorker],
    server: Server,
    send: Task[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last of these claims looked behind the mark, and another job than the refused one was passed over."""
    monkeypatch.setattr(served_lanes, "ALONE", 1)
    worker, _ = workers
    queue.enqueue_many(send.call(number) for number in range(6))
    server.takes = {"limits/claim": 0.05}
    worker.complete(worker.claim(2))
    server.run(worker.lanes.refused())
    worker.claim(2)
    (asked,) = [one for one in server.asked if one.name == "limits/claim"]
    assert (asked.params["quotas"], asked.params["mark_ids"]) == ("{1}", "{}")

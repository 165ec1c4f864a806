"""Which queues a worker asks, and in which turn: few are remembered, many are gone around; no look takes long."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from looking import ask
from promises.asking import registered
from running import Running
from worker.helping import ended

from pgqueue import PgQueue
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.plan import Plan, Row, Statement, Step, run
from pgqueue.values.jobs.job import Claim
from pgqueue.values.queues.served_queues import parse_served
from pgqueue.worker import queues as queues_module
from pgqueue.worker.queues import MOST_KNOWN, Marks, Queues

MANY = 2 * MOST_KNOWN + 100
FILL = """
insert into pgqueue.jobs (queue, task)
select 'tenant-' || lpad(queue::text, 6, '0'), 'noop' from generate_series(1, %s) as queue, generate_series(1, %s) as job
"""


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A connection that notes what it was asked; each statement takes ``seconds`` of a clock."""

    def __init__(self, connection: psycopg.Connection[Any], queue: PgQueue, clock: Clock) -> None:
        self.asked: list[Statement] = []
        self.seconds = 0.0
        self._clock = clock
        self._inner = StepRunner(connection, queue.database.catalogue)

    def execute(self, step: Step) -> Sequence[Row]:
        assert isinstance(step, Statement)
        self.asked.append(step)
        self._clock.now += self.seconds
        return self._inner.execute(step)

    def transaction(self) -> AbstractContextManager[None]:
        return self._inner.transaction()

    def run(self, plan: Plan[list[Claim]]) -> list[Claim]:
        self.asked.clear()
        return run(plan, self)

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.asked]

    def longest_array(self) -> int:
        """How many queues the statements named, at most."""
        arrays = [
            step.params[key] for step in self.asked for key in ("queues", "known") if key in step.params
        ]
        return max((str(array).count(",") + 1 for array in arrays), default=0)


@contextmanager
def watching(queue: PgQueue, clock: Clock) -> Iterator[Watched]:
    with queue.database.pooled() as connection:
        yield Watched(connection, queue, clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(queue: PgQueue) -> UUID:
    return registered(queue, timedelta(hours=1))


@pytest.fixture
def watched(queue: PgQueue, clock: Clock) -> Iterator[Watched]:
    with watching(queue, clock) as one:
        yield one


@pytest.mark.parametrize("room", [1, 7, 500])
def test_many_queues_cost_few_statements_a_look_and_each_has_its_turn(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock, room: int
) -> None:
    ask(queue, FILL, MANY, 2)
    lines = Queues(clock=clock)
    watched.run(lines.claim(worker, room))  # finds out that they are many

    served: list[str] = []
    while len(served) < min(MANY, 40 * room):
        found = watched.run(lines.claim(worker, room))
        served += [one.queue for one in found]
        assert len(found) == room
        assert len(watched.asked) <= 5
        assert watched.longest_array() <= max(room, 100)
        assert len(lines.starts()) <= MOST_KNOWN

    first_round = served[: MANY - room]
    assert len(set(first_round)) == len(first_round), "a queue was served twice before all others were once"


def test_every_job_of_many_queues_is_claimed_once(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock
) -> None:
    ask(queue, FILL, MANY, 2)
    lines = Queues(clock=clock)
    claimed: list[int] = []
    while found := watched.run(lines.claim(worker, 300)):
        claimed += [one.id for one in found]
    assert len(claimed) == len(set(claimed)) == 2 * MANY


def test_a_big_queue_among_many_small_ones_gets_what_they_leave(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock
) -> None:
    ask(queue, FILL, MANY, 1)
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task) select 'tenant-000500', 'noop' from generate_series(1, 3000)",
    )
    lines = Queues(clock=clock)
    served = Counter(one.queue for _ in range(3) for one in watched.run(lines.claim(worker, 500)))
    assert len(served) >= MANY
    assert served.most_common(1)[0][0] == "tenant-000500"


def test_among_many_queues_a_named_one_keeps_its_place_in_a_strict_order(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock
) -> None:
    ask(queue, FILL, MANY, 1)
    ask(queue, "insert into pgqueue.jobs (queue, task) select 'urgent', 'noop' from generate_series(1, 300)")
    lines = Queues(parse_served(["urgent", "*"], order="strict"), clock)
    served = [one.queue for _ in range(10) for one in watched.run(lines.claim(worker, 50))]
    assert served[:300] == ["urgent"] * 300
    assert len(set(served[300:])) == 200


def test_among_many_queues_a_named_one_has_its_weight(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock
) -> None:
    ask(queue, FILL, MANY, 3)
    ask(queue, "insert into pgqueue.jobs (queue, task) select 'urgent', 'noop' from generate_series(1, 3000)")
    lines = Queues(parse_served({"urgent": MANY // 2, "*": 1}), clock)
    met: set[str] = set()
    while len(met) <= MANY:  # how many queues there are is known when all have had their turn
        met.update(one.queue for one in watched.run(lines.claim(worker, 60)))
    served = Counter(one.queue for _ in range(20) for one in watched.run(lines.claim(worker, 60)))
    assert served.total() == 1_200
    assert 360 <= served["urgent"] <= 440  # a third
    assert max(count for name, count in served.items() if name != "urgent") <= 2


def test_a_look_ends_in_time_and_the_next_one_goes_on_where_it_ended(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock
) -> None:
    ask(queue, FILL, MANY, 1)
    ask(queue, "insert into pgqueue.queues (name, paused_at) select distinct queue, now() from pgqueue.jobs")
    lines = Queues(clock=clock)
    assert watched.run(lines.claim(worker, 100)) == []
    last = f"tenant-{MANY:06}"
    ask(queue, "delete from pgqueue.queues where name = %s", last)
    watched.seconds = 0.06

    looks = 0
    found: list[Claim] = []
    while not found:
        looks += 1
        began = clock.now
        found = watched.run(lines.claim(worker, 100))
        assert clock.now - began <= 0.5
        assert found or lines.unfinished
        assert looks < 20
    assert [one.queue for one in found] == [last]


def test_once_there_are_few_again_they_are_remembered(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock
) -> None:
    ask(queue, FILL, MANY, 1)
    lines = Queues(clock=clock)
    while watched.run(lines.claim(worker, 500)):
        pass
    ask(queue, FILL, 3, 4)
    clock.now += 10
    found = [one.queue for _ in range(2) for one in watched.run(lines.claim(worker, 6))]
    assert Counter(found) == {f"tenant-{number:06}": 4 for number in (1, 2, 3)}
    assert "workers/next_queues" not in watched.names
    assert set(lines.starts()) >= set(found)


def test_a_worker_remembers_no_more_than_it_can_name(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock
) -> None:
    lines = Queues(clock=clock)
    for number in range(3 * MOST_KNOWN // 100):
        ask(
            queue,
            "insert into pgqueue.jobs (queue, task) select %s || '-' || n, 'noop' from generate_series(1, 100) as n",
            str(number),
        )
        clock.now += 2
        while watched.run(lines.claim(worker, 100)):
            assert len(lines.starts()) <= MOST_KNOWN
            assert watched.longest_array() <= MOST_KNOWN + 1
    assert ask(queue, "select count(*) from pgqueue.jobs where status = 'ready'") == [(0,)]


def test_queues_that_are_empty_give_their_turn_to_the_next_and_not_always_to_the_same(
    queue: PgQueue, watched: Watched, worker: UUID, clock: Clock
) -> None:
    names = [f"q{number:02}" for number in range(20)]
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task) select unnest(array['q18', 'q19']), 'noop' from generate_series(1, 20)",
    )
    lines = Queues(parse_served(names), clock)
    served = [one.queue for _ in range(20) for one in watched.run(lines.claim(worker, 1))]
    assert Counter(served) == {"q18": 10, "q19": 10}
    assert watched.names == ["jobs/claim"], "empty queues are asked in the same statement"


def test_asking_many_queues_is_no_sign_of_a_slow_look(clock: Clock) -> None:
    marks = Marks(clock)
    marks.learn({}, [], 0.010, queues=400)
    assert marks.starts() == {}
    marks.learn({}, [], 0.020, queues=400)
    assert marks.head_in() < float("inf")


async def test_a_worker_of_all_queues_with_few_slots_drains_many(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues_module, "MOST_KNOWN", 20)

    @queue.task(name="noop")
    async def noop() -> None: ...

    jobs = queue.enqueue_many(noop.using(queue=f"tenant-{number}").call() for number in range(300))
    async with running(queue, concurrency=1, poll=timedelta(hours=1)):
        await ended(queue, *jobs[:5], *jobs[-5:])
        late = noop.using(queue="tenant-late").enqueue()
        await ended(queue, late)
    assert ask(queue, "select count(*) from pgqueue.jobs") == [(0,)]

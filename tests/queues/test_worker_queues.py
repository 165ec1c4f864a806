"""Which queues a worker asks, and in which turn: few are remembered, many are gone around; no look takes long.

A worker serves queues by weights, in a strict order, by patterns and without what is excluded.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import psycopg
import pytest
from looking import ask, until
from promises.asking import registered
from running import Running
from worker.helping import ended

from pgqueue import Context, JobState, Limit, PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.jobs.marks import Marks
from pgqueue.store.plan import Plan, Row, Statement, Step, run
from pgqueue.values.jobs.job import Claim
from pgqueue.values.queues.served_queues import parse_served
from pgqueue.worker import queues as queues_module
from pgqueue.worker.queues import MOST_KNOWN, Queues
from pgqueue.worker.worker import Worker

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
    marks = Marks(attrgetter("queue"), clock)
    marks.learn({}, [], 0.010, lines=400)
    assert marks.starts() == {}
    marks.learn({}, [], 0.020, lines=400)
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


FILL_SHARES = (
    "insert into pgqueue.jobs (queue, task) select %s, 'note' from generate_series(1, %s) returning 1"
)


@pytest.fixture
def order(queue: PgQueue) -> list[str]:
    """The queues of the jobs of the task ``note``, in the order in which they started."""
    started: list[str] = []

    @queue.task(name="note")
    async def note(ctx: Context) -> None:
        started.append(ctx.job.queue)

    return started


async def until_run(order: list[str], count: int) -> None:
    await until(lambda: len(order) >= count)


@pytest.mark.parametrize("concurrency", [1, 20])
async def test_any_1000_jobs_are_shared_as_the_weights_say(
    queue: PgQueue, running: Running, order: list[str], concurrency: int
) -> None:
    ask(queue, FILL_SHARES, "reports", 2_000)  # enqueued first, so they would come first
    ask(queue, FILL_SHARES, "mail", 5_000)
    async with running(queue, queues={"mail": 5, "reports": 1}, concurrency=concurrency):
        await until_run(order, 4_500)
    for first in range(0, 3_400, 50):
        share = Counter(order[first : first + 1_000])["reports"]
        assert 150 <= share <= 184, f"{share} of the jobs {first} to {first + 1_000} are of the lighter queue"


async def test_an_empty_queues_share_goes_to_the_others_at_once(
    queue: PgQueue, running: Running, order: list[str]
) -> None:
    ask(queue, FILL_SHARES, "reports", 1_500)
    async with running(queue, queues=["mail:5", "reports:1"]):
        await until_run(order, 1_500)
        ask(queue, FILL_SHARES, "mail", 600)
        ask(queue, FILL_SHARES, "reports", 600)
        await until_run(order, 2_700)
    assert set(order[:1_500]) == {"reports"}


async def test_a_strict_order_runs_a_queue_only_while_those_before_it_are_empty(
    queue: PgQueue, running: Running, order: list[str]
) -> None:
    ask(queue, FILL_SHARES, "low", 1_200)
    ask(queue, FILL_SHARES, "high", 1_200)
    async with running(queue, queues=["high", "low"], order="strict"):
        await until_run(order, 2_400)
    assert order == ["high"] * 1_200 + ["low"] * 1_200


async def test_patterns_and_exclusions_apply_to_queues_that_appear_later(
    queue: PgQueue, running: Running, order: list[str]
) -> None:
    task = queue.tasks["note"]
    async with running(queue, queues=["mail-*", "!mail-bulk"]):
        await ended(queue, task.using(queue="mail-a").enqueue())
        left = [task.using(queue=name).enqueue() for name in ("mail-bulk", "reports", "mail")]
        await ended(queue, task.using(queue="mail-new").enqueue())
        await ended(queue, task.using(queue="mail-a").enqueue())
    assert order == ["mail-a", "mail-new", "mail-a"]
    assert {job.status() for job in left} == {JobState.READY}


async def test_where_there_are_many_queues_the_excluded_are_left_out_too(
    queue: PgQueue, running: Running, order: list[str]
) -> None:
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task) select 'tenant-' || n, 'note' from generate_series(1, 1200) n returning 1",
    )
    async with running(queue, queues=["tenant-1*", "!tenant-11*"]):
        names = [f"tenant-{n}" for n in range(1, 1201)]
        wanted = [name for name in names if name.startswith("tenant-1") and not name.startswith("tenant-11")]
        await until_run(order, len(wanted))
        ask(queue, FILL_SHARES, "tenant-12345", 1)
        await until_run(order, len(wanted) + 1)
    assert sorted(order) == sorted([*wanted, "tenant-12345"])


async def test_why_knows_which_worker_serves_a_queue_by_a_pattern(queue: PgQueue, running: Running) -> None:
    served, left = (queue.task(name=name, queue=name)(lambda: None) for name in ("mail-a", "mail-bulk"))
    async with running(queue, queues=["mail-*", "!mail-bulk"]):
        await ended(queue, served.enqueue())
        job = left.enqueue()
        assert "the only live worker does not serve queue 'mail-bulk'" in queue.why(job.id).sentence
    for pattern, name, serves in (
        ("mail-*", "mail-a", True),
        ("mail-*", "mail", False),
        ("m_il*", "mail", False),
        ("m%", "mail", False),
        ("a\\*", "a\\b", True),
        ("*", "x", True),
        ("!x", "y", True),
        ("!x", "x", False),
    ):
        assert ask(queue, "select pgqueue.serves(array[%s], %s)", pattern, name) == [(serves,)], (
            pattern,
            name,
        )
    assert ask(
        queue, "select pgqueue.serves(null, 'x'), pgqueue.serves('{mail*,!mail-b*}', 'mail-bulk')"
    ) == [(True, False)]


def test_weights_and_a_strict_order_contradict_each_other(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="contradict each other"):
        Worker(queue, queues={"mail": 5}, order="strict")


@pytest.mark.parametrize("of_limited_tasks", [("mail",), ("half reports",), ("mail", "reports")])
async def test_weights_hold_also_where_limited_jobs_wait_in_their_lanes(
    queue: PgQueue, running: Running, order: list[str], of_limited_tasks: tuple[str, ...]
) -> None:
    fill_limited(queue, order, of_limited_tasks, mail=2_500, reports=1_200)
    async with running(queue, queues={"mail": 5, "reports": 1}, concurrency=20):
        await until_run(order, 2_000)
    for first in range(0, 1_000, 100):
        share = Counter(order[first : first + 1_000])["reports"]
        assert 150 <= share <= 184, f"{share} of the jobs {first} to {first + 1_000} are of the lighter queue"


@pytest.mark.parametrize("of_limited_tasks", [("high",), ("low",), ("high", "low")])
async def test_a_strict_order_holds_also_where_limited_jobs_wait_in_their_lanes(
    queue: PgQueue, running: Running, order: list[str], of_limited_tasks: tuple[str, ...]
) -> None:
    fill_limited(queue, order, of_limited_tasks, low=300, high=900)
    async with running(queue, queues=["high", "low"], order="strict"):
        await until_run(order, 1_200)
    assert order == ["high"] * 900 + ["low"] * 300


def fill_limited(queue: PgQueue, order: list[str], limited: tuple[str, ...], **jobs: int) -> None:
    """Enqueue so many jobs to each queue. All or ``half`` of those of some are of a task with seven lanes, which are never full."""

    @queue.task(name="note_limited", limit=Limit(1_000, by="lane"))
    async def note_limited(ctx: Context, lane: int) -> None:  # noqa: ARG001 - names the lane
        order.append(ctx.job.queue)

    note = queue.tasks["note"]
    calls: list[Any] = []
    for name, count in jobs.items():
        for number in range(count):
            if name in limited or (f"half {name}" in limited and number % 2):
                calls.append(note_limited.using(queue=name).call(number % 7))
            else:
                calls.append(note.using(queue=name).call())
    queue.enqueue_many(calls)

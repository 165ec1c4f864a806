"""Jobs that take several places of a limit: never more places than there are, and none of them waits for ever beside small ones."""

import asyncio
from collections import Counter
from itertools import count, islice
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits.test_claims_from_lanes import NOON, Workers
from looking import ask
from promises.processes import LEASE, do
from promises.processes import listed as listed_with
from running import Running
from worker.helping import ended

from pgqueue import Job, Limit, PgQueue, Rate, Task
from pgqueue.errors import InvalidOption
from pgqueue.store.jobs import finish
from pgqueue.store.limits import served_lanes
from pgqueue.values.jobs.verdict import Succeeded
from pgqueue.values.limits.lanes import Lane, LaneShares, quotas
from pgqueue.values.limits.limit import LimitKey
from pgqueue.values.limits.task_limits import encoded_lane


@pytest.fixture
def render(queue: PgQueue) -> Task[..., None]:
    """A task whose jobs take as many of eight places as they say."""

    @queue.task(name="render", limit=Limit(8, name="gpu", cost="size"))
    def render(size: int = 2) -> None: ...

    return render


def listed(queue: PgQueue) -> list[Job]:
    """All jobs that have not ended."""
    return [queue.job(job) for (job,) in ask(queue, "select id from pgqueue.jobs order by id")]


def end(queue: PgQueue, claims: Any) -> None:
    for one in claims:
        do(queue, finish.record(one.worker_id, [Succeeded(one, 0.1)], keep=True))


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=20).filter(lambda sizes: max(sizes) > 1), st.integers()
)
def test_no_more_places_are_given_than_are_free_and_the_job_that_waits_longest_is_next(
    sizes: list[int], seed: int
) -> None:
    """However many jobs there are beside it, of whatever size, also where each claim is another worker's, that remembers nothing.

    Lanes whose jobs all take one place have shares, which a worker remembers.
    """
    chance = Random(seed)  # noqa: S311 - no secret
    running, due, now = Counter[int](), [float(place) for place in range(len(sizes))], float(len(sizes))
    served: set[int] = set()
    for _ in range(60 * len(sizes)):
        lanes = [
            Lane(f"lane {place}", ("gpu",), 1_000, 1, (size,) if size > 1 else (), due[place])
            for place, size in enumerate(sizes)
        ]
        free = 8 - sum(sizes[place] * count for place, count in running.items())
        given_out = LaneShares().quotas(lanes, {"gpu": free}, chance.randint(1, 5))
        assert sum(sizes[place] * count for place, count in given_out.items()) <= free
        for place in given_out:
            due[place], now = now, now + 1.0
        running.update(given_out)
        served.update(given_out)
        if running:  # one job ends: the places that it had are too few for a large one
            running -= Counter([chance.choice(sorted(running))])
        if len(served) == len(lanes):
            return
    pytest.fail(f"{set(range(len(sizes))) - served} were never served")


def test_what_a_lane_needs_is_kept_back_and_not_while_another_key_is_full_and_nothing_beyond_that() -> None:
    large = Lane("large", ("gpu", "name:acme"), 9, 1, (3, 1), 1.0)
    small, other = Lane("small", ("gpu",), 9, since=2.0), Lane("other", ("name:acme",), 9, since=2.0)
    assert quotas([large, small, other], {"gpu": 2, "name:acme": 2}, 9) == {2: 2}
    assert quotas([large, small, other], {"gpu": 2, "name:acme": 0}, 9) == {1: 2}
    assert quotas([large, small, other], {"gpu": 3, "name:acme": 1}, 1) == {0: 1}
    both, disk = Lane("both", ("gpu", "disk"), 9, 1, (3, 2), 1.0), Lane("disk", ("disk",), 9, since=2.0)
    assert quotas([both, small, disk], {"gpu": 8, "disk": 1}, 20) == {1: 5}
    younger = Lane("younger", ("gpu",), 9, 1, (2,), 3.0)
    assert quotas([large, younger], {"gpu": 2, "name:acme": 2}, 9) == {}
    assert quotas([large, Lane("older", ("gpu",), 9, 1, (2,), 0.5)], {"gpu": 2, "name:acme": 2}, 9) == {1: 1}


def test_claims_of_several_workers_take_no_more_places_than_there_are(
    queue: PgQueue, render: Task[..., None]
) -> None:
    workers = Workers(queue)
    queue.enqueue_many(render.call(size) for size in (3, 3, 3, 1, 8, 2, 2))
    sizes = {job.id: job.args.get("size", 2) for job in listed(queue)}
    held: list[Any] = []
    begun: list[int] = []
    for turn in range(40):
        taken = workers.claim(turn % 3, 1 + turn % 2).claims
        held += taken
        begun += [one.id for one in taken]
        assert sum(sizes[one.id] for one in held) <= 8
        if held and not taken:
            end(queue, [held.pop(0)])
    assert sorted(begun) == sorted(sizes)


@pytest.mark.parametrize("how", ["one lane", "new tenants", "many lanes", "queues one by one"])
def test_a_large_job_starts_though_small_ones_never_cease(
    queue: PgQueue, render: Task[..., None], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Beside one lane of small jobs; lanes that come and go; more lanes than one look sees; and queues that are looked at one by one."""
    if how == "many lanes":
        monkeypatch.setattr(served_lanes, "AT_ONCE", 10)
    tenants = how in {"new tenants", "many lanes"}

    @queue.task(name="small", limit=Limit(8, name="gpu"), fair_by="tenant" if tenants else None)
    def small(tenant: int) -> None: ...

    numbers = count()

    def more() -> None:
        some = islice(numbers, 8)
        queue.enqueue_many(
            small.call(number % 40 if how == "many lanes" else number if tenants else 0) for number in some
        )

    workers = Workers(queue)
    more()
    held = [*workers.claim(0, 8).claims, *workers.claim(0, 8).claims, *workers.claim(0, 8).claims]
    large = render.using(queue="large").enqueue(8)
    for turn in range(90):
        more()
        worker = turn % 3
        lanes = workers.lanes[worker]
        if how == "queues one by one":
            plan = lanes.of("default" if turn % 2 else "large").claim(workers.ids[worker], 8, now=NOON)
            taken = do(queue, plan).claims
        else:
            taken = workers.claim(worker, 8).claims
        if large.id in [one.id for one in taken]:
            break
        held += taken
        if held:
            end(queue, [held.pop(0)])
    else:
        pytest.fail("it never started")
    assert not held


async def test_limits_hold_by_places_on_a_worker(queue: PgQueue, running: Running) -> None:
    now, most = Counter[str](), 0

    @queue.task(
        limit=[Limit(6, name="gpu", cost="size"), Limit(2, by="customer"), Rate("1000/second", burst=99)]
    )
    async def work(customer: int, size: int) -> None:
        nonlocal most
        now["gpu"] += size
        now[f"{customer}"] += 1
        most = max(most, now["gpu"])
        assert now["gpu"] <= 6
        assert now[f"{customer}"] <= 2
        await asyncio.sleep(0.001)
        now["gpu"] -= size
        now[f"{customer}"] -= 1

    jobs = await queue.aenqueue_many(work.call(number % 3, 1 + number % 6) for number in range(60))
    async with running(queue, concurrency=20):
        found = await ended(queue, *jobs)
    assert {one.state.value for one in found} == {"succeeded"}
    assert most == 6


def test_sql_makes_the_lanes_that_python_makes(queue: PgQueue, render: Task[..., None]) -> None:
    workers = Workers(queue)

    @queue.task(
        name="cut", limit=[Limit(4, by="film", cost=3), Limit(9, cost=2, name="disk")], fair_by="film"
    )
    def cut(film: str) -> None: ...

    workers.claim(0, 0)
    queue.enqueue_many([render.call(), render.call(1), render.call(8), cut.call("alien *3")])
    for task, args in (
        ("render", "{}"),
        ("render", '{"size": 1}'),
        ("render", '{"size": 8}'),
        ("cut", '{"film": "alien *3"}'),
    ):
        ask(queue, "select pgqueue.enqueue(%s, %s::jsonb)", task, args)
    lanes = [lane for (lane,) in ask(queue, "select lane from pgqueue.jobs order by id")]
    assert lanes[:4] == lanes[4:]
    assert lanes[:3] == ["name:gpu *2", "name:gpu", "name:gpu *8"]
    assert lanes[3] == 'name:disk *2\ntask:cut:film {"film":"alien *3"} *3\n {"film":"alien *3"}'


def test_what_sql_or_an_operator_says_of_places_stops_no_claim(
    queue: PgQueue, render: Task[..., None]
) -> None:
    """A cost that is no number counts as 1, and one over the limit as the whole limit; else such jobs would wait for ever."""
    workers = Workers(queue)
    workers.claim(0, 0)
    for size in ('"many"', "0", "-3", "null", "1e400", "99999999999", "500"):
        ask(queue, "select pgqueue.enqueue('render', jsonb_build_object('size', %s::jsonb))", size)
    render.enqueue(7)
    ask(queue, "update pgqueue.jobs set lane = 'name:gpu *99999999999 *2' where lane = 'name:gpu *500'")
    queue.control.limits.set("name:gpu", Limit(2))
    begun = 0
    for _ in range(8):
        taken = workers.claim(0, 8).claims
        begun += len(taken)
        queue.insight.limit("name:gpu")
        assert all(isinstance(queue.why(one.id).sentence, str) for one in listed(queue))
        end(queue, taken)
    assert begun >= 7


def test_operators_see_places(queue: PgQueue, render: Task[..., None]) -> None:
    workers = Workers(queue)
    queue.enqueue_many([render.call(6), render.call(1)])
    workers.claim(0, 8)
    waits = render.enqueue(3)
    found = queue.insight.limit("name:gpu")
    assert (found.limit.running, found.limit.waiting) == (7, 1)
    assert [(one.key, one.running, one.waiting) for one in found.keys] == [("name:gpu", 7, 1)]
    assert [(one.name, one.running) for one in queue.insight.limits()] == [("name:gpu", 7)]
    said = queue.why(waits.id)
    assert (said.reason, said.evidence["limits"][0]["places"]) == ("limit full", 3)
    assert "limit 'name:gpu' has 7 of 8 places taken, and the job takes 3: held by jobs" in said.sentence
    queue.control.limits.move("name:gpu", None)
    assert waits.status().value == "ready"


def test_a_codec_leaves_the_number_of_places_and_its_text_cannot_be_taken_for_one() -> None:
    assert encoded_lane('name:gpu *3\ntask:cut:film {"film":1} *2', lambda _: "hidden") == (
        "name:gpu *3\ntask:cut:film hidden *2"
    )
    (key,) = (LimitKey.read(one) for one in [encoded_lane('task:cut:film {"film":1}', lambda _: "x *7")])
    assert key.places == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"most": 2, "cost": 3}, "cost=3 is more than the 2 places"),
        ({"most": 2, "cost": 0}, "cost=0"),
        ({"most": 2, "cost": ""}, "cost=''"),
        ({"most": 1, "cost": "size", "when_full": "refuse"}, "only jobs that wait may take several places"),
    ],
)
def test_costs_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Limit(**options)
    assert said in str(refused.value)


def test_a_job_that_would_take_more_places_than_there_are_is_refused_and_an_argument_that_is_none(
    queue: PgQueue, render: Task[..., None]
) -> None:
    with pytest.raises(InvalidOption, match="could never start"):
        render.enqueue(9)
    with pytest.raises(InvalidOption, match="use a whole number"):
        render.enqueue(0)
    with pytest.raises(InvalidOption, match="may take one place of each limit only"):

        @queue.task(limit=[Limit(1, by="size", ordered=True), Limit(4, cost=2)])
        def both(size: int) -> None: ...

    with pytest.raises(InvalidOption, match="did you mean 'size'"):

        @queue.task(limit=Limit(2, cost="sise"))
        def other(size: int) -> None: ...


def test_limits_that_become_one_take_the_higher_number_of_places(queue: PgQueue) -> None:
    @queue.task(name="both", limit=[Limit(4, name="a", cost=2), Limit(4, name="b", cost=3)])
    def both() -> None: ...

    both.enqueue()
    Workers(queue).claim(0, 0)
    queue.control.limits.move("name:a", "name:b")
    assert ask(queue, "select lane from pgqueue.jobs") == [("name:b *3",)]


def test_a_worker_that_does_not_run_a_large_job_keeps_nothing_back_for_it(
    queue: PgQueue, render: Task[..., None]
) -> None:
    @queue.task(name="small", limit=Limit(8, name="gpu"))
    def small() -> None: ...

    worker = listed_with(queue, LEASE)
    render.enqueue(8)
    queue.enqueue_many(small.call() for _ in range(9))
    lanes = served_lanes.ServedLanes(
        lambda: queue.limits, lambda: queue.limiting, left_out=lambda: ["render"]
    )
    assert len(do(queue, lanes.claim(worker, 3)).claims) == 3
    assert len(do(queue, lanes.claim(worker, 9)).claims) == 5

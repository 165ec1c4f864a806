"""Weights become numbers of claims: the shares hold over any stretch, also if queues are empty in between."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pgqueue.values.queues.served_queues import parse_served
from pgqueue.values.queues.shares import MOST_ASKED, Shares, StrictOrder, in_turn, split_of

QUEUES = ("a", "b", "c")


def look(split: Shares | StrictOrder, ready: dict[str, int], room: int) -> Counter[str]:
    """Claim as :func:`pgqueue.store.jobs.claim.fill` does, from this many ready jobs of each queue."""
    claimed: Counter[str] = Counter()
    hungry = sorted(ready)
    while hungry and claimed.total() < room:
        left = room - claimed.total()
        quotas = split.quotas(hungry, left)
        found: Counter[str] = Counter()
        for queue, quota in quotas.items():
            count = min(quota, ready[queue], left - found.total())
            if count:
                found[queue] = count
                ready[queue] -= count
        split.learn(quotas, found, left)
        claimed += found
        hungry = [one for one in hungry if one not in quotas] + [
            queue for queue, quota in quotas.items() if found[queue] == quota
        ]
    return claimed


weights = st.fixed_dictionaries(dict.fromkeys(QUEUES, st.integers(1, 10)))
looks = st.lists(
    st.tuples(st.integers(1, 40), st.fixed_dictionaries(dict.fromkeys(QUEUES, st.integers(0, 60)))),
    min_size=1,
    max_size=60,
)


@given(weights, st.sampled_from([1, 2, 7, 20, 500]))
def test_queues_that_always_have_jobs_are_served_by_their_weights(weight: dict[str, int], room: int) -> None:
    shares = Shares(weight.__getitem__)
    total: Counter[str] = Counter()
    while total.total() < 1_000:
        total += look(shares, dict.fromkeys(QUEUES, 10_000), room)
    for queue in QUEUES:
        assert abs(total[queue] - total.total() * weight[queue] / sum(weight.values())) <= len(QUEUES)


@given(weights, looks)
def test_no_room_is_left_while_a_queue_has_jobs_and_no_queue_saves_up_what_it_did_not_use(
    weight: dict[str, int], history: list[tuple[int, dict[str, int]]]
) -> None:
    shares = Shares(weight.__getitem__)
    ready: Counter[str] = Counter()
    for room, arrived in history:
        ready.update(arrived)
        there = ready.total()
        claimed = look(shares, {queue: ready[queue] for queue in QUEUES}, room)
        assert claimed.total() == min(room, there)
        ready -= claimed
    after: Counter[str] = Counter()
    for _ in range(40):
        after += look(shares, dict.fromkeys(QUEUES, 10_000), 25)
    for queue in QUEUES:  # after any history the next 1,000 jobs are shared as the weights say
        assert abs(after[queue] - 1_000 * weight[queue] / sum(weight.values())) <= 3 * len(QUEUES)


@given(weights, looks, st.sampled_from(QUEUES))
def test_two_queues_share_by_their_weights_while_a_third_comes_and_goes(
    weight: dict[str, int], history: list[tuple[int, dict[str, int]]], third: str
) -> None:
    shares = Shares(weight.__getitem__)
    one, other = (queue for queue in QUEUES if queue != third)
    served: Counter[str] = Counter()
    for room, arrived in history:
        served += look(shares, {one: 10_000, other: 10_000, third: arrived[third]}, room)
        apart = abs(served[one] / weight[one] - served[other] / weight[other])
        assert apart <= 2 / min(weight[one], weight[other])


@given(looks)
def test_a_strict_order_serves_a_queue_only_while_those_before_it_are_empty(
    history: list[tuple[int, dict[str, int]]],
) -> None:
    strict = split_of(parse_served(["b", "c", "a"], order="strict"))
    assert isinstance(strict, StrictOrder)
    ready: Counter[str] = Counter()
    for room, arrived in history:
        ready.update(arrived)
        left = room
        expected = {}
        for queue in ("b", "c", "a"):
            expected[queue] = min(left, ready[queue])
            left -= expected[queue]
        claimed = look(strict, {queue: ready[queue] for queue in QUEUES}, room)
        assert claimed == +Counter(expected)
        ready -= claimed


def test_equal_shares_need_no_memory() -> None:
    assert split_of(parse_served(["a", "b"])) is None
    assert split_of(parse_served(None)) is None
    assert isinstance(split_of(parse_served(["a:2", "b"])), Shares)


def test_looks_of_one_job_without_a_memory_are_shared_by_the_weights_on_average() -> None:
    """As of takes, each of which is new: what is first is drawn."""
    served = parse_served({"a": 5, "b": 1, "c": 4})
    draw = Random(16).expovariate  # noqa: S311 - no secret
    total: Counter[str] = Counter()
    for _ in range(5_000):
        split = split_of(served, draw)
        assert split is not None
        total += look(split, dict.fromkeys(QUEUES, 9), 1)
    shares = {queue: total[queue] / 5_000 for queue in QUEUES}
    assert all(abs(shares[queue] - share) < 0.03 for queue, share in (("a", 0.5), ("b", 0.1), ("c", 0.4)))


def test_a_queue_that_comes_late_claims_no_more_than_its_share() -> None:
    shares = Shares({"a": 1, "b": 1, "c": 1}.__getitem__)
    look(shares, {"a": 500, "b": 500}, 600)
    assert look(shares, dict.fromkeys(QUEUES, 100), 30) == {"a": 10, "b": 10, "c": 10}


def test_a_queue_that_is_not_known_any_more_begins_anew() -> None:
    shares = Shares({"a": 1, "b": 1}.__getitem__)
    shares.learn({"a": 1, "b": 50}, {"a": 1, "b": 50}, 51)
    assert shares.quotas(["a", "b"], 10) == {"a": 10, "b": 1}
    shares.forget(["a"])
    assert shares.quotas(["a", "b"], 10) == {"a": 5, "b": 5}


def test_one_statement_asks_the_queues_that_are_not_due_for_one_job_each() -> None:
    shares = Shares(lambda _: 1)
    assert shares.quotas(["a", "b", "c"], 1) == {"a": 1, "b": 1, "c": 1}
    assert len(shares.quotas([str(number) for number in range(500)], 1)) == MOST_ASKED


def test_the_claims_of_one_look_start_in_turn_by_their_weights() -> None:
    shares = Shares({"a": 2, "b": 1}.__getitem__)
    claims = ["a1", "a2", "a3", "a4", "b1", "b2"]
    assert in_turn(shares, claims, lambda claim: claim[0]) == ["a1", "a2", "b1", "a3", "a4", "b2"]

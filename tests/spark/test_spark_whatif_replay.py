"""The replay's rules: no slot twice, no limit exceeded, no job before it is ready, and no slot free while a job may start."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqueue.spark.whatif.jobs import NONE, SECOND
from pgqueue.spark.whatif.replay import ReplayWork, Slots, starts

Job = tuple[int, int, int, tuple[int, ...]]
"""When it is ready, for how long it runs, its queue, and for each limit its key."""
MOST = (2, 3)
"""How many jobs of a key run at once, under the first and under the second limit."""
TIMES = st.sampled_from((0, 1, 2, 5, 300, 1_000, 40_000, SECOND, 7 * SECOND))
JOBS = st.lists(
    st.tuples(TIMES, TIMES, st.integers(0, 2), st.tuples(st.integers(NONE, 1), st.integers(NONE, 2))),
    min_size=1,
    max_size=30,
)


def work(jobs: Sequence[Job], weights: Sequence[int] = (1, 1, 1), most: Sequence[int] = MOST) -> ReplayWork:
    ready, lasts, queue, keys = zip(*jobs, strict=True)
    return ReplayWork(
        ready=np.array(ready),
        lasts=np.array(lasts),
        queue=np.array(queue),
        weights=weights,
        keys=tuple(np.array(of_limit) for of_limit in zip(*keys, strict=True)),
        most=most,
    )


def plain(*jobs: tuple[int, int], queue: int = 0) -> list[Job]:
    return [(ready, lasts, queue, ()) for ready, lasts in jobs]


def run(
    jobs: Sequence[Job], slots: int, weights: Sequence[int] = (1, 1, 1), most: Sequence[int] = ()
) -> list[int]:
    found: list[int] = starts(work(jobs, weights, most), Slots.always(slots)).tolist()
    return found


def keys_of(job: Job) -> list[tuple[int, int]]:
    return [(limit, key) for limit, key in enumerate(job[3]) if key != NONE]


def test_five_jobs_on_one_slot_start_at_these_instants() -> None:
    #                    in claim order: the job that is ready at 2 has the highest priority
    jobs = plain((2, 1), (0, 10), (1, 5), (12, 2), (100, 1))
    assert run([(a * SECOND, b * SECOND, c, d) for a, b, c, d in jobs], 1) == [
        at * SECOND for at in (10, 0, 11, 16, 100)
    ]


def test_a_limit_holds_jobs_back_and_lets_others_go_ahead() -> None:
    limited = [(0, 10 * SECOND, 0, (0,)), (0, 10 * SECOND, 0, (0,)), (0, 10 * SECOND, 0, (1,))]
    free: list[Job] = [(0, 10 * SECOND, 0, (NONE,))]
    found = run([*limited, *free], 4, most=(1,))
    assert found == [0, 10 * SECOND, 0, 0]


def test_queues_have_equal_shares_or_shares_by_their_weights() -> None:
    many = [(0, SECOND, number % 2, ()) for number in range(40)]
    equal = np.argsort(run(many, 1), kind="stable")[:8]
    assert Counter(many[job][2] for job in equal) == {0: 4, 1: 4}
    weighted = np.argsort(run(many, 1, weights=(3, 1)), kind="stable")[:8]
    assert Counter(many[job][2] for job in weighted) == {0: 6, 1: 2}


def test_a_queue_that_had_no_job_does_not_save_up() -> None:
    busy = [(0, SECOND, 0, ()) for _ in range(30)]
    late = [(10 * SECOND, SECOND, 1, ()) for _ in range(10)]
    found = run([*busy, *late], 1)
    after = sorted(range(40), key=found.__getitem__)[10:20]
    assert Counter([*busy, *late][job][2] for job in after) == {0: 5, 1: 5}


@pytest.mark.parametrize("weights", [(1, 1), (2, 1)])
def test_a_queue_that_had_few_jobs_all_day_has_no_more_than_its_share_when_it_has_many(
    weights: tuple[int, int],
) -> None:
    """Queue 0 has a job each second, queue 1 one now and then; then both have many at once."""
    calm = [(at * SECOND, 1_000, 0, ()) for at in range(100)]
    calm += [(at * SECOND + 500_000, 1_000, 1, ()) for at in range(0, 100, 30)]
    crowd: list[Job] = [(200 * SECOND, SECOND, number % 2, ()) for number in range(60)]
    found = run([*calm, *crowd], 1, weights=weights)
    first = sorted(range(len(calm), len(calm) + 60), key=found.__getitem__)[:12]
    counts = Counter(crowd[job - len(calm)][2] for job in first)
    assert abs(counts[1] - 12 * weights[1] / sum(weights)) <= 1


def test_slots_come_and_go_and_what_runs_ends_on_its_slot() -> None:
    slots = Slots(*map(np.array, ([0, 10, 20, 100], [2, 0, 1, 3], [1, 0, 1, 1])))
    jobs = plain(*[(0, 15 * SECOND)] * 3, *[(0, SECOND)] * 4)
    slots = Slots(slots.at * SECOND, slots.counts, slots.workers)
    found = starts(work(jobs, most=()), slots) / SECOND
    assert found.tolist() == [0, 0, 20, 35, 36, 37, 38]
    assert slots.since(np.array([-1, 0, 10 * SECOND - 1, 10 * SECOND, 10**12])).tolist() == [0, 2, 2, 0, 3]


def test_jobs_wait_for_the_first_worker() -> None:
    slots = Slots(np.array([5 * SECOND]), np.array([1]), np.array([1]))
    assert starts(work(plain((0, SECOND), (1, SECOND)), most=()), slots).tolist() == [5 * SECOND, 6 * SECOND]


def test_a_slot_and_a_place_stay_taken_for_as_long_as_was_measured() -> None:
    of_a_slot = replace(work(plain(*[(0, SECOND)] * 3), most=()), gap=5_000)
    assert np.diff(starts(of_a_slot, Slots.always(1))).tolist() == [SECOND + 5_000] * 2
    limited: list[Job] = [(0, SECOND, 0, (0,)) for _ in range(3)]
    of_a_place = replace(work(limited, most=(1,)), gap=5_000, recorded_in=30_000)
    assert np.diff(starts(of_a_place, Slots.always(9))).tolist() == [SECOND + 30_000] * 2


def test_lanes_take_turns_however_many_jobs_each_has() -> None:
    jobs = [(0, SECOND, 0, (0,)) for _ in range(20)] + [(0, SECOND, 0, (1,)) for _ in range(4)]
    first = sorted(range(24), key=run(jobs, 2, most=(2,)).__getitem__)[:8]
    assert Counter(jobs[job][3] for job in first) == {(0,): 4, (1,): 4}


def test_limited_and_other_jobs_share_the_slots_where_both_have_jobs() -> None:
    jobs: list[Job] = [(0, SECOND, 0, (key,)) for key in (NONE, 0) for _ in range(20)]
    first = sorted(range(40), key=run(jobs, 1, most=(1,)).__getitem__)[:10]
    assert Counter(jobs[job][3] for job in first) == {(NONE,): 5, (0,): 5}


def test_a_short_job_keeps_the_place_of_its_key_while_its_claim_waits_for_a_slot() -> None:
    jobs: list[Job] = [(0, 5_000, 0, (NONE,)) for _ in range(2_000)]
    jobs += [(0, 5_000, 0, (0,)) for _ in range(20)]
    found = run(jobs, 4, most=(1,))
    gaps = np.diff(sorted(found[2_000:]))[4:]
    # 4 slots and 5 ms: about 80 claims wait, for 100 ms, and a place is free again after that
    assert gaps.min() > 40_000


def test_short_jobs_of_two_queues_start_in_stretches_as_a_claim_of_many_is_in_claim_order() -> None:
    jobs: list[Job] = [(0, 5_000, number // 1_000, ()) for number in range(2_000)]
    found = run(jobs, 4)
    stretches = [*groupby(sorted(range(2_000), key=found.__getitem__), key=lambda job: jobs[job][2])]
    # half of what waits for a slot is claimed at once, about 20 jobs of each queue
    assert len(stretches) < 400


def test_a_free_place_goes_to_a_lane_that_can_use_it() -> None:
    jobs: list[Job] = [
        (0, 10, 0, (0, 0)),
        (0, 100, 0, (NONE, 1)),
        (
            1,
            1,
            0,
            (0, 1),
        ),  # first in line for the place that is free at 10, but its other key has none until 100
        (1, 1, 0, (0, 2)),
    ]
    assert run(jobs, 4, most=(1, 1)) == [0, 0, 100, 10]


@given(JOBS, st.integers(1, 5))
def test_no_job_starts_early_no_slot_is_used_twice_and_no_key_has_too_many(
    jobs: list[Job], slots: int
) -> None:
    found = run(jobs, slots, most=MOST)
    spans = [(at, at + job[1], job) for at, job in zip(found, jobs, strict=True)]
    for at, job in zip(found, jobs, strict=True):
        assert at >= job[0]
        beside = [other for since, until, other in spans if since <= at < until]
        assert len(beside) <= slots
        counts = Counter(key for other in beside for key in keys_of(other))
        assert all(count <= MOST[limit] for (limit, _), count in counts.items())


@given(JOBS, st.integers(1, 5))
def test_no_slot_is_free_while_a_job_may_start(jobs: list[Job], slots: int) -> None:
    found = run(jobs, slots, most=MOST)
    spans = [(at, at + job[1], job) for at, job in zip(found, jobs, strict=True)]
    instants = {at for since, until, job in spans for at in (since, until, job[0])}
    for now in instants:
        beside = [job for since, until, job in spans if since <= now < until]
        if len(beside) == slots:
            continue
        counts = Counter(key for job in beside for key in keys_of(job))
        for since, _, job in spans:
            if job[0] <= now < since:
                assert any(counts[limit, key] >= MOST[limit] for limit, key in keys_of(job))


@given(st.lists(TIMES, min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 3))
def test_jobs_of_one_queue_that_wait_from_the_beginning_start_in_claim_order(
    lasts: list[int], slots: int, workers: int
) -> None:
    jobs = plain(*((0, one) for one in lasts))
    found = starts(work(jobs, most=()), Slots.always(slots, workers)).tolist()
    assert found == sorted(found)
    ends = [at + one for at, one in zip(found, lasts, strict=True)]
    assert max(ends) >= sum(lasts) / slots


def test_a_worker_with_more_slots_than_a_claim_may_fill_fills_them_all_at_once() -> None:
    assert set(run(plain(*[(0, SECOND)] * 1_700), 1_700)) == {0}

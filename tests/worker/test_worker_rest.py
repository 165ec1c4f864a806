"""When a worker looks, and at what: decided on a clock that the test turns.

Where claims start: at the head while that is quick, behind the last claim while it is slow, and never for long.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from unittest.mock import AsyncMock, Mock
from uuid import UUID

import pytest

from pgqueue import PgQueue
from pgqueue.store.jobs.marks import LONGEST, SHARE, Marks
from pgqueue.store.plan import NeedsTransaction, Row, Statement, Step
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.job import HEAD, AttemptError, Claim, Mark
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Unknown, Waits
from pgqueue.values.queues.served_queues import parse_served
from pgqueue.values.signals import SignalWait
from pgqueue.worker.pace import FADING, HORIZON, LARGEST_PREFETCH, LONG, REMEMBERED, SHORTEST_SAMPLE, Pace
from pgqueue.worker.queues import FORGET_AFTER, LOOK_AROUND_AFTER, Queues
from pgqueue.worker.signals import IDLE_AFTER, Activity, Signals
from pgqueue.worker.worker import Worker

WORKER = UUID(int=1)
DELAY = timedelta(minutes=1)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_is_idle_when_nothing_has_happened_for_a_while_and_a_notification_would_have_arrived() -> (
    None
):
    clock, touched = Clock(), list[None]()
    activity = Activity(lambda: touched.append(None), clock)
    activity.can_listen = True
    clock.now += IDLE_AFTER - 0.1
    almost = activity.idle
    clock.now += 0.1
    idle = activity.idle
    activity.can_listen = False
    assert (almost, idle, activity.idle) == (False, True, False)


def test_the_first_activity_ends_the_idleness_and_tells_once() -> None:
    clock, touched = Clock(), list[None]()
    activity = Activity(lambda: touched.append(None), clock)
    activity.can_listen = True
    activity.touch()
    assert touched == []
    clock.now += IDLE_AFTER
    activity.touch()
    activity.touch()
    assert len(touched) == 1
    assert not activity.idle


def test_the_rate_rises_at_once_and_fades() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 0.01
    assert round(pace.rate(50, 0.0)) == 5_000
    clock.now += FADING
    assert 1_800 < pace.rate(50, 0.0) < 1_900  # 5,000 / e
    clock.now += 10
    assert pace.rate(50, 0.0) < 1


def test_two_looks_in_one_moment_are_no_standstill() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 0.01
    before = pace.rate(50, 0.0)
    clock.now += SHORTEST_SAMPLE / 2
    assert pace.rate(50, 0.0) == before


def test_attempts_that_end_together_have_no_more_claims_held_than_the_slots_can_start() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 4.0
    assert pace.ahead(50, 50, 50 * LONG) == 0  # 5,000 ends in a second, it seems
    clock.now += 0.01
    after = pace.ahead(50, 50 + REMEMBERED, 50 * LONG + REMEMBERED * 0.2)
    assert after == 50 * HORIZON / 0.2


def test_of_jobs_that_take_no_time_as_many_are_held_as_end_within_the_horizon() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 0.01
    assert round(pace.ahead(20, 50, 50 * 0.000_02), -1) == 5_000 * HORIZON
    clock.now += 0.01
    assert pace.ahead(20, 1_050, 1_050 * 0.000_02) == LARGEST_PREFETCH


def test_a_queue_is_found_kept_and_forgotten() -> None:
    clock = Clock()
    queues = Queues(clock=clock)
    assert _asked(queues, [[("mail",)], []]) == ["workers/new_queues", "jobs/claim"]
    assert queues.starts() == {"mail": HEAD}
    clock.now += FORGET_AFTER
    assert _asked(queues, [[], []]) == ["jobs/claim", "workers/new_queues"]
    assert queues.starts() == {}


def test_jobs_in_known_queues_put_off_the_search_for_others_for_a_moment_only() -> None:
    clock = Clock()
    queues = Queues(clock=clock)
    _asked(queues, [[("mail",)], []])
    assert _asked(queues, [[_row("mail")]]) == ["jobs/claim"]
    clock.now += LOOK_AROUND_AFTER
    assert _asked(queues, [[_row("mail")], []]) == ["jobs/claim", "workers/new_queues"]


def test_a_worker_of_given_queues_looks_for_no_others() -> None:
    assert _asked(Queues(parse_served(["mail"]), Clock()), [[]]) == ["jobs/claim"]


@pytest.mark.parametrize(
    ("idle", "next_in", "pause"), [(False, None, 1.0), (True, None, 5.0), (True, 0.5, 0.5), (False, 3.0, 1.0)]
)
async def test_a_worker_polls_again_after_poll_after_sweep_once_it_is_idle_or_when_a_job_is_due(
    next_in: float | None, pause: float, monkeypatch: pytest.MonkeyPatch, *, idle: bool
) -> None:
    clock = Clock()
    parts = Worker(PgQueue("postgresql://nowhere"), poll=1, sweep=5).parts
    parts.signals.activity = Activity(parts.signals.poll.set, clock)
    parts.signals.activity.can_listen = True
    clock.now += IDLE_AFTER if idle else 0.0
    answer = AsyncMock(return_value=upkeep.PollResult(0, next_in, lost=False, ready=False))
    monkeypatch.setattr(parts.connections.upkeep, "run", answer)
    assert await parts.upkeep.poll() == pause


async def test_a_poll_that_finds_seldom_work_starts_its_service_and_asks_for_such_work_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Worker(PgQueue("postgresql://nowhere")).parts
    answer = AsyncMock(
        return_value=upkeep.PollResult(0, None, lost=False, ready=False, seldom=("expire", "workers"))
    )
    monkeypatch.setattr(parts.connections.upkeep, "run", answer)
    asked = Mock(wraps=upkeep.poll)
    monkeypatch.setattr(upkeep, "poll", asked)
    await parts.upkeep.poll()
    await parts.upkeep.poll()
    started = {one.name for one in parts.upkeep.services(compare_every=1.0) if one.nudge.is_set()}
    assert started == {"end jobs that have expired", "name other workers that start no jobs"}
    assert [call.kwargs["seldom"] for call in asked.call_args_list] == [True, False]


def _asked(queues: Queues, answers: Sequence[Sequence[Row]]) -> list[str]:
    """The statements of a look for one job, given these answers."""
    steps = queues.claim(WORKER, 1).steps()
    asked: list[Step | NeedsTransaction] = []
    rows = iter(answers)
    try:
        asked.append(next(steps))
        while True:
            asked.append(steps.send(next(rows)))
    except StopIteration:
        assert all(isinstance(step, Statement) for step in asked)
        return [step.name for step in asked]


def _row(queue: str) -> Row:
    return 1, 1, 1, 25, 0, queue, "task", "{}", 0.0, 0.0, 0.0


@pytest.mark.parametrize(("room_at", "looks"), [(-1, False), (0, True)], ids=["has room", "waits for room"])
async def test_a_fetcher_that_waits_for_room_looks_when_verdicts_were_recorded(
    room_at: int, *, looks: bool
) -> None:
    """It may wait because of a long backlog, and then no attempt ends that would tell it."""
    signals = Signals()
    signals.room_at = room_at
    signals.recorded([])
    assert signals.look.is_set() is looks


def test_a_worker_asks_when_jobs_are_due_after_each_verdict_that_does_not_end_its_job() -> None:
    (one,) = claims(1)
    error = AttemptError(1, "ValueError", "no")
    signals = Signals()
    signals.recorded([Succeeded(one, 0.0), Died(one, 0.0, "asked", error), Cancelled(one)])
    assert not signals.poll.is_set()
    waits = Waits(one, SignalWait(one.id, "go", "job:1", None))
    for verdict in (Again(one, DELAY, error), Returned(one, DELAY), Unknown(one, DELAY, DELAY), waits):
        signals.poll.clear()
        signals.recorded([Succeeded(one, 0.0), verdict])
        assert (signals.poll.is_set(), signals.look.is_set()) == (True, False)


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
QUICK, SLOW = 0.004, 0.2


class StandingClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def claims(count: int, *, first: int = 1, queue: str = "default", priority: int = 0) -> list[Claim]:
    return [
        Claim(
            first + i,
            UUID(int=1),
            1,
            1,
            25,
            priority,
            queue,
            "task",
            "{}",
            NOON.timestamp(),
            NOON.timestamp(),
            0.0,
        )
        for i in range(count)
    ]


def test_quick_looks_always_start_at_the_head() -> None:
    marks = Marks(attrgetter("queue"), StandingClock())
    for _ in range(3):
        assert marks.starts() == {}
        marks.learn({}, claims(500), QUICK)


def test_after_a_slow_look_the_next_ones_start_behind_its_last_claim() -> None:
    marks = Marks(attrgetter("queue"), StandingClock())
    marks.learn({}, claims(500), SLOW)
    assert marks.starts() == {"default": Mark(0, NOON, 500)}

    marks.learn(marks.starts(), claims(500, first=501), QUICK)
    assert marks.starts() == {"default": Mark(0, NOON, 1000)}


def test_a_look_that_is_slower_than_claims_have_been_counts_as_slow() -> None:
    marks = Marks(attrgetter("queue"), StandingClock())
    for _ in range(3):
        marks.learn({}, claims(500), QUICK)
    marks.learn({}, claims(500), QUICK * 2)
    assert marks.starts() != {}


def test_the_head_is_looked_at_again_once_marks_have_been_used_for_a_multiple_of_the_slow_look() -> None:
    clock = StandingClock()
    marks = Marks(attrgetter("queue"), clock)
    marks.learn({}, claims(500), SLOW)
    clock.now += SHARE * SLOW * 0.99
    assert marks.starts() != {}
    clock.now += SHARE * SLOW * 0.02
    assert marks.starts() == {}


def test_a_job_before_its_mark_is_found_within_five_seconds_however_slow_looks_are() -> None:
    clock = StandingClock()
    marks = Marks(attrgetter("queue"), clock)
    marks.learn({}, claims(500), 60.0)
    clock.now += LONGEST
    assert LONGEST < 5.0
    assert marks.starts() == {}


def test_queues_have_marks_of_their_own_and_priority_ranks_before_time() -> None:
    marks = Marks(attrgetter("queue"), StandingClock())
    marks.learn({}, [*claims(1, first=9, queue="mail"), *claims(2, priority=5)], SLOW)
    assert marks.starts() == {"mail": Mark(0, NOON, 9), "default": Mark(-5, NOON, 2)}
    assert HEAD < Mark(-100, NOON, 1) < Mark(-5, NOON, 2) < Mark(0, NOON, 1)


def test_marks_never_move_back() -> None:
    marks = Marks(attrgetter("queue"), StandingClock())
    marks.learn({}, claims(2, first=8), SLOW)
    marks.learn(marks.starts(), claims(1, first=3), QUICK)
    assert marks.starts() == {"default": Mark(0, NOON, 9)}


def test_a_moment_that_passed_between_a_look_and_a_wait_is_now_and_not_never() -> None:
    """Under load a worker that had looked behind its marks waited for ever: the moment for the head had just passed."""
    clock = StandingClock()
    marks = Marks(attrgetter("queue"), clock)
    marks.learn({}, [], SLOW)
    clock.now += SHARE * SLOW + 1
    assert marks.head_in() == 0
    marks.learn({}, [], QUICK)
    assert marks.head_in() == float("inf")

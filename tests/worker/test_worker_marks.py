"""Where claims start: at the head while that is quick, behind the last claim while it is slow, and never for long."""

from datetime import UTC, datetime
from uuid import UUID

from pgqueue.values.jobs.job import HEAD, Claim, Mark
from pgqueue.worker.queues import LONGEST, SHARE, Marks

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
QUICK, SLOW = 0.004, 0.2


class Clock:
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
    marks = Marks(Clock())
    for _ in range(3):
        assert marks.starts() == {}
        marks.learn({}, claims(500), QUICK)


def test_after_a_slow_look_the_next_ones_start_behind_its_last_claim() -> None:
    marks = Marks(Clock())
    marks.learn({}, claims(500), SLOW)
    assert marks.starts() == {"default": Mark(0, NOON, 500)}

    marks.learn(marks.starts(), claims(500, first=501), QUICK)
    assert marks.starts() == {"default": Mark(0, NOON, 1000)}


def test_a_look_that_is_slower_than_claims_have_been_counts_as_slow() -> None:
    marks = Marks(Clock())
    for _ in range(3):
        marks.learn({}, claims(500), QUICK)
    marks.learn({}, claims(500), QUICK * 2)
    assert marks.starts() != {}


def test_the_head_is_looked_at_again_once_marks_have_been_used_for_a_multiple_of_the_slow_look() -> None:
    clock = Clock()
    marks = Marks(clock)
    marks.learn({}, claims(500), SLOW)
    clock.now += SHARE * SLOW * 0.99
    assert marks.starts() != {}
    clock.now += SHARE * SLOW * 0.02
    assert marks.starts() == {}


def test_a_job_before_its_mark_is_found_within_five_seconds_however_slow_looks_are() -> None:
    clock = Clock()
    marks = Marks(clock)
    marks.learn({}, claims(500), 60.0)
    clock.now += LONGEST
    assert LONGEST < 5.0
    assert marks.starts() == {}


def test_queues_have_marks_of_their_own_and_priority_ranks_before_time() -> None:
    marks = Marks(Clock())
    marks.learn({}, [*claims(1, first=9, queue="mail"), *claims(2, priority=5)], SLOW)
    assert marks.starts() == {"mail": Mark(0, NOON, 9), "default": Mark(-5, NOON, 2)}
    assert HEAD < Mark(-100, NOON, 1) < Mark(-5, NOON, 2) < Mark(0, NOON, 1)


def test_marks_never_move_back() -> None:
    marks = Marks(Clock())
    marks.learn({}, claims(2, first=8), SLOW)
    marks.learn(marks.starts(), claims(1, first=3), QUICK)
    assert marks.starts() == {"default": Mark(0, NOON, 9)}


def test_a_moment_that_passed_between_a_look_and_a_wait_is_now_and_not_never() -> None:
    """Under load a worker that had looked behind its marks waited for ever: the moment for the head had just passed."""
    clock = Clock()
    marks = Marks(clock)
    marks.learn({}, [], SLOW)
    clock.now += SHARE * SLOW + 1
    assert marks.head_in() == 0
    marks.learn({}, [], QUICK)
    assert marks.head_in() == float("inf")

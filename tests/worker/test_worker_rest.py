"""When a worker looks, and at what: decided on a clock that the test turns."""

from collections.abc import Sequence
from uuid import UUID

from pgqueue.store.plan import Plan, Row, Statement, Step
from pgqueue.values.job import HEAD, Claim
from pgqueue.worker.calm import CALM_AFTER, Calm
from pgqueue.worker.lines import FORGET_AFTER, LOOK_AROUND_AFTER, Lines
from pgqueue.worker.pace import HORIZON, SHORTEST, Pace

WORKER = UUID(int=1)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_all_is_calm_when_nothing_has_happened_for_a_while_and_it_would_have_been_heard() -> None:
    clock, stirs = Clock(), list[None]()
    calm = Calm(lambda: stirs.append(None), clock)
    calm.deaf = False
    clock.now += CALM_AFTER - 0.1
    almost = calm.reigns
    clock.now += 0.1
    calmly = calm.reigns
    calm.deaf = True
    assert (almost, calmly, calm.reigns) == (False, True, False)


def test_the_first_sign_of_life_ends_the_calm_and_tells_once() -> None:
    clock, stirs = Clock(), list[None]()
    calm = Calm(lambda: stirs.append(None), clock)
    calm.deaf = False
    calm.stir()
    assert stirs == []
    clock.now += CALM_AFTER
    calm.stir()
    calm.stir()
    assert len(stirs) == 1
    assert not calm.reigns


def test_the_pace_rises_at_once_and_fades() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 0.01
    assert round(pace.at(50)) == 5_000
    clock.now += HORIZON
    assert 1_800 < pace.at(50) < 1_900  # 5,000 / e
    clock.now += 10
    assert pace.at(50) < 1


def test_two_looks_in_one_moment_are_no_standstill() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 0.01
    before = pace.at(50)
    clock.now += SHORTEST / 2
    assert pace.at(50) == before


def test_a_queue_is_found_kept_and_forgotten() -> None:
    clock = Clock()
    lines = Lines(None, clock)
    assert _asked(lines, [[("mail",)], []]) == ["new_queues", "claim"]
    assert lines.starts() == {"mail": HEAD}
    clock.now += FORGET_AFTER
    assert _asked(lines, [[], []]) == ["claim", "new_queues"]
    assert lines.starts() == {}


def test_jobs_in_known_queues_put_off_the_search_for_others_for_a_moment_only() -> None:
    clock = Clock()
    lines = Lines(None, clock)
    _asked(lines, [[("mail",)], []])
    assert _asked(lines, [[_row("mail")]]) == ["claim"]
    clock.now += LOOK_AROUND_AFTER
    assert _asked(lines, [[_row("mail")], []]) == ["claim", "new_queues"]


def test_a_worker_of_given_queues_looks_for_no_others() -> None:
    assert _asked(Lines(["mail"], Clock()), [[]]) == ["claim"]


def _asked(lines: Lines, answers: Sequence[Sequence[Row]]) -> list[str]:
    """The statements of a look for one job, given these answers."""
    plan: Plan[list[Claim]] = lines.claim(WORKER, 1)
    asked: list[Step] = []
    rows = iter(answers)
    try:
        asked.append(next(plan))
        while True:
            asked.append(plan.send(next(rows)))
    except StopIteration:
        assert all(isinstance(step, Statement) for step in asked)
        return [step.name for step in asked]


def _row(queue: str) -> Row:
    at = HEAD.run_at
    return 1, 1, 1, 25, 0, queue, "task", "{}", at, at, 0.0

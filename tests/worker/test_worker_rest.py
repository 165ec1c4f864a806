"""When a worker looks, and at what: decided on a clock that the test turns."""

import asyncio
from collections.abc import Sequence
from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from pgqueue.store import upkeep
from pgqueue.store.plan import NeedsTransaction, Row, Statement, Step
from pgqueue.values.job import HEAD
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.fetcher import FADING, SHORTEST, Pace
from pgqueue.worker.queues import FORGET_AFTER, LOOK_AROUND_AFTER, Queues
from pgqueue.worker.signals import CALM_AFTER, Activity
from pgqueue.worker.upkeep import Service, services

WORKER = UUID(int=1)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_all_is_calm_when_nothing_has_happened_for_a_while_and_it_would_have_been_heard() -> None:
    clock, stirs = Clock(), list[None]()
    calm = Activity(lambda: stirs.append(None), clock)
    calm.deaf = False
    clock.now += CALM_AFTER - 0.1
    almost = calm.reigns
    clock.now += 0.1
    calmly = calm.reigns
    calm.deaf = True
    assert (almost, calmly, calm.reigns) == (False, True, False)


def test_the_first_sign_of_life_ends_the_calm_and_tells_once() -> None:
    clock, stirs = Clock(), list[None]()
    calm = Activity(lambda: stirs.append(None), clock)
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
    clock.now += FADING
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
    lines = Queues(None, clock)
    assert _asked(lines, [[("mail",)], []]) == ["new_queues", "claim"]
    assert lines.starts() == {"mail": HEAD}
    clock.now += FORGET_AFTER
    assert _asked(lines, [[], []]) == ["claim", "new_queues"]
    assert lines.starts() == {}


def test_jobs_in_known_queues_put_off_the_search_for_others_for_a_moment_only() -> None:
    clock = Clock()
    lines = Queues(None, clock)
    _asked(lines, [[("mail",)], []])
    assert _asked(lines, [[_row("mail")]]) == ["claim"]
    clock.now += LOOK_AROUND_AFTER
    assert _asked(lines, [[_row("mail")], []]) == ["claim", "new_queues"]


def test_a_worker_of_given_queues_looks_for_no_others() -> None:
    assert _asked(Queues(["mail"], Clock()), [[]]) == ["claim"]


@pytest.mark.parametrize(
    ("calmly", "next_in", "pause"),
    [(False, None, 1.0), (True, None, 5.0), (True, 0.5, 0.5), (False, 3.0, 1.0)],
)
async def test_the_next_tick_comes_by_poll_by_sweep_once_calm_reigns_or_when_a_job_is_due(
    next_in: float | None, pause: float, *, calmly: bool
) -> None:
    clock = Clock()
    calm = Activity(asyncio.Event().set, clock)
    calm.deaf = False
    clock.now += CALM_AFTER if calmly else 0.0
    assert await _ticking(calm, upkeep.Ticked(0, next_in, lost=False, ready=False)).run_once() == pause


def _ticking(calm: Activity, ticked: upkeep.Ticked) -> Service:
    """The service that ticks, where the database says so."""
    link = AsyncMock(spec=WorkerConnection)
    link.run.return_value = ticked
    ticking, *_ = services(
        link,
        lambda: link,
        lines=Queues(["mail"]),
        calm=calm,
        poll=1.0,
        sweep=5.0,
        look=asyncio.Event(),
        later=asyncio.Event(),
    )
    return ticking


def _asked(lines: Queues, answers: Sequence[Sequence[Row]]) -> list[str]:
    """The statements of a look for one job, given these answers."""
    steps = lines.claim(WORKER, 1).steps()
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
    at = HEAD.run_at
    return 1, 1, 1, 25, 0, queue, "task", "{}", at, at, 0.0

"""Promises 2 and 6: at most one worker holds a job, until its lease has passed; soon after that another worker has it."""

from collections.abc import Iterator

from pgqueue.values.history.events import Ended, Reclaimed, Violation
from pgqueue.values.history.index import History, Life, Turn
from pgqueue.values.history.rules import Rules

ONE_CLAIM = 2
RUNS_ELSEWHERE = 6


def one_holder(history: History, rules: Rules) -> Iterator[Violation]:
    """The times in which workers hold a job do not overlap."""
    for life in history.lives.values():
        held: Turn | None = None
        for turn in sorted(life.turns, key=lambda one: one.since):
            if turn.claimed is None:
                continue
            if held is not None and history.until(held) > turn.since + rules.slack:
                yield Violation(
                    ONE_CLAIM,
                    f"job {life.job} was claimed by worker {turn.worker} while worker {held.worker} held it",
                    (*held.evidence, *turn.evidence),
                )
            if held is None or history.until(turn) >= history.until(held):
                held = turn


def nothing_from_the_superseded(history: History, _: Rules) -> Iterator[Violation]:
    """No verdict is recorded of an attempt that has lost its claim."""
    for life in history.lives.values():
        for end in life.excess:
            if isinstance(end, Ended) and (lost := _claims_of(life, end)):
                yield Violation(
                    ONE_CLAIM,
                    f"job {life.job}: a verdict of worker {end.worker} on attempt {end.attempt} was recorded, and it held no claim",
                    (*lost[-1].evidence, end),
                )


def no_reclaim_inside_a_lease(history: History, rules: Rules) -> Iterator[Violation]:
    """A sweeper takes a job only from a worker whose lease has passed, or that has left."""
    for life in history.lives.values():
        for reclaimed in _reclaims(life):
            renewed = history.renewed(reclaimed.worker, reclaimed.at)
            left = history.left.get(reclaimed.worker)
            is_free = left is not None and left.returned and left.at <= reclaimed.at + rules.slack
            if renewed is None or is_free:
                continue
            too_early = renewed.at + renewed.lease - reclaimed.at
            if too_early > rules.slack:
                yield Violation(
                    ONE_CLAIM,
                    f"job {life.job} was taken from worker {reclaimed.worker} {too_early:.3f} s before its lease had passed",
                    (renewed, reclaimed),
                )


def runs_elsewhere_soon(history: History, rules: Rules) -> Iterator[Violation]:
    """The jobs of a worker that has left are reclaimed in time, and one that stopped by itself has left none."""
    for life in history.lives.values():
        for reclaimed in _reclaims(life):
            left = history.left.get(reclaimed.worker)
            if left is None:
                continue
            late = reclaimed.at - left.at
            if left.returned:
                what = f"worker {left.worker} stopped by itself, and left job {life.job} behind"
                yield Violation(RUNS_ELSEWHERE, what, (left, reclaimed))
            elif rules.recovery is not None and late > rules.recovery + rules.slack:
                what = f"job {life.job} was reclaimed {late:.3f} s after worker {left.worker} had left"
                yield Violation(RUNS_ELSEWHERE, what, (left, reclaimed))


def _reclaims(life: Life) -> Iterator[Reclaimed]:
    ends = [*(turn.closed for turn in life.turns), *life.excess]
    return (one for one in ends if isinstance(one, Reclaimed))


def _claims_of(life: Life, end: Ended) -> list[Turn]:
    return [
        turn
        for turn in life.turns
        if turn.claimed is not None and turn.worker == end.worker and turn.attempt == end.attempt
    ]

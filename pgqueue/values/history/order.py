"""Promise 9: ready jobs of one queue and priority start in order.

Who writes the log names lines in which order can be told: jobs of one queue and one priority, without delays, limits and flows,
with places in the order of their ``run_at`` and ids. Only first claims count: a retry stands in the line anew.
"""

from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from pgqueue.values.history.events import JobName, Violation
from pgqueue.values.history.index import History, Life
from pgqueue.values.history.rules import Rules

PROMISE = 9


class _Place(NamedTuple):
    """A job in its line; places compare as they are served."""

    place: int
    order: int
    job: JobName
    arrived: float
    claimed: float
    life: Life


def in_order(history: History, rules: Rules) -> Iterator[Violation]:
    """No job is claimed while one that is ahead of it in its line waits, and is claimed later."""
    lines: dict[str, list[_Place]] = defaultdict(list)
    for order, life in enumerate(history.lives.values()):
        first = life.enqueued
        if first is not None and first.line is not None and first.place is not None and life.turns:
            lines[first.line].append(
                _Place(first.place, order, life.job, first.at, life.turns[0].since, life)
            )
    for line, places in lines.items():
        yield from _overtaken(line, places, rules.slack)


def _overtaken(line: str, places: list[_Place], slack: float) -> Iterator[Violation]:
    """Go through the claims by time. Those that waited by then are in a heap, the first one of the line on top."""
    arriving = sorted(places, key=lambda one: one.arrived, reverse=True)
    waiting: list[_Place] = []
    for served in sorted(places, key=lambda one: one.claimed):
        if served.claimed == inf:
            return
        while arriving and arriving[-1].arrived < served.claimed - slack:
            heappush(waiting, arriving.pop())
        while waiting and waiting[0].claimed <= served.claimed + slack:
            heappop(waiting)
        if waiting and waiting[0].place < served.place:
            what = f"job {served.job} was claimed before job {waiting[0].job}, which is ahead of it in {line}"
            yield Violation(PROMISE, what, (*waiting[0].life.evidence, *served.life.evidence))

"""Joins unusual hours to events, and keeps what chance does not explain in a report on all tasks. No Spark.

Unusual hours of a task and kind are one episode if few hours lie between them. Episodes that overlap are one event, of one
task or of many: a holiday, an outage or a slow service is one event with its tasks, and not a line for each. What happens
again within a day to mostly the same tasks goes on: it is the same event.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pgqueue.spark.report.rule_unusual import FAILED, WAIT, UnusualHour, far_enough

Kind: TypeAlias = tuple[str, str, str, bool]
"""Queue, task, metric, and whether above the usual."""

BETWEEN = 6
"""Hours of one task and kind with fewer hours between them are one episode."""
AGAIN = 16
"""Events of mostly the same tasks with fewer hours between them are one."""
SAME = 0.5
WHOLE = 0.5
FEWEST_TASKS = 3
"""An event of this share of the tasks, and of this number, is one of the whole system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Unusual hours near each other, of one task and one kind.

    Attributes:
        queue: the task's queue.
        task: the task's name.
        first: the first hour.
        last: the last hour.
        hours: how many of them are unusual.
        peak: the hour with the highest score.
    """

    queue: str
    task: str
    first: int
    last: int
    hours: int
    peak: UnusualHour

    @property
    def better(self) -> bool:
        """Whether it is an improvement."""
        return self.peak.metric in {WAIT, FAILED} and self.peak.score < 0

    @property
    def rank(self) -> tuple[bool, float]:
        """Sorts changes for the worse first, then by score and length."""
        return self.better, -abs(self.peak.score) * self.hours**0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Episodes that overlap.

    Attributes:
        episodes: the worst first.
        whole: whether most tasks of the system are in it.
    """

    episodes: tuple[Episode, ...]
    whole: bool

    @property
    def first(self) -> int:
        """Its first hour."""
        return min(one.first for one in self.episodes)

    @property
    def last(self) -> int:
        """Its last hour."""
        return max(one.last for one in self.episodes)

    @property
    def tasks(self) -> int:
        """How many tasks are in it."""
        return len({(one.queue, one.task) for one in self.episodes})

    @property
    def better(self) -> bool:
        """Whether nothing in it became worse."""
        return self.episodes[0].better

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Sorts changes for the worse first, then by tasks, score and length."""
        return self.better, -self.tasks, self.episodes[0].rank[1]


def events(found: Iterable[tuple[str, str, UnusualHour]], tasks: int) -> list[Event]:
    """The events of a report, the worst first.

    Args:
        found: queue, task and what ``rule_unusual.judge`` found.
        tasks: the number of tasks that were judged.
    """
    least = far_enough(tasks)
    episodes = merge_hours(one for one in found if abs(one[2].score) >= least)
    groups: list[list[Episode]] = []
    for one in sorted(episodes, key=lambda one: (one.first, one.last)):
        if groups and one.first <= max(other.last for other in groups[-1]) + 1:
            groups[-1].append(one)
        else:
            groups.append([one])
    return sorted((_event(group, tasks) for group in _continued(groups)), key=lambda one: one.rank)


def _continued(groups: Iterable[list[Episode]]) -> list[list[Episode]]:
    """The groups, in order; one that goes on with most of the tasks and kinds of the group before is a part of it."""
    joined: list[list[Episode]] = []
    for group in groups:
        if joined and _goes_on(joined[-1], group):
            joined[-1] += group
        else:
            joined.append(group)
    return joined


def _goes_on(before: Iterable[Episode], group: Iterable[Episode]) -> bool:
    gap = min(one.first for one in group) - max(one.last for one in before)
    last, now = {_kind(one) for one in before}, {_kind(one) for one in group}
    return gap < AGAIN and len(last & now) >= SAME * max(len(last), len(now))


def merge_hours(found: Iterable[tuple[str, str, UnusualHour]]) -> list[Episode]:
    """Joins unusual hours of one task and kind that are near each other."""
    lines: dict[Kind, list[UnusualHour]] = {}
    for queue, task, one in found:
        lines.setdefault((queue, task, one.metric, one.score > 0), []).append(one)
    episodes = []
    for (queue, task, *_), line in lines.items():
        run: list[UnusualHour] = []
        for one in sorted(line, key=lambda one: one.hour):
            if run and one.hour > run[-1].hour + BETWEEN:
                episodes.append(_episode(queue, task, run))
                run = []
            run.append(one)
        episodes.append(_episode(queue, task, run))
    return episodes


def _episode(queue: str, task: str, run: Sequence[UnusualHour]) -> Episode:
    peak = max(run, key=lambda one: abs(one.score))
    return Episode(queue=queue, task=task, first=run[0].hour, last=run[-1].hour, hours=len(run), peak=peak)


def _kind(one: Episode) -> Kind:
    return one.queue, one.task, one.peak.metric, one.peak.score > 0


def _event(group: Iterable[Episode], tasks: int) -> Event:
    kinds: dict[Kind, Episode] = {}
    for one in group:
        former = kinds.get(_kind(one), one)
        peak = max(former.peak, one.peak, key=lambda peak: abs(peak.score))
        hours = one.hours if former is one else former.hours + one.hours
        first, last = min(former.first, one.first), max(former.last, one.last)
        kinds[_kind(one)] = replace(one, first=first, last=last, hours=hours, peak=peak)
    named = len({(queue, task) for queue, task, *_ in kinds})
    episodes = tuple(sorted(kinds.values(), key=lambda one: one.rank))
    return Event(episodes=episodes, whole=named >= max(FEWEST_TASKS, WHOLE * tasks))

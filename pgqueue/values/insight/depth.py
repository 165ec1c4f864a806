"""How many jobs queues had, over time. Pure values; what a queue has now is in :mod:`pgqueue.values.queues.standing`."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pgqueue.values.queues.standing import QueueStanding

STATES = ("blocked", "scheduled", "ready", "running", "dead")


class Depth(msgspec.Struct, frozen=True):
    """The highest numbers of jobs that were found within a step. They may be of different minutes of it.

    Attributes:
        blocked: jobs that waited for another job, a limit or their turn.
        scheduled: jobs that waited for their time.
        ready: jobs that could be claimed.
        running: jobs that a worker had claimed.
        dead: jobs in the dead table.
        oldest_ready: seconds for which the job that waited longest had been ready; None: no job was ready.
        estimated: the numbers are scaled from a sample of the tables' pages.
    """

    blocked: int
    scheduled: int
    ready: int
    running: int
    dead: int
    oldest_ready: float | None = None
    estimated: bool = False


class DepthPoint(msgspec.Struct, frozen=True):
    """How deep a queue was in one step.

    Attributes:
        at: when the step begins.
        depth: the numbers; None: no worker looked.
    """

    at: datetime
    depth: Depth | None


class Depths(msgspec.Struct, frozen=True):
    """How deep a queue was over time, or all queues together.

    Attributes:
        since: when the first step begins.
        until: when the last step ends.
        step: the length of a step in seconds.
        points: one for each step, in order.
    """

    since: datetime
    until: datetime
    step: float
    points: tuple[DepthPoint, ...]


def deepest(found: Sequence[QueueStanding], most: int) -> list[dict[str, Any]]:
    """How deep queues are: all together, with no name, and each that has jobs.

    Args:
        found: the queues.
        most: at most how many are told apart; of more, those with the most jobs.
    """
    with_jobs = [one for one in found if any(getattr(one, state) for state in STATES)]
    with_jobs.sort(key=lambda one: (-sum(getattr(one, state) for state in STATES), one.queue))
    return [_row(None, found), *(_row(one.queue, [one]) for one in with_jobs[:most])]


def _row(queue: str | None, found: Iterable[QueueStanding]) -> dict[str, Any]:
    of = [*found]
    return {
        "queue": queue,
        **{state: sum(getattr(one, state) for one in of) for state in STATES},
        "oldest_ready": max((one.oldest_ready for one in of if one.oldest_ready is not None), default=None),
        "estimated": any(one.estimated for one in of),
    }

"""The facts that say whether all is right with the queue, as frozen values; and which limits hold jobs back.

Which of these facts are a problem is decided in :mod:`pgqueue.values.insight.problems`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pgqueue.values.alerts.state import AlertStatus
from pgqueue.values.insight.comparison import ComparisonLine
from pgqueue.values.insight.now import ScheduleLag
from pgqueue.values.insight.series import Figures
from pgqueue.values.limits.limit import key_of_queue, keys_of
from pgqueue.values.limits.status import LaneCount, LimitStatus, keys_counted
from pgqueue.values.workers.health import WorkerProblem
from pgqueue.values.workers.lease import duration_text
from pgqueue.values.workers.worker import WorkerStatus

HELD: Final = timedelta(seconds=30)
"""A limit is told once its oldest waiting job has waited for longer: shorter waits are the rule under a limit."""
HELD_FOR_LONG: Final = timedelta(minutes=10)
"""From then on it is a problem."""


class LostWorker(NamedTuple):
    """A worker that was lost: its name, when its lease ran out, and how many of its jobs were taken over."""

    name: str
    at: datetime
    jobs: int


class LaneHead(NamedTuple):
    """A lane of a queue that is not paused, and when its job that waits longest became ready."""

    queue: str
    lane: str
    since: datetime


class HeldLimit(NamedTuple):
    """A limit that holds jobs back, and when the one that waits longest became ready."""

    limit: LimitStatus
    since: datetime


class RecentFailures(NamedTuple):
    """How attempts of tasks ended lately.

    Attributes:
        deployed_at: when the app's code was deployed last, within a day; None: it was not.
        version: which version that was.
        lines: each task in the last hour, or since the deploy, beside the hour before that, or before the deploy.
        recent: each task in the last minutes.
    """

    deployed_at: datetime | None
    version: str | None
    lines: Sequence[ComparisonLine]
    recent: Mapping[str | None, Figures]


class HealthFacts(NamedTuple):
    """What was read at one time.

    Attributes:
        now: the database's time.
        workers: those that are known.
        troubles: the live ones with something to report.
        lost: the workers that were lost within a day, the last one first.
        heads: the lanes in which jobs wait.
        held: the limits that hold jobs back for long.
        schedules: the latest ones.
        alerts: every alert.
        failures: how attempts of tasks ended lately.
    """

    now: datetime
    workers: Sequence[WorkerStatus]
    troubles: Sequence[WorkerProblem]
    lost: Sequence[LostWorker]
    heads: Sequence[LaneHead]
    held: Sequence[HeldLimit]
    schedules: Sequence[ScheduleLag]
    alerts: Sequence[AlertStatus]
    failures: RecentFailures

    def ago(self, at: datetime) -> str:
        """How long ago an instant was: ``12 min``."""
        return duration_text(max(0.0, (self.now - at).total_seconds()))


def holding_limits(
    heads: Sequence[LaneHead], running: Sequence[LaneCount], limits: Mapping[str, LimitStatus], now: datetime
) -> dict[str, datetime]:
    """The limits that hold jobs back, or let none start, and since when the oldest of these jobs is ready.

    A rate holds back the jobs of a lane where no limit of concurrency does.

    Args:
        heads: the lanes in which jobs wait.
        running: how many jobs of each lane run.
        limits: every limit, by name.
        now: the database's time.
    """
    taken = {name: {key.key: key.running for key in keys_counted(name, running, {})} for name in limits}
    found: dict[str, datetime] = {}
    for head in heads:
        keys = [key for key in (*keys_of(head.lane), key_of_queue(head.queue)) if key.limit in limits]
        full = []
        for key in keys:
            most = limits[key.limit].numbers.most
            if most is not None and taken[key.limit].get(key.text, 0) + key.places > most:
                full.append(key.limit)
        for name in full or [key.limit for key in keys if limits[key.limit].numbers.most is None]:
            if now - head.since > HELD or limits[name].numbers.most == 0:
                found[name] = min(head.since, found.get(name, head.since))
    return found

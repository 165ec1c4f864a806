"""Replays the recorded jobs of some days under other settings, and compares their waits, backlogs and running jobs with what was.

A *wait* is the time from when a job was ready until it started. Percentiles are values that occurred.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif.jobs import (
    EPOCH,
    SECOND,
    EndedJobs,
    Numbers,
    in_claim_order,
    move_jobs,
    read,
    served_jobs,
    start_of,
)
from pgqueue.spark.whatif.replay import ReplayWork, starts
from pgqueue.spark.whatif.settings import ReplaySettings

LENGTHS = (1, 10, 60, 300, 900, 3_600, 21_600, 86_400)
"""Seconds that a point of a plot may stand for."""
MOST_POINTS = 800


class WaitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs waited, in seconds.

    Attributes:
        p50: half of the jobs waited no longer than this.
        p95: 95% of them.
        p99: 99% of them.
        max: all of them.
        late: the share of jobs that waited longer than is allowed.
    """

    p50: float
    p95: float
    p99: float
    max: float
    late: float


class ReplayRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a queue, beside what it would be.

    Attributes:
        queue: its name.
        task: its name.
        jobs: how many jobs.
        was: their waits as recorded.
        would_be: their waits in the replay.
    """

    queue: str
    task: str
    jobs: int
    was: WaitTimes
    would_be: WaitTimes


class ReplayLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs asked of the workers.

    Attributes:
        backlog: the most jobs that waited at once.
        running: the most jobs that ran at once.
        mean_running: how many ran at once, on average from the first ready job of these days to the last end.
        last_end: when the last job ended.
    """

    backlog: int
    running: int
    mean_running: float
    last_end: datetime


class ReplayPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time: of the jobs that were ready in it, and of its instants.

    Attributes:
        at: its beginning.
        p95: 95% of the jobs that were ready in it waited no longer, in seconds; None: no job was ready in it.
        backlog: the most jobs that waited at once.
        running: how many ran at once, on average.
    """

    at: datetime
    p95: float | None
    backlog: int
    running: float


class SkippedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """What the replay does not run.

    Attributes:
        never_started: jobs that ended without an attempt.
        not_served: jobs of queues that the workers do not serve.
        earlier_attempts: attempts before the last one of their job: the lake does not say when they ran.
    """

    never_started: int
    not_served: int
    earlier_attempts: int


class ReplayComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What was, beside what would be.

    Attributes:
        first: the first day.
        last: the last day.
        settings: each in a few words.
        slots: how many jobs run at once, on all workers.
        late_after: the wait in seconds after which a job is late.
        jobs: how many jobs were replayed.
        left_out: what was not.
        was: the waits of all jobs, as recorded.
        would_be: the same in the replay.
        load_was: what they asked of the workers, as recorded.
        load_would_be: the same in the replay.
        busy: the share of the slots' time in which jobs ran, in the replay.
        tasks: by queue and task, the longest waits in the replay first.
        seconds_a_point: the length of the stretches.
        points_was: the course of time, as recorded.
        points_would_be: the same in the replay.
    """

    first: date
    last: date
    settings: list[str]
    slots: int
    late_after: float
    jobs: int
    left_out: SkippedJobs
    was: WaitTimes
    would_be: WaitTimes
    load_was: ReplayLoad
    load_would_be: ReplayLoad
    busy: float
    tasks: list[ReplayRow]
    seconds_a_point: int
    points_was: list[ReplayPoint]
    points_would_be: list[ReplayPoint]


@dataclass(frozen=True, slots=True)
class Course:
    """When jobs were ready, when they started, and for how long they ran, in microseconds."""

    ready: Numbers
    started: Numbers
    lasts: Numbers

    @property
    def waits(self) -> Numbers:
        """How long each waited."""
        return self.started - self.ready

    @property
    def ended(self) -> Numbers:
        """When each ended."""
        return self.started + self.lasts


def whatif(lake: Lake, days: Sequence[date], settings: ReplaySettings) -> ReplayComparison:
    """Replay the jobs that ended on these days.

    Args:
        lake: with these days in it.
        days: in order.
        settings: of the replay.

    Raises:
        InvalidOption: the lake does not have these days, or no job of them has what a setting names.
        LakeError: there is no lake, or a file cannot be read.
    """
    jobs = served_jobs(read(lake, days, settings), settings)
    pa.default_memory_pool().release_unused()
    return _compare(in_claim_order(move_jobs(jobs, days, settings.moved)), days, settings)


def replay_jobs(jobs: EndedJobs, settings: ReplaySettings) -> Course:
    """When the jobs, in claim order, start and end under these settings."""
    work = ReplayWork(
        ready=jobs.ready,
        lasts=jobs.ended - jobs.started,
        queue=jobs.queue,
        weights=[settings.serving.weight(name) for name in jobs.queues],
        keys=jobs.keys,
        most=[one.most for one in settings.limits],
    )
    return Course(work.ready, starts(work, settings.slots, settings.workers), work.lasts)


def _compare(jobs: EndedJobs, days: Sequence[date], settings: ReplaySettings) -> ReplayComparison:
    would_be = replay_jobs(jobs, settings)
    was = Course(jobs.was_ready, jobs.started, would_be.lasts)
    # A job may have been ready long before these days, blocked or behind others: it is in no picture before them.
    begin = max(start_of(days[0]), min(int(was.ready.min()), int(would_be.ready.min())))
    end = max(int(was.ended.max()), int(would_be.ended.max()))
    groups = jobs.queue * len(jobs.tasks) + jobs.task
    names = [(queue, task) for queue in jobs.queues for task in jobs.tasks]
    load = _load(would_be, begin)
    seconds = _length_of(begin, end)
    return ReplayComparison(
        first=days[0],
        last=days[-1],
        settings=settings.said,
        slots=settings.slots,
        late_after=settings.late.total_seconds(),
        jobs=jobs.ids.size,
        left_out=SkippedJobs(
            never_started=jobs.never_started,
            not_served=jobs.not_served,
            earlier_attempts=int(jobs.earlier.sum()),
        ),
        was=_waits(was.waits, settings.late),
        would_be=_waits(would_be.waits, settings.late),
        load_was=_load(was, begin),
        load_would_be=load,
        busy=load.mean_running / settings.slots,
        tasks=[*_rows(groups, names, was, would_be, settings.late)],
        seconds_a_point=seconds,
        points_was=_points(was, seconds, begin, end),
        points_would_be=_points(would_be, seconds, begin, end),
    )


def _waits(values: Numbers, late: timedelta) -> WaitTimes:
    """Summarize waits, of one job at least."""
    p50, p95, p99, longest = np.quantile(values, (0.5, 0.95, 0.99, 1), method="inverted_cdf") / SECOND
    share = float((values > late // timedelta(microseconds=1)).mean())
    return WaitTimes(p50=float(p50), p95=float(p95), p99=float(p99), max=float(longest), late=share)


def _rows(
    group: Numbers, names: list[tuple[str, str]], was: Course, would_be: Course, late: timedelta
) -> Iterator[ReplayRow]:
    """Yield a row for each group, the groups with the longest waits in the replay first.

    Args:
        group: of each job.
        names: the queue and the task of each group.
        was: as recorded.
        would_be: as replayed; the jobs in the same order.
        late: a longer wait is late.
    """
    order = np.argsort(group, kind="stable")
    found, first = np.unique(group[order], return_index=True)
    made = []
    for number, members in zip(found.tolist(), np.split(order, first[1:]), strict=True):
        queue, task = names[number]
        made.append(
            ReplayRow(
                queue=queue,
                task=task,
                jobs=members.size,
                was=_waits(was.waits[members], late),
                would_be=_waits(would_be.waits[members], late),
            )
        )
    yield from sorted(made, key=lambda row: (-row.would_be.p95, -row.would_be.max, row.queue, row.task))


def _load(course: Course, begin: int) -> ReplayLoad:
    ended = course.ended
    length = int(ended.max()) - begin
    return ReplayLoad(
        backlog=int(_levels(course.ready, course.started)[1].max(initial=0)),
        running=int(_levels(course.started, ended)[1].max(initial=0)),
        mean_running=int(course.lasts.sum()) / length if length > 0 else 0.0,
        last_end=_instant(int(ended.max())),
    )


def _length_of(begin: int, end: int) -> int:
    """Return for how many seconds a point stands, so that there are not too many between two instants."""
    seconds = (end - begin) / SECOND
    return next((one for one in LENGTHS if seconds / one <= MOST_POINTS), LENGTHS[-1])


def _points(course: Course, seconds: int, begin: int, end: int) -> list[ReplayPoint]:
    """Return a point for each stretch of this many seconds.

    Args:
        course: of the jobs.
        seconds: the length of a stretch.
        begin: the first instant, in microseconds.
        end: the last one.
    """
    edges = np.arange(begin // (seconds * SECOND) * seconds * SECOND, end + 1, seconds * SECOND)
    edges = np.append(edges, edges[-1] + seconds * SECOND)
    running = np.diff(_busy(course, edges)) / (seconds * SECOND)
    backlogs = _most(*_levels(course.ready, course.started), edges)
    return [
        ReplayPoint(at=_instant(at), p95=p95, backlog=backlog, running=level)
        for at, p95, backlog, level in zip(
            edges[:-1].tolist(), _p95(course, edges), backlogs.tolist(), running.tolist(), strict=True
        )
    ]


def _levels(begun: Numbers, over: Numbers) -> tuple[Numbers, Numbers]:
    """Return the instants at which something begins or is over, and how many there are from then on.

    At one instant, ends come first.
    """
    instants = np.concatenate((over, begun))
    steps = np.repeat(np.array([-1, 1]), begun.size)
    order = np.argsort(instants, kind="stable")
    return instants[order], np.cumsum(steps[order])


def _most(instants: Numbers, levels: Numbers, edges: Numbers) -> Numbers:
    """The highest level in each stretch: that with which it begins counts, too."""
    places = np.searchsorted(instants, edges)
    before = np.concatenate(([0], levels))[places[:-1]]
    inside = np.maximum.reduceat(np.append(levels, 0), np.minimum(places[:-1], levels.size))
    found: Numbers = np.maximum(before, np.where(places[1:] > places[:-1], inside, 0))
    return found


def _busy(course: Course, edges: Numbers) -> NDArray[np.float64]:
    """How long all jobs had run in sum, at each of these instants."""

    def since(instants: Numbers) -> NDArray[np.float64]:
        """Return, for each edge, the sum of the times that have passed since these instants."""
        instants = np.sort(instants) - edges[0]
        sums = np.concatenate(([0.0], np.cumsum(instants, dtype=np.float64)))
        count = np.searchsorted(instants, edges - edges[0])
        found: NDArray[np.float64] = count * (edges - edges[0]).astype(np.float64) - sums[count]
        return found

    return since(course.started) - since(course.ended)


def _p95(course: Course, edges: Numbers) -> list[float | None]:
    order = np.argsort(course.ready, kind="stable")
    values = course.waits[order]
    places = np.searchsorted(course.ready[order], edges).tolist()
    return [
        float(np.quantile(values[begin:end], 0.95, method="inverted_cdf")) / SECOND if end > begin else None
        for begin, end in pairwise(places)
    ]


def _instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)

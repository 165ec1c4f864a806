"""Replays the recorded jobs of some days under other settings, and compares their waits, backlogs and running jobs with what was.

A *wait* is the time from when a job was ready until it started. Percentiles are values that occurred.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa

from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif.course import Course, WaitTimes, busy, levels, most, p95, waits_of
from pgqueue.spark.whatif.jobs import (
    EPOCH,
    NONE,
    SECOND,
    EndedJobs,
    Numbers,
    in_claim_order,
    move_jobs,
    read,
    served_jobs,
    start_of,
)
from pgqueue.spark.whatif.replay import ReplayWork, Slots, starts
from pgqueue.spark.whatif.settings import ReplayLimit, ReplaySettings
from pgqueue.spark.whatif.today import NO_TIMES, WorkerTimes, gap_of, recorded_in, slots_of, starts_of
from pgqueue.spark.whatif.trust import ReplayCheck, doubts, off_by

LENGTHS = (1, 10, 60, 300, 900, 3_600, 21_600, 86_400)
"""Seconds that a point of a plot may stand for."""
MOST_POINTS = 800


class ReplayRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a queue, beside what it would be.

    Attributes:
        queue: its name.
        task: its name.
        jobs: how many jobs.
        was: their waits as recorded.
        replayed: their waits in a replay of the settings that they had; None: these are not known.
        would_be: their waits in the replay.
        doubts: by figure, why it is not predicted.
    """

    queue: str
    task: str
    jobs: int
    was: WaitTimes
    replayed: WaitTimes | None
    would_be: WaitTimes
    doubts: dict[str, str]


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
        check: the same in a replay of the settings that the jobs had; None: the lake knows no worker of their time.
        doubts: by figure of ``would_be``, why it is not predicted.
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
    check: ReplayCheck | None
    doubts: dict[str, str]
    load_was: ReplayLoad
    load_would_be: ReplayLoad
    busy: float
    tasks: list[ReplayRow]
    seconds_a_point: int
    points_was: list[ReplayPoint]
    points_would_be: list[ReplayPoint]


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
    jobs = in_claim_order(read(lake, days, settings))
    pa.default_memory_pool().release_unused()
    slots, times = slots_of(lake, jobs), NO_TIMES
    if slots is not None:
        jobs, times = replay_today(jobs, slots, settings)
    jobs = in_claim_order(move_jobs(served_jobs(jobs, settings), days, settings.moved))
    return _compare(jobs, slots, times, days, settings)


def replay_today(jobs: EndedJobs, slots: Slots, settings: ReplaySettings) -> tuple[EndedJobs, WorkerTimes]:
    """The jobs, in claim order, with their starts on the slots that they had; and what starts and ends cost there."""
    was = Course(jobs.was_ready, jobs.started, jobs.ended - jobs.started)
    keys = _keys(jobs, settings, settings.had)
    unlimited = np.all([one == NONE for one in keys] or [was.lasts >= 0], axis=0)
    of_limits = [recorded_in(was, one, limit.most) for one, limit in zip(keys, settings.had, strict=True)]
    gap, share = gap_of(was, unlimited, slots)
    times = WorkerTimes(gap=gap, recorded_in=max((length for length, _ in of_limits), default=0))
    replayed = _replayed(jobs, settings, settings.had, slots, times)
    begun = starts_of(was, replayed, unlimited, slots)
    start = float(np.median(begun)) if begun.size else 0.0
    guess = start / (start + max(1.0, float(was.lasts.mean())))
    shares = [guess if one is None else one for one in (share, *(one for _, one in of_limits))]
    times = replace(times, starts=begun, between=max(shares))
    return replace(jobs, replayed=replayed.started + times.drawn(jobs.ids.size)), times


def replay_jobs(jobs: EndedJobs, settings: ReplaySettings, times: WorkerTimes = NO_TIMES) -> Course:
    """When the jobs, in claim order, start and end under these settings, where starts and ends cost this."""
    slots = Slots.always(settings.slots, settings.workers)
    found = _replayed(jobs, settings, settings.in_force, slots, times)
    return replace(found, started=found.started + times.drawn(jobs.ids.size))


def _replayed(
    jobs: EndedJobs, settings: ReplaySettings, limits: Sequence[ReplayLimit], slots: Slots, times: WorkerTimes
) -> Course:
    work = ReplayWork(
        ready=jobs.ready,
        lasts=jobs.ended - jobs.started,
        queue=jobs.queue,
        weights=[settings.serving.weight(name) or 1 for name in jobs.queues],
        keys=_keys(jobs, settings, limits),
        most=[one.most for one in limits],
        gap=times.gap,
        recorded_in=times.recorded_in,
    )
    return Course(work.ready, starts(work, slots), work.lasts)


def _keys(jobs: EndedJobs, settings: ReplaySettings, limits: Sequence[ReplayLimit]) -> tuple[Numbers, ...]:
    names = [one.name for one in settings.in_force]
    return tuple(jobs.keys[names.index(one.name)] for one in limits)


def _compare(
    jobs: EndedJobs, slots: Slots | None, times: WorkerTimes, days: Sequence[date], settings: ReplaySettings
) -> ReplayComparison:
    would_be = replay_jobs(jobs, settings, times)
    was = Course(jobs.was_ready, jobs.started, would_be.lasts)
    replayed = None if slots is None else replace(was, started=jobs.replayed)
    start = waits_of(times.starts, settings.late) if times.starts.size else None
    # A job may have been ready long before these days, blocked or behind others: it is in no picture before them.
    begin = max(start_of(days[0]), min(int(was.ready.min()), int(would_be.ready.min())))
    end = max(int(was.ended.max()), int(would_be.ended.max()))
    load = _load(would_be, begin, Slots.always(settings.slots))
    groups = jobs.queue * len(jobs.tasks) + jobs.task
    names = [(queue, task) for queue in jobs.queues for task in jobs.tasks]
    summed = partial(
        _summed,
        was=was,
        replayed=replayed,
        would_be=would_be,
        start=start,
        between=times.between,
        late=settings.late,
    )
    (total,) = summed(np.zeros_like(groups), [("", "")])
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
        was=total.was,
        would_be=total.would_be,
        check=_check(total, start, slots, times),
        doubts=total.doubts,
        load_was=_load(was, begin, slots),
        load_would_be=load,
        busy=load.mean_running / settings.slots,
        tasks=sorted(
            summed(groups, names), key=lambda row: (-row.would_be.p95, -row.would_be.max, row.queue, row.task)
        ),
        seconds_a_point=seconds,
        points_was=_points(was, seconds, begin, end),
        points_would_be=_points(would_be, seconds, begin, end),
    )


def _summed(
    group: Numbers,
    names: Sequence[tuple[str, str]],
    *,
    was: Course,
    replayed: Course | None,
    would_be: Course,
    start: WaitTimes | None,
    between: float,
    late: timedelta,
) -> Iterator[ReplayRow]:
    """Yield a row for each group of jobs.

    Args:
        group: of each job.
        names: the queue and the task of each group.
        was: as recorded.
        replayed: on the slots that they had; None: these are not known.
        would_be: as replayed; the jobs in the same order.
        start: the waits of jobs that found a free slot.
        between: the share of the time that passed between jobs.
        late: a longer wait is late.
    """
    order = np.argsort(group, kind="stable")
    found, first = np.unique(group[order], return_index=True)
    for number, members in zip(found.tolist(), np.split(order, first[1:]), strict=True):
        recorded, answer = waits_of(was.waits[members], late), waits_of(would_be.waits[members], late)
        today = None if replayed is None else waits_of(replayed.waits[members], late)
        yield ReplayRow(
            queue=names[number][0],
            task=names[number][1],
            jobs=members.size,
            was=recorded,
            replayed=today,
            would_be=answer,
            doubts={} if today is None else doubts(recorded, today, answer, start, between),
        )


def _check(
    total: ReplayRow, start: WaitTimes | None, slots: Slots | None, times: WorkerTimes
) -> ReplayCheck | None:
    if slots is None or total.replayed is None:
        return None
    return ReplayCheck(
        workers=int(slots.workers.max()),
        slots=int(slots.counts.max()),
        replayed=total.replayed,
        off=off_by(total.was, total.replayed),
        start=start,
        gap=times.gap / SECOND,
        recorded_in=times.recorded_in / SECOND,
        between=times.between,
    )


def _load(course: Course, begin: int, slots: Slots | None) -> ReplayLoad:
    ended = course.ended
    length = int(ended.max()) - begin
    instants, running = levels(course.started, ended)
    if slots is not None:  # jobs whose ends were recorded together seem to have run together
        running = np.minimum(running, slots.since(instants))
    return ReplayLoad(
        backlog=int(levels(course.ready, course.started)[1].max(initial=0)),
        running=int(running.max(initial=0)),
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
    running = np.diff(busy(course, edges)) / (seconds * SECOND)
    backlogs = most(*levels(course.ready, course.started), edges)
    return [
        ReplayPoint(at=_instant(at), p95=p95, backlog=backlog, running=level)
        for at, p95, backlog, level in zip(
            edges[:-1].tolist(), p95(course, edges), backlogs.tolist(), running.tolist(), strict=True
        )
    ]


def _instant(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)

"""Replays the recorded jobs of some days under other settings, and compares their waits with what was."""

from collections.abc import Sequence
from datetime import date

import msgspec
import pyarrow as pa

from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif import compare
from pgqueue.spark.whatif.compare import Course, ReplayLoad, ReplayPoint, ReplayRow, WaitTimes
from pgqueue.spark.whatif.jobs import EndedJobs, in_claim_order, move_jobs, read, served_jobs, start_of
from pgqueue.spark.whatif.replay import ReplayWork, starts
from pgqueue.spark.whatif.settings import ReplaySettings


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
    load = compare.load(would_be, begin)
    seconds = compare.length_of(begin, end)
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
        was=compare.waits(was.waits, settings.late),
        would_be=compare.waits(would_be.waits, settings.late),
        load_was=compare.load(was, begin),
        load_would_be=load,
        busy=load.mean_running / settings.slots,
        tasks=[*compare.rows(groups, names, was, would_be, settings.late)],
        seconds_a_point=seconds,
        points_was=compare.points(was, seconds, begin, end),
        points_would_be=compare.points(would_be, seconds, begin, end),
    )

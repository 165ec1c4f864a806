"""Jobs in COPY's text format, and the instants that are computed before a job is added."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice

from pgqueue.values.jobs.job import NewJob
from pgqueue.values.queues.defaults import QueueDefaults
from pgqueue.values.queues.settings import MAX_ATTEMPTS, PRIORITY

ROWS_PER_CHUNK = 500
"""Rows that are sent at once."""


def due_at(job: NewJob, clock: datetime) -> datetime:
    """From when on a job may run."""
    if job.run_at is not None:
        return job.run_at
    delay = delay_of(job)
    return clock if delay is None else clock + delay


def delay_of(job: NewJob) -> timedelta | None:
    """After which time a job may run: that of its call, else that of its unique key."""
    return job.unique.delay if job.delay is None else job.delay


def expires_at(job: NewJob, clock: datetime) -> datetime | None:
    """From when on no attempt of a job starts any more."""
    return job.expires_at if job.expires_in is None else due_at(job, clock) + job.expires_in


def copy_rows(
    numbered: list[tuple[int, NewJob]], clock: datetime, defaults: QueueDefaults, *, due: bytes = b"ready"
) -> Iterator[bytes]:
    """The jobs in COPY's text format. JSON escapes control characters itself; backslashes are left to us.

    Args:
        numbered: the jobs, with their ids.
        clock: the instant.
        defaults: what queues say of jobs that do not say it themselves.
        due: the status of jobs that may run now.
    """
    rows, at_once = iter(numbered), _copied_time(clock, clock, due)
    of = defaults.of if defaults else None  # None: no queue has settings, and a call costs as much as a row
    while chunk := list(islice(rows, ROWS_PER_CHUNK)):
        yield b"".join(
            b"%d\t%b\t%b\t%d\t%b\t%d\t%b\t%b\n"
            % (
                job_id,
                copied_names(job.queue, job.task),
                job.args.replace(b"\\", b"\\\\"),
                (job.priority or PRIORITY) if of is None else (said := of(job))[0],
                at_once
                if job.run_at is None and job.delay is None
                else _copied_time(due_at(job, clock), clock, due),
                (job.max_attempts or MAX_ATTEMPTS) if of is None else said[1],
                b"\\N" if job.meta is None else job.meta.replace(b"\\", b"\\\\"),
                b"\\N"
                if job.expires_at is None and job.expires_in is None
                else str(expires_at(job, clock)).encode(),
            )
            for job_id, job in chunk
        )


def copied_with_lanes(
    numbered: list[tuple[int, NewJob]], clock: datetime, defaults: QueueDefaults
) -> Iterator[bytes]:
    """As :func:`copy_rows`, with the lanes: a job that may run now is blocked, and in its lane."""
    jobs = iter(numbered)
    for chunk in copy_rows(numbered, clock, defaults, due=b"blocked"):
        rows = chunk.split(b"\n")[:-1]
        yield b"".join(
            b"%b\t%b\t%b\t%b\n"
            % (
                row,
                _copied_lane(job.lane or ""),
                b"t" if due_at(job, clock) <= clock else b"\\N",
                b"\\N" if job.cost is None else b"%d" % job.cost,
            )
            for row, (_, job) in zip(rows, islice(jobs, len(rows)), strict=True)
        )


@lru_cache(maxsize=50_000)
def _copied_lane(lane: str) -> bytes:
    # COPY's text format escapes line ends, and a lane has one key a line.
    return lane.replace("\\", "\\\\").replace("\n", "\\n").encode()


@lru_cache(maxsize=1024)
def copied_names(queue: str, task: str) -> bytes:
    """The names in COPY's text format, with a tab between them."""
    return "\t".join(name.replace("\\", "\\\\") for name in (queue, task)).encode()


def _copied_time(run_at: datetime, clock: datetime, due: bytes) -> bytes:
    return b"%b\t%b" % (b"scheduled" if run_at > clock else due, run_at.isoformat().encode())

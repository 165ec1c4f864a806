"""Jobs in COPY's text format, and the instants that are computed before a job is added."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from operator import attrgetter

from pgqueue.store import columns
from pgqueue.store.arrays import numbers, texts
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.queues.defaults import QueueDefaults
from pgqueue.values.queues.settings import MAX_ATTEMPTS, PRIORITY

ROWS_PER_CHUNK = 500
"""Rows that are sent at once."""
NULL = b"\\N"
_SENT = tuple(column.name for column in columns.SENT)


def sends(job: NewJob) -> bool:
    """Whether a job has a value in any of the columns that only pass through."""
    return any(getattr(job, name) is not None for name in _SENT)


def sent(job: NewJob) -> dict[str, object]:
    """The columns that only pass through, as parameters."""
    return {name: _parameter(getattr(job, name)) for name in _SENT}


def new_by_each(jobs: Sequence[NewJob], clock: datetime, defaults: QueueDefaults) -> dict[str, object]:
    """Jobs as an array for each of ``columns.NEW``, ``columns.LIMITED`` and ``columns.KEY``."""
    said = [defaults.of(job) for job in jobs]
    return {
        "run_at": [due_at(job, clock) for job in jobs],
        "queue": [job.queue for job in jobs],
        "task": [job.task for job in jobs],
        "args": [job.args.decode() for job in jobs],
        "priority": [priority for priority, _ in said],
        "max_attempts": [attempts for _, attempts in said],
        "expires_at": [expires_at(job, clock) for job in jobs],
        **{name: [_parameter(getattr(job, name)) for job in jobs] for name in _SENT},
        "lane": [job.lane for job in jobs],
        "cost": [job.cost for job in jobs],
        "unique_key": [job.unique_key for job in jobs],
        "unique_until_started": [job.unique.until == "started" for job in jobs],
    }


def few_by_each(jobs: Sequence[NewJob]) -> dict[str, object]:
    """Jobs as arrays of what was said of them, for the database to compute the rest."""
    return {
        "queue": texts(job.queue for job in jobs),
        "task": texts(job.task for job in jobs),
        "args": texts(job.args.decode() for job in jobs),
        **{name: texts(_said(getattr(job, name)) for job in jobs) for name in _SENT},
        "lane": texts(job.lane for job in jobs),
        "cost": numbers([job.cost for job in jobs]),
        "priority": numbers([job.priority for job in jobs]),
        "max_attempts": numbers([job.max_attempts for job in jobs]),
        "run_at": texts(_instant(job.run_at) for job in jobs),
        "delay": numbers([_seconds(delay_of(job)) for job in jobs]),
        "expires_at": texts(_instant(job.expires_at) for job in jobs),
        "expires_in": numbers([_seconds(job.expires_in) for job in jobs]),
    }


def copied_sent(jobs: Sequence[NewJob]) -> list[bytes]:
    """Of each job, the columns that only pass through in COPY's text format, with tabs between them."""
    # Column by column: a call for each job would take half as long again as the rest of its row.
    each = [
        [NULL if value is None else _copied(value) for value in map(attrgetter(name), jobs)] for name in _SENT
    ]
    return each[0] if len(each) == 1 else list(map(b"\t".join, zip(*each, strict=True)))


def _parameter(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def _said(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


def _copied(value: object) -> bytes:
    if isinstance(value, bytes):  # JSON: it has no tabs and no line ends
        return value.replace(b"\\", b"\\\\")
    return copied_text(str(value))


def copied_text(value: str | None) -> bytes:
    """A text in COPY's text format."""
    if value is None:
        return NULL
    for plain, escaped in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escaped)
    return value.encode()


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
    """The jobs in COPY's text format: id, status, and ``columns.NEW``. JSON escapes control characters itself; backslashes are left to us.

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
            b"%d\t%b\t%b\t%b\t%d\t%d\t%b\t%b\n"
            % (
                job_id,
                at_once
                if job.run_at is None and job.delay is None
                else _copied_time(due_at(job, clock), clock, due),
                copied_names(job.queue, job.task),
                job.args.replace(b"\\", b"\\\\"),
                (job.priority or PRIORITY) if of is None else (said := of(job))[0],
                (job.max_attempts or MAX_ATTEMPTS) if of is None else said[1],
                NULL
                if job.expires_at is None and job.expires_in is None
                else str(expires_at(job, clock)).encode(),
                also,
            )
            for (job_id, job), also in zip(chunk, copied_sent([job for _, job in chunk]), strict=True)
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
                NULL if job.cost is None else b"%d" % job.cost,
                b"t" if due_at(job, clock) <= clock else NULL,
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

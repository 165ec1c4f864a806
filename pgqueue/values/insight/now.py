"""What a look at the queue answers: what runs, why jobs died, how late schedules are, how the tables stand. Pure values.

What is read is decided in :mod:`pgqueue.store.insight.insight`. What surrounds one job is in :mod:`pgqueue.values.insight.story`. How queues stand is in :mod:`pgqueue.values.queues.standing`, what limits hold in
:mod:`pgqueue.values.limits.status`, and what happened over time in :mod:`pgqueue.values.insight.series`.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from pgqueue.values.jobs.job import Job
from pgqueue.values.jobs.note import Progress

if TYPE_CHECKING:
    from pgqueue.values.schedules.schedule import Timing


class RunningJob(msgspec.Struct, frozen=True):
    """A job that a worker holds.

    Attributes:
        job_id: its id.
        queue: its queue.
        task: its task.
        attempt: which attempt, from 1.
        max_attempts: after how many attempts it is dead.
        since: when it was claimed.
        seconds: for how long it has been claimed.
        worker_id: the worker's id.
        worker: its host and process, like ``web-1:4711``; None: the worker has no row.
        lost: the worker's lease has passed, or it has no row: a sweep takes the job over.
        cancel_requested: the worker has been asked to stop it.
    """

    job_id: int
    queue: str
    task: str
    attempt: int
    max_attempts: int
    since: datetime
    seconds: float
    worker_id: UUID
    worker: str | None
    lost: bool
    cancel_requested: bool


class Running(msgspec.Struct, frozen=True):
    """Jobs that workers hold, those that were claimed first at the front.

    Attributes:
        jobs: the jobs.
        complete: all running jobs were looked at. False: the table is large, and only those that workers named with their
            last heartbeat, and those under limits, were.
    """

    jobs: tuple[RunningJob, ...]
    complete: bool


class SearchPage(msgspec.Struct, frozen=True):
    """Jobs that match a search, newest first, each with its last error only.

    Attributes:
        jobs: the jobs. Arguments of more than 10,000 characters are left out: ``{"$not_kept": bytes}``.
        looked_to: the id of the last job that was looked at, from which a search goes on; None: there are enough jobs, or no
            older ones.
    """

    jobs: tuple[Job, ...]
    looked_to: int | None = None


class DuePage(msgspec.Struct, frozen=True):
    """Scheduled jobs in the order in which they are due, each with its last error only.

    Attributes:
        jobs: the jobs. Arguments of more than 10,000 characters are left out: ``{"$not_kept": bytes}``.
        looked_to: until when due and the id of the last job that was looked at, from which a search goes on; None: there are enough
            jobs, or no others.
    """

    jobs: tuple[Job, ...]
    looked_to: tuple[datetime, int] | None = None


class JobDetail(msgspec.Struct, frozen=True):
    """What a list shows of a live job beside its record.

    Attributes:
        waits_for: what a blocked job waits for, in a few words, such as ``limit mail`` or ``signal 'paid'``; None: it is not blocked.
        paused: whether its queue is paused.
        worker: the host and process of the worker that runs it, like ``web-1:4711``; None: it does not run, or the worker has no row.
        progress: how far a running job is; None: it has not said.
    """

    waits_for: str | None = None
    paused: bool = False
    worker: str | None = None
    progress: Progress | None = None


def listed(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """Jobs that a search found, for JSON: without ``result``, which a search does not read, so that null is not taken for it."""
    fields = [name for name in Job.__struct_fields__ if name != "result"]
    return [{name: getattr(job, name) for name in fields} for job in jobs]


class DeadTask(msgspec.Struct, frozen=True):
    """How many dead jobs a task has in a queue.

    Attributes:
        queue: the queue.
        task: the task.
        jobs: how many.
    """

    queue: str
    task: str
    jobs: int


class DeadTasks(msgspec.Struct, frozen=True):
    """Dead jobs by task.

    Attributes:
        tasks: those with the most, the one with the most first.
        others: dead jobs of all other tasks.
        complete: all dead jobs were counted. False: only the latest ones were.
    """

    tasks: tuple[DeadTask, ...]
    others: int
    complete: bool


class KeyUse(msgspec.Struct, frozen=True):
    """Rows of a table that were encrypted with a key.

    Attributes:
        table: which.
        ring: ``s``: the shared ring; ``t``: a tenant's.
        key: the key's name.
        rows: how many rows.
    """

    table: str
    ring: Literal["s", "t"]
    key: str
    rows: int


class ErrorGroup(msgspec.Struct, frozen=True):
    """Dead jobs of one task that died of the same error: its type, and the first line of its message without digits.

    Attributes:
        task: their task.
        type: the type of the last error; None: the job has none recorded.
        reason: why they are dead: ``exhausted``, ``refused``, ``expired``, ….
        message: the first line of the latest of these errors; None: a codec has encoded it.
        jobs: how many.
        queues: the queues that they were in, up to 10.
        first_at: when the first of them died.
        last_at: when the last of them died.
        last_job: the id of the one that died last.
        key: names the group: criterion ``error_group`` of searches and of operations on dead jobs.
    """

    task: str
    type: str | None
    reason: str
    message: str | None
    jobs: int
    queues: tuple[str, ...]
    first_at: datetime
    last_at: datetime
    last_job: int
    key: str = ""


class Errors(msgspec.Struct, frozen=True):
    """Why jobs died, the most frequent error first.

    Attributes:
        groups: the dead jobs by task and error.
        jobs: how many dead jobs were read: the last that died.
        complete: these are all dead jobs that match.
    """

    groups: tuple[ErrorGroup, ...]
    jobs: int
    complete: bool


class Deploy(msgspec.Struct, frozen=True):
    """A deploy of the user's code.

    Attributes:
        deployed_at: when it went live.
        version: which version.
    """

    deployed_at: datetime
    version: str


class ScheduleLag(msgspec.Struct, frozen=True):
    """How late a schedule is.

    Attributes:
        name: what it is called.
        task: the task of its jobs.
        queue: their queue.
        state: ``active``, ``paused``, ``set aside``, or ``ended`` where there is no further tick.
        next_at: its next tick; None: it has none, is paused or is set aside.
        lag: seconds for which its next tick has been due and has not fired; 0: it is not due.
        last_at: the last tick that fired within 30 days; None: none.
        last_lag: how many seconds after its instant that tick fired.
        error: why it is set aside.
        module: the module that declares it; None: it was made at run time.
        timing: when its ticks are; None: it makes no sense.
    """

    name: str
    task: str
    queue: str
    state: str
    next_at: datetime | None
    lag: float
    last_at: datetime | None
    last_lag: float | None
    error: str | None
    module: str | None = None
    timing: "Timing | None" = None


class TableHealth(msgspec.Struct, frozen=True):
    """One of the tables; a partitioned one is counted with its partitions. Row numbers are PostgreSQL's estimates.

    Attributes:
        name: its name.
        rows: live rows.
        dead_rows: rows that vacuum has not removed yet.
        bytes: all of it on disk, with indices and long values.
        index_bytes: its indices.
        vacuumed_at: the last vacuum, automatic or not; None: none since the statistics were reset.
        analyzed_at: the last analyze, automatic or not.
        age: transactions since its oldest row was frozen; at ``autovacuum_freeze_max_age`` PostgreSQL vacuums it.
    """

    name: str
    rows: int
    dead_rows: int
    bytes: int
    index_bytes: int
    vacuumed_at: datetime | None
    analyzed_at: datetime | None
    age: int


class IndexHealth(msgspec.Struct, frozen=True):
    """One of the larger indices.

    Attributes:
        name: its name.
        table: its table.
        bytes: on disk.
        scans: how often it was read since the statistics were reset.
    """

    name: str
    table: str
    bytes: int
    scans: int


class VacuumHorizon(msgspec.Struct, frozen=True):
    """What keeps vacuum from removing dead rows: the oldest snapshot that the server has to serve.

    Attributes:
        kind: ``session``, ``prepared transaction``, ``replication slot`` or ``standby``.
        name: the application's name, the prepared transaction's, the slot's or the standby's.
        transactions: how many transactions have begun since that snapshot.
        pid: the process; None: it is no session.
        user: whose session it is; None: not known.
        database: in which database it is; None: in none.
        state: the session's state, such as ``idle in transaction``.
        since: when its transaction began.
        query_at: when its last statement began.
    """

    kind: Literal["session", "prepared transaction", "replication slot", "standby"]
    name: str
    transactions: int
    pid: int | None = None
    user: str | None = None
    database: str | None = None
    state: str | None = None
    since: datetime | None = None
    query_at: datetime | None = None


class StoreHealth(msgspec.Struct, frozen=True):
    """How the tables stand.

    Attributes:
        at: the database's time.
        version: of the server, such as ``18.1``.
        bytes: of all tables with their indices.
        tables: each table, the largest first.
        indices: the largest ones, the largest first.
        horizon: the oldest snapshots first; empty: nothing holds vacuum back.
        history_days: how many partitions the history has.
        history_from: the first day that it has a partition for; None: there is none.
        history_to: the last one: workers make them a week ahead.
        history_strays: about how many ended jobs are of days without a partition.
        freeze_max_age: the server's ``autovacuum_freeze_max_age``.
    """

    at: datetime
    version: str
    bytes: int
    tables: tuple[TableHealth, ...]
    indices: tuple[IndexHealth, ...]
    horizon: tuple[VacuumHorizon, ...]
    history_days: int
    history_from: datetime | None
    history_to: datetime | None
    history_strays: int
    freeze_max_age: int


Which: TypeAlias = Literal["queue", "task"]
"""By what figures are told apart."""

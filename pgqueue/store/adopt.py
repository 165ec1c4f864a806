"""Plans that move the waiting jobs of another queue package, in the same database, to pgqueue.

A plan runs in one transaction. It locks waiting jobs of the other queue, a batch at a time, adds the jobs that the judge
makes of them, and deletes exactly the added ones from the other queue. Jobs that the other queue's workers hold, or are
about to take, are not touched. So after any crash each job is in one of the two queues, and never in both.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pgqueue.errors import ConfigurationError, JobError
from pgqueue.store.jobs.enqueue import enqueue_many
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import NewJob, Outcome

BATCH = 1_000
BEFORE_ALL = -1 << 63
COLLISION = "another job holds its unique key"

PROCRASTINATE = {
    "procrastinate_jobs": (
        "id",
        "task_name",
        "queue_name",
        "priority",
        "scheduled_at",
        "queueing_lock",
        "lock",
        "args",
        "attempts",
        "status",
    ),
}
PGQUEUER = {
    "pgqueuer": (
        "id",
        "entrypoint",
        "priority",
        "execute_after",
        "dedupe_key",
        "payload",
        "attempts",
        "headers",
        "status",
    ),
    "pgqueuer_log": ("job_id", "status", "entrypoint", "priority"),
}


class WaitingJob(NamedTuple):
    """A job that waits in another queue: what the ``adopt_*_waiting`` statements return, in their order.

    Attributes:
        id: its id in the other queue.
        task: the task's name there.
        queue: the queue's name, if the package has queues.
        priority: higher runs sooner; of any size.
        run_at: when it is due, if that is in the future.
        unique_key: the key that no two jobs may share.
        lock: the key that no two running jobs may share.
        payload: its arguments, as they are stored.
        attempts: how often it has been tried.
        has_headers: whether it has headers.
    """

    id: int
    task: str
    queue: str | None
    priority: int
    run_at: datetime | None
    unique_key: str | None
    lock: str | None
    payload: bytes | None
    attempts: int
    has_headers: bool


class Move(NamedTuple):
    """The task and queue of copied jobs, there and here."""

    task: str
    queue: str | None
    new_task: str
    new_queue: str


class Stay(NamedTuple):
    """The task and queue of jobs that stayed, and the reason."""

    task: str
    queue: str | None
    why: str


@dataclass(slots=True)
class AdoptionTally:
    """Counts the waiting jobs by what happened to them.

    Attributes:
        copied: how many were copied, by task and queue.
        left: how many stayed, by reason.
        clamped: how many of the copied jobs had a priority out of pgqueue's range.
        tried: how many of them had been tried before, and start again at attempt 1.
        headers: how many of them had headers, which were not copied.
    """

    copied: Counter[Move] = field(default_factory=Counter)
    left: Counter[Stay] = field(default_factory=Counter)
    clamped: int = 0
    tried: int = 0
    headers: int = 0

    def add(self, waiting: WaitingJob, job: NewJob) -> None:
        """Count a copied job."""
        self.copied[Move(waiting.task, waiting.queue, job.task, job.queue)] += 1
        self.clamped += waiting.priority != job.priority
        self.tried += waiting.attempts > 0
        self.headers += waiting.has_headers

    def leave(self, waiting: WaitingJob, why: str) -> None:
        """Count a job that stays."""
        self.left[Stay(waiting.task, waiting.queue, why)] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What to adopt.

    Attributes:
        judge: makes a pgqueue job of a waiting one, or returns why it stays.
        tasks: only jobs of these tasks, by their names in the other queue; None: of all.
        queues: only jobs of these queues of the other package; None: of all.
        from_schema: the schema of the other package's tables; None: on the connection's search path.
    """

    judge: Callable[[WaitingJob], NewJob | str]
    tasks: Sequence[str] | None = None
    queues: Sequence[str] | None = None
    from_schema: str | None = None

    def filters(self) -> dict[str, object]:
        """The filters, by their names in the statements."""
        return {
            "tasks": None if self.tasks is None else list(self.tasks),
            "queues": None if self.queues is None else list(self.queues),
        }


@plan(transaction=True)
def from_procrastinate(adoption: Adoption, *, now: datetime | None = None) -> Steps[AdoptionTally]:
    """Move the waiting jobs of Procrastinate's table.

    Args:
        adoption: what to move, and how.
        now: the time by which jobs are due; by default the database's clock.

    Raises:
        ConfigurationError: the table does not exist, or is of another release.
        JobError: a copied job could not be deleted there.
    """
    yield from _look_in(adoption.from_schema, PROCRASTINATE)
    return (
        yield from _move(
            adoption,
            now,
            waiting=lambda params: Statement("adopt/procrastinate_waiting", params),
            remove=lambda params: Statement("adopt/procrastinate_remove", params),
        )
    )


@plan(transaction=True)
def from_pgqueuer(adoption: Adoption, *, now: datetime | None = None) -> Steps[AdoptionTally]:
    """Move the waiting jobs of PgQueuer's table.

    Args:
        adoption: what to move, and how; PgQueuer has no queues.
        now: as for :func:`from_procrastinate`.

    Raises:
        ConfigurationError: its tables do not exist, or are of another release.
        JobError: a copied job could not be deleted there.
    """
    yield from _look_in(adoption.from_schema, PGQUEUER)
    return (
        yield from _move(
            adoption,
            now,
            waiting=lambda params: Statement("adopt/pgqueuer_waiting", params),
            remove=lambda params: Statement("adopt/pgqueuer_remove", params),
        )
    )


def _look_in(schema: str | None, tables: Mapping[str, Sequence[str]]) -> Steps[None]:
    if schema is not None:
        yield Statement("adopt/search_path", {"from_schema": schema})
    for table, columns in tables.items():
        found = {row[0] for row in (yield Statement("adopt/columns", {"source": table}))}
        if not found:
            where = (
                "on the search path" if schema is None else f"in the schema {schema!r} or on the search path"
            )
            raise ConfigurationError(
                f"there is no table {table!r} {where} of this database; give --from-schema, or the --dsn of "
                "the database that has it, which must be pgqueue's database, too"
            )
        if missing := set(columns) - found:
            raise ConfigurationError(
                f"the table {table!r} has no column {', '.join(sorted(missing))}: pgqueue does not know this "
                "release of the package; upgrade the package and its schema first"
            )


def _move(
    adoption: Adoption,
    now: datetime | None,
    *,
    waiting: Callable[[Mapping[str, object]], Statement],
    remove: Callable[[Mapping[str, object]], Statement],
) -> Steps[AdoptionTally]:
    tally, after = AdoptionTally(), BEFORE_ALL
    while rows := (yield waiting({"after": after, "limit": BATCH, "now": now, **adoption.filters()})):
        found = [WaitingJob(*row) for row in rows]
        copied = yield from _copy(found, adoption.judge, tally, now)
        if copied:
            ((removed,),) = yield remove({"ids": copied})
            if removed != len(copied):
                raise JobError(
                    f"{len(copied) - removed} of {len(copied)} copied jobs could not be deleted from the other queue "
                    "(does a trigger or a policy keep them?), and would run twice; nothing was changed"
                )
        after = found[-1].id
    return tally


def _copy(
    found: Sequence[WaitingJob],
    judge: Callable[[WaitingJob], NewJob | str],
    tally: AdoptionTally,
    now: datetime | None,
) -> Steps[list[int]]:
    """Add the jobs that the judge makes of waiting ones; return the other queue's ids of the added jobs."""
    wanted: list[tuple[WaitingJob, NewJob]] = []
    for waiting in found:
        verdict = judge(waiting)
        if isinstance(verdict, str):
            tally.leave(waiting, verdict)
        else:
            wanted.append((waiting, verdict))
    answers = yield from enqueue_many([job for _, job in wanted], now=now)
    copied = []
    for (waiting, job), answer in zip(wanted, answers, strict=True):
        if answer.outcome is Outcome.REJECTED:
            tally.leave(waiting, COLLISION)
        else:
            tally.add(waiting, job)
            copied.append(waiting.id)
    return copied

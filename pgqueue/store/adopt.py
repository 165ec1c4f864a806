"""Plans that move the waiting jobs of another queue, in the same database, into ours.

A plan is run within one transaction. It locks jobs that wait over there, a batch at a time, adds what the judge
makes of them, and takes away from over there exactly those that were added. Jobs that their own workers hold, or
are about to, are not touched. So whatever crashes, each job is in one of the two places, and never in both.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pgqueue.errors import ConfigurationError, JobError
from pgqueue.store.enqueue import enqueue_many
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.job import NewJob, Outcome

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


class Waiting(NamedTuple):
    """A job that waits in another queue: what the ``adopt_*_waiting`` statements return, in their order.

    Attributes:
        id: its id over there.
        task: the task's name over there.
        queue: the queue's, where there are queues.
        priority: higher runs sooner; of any size.
        run_at: when it is due, if that is yet to come.
        unique_key: what no two jobs may share.
        lock: what no two jobs that run may share.
        payload: its arguments, as they are stored.
        attempts: how often it has been tried.
        has_headers: whether it carries anything besides.
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
    """From which task and queue jobs went to which."""

    task: str
    queue: str | None
    new_task: str
    new_queue: str


class Stay(NamedTuple):
    """Of which task and queue jobs stayed where they were, and why."""

    task: str
    queue: str | None
    why: str


@dataclass(slots=True)
class Tally:
    """What became of the jobs that waited.

    Attributes:
        copied: how many went from where to where.
        left: how many stayed, and why.
        clamped: how many of the copied had a priority out of our range.
        tried: how many of them had been tried before, and start afresh.
        headers: how many of them left headers behind.
    """

    copied: Counter[Move] = field(default_factory=Counter)
    left: Counter[Stay] = field(default_factory=Counter)
    clamped: int = 0
    tried: int = 0
    headers: int = 0

    def add(self, waiting: Waiting, job: NewJob) -> None:
        """Count a copied job."""
        self.copied[Move(waiting.task, waiting.queue, job.task, job.queue)] += 1
        self.clamped += waiting.priority != job.priority
        self.tried += waiting.attempts > 0
        self.headers += waiting.has_headers

    def leave(self, waiting: Waiting, why: str) -> None:
        """Count one that stays."""
        self.left[Stay(waiting.task, waiting.queue, why)] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What to adopt.

    Attributes:
        judge: makes one of our jobs of a waiting one, or says why it stays where it is.
        tasks: only of these, by their names over there; None: of all.
        queues: only of these queues over there; None: of all.
        from_schema: where their tables are; None: on the connection's search path.
    """

    judge: Callable[[Waiting], NewJob | str]
    tasks: Sequence[str] | None = None
    queues: Sequence[str] | None = None
    from_schema: str | None = None

    def filters(self) -> dict[str, object]:
        """The filters, as the statements name them."""
        return {
            "tasks": None if self.tasks is None else list(self.tasks),
            "queues": None if self.queues is None else list(self.queues),
        }


@plan(transaction=True)
def from_procrastinate(adoption: Adoption, *, now: datetime | None = None) -> Steps[Tally]:
    """Move what waits in Procrastinate's table.

    Args:
        adoption: what to move, and how.
        now: the instant at which to ask what is due; the database's own by default.

    Raises:
        ConfigurationError: the table is not there, or of another release.
        JobError: a copied job would not go from over there.
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
def from_pgqueuer(adoption: Adoption, *, now: datetime | None = None) -> Steps[Tally]:
    """Move what waits in PgQueuer's table.

    Args:
        adoption: what to move, and how; it has no queues.
        now: as for :func:`from_procrastinate`.

    Raises:
        ConfigurationError: its tables are not there, or of another release.
        JobError: a copied job would not go from over there.
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
    """Find the tables, and refuse what is not as it is known here."""
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
                "the database where it is, which must be ours, too"
            )
        if missing := set(columns) - found:
            raise ConfigurationError(
                f"the table {table!r} has no column {', '.join(sorted(missing))}: it is of a release that is "
                "not known here; upgrade that package and its schema first"
            )


def _move(
    adoption: Adoption,
    now: datetime | None,
    *,
    waiting: Callable[[Mapping[str, object]], Statement],
    remove: Callable[[Mapping[str, object]], Statement],
) -> Steps[Tally]:
    tally, after = Tally(), BEFORE_ALL
    while rows := (yield waiting({"after": after, "limit": BATCH, "now": now, **adoption.filters()})):
        found = [Waiting(*row) for row in rows]
        copied = yield from _copy(found, adoption.judge, tally, now)
        if copied:
            ((removed,),) = yield remove({"ids": copied})
            if removed != len(copied):
                raise JobError(
                    f"{len(copied) - removed} of {len(copied)} copied jobs would not go from where they were "
                    "(a trigger or a policy kept them?), and would run twice; nothing was changed"
                )
        after = found[-1].id
    return tally


def _copy(
    found: Sequence[Waiting], judge: Callable[[Waiting], NewJob | str], tally: Tally, now: datetime | None
) -> Steps[list[int]]:
    """Add what the judge makes of waiting jobs; the ids, over there, of those that were added."""
    wanted: list[tuple[Waiting, NewJob]] = []
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

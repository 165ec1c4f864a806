"""What a job is in each state, and which states may follow which.

::

    enqueue ─▶ scheduled ─▶ ready ─▶ running ─▶ succeeded
                   ▲          ▲         │
                   └──────────┴─────────┘
                retry, snooze   returned, reclaimed

A job is ``blocked`` while it waits for something else than its time: another job, a signal, or a free place of its limit. Limited
jobs wait in lanes, and a worker claims them there: they go from ``blocked`` to ``running``. A job becomes ``dead`` from each state
in which it lives: a waiting one if it expires, or if the database refuses to put it in line. It can be ``cancelled`` while it
waits, and when an attempt ends without success.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.unique import Unique
from pgqueue.values.limits.limit import WhenFull

S = TypeVar("S", bound=StrEnum)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobState(StrEnum):
    """Where a job stands."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    DEAD = "dead"

    @property
    def ended(self) -> bool:
        """Whether the job will not run again by itself."""
        return self in ENDED


ENDED = frozenset({JobState.SUCCEEDED, JobState.CANCELLED, JobState.DEAD})

BEGINNINGS = frozenset({JobState.BLOCKED, JobState.SCHEDULED, JobState.READY})
"""The states that a job may have when its enqueue is committed."""

TRANSITIONS: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
    {
        JobState.BLOCKED: frozenset(
            {JobState.SCHEDULED, JobState.READY, JobState.RUNNING, JobState.CANCELLED, JobState.DEAD}
        ),
        JobState.SCHEDULED: frozenset({JobState.BLOCKED, JobState.READY, JobState.CANCELLED, JobState.DEAD}),
        JobState.READY: frozenset(
            {JobState.BLOCKED, JobState.SCHEDULED, JobState.RUNNING, JobState.CANCELLED, JobState.DEAD}
        ),
        JobState.RUNNING: frozenset(JobState) - {JobState.RUNNING},
        JobState.SUCCEEDED: frozenset(),
        JobState.CANCELLED: frozenset(),
        JobState.DEAD: frozenset({JobState.BLOCKED, JobState.READY}),
    }
)
"""Which states may follow which; ``docs/explain/life-of-a-job.md`` draws it, and a test compares the two."""


class Outcome(StrEnum):
    """What became of an enqueue."""

    ADDED = "added"
    REJECTED = "rejected"
    REPLACED = "replaced"
    RESCHEDULED = "rescheduled"


ARGS_NOT_KEPT = "$not_kept"
"""Arguments too long for the history: the only key of the object that stands for them; its value is their size in bytes."""


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to be enqueued.

    Attributes:
        task: the task's name.
        args: the arguments as a JSON object.
        queue: the queue's name.
        priority: -100…100, higher runs sooner; None: what the queue says, or 0.
        max_attempts: after how many attempts the job is dead; None: what the queue says, or 25.
        run_at: the earliest time to run, or None.
        delay: the same, counted from the database's now, or None.
        unique_key: what no two live jobs may share, or None.
        unique: what happens when they would.
        meta: what is sent along for other programs, as a JSON object, or None.
        expires_at: no attempt starts at this instant or later; or None.
        expires_in: the same, counted from the earliest time to run, or None.
        lane: the keys of its limits, or None: it has none.
        cost: what its start takes of each rate; None: 1.
        when_full: what its enqueue does while no place of its key is free, and how many places there are by the code; None: it
            waits.
    """

    task: str
    args: bytes
    queue: str
    priority: int | None
    max_attempts: int | None
    run_at: datetime | None = None
    delay: timedelta | None = None
    unique_key: str | None = None
    unique: Unique = Unique()
    meta: bytes | None = None
    expires_at: datetime | None = None
    expires_in: timedelta | None = None
    lane: str | None = None
    cost: int | None = None
    when_full: tuple[WhenFull, int] | None = None


class JobFlags:
    """What a job's end or its start concerns, apart from the job: bits. Plain numbers, as a worker looks at them for each job."""

    TELL: Final = 1
    """A program waits for it: it is notified."""
    FLOW: Final = 2
    """The job is part of a flow: what follows is decided in the transaction that ends it."""
    MEMBER: Final = 4
    """In that flow it is a member of a group, and no other part waits for it alone."""
    ASKS: Final = 8
    """In that flow it has a condition: the worker asks, before it starts an attempt, whether the job is to run."""
    SUSPECT: Final = 16
    """A lost worker had claimed it: the worker notes, before it starts an attempt, that it does."""


class EnqueueAnswer(msgspec.Struct, frozen=True, gc=False):
    """What the database said to an enqueue.

    Attributes:
        id: the new job's id, or that of the job which holds the unique key.
        outcome: whether the job was added, and if not, what was done instead.
    """

    id: int
    outcome: Outcome = Outcome.ADDED


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A job that a worker holds: ``worker_id``, and the fields of ``sql/jobs/claim.sql`` in its order.

    ``(id, worker_id, fence)`` is the fence: every statement about this attempt names all three. ``fence``, the column
    of the same name, is a number that this worker never used before; all jobs of one claim statement share it.
    The attempt's number would not do: a returned claim gives it back. Nor would a count kept with the job: a server that
    has lost the end of its log gives out the same ids again, and the new job of an id may be claimed by the worker that
    still runs the old one.
    ``failing_seconds`` is the time from the job's first failed attempt to this claim; 0 before any.
    ``flags`` is a sum of bits of :class:`JobFlags`, or None.
    ``expires_in`` is the seconds from the claim until which an attempt has to be started, or None. ``asked_at`` is when this
    process asked for the claim, in seconds of its monotonic clock: it is before the claim, so no attempt starts too late. ``lane`` names the
    lane that it was claimed from, or None. ``latest`` is the instant of the monotonic clock after which it may not start, since the next
    start of its exact interval would be too near, or None. ``run_at_epoch`` and ``created_at_epoch`` are seconds since 1970.
    """

    id: int
    worker_id: UUID
    fence: int
    attempt: int
    max_attempts: int
    priority: int
    queue: str
    task: str
    args: str
    run_at_epoch: float
    created_at_epoch: float
    failing_seconds: float
    meta: str | None = None
    flags: int | None = None
    expires_in: float | None = None
    asked_at: float = 0.0
    lane: str | None = None
    latest: float | None = None

    @property
    def run_at(self) -> datetime:
        """From when on the job was ready, in UTC."""
        return _EPOCH + timedelta(seconds=self.run_at_epoch)

    @property
    def created_at(self) -> datetime:
        """When the job was enqueued, in UTC."""
        return _EPOCH + timedelta(seconds=self.created_at_epoch)


class Mark(NamedTuple):
    """A position in a queue's line: ``rank`` is the negated priority, so positions compare as they are served."""

    rank: int
    run_at: datetime
    id: int


HEAD = Mark(-101, datetime.min.replace(tzinfo=UTC), 0)
"""Before every job."""


class AttemptError(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an attempt failed, as it is kept with the job.

    Attributes:
        attempt: which attempt, from 1.
        type: the exception's qualified name; ``WorkerLost`` if the worker was lost.
        message: what it said, up to 2,000 characters.
        traceback: where it was raised, as Python prints it, the last 8,000 characters: at most 20 exceptions of a chain or a
            group, of a long message its two ends. When the job fails again, the last 1,000 characters are kept. None: there is none.
        at: when it was recorded, by the database's clock.
        left_out: how many errors between this one and the next are not kept: of many, the first and the last are.
        encoded: the message and the traceback as a codec encoded them; None: they are in clear.
        crashed: whether the attempt counts as one that ended with its worker.
        memory: resident memory of the worker in bytes, at its last heartbeat, or of the attempt's own process; None: not known.
        seconds: how long the attempt had run; of a lost worker, how long it had held the job. None: not known.
        worker: the worker that ran it; None: not known.
    """

    attempt: int
    type: str
    message: str
    traceback: str | None = None
    at: datetime | None = None
    left_out: int = 0
    encoded: str | None = None
    crashed: bool = False
    memory: int | None = None
    seconds: float | None = None
    worker: UUID | None = None


class Job(msgspec.Struct, frozen=True):
    """All that is recorded of a job, live or ended. Statements that list jobs select these fields, in this order.

    Attributes:
        id: the job's id.
        state: where it stands.
        queue: its queue.
        task: the name of its task.
        args: its arguments by parameter name, as plain JSON values.
        priority: from -100 to 100; a job with a higher one runs sooner.
        run_at: the earliest time to run; of a job that waits for a retry, the time of the retry.
        created_at: when it was enqueued: the start of that transaction, by the database's clock.
        started_at: when the last attempt began; of a running job, when it was claimed. None: none began.
        ended_at: when it ended; None: it has not.
        attempts: how many attempts were spent.
        max_attempts: after how many failed attempts it is dead.
        unique_key: its unique key; None: it has none.
        collisions: how many enqueues with this key were rejected, or changed the job.
        worker_id: the worker that runs it, or ran it last.
        errors: how its attempts failed; the last one of a job that succeeded may say why its result was not kept.
        reason: why a dead job is dead: ``exhausted``, ``refused``, ``undecodable``, ``asked``, ``unknown``, ``expired`` or
            ``crashed``. None: it is not dead.
        result: what the task returned, as plain JSON values.
        meta: what the enqueuer sent along; None: nothing.
    """

    id: int
    state: JobState
    queue: str
    task: str
    args: dict[str, Any]
    priority: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempts: int
    max_attempts: int
    unique_key: str | None
    collisions: int
    worker_id: UUID | None
    errors: tuple[AttemptError, ...]
    reason: str | None
    result: Any
    meta: dict[str, Any] | None = None


class QueueCount(msgspec.Struct, frozen=True):
    """How many jobs of one queue are in one state, and how many of them have a task that no live worker runs.

    Attributes:
        queue: which queue.
        state: which state.
        count: how many jobs.
        unknown: how many of them have a task that no live worker runs, as a worker that claimed such a job found.
        unknown_tasks: the names of those tasks.
        unknown_since: since when no live worker has run one of them; None: there is none.
    """

    queue: str
    state: JobState
    count: int
    unknown: int = 0
    unknown_tasks: tuple[str, ...] = ()
    unknown_since: datetime | None = None


def states_of(given: str | Collection[str] | None, kind: type[S]) -> list[S] | None:
    """A state of this kind, or several, by their names; None: any.

    Raises:
        InvalidOption: there is no such state.
    """
    if given is None:
        return None
    try:
        return [kind(one) for one in ([given] if isinstance(given, str) else given)]
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"state={given!r:.80}: the states are {', '.join(kind)}") from error

"""Operations on many jobs: what they do, which of the jobs that match they act on, and what became of those."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.bulk.filter import LIVE, WAITING, JobFilter
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.options import PRIORITIES, check_number
from pgqueue.values.payloads.storable import object_of

EXAMPLES = 10
"""Skipped jobs that a result names."""
DONE, ASKED = "done", "asked"


class BulkAction(StrEnum):
    """What is done to jobs."""

    CANCEL = "cancel"
    MOVE = "move"
    REPRIORITISE = "reprioritise"
    RETRY_DEAD = "retry_dead"
    PURGE_DEAD = "purge_dead"

    @property
    def dead(self) -> bool:
        """Whether it is done to dead jobs; if not, to live ones."""
        return self in {BulkAction.RETRY_DEAD, BulkAction.PURGE_DEAD}

    @property
    def states(self) -> tuple[JobState, ...] | None:
        """The states of live jobs on which it acts; None: dead jobs have one."""
        if self.dead:
            return None
        return LIVE if self is BulkAction.CANCEL else WAITING


class SkipReason(StrEnum):
    """Why a job was skipped."""

    LOCKED = "locked"
    KEY_HELD = "key_held"
    OUT_OF_TURN = "out_of_turn"
    REFUSED = "refused"


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action on all jobs of a filter.

    Attributes:
        action: what is done.
        filter: to which jobs.
        to: into which queue they are moved.
        priority: which priority they get.
        without_key: whether dead jobs return without their unique keys.
    """

    action: BulkAction
    filter: JobFilter
    to: str | None = None
    priority: int | None = None
    without_key: bool = False

    def checked(self) -> Self:
        """The operation, if it makes sense.

        Raises:
            InvalidOption: the priority is out of range, the jobs are in the queue already, or the action leaves jobs of
                the only given states alone.
        """
        if self.priority is not None:
            check_number("priority", self.priority, PRIORITIES)
        if self.to is not None and self.to == self.filter.queue:
            raise InvalidOption(f"to={self.to!r}: the jobs are in this queue; name another one")
        if self.states == ():
            raise InvalidOption(f"state={JobState.RUNNING.value!r}: {self.action} leaves running jobs alone")
        return self

    @classmethod
    def recorded(cls, action: str, details: str) -> Self:
        """The operation in a row of the audit."""
        fields = msgspec.json.decode(details, type=dict[str, Any])
        return msgspec.convert({**fields, "action": action}, cls)

    @property
    def details(self) -> str:
        """What the audit keeps of it besides the action, as JSON."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        del fields["action"]
        return msgspec.json.encode(fields).decode()

    @property
    def states(self) -> tuple[JobState, ...] | None:
        """The states on which it acts; None: dead jobs have one."""
        wanted, own = self.filter.state, self.action.states
        return own if wanted is None or own is None else tuple(state for state in own if state in wanted)


class TaskCount(msgspec.Struct, frozen=True):
    """How many jobs of a queue and a task are in a state.

    Attributes:
        queue: of this queue.
        task: of this task.
        state: in this state.
        count: how many.
    """

    queue: str
    task: str
    state: JobState
    count: int


class Preview(msgspec.Struct, frozen=True):
    """What an operation would do.

    Attributes:
        count: to how many jobs.
        groups: these jobs by queue, task and state, most first.
        left_alone: how many running jobs match besides, on which it does not act.
        sample: a few of the jobs.
    """

    count: int
    groups: tuple[TaskCount, ...] = ()
    left_alone: int = 0
    sample: tuple[Job, ...] = ()

    @classmethod
    def of(cls, operation: Operation, groups: list[TaskCount], sample: tuple[Job, ...]) -> Self:
        """The preview of an operation, from the jobs that match apart from their state."""
        states = operation.states
        acted = tuple(one for one in groups if states is None or one.state in states)
        leaves_running = states is not None and JobState.RUNNING not in states
        alone = [one.count for one in groups if leaves_running and one.state is JobState.RUNNING]
        return cls(sum(one.count for one in acted), acted, sum(alone), sample)


class SkippedJob(msgspec.Struct, frozen=True):
    """A job to which the operation was not done.

    Attributes:
        id: which job.
        why: why not.
        detail: more about it, for people to read.
    """

    id: int
    why: SkipReason
    detail: str | None = None


class BulkResult(msgspec.Struct, frozen=True):
    """What an operation has done, so far or in all.

    Attributes:
        operation: its id, the one in the table ``audit``; :meth:`QueueControl.resume_operation` takes it.
        action: what was done.
        done: to how many jobs.
        asked: how many running jobs' workers were asked to stop them.
        skipped: to how many jobs it was not done, by the reason.
        examples: some of these jobs.
    """

    operation: int
    action: BulkAction
    done: int = 0
    asked: int = 0
    skipped: Mapping[SkipReason, int] = {}
    examples: tuple[SkippedJob, ...] = ()

    @classmethod
    def counted(cls, operation: int, action: BulkAction, counts: Mapping[str, int]) -> Self:
        """A result from what is recorded of an operation."""
        skipped = {why: counts[why] for why in SkipReason if counts.get(why)}
        return cls(operation, action, counts.get(DONE, 0), counts.get(ASKED, 0), skipped)

    def plus(self, counts: Mapping[str, int], examples: tuple[SkippedJob, ...]) -> Self:
        """The result after another portion."""
        skipped = {
            why: count for why in SkipReason if (count := self.skipped.get(why, 0) + counts.get(why, 0))
        }
        return msgspec.structs.replace(
            self,
            done=self.done + counts.get(DONE, 0),
            asked=self.asked + counts.get(ASKED, 0),
            skipped=skipped,
            examples=(*self.examples, *examples)[:EXAMPLES],
        )


def counts_text(counts: Mapping[str, int]) -> str:
    """What became of jobs, as the audit keeps it."""
    return msgspec.json.encode({key: count for key, count in counts.items() if count}).decode()


def counts_of(text: str) -> dict[str, int]:
    """What :func:`counts_text` made; nothing of what it did not."""
    return {key: count for key, count in object_of(text).items() if isinstance(count, int)}


class AuditEntry(msgspec.Struct, frozen=True):
    """What an operator did.

    Attributes:
        id: its number; of an operation on many jobs, the operation's id.
        at: when it began.
        by: who.
        action: what: ``pause``, ``set``, ``cancel``, ….
        target: to which queue, worker or pattern; ``*`` is all.
        details: what was said besides: the reason, the filter, the other queue.
        jobs: to how many jobs.
        counts: of an operation on many jobs: what became of them.
        ended_at: when such an operation ended.
        unfinished: whether such an operation runs, or was interrupted.
    """

    id: int
    at: datetime
    by: str | None
    action: str
    target: str
    details: dict[str, object] | None
    jobs: int | None
    counts: dict[str, int] | None = None
    ended_at: datetime | None = None
    unfinished: bool = False

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        """The entry in a row of ``sql/audit/list.sql``."""
        number, at, by, action, target, details, jobs, counts, ended_at, is_operation = row
        return cls(
            number,
            at,
            by,
            action,
            target,
            None if details is None else object_of(details),
            jobs,
            None if counts is None else counts_of(counts),
            ended_at,
            is_operation and ended_at is None,
        )


@dataclass(frozen=True, slots=True)
class BlockedRetry:
    """A dead job that stays dead, since a live job has its unique key.

    Attributes:
        id: the dead job.
        twin: the live job; None: it has ended since, so another retry may succeed.
        unique_key: the key, as it is stored.
    """

    id: int
    twin: int | None
    unique_key: str


@dataclass(frozen=True, slots=True)
class Retried:
    """What a retry did. It is true if any job is ready again; its length and its items are those of ``ids``.

    Attributes:
        ids: the jobs that are ready again, in order.
        held: dead jobs whose unique key a live job has.
        not_dead: jobs that are not dead, or of which there is no record.
        out_of_turn: dead jobs of a flow that has ended, while another flow of its key has not: they stay dead.
    """

    ids: tuple[int, ...] = ()
    held: tuple[BlockedRetry, ...] = ()
    not_dead: tuple[int, ...] = ()
    out_of_turn: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    @classmethod
    def sum(cls, parts: Iterable[Self]) -> Self:
        """What several retries did."""
        columns = zip(
            *((part.ids, part.held, part.not_dead, part.out_of_turn) for part in parts), strict=True
        )
        return cls(*(tuple(one for part in column for one in part) for column in columns))

"""What is recorded of schedules and their ticks, and what became of a change: the values that callers are shown."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from pgqueue.values.schedules.schedule import Timing


class ScheduleChange(StrEnum):
    """What became of a schedule that was to be stored."""

    ADDED = "added"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    TAKEN = "taken"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """All that is recorded of a schedule.

    Attributes:
        name: what it is called.
        task: the task of its jobs.
        queue: their queue.
        args: their arguments.
        priority: their priority; None: as their queue says.
        max_attempts: after how many attempts one is dead; None: as their queue says.
        unique_key: what no two live jobs may share; None: nothing.
        meta: what is sent along with each job.
        timing: when its ticks are; None: it does not make sense, and ``error`` says why.
        rule: the same in words, such as ``*/5 * * * * Europe/London``.
        module: the module that declares it; None: it was made at run time.
        created_at: when it was added.
        next: its next tick; None: it has none, is paused or is set aside.
        last: the latest tick that fired; None: none within 30 days.
        paused_at: since when it is paused; None: it is not.
        paused_by: who paused it.
        failed_at: when it was set aside; None: it is not.
        error: why it was set aside.
    """

    name: str
    task: str
    queue: str
    args: dict[str, Any]
    priority: int | None
    max_attempts: int | None
    unique_key: str | None
    meta: dict[str, Any] | None
    timing: Timing | None
    rule: str
    module: str | None
    created_at: datetime
    next: datetime | None
    last: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    failed_at: datetime | None
    error: str | None

    @property
    def state(self) -> str:
        """``active``, ``paused``, ``set aside``, or ``ended`` where there is no further tick."""
        if self.error is not None:
            return "set aside"
        if self.paused_at is not None:
            return "paused"
        return "active" if self.next is not None else "ended"


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that was decided on.

    Attributes:
        at: the tick.
        fired_at: when it was decided on.
        kind: ``tick``, ``manual`` (fired by a caller) or ``backfill``.
        state: ``fired``; ``waiting`` for an earlier job to end; or ``skipped``, since an earlier job had not ended.
        job_id: the job; None: there is none.
        job_state: the job's state; None: there is no record of it.
    """

    at: datetime
    fired_at: datetime
    kind: str
    state: str
    job_id: int | None
    job_state: str | None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the schedules that an app declares; each is a tuple of names.

    Attributes:
        added: new ones.
        changed: those whose options or arguments differed.
        removed: those that their modules no longer declare.
        taken: not stored, since another module declares the name, or a schedule made at run time has it.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()

    @classmethod
    def of(cls, changes: Mapping[str, ScheduleChange], removed: Iterable[str]) -> Self:
        """What became of each by its name, sorted by what it is."""
        added, changed, taken = (
            tuple(name for name, change in changes.items() if change is kind)
            for kind in (ScheduleChange.ADDED, ScheduleChange.CHANGED, ScheduleChange.TAKEN)
        )
        return cls(added=added, changed=changed, removed=tuple(sorted(removed)), taken=taken)

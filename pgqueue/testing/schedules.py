"""The schedules of a queue in memory, with the rules of the real ones: :mod:`pgqueue.values.schedules.due_ticks` decides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from datetime import datetime
from typing import Protocol

import msgspec

from pgqueue.errors import UnknownSchedule
from pgqueue.store.schedules.schedules import NOT_THERE, Same, keeping_args
from pgqueue.store.schedules.ticks import FiringResult
from pgqueue.values.jobs.job import EnqueueAnswer, Job, NewJob, Outcome
from pgqueue.values.payloads.storable import SCHEDULE, SCHEDULED_FOR, object_of
from pgqueue.values.schedules.due_ticks import FIRED, SKIPPED, WAITING, look, past
from pgqueue.values.schedules.rule import MICROSECOND
from pgqueue.values.schedules.schedule import Applied, NewSchedule, Schedule, ScheduleChange, ScheduleRun


class AddJob(Protocol):
    """Adds a job at an instant."""

    def __call__(self, job: NewJob, *, now: datetime) -> EnqueueAnswer:
        """Add a job; return its id, or the id of the job that has its unique key."""


@dataclass(slots=True)
class ScheduleEntry:
    """One schedule."""

    new: NewSchedule
    created_at: datetime
    settled: datetime
    next_at: datetime | None
    paused_at: datetime | None = None
    paused_by: str | None = None


class Calendar:
    """Schedules and their ticks."""

    def __init__(self, enqueue: "AddJob", show: Callable[[int], Job | None]) -> None:
        self._enqueue = enqueue
        self._show = show
        self._entries: dict[str, ScheduleEntry] = {}
        self._ticks: dict[tuple[str, datetime], ScheduleRun] = {}

    def put(
        self, new: NewSchedule, *, replace: bool, keep_unseen: bool, same: Same | None, now: datetime
    ) -> ScheduleChange:
        """Add a schedule, or change it."""
        new.require_tick(now)
        if keep_unseen and (known := self._entries.get(new.name)):
            had, kept = known.new.job, new.job
            if kept.unique_key is None:
                kept = msgspec.structs.replace(kept, unique_key=had.unique_key, unique=had.unique)
            if kept.expires_in is None:
                kept = msgspec.structs.replace(kept, expires_in=had.expires_in)
            new = replaced(new, job=kept)
        return self._put(new, replace=replace, same=same, now=now)

    def apply(
        self, declared: Sequence[NewSchedule], modules: Sequence[str], *, same: Same | None, now: datetime
    ) -> Applied:
        """Store what code declares."""
        names = {one.name for one in declared}
        gone = [
            name for name, entry in self._entries.items() if entry.new.module in modules and name not in names
        ]
        for name in gone:
            self.remove(name)
        changes = {
            one.name: self._put(one, replace=True, same=same, now=now)
            for one in sorted(declared, key=lambda new: new.name)
        }
        return Applied.of(changes, gone)

    def listed(self, *, name: str | None, task: str | None, after: str, limit: int) -> list[Schedule]:
        """Schedules by name."""
        found = [
            self._shown(entry)
            for key, entry in sorted(self._entries.items())
            if key > after and name in (None, key) and task in (None, entry.new.job.task)
        ]
        return found[:limit]

    def dated(self, name: str, *, now: datetime) -> tuple[Schedule, datetime]:
        """A schedule, and what time it is."""
        return self._shown(self._required(name)), now

    def pause(self, name: str, by: str | None, *, now: datetime) -> bool:
        """Fire none of its ticks."""
        entry = self._required(name)
        if entry.paused_at is not None:
            return False
        entry.paused_at, entry.paused_by = now, by
        return True

    def resume(self, name: str, *, now: datetime) -> bool:
        """Fire its ticks again, from now on if its place is in the future."""
        entry = self._required(name)
        if entry.settled > now:
            entry.settled = entry.next_at = now
        was_paused = entry.paused_at is not None
        entry.paused_at = entry.paused_by = None
        return was_paused

    def remove(self, name: str) -> bool:
        """Delete it."""
        for key, run in self._ticks.items():
            if key[0] == name and run.state == WAITING:
                self._ticks[key] = msgspec.structs.replace(run, state=SKIPPED)
        return self._entries.pop(name, None) is not None

    def fire_due(self, *, limit: int, now: datetime) -> FiringResult:  # noqa: ARG002 - all at once
        """Fire what is due."""
        jobs: list[int] = []
        for name, entry in sorted(self._entries.items()):
            if entry.paused_at is None and entry.next_at is not None and entry.next_at <= now:
                waiting = sorted(
                    at for (key, at), run in self._ticks.items() if key == name and run.state == WAITING
                )
                found = look(
                    name, entry.new.timing, entry.settled, now, runs_now=self._runs_now(name), waiting=waiting
                )
                noted = [
                    self._note(entry, tick.at, tick.state, "tick", run_at=tick.run_at, now=now)
                    for tick in found.ticks
                ]
                jobs += [run.job_id for run in noted if run is not None and run.job_id is not None]
                entry.settled, entry.next_at = found.settled or entry.settled, found.next_at
        return FiringResult(jobs)

    def fire(self, name: str, *, now: datetime) -> int | None:
        """Add a job now."""
        entry = self._required(name)
        at = now
        while any(entry.new.timing.between(at, at)) or (name, at) in self._ticks:
            at += MICROSECOND
        run = self._note(entry, at, FIRED, "manual", run_at=now, now=now)
        return None if run is None else run.job_id

    def backfill(self, name: str, start: datetime, end: datetime, *, now: datetime) -> list[ScheduleRun]:
        """Fire ticks of the past."""
        entry = self._required(name)
        ticks = past(name, entry.new.timing, start, end, now)
        state = WAITING if entry.new.timing.overlap == "queue" else FIRED
        runs = [self._note(entry, at, state, "backfill", run_at=now, now=now) for at in ticks]
        if state == WAITING and any(runs):
            entry.next_at = now
        return [run for run in runs if run is not None]

    def runs(self, name: str, *, before: datetime | None, limit: int) -> list[ScheduleRun]:
        """Its ticks, the latest first."""
        found = [
            run for (key, at), run in self._ticks.items() if key == name and (before is None or at < before)
        ]
        latest = sorted(found, key=lambda run: run.at, reverse=True)[:limit]
        return [msgspec.structs.replace(run, job_state=self._state_of(run.job_id)) for run in latest]

    def _put(self, new: NewSchedule, *, replace: bool, same: Same | None, now: datetime) -> ScheduleChange:
        known = self._entries.get(new.name)
        if known is None:
            self._entries[new.name] = ScheduleEntry(new, now, now, new.timing.next(now))
            return ScheduleChange.ADDED
        if not replace or known.new.module != new.module:
            return ScheduleChange.TAKEN
        if same is not None:
            new = keeping_args(new, {new.name: known.new.job.args.decode()}, same)
        if known.new == new:
            return ScheduleChange.UNCHANGED
        if known.new.timing.rule != new.timing.rule or _bounds(known.new) != _bounds(new):
            known.settled, known.next_at = now, new.timing.next(now)
        known.new = new
        return ScheduleChange.CHANGED

    def _note(
        self, entry: ScheduleEntry, at: datetime, state: str, kind: str, *, run_at: datetime, now: datetime
    ) -> ScheduleRun | None:
        """Note a tick, and add its job; return None if it was noted before."""
        key = (entry.new.name, at)
        known = self._ticks.get(key)
        again = known is not None and (
            known.state == WAITING or (known.state == SKIPPED and kind == "backfill")
        )
        if known is not None and not (state == FIRED and again):
            return None
        job_id = None
        if state == FIRED:
            added = self._enqueue(_job(entry.new, at, max(run_at, now)), now=now)
            if added.outcome is Outcome.ADDED:
                job_id = added.id
            else:
                state = SKIPPED
        run = ScheduleRun(at=at, fired_at=now, kind=kind, state=state, job_id=job_id, job_state=None)
        self._ticks[key] = run
        return run

    def _runs_now(self, name: str) -> bool:
        states = (
            self._show(run.job_id) for (key, _), run in self._ticks.items() if key == name and run.job_id
        )
        return any(job is not None and not job.state.ended for job in states)

    def _state_of(self, job_id: int | None) -> str | None:
        job = None if job_id is None else self._show(job_id)
        return None if job is None else str(job.state)

    def _required(self, name: str) -> ScheduleEntry:
        if name not in self._entries:
            raise UnknownSchedule(NOT_THERE.format(name))
        return self._entries[name]

    def _shown(self, entry: ScheduleEntry) -> Schedule:
        job, timing = entry.new.job, entry.new.timing
        fired = [at for (key, at), run in self._ticks.items() if key == entry.new.name and run.state == FIRED]
        return Schedule(
            name=entry.new.name,
            task=job.task,
            queue=job.queue,
            args=object_of(job.args),
            priority=job.priority,
            max_attempts=job.max_attempts,
            unique_key=job.unique_key,
            meta=None if job.meta is None else object_of(job.meta),
            timing=timing,
            rule=str(timing),
            module=entry.new.module,
            created_at=entry.created_at,
            next=timing.next(entry.settled) if entry.next_at and not entry.paused_at else None,
            last=max(fired, default=None),
            paused_at=entry.paused_at,
            paused_by=entry.paused_by,
            failed_at=None,
            error=None,
        )


def _bounds(new: NewSchedule) -> tuple[datetime | None, datetime | None]:
    return new.timing.start, new.timing.end


def _job(new: NewSchedule, at: datetime, run_at: datetime) -> NewJob:
    sent = {} if new.job.meta is None else object_of(new.job.meta)
    meta = msgspec.json.encode({**sent, SCHEDULE: new.name, SCHEDULED_FOR: at.isoformat()})
    return msgspec.structs.replace(new.job, run_at=run_at, meta=meta)

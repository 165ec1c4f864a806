"""A schedule: its options, checked, and what is recorded of it and of its ticks.

When ticks are is decided in :mod:`pgqueue.values.schedules.rule`, which of them a look fires in :mod:`pgqueue.values.schedules.due_ticks`; how a
schedule is stored in :mod:`pgqueue.store.schedules.schedules`.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile
from typing import Any, Literal, Self, get_args

import msgspec

from pgqueue.errors import InvalidOption, as_duration
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.options import check_instant, check_text, one_of
from pgqueue.values.schedules.rule import (
    EPOCH,
    MICROSECOND,
    Cron,
    Every,
    Gap,
    Once,
    Repeat,
    Rule,
    Tick,
)
from pgqueue.values.schedules.zone import find_zone

Missed = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip", "queue"]
LONGEST_NAME = 200
MOST_MISSED = 1_000
LONGEST_TOLERANCE, LONGEST_JITTER = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule's ticks are, and what becomes of those that come late or while a job still runs.

    Attributes:
        cron: an expression of 5 fields, of 6 with seconds first, or an alias such as ``@daily``.
        every: the time between two ticks; seconds or a timedelta, from 1 second to 10 years.
        at: the instant of the only tick. Give one of these three.
        timezone: the time zone of ``cron``, by its IANA name.
        anchor: an instant at which ``every`` has a tick; by default ``start``, or else 1970-01-01 00:00 UTC.
        start: no tick is earlier than this instant.
        end: no tick is later than this instant.
        gap: what becomes of a time that does not exist, since clocks go forward: ``skip``, or ``shift`` to the first
            instant after the gap. None: as cron does; see :mod:`pgqueue.values.schedules.rule`.
        repeat: whether a time that exists twice, since clocks go back, is a tick ``once`` or ``twice``. None: as cron does.
        jitter: a job waits for up to this long after its tick; how long depends on the name and the tick only.
        missed: what becomes of ticks that no worker fired in time: ``skip`` them, fire the ``latest``, or fire ``all``.
        missed_limit: the most missed ticks that ``all`` fires; the latest ones.
        tolerance: a tick is missed when it is later than this. Ticks that are less late all fire.
        overlap: what becomes of a tick while an earlier job of the schedule has not ended: ``allow`` a second job, ``skip``
            the tick, or ``queue`` it until that job ends.

    Raises:
        InvalidOption: a value is out of its range, or two contradict each other.
    """

    cron: str | None = None
    every: timedelta | None = None
    at: datetime | None = None
    timezone: str = "UTC"
    anchor: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    gap: Gap | None = None
    repeat: Repeat | None = None
    jitter: timedelta = timedelta(0)
    missed: Missed = "latest"
    missed_limit: int = 100
    tolerance: timedelta = timedelta(seconds=60)
    overlap: Overlap = "allow"

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.cron, self.every, self.at)) != 1:
            options = (("cron", self.cron), ("every", self.every), ("at", self.at))
            given = ", ".join(f"{name}={value!r}" for name, value in options if value is not None)
            raise InvalidOption(f"{given or 'cron=, every=, at= are missing'}: give exactly one of the three")
        for what in ("every", "jitter", "tolerance"):
            object.__setattr__(self, what, as_duration(what, getattr(self, what)))
        for what in ("at", "anchor", "start", "end"):
            object.__setattr__(self, what, _instant(what, getattr(self, what)))
        for what, choices in (("missed", Missed), ("overlap", Overlap)):
            one_of(what, getattr(self, what), get_args(choices), listed=repr)
        self._check_lengths()
        self._check_bounds()
        _ = self.rule

    def __str__(self) -> str:
        if self.cron is not None:
            return f"{self.cron} {self.timezone}"
        return f"every {self.every}" if self.every is not None else f"once at {self.at}"

    @property
    def rule(self) -> Rule:
        """When ticks are, ``start`` and ``end`` left aside."""
        return _rule(self)

    def after(self, instant: datetime) -> Iterator[Tick]:
        """Ticks after an instant, from ``start`` to ``end``, those included that a clock change drops."""
        instant = instant.astimezone(UTC)
        if self.start is not None:
            instant = max(instant, self.start - MICROSECOND)
        return takewhile(lambda tick: self.end is None or tick.at <= self.end, self.rule.after(instant))

    def before(self, instant: datetime) -> Iterator[Tick]:
        """Ticks before an instant, the latest first."""
        instant = instant.astimezone(UTC)
        if self.end is not None:
            instant = min(instant, self.end + MICROSECOND)
        return takewhile(lambda tick: self.start is None or tick.at >= self.start, self.rule.before(instant))

    def next(self, instant: datetime) -> datetime | None:
        """The first tick after an instant; None: there is none."""
        return next((tick.at for tick in self.after(instant) if tick.runs), None)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The ticks from ``start`` to ``end``, both included."""
        start, end = start.astimezone(UTC), end.astimezone(UTC)
        ticks = takewhile(lambda tick: tick.at <= end, self.after(start - MICROSECOND))
        return (tick.at for tick in ticks if tick.runs)

    def delay(self, name: str, at: datetime) -> timedelta:
        """How long the job of a tick waits after it: from zero to ``jitter``, the same whichever worker asks."""
        share = (
            zlib.crc32(f"{name}\0{at.astimezone(UTC).isoformat()}".encode("utf-8", "replace")) / 0xFFFFFFFF
        )
        return self.jitter * share

    def _check_lengths(self) -> None:
        for what, longest in (("jitter", LONGEST_JITTER), ("tolerance", LONGEST_TOLERANCE)):
            if not timedelta(0) <= getattr(self, what) <= longest:
                raise InvalidOption(
                    f"{what}={getattr(self, what)}: use a length of time from zero to {longest.days or 1} "
                    f"{'day' if longest.days else 'hour'}"
                )
        limit = self.missed_limit
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_MISSED:
            raise InvalidOption(f"missed_limit={limit!r}: use a whole number from 1 to {MOST_MISSED:,}")

    def _check_bounds(self) -> None:
        if self.start is not None and self.end is not None and self.end < self.start:
            raise InvalidOption(f"start={self.start} is after end={self.end}: there would be no tick")
        if self.anchor is not None and self.every is None:
            raise InvalidOption(f"anchor={self.anchor}: only every=... has an anchor; leave it out")
        if self.cron is None and (self.gap is not None or self.repeat is not None):
            raise InvalidOption("gap= and repeat= are about the wall times of cron=...; leave them out")


@lru_cache(maxsize=4096)
def _rule(timing: Timing) -> Rule:
    find_zone(timing.timezone)
    if timing.cron is not None:
        return Cron(timing.cron, timing.timezone, timing.gap, timing.repeat)
    if timing.every is not None:
        return Every(timing.every, timing.anchor or timing.start or EPOCH, timing.timezone)
    assert timing.at is not None  # noqa: S101 - one of the three is given
    return Once(timing.at, timing.timezone)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule to be stored, every option decided.

    Attributes:
        name: what it is called; no two schedules share a name.
        job: the job of each tick. Its ``run_at`` and ``delay`` are not used.
        timing: when its ticks are.
        module: the module that declares it; None: it was made at run time.

    Raises:
        InvalidOption: the name is not valid.
    """

    name: str
    job: NewJob
    timing: Timing
    module: str | None = None

    def __post_init__(self) -> None:
        check_schedule_name(self.name)
        if self.job.run_at is not None or self.job.delay is not None:
            raise InvalidOption(
                f"schedule {self.name!r}: run_at= and delay= are of one job; use jitter=, start= or at="
            )
        if self.job.expires_at is not None:
            raise InvalidOption(f"schedule {self.name!r}: expires_at= is of one job; use expires_in=")
        if self.job.unique_key is not None and (
            self.job.unique.collision != "reject" or self.job.unique.period is not None
        ):
            raise InvalidOption(
                f"schedule {self.name!r}: {self.job.unique} cannot be kept with a schedule; its jobs can have a unique key "
                "with collision='reject' and no period, and overlap= says what happens while one of them runs"
            )

    def require_tick(self, now: datetime) -> None:
        """Refuse a schedule that would never fire.

        Raises:
            InvalidOption: it has no tick after this instant.
        """
        if self.timing.next(now) is None:
            raise InvalidOption(f"schedule {self.name!r} has no tick after {now}: {self.timing}")


def check_schedule_name(name: str) -> str:
    """Check a schedule's name, and return it.

    Raises:
        InvalidOption: it is empty or too long, or PostgreSQL cannot hold it.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or name != name.strip():
        raise InvalidOption(
            f"name={name!r:.80}: the name of a schedule has 1 to {LONGEST_NAME} characters and no white space at its ends"
        )
    return check_text("name", name)


def _instant(what: str, value: datetime | None) -> datetime | None:
    check_instant(what, value)
    return None if value is None else value.astimezone(UTC)


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

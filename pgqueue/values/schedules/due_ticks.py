"""Which ticks of a schedule fire: those that are due at an instant, and those of the past that a caller asks for.

Pure rules: the instant is given. What a schedule is stands in :mod:`pgqueue.values.schedules.schedule`; that a tick fires once is
decided in :mod:`pgqueue.store.schedules.ticks`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import NamedTuple

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.options import FIRST_TIME
from pgqueue.values.schedules.rule import MICROSECOND
from pgqueue.values.schedules.schedule import Overlap, Timing

FIRED, WAITING, SKIPPED = "fired", "waiting", "skipped"
"""What becomes of a tick: its job is enqueued; it waits until an earlier job ends; an earlier job had not ended."""
LONGEST_QUEUE = 100
"""Ticks of a schedule that wait for an earlier job; further ones are skipped."""
LOOK_AGAIN = timedelta(seconds=1)
"""How soon a schedule with waiting ticks is looked at again."""
AT_ONCE = 100
"""Ticks of one schedule that one look fires at most; the next look fires the rest."""
MOST_BACKFILLED = 10_000


class TickDecision(NamedTuple):
    """What one look at a schedule decides.

    Attributes:
        fire: the ticks to fire, in order.
        settled: up to this instant, included, all ticks are decided.
        next: the next tick; earlier than now, if this look left some for the next one; None: there is none.
    """

    fire: tuple[datetime, ...]
    settled: datetime
    next: datetime | None


def due(timing: Timing, settled: datetime, now: datetime, *, at_once: int = AT_ONCE) -> TickDecision:
    """Which ticks are due at an instant.

    Args:
        timing: the schedule's.
        settled: up to this instant, included, all ticks are decided. It may be later than ``now``, where the
            database's clock was set back: then no tick is due.
        now: the instant.
        at_once: at most how many ticks to fire.
    """
    # Drivers return instants in the session's zone, and Python compares and adds within one zone by what its clocks show.
    settled, now = settled.astimezone(UTC), now.astimezone(UTC)
    if now <= settled:
        return TickDecision((), settled, timing.next(settled))
    in_time = max(settled, now - timing.tolerance - MICROSECOND)
    fire, later = _missed_ticks(timing, settled, in_time), None
    for tick in timing.after(in_time):
        if tick.at > now and tick.runs:
            later = tick.at
            break
        if tick.runs:
            fire.append(tick.at)
        if len(fire) > at_once + 1:  # one more than fire: "latest" may drop the first
            break
    if timing.missed == "latest" and len(fire) > 1 and fire[0] <= in_time:
        del fire[0]  # a later tick fires
    if len(fire) > at_once:
        return TickDecision(tuple(fire[:at_once]), fire[at_once - 1], fire[at_once])
    return TickDecision(tuple(fire), now, later)


def past(name: str, timing: Timing, start: datetime, end: datetime, now: datetime) -> list[datetime]:
    """The ticks of a stretch of the past, which are to be fired.

    Args:
        name: of the schedule.
        timing: the schedule's.
        start: the first instant.
        end: the last instant, included.
        now: the instant.

    Raises:
        InvalidOption: the stretch is not in the past, or has too many ticks.
    """
    start, end, now = max(start, FIRST_TIME).astimezone(UTC), end.astimezone(UTC), now.astimezone(UTC)
    if not start <= end <= now:
        raise InvalidOption(f"backfill from {start} to {end}: use a stretch that ends by now, which is {now}")
    ticks = [*islice(timing.between(start, end), MOST_BACKFILLED + 1)]
    if len(ticks) > MOST_BACKFILLED:
        raise InvalidOption(
            f"backfill from {start} to {end}: schedule {name!r} has more than {MOST_BACKFILLED:,} ticks there; "
            "take shorter stretches, one after the other"
        )
    return ticks


class DecidedTick(NamedTuple):
    """A tick that was decided on.

    Attributes:
        name: of which schedule.
        at: the tick.
        run_at: the earliest time of its job.
        state: ``fired``, ``waiting`` or ``skipped``.
    """

    name: str
    at: datetime
    run_at: datetime
    state: str


class ScheduleLook(NamedTuple):
    """What one look at a schedule decides.

    Attributes:
        name: of the schedule.
        ticks: those to note; some of them may have been noted as waiting before.
        settled: up to this instant, included, all ticks are decided.
        next_at: when to look next; None: there is no further tick.
        error: why the schedule makes no sense; None: it does.
    """

    name: str
    ticks: tuple[DecidedTick, ...] = ()
    settled: datetime | None = None
    next_at: datetime | None = None
    error: str | None = None


def look(
    name: str,
    timing: Timing,
    settled: datetime,
    now: datetime,
    *,
    runs_now: bool,
    waiting: Sequence[datetime] = (),
) -> ScheduleLook:
    """Which ticks fire at an instant, wait or are skipped.

    Args:
        name: of the schedule.
        timing: the schedule's.
        settled: as for :func:`due`.
        now: the instant.
        runs_now: whether a job of the schedule has not ended.
        waiting: the ticks that wait, in order.
    """
    now = now.astimezone(UTC)
    found = due(timing, settled, now)
    ticks = _in_turn(timing.overlap, found.fire, runs_now=runs_now, waiting=waiting)
    noted = tuple(DecidedTick(name, at, at + timing.delay(name, at), state) for at, state in ticks)
    left = any(state == WAITING for _, state in ticks) or (runs_now and bool(waiting))
    soon = now + LOOK_AGAIN
    return ScheduleLook(name, noted, found.settled, min(found.next or soon, soon) if left else found.next)


def _in_turn(
    overlap: Overlap, fire: Sequence[datetime], *, runs_now: bool, waiting: Sequence[datetime]
) -> list[tuple[datetime, str]]:
    if overlap == "allow":
        return [(at, FIRED) for at in fire]
    if overlap == "skip":
        return [(at, SKIPPED if runs_now or number else FIRED) for number, at in enumerate(fire)]
    room = LONGEST_QUEUE - len(waiting)
    known = {*waiting}
    new = [at for at in fire if at not in known]  # a backfill may have had ticks wait that are due only now
    queued = [(at, WAITING if number < room else SKIPPED) for number, at in enumerate(new)]
    if runs_now or not (waiting or queued):
        return queued
    line = [*((at, WAITING) for at in waiting), *queued]
    return [(line[0][0], FIRED), *line[1:]]


def _missed_ticks(timing: Timing, settled: datetime, until: datetime) -> list[datetime]:
    """The missed ticks to fire, in order, of those later than ``settled`` and not later than ``until``."""
    if timing.missed == "skip" or until <= settled:
        return []
    latest = takewhile(lambda tick: tick.at > settled, timing.before(until + MICROSECOND))
    count = 1 if timing.missed == "latest" else timing.missed_limit
    return [*islice((tick.at for tick in latest if tick.runs), count)][::-1]

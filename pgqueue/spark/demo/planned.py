"""Plans a whole made-up history: its days, and the workers that run their jobs."""

import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from pgqueue.spark.demo.days import (
    CROWD_HOUR,
    CROWD_MINUTES,
    CROWD_WAIT,
    DEPLOY_HOUR,
    HOUR,
    LAST_HOUR,
    LONGEST_RUN,
    OVERLAP,
    Cell,
    Events,
    MadeUpDay,
    MadeUpWorker,
    Shift,
    Wish,
    events_of,
    instant,
    planned_day,
    rows_of_days,
)

SLOTS = 16
"""The most slots of one worker."""


@dataclass(frozen=True, slots=True)
class PlannedHistory:
    """A whole history, planned."""

    wish: Wish
    events: Events
    days: Sequence[MadeUpDay]
    workers: Sequence[MadeUpWorker]


def story(wish: Wish) -> PlannedHistory:
    """Plan a history."""
    events = events_of(wish)
    sizes = dict(zip(wish.dates(), rows_of_days(wish), strict=True))
    plain = [planned_day(wish, events, day, rows) for day, rows in sizes.items()]
    crews = list(_crews(wish, events, plain))
    return PlannedHistory(
        wish,
        events,
        [_with_workers(events, day, crews) for day in plain],
        [worker for crew in crews for worker in crew],
    )


def _crews(wish: Wish, events: Events, days: Iterable[MadeUpDay]) -> Iterator[list[MadeUpWorker]]:
    """The workers before the first deploy, and after each: enough for the busiest hour."""
    bounds = [instant(wish.first, 0), *(release.at for release in events.releases)]
    ends = [*bounds[1:], instant(wish.until + timedelta(days=1), 0)]
    peaks = _peaks(events, days)
    for number, (begin, end) in enumerate(zip(bounds, ends, strict=True)):
        count, slots = crew_for(peaks.get(number, 0.0))
        yield [
            MadeUpWorker(
                id=uuid.uuid5(uuid.NAMESPACE_URL, f"pgqueue:generated:{wish.seed}:{begin}:{worker}"),
                started_at=begin,
                ended_at=end + (OVERLAP if number < len(events.releases) else timedelta()),
                concurrency=slots,
                host=f"app-{1 + worker}",
            )
            for worker in range(count)
        ]


def crew_for(busy: float) -> tuple[int, int]:
    """The number of workers, and of slots in each, for an hour with this many seconds of runs.

    Jobs come to workers at random, so each worker needs more slots than its mean load: square-root staffing (Halfin and
    Whitt, 1981), with two standard deviations.

    Args:
        busy: seconds of runs in the hour.
    """
    load = busy / 3600
    count = max(2, math.ceil(load / (SLOTS / 2)))
    each = load / count
    return count, max(2, math.ceil(each + 2 * math.sqrt(each) + 1))


def _peaks(events: Events, days: Iterable[MadeUpDay]) -> Mapping[int, float]:
    """The seconds of runs in the busiest hour, by the number of deploys before it."""
    busy: dict[tuple[int, datetime], float] = {}
    for day in days:
        for cell in day.cells:
            hour = instant(day.day, cell.hour)
            place = (events.release_at(hour), hour)
            busy[place] = busy.get(place, 0.0) + cell.busy
    peaks: dict[int, float] = {}
    for (release, _), seconds in busy.items():
        peaks[release] = max(peaks.get(release, 0.0), seconds)
    return peaks


def _with_workers(events: Events, day: MadeUpDay, crews: Sequence[Sequence[MadeUpWorker]]) -> MadeUpDay:
    """The day with its shifts: the crew of its first hour, and that of a release on it; and with the run time of a crowd."""
    first = events.release_at(instant(day.day, 0))
    last = events.release_at(instant(day.day, LAST_HOUR))
    shifts = [
        Shift(DEPLOY_HOUR * HOUR if number > first else 0, _slots_of(crews, number))
        for number in range(first, last + 1)
    ]
    cells = day.cells
    if crowds := [cell for cell in cells if cell.crowd]:
        slow = _crowd_run(cells, crowds, len(shifts[-1].workers))
        cells = [msgspec.structs.replace(cell, crowd_run=max(cell.run, slow / cell.mean)) for cell in cells]
    return MadeUpDay(day.day, day.first_id, cells, shifts)


def _slots_of(crews: Sequence[Sequence[MadeUpWorker]], number: int) -> list[int]:
    """For each slot of a crew the place of its worker in the list of all, in turn."""
    before, crew = sum(map(len, crews[:number])), crews[number]
    return [before + place for _ in range(crew[0].concurrency) for place in range(len(crew))]


def _crowd_run(cells: Sequence[Cell], crowds: Sequence[Cell], slots: int) -> float:
    """How long a job of the crowd runs on average, so that others wait for :data:`CROWD_WAIT` when all have come, in seconds."""
    free = slots - sum(cell.busy for cell in cells if cell.hour == CROWD_HOUR) / 3600
    seconds = free * CROWD_MINUTES * 60 + slots * CROWD_WAIT
    return min(seconds / sum(cell.crowd for cell in crowds), LONGEST_RUN / 2)

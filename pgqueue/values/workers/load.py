"""How many slots a worker has: the bounds, the load that it measures, and the rule. Pure rules; nothing is measured here.

A worker has a fixed number of slots, or a minimum and a maximum. Between them it looks once a second:

- it grows by a quarter while every slot is busy, more jobs are ready, and the process can do more;
- it shrinks by an eighth while coroutines wait long for the event loop, or memory is short;
- it shrinks by an eighth, too, while fewer than half of its slots are used.

The rule does not swing. Growth stops well below the limits from which a worker shrinks, so one step seldom leads from the
one to the other. After the loop was late or memory was short the worker does not grow for a minute.
"""

import re

import msgspec

from pgqueue.errors import InvalidOption

MOST_SLOTS = 10_000
"""Slots of one worker, at most."""
LATE = 0.1
"""Seconds. While coroutines wait longer than this for the event loop, fewer slots are better; above half of it no more."""
SHORT_OF_MEMORY = 0.9
"""Share of the memory in use: fewer slots are better."""
ENOUGH_MEMORY = 0.75
"""Share of the memory in use, above which no slots are added."""
CPU_IS_FULL = 0.85
"""Share of the CPU time, above which more slots would only share it."""
GROW_AGAIN_AFTER = 60.0
"""Seconds without growth after memory was short or the loop was late."""

_BOUNDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


class Bounds(msgspec.Struct, frozen=True):
    """Between which numbers of slots a worker chooses; both are the same: it does not choose.

    Attributes:
        minimum: at least how many.
        maximum: at most how many.
    """

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum}" if self.fixed else f"{self.minimum}-{self.maximum}"

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to choose."""
        return self.minimum == self.maximum

    def nearest(self, size: int) -> int:
        """The number within the bounds that is nearest to this one."""
        return max(self.minimum, min(size, self.maximum))


class WorkerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker measured in the last second.

    Attributes:
        busy: the most slots that were taken at one look of the last ten.
        more: whether more jobs are ready: claims wait, or the last claim found as many jobs as it asked for.
        latency: seconds that the event loop took to answer, on average.
        memory: the share in use of the memory that the process may have, from 0 to 1; None: not known.
        cpu: the share in use of the CPU time that the process can have, from 0 to 1.
        since_strained: seconds since the loop was late or memory was short.
    """

    busy: int = 0
    more: bool = False
    latency: float = 0.0
    memory: float | None = None
    cpu: float = 0.0
    since_strained: float = GROW_AGAIN_AFTER

    @property
    def strained(self) -> bool:
        """Whether fewer slots are better: the loop is late, or memory is short."""
        return self.latency > LATE or (self.memory or 0.0) > SHORT_OF_MEMORY

    @property
    def can_do_more(self) -> bool:
        """Whether the process can run more attempts at a time."""
        return (
            self.latency <= LATE / 2
            and (self.memory or 0.0) <= ENOUGH_MEMORY
            and self.cpu <= CPU_IS_FULL
            and self.since_strained >= GROW_AGAIN_AFTER
        )


def next_size(now: WorkerLoad, size: int, bounds: Bounds) -> int:
    """How many slots to have for the next second.

    Args:
        now: what was measured.
        size: how many slots there are.
        bounds: between which numbers to choose.
    """
    size = bounds.nearest(size)
    if now.strained:
        return bounds.nearest(size - _eighth(size))
    if now.busy >= size and now.more:
        return bounds.nearest(size + max(1, size // 4)) if now.can_do_more else size
    if now.busy < size / 2 and not now.more:
        return bounds.nearest(max(size - _eighth(size), now.busy))
    return size


def checked_bounds(value: object) -> Bounds:
    """The bounds that an option ``concurrency`` says: a number, or a minimum and a maximum.

    Raises:
        InvalidOption: it says none.
    """
    match value:
        case bool():
            pass
        case Bounds(minimum, maximum) if 1 <= minimum <= maximum <= MOST_SLOTS:
            return value
        case int() if 1 <= value <= MOST_SLOTS:
            return Bounds(value, value)
        case (int(minimum), int(maximum)) if 1 <= minimum <= maximum <= MOST_SLOTS and bool not in map(
            type, value
        ):
            return Bounds(minimum, maximum)
    raise InvalidOption(
        f"concurrency={value!r:.80}: use a number of slots from 1 to {MOST_SLOTS:,}, or a minimum and a maximum, "
        "like (5, 50)"
    )


def read_bounds(text: str) -> Bounds:
    """Bounds as they are written on a command line: ``20`` or ``5-50``.

    Raises:
        InvalidOption: they are written in another way, or out of range.
    """
    match = _BOUNDS.fullmatch(text.strip())
    if match is not None:
        minimum = int(match[1])
        maximum = minimum if match[2] is None else int(match[2])
        if 1 <= minimum <= maximum <= MOST_SLOTS:
            return Bounds(minimum, maximum)
    raise InvalidOption(
        f"concurrency={text:.80}: use a number of slots from 1 to {MOST_SLOTS:,} such as 20, or a minimum and a "
        "maximum such as 5-50"
    )


def _eighth(size: int) -> int:
    return max(1, size // 8)

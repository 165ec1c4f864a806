"""How far to trust a replay: what a replay of the settings that the jobs had says of the recorded waits, and what follows from it."""

import msgspec

from pgqueue.spark.whatif.course import WaitTimes

FIGURES = ("p50", "p95", "p99")
NEAR = 0.25
"""A figure is predicted if the replay of the same settings is at most this far from the recorded one."""
UNKNOWN_START = 0.25
"""Seconds that a start may take, where no job found a free slot."""
NOTICEABLE = 0.1
"""The share of the slots' time that may pass between two jobs: other workers, and a busier machine, change it."""
TOO_SHORT = "too short to predict"
TOO_SHORT_TODAY = "not predicted: the recorded waits are too short to check the replay with"
BETWEEN = "not predicted: much time passed between the end of a job and the start of the next one, and other workers change that"
WAITED_LONGER = "not predicted: jobs waited longer than the replay explains"
WAITED_LESS = "not predicted: jobs waited less than the replay explains"


class ReplayCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A replay of the settings that the recorded jobs had.

    Attributes:
        workers: the most workers at once.
        slots: the most slots at once.
        replayed: the waits in this replay.
        off: by figure, by which share of the recorded figure it differs; None: the recorded one is 0.
        start: how long jobs waited that found a free slot: the wake-up, the claim, and the recording of the end; None: too few did.
        gap: from the end of a job to the start of the next one on its slot, while jobs waited, in seconds.
        recorded_in: the same on a place of a limit, while jobs of the key waited.
        between: the share of the time of slots, or of places, that passed so.
    """

    workers: int
    slots: int
    replayed: WaitTimes
    off: dict[str, float | None]
    start: WaitTimes | None
    gap: float
    recorded_in: float
    between: float


def off_by(was: WaitTimes, replayed: WaitTimes) -> dict[str, float | None]:
    """By which share of the recorded figure each replayed one differs; None: the recorded one is 0, and the other is not."""
    found: dict[str, float | None] = {}
    for figure in FIGURES:
        recorded, other = getattr(was, figure), getattr(replayed, figure)
        found[figure] = abs(other - recorded) / recorded if recorded else None if other else 0.0
    return found


def doubts(
    was: WaitTimes, replayed: WaitTimes, would_be: WaitTimes, start: WaitTimes | None, between: float
) -> dict[str, str]:
    """By figure, why it is not predicted; a figure that is missing is predicted.

    Args:
        was: as recorded.
        replayed: the same settings replayed.
        would_be: other settings replayed.
        start: how long a start takes; None: that is not known.
        between: the share of the time that passed between jobs.
    """
    found = {}
    for figure, off in off_by(was, replayed).items():
        recorded, answer = getattr(was, figure), getattr(would_be, figure)
        least = (UNKNOWN_START if start is None else getattr(start, figure)) / NEAR
        if answer < least:
            found[figure] = TOO_SHORT
        elif off is None or off > NEAR:
            longer = recorded > getattr(replayed, figure)
            found[figure] = TOO_SHORT_TODAY if recorded < least else WAITED_LONGER if longer else WAITED_LESS
        elif between > NOTICEABLE:
            found[figure] = BETWEEN
    return found

"""What a history is judged by, apart from the promises; and what each rule is."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from pgqueue.values.history.events import Violation
from pgqueue.values.history.index import History


class Rules(msgspec.Struct, frozen=True):
    """What a history is judged by, apart from the promises.

    Attributes:
        slack: seconds by which events may be written late; what overlaps for less is no violation.
        looked: whether the log ends with a last look at all tables, in one snapshot: only then a job without a record is lost.
        drained: whether all jobs had the time to end: then a job that is live at the end is a violation, too.
        recovery: within how many seconds after a worker has left its jobs have to be reclaimed: a lease, a sweep, and how long the
            database was away; None: not judged.
    """

    slack: float = 0.05
    looked: bool = True
    drained: bool = False
    recovery: float | None = None


DEFAULT_RULES = Rules()

Rule: TypeAlias = Callable[[History, Rules], Iterator[Violation]]
"""Finds the violations of one promise."""

"""What the database's refusal of a statement says: whether one row may be its cause, and its words for a log."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import psycopg

K = TypeVar("K")
V = TypeVar("V")

OF_A_ROW = ("22", "23", "54", "P0", "XX")
"""Classes of errors that one row can cause: its data, a constraint, its length, a trigger, a part of a file that cannot be read."""

PASSED_FOR = 60.0
"""Seconds for which a job is passed over that the database refuses to have claimed, or a task that the worker does not know."""


def of_a_row(refusal: psycopg.Error) -> bool:
    """Whether what one row holds may be the cause."""
    return (refusal.sqlstate or "").startswith(OF_A_ROW)


def in_one_line(error: BaseException) -> str:
    """The first line of an error: a driver adds the statement and where it failed."""
    return str(error).strip().partition("\n")[0]


class PassedOver(Generic[K, V]):
    """What a worker passes over for :data:`PASSED_FOR`: the database refused to have it claimed, or the worker does not run it.

    The map is replaced and never changed: any thread may ask.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[K, tuple[V, float]] = {}

    def add(self, key: K, value: V) -> None:
        """Pass this over from now on."""
        self._until = {**self._until, key: (value, self._clock() + PASSED_FOR)}

    def remove(self, key: K) -> None:
        """Pass this over no more."""
        self._until = {other: held for other, held in self._until.items() if other != key}

    def now(self) -> Mapping[K, V]:
        """What is passed over now."""
        if self._until:
            now = self._clock()
            self._until = {key: held for key, held in self._until.items() if held[1] > now}
        return {key: value for key, (value, _) in self._until.items()}

"""When a worker's process is to be replaced: after a number of attempts, with much memory, or when no slot comes free again.

The worker then ends as one that was asked to restart: it finishes what runs, and its supervisor starts a new process.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.options import check_number
from pgqueue.values.workers.crashes import memory_of
from pgqueue.values.workers.health import not_returned_text
from pgqueue.values.workers.lease import spoken_bytes
from pgqueue.worker.claims import Claims
from pgqueue.worker.memory import resident_memory
from pgqueue.worker.own_end import MOST_JOBS
from pgqueue.worker.slots import Slots

REPLACE_EVERY = 1.0
"""Seconds between two looks."""
STUCK_FOR = 60.0
"""Seconds for which every slot has been kept by a function that does not return."""
SPREAD = 0.1
"""Processes that start together are replaced one after the other: each after up to this share less attempts."""


@dataclass(frozen=True, slots=True)
class Recycling:
    """When a process is to be replaced.

    Attributes:
        jobs: after this many attempts, or up to a tenth less; None: there is no bound.
        memory: when its resident memory in bytes is over this; None: there is no bound.
    """

    jobs: int | None = None
    memory: int | None = None


def recycling_of(*, max_jobs_per_process: int | None, max_memory: int | str | None) -> Recycling:
    """What a worker was told of its replacement, checked.

    Raises:
        InvalidOption: a value is out of its range, or the system does not say how much memory a process has.
    """
    if max_jobs_per_process is not None:
        check_number("max_jobs_per_process", max_jobs_per_process, MOST_JOBS)
    if max_memory is not None and resident_memory() is None:
        raise InvalidOption("max_memory: this system does not say how much memory a process has")
    memory = None if max_memory is None else memory_of("max_memory", max_memory)
    return Recycling(max_jobs_per_process, memory)


class RecycleWatch:
    """Has a worker replaced when it is time."""

    def __init__(
        self, wanted: Recycling, *, claims: Claims, slots: Slots, supervised: Callable[[], bool]
    ) -> None:
        """``supervised`` tells whether a supervisor starts this worker again."""
        self._wanted = wanted
        self._claims = claims
        self._slots = slots
        self._supervised = supervised
        self._stuck_since: float | None = None
        less = random.uniform(0, SPREAD)  # noqa: S311 - spreads load
        self._jobs = None if wanted.jobs is None else max(1, round(wanted.jobs * (1 - less)))
        if self._jobs is not None:
            claims.most = min(claims.most, self._jobs)

    async def run_once(self) -> None:
        """Have the worker replaced, if it is time."""
        if self._slots.end is None and (why := self._why()) is not None:
            self._slots.replace(why)

    def _why(self) -> str | None:
        if self._jobs is not None and self._claims.ended + len(self._claims.running) >= self._jobs:
            return f"it has run {self._jobs:,} attempts"
        most = (
            self._wanted.memory if self._claims.ended else None
        )  # else a bound that is too low would leave no job run
        if most is not None and (memory := resident_memory()) is not None and memory > most:
            return f"its memory of {spoken_bytes(memory)} is over {spoken_bytes(most)}"
        if not self._claims.stuck:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = time.monotonic()
        elif self._supervised() and time.monotonic() - self._stuck_since >= STUCK_FOR:
            return not_returned_text(self._claims.not_returned)
        return None

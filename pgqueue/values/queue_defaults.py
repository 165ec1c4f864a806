"""What jobs have where neither their enqueue nor their task says it: the settings of their queue, or the package's.

:class:`Known` is what a process remembers of them, for a second, so that an enqueue does not look them up.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pgqueue.errors import QueueDrained
from pgqueue.values.job import NewJob
from pgqueue.values.queue_settings import MAX_ATTEMPTS, PRIORITY

FRESH_FOR: Final = 1.0
"""Seconds for which an enqueuer uses what it knows of a queue."""


class JobDefaults(NamedTuple):
    """What holds for the jobs of one queue."""

    priority: int = PRIORITY
    max_attempts: int = MAX_ATTEMPTS
    drained: bool = False


PACKAGE: Final = JobDefaults()


class QueueDefaults:
    """What holds for the jobs of each queue, as one statement has read it."""

    def __init__(self, of_queue: Mapping[str, JobDefaults], *, refuses: bool = True) -> None:
        """Take what was read.

        Args:
            of_queue: for those queues that have settings.
            refuses: whether jobs of drained queues are refused.
        """
        self._of_queue = of_queue
        self._refuses = refuses

    def __bool__(self) -> bool:
        """Whether any queue says anything."""
        return bool(self._of_queue)

    def of(self, job: NewJob) -> tuple[int, int]:
        """The priority and the number of attempts of a job.

        Raises:
            QueueDrained: its queue takes no new jobs.
        """
        default = self._of_queue.get(job.queue, PACKAGE)
        if default.drained and self._refuses:
            raise drained(job.queue)
        return (
            default.priority if job.priority is None else job.priority,
            default.max_attempts if job.max_attempts is None else job.max_attempts,
        )


class Known:
    """What a process remembers of queues that are not drained."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing.

        Args:
            clock: seconds, from any beginning.
        """
        self._clock = clock
        self._queues: dict[str, tuple[float, int | None, int | None]] = {}

    def of(self, job: NewJob) -> tuple[int, int] | None:
        """The priority and the number of attempts of a job; None: they have to be asked for."""
        held = self._queues.get(job.queue)
        if held is None or held[0] < self._clock():
            return None
        priority = held[1] if job.priority is None else job.priority
        max_attempts = held[2] if job.max_attempts is None else job.max_attempts
        return None if priority is None or max_attempts is None else (priority, max_attempts)

    def learn(self, job: NewJob, priority: int, max_attempts: int) -> None:
        """Remember what an enqueued job got: where the job itself said it, that tells nothing of the queue."""
        if len(self._queues) > MOST_REMEMBERED:
            self._queues.clear()
        self._queues[job.queue] = (
            self._clock() + FRESH_FOR,
            priority if job.priority is None else None,
            max_attempts if job.max_attempts is None else None,
        )

    def forget(self) -> None:
        """This process changes a queue: what it remembers no longer holds."""
        self._queues.clear()


MOST_REMEMBERED: Final = 10_000


def drained(queue: str) -> QueueDrained:
    """The error that refuses a job."""
    return QueueDrained(
        f"queue {queue!r} is drained: it takes no new jobs; `pgqueue queues show` says who drained it and why, "
        "`pgqueue queues resume` ends it"
    )

"""What jobs have where neither their enqueue nor their task says it: the settings of their queue, or the package's.

:class:`QueueCache` is what a process remembers of them, for a second, so that an enqueue does not look them up.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pgqueue.errors import BacklogFull, QueueClosed
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.queues.settings import MAX_ATTEMPTS, PRIORITY

FRESH_FOR: Final = 1.0
"""Seconds for which an enqueuer uses what it knows of a queue."""
LOOKS_TAKE: Final = 20
"""To look whether a queue is full takes at most one part in this many of the time."""
WARN_EVERY: Final = 60.0
"""Seconds between two warnings of this process that a queue is full."""


class JobDefaults(NamedTuple):
    """What holds for the jobs of one queue."""

    priority: int = PRIORITY
    max_attempts: int = MAX_ATTEMPTS
    closed: bool = False
    bounded: bool = False


PACKAGE: Final = JobDefaults()


class QueueDefaults:
    """What holds for the jobs of each queue, as one statement has read it."""

    def __init__(
        self, of_queue: Mapping[str, JobDefaults], *, refuses: bool = True, may_number: bool = True
    ) -> None:
        """``refuses``: jobs of closed queues are refused. ``may_number``: the role may choose the ids of jobs."""
        self._of_queue = of_queue
        self._refuses = refuses
        self.may_number = may_number

    @property
    def bounded(self) -> frozenset[str]:
        """The queues that have a bound, and refuse or warn; none where no enqueue is refused."""
        return frozenset(name for name, one in self._of_queue.items() if one.bounded and self._refuses)

    def __bool__(self) -> bool:
        return bool(self._of_queue)

    def of(self, job: NewJob) -> tuple[int, int]:
        """The priority and the number of attempts of a job.

        Raises:
            QueueClosed: its queue takes no new jobs.
        """
        default = self._of_queue.get(job.queue, PACKAGE)
        if default.closed and self._refuses:
            raise closed_error(job.queue)
        return (
            default.priority if job.priority is None else job.priority,
            default.max_attempts if job.max_attempts is None else job.max_attempts,
        )


class QueueCache:
    """What a process remembers of queues that are not closed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._queues: dict[str, tuple[float, int | None, int | None]] = {}
        self._rooms: dict[str, tuple[float, int | None]] = {}
        self._warned: dict[str, float] = {}

    def of(self, job: NewJob) -> tuple[int, int] | None:
        """The priority and the number of attempts of a job; None: they have to be asked for."""
        held = self._queues.get(job.queue)
        if held is None or held[0] < self.clock():
            return None
        priority = held[1] if job.priority is None else job.priority
        max_attempts = held[2] if job.max_attempts is None else job.max_attempts
        return None if priority is None or max_attempts is None else (priority, max_attempts)

    def learn(self, job: NewJob, priority: int, max_attempts: int) -> None:
        """Remember what an enqueued job got: where the job itself said it, that tells nothing of the queue."""
        if len(self._queues) > MOST_REMEMBERED:
            self._queues.clear()
        self._queues[job.queue] = (
            self.clock() + FRESH_FOR,
            priority if job.priority is None else None,
            max_attempts if job.max_attempts is None else None,
        )

    def forget(self) -> None:
        """This process changes a queue: what it remembers no longer holds."""
        self._queues.clear()
        self._rooms.clear()

    def has_room(self, queue: str) -> bool:
        """Whether it is known that a queue with a bound takes a job now."""
        held = self._rooms.get(queue)
        return held is not None and held[1] is None and held[0] >= self.clock()

    def refuse(self, queue: str) -> None:
        """Refuse a job of a queue that is known to refuse it now.

        Raises:
            BacklogFull: it is.
        """
        held = self._rooms.get(queue)
        if held is not None and held[1] is not None and held[0] >= self.clock():
            raise full(queue, held[1], 1)

    def note_room(self, queue: str, refuses: int | None, *, took: float) -> None:
        """Remember whether a queue with a bound takes a job: for a second, longer if it took long to find out.

        Args:
            queue: which.
            refuses: the bound because of which it takes none; None: it takes one.
            took: for how many seconds the database looked.
        """
        if len(self._rooms) > MOST_REMEMBERED:
            self._rooms.clear()
        self._rooms[queue] = self.clock() + max(FRESH_FOR, took * LOOKS_TAKE), refuses
        if refuses is not None:
            self._queues.pop(queue, None)

    def warns(self, queue: str) -> bool:
        """Whether to say now that a queue is full: once a minute."""
        if self._warned.get(queue, -WARN_EVERY) + WARN_EVERY > self.clock():
            return False
        self._warned[queue] = self.clock()
        return True


MOST_REMEMBERED: Final = 10_000


def closed_error(queue: str) -> QueueClosed:
    """The error that refuses a job."""
    return QueueClosed(
        f"queue {queue!r} is closed: it takes no new jobs; `pgqueue queues show` says who closed it and why, "
        "`pgqueue queues resume` ends it"
    )


def full(queue: str, backlog: int, count: int) -> BacklogFull:
    """The error that refuses jobs for a queue that has no room for them.

    Args:
        queue: which.
        backlog: its bound.
        count: how many jobs.
    """
    more = "" if count == 1 else f", and {count:,} more were to be added"
    return BacklogFull(
        f"queue {queue!r} has no room: its bound is {backlog:,} ready jobs{more}; enqueue again when workers have caught up, "
        "start more of them, or raise the bound: `pgqueue queues set --backlog`",
        queue=queue,
        backlog=backlog,
    )

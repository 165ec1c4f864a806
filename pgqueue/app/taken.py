"""A job that a take holds: what it is, and how the user's code settles it.

How a verdict is recorded is decided in :mod:`pgqueue.app.take`.
"""

from typing import Any

from pgqueue.app.take_base import TakeBase
from pgqueue.errors import Duration, as_delay
from pgqueue.store.records import object_of
from pgqueue.values.job import Claim


class TakenJob:
    """A job held by a take.

    Attributes:
        id: the job's id.
        task: the name it was enqueued under.
        queue: the queue it was taken from.
        args: its arguments by parameter name, as plain JSON values.
        attempt: which attempt this is, from 1.
        meta: what the enqueuer sent along with the job; empty: nothing.
        lost: whether the lease was lost, so that the job may run elsewhere.
        cancelled: whether a caller asked to cancel the job.
    """

    __slots__ = ("_claim", "_take", "args")

    def __init__(self, held: Claim, args: dict[str, Any], take: TakeBase) -> None:
        """Made by a take."""
        self._claim = held
        self._take = take
        self.args = args

    def __repr__(self) -> str:
        """Like ``<TakenJob 42 shop.send_receipt attempt 1>``."""
        return f"<TakenJob {self.id} {self.task} attempt {self.attempt}{' lost' if self.lost else ''}>"

    @property
    def id(self) -> int:
        """The job's id."""
        return self._claim.id

    @property
    def task(self) -> str:
        """The name it was enqueued under."""
        return self._claim.task

    @property
    def queue(self) -> str:
        """The queue it was taken from."""
        return self._claim.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._claim.attempt

    @property
    def meta(self) -> dict[str, Any]:
        """What the enqueuer sent along with the job; empty: nothing."""
        return {} if self._claim.meta is None else object_of(self._claim.meta)

    @property
    def lost(self) -> bool:
        """Whether the lease was lost, so that the job may run elsewhere; known at the heartbeat after it."""
        return self._take.lost

    @property
    def cancelled(self) -> bool:
        """Whether a caller asked to cancel the job; known within a second."""
        return self.id in self._take.cancelled

    def complete(self) -> None:
        """Record success now, ahead of the others.

        Raises:
            Superseded: the lease was lost; the job is another worker's.
            JobError: it is settled already.
        """
        self._take.settle([self._take.success(self._claim)])

    async def acomplete(self) -> None:
        """As :meth:`complete`, awaited."""
        await self._take.asettle([self._take.success(self._claim)])

    def fail(self, error: BaseException | str, *, delay: Duration | None = None) -> None:
        """Record failure now: the job runs again after ``delay``, or is dead if that was the last attempt.

        Args:
            error: an exception, or a message.
            delay: seconds, or a timedelta; 0: at once. None: as the task's retry policy decides on the error,
                the default policy where this queue does not know the task.

        Raises:
            InvalidOption: the delay is out of its range; nothing is recorded.
            Superseded: the lease was lost; the job is another worker's.
            JobError: it is settled already.
        """
        self._take.settle([self._take.failure(self._claim, error, as_delay("delay", delay))])

    async def afail(self, error: BaseException | str, *, delay: Duration | None = None) -> None:
        """As :meth:`fail`, awaited."""
        await self._take.asettle([self._take.failure(self._claim, error, as_delay("delay", delay))])

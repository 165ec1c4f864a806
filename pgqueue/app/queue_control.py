"""The queues as operators see them: ``queue.control``. To pause and resume are methods of the queue itself.

What settings mean and which hold is decided in :mod:`pgqueue.values.queue_settings`, what is stored in
:mod:`pgqueue.store.queues`, how the jobs of a queue are moved and purged in :mod:`pgqueue.store.queue_jobs`.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypedDict, Unpack

from pgqueue.app.operator import me
from pgqueue.errors import Duration, InvalidOption
from pgqueue.store import queue_jobs, queues
from pgqueue.store.database import Database
from pgqueue.store.plan import Plan
from pgqueue.store.queue_jobs import Contents
from pgqueue.store.sweep import Sweep, aagain_after_deadlock, again_after_deadlock, arun_sweep, run_sweep
from pgqueue.values.options import check_name
from pgqueue.values.queue_settings import Existing, KnownQueue, QueueSettings


class Settings(TypedDict, total=False):
    """Settings of a queue.

    Attributes:
        priority: of jobs whose enqueue and task name none.
        max_attempts: of jobs whose enqueue and task name none.
        timeout: how long an attempt may take whose task names no timeout; seconds, or a timedelta.
        keep_history: False: jobs that succeed are not kept.
        keep_dead: for how long its dead jobs are kept; seconds, or a timedelta.
    """

    priority: int
    max_attempts: int
    timeout: Duration
    keep_history: bool
    keep_dead: Duration


class Controlled(Protocol):
    """A queue."""

    @property
    def database(self) -> Database:
        """Where its jobs are."""

    def require_queue(self, queue: str) -> None:
        """Refuse a name that was not declared, where names are declared."""


class QueueControl:
    """Steers queues. Each method has an awaited twin with an ``a`` before its name."""

    def __init__(self, queue: Controlled) -> None:
        """Steer the queues of this app."""
        self._queue = queue

    def known(self) -> list[KnownQueue]:
        """The queues that were declared, paused, drained or given settings, in the order of names."""
        return self._queue.database.run(queues.known())

    async def aknown(self) -> list[KnownQueue]:
        """As :meth:`known`, awaited."""
        return await self._queue.database.arun(queues.known())

    def declare(
        self,
        queue: str,
        *,
        existing: Existing = "keep",
        by: str | None = None,
        **settings: Unpack[Settings],
    ) -> QueueSettings:
        """Give a queue its settings (:class:`Settings`), all of them: those that are left out have no value.

        Args:
            queue: its name.
            existing: what is done if it has other settings: ``keep`` leaves them, ``replace`` stores these, ``fail`` raises
                an error and changes nothing.
            by: who; by default the user and the host of this process.

        Returns:
            What holds now.

        Raises:
            InvalidOption: a value is out of its range.
            UnknownQueue: it is not one of the declared names.
            QueueExists: it has other settings, and ``existing`` is ``fail``.
        """
        return self._queue.database.run(self._declaring(queue, existing, by, settings))

    async def adeclare(
        self,
        queue: str,
        *,
        existing: Existing = "keep",
        by: str | None = None,
        **settings: Unpack[Settings],
    ) -> QueueSettings:
        """As :meth:`declare`, awaited."""
        return await self._queue.database.arun(self._declaring(queue, existing, by, settings))

    def set(
        self,
        queue: str,
        *,
        unset: Collection[str] = (),
        by: str | None = None,
        **settings: Unpack[Settings],
    ) -> QueueSettings:
        """Change some settings (:class:`Settings`) of a queue; the others stay.

        Args:
            queue: its name.
            unset: the names of settings to take away.
            by: as for :meth:`declare`.

        Returns:
            What holds now.

        Raises:
            InvalidOption: a value is out of its range, or a setting is given and taken away.
            UnknownQueue: it is not one of the declared names.
        """
        return self._queue.database.run(self._setting(queue, unset, by, settings))

    async def aset(
        self,
        queue: str,
        *,
        unset: Collection[str] = (),
        by: str | None = None,
        **settings: Unpack[Settings],
    ) -> QueueSettings:
        """As :meth:`set`, awaited."""
        return await self._queue.database.arun(self._setting(queue, unset, by, settings))

    def drain(self, queue: str, *, why: str | None = None, by: str | None = None) -> bool:
        """Refuse enqueues to queues, with ``QueueDrained``, until they are resumed; their jobs run, so they become empty.

        Args:
            queue: a name, or a pattern such as ``mail-*``: then the queues that there are now.
            why: why, for people to read.
            by: who; by default the user and the host of this process.

        Returns:
            False: it was drained, or no queue matches.
        """
        self._queue.database.known.forget()
        return bool(self._queue.database.run(queues.drain(queue, why=why, by=by or me())))

    async def adrain(self, queue: str, *, why: str | None = None, by: str | None = None) -> bool:
        """As :meth:`drain`, awaited."""
        self._queue.database.known.forget()
        return bool(await self._queue.database.arun(queues.drain(queue, why=why, by=by or me())))

    def contents(self, queue: str) -> Contents:
        """How many jobs of a queue wait, run and are dead: what :meth:`move` and :meth:`purge` would act on."""
        return self._queue.database.run(queue_jobs.contents(queue))

    async def acontents(self, queue: str) -> Contents:
        """As :meth:`contents`, awaited."""
        return await self._queue.database.arun(queue_jobs.contents(queue))

    def move(self, queue: str, to: str, *, by: str | None = None) -> int:
        """Put the waiting jobs of a queue into another one, a portion in each transaction; running jobs are left alone.

        Args:
            queue: from which.
            to: into which.
            by: who; by default the user and the host of this process.

        Returns:
            How many were moved.

        Raises:
            InvalidOption: ``to`` is not a valid name, or is the same queue.
            UnknownQueue: ``to`` is not one of the declared names.
        """
        return run_sweep(self._moving(queue, to, by), again_after_deadlock(self._queue.database.run))

    async def amove(self, queue: str, to: str, *, by: str | None = None) -> int:
        """As :meth:`move`, awaited."""
        return await arun_sweep(self._moving(queue, to, by), aagain_after_deadlock(self._queue.database.arun))

    def purge(self, queue: str, *, by: str | None = None) -> int:
        """Cancel the waiting jobs of a queue, a portion in each transaction; running and dead jobs are left alone.

        Args:
            queue: of which.
            by: who; by default the user and the host of this process.

        Returns:
            How many were cancelled.
        """
        return run_sweep(
            queue_jobs.purging(queue, by=by or me()), again_after_deadlock(self._queue.database.run)
        )

    async def apurge(self, queue: str, *, by: str | None = None) -> int:
        """As :meth:`purge`, awaited."""
        return await arun_sweep(
            queue_jobs.purging(queue, by=by or me()), aagain_after_deadlock(self._queue.database.arun)
        )

    def _moving(self, queue: str, to: str, by: str | None) -> Sweep[int]:
        self._queue.require_queue(check_name("to", to))
        if queue == to:
            raise InvalidOption(f"to={to!r}: the jobs are in this queue; name another one")
        return queue_jobs.moving(queue, to, by=by or me())

    def _declaring(
        self, queue: str, existing: Existing, by: str | None, given: Mapping[str, Any]
    ) -> Plan[QueueSettings]:
        self._queue.require_queue(check_name("queue", queue))
        self._queue.database.known.forget()
        return queues.declare(queue, QueueSettings.checked(given), existing=existing, by=by or me())

    def _setting(
        self, queue: str, unset: Collection[str], by: str | None, given: Mapping[str, Any]
    ) -> Plan[QueueSettings]:
        self._queue.require_queue(check_name("queue", queue))
        settings = QueueSettings.checked(given)
        QueueSettings.checked(dict.fromkeys(unset))  # refuses unknown names
        if both := sorted(name for name in unset if given.get(name) is not None):
            raise InvalidOption(f"unset={both}: these settings are given, too; give or unset each")
        self._queue.database.known.forget()
        return queues.change(queue, settings, unset=[*unset], by=by or me())

"""What operators change: ``queue.control``. What they look at is ``queue.insight``.

What settings mean and which hold is decided in :mod:`pgqueue.values.queues.settings`, what is stored in
:mod:`pgqueue.store.queues.queues`, what is done to many jobs in :mod:`pgqueue.app.bulk`.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Unpack

from pgqueue.app import workers
from pgqueue.app.bulk import (
    DeadSelection,
    LiveSelection,
    OnProgress,
    ago_on,
    checked_filter,
    go_on,
)
from pgqueue.app.keeping import retention_plan, series_plan
from pgqueue.app.limits import LimitControl
from pgqueue.app.operator import operator_name
from pgqueue.app.registry import Registry
from pgqueue.app.workers import WITHIN
from pgqueue.errors import Duration, InvalidOption
from pgqueue.store import audit
from pgqueue.store.bulk import bulk
from pgqueue.store.jobs import control
from pgqueue.store.jobs.sweep import aagain_after_deadlock, again_after_deadlock
from pgqueue.store.limits import limit_control
from pgqueue.store.plan import Plan
from pgqueue.store.queues import queues
from pgqueue.values.bulk.filter import DeadCriteria, LiveCriteria
from pgqueue.values.bulk.operation import BulkResult
from pgqueue.values.jobs.options import check_instant, check_one_queue
from pgqueue.values.limits.limit import Rate
from pgqueue.values.queues.settings import Existing, QueueSettingOptions, QueueSettings
from pgqueue.values.retention import Retention
from pgqueue.values.workers.worker import Stack


class QueueControl:
    """What an operator changes. The audit, ``queue.insight.audit()``, tells who did what. Each method has an async version with an ``a``.

    Attributes:
        limits: changes the limits of tasks and queues.
    """

    def __init__(self, queue: Registry) -> None:
        self._queue = queue
        self.limits = LimitControl(queue)

    def declare(
        self,
        queue: str,
        *,
        existing: Existing = "keep",
        interval: Duration | None = None,
        by: str | None = None,
        **settings: Unpack[QueueSettingOptions],
    ) -> QueueSettings:
        """Give a queue its settings (:class:`QueueSettingOptions`), all of them: those that are left out have no value.

        Args:
            queue: its name.
            existing: what is done if it has other settings, or another interval: ``keep`` leaves them, ``replace`` stores
                these, ``fail`` raises an error and changes nothing.
            interval: the exact time between the starts of two of its jobs, over all workers; seconds, or a timedelta. It is
                the limit ``queue:NAME``, which :attr:`limits` changes. None: nothing is said of it.
            by: who; by default the user and the host of this process.

        Returns:
            What holds now.

        Raises:
            InvalidOption: a value is out of its range.
            UnknownQueue: it is not one of the declared names.
            QueueExists: it has other settings, and ``existing`` is ``fail``.
            LimitExists: it has another interval, and ``existing`` is ``fail``.
        """
        return self._queue.database.run(self._declaring(queue, existing, interval, by, settings))

    async def adeclare(
        self,
        queue: str,
        *,
        existing: Existing = "keep",
        interval: Duration | None = None,
        by: str | None = None,
        **settings: Unpack[QueueSettingOptions],
    ) -> QueueSettings:
        """As :meth:`declare`, awaited."""
        return await self._queue.database.arun(self._declaring(queue, existing, interval, by, settings))

    def set(
        self,
        queue: str,
        *,
        unset: Collection[str] = (),
        by: str | None = None,
        why: str | None = None,
        **settings: Unpack[QueueSettingOptions],
    ) -> QueueSettings:
        """Change some settings (:class:`QueueSettingOptions`) of a queue; the others stay.

        Args:
            queue: its name.
            unset: the names of settings to take away.
            by: as for :meth:`declare`.
            why: why, for people to read.

        Returns:
            What holds now.

        Raises:
            InvalidOption: a value is out of its range, or a setting is given and taken away.
            UnknownQueue: it is not one of the declared names.
        """
        return self._queue.database.run(self._setting(queue, unset, settings, by=by, why=why))

    async def aset(
        self,
        queue: str,
        *,
        unset: Collection[str] = (),
        by: str | None = None,
        why: str | None = None,
        **settings: Unpack[QueueSettingOptions],
    ) -> QueueSettings:
        """As :meth:`set`, awaited."""
        return await self._queue.database.arun(self._setting(queue, unset, settings, by=by, why=why))

    def pause(self, queue: str, *, why: str | None = None, by: str | None = None) -> bool:
        """Stop queues from being claimed from, by every worker, until they are resumed; what runs goes on.

        Args:
            queue: a name, or a pattern such as ``mail-*``: then the queues that there are now, not later ones.
            why: why, for people to read.
            by: who; by default the user and the host of this process.

        Returns:
            False: it was paused, or no queue matches.
        """
        return bool(self._queue.database.run(queues.pause(queue, why=why, by=operator_name(by))))

    async def apause(self, queue: str, *, why: str | None = None, by: str | None = None) -> bool:
        """As :meth:`pause`, awaited."""
        return bool(await self._queue.database.arun(queues.pause(queue, why=why, by=operator_name(by))))

    def resume(self, queue: str, *, by: str | None = None) -> bool:
        """Let queues be claimed from again, and take jobs again where they were closed.

        Args:
            queue: a name, or a pattern.
            by: who; by default the user and the host of this process.

        Returns:
            False: none was paused or closed.
        """
        return bool(self._queue.database.run(queues.resume(queue, by=operator_name(by))))

    async def aresume(self, queue: str, *, by: str | None = None) -> bool:
        """As :meth:`resume`, awaited."""
        return bool(await self._queue.database.arun(queues.resume(queue, by=operator_name(by))))

    def close(self, queue: str, *, why: str | None = None, by: str | None = None) -> bool:
        """Refuse enqueues to queues, with ``QueueClosed``, until they are resumed; their jobs run, so they become empty.

        Args:
            queue: a name, or a pattern such as ``mail-*``: then the queues that there are now.
            why: why, for people to read.
            by: who; by default the user and the host of this process.

        Returns:
            False: it was closed, or no queue matches.
        """
        self._queue.database.known.forget()
        return bool(self._queue.database.run(queues.close(queue, why=why, by=operator_name(by))))

    async def aclose(self, queue: str, *, why: str | None = None, by: str | None = None) -> bool:
        """As :meth:`close`, awaited."""
        self._queue.database.known.forget()
        return bool(await self._queue.database.arun(queues.close(queue, why=why, by=operator_name(by))))

    def jobs(self, **criteria: Unpack[LiveCriteria]) -> LiveSelection:
        """Live jobs that match every criterion given, to cancel, move or reprioritise them.

        Raises:
            InvalidOption: there is no criterion, one is out of its range, or two contradict each other.
        """
        return LiveSelection(self._queue, checked_filter(self._queue, criteria, dead=False))

    def dead(self, **criteria: Unpack[DeadCriteria]) -> DeadSelection:
        """Dead jobs that match every criterion given, to retry or to delete them.

        Raises:
            InvalidOption: there is no criterion, one is out of its range, or two contradict each other.
        """
        return DeadSelection(self._queue, checked_filter(self._queue, criteria, dead=True))

    def run_now(self, job_id: int, *, by: str | None = None) -> bool:
        """Make a scheduled job ready before its time, also one that waits for its next attempt. ``queue.retry`` is for dead jobs.

        Args:
            job_id: which.
            by: who; by default the user and the host of this process.

        Returns:
            False: no scheduled job has this id.
        """
        return again_after_deadlock(self._queue.database.run)(_running_now(job_id, by))

    async def arun_now(self, job_id: int, *, by: str | None = None) -> bool:
        """As :meth:`run_now`, awaited."""
        return await aagain_after_deadlock(self._queue.database.arun)(_running_now(job_id, by))

    def reschedule(self, job_id: int, at: datetime, *, by: str | None = None) -> bool:
        """Give a scheduled or ready job another time.

        Args:
            job_id: which.
            at: from when on it may run; an instant that has passed makes it ready.
            by: who; by default the user and the host of this process.

        Returns:
            False: no scheduled or ready job has this id.

        Raises:
            InvalidOption: the instant has no time zone.
        """
        return again_after_deadlock(self._queue.database.run)(_rescheduling(job_id, at, by))

    async def areschedule(self, job_id: int, at: datetime, *, by: str | None = None) -> bool:
        """As :meth:`reschedule`, awaited."""
        return await aagain_after_deadlock(self._queue.database.arun)(_rescheduling(job_id, at, by))

    def stack(self, job_id: int, *, timeout: Duration = WITHIN, by: str | None = None) -> Stack:
        """Ask the worker that runs a job where it is in its code, and wait for the answer.

        Args:
            job_id: of which job.
            timeout: how long to wait; seconds, or a timedelta. Without an answer in time, the stack says so.
            by: who asks; by default the user and the host of this process.

        Raises:
            JobNotFound: there is no record of the job.
            InvalidOption: it does not run, or its worker cannot be asked: a take.
        """
        return workers.stack(self._queue, job_id, timeout, by)

    async def astack(self, job_id: int, *, timeout: Duration = WITHIN, by: str | None = None) -> Stack:  # noqa: ASYNC109 - as the blocking one
        """As :meth:`stack`, awaited."""
        return await workers.astack(self._queue, job_id, timeout, by)

    def resume_operation(
        self, operation: int, *, by: str | None = None, progress: OnProgress | None = None
    ) -> BulkResult:
        """Continue an operation on many jobs that was interrupted.

        Args:
            operation: its id, as in the result or in ``queue.insight.audit()``.
            by: who continues it; by default the user and the host of this process.
            progress: is called after each portion, with the result so far.

        Raises:
            InvalidOption: there is no such operation, or it has ended.
        """
        database = self._queue.database
        return go_on(database, database.run(bulk.take_up(operation, by=operator_name(by))), progress)

    async def aresume_operation(
        self, operation: int, *, by: str | None = None, progress: OnProgress | None = None
    ) -> BulkResult:
        """As :meth:`resume_operation`, awaited."""
        database = self._queue.database
        return await ago_on(
            database, await database.arun(bulk.take_up(operation, by=operator_name(by))), progress
        )

    def keep(
        self,
        *,
        history: Duration | None = None,
        dead: Duration | None = None,
        history_args: int | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> Retention:
        """Say for how long ended and dead jobs are kept, of queues that have no length of their own.

        A program that gives other values, ``PgQueue(history=...)``, stores these when its next worker starts.

        Args:
            history: for ended jobs, a day or more; None: as before.
            dead: for dead jobs, a day or more; 100,000 days: for ever. None: as before.
            history_args: the longest arguments that are kept of a succeeded job, in bytes as stored. None: as before.
            by: who; by default the user and the host of this process.
            why: why, for people to read.

        Returns:
            What holds now.

        Raises:
            InvalidOption: no value is given, or one is out of its range.
        """
        return self._queue.database.run(retention_plan(history, dead, history_args, by, why))

    async def akeep(
        self,
        *,
        history: Duration | None = None,
        dead: Duration | None = None,
        history_args: int | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> Retention:
        """As :meth:`keep`, awaited."""
        return await self._queue.database.arun(retention_plan(history, dead, history_args, by, why))

    def keep_series(
        self, *, minutes: Duration | None = None, hours: Duration | None = None, by: str | None = None
    ) -> tuple[timedelta, timedelta]:
        """Say for how long the figures over time are kept, of minutes and of hours; at first 48 hours and 400 days.

        Args:
            minutes: 3 hours or longer; None: as before.
            hours: None: as before.
            by: who; by default the user and the host of this process.

        Returns:
            What holds now.

        Raises:
            InvalidOption: neither is given, or one is out of its range.
        """
        return self._queue.database.run(series_plan(minutes, hours, by))

    async def akeep_series(
        self, *, minutes: Duration | None = None, hours: Duration | None = None, by: str | None = None
    ) -> tuple[timedelta, timedelta]:
        """As :meth:`keep_series`, awaited."""
        return await self._queue.database.arun(series_plan(minutes, hours, by))

    def _declaring(
        self,
        queue: str,
        existing: Existing,
        interval: Duration | None,
        by: str | None,
        given: Mapping[str, Any],
    ) -> Plan[QueueSettings]:
        self._queue.require_queue(check_one_queue("queue", queue))
        settings, name = QueueSettings.checked(given), operator_name(by)
        numbers = None if interval is None else Rate(every=interval).numbers
        self._queue.database.known.forget()
        if numbers is None:
            return queues.declare(queue, settings, existing=existing, by=name)
        return limit_control.declare_interval(
            queue, settings, numbers, self._queue.limits, existing=existing, by=name
        )

    def _setting(
        self, queue: str, unset: Collection[str], given: Mapping[str, Any], *, by: str | None, why: str | None
    ) -> Plan[QueueSettings]:
        self._queue.require_queue(check_one_queue("queue", queue))
        settings = QueueSettings.checked(given)
        QueueSettings.checked(dict.fromkeys(unset))  # refuses unknown names
        if both := sorted(name for name in unset if given.get(name) is not None):
            raise InvalidOption(f"unset={both}: these settings are given, too; give or unset each")
        self._queue.database.known.forget()
        return queues.change(queue, settings, unset=[*unset], by=operator_name(by), why=why)


def _running_now(job_id: int, by: str | None) -> Plan[bool]:
    return audit.audited(control.run_now(job_id), "run now", f"job {job_id}", by=operator_name(by), jobs=int)


def _rescheduling(job_id: int, at: datetime, by: str | None) -> Plan[bool]:
    check_instant("at", at)
    return audit.audited(
        control.reschedule(job_id, at), "reschedule", f"job {job_id}", by=operator_name(by), jobs=int, at=at
    )

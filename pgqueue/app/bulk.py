"""Operations on many jobs: ``queue.control.jobs(...)`` and ``queue.control.dead(...)`` say which, their methods what.

Which jobs match is decided in :mod:`pgqueue.values.bulk.filter`, how an operation is done, interrupted and continued in
:mod:`pgqueue.store.bulk.bulk`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from pgqueue.app.operator import operator_name
from pgqueue.app.registry import Registry
from pgqueue.errors import InvalidOption
from pgqueue.store.bulk import bulk
from pgqueue.store.bulk.bulk import StoredOperation
from pgqueue.store.bulk.bulk_jobs import PortionResult
from pgqueue.store.connections.database import Database
from pgqueue.store.drive import adrive, drive
from pgqueue.store.jobs.sweep import aagain_after_deadlock, again_after_deadlock
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.operation import BulkAction, BulkResult, Operation, Preview
from pgqueue.values.jobs.options import check_one_queue
from pgqueue.values.payloads.codec import Codec, decode_job

OnProgress: TypeAlias = Callable[[BulkResult], object]
"""Is called after each portion, with the result so far."""


class Selection:
    """Jobs that match a filter. Each method has an async version with an ``a`` before its name.

    An operation is done in portions of up to 1,000 jobs, each in a transaction of its own, unless the caller has a
    transaction open that it joins. It acts on jobs that there were when it began. If it is interrupted, call it again, or
    ``queue.control.resume_operation``.
    """

    def __init__(self, queue: Registry, wanted: JobFilter) -> None:
        self._queue = queue
        self.filter = wanted

    def _preview(self, action: BulkAction, **details: Any) -> Preview:  # noqa: ANN401 - the fields of an operation
        plan = bulk.preview(self._operation(action, **details))
        return _readable_preview(self._queue.codec, self._queue.database.run(plan))

    async def _apreview(self, action: BulkAction, **details: Any) -> Preview:  # noqa: ANN401 - the fields of an operation
        plan = bulk.preview(self._operation(action, **details))
        return _readable_preview(self._queue.codec, await self._queue.database.arun(plan))

    def _do(
        self,
        action: BulkAction,
        by: str | None,
        progress: OnProgress | None,
        **details: Any,  # noqa: ANN401 - those of the action
    ) -> BulkResult:
        operation = self._operation(action, **details)
        begun = self._queue.database.run(bulk.begin(operation, by=operator_name(by)))
        return go_on(self._queue.database, begun, progress)

    async def _ado(
        self,
        action: BulkAction,
        by: str | None,
        progress: OnProgress | None,
        **details: Any,  # noqa: ANN401 - those of the action
    ) -> BulkResult:
        operation = self._operation(action, **details)
        begun = await self._queue.database.arun(bulk.begin(operation, by=operator_name(by)))
        return await ago_on(self._queue.database, begun, progress)

    def _operation(self, action: BulkAction, **details: Any) -> Operation:  # noqa: ANN401 - those of the action
        if details.get("to") is not None:
            self._queue.require_queue(check_one_queue("to", details["to"]))
        return Operation(action=action, filter=self.filter, **details).checked()


class LiveSelection(Selection):
    """Live jobs that match a filter."""

    def preview(
        self,
        action: BulkAction | str = BulkAction.CANCEL,
        *,
        to: str | None = None,
        priority: int | None = None,
    ) -> Preview:
        """What an operation would do; it changes nothing.

        Args:
            action: ``cancel``, ``move`` or ``reprioritise``.
            to: into which queue jobs are to be moved.
            priority: which priority they are to get.
        """
        return self._preview(_live(action), to=to, priority=priority)

    async def apreview(
        self,
        action: BulkAction | str = BulkAction.CANCEL,
        *,
        to: str | None = None,
        priority: int | None = None,
    ) -> Preview:
        """As :meth:`preview`, awaited."""
        return await self._apreview(_live(action), to=to, priority=priority)

    def cancel(self, *, by: str | None = None, progress: OnProgress | None = None) -> BulkResult:
        """End the jobs that wait, and their flows with them; ask the workers of those that run to stop them.

        Args:
            by: who; by default the user and the host of this process.
            progress: is called after each portion, with the result so far.
        """
        return self._do(BulkAction.CANCEL, by, progress)

    async def acancel(self, *, by: str | None = None, progress: OnProgress | None = None) -> BulkResult:
        """As :meth:`cancel`, awaited."""
        return await self._ado(BulkAction.CANCEL, by, progress)

    def move(self, to: str, *, by: str | None = None, progress: OnProgress | None = None) -> BulkResult:
        """Put the jobs that wait into another queue; those that run are left alone.

        Args:
            to: into which.
            by: as for :meth:`cancel`.
            progress: as for :meth:`cancel`.

        Raises:
            InvalidOption: ``to`` is not a valid name, or the queue of the filter.
            UnknownQueue: ``to`` is not one of the declared names.
        """
        return self._do(BulkAction.MOVE, by, progress, to=to)

    async def amove(
        self, to: str, *, by: str | None = None, progress: OnProgress | None = None
    ) -> BulkResult:
        """As :meth:`move`, awaited."""
        return await self._ado(BulkAction.MOVE, by, progress, to=to)

    def reprioritise(
        self, priority: int, *, by: str | None = None, progress: OnProgress | None = None
    ) -> BulkResult:
        """Give the jobs that wait another priority; those that run are left alone.

        Args:
            priority: -100…100, higher runs sooner.
            by: as for :meth:`cancel`.
            progress: as for :meth:`cancel`.

        Raises:
            InvalidOption: the priority is out of range.
        """
        return self._do(BulkAction.REPRIORITISE, by, progress, priority=priority)

    async def areprioritise(
        self, priority: int, *, by: str | None = None, progress: OnProgress | None = None
    ) -> BulkResult:
        """As :meth:`reprioritise`, awaited."""
        return await self._ado(BulkAction.REPRIORITISE, by, progress, priority=priority)


class DeadSelection(Selection):
    """Dead jobs that match a filter."""

    def preview(self) -> Preview:
        """Which jobs a retry or a purge would act on; it changes nothing."""
        return self._preview(BulkAction.RETRY_DEAD)

    async def apreview(self) -> Preview:
        """As :meth:`preview`, awaited."""
        return await self._apreview(BulkAction.RETRY_DEAD)

    def retry(
        self, *, without_key: bool = False, by: str | None = None, progress: OnProgress | None = None
    ) -> BulkResult:
        """Make the jobs ready, with all their attempts; a job whose unique key a live job has is skipped.

        Args:
            without_key: return them without their unique keys.
            by: who; by default the user and the host of this process.
            progress: is called after each portion, with the result so far.
        """
        return self._do(BulkAction.RETRY_DEAD, by, progress, without_key=without_key)

    async def aretry(
        self, *, without_key: bool = False, by: str | None = None, progress: OnProgress | None = None
    ) -> BulkResult:
        """As :meth:`retry`, awaited."""
        return await self._ado(BulkAction.RETRY_DEAD, by, progress, without_key=without_key)

    def purge(self, *, by: str | None = None, progress: OnProgress | None = None) -> BulkResult:
        """Delete the jobs for ever, with their arguments and errors.

        Args:
            by: as for :meth:`retry`.
            progress: as for :meth:`retry`.
        """
        return self._do(BulkAction.PURGE_DEAD, by, progress)

    async def apurge(self, *, by: str | None = None, progress: OnProgress | None = None) -> BulkResult:
        """As :meth:`purge`, awaited."""
        return await self._ado(BulkAction.PURGE_DEAD, by, progress)


def checked_filter(queue: Registry, given: Mapping[str, Any], *, dead: bool) -> JobFilter:
    """The filter of some criteria.

    Raises:
        InvalidOption: they make no sense, or the queue's codec encodes what they look into.
    """
    wrong = "state" if dead else "died_before"
    if wrong in given:
        raise InvalidOption(
            f"{wrong}: {'dead jobs have one state' if dead else 'these jobs are alive'}; leave it out"
        )
    wanted = JobFilter.checked(given)
    if queue.codec is not None:
        for name in ("args", "message"):
            if name in given:
                raise InvalidOption(
                    f"{name}: the queue's codec encodes it, so the database cannot look into it; use other criteria, such as meta"
                )
    return wanted


def go_on(database: Database, begun: StoredOperation, progress: OnProgress | None) -> BulkResult:
    """Do an operation from where it stands to its end."""
    return drive(
        bulk.run_operation(begun, tell=_progress_callback(progress)), again_after_deadlock(database.run)
    )


async def ago_on(database: Database, begun: StoredOperation, progress: OnProgress | None) -> BulkResult:
    """As :func:`go_on`, awaited."""
    return await adrive(
        bulk.run_operation(begun, tell=_progress_callback(progress)), aagain_after_deadlock(database.arun)
    )


def _progress_callback(progress: OnProgress | None) -> bulk.TellProgress:
    def tell(result: BulkResult, _: PortionResult) -> None:
        if progress is not None:
            progress(result)

    return tell


def _live(action: BulkAction | str) -> BulkAction:
    live = [one for one in BulkAction if not one.dead]
    if action not in live:
        raise InvalidOption(f"action={action!r:.80}: use one of {', '.join(live)}")
    return BulkAction(action)


def _readable_preview(codec: Codec | None, found: Preview) -> Preview:
    return msgspec.structs.replace(found, sample=tuple(decode_job(codec, job) for job in found.sample))

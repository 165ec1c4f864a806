"""Operations on many jobs in memory, and what operators did: answers the plans of :mod:`pgqueue.store.bulk.bulk`."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pgqueue.store.bulk.bulk import SAMPLED, StoredOperation
from pgqueue.store.bulk.bulk_jobs import MatchedJob, PortionResult, retry_result
from pgqueue.store.plan import Plan
from pgqueue.testing.row import JobRow
from pgqueue.testing.table import JobTable
from pgqueue.values.bulk.operation import ASKED, DONE, AuditEntry, BulkAction, Operation, Preview, TaskCount
from pgqueue.values.jobs.job import JobState


class OperationBook:
    """Answers the plans about operations on many jobs; here each ends at once, so none can be continued."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._audit: list[AuditEntry] = []

    def preview(self, operation: Operation) -> Preview:
        """What an operation would do."""
        rows = [row for row in self._table.rows() if self._matches(operation, row)]
        kinds = Counter((row.new.queue, row.new.task, row.state) for row in rows)
        groups = [TaskCount(*kind, count) for kind, count in kinds.most_common()]
        acted = [row for row in rows if self._changes(operation, row)]
        first = {(row.new.queue, row.new.task, row.state): row for row in reversed(acted)}
        sample = sorted(row.id for row in first.values())[:SAMPLED]
        return Preview.of(operation, groups, tuple(row.shown() for row in acted if row.id in sample))

    def begin(self, operation: Operation, *, by: str | None, now: datetime) -> StoredOperation:
        """Write down that an operation begins."""
        number = len(self._audit) + 1
        details = msgspec.to_builtins(operation)
        del details["action"]
        target = operation.filter.queue or "*"
        entry = AuditEntry(number, now, by, operation.action, target, details, 0, {}, unfinished=True)
        self._audit.append(entry)
        return StoredOperation(number, operation, -1, max((row.id for row in self._table.rows()), default=-1))

    def write(
        self,
        *,
        done: Plan[Any],  # noqa: ARG002 - the plan's argument
        action: str,
        target: str,
        by: str | None,
        jobs: Callable[[Any], int] | None,
        changed: Callable[[Any], bool],  # noqa: ARG002 - the plan's argument: it did
        details: Mapping[str, object],
        result: Any,  # noqa: ANN401 - the result of any plan
        now: datetime,
    ) -> None:
        """Write down what an operator did by one plan."""
        said: dict[str, object] = {name: str(value) for name, value in details.items() if value is not None}
        count = None if jobs is None else jobs(result)
        self._audit.append(AuditEntry(len(self._audit) + 1, now, by, action, target, said, count))

    def find(
        self, operation: Operation, *, after: int, up_to: int, ids: Collection[int] | None
    ) -> tuple[list[MatchedJob], None]:
        """The jobs to change."""
        rows = (
            row for row in self._table.rows() if after < row.id <= up_to and (ids is None or row.id in ids)
        )
        return [
            MatchedJob(row.id, "", row.id in self._table.flows)
            for row in rows
            if self._changes(operation, row)
        ], None

    def change(
        self,
        operation_id: int,
        operation: Operation,
        found: Sequence[MatchedJob],
        *,
        room: int,  # noqa: ARG002 - nothing is locked
        now: datetime,
    ) -> PortionResult:
        """Do an operation to jobs."""
        changed = self._change(operation, [one.id for one in found], now)
        self.note(operation_id, changed, after=0, tried=(), ends=False, now=now)
        return changed

    def note(
        self,
        operation_id: int,
        changed: PortionResult,
        *,
        after: int,  # noqa: ARG002 - it is done at once
        tried: Collection[int],  # noqa: ARG002 - the plan's parameter
        ends: bool,
        now: datetime,
    ) -> None:
        """Write down what was done."""
        entry = self._audit[operation_id - 1]
        counts = Counter(entry.counts) + Counter(changed.counts)
        self._audit[operation_id - 1] = msgspec.structs.replace(
            entry,
            jobs=counts[DONE] + counts[ASKED],
            counts=dict(counts),
            ended_at=now if ends else None,
            unfinished=not ends,
        )

    def listed(self, *, before: int | None, limit: int) -> list[AuditEntry]:
        """What operators did, newest first."""
        return [one for one in reversed(self._audit) if before is None or one.id < before][:limit]

    def _change(self, operation: Operation, ids: list[int], now: datetime) -> PortionResult:
        table = self._table
        match operation.action:
            case BulkAction.RETRY_DEAD:
                return retry_result(table.revive(ids, without_key=operation.without_key, now=now))
            case BulkAction.PURGE_DEAD:
                purged = table.purge_dead(ids)
                return PortionResult({DONE: purged})
            case BulkAction.CANCEL | BulkAction.PURGE:
                for one in ids:
                    table.cancel(one, now=now)
                asked = sum(row.state is JobState.RUNNING for row in table.rows() if row.id in ids)
                return PortionResult({DONE: len(ids) - asked, ASKED: asked})  # some ended with their flows
        for row in table.rows():
            if row.id in ids:
                queue = row.new.queue if operation.to is None else operation.to
                priority = row.new.priority if operation.priority is None else operation.priority
                row.new = msgspec.structs.replace(row.new, queue=queue, priority=priority)
        return PortionResult({DONE: len(ids)})

    def _changes(self, operation: Operation, row: JobRow) -> bool:
        return operation.changes(row.shown(), asked=self._asked(row))

    def _matches(self, operation: Operation, row: JobRow) -> bool:
        """Whether it matches apart from the states on which the operation acts."""
        if self._changes(operation, row):
            return True
        shown = msgspec.structs.replace(row.shown(), state=JobState.READY)
        live = operation.states is not None and row.state is JobState.RUNNING
        wanted = operation.filter.state
        return live and wanted is None and not self._asked(row) and operation.changes(shown)

    @staticmethod
    def _asked(row: JobRow) -> bool:
        return row.state is JobState.RUNNING and row.cancel_requested

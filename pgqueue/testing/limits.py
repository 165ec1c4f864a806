"""What operators see and change of limits, for tests without a database: as :mod:`pgqueue.store.limits.limit_control` has it.

How limits bind jobs in memory is decided in :mod:`pgqueue.testing.lanes`.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from pgqueue.store.limits.limit_control import (
    check_move,
    next_start,
    refuse_declared,
    refuse_forgetting,
    refuse_other_kind,
    require_limit,
)
from pgqueue.testing.lanes import micros_of
from pgqueue.testing.row import JobRow
from pgqueue.testing.table import JobTable
from pgqueue.values.limits.gcra import settle_tat
from pgqueue.values.limits.limit import QUEUE, LimitNumbers, keys_of, relaned
from pgqueue.values.limits.status import (
    LaneChange,
    LaneCount,
    LimitDetail,
    LimitedJobs,
    LimitHolder,
    LimitStatus,
    count_limits,
    keys_counted,
    keys_under,
)


class LimitBook:
    """The limits of a table. Each method answers the plan of its name, with the same arguments."""

    def __init__(self, table: JobTable) -> None:
        """Begin with what the code says."""
        self._table = table
        self._lanes = table.lanes

    def listed(self, declared: Mapping[str, LimitNumbers], *, now: datetime) -> list[LimitStatus]:
        """Every limit, with the numbers of its jobs."""
        return count_limits(self._known(declared).values(), self._counts(now))

    def show(self, name: str, declared: Mapping[str, LimitNumbers], *, now: datetime) -> LimitDetail:
        """One limit, its keys, and the jobs that hold its places."""
        limit, counts = require_limit(name, self._known(declared)), self._counts(now)
        starts = {
            key: next_start(settle_tat(tat, micros_of(now), limit.numbers.rate), limit.numbers)
            for key, tat in self._lanes.tats.items()
            if key.partition(" ")[0] == name and limit.numbers.every is not None
        }
        holders = [
            LimitHolder(row.id, row.new.queue, row.new.lane or "", row.new.task, None, row.started_at)
            for row in self._held()
            if any(key.limit == name for key in keys_under(row.new.queue, row.new.lane or ""))
        ]
        return LimitDetail(count_limits([limit], counts)[0], keys_counted(name, counts, starts), holders)

    def change(
        self,
        name: str,
        numbers: LimitNumbers,
        declared: Mapping[str, LimitNumbers],
        *,
        by: str | None,
        now: datetime,
    ) -> LimitStatus:
        """Give a limit other numbers."""
        known = self._known(declared)
        if not name.startswith(QUEUE) or name in known:
            refuse_other_kind(require_limit(name, known), numbers)
        said = declared[name].declared if name in declared else ""
        self._lanes.said[name] = LimitStatus(name, numbers._replace(declared=said), now, by)
        return self._lanes.said[name]

    def unset(self, name: str, declared: Mapping[str, LimitNumbers], *, by: str | None) -> None:  # noqa: ARG002 - for the audit
        """Have a limit say again what the code says."""
        require_limit(name, self._known(declared))
        if name not in declared:
            refuse_forgetting(name, self.named(name))
        self._lanes.said.pop(name, None)

    def delete(self, name: str, declared: Mapping[str, LimitNumbers], *, by: str | None) -> LaneChange:  # noqa: ARG002 - for the audit
        """Take a limit that no code declares out of the lanes of all jobs, and forget it."""
        refuse_declared(name, declared)
        if not self.named(name).jobs:
            require_limit(name, self._known({}))
        changed = self._relane(name, None)
        self._lanes.said.pop(name, None)
        return changed

    def move(
        self,
        name: str,
        to: str | None,
        declared: Mapping[str, LimitNumbers],
        *,
        by: str | None,  # noqa: ARG002 - for the audit
    ) -> LaneChange:
        """Put the jobs of a limit under another one, or under none."""
        known = self._known(declared)
        if not self.named(name).jobs:
            require_limit(name, known)
        check_move(name, to, known)
        return self._relane(name, to)

    def named(self, name: str) -> LimitedJobs:
        """The jobs that have a limit in their lane; other programs, whose tasks may have it, do not see this memory."""
        rows = self._of(name)
        return LimitedJobs(len(rows), sum(row.is_ready for row in rows), ())

    def _of(self, name: str) -> list[JobRow]:
        rows = self._table.rows()
        return [row for row in rows if any(key.limit == name for key in keys_of(row.new.lane or ""))]

    def _relane(self, name: str, to: str | None) -> LaneChange:
        rows = self._of(name)
        for row in rows:
            row.new = msgspec.structs.replace(row.new, lane=relaned(row.new.lane or "", name, to))
            if row.new.lane is None:
                row.place_at = None
        return LaneChange(len(rows))

    def weigh(self, share: str, weight: int | None, *, by: str | None, now: datetime) -> None:  # noqa: ARG002 - for the audit
        """Give a share another weight."""
        self._lanes.weights.pop(share, None)
        if weight is not None:
            self._lanes.weights[share] = weight

    def weights(self) -> dict[str, int]:
        """The weights of shares that are not 1."""
        return dict(sorted(self._lanes.weights.items()))

    def places(self, now: datetime) -> tuple[dict[str, LimitStatus], list[LaneCount]]:
        """Every limit, and the jobs that hold places or wait."""
        return self._known(self._lanes.declared()), self._counts(now)

    def _known(self, declared: Mapping[str, LimitNumbers]) -> dict[str, LimitStatus]:
        found = {name: LimitStatus(name, numbers, None, None) for name, numbers in declared.items()}
        return dict(sorted((found | self._lanes.said).items()))

    def _held(self) -> list[JobRow]:
        return [row for row in self._table.rows() if row.is_running or row.keeps_place]

    def _counts(self, now: datetime) -> list[LaneCount]:
        held = [
            LaneCount(
                row.new.queue if row.is_running else "",
                row.new.lane or "",
                running=1,
                lost=int(self._table.claims.is_lost(row, now)),
                waiting=0,
            )
            for row in self._held()
            if row.new.lane is not None or f"{QUEUE}{row.new.queue}" in self._lanes.said
        ]
        waiting = [
            LaneCount(row.new.queue, row.new.lane, 0, 0, 1)
            for row in self._table.rows()
            if row.is_ready and row.new.lane is not None
        ]
        return held + waiting

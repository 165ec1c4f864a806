"""Runs: DataFrames that were written under a name, and how far their jobs are."""

from collections.abc import Sequence

from pgqueue.app.registry import Registry
from pgqueue.store.insight import runs
from pgqueue.values.insight.runs import Run
from pgqueue.values.jobs.options import check_page, check_text


class OfRuns:
    """What :class:`~pgqueue.app.insight.insight.Insight` tells of runs."""

    _queue: Registry

    def runs(self, *, limit: int = 20) -> Sequence[Run]:
        """The latest runs: DataFrames that were written under a name, and how far their jobs are. Jobs that succeeded are not counted.

        Args:
            limit: at most how many.
        """
        return self._queue.database.run(runs.runs(limit=check_page(limit)))

    async def aruns(self, *, limit: int = 20) -> Sequence[Run]:
        """As :meth:`runs`, awaited."""
        return await self._queue.database.arun(runs.runs(limit=check_page(limit)))

    def run(self, name: str) -> Run:
        """A run with all its counts, its rate, and the time that it still takes. If a million of its jobs have ended, it takes a second.

        Raises:
            InvalidOption: there is no such run.
        """
        return self._queue.database.run(runs.run(check_text("run", name)))

    async def arun(self, name: str) -> Run:
        """As :meth:`run`, awaited."""
        return await self._queue.database.arun(runs.run(check_text("run", name)))

"""Writes what a worker measured, a minute at a time, and how deep queues are, if no other worker has.

What is counted is decided in :mod:`pgqueue.worker.measures`; how deep queues are is noted by :mod:`pgqueue.store.insight.series`.

A failure costs jobs nothing: what was not written is kept for the next minute, within bounds. If the connection is lost while
the database writes, it may be written twice.
"""

import random
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

import psycopg

from pgqueue.errors import PgQueueError
from pgqueue.store.insight import series
from pgqueue.store.jobs import control
from pgqueue.store.plan import Plan
from pgqueue.worker.connection import Connections
from pgqueue.worker.joblog import worker_log
from pgqueue.worker.measures import Measures

log = worker_log()

AFTER_THE_MINUTE = (0.2, 2.0)
"""Seconds from the end of a minute until it is written, at least and at most: workers spread out."""


class SeriesWriter:
    """Writes what was measured, on a connection of its own that is closed each time: no other part waits for it."""

    def __init__(self, connections: Connections, measures: Measures | None) -> None:
        """``measures``: None: nothing is measured."""
        self._connections = connections
        self._measures = measures
        self._waited = False

    async def start(self) -> None:
        """Have what is measured go by the database's clock."""
        if self._measures is not None:
            await _set_clock(self._measures, self._connections.claiming.run)

    async def run_once(self) -> float | None:
        """Write, but for the first time, which only waits for the end of the minute: workers that start have other work."""
        if self._waited or self._measures is None:
            return await self.write()
        self._waited = True
        return self._seconds_left(self._measures)

    async def write(self, *, everything: bool = False) -> float | None:
        """Write what was measured in minutes that are over; returns the seconds until the next one is over.

        Args:
            everything: write the present minute, too: the worker ends.
        """
        measures = self._measures
        if measures is None:
            return None
        tallies = measures.take(everything=everything)
        try:
            async with self._connections.for_once("series") as own:
                if tallies:
                    await _set_clock(measures, own.once)
                    rows = [tally.row(key) for key, tally in tallies.items()]
                    await own.once(series.write(rows))
                    tallies = {}
                    await own.once(series.move())
                if not everything:
                    await own.once(series.note())
        except (psycopg.Error, PgQueueError) as error:
            extra = {"error": str(error).strip(), "dropped": measures.put_back(tallies)}
            log.warning("time series could not be written; the next minute tries again", extra=extra)
        return self._seconds_left(measures)

    @staticmethod
    def _seconds_left(measures: Measures) -> float:
        return measures.left + random.uniform(*AFTER_THE_MINUTE)  # noqa: S311 - no secret


async def _set_clock(
    measures: Measures, run: Callable[[Plan[datetime]], Coroutine[Any, Any, datetime]]
) -> None:
    asked = time.monotonic()
    now = await run(control.clock())
    measures.set_clock(now, asked, time.monotonic())

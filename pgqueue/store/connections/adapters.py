"""How values travel in pgqueue's statements on psycopg, whatever the user has registered on a connection or for all of them."""

from datetime import UTC, datetime, timedelta

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.postgres import register_default_adapters
from psycopg.types.array import register_all_arrays
from psycopg.types.datetime import TimestamptzBinaryLoader
from psycopg.types.string import TextBinaryLoader

from pgqueue.store.plan import Row

FIRST, LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
"""Instants that are datetimes in every time zone; ``pgqueue.as_datetime()`` has the same."""


def _micros(at: datetime) -> int:
    """An instant in PostgreSQL's binary form: microseconds since 2000."""
    return (at - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class InstantLoader(TimestamptzBinaryLoader):
    """Reads an instant; one before :data:`FIRST` or after :data:`LAST`, also an infinite one, is read as that."""

    _first, _last = _micros(FIRST), _micros(LAST)

    def load(self, data: Buffer) -> datetime:
        """As the base class."""
        since = int.from_bytes(data, "big", signed=True)
        if self._first < since < self._last:
            return super().load(data)
        return FIRST if since <= self._first else LAST


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(types=psycopg.adapters.types)
    register_default_adapters(adapters)
    adapters.register_loader("timestamptz", InstantLoader)
    register_all_arrays(adapters)
    # The queue decodes JSON by the task's annotations.
    adapters.register_loader("json", TextBinaryLoader)
    return adapters


ADAPTERS = _adapters()


class StepCursor(psycopg.Cursor[Row]):
    """A cursor with :data:`ADAPTERS`."""

    @property
    def adapters(self) -> AdaptersMap:
        """The same for every connection."""
        return ADAPTERS


class AsyncStepCursor(psycopg.AsyncCursor[Row]):
    """As :class:`StepCursor`, awaited."""

    @property
    def adapters(self) -> AdaptersMap:
        """The same for every connection."""
        return ADAPTERS

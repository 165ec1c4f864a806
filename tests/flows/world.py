"""A queue with one task that notes what it is given, and looks at the tables of flows."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest

from pgqueue import Dead, PgQueue, Task
from pgqueue.testing import drain


class World:
    """A queue, its task and its tables.

    Attributes:
        queue: the queue.
        note: a task that notes its argument and returns it; it fails for good where that begins with "fail".
        noted: what it was given, in order.
        well: tasks told to fail do not fail any more.
    """

    def __init__(self, queue: PgQueue, connection: psycopg.Connection[Any]) -> None:
        self.queue = queue
        self.noted: list[Any] = []
        self.well = False
        self._connection = connection

        @queue.task(name="note")
        def note(what: Any) -> Any:
            self.noted.append(what)
            if str(what).startswith("fail") and not self.well:
                raise Dead(f"told to: {what}")
            return what

        self.note: Task[[Any], Any] = note

    def run(self, *, now: datetime | None = None) -> list[int]:
        """Run all jobs that are due; their ids."""
        return [ran.id for ran in drain(self.queue, raises=False, limit=10_000, now=now)]

    def rows(self, query: str) -> list[Any]:
        """The rows of a query."""
        return self._connection.execute(query.encode()).fetchall()

    def count(self, table: str) -> int:
        """How many rows a table has."""
        ((count,),) = self.rows(f"select count(*) from pgqueue.{table}")
        return int(count)

    @property
    def nodes(self) -> dict[str, str]:
        """The states of the nodes that have names."""
        return dict(self.rows("select name, state from pgqueue.nodes where name is not null order by id"))

    @property
    def states(self) -> list[str]:
        """The states of the flows."""
        return [state for (state,) in self.rows("select state from pgqueue.flows order by id")]


@pytest.fixture
def a_world(queue: PgQueue, dsn: str) -> Iterator[World]:
    """A world with nothing in it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield World(queue, connection)

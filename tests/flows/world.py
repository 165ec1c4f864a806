"""A queue with one task that notes what it is given, and looks at the tables of flows.

``a_world`` is on PostgreSQL. ``every_world`` is in memory, on PostgreSQL and in an open transaction, in turn.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import psycopg
import pytest
from neighbours.places import PLACES

from pgqueue import Dead, PgQueue, Task
from pgqueue.testing import Memory, drain, in_memory, in_transaction


class World:
    """A queue, its task and its tables.

    Attributes:
        queue: the queue.
        note: a task that notes its argument and returns it; it fails for good where that begins with "fail".
        noted: what it was given, in order.
        well: tasks told to fail do not fail any more.
        ids: jobs that tasks may cancel: one told to "cancel 3" cancels the fourth.
    """

    def __init__(self, queue: PgQueue, connection: psycopg.Connection[Any] | None) -> None:
        self.queue = queue
        self.noted: list[Any] = []
        self.well = False
        self.ids: list[int] = []
        self._connection = connection

        @queue.task(name="note")
        def note(what: Any) -> Any:
            self.noted.append(what)
            if str(what).startswith("fail") and not self.well:
                raise Dead(f"told to: {what}")
            if str(what).startswith("cancel"):
                queue.cancel(self.ids[int(what.split()[1]) % len(self.ids)])
            return what

        self.note: Task[[Any], Any] = note

    def run(self, *, now: datetime | None = None) -> list[int]:
        """Run all jobs that are due; their ids."""
        return [ran.id for ran in drain(self.queue, raises=False, limit=10_000, now=now)]

    def rows(self, query: str) -> list[Any]:
        """The rows of a query; not in memory."""
        assert self._connection is not None, "memory has no rows: take the fixture a_world"
        return self._connection.execute(query.encode()).fetchall()

    def count(self, table: str) -> int:
        ((count,),) = self.rows(f"select count(*) from pgqueue.{table}")
        return int(count)

    @property
    def waiting(self) -> int:
        """How many jobs and pieces of work are not done yet."""
        live = [job for job in self.queue.insight.search(limit=10_000).jobs if not job.state.ended]
        left = 0 if self._connection is None else self.count("waits") + self.count("flow_work")
        return len(live) + left

    @property
    def nodes(self) -> dict[str, str]:
        """The states of the nodes that have names."""
        if self._connection is None:
            return {node.new.name: node.state.value for node in self._memory.flows.nodes if node.new.name}
        return dict(self.rows("select name, state from pgqueue.nodes where name is not null order by id"))

    @property
    def node_states(self) -> list[str]:
        """The states of all nodes, in the order in which they were added."""
        if self._connection is None:
            nodes = sorted(self._memory.flows.nodes, key=lambda node: node.id)
            return [node.state.value for node in nodes]
        return [state for (state,) in self.rows("select state from pgqueue.nodes order by id")]

    @property
    def states(self) -> list[str]:
        if self._connection is None:
            return self._memory.flows.states
        return [state for (state,) in self.rows("select state from pgqueue.flows order by id")]

    @property
    def _memory(self) -> Memory:
        assert isinstance(self.queue.database, Memory)
        return self.queue.database


@pytest.fixture
def a_world(queue: PgQueue, dsn: str) -> Iterator[World]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield World(queue, connection)


@pytest.fixture(params=PLACES)
def every_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world with nothing in it, in each place in turn; the same must hold in all."""
    with ExitStack() as stack:
        if request.param == "memory":
            queue = PgQueue("")
            stack.enter_context(in_memory(queue))
            yield World(queue, None)
            return
        queue = request.getfixturevalue("queue")
        whole = request.param == "transaction"
        connection = stack.enter_context(
            psycopg.connect(request.getfixturevalue("dsn"), autocommit=not whole)
        )
        if whole:
            stack.enter_context(in_transaction(queue, connection))
            stack.callback(connection.rollback)
        yield World(queue, connection)

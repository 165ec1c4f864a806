"""Promise 13: a workflow's next job becomes ready in the transaction that ends the one before, or not at all."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.samples import LEASE, worker_info

from pgqueue import PgQueue, Task, Workflow, chain, group
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.flows import flow_progress
from pgqueue.store.jobs import claim, finish
from pgqueue.store.plan import Row, Step, run
from pgqueue.store.workers import leases
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Succeeded

STATES = "select id, status from pgqueue.jobs order by id"
NODES = "select id, state, waits_for from pgqueue.nodes order by id"


class Killed(Exception):
    """The worker is gone."""


class Dying:
    """A connection whose program is killed after a given number of statements."""

    def __init__(self, connection: psycopg.Connection[Any], statements: int) -> None:
        """Count down from ``statements``."""
        self._inner = StepRunner(connection, catalogue_of("pgqueue"))
        self._left = statements

    def execute(self, step: Step, /) -> Sequence[Row]:
        """Run a step, unless the program is gone."""
        if not self._left:
            raise Killed
        self._left -= 1
        return self._inner.execute(step)

    def transaction(self) -> AbstractContextManager[object]:
        """As of the connection."""
        return self._inner.transaction()


@pytest.fixture
def note(queue: PgQueue) -> Task[[int], None]:
    """A task."""

    @queue.task(name="note")
    def note(number: int) -> None: ...

    return note


def test_a_worker_that_dies_after_any_statement_has_done_all_or_nothing(
    dsn: str, note: Task[[int], None]
) -> None:
    flow = Workflow(key="one")
    flow.add("first", note.call(1))
    flow.add("inner", group([note.call(2), chain(note.call(3), note.call(4))]), after="first")
    flow.add("last", note.call(5), after="inner")
    flow.enqueue()
    after = Workflow(key="one", in_turn=True)
    after.add("next", note.call(6))
    after.enqueue()
    ended = list[int]()
    with psycopg.connect(dsn, autocommit=True) as connection:
        worker = worker_info()
        ask(connection, leases.register(worker, LEASE))
        while claims := ask(connection, claim.fill(worker.id, ["default"], 1)):
            ended.append(claims[0].id)
            _end_with_deaths(connection, claims[0])
        assert not ask(connection, flow_progress.work())
        assert len(ended) == len({*ended}) == 6
        left = "select count(*) filter (where state <> 'succeeded') from pgqueue.nodes"
        assert connection.execute(left).fetchone() == (0,)


def _end_with_deaths(connection: psycopg.Connection[Any], job: Claim) -> None:
    """End a job, after attempts to end it that were killed behind each of their statements."""
    plan = finish.finish(job.worker_id, [Succeeded(job, 0.1)], keep=True)
    before = [connection.execute(query.encode()).fetchall() for query in (STATES, NODES)]
    for statements in count(1):
        try:
            assert run(plan, Dying(connection, statements))
        except Killed:
            now = [connection.execute(query.encode()).fetchall() for query in (STATES, NODES)]
            assert now == before, f"half done after {statements} statements"
        else:
            break

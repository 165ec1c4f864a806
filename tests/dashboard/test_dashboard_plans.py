"""What pages ask of a large table: ``python tests/bench/day.py DSN --waiting 1000000 --pages`` says how long it takes."""

import json
from collections.abc import Iterator, Sequence
from threading import current_thread
from typing import Any, Final

import psycopg
import pytest
from bench import day
from dashboard.people import Person

from pgqueue import PgQueue
from pgqueue.dashboard import Dashboard, User
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.insight import searching
from pgqueue.store.plan import Row, Statement, Step
from pgqueue.store.queues.standings import WHOLE_PAGES

WAITING: Final = 80_000
"""Jobs, so that the table has more pages than are read as a whole."""


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def test_no_page_reads_the_table_of_jobs_from_end_to_end(
    queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    day.fill(queue, dsn, jobs=1_000, waiting=WAITING)
    monkeypatch.setattr(searching, "LOOKED_AT", WAITING // 10)  # the share of a table of 1,000,000 jobs
    read: list[tuple[str, str]] = []
    seen: set[str] = set()
    execute, asking, path = StepRunner.execute, current_thread(), ""

    def explained(self: StepRunner, step: Step) -> Sequence[Row]:
        if current_thread() is asking:
            assert isinstance(step, Statement)
            seen.add(step.name)
            read.extend((path, step.name) for node in _plan(connection, self, step) if _is_whole(node))
        return execute(self, step)

    with psycopg.connect(dsn, autocommit=True) as connection:
        pages = connection.execute(
            "select pg_relation_size('pgqueue.jobs') / current_setting('block_size')::int"
        ).fetchone()
        assert pages is not None
        assert pages[0] > WHOLE_PAGES
        person = Person(Dashboard(queue, login=lambda _: User("ann"), actions=True))
        paths = day.paths(queue)
        monkeypatch.setattr(StepRunner, "execute", explained)
        for path in paths:
            assert person.get(path).status_code == 200, path
    assert {"insight/running_named", "insight/search", "insight/standing_heads"} <= seen
    assert {name for _, name in read} <= {
        "insight/lanes"
    }  # its index costs as much as 4,000 pages, so few are read whole


def _plan(
    connection: psycopg.Connection[Any], steps: StepRunner, step: Statement
) -> Iterator[dict[str, Any]]:
    sql = steps.catalogue[step.name]
    (found,) = connection.execute(b"explain (format json) " + sql, step.params).fetchone() or ("[]",)
    plans = json.loads(found) if isinstance(found, str) else found
    for one in plans:
        yield from _nodes(one["Plan"])


def _is_whole(node: dict[str, Any]) -> bool:
    return node["Node Type"] == "Seq Scan" and node.get("Relation Name") == "jobs"

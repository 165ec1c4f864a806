"""Promise 10: upgrading the schema never stops running workers of the previous release."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from looking import ask
from store.crowd import until_statements_wait
from store.former_release import RELEASES, STATEMENTS, FormerWorker, at_work
from store.migrating import consists_of

from pgqueue.store import schema

FORMER = RELEASES[-1]
RECORDS = """
select id from pgqueue.job_history union all select id from pgqueue.dead_jobs union all select id from pgqueue.jobs
"""


@pytest.fixture
def former(empty_dsn: str) -> str:
    """A database with the schema of the previous release."""
    schema.migrate(empty_dsn, revision=FORMER)
    return empty_dsn


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """A former release."""
    return str(request.param)


def while_somebody_reads(dsn: str, worker: FormerWorker, migrate: Callable[[], None]) -> None:
    """Migrate while the worker goes on and another transaction holds up each statement that wants the tables for itself."""
    with ThreadPoolExecutor(1) as threads:
        with psycopg.connect(dsn) as reader:
            reader.execute("select from pgqueue.job_history limit 1")
            reader.execute("select from pgqueue.jobs limit 1")
            migrating = threads.submit(migrate)
            if not _is_done_or_waits(dsn, migrating):
                worker.goes_on()
        migrating.result()


def _is_done_or_waits(dsn: str, migrating: Any) -> bool:
    """Whether it ended though the tables are being read; else it waits by now."""
    until_statements_wait(dsn, unless=migrating.done)
    return bool(migrating.done())


def test_workers_of_the_former_release_go_on_before_while_and_after_it_is_upgraded_and_downgraded(
    empty_dsn: str, release: str
) -> None:
    former = empty_dsn
    schema.migrate(former, revision=release)
    with at_work(former, release) as worker:
        while_somebody_reads(former, worker, lambda: schema.migrate(former))
        worker.goes_on()
        while_somebody_reads(former, worker, lambda: schema.migrate(former, revision=release))
        worker.goes_on()

    recorded = [job_id for (job_id,) in ask(former, RECORDS)]
    assert sorted(recorded) == sorted(worker.enqueued)
    assert sorted(worker.ended) == sorted(worker.enqueued)


def test_every_statement_of_the_former_release_is_one_for_this_schema(
    connection: psycopg.Connection[Any], release: str
) -> None:
    refused = {}
    for name, text in STATEMENTS[release].items():
        try:
            with connection.transaction(force_rollback=True):
                _begin(connection, text)
        except psycopg.Error as error:
            refused[name] = str(error)
    assert refused == {}


def _begin(connection: psycopg.Connection[Any], text: str) -> None:
    """Have the server read a statement and plan it; COPY, which has no plan, is sent without a row."""
    if re.search("^copy ", text, re.MULTILINE):
        with connection.cursor().copy(text.encode()):
            return
    for number, place in enumerate(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)), start=1):
        text = text.replace(f"%({place})s", f"${number}")
    connection.execute(f"prepare former as {text.replace('%%', '%')}".encode())
    connection.execute("deallocate former")


def test_down_and_up_again_ends_where_it_began(former: str) -> None:
    first = consists_of(former)
    schema.migrate(former)
    last = consists_of(former)

    schema.migrate(former, revision=FORMER)
    assert consists_of(former) == first
    schema.migrate(former)
    assert consists_of(former) == last

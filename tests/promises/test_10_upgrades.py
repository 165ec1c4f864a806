"""Promise 10: upgrading the schema never stops running workers of the previous release."""

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from looking import ask
from store.crowd import until_statements_wait
from store.former_release import AT_ONCE, ENDS, RELEASES, STATEMENTS, TURNS, FormerWorker, at_work
from store.migrating import consists_of

from pgqueue import Context, PgQueue
from pgqueue.store import schema
from pgqueue.worker.worker import Worker

FORMER = RELEASES[-1]
RECORDS = """
select id from pgqueue.job_history union all select id from pgqueue.dead_jobs union all select id from pgqueue.jobs
"""


@pytest.fixture
def former(empty_dsn: str) -> str:
    """A database with the schema of the previous release."""
    schema.migrate(empty_dsn, revision=FORMER)
    return empty_dsn


def while_a_report_reads(dsn: str, crew: list[FormerWorker], revision: str) -> None:
    """Go to a revision while workers go on and another transaction holds up each statement that wants the tables for itself."""
    with ThreadPoolExecutor(1) as threads:
        with psycopg.connect(dsn) as report:
            report.execute("select from pgqueue.job_history limit 1")
            report.execute("select from pgqueue.jobs limit 1")
            migrating = threads.submit(schema.migrate, dsn, revision=revision)
            until_statements_wait(dsn, unless=migrating.done)
            if not migrating.done():
                all_go_on(crew)
        migrating.result()


def all_go_on(crew: list[FormerWorker]) -> None:
    """Return when each worker has ended some more jobs, in every way."""
    for worker in crew:
        worker.goes_on(AT_ONCE * len(ENDS))


@contextmanager
def todays_worker(dsn: str) -> Iterator[list[int]]:
    """A worker of this release, with the task of the former ones; the jobs that it has run, once it has run some."""
    queue, ran, ready = PgQueue(dsn), list[int](), threading.Event()

    @queue.task(name="bill")
    def bill(ctx: Context, text: str = "") -> None:  # noqa: ARG001 - what former releases give it
        ran.append(ctx.job.id)
        if len(ran) >= TURNS:
            ready.set()

    worker = Worker(queue, concurrency=AT_ONCE)
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(asyncio.run, worker.run())
        try:
            assert ready.wait(60)
            yield ran
        finally:
            worker.stop()
        working.result()
    queue.close()


def test_workers_of_all_releases_share_the_jobs_through_each_revision_up_and_down(empty_dsn: str) -> None:
    schema.migrate(empty_dsn, revision=RELEASES[0])
    crew: list[FormerWorker] = []
    with ExitStack() as at_the_end:
        shifts = []
        for release in RELEASES:
            while_a_report_reads(empty_dsn, crew, release)
            shift = at_the_end.enter_context(ExitStack())
            crew.append(shift.enter_context(at_work(empty_dsn, release)))
            shifts.append((release, shift))
        while_a_report_reads(empty_dsn, crew, "head")
        with todays_worker(empty_dsn) as ran:
            all_go_on(crew)
        former = [*crew]
        for release, shift in reversed(shifts):
            while_a_report_reads(empty_dsn, former, release)
            former.pop()
            shift.close()

    enqueued = [job_id for worker in crew for job_id in worker.enqueued]
    assert sorted(ask(empty_dsn, RECORDS)) == sorted((job_id,) for job_id in enqueued)
    assert sorted([*ran, *(job_id for worker in crew for job_id in worker.ended)]) == sorted(enqueued)


@pytest.mark.parametrize("release", RELEASES)
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

"""Promise 10: upgrading the schema never stops running workers of the previous release."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from looking import ask, wait_until
from schema.migrating import consists_of
from store.crowd import until_statements_wait
from store.releases import FORMER, NEXT, NextRelease, Program, at_work, differing, next_release, refused
from store.sqlfiles import SQL

from pgqueue.store.schema import build_ahead, schema

RECORDS = "select id from pgqueue.job_history union all select id from pgqueue.dead_jobs"


@pytest.fixture
def after() -> Iterator[NextRelease]:
    """The next release."""
    with next_release() as release:
        yield release


def while_a_report_reads(dsn: str, after: NextRelease, crew: list[Program], revision: str) -> None:
    """Go to a revision while programs go on and another transaction holds up each statement that wants the tables for itself."""
    with ThreadPoolExecutor(1) as threads:
        with psycopg.connect(dsn) as report:
            report.execute("select from pgqueue.job_history limit 1")
            report.execute("select from pgqueue.jobs limit 1")
            migrating = threads.submit(after.migrate, dsn, revision)
            until_statements_wait(dsn, unless=migrating.done)
            for program in crew:
                program.goes_on()
            assert not migrating.done()
        migrating.result()


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_programs_of_this_release_and_the_next_share_the_jobs_through_its_revision_up_and_down(
    dsn: str,
    after: NextRelease,
    large: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if large:  # then its columns and indices are made before it
        monkeypatch.setattr(build_ahead, "LARGE", 0)
    caplog.set_level(logging.ERROR, "pgqueue")
    with at_work(dsn) as this:
        while_a_report_reads(dsn, after, [this], NEXT)
        with at_work(dsn, NEXT) as other:
            for program in (this, other):
                program.goes_on()
            # A job that the next release has enqueued, and completed; and one that died under either.
            wait_until(lambda: ask(dsn, "select 1 from pgqueue.job_history where region = 'there' limit 1"))
            wait_until(lambda: ask(dsn, "select 1 from pgqueue.obituaries limit 1"))
        while_a_report_reads(dsn, after, [this], schema.REVISION)
        this.goes_on()
        this.enough()
        wait_until(lambda: ask(dsn, "select count(*) from pgqueue.jobs") == [(0,)])

    enqueued = this.enqueued | other.enqueued
    assert sorted(ask(dsn, RECORDS)) == sorted((job_id,) for job_id in enqueued)
    said = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert [one for one in said if not one.startswith("job is dead: the task raised Dead")] == []


def test_every_statement_of_this_release_is_one_for_the_schema_of_the_next(
    dsn: str, after: NextRelease
) -> None:
    make_shard_guard(dsn)
    after.migrate(dsn)
    assert refused(dsn, without_others(SQL)) == {}
    assert refused(dsn, differing(NEXT)) == {}


@pytest.mark.skipif(FORMER is None, reason="no release was before this one")
def test_every_statement_of_the_former_release_is_one_for_this_schema(dsn: str) -> None:
    assert FORMER is not None
    make_shard_guard(dsn)
    assert refused(dsn, without_others(differing(FORMER))) == {}


def make_shard_guard(dsn: str) -> None:
    with psycopg.connect(dsn) as own:
        own.execute(schema.statements("shard_guard", "pgqueue").encode())


def without_others(statements: dict[str, str]) -> dict[str, str]:
    """Those for the tables of pgqueue: the others read the tables of other queues."""
    return {name: text for name, text in statements.items() if not name.startswith("adopt/")}


def test_down_and_up_again_ends_where_it_began(dsn: str, after: NextRelease) -> None:
    first = consists_of(dsn)
    after.migrate(dsn)
    last = consists_of(dsn)
    assert last != first

    after.migrate(dsn, schema.REVISION)
    assert consists_of(dsn) == first
    after.migrate(dsn)
    assert consists_of(dsn) == last

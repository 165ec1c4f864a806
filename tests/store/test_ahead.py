"""What an upgrade does with large tables before it begins; here every table counts as large."""

import psycopg
import pytest
from looking import ask
from store.former_release import at_work
from store.migrating import consists_of

from pgqueue.errors import DatabaseError
from pgqueue.store import ahead, schema

BUILT = """
select count(*) from pg_index join pg_class on oid = indexrelid
where relname in ('jobs_expires_at', 'jobs_lanes', 'jobs_running_in_lanes', 'jobs_kept_places') and indisvalid
"""


@pytest.fixture
def former(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database of the oldest release."""
    schema.migrate(empty_dsn, revision="0001")
    monkeypatch.setattr(ahead, "LARGE", 0)
    return empty_dsn


def test_indices_are_built_without_a_lock_and_an_upgrade_that_is_interrupted_goes_on_at_the_next_attempt(
    former: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "BUILD_WITHIN", "100ms")
    with at_work(former, "0002") as worker:
        with psycopg.connect(former) as report:  # its snapshot is older than the index
            report.execute("set transaction isolation level repeatable read")
            report.execute("select from pgqueue.queues")
            with pytest.raises(
                DatabaseError, match=r"is older has been open .* its former revision, and workers go on"
            ):
                schema.migrate(former)
            worker.goes_on()
        assert ask(former, "select version_num from pgqueue.alembic_version") == [("0001",)]
        monkeypatch.undo()
        monkeypatch.setattr(ahead, "LARGE", 0)
        schema.migrate(former)
        worker.goes_on()

    assert sorted(worker.ended) == sorted(worker.enqueued)
    assert consists_of(former) == consists_of(dsn)


def test_only_what_an_upgrade_installs_is_built_and_before_it_begins(former: str) -> None:
    with psycopg.connect(former) as upgrading:
        upgrading.execute("select pg_advisory_xact_lock(hashtext('pgqueue.migrate'))")
        with psycopg.connect(former) as driver:
            ahead.prepare(driver, schema="pgqueue", newest="0006")
            assert ask(former, BUILT) == [(0,)]
            ahead.prepare(driver, schema="pgqueue", newest=schema.REVISION)

    assert ask(former, BUILT) == [(4,)]
    assert ask(former, "select version_num from pgqueue.alembic_version") == [("0001",)]

"""What an upgrade does with large tables before it begins; here every table counts as large."""

from collections.abc import Iterator

import psycopg
import pytest
from looking import ask
from schema.migrating import consists_of
from store.releases import NEXT, NextRelease, at_work, next_release

from pgqueue.errors import DatabaseError
from pgqueue.store.schema import build_ahead, schema

BUILT = """
select relname from pg_index join pg_class on oid = indexrelid
where relname ~ '_region' and relkind = 'i' and indisvalid and relname !~ '_20[0-9]{6}_' order by 1
"""
AT = "select version_num from pgqueue.alembic_version"


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Iterator[NextRelease]:
    """The next release, for which every table is large."""
    monkeypatch.setattr(build_ahead, "LARGE", 0)
    with next_release() as release:
        yield release


def test_indices_are_built_without_a_lock_and_an_upgrade_that_is_interrupted_goes_on_at_the_next_attempt(
    dsn: str, after: NextRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_work(dsn) as program:
        with psycopg.connect(dsn) as report, monkeypatch.context() as hasty:
            report.execute(
                "set transaction isolation level repeatable read"
            )  # its snapshot is older than the index
            report.execute("select from pgqueue.queues")
            hasty.setattr(build_ahead, "BUILD_WITHIN", "100ms")
            with pytest.raises(
                DatabaseError, match=r"is older has been open .* its former revision, and workers go on"
            ):
                after.migrate(dsn)
            program.goes_on()
        assert ask(dsn, AT) == [(schema.REVISION,)]
        after.migrate(dsn)
        program.goes_on()
    assert ask(dsn, AT) == [(NEXT,)]


def test_what_is_built_before_an_upgrade_is_what_the_upgrade_would_build(
    dsn: str, after: NextRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    after.migrate(dsn)
    ahead_of_it = consists_of(dsn)
    after.migrate(dsn, schema.REVISION)
    monkeypatch.undo()

    after.migrate(dsn)

    assert consists_of(dsn) == ahead_of_it


def test_only_what_an_upgrade_installs_is_built_and_before_it_begins(dsn: str, after: NextRelease) -> None:
    with psycopg.connect(dsn) as upgrading:
        upgrading.execute("select pg_advisory_xact_lock(hashtext('pgqueue.migrate'))")
        with psycopg.connect(dsn) as driver, after.installed():
            build_ahead.prepare(driver, schema="pgqueue", newest=schema.REVISION)
            assert ask(dsn, BUILT) == [("job_history_default_region_idx",), ("jobs_region",)]
    assert ask(dsn, AT) == [(schema.REVISION,)]


def test_nothing_is_built_for_a_revision_that_is_not_asked_for(dsn: str, after: NextRelease) -> None:
    with psycopg.connect(dsn) as driver, after.installed():
        build_ahead.prepare(driver, schema="pgqueue", newest=f"{int(NEXT) - 1:04}")
    assert ask(dsn, BUILT) == []

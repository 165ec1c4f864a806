"""The schema within an app's own Alembic history: one revision of theirs brings ours up, in their transaction."""

from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from schema.migrating import begun, consists_of
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from store.drivers import sqlalchemy_url

from pgqueue.store.schema import schema

ENVIRONMENT = """
from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
"""

ORDERS = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "a1", None


def upgrade():
    op.create_table("orders", sa.Column("id", sa.BigInteger, primary_key=True))


def downgrade():
    op.drop_table("orders")
"""

JOBS = """
import sqlalchemy as sa
from alembic import op
from pgqueue.store.schema import schema

revision, down_revision = "b2", "a1"


def upgrade():
    op.add_column("orders", sa.Column("before", sa.Integer))
    schema.upgrade(op.get_bind())
    op.add_column("orders", sa.Column("after", sa.Integer))


def downgrade():
    op.drop_column("orders", "after")
    schema.downgrade(op.get_bind())
    op.drop_column("orders", "before")
"""

LAST = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "c3", "b2"


def upgrade():
    op.add_column("orders", sa.Column("last", sa.Integer))


def downgrade():
    op.drop_column("orders", "last")
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A user's own Alembic environment, of three revisions; the second brings pgqueue."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    for name, text in (("a1_orders", ORDERS), ("b2_jobs", JOBS), ("c3_last", LAST)):
        (tmp_path / "versions" / f"{name}.py").write_text(text)
    return tmp_path


def _go(environment: Path, dsn: str, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(environment))
    with begun(dsn) as connection:
        config.attributes["connection"] = connection
        if revision == "base":
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)


def _columns(dsn: str) -> list[str]:
    query = "select column_name from information_schema.columns where table_name = 'orders' order by ordinal_position"
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute(query).fetchall()]


def _versions(dsn: str, schema: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(f"select version_num from {schema}.alembic_version".encode()).fetchall()
        return [row[0] for row in rows]


def test_a_users_revision_brings_the_schema_and_goes_on(environment: Path, empty_dsn: str, dsn: str) -> None:
    _go(environment, empty_dsn, "head")

    assert consists_of(empty_dsn) == consists_of(dsn)
    assert _columns(empty_dsn) == ["id", "before", "after", "last"]


def test_the_two_histories_are_kept_apart(environment: Path, empty_dsn: str) -> None:
    _go(environment, empty_dsn, "head")

    assert _versions(empty_dsn, "public") == ["c3"]
    assert _versions(empty_dsn, "pgqueue") == [schema.REVISION]


def test_a_users_way_back_takes_the_schema_down(environment: Path, empty_dsn: str) -> None:
    _go(environment, empty_dsn, "head")
    _go(environment, empty_dsn, "base")

    assert _columns(empty_dsn) == []
    assert _versions(empty_dsn, "public") == _versions(empty_dsn, "pgqueue") == []
    assert not consists_of(empty_dsn)["functions"]


def test_a_users_revision_that_fails_leaves_nothing_of_ours(environment: Path, empty_dsn: str) -> None:
    broken = environment / "versions" / "c3_last.py"
    broken.write_text(broken.read_text().replace('"orders"', '"no such table"'))

    with pytest.raises(Exception, match="no such table"):
        _go(environment, empty_dsn, "head")

    assert consists_of(empty_dsn) == {}
    assert _columns(empty_dsn) == []


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_an_asyncio_engine_brings_the_schema_and_takes_it_down(
    driver: str, empty_dsn: str, dsn: str
) -> None:
    engine = create_async_engine(
        sqlalchemy_url(empty_dsn).replace("+psycopg", f"+{driver}"), poolclass=NullPool
    )
    async with engine.begin() as connection:
        await connection.run_sync(schema.upgrade)
    brought = consists_of(empty_dsn)
    async with engine.begin() as connection:
        await connection.run_sync(schema.downgrade)

    assert brought == consists_of(dsn)
    assert not consists_of(empty_dsn)["functions"]

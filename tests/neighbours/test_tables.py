"""``pgqueue.tables`` is the database's own truth, can be queried and mapped, and stays out of users' migrations."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from docs.pages import DOCS, blocks
from sqlalchemy import BigInteger, Column, Engine, MetaData, Table, create_engine, func, inspect, select, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool
from sqlalchemy.types import TypeEngine
from store.drivers import sqlalchemy_url

from pgqueue import JobState, PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.schema import schema as migrations
from pgqueue.tables import Tables, tables

TABLES = (
    "jobs",
    "job_history",
    "dead_jobs",
    "workers",
    "former_workers",
    "queues",
    "alerts",
    "schedules",
    "schedule_ticks",
)
DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy has no types for it
NOT_FOR_USERS = re.compile(
    r"audit|lost_workers|(known|unknown)_tasks|task_contracts|limits|rates|limited_tasks|unique_holds|waits|notes|signals|stacks|deadlines|callback_key|flows|nodes|edges|node_counts|flow_work|retention|compatibility|alembic_version|job_history_(default|\d+)"
    "|(series|insight)_.*"  # read by SQL, or through queue.insight
    "|deploys|lake_days|(rollup|sink)_.*"  # the pipeline's own, and what plots are made of: read by SQL or on Spark
)
ONLY_IN_VIEW = {"state": False, "ended_at": True, "started_at": True, "reason": True, "result": True}
"""Whether it may be null, of those columns of the view that the tables do not have all under one name."""


@pytest.fixture
def engine(dsn: str) -> Iterator[Engine]:
    made = create_engine(sqlalchemy_url(dsn), poolclass=NullPool)
    yield made
    made.dispose()


def _described(columns: Any) -> dict[str, tuple[str, bool]]:
    return {column["name"]: (_type(column["type"]), column["nullable"]) for column in columns}


def _declared(table: Table) -> dict[str, tuple[str, bool]]:
    return {column.name: (_type(column.type), bool(column.nullable)) for column in table.columns}


def _type(kind: TypeEngine[Any]) -> str:
    """As PostgreSQL writes it; a domain as what it is based on, which SQLAlchemy reads with its collation."""
    base = kind.data_type if isinstance(kind, DOMAIN) else kind
    return base.compile(dialect=DIALECT).removesuffix(' COLLATE "default"')


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_columns_types_and_nulls_that_the_database_has(engine: Engine, name: str) -> None:
    real = _described(inspect(engine).get_columns(name, schema="pgqueue"))
    assert _declared(getattr(tables(), name)) == real


def test_the_view_has_the_columns_and_types_that_the_database_has(engine: Engine) -> None:
    real = _described(inspect(engine).get_columns("all_jobs", schema="pgqueue"))
    declared = _declared(tables().all_jobs)
    assert {name: kind for name, (kind, _) in declared.items()} == {
        name: kind for name, (kind, _) in real.items()
    }


def test_a_column_of_the_view_may_be_null_where_one_of_its_tables_says_so() -> None:
    pg = tables()
    sources = (pg.jobs, pg.job_history, pg.dead_jobs)
    for column in pg.all_jobs.columns:
        if column.name in ONLY_IN_VIEW:
            assert column.nullable == ONLY_IN_VIEW[column.name], column
        else:
            assert column.nullable == any(source.c[column.name].nullable for source in sources), column


def test_every_table_of_the_schema_is_there_or_not_for_users(engine: Engine) -> None:
    look = inspect(engine)
    real = {*look.get_table_names(schema="pgqueue"), *look.get_view_names(schema="pgqueue")}
    ours = {table.name for table in tables().metadata.tables.values()}
    assert ours == {name for name in real if not NOT_FOR_USERS.fullmatch(name)}
    assert {getattr(tables(), name).name for name in Tables.__slots__ if name != "metadata"} == ours


def test_another_schema_is_taken_at_its_name(dsn: str) -> None:
    migrations.migrate(dsn, schema="elsewhere")
    queue = PgQueue(dsn, schema="elsewhere")
    queue.task(name="bill")(lambda: None).enqueue()
    queue.close()

    with create_engine(sqlalchemy_url(dsn), poolclass=NullPool).connect() as connection:
        assert connection.scalar(select(func.count()).select_from(tables("elsewhere").jobs)) == 1
        assert connection.scalar(select(func.count()).select_from(tables().jobs)) == 0


def test_the_tables_of_a_schema_are_the_same_each_time() -> None:
    assert tables() is tables("pgqueue")
    assert tables("elsewhere") is not tables()


def test_a_schema_that_cannot_be_pgqueues_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"schema='No Such'"):
        tables("No Such")


def test_jobs_are_read_through_a_mapped_class_and_their_states_are_ours(
    engine: Engine, queue: PgQueue
) -> None:
    class Base(DeclarativeBase): ...

    class Job(Base):
        __table__ = tables().all_jobs
        id: Mapped[int]
        task: Mapped[str]
        state: Mapped[str]
        args: Mapped[dict[str, Any]]
        created_at: Mapped[datetime]
        ended_at: Mapped[datetime | None]

    handle = queue.task(name="bill")(lambda: None).enqueue()

    with Session(engine) as session:
        (job,) = session.scalars(select(Job).where(Job.state == JobState.READY))
        assert (job.id, job.task, job.args, job.ended_at) == (handle.id, "bill", {}, None)
        assert job.created_at.tzinfo is not None
    assert not Base.metadata.tables, "create_all would make them"


class _Users(DeclarativeBase): ...


class _Order(_Users):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)


def _proposed(engine: Engine, metadata: MetaData, **options: Any) -> list[Any]:
    with engine.connect() as connection:
        connection.execute(text("drop schema watched cascade"))  # the tests' own; it is rolled back
        context = MigrationContext.configure(connection, opts={"include_schemas": True, **options})
        return list(compare_metadata(context, metadata))


def _names_of_the_page() -> dict[str, Any]:
    """What the last block of the page defines, its models replaced by the test's."""
    *_, recipe = [
        block for block in blocks(DOCS / "guides" / "sqlalchemy.md") if "def include_name" in block.code
    ]
    names: dict[str, Any] = {"Base": _Users}
    code = "\n".join(line for line in recipe.code.splitlines() if not line.startswith("from shop"))
    exec(compile(code, str(recipe.page), "exec"), names)  # noqa: S102 - our own words
    return names


def test_autogenerate_leaves_our_schema_alone_by_the_recipe_of_the_page(engine: Engine) -> None:
    _Users.metadata.create_all(engine)
    theirs = Table("customers", MetaData(), Column("id", BigInteger, primary_key=True))
    theirs.create(engine)

    proposed = _proposed(engine, _Users.metadata, include_name=_names_of_the_page()["include_name"])

    assert [(what, table.name) for what, table in proposed] == [("remove_table", "customers")]


# Before 2.1, SQLAlchemy takes this schema for one of PostgreSQL's own: in its "like 'pg_%'" the underscore stands for any character.
@pytest.mark.skipif(sqlalchemy.__version__ < "2.1", reason="SQLAlchemy 2.0 does not see the schema pgqueue")
# SQLAlchemy hands on how it reflects a check that is not validated, and does not know its own word for it.
@pytest.mark.filterwarnings("ignore:Can't validate argument 'dialect_options'")
def test_autogenerate_would_drop_our_tables_without_it(engine: Engine) -> None:
    _Users.metadata.create_all(engine)
    dropped = {step[1].name for step in _proposed(engine, _Users.metadata) if step[0] == "remove_table"}
    assert "jobs" in dropped

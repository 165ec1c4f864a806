"""Installs, upgrades and checks the schema.

``sql/schema/NNNN_MM_subject.{up,down}.sql`` is the only source. Alembic's revisions in ``migrations/`` run those files; the
revision is kept in ``alembic_version`` inside the schema, separate from a user's own Alembic history.
``compatibility.oldest_code`` says which code may use the schema: a migration raises it only when older code would break,
so workers of the previous release keep running during an upgrade of the schema.

SQLAlchemy and Alembic are imported only for a migration; workers never load them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pgqueue.errors import (
    ConfigurationError,
    DatabaseError,
    SchemaError,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
)
from pgqueue.store.catalogue import MIGRATE_HINT, catalogue_of, check_schema, in_schema
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.schema import build_ahead
from pgqueue.store.shipped import shipped

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

REVISION = "0001"
"""The revision for which this code is written."""
KNOWN = frozenset(f"{number:04}" for number in range(1, int(REVISION) + 1))

_one_at_a_time = threading.RLock()


@plan
def verify(schema: str, *, migrate_hint: str = MIGRATE_HINT) -> Steps[str]:
    """Check that this code can use the schema; returns its revision.

    Args:
        schema: its name.
        migrate_hint: the remedy for a user whose tables are missing or too old.

    Raises:
        SchemaMissing: it was never installed.
        SchemaTooOld: this code needs a later revision.
        SchemaTooNew: the schema needs newer code.
        SchemaError: row-level security hides the rows of a table from this connection's role.
    """
    rows = yield Statement("connections/schema_state", {})
    revision, oldest_code, hidden = rows[0]
    if revision is None:
        raise SchemaMissing(f'schema "{schema}" has no tables yet; {migrate_hint}')
    if revision < REVISION:
        raise SchemaTooOld(
            f'schema "{schema}" is at revision {revision}, this code needs {REVISION}; {migrate_hint}'
        )
    if oldest_code is not None and oldest_code > REVISION:
        raise SchemaTooNew(
            f'schema "{schema}" is at revision {revision} and needs code written for {oldest_code} or later; '
            f"this is for {REVISION}: upgrade pgqueue"
        )
    if hidden is not None:
        raise SchemaError(
            f"row-level security hides each row of {schema}.{hidden} from this role, since the table has no policy: "
            f"run `alter table {schema}.{hidden} disable row level security`, or give the role a policy"
        )
    return str(revision)


def upgrade(connection: "Connection", *, schema: str = "pgqueue", revision: str = "head") -> None:
    """Bring the schema up to a revision, in the connection's transaction.

    Call it from a revision of your own Alembic history (``upgrade(op.get_bind())``) to keep both in step.

    Args:
        connection: a SQLAlchemy connection on the postgresql+psycopg dialect; within ``run_sync`` also an
            asyncio one on that or on postgresql+asyncpg.
        schema: the schema's name; it is made if it does not exist.
        revision: a revision, or ``head``.

    Raises:
        DatabaseError: the database's encoding is not UTF8.
        SchemaTooNew: a later release has upgraded the schema. For ``head`` that is no error if the schema allows this release:
            then nothing is done.
    """
    from alembic import command  # noqa: PLC0415 - heavy, and workers never migrate

    _require_utf8(connection)
    newer = _newer(connection, schema)
    if newer is not None and revision == "head" and newer.allows_this:
        return
    if newer is not None:
        raise newer.refusal(schema)
    with _beside_another_migration():
        command.upgrade(_config(schema, connection), revision)


def _require_utf8(connection: "Connection") -> None:
    from sqlalchemy import text  # noqa: PLC0415 - only migrations need it

    # As a JSON text: on SQL_ASCII, psycopg reads texts as bytes.
    query = "select to_json(array[current_database()::text, current_setting('server_encoding')])"
    name, encoding = connection.execute(text(query)).scalar_one()
    if encoding != "UTF8":
        raise DatabaseError(
            f'database "{name}" has the encoding {encoding}, and jobs may hold any text: make one that has UTF8 '
            f"(`createdb --encoding UTF8 --template template0 NAME`). Nothing was changed"
        )


def run_script(connection: "Connection", script: str) -> None:
    """Run many statements at once, on the driver's connection: SQLAlchemy would read their colons as parameters.

    Args:
        connection: as for :func:`upgrade`.
        script: the statements.
    """
    if not _says_anything(script):
        return
    held = connection.connection
    run_async = getattr(held.dbapi_connection, "run_async", None)
    if run_async is not None:  # an asyncio engine's, within its run_sync
        run_async(lambda driver: driver.execute(script))
    else:
        cursor = held.cursor()
        cursor.execute(script)
        cursor.close()


def _says_anything(script: str) -> bool:
    # asyncpg fails on the answer to a script that has only comments.
    return any(line and not line.startswith("--") for line in map(str.strip, script.splitlines()))


def run_revision(revision: str, way: Literal["up", "down"]) -> None:
    """Run a revision's files of ``sql/schema`` within Alembic's migration, or print them where Alembic only prints.

    Args:
        revision: its number.
        way: which files.
    """
    from alembic import context, op  # noqa: PLC0415 - heavy, and workers never migrate

    for name in files_of(revision, way):
        script = statements(name, context.config.attributes["schema"])
        if context.is_offline_mode():
            context.get_context().impl.static_output(script)
        else:
            run_script(op.get_bind(), script)


def files_of(revision: str, way: Literal["up", "down"]) -> list[str]:
    """The names of a revision's files in the order in which they run, without ``.sql``."""
    names = (file.name for file in shipped("sql").joinpath("schema").iterdir())
    found = sorted(name for name in names if name.startswith(f"{revision}_") and name.endswith(f".{way}.sql"))
    return [name.removesuffix(".sql") for name in found]


def downgrade(connection: "Connection", *, schema: str = "pgqueue", revision: str = "base") -> None:
    """Take the schema down to a revision; jobs are lost with the tables. Arguments as for :func:`upgrade`.

    Raises:
        SchemaTooNew: a later release has upgraded the schema; only that release can take it down.
    """
    from alembic import command  # noqa: PLC0415 - heavy, and workers never migrate

    if (newer := _newer(connection, schema)) is not None:
        raise newer.refusal(schema)
    with _beside_another_migration():
        command.downgrade(_config(schema, connection), revision)


def upgrade_script(*, schema: str = "pgqueue", revision: str = "head") -> None:
    """Print the SQL that brings an empty database up to a revision, so that another user can run it."""
    from alembic import command  # noqa: PLC0415 - heavy, and workers never migrate

    with _errors_in_words(revision):
        command.upgrade(_config(schema, None), revision, sql=True)


def migrate(dsn: str, *, schema: str = "pgqueue", revision: str = "head") -> None:
    """Bring a database's schema up or down to a revision, on a new connection.

    Args:
        dsn: where the database is, for libpq.
        schema: the schema's name; it is made if it does not exist.
        revision: a revision, ``head`` for the latest, or ``base`` for none.

    Raises:
        ConfigurationError: there is no such revision.
        DatabaseError: the database refused a statement.
        SchemaTooNew: a later release has upgraded the schema; see :func:`upgrade`.
        psycopg.OperationalError: no connection could be made.
    """
    import psycopg  # noqa: PLC0415 - only migrations need it
    from sqlalchemy import create_engine  # noqa: PLC0415 - only migrations need it
    from sqlalchemy.pool import NullPool  # noqa: PLC0415 - only migrations need it

    with psycopg.connect(dsn, client_encoding="UTF8") as driver, _errors_in_words(revision):
        if (newest := REVISION if revision == "head" else revision) in KNOWN:
            build_ahead.prepare(driver, schema=check_schema(schema), newest=newest)
        engine = create_engine("postgresql+psycopg://", creator=lambda: driver, poolclass=NullPool)
        with engine.begin() as connection:
            if _is_below(connection, schema, revision):
                downgrade(connection, schema=schema, revision=revision)
            else:
                upgrade(connection, schema=schema, revision=revision)


def statements(name: str, schema: str) -> str:
    """The text of a file of ``sql/schema``, for a schema."""
    text = shipped("sql").joinpath("schema", f"{name}.sql").read_text(encoding="utf-8")
    return in_schema(text, schema)


@contextmanager
def _errors_in_words(revision: str) -> Iterator[None]:
    import psycopg  # noqa: PLC0415 - only migrations need it
    from alembic.util import CommandError  # noqa: PLC0415 - only migrations need it
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - only migrations need it

    try:
        yield
    except CommandError as error:
        raise ConfigurationError(f"revision {revision!r}: {error}") from error
    except DBAPIError as error:
        raise DatabaseError(f"the database refused: {error.orig}") from error
    except psycopg.Error as error:
        raise DatabaseError(f"the database refused: {error}") from error


@contextmanager
def _beside_another_migration() -> Iterator[None]:
    """Restore ``alembic.context`` and ``alembic.op`` for the migration that called this one, if one did.

    Alembic keeps the running migration in these modules: a nested migration leaves them empty, and two migrations in
    threads of one process overwrite each other's.
    """
    from alembic import context, op  # noqa: PLC0415 - only migrations need it

    with _one_at_a_time:
        outer = [getattr(module, "_proxy", None) for module in (context, op)]
        try:
            yield
        finally:
            for proxy in filter(None, outer):
                proxy._install_proxy()  # noqa: SLF001 - there is no public way


def _config(schema: str, connection: Any) -> "Config":  # noqa: ANN401 - SQLAlchemy stays unimported
    from alembic.config import Config  # noqa: PLC0415 - only migrations need it

    config = Config()
    config.set_main_option("script_location", str(Path(str(shipped("migrations")))).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["schema"] = catalogue_of(schema).schema
    return config


class _NewerSchema(NamedTuple):
    """What is known of a schema that a later release has upgraded.

    Attributes:
        revision: the schema's.
        oldest_code: the oldest release that may work on it, by its revision.
    """

    revision: str
    oldest_code: str

    @property
    def allows_this(self) -> bool:
        return self.oldest_code <= REVISION

    def refusal(self, schema: str) -> SchemaTooNew:
        return SchemaTooNew(
            f'schema "{schema}" is at revision {self.revision}, and this release knows revisions up to {REVISION}: only the release '
            "that upgraded the schema can change it. Nothing was changed: run the migration with that release"
        )


def _newer(connection: "Connection", schema: str) -> _NewerSchema | None:
    from sqlalchemy import text  # noqa: PLC0415 - only migrations need it

    current = _current(connection, schema)
    if current is None or current <= REVISION:
        return None
    query = f"select coalesce(max(oldest_code), '') from {check_schema(schema)}.compatibility"
    return _NewerSchema(current, str(connection.execute(text(query)).scalar_one()))


def _current(connection: "Connection", schema: str) -> str | None:
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415 - only migrations need it

    options = {"version_table_schema": schema}
    return MigrationContext.configure(connection, opts=options).get_current_revision()


def _is_below(connection: "Connection", schema: str, revision: str) -> bool:
    current = _current(connection, schema)
    if current is None or revision == "head":
        return False
    return revision == "base" or revision < current

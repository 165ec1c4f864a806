"""The schema: installing, upgrading and checking it.

``sql/schema/NNNN_what.{up,down}.sql`` is the one source. Alembic's revisions in ``migrations/`` run those
files; the revision is kept in ``alembic_version`` inside the schema itself, so that a user's own Alembic
history stays apart from it. ``compatibility.oldest_code`` says which code may work on the schema: a
migration raises it only when older code would break, so workers of the previous release keep running while
the schema is upgraded beneath them.

SQLAlchemy and Alembic are imported here only when something is migrated; workers never load them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgqueue.errors import ConfigurationError, DatabaseError, SchemaMissing, SchemaTooNew, SchemaTooOld
from pgqueue.store.catalogue import MIGRATE_HINT, catalogue_of, in_schema
from pgqueue.store.plan import Statement, Steps, plan

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

REVISION = "0004"
"""The revision that this code is written for."""

_one_at_a_time = threading.RLock()


@plan
def verify(schema: str, *, migrate_hint: str = MIGRATE_HINT) -> Steps[str]:
    """Check that the schema is one this code can work with; returns its revision.

    Args:
        schema: its name.
        migrate_hint: what to tell a user whose tables are missing or too old.

    Raises:
        SchemaMissing: it was never installed.
        SchemaTooOld: this code needs a later revision.
        SchemaTooNew: the schema says that this code is too old for it.
    """
    rows = yield Statement("schema_state", {})
    revision, oldest_code = rows[0]
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
    return str(revision)


def upgrade(connection: "Connection", *, schema: str = "pgqueue", revision: str = "head") -> None:
    """Bring the schema up to a revision, in the connection's transaction.

    Call it from a revision of your own Alembic history (``upgrade(op.get_bind())``) to keep both in step.

    Args:
        connection: a SQLAlchemy connection on the postgresql+psycopg dialect; within ``run_sync`` also an
            asyncio one on that or on postgresql+asyncpg.
        schema: where the tables are, or are to be.
        revision: a revision, or ``head``.
    """
    from alembic import command  # noqa: PLC0415 - heavy, and workers never migrate

    with _beside_another_migration():
        command.upgrade(_config(schema, connection), revision)


def run_script(connection: "Connection", script: str) -> None:
    """Run many statements at once, on the driver's own connection: SQLAlchemy would take their colons for its own.

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
    """Whether there is more than comments in it: asyncpg fails on the answer to a script without a statement."""
    return any(line and not line.startswith("--") for line in map(str.strip, script.splitlines()))


def run_revision_file(name: str) -> None:
    """Run a file of ``sql/schema`` within the revision that Alembic is running, or print it where it only prints.

    Args:
        name: the file, without its ``.sql``.
    """
    from alembic import context, op  # noqa: PLC0415 - as above

    script = statements(name, context.config.attributes["schema"])
    if context.is_offline_mode():
        context.get_context().impl.static_output(script)
    else:
        run_script(op.get_bind(), script)


def downgrade(connection: "Connection", *, schema: str = "pgqueue", revision: str = "base") -> None:
    """Take the schema down to a revision; jobs are lost with the tables. Arguments as for :func:`upgrade`."""
    from alembic import command  # noqa: PLC0415 - as above

    with _beside_another_migration():
        command.downgrade(_config(schema, connection), revision)


def upgrade_script(*, schema: str = "pgqueue", revision: str = "head") -> None:
    """Print the SQL that brings an empty database up to a revision, for somebody else to run."""
    from alembic import command  # noqa: PLC0415 - as above

    with _errors_in_words(revision):
        command.upgrade(_config(schema, None), revision, sql=True)


def migrate(dsn: str, *, schema: str = "pgqueue", revision: str = "head") -> None:
    """Bring a database's schema up or down to a revision, on a connection of our own.

    Args:
        dsn: where the database is, for libpq.
        schema: where the tables are, or are to be.
        revision: a revision, ``head`` for the latest, or ``base`` for none.

    Raises:
        ConfigurationError: there is no such revision.
        DatabaseError: the database refused a statement.
        psycopg.OperationalError: there is no connection to be had.
    """
    import psycopg  # noqa: PLC0415 - as above
    from sqlalchemy import create_engine  # noqa: PLC0415 - as above
    from sqlalchemy.pool import NullPool  # noqa: PLC0415 - as above

    with psycopg.connect(dsn) as driver, _errors_in_words(revision):
        engine = create_engine("postgresql+psycopg://", creator=lambda: driver, poolclass=NullPool)
        with engine.begin() as connection:
            if _is_below(connection, schema, revision):
                downgrade(connection, schema=schema, revision=revision)
            else:
                upgrade(connection, schema=schema, revision=revision)


def statements(name: str, schema: str) -> str:
    """The text of a file of ``sql/schema``, for a schema."""
    text = files("pgqueue.sql").joinpath("schema", f"{name}.sql").read_text(encoding="utf-8")
    return in_schema(text, schema)


@contextmanager
def _errors_in_words(revision: str) -> Iterator[None]:
    """Alembic's and SQLAlchemy's errors as ours."""
    import psycopg  # noqa: PLC0415 - as above
    from alembic.util import CommandError  # noqa: PLC0415 - as above
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - as above

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
    """Give ``alembic.context`` and ``alembic.op`` back to the migration that called us, if one did.

    Alembic keeps the running migration in these modules: a nested one leaves them empty, and two in threads
    of one process take each other's.
    """
    from alembic import context, op  # noqa: PLC0415 - as above

    with _one_at_a_time:
        outer = [getattr(module, "_proxy", None) for module in (context, op)]
        try:
            yield
        finally:
            for proxy in filter(None, outer):
                proxy._install_proxy()  # noqa: SLF001 - there is no public way


def _config(schema: str, connection: Any) -> "Config":  # noqa: ANN401 - SQLAlchemy stays unimported
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config()
    config.set_main_option("script_location", str(Path(str(files("pgqueue.migrations")))).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["schema"] = catalogue_of(schema).schema
    return config


def _is_below(connection: "Connection", schema: str, revision: str) -> bool:
    """Whether the revision lies below where the schema is."""
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415 - as above

    options = {"version_table_schema": schema}
    current = MigrationContext.configure(connection, opts=options).get_current_revision()
    if current is None or revision == "head":
        return False
    return revision == "base" or revision < current

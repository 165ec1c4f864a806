"""How a Django migration runs one of the schema's own revisions, the same that ``pgqueue migrate`` runs.

``migrate`` runs them on Django's connection, within its transaction. ``sqlmigrate`` prints their SQL. Other databases of
the project are not changed.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.state import ProjectState

from pgqueue.django import conf
from pgqueue.store.connections.drivers import psycopg_connection
from pgqueue.store.schema import schema

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection

TRANSACTION = re.compile(r"^(?:BEGIN|COMMIT);\n+", re.MULTILINE)


class Revision(Operation):
    """One revision of the schema, up and down."""

    category = OperationCategory.SQL

    def __init__(self, revision: str, before: str = "base") -> None:
        """Name the revision.

        Args:
            revision: the revision to upgrade to.
            before: the revision before it, to downgrade to.
        """
        self.revision = revision
        self.before = before

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: the models are unmanaged."""

    def database_forwards(
        self,
        app_label: str,  # noqa: ARG002 - Django's signature
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - Django's signature
        to_state: ProjectState,  # noqa: ARG002 - Django's signature
    ) -> None:
        """Upgrade the schema to the revision; if ``pgqueue migrate`` has done so, do nothing."""
        _migrate(schema_editor, schema.upgrade, self.revision, f"{self.before}:{self.revision}")

    def database_backwards(
        self,
        app_label: str,  # noqa: ARG002 - Django's signature
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - Django's signature
        to_state: ProjectState,  # noqa: ARG002 - Django's signature
    ) -> None:
        """Downgrade the schema to the revision before; jobs are lost with the tables."""
        _migrate(schema_editor, schema.downgrade, self.before, f"{self.revision}:{self.before}")

    def describe(self) -> str:
        """For ``migrate --plan``."""
        return f"Bring pgqueue's schema to revision {self.revision}"

    @property
    def migration_name_fragment(self) -> str:
        """The name's part for Django's ``squashmigrations``."""
        return f"revision_{self.revision}"


def _migrate(
    schema_editor: BaseDatabaseSchemaEditor, move: Callable[..., None], revision: str, span: str
) -> None:
    configured = conf.read()
    # Only the database of the project's queue has the schema.
    if schema_editor.connection.alias != configured.alias:
        return
    name = configured.options.get("schema", "pgqueue")
    if schema_editor.collect_sql:
        schema_editor.execute(_script(name, span, down=move is schema.downgrade), params=None)
        return
    with (
        schema_editor.connection.wrap_database_errors,
        as_sqlalchemy(psycopg_connection(schema_editor.connection)) as connection,
    ):
        move(connection, schema=name, revision=revision)


def _script(name: str, span: str, *, down: bool) -> str:
    """Return the SQL from one revision to another, without its transaction, which is Django's."""
    from alembic import command  # noqa: PLC0415 - heavy, and only migrations need it

    config = schema._config(name, None)  # noqa: SLF001 - the same scripts, printed
    config.output_buffer = printed = io.StringIO()
    (command.downgrade if down else command.upgrade)(config, span, sql=True)
    return TRANSACTION.sub("", printed.getvalue()).strip()


@contextmanager
def as_sqlalchemy(connection: "psycopg.Connection[Any]") -> "Iterator[Connection]":
    """Django's connection as a SQLAlchemy connection, for Alembic; only Django ends its transaction."""
    from sqlalchemy import create_engine  # noqa: PLC0415 - heavy, and only migrations need it
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - heavy, and only migrations need it
    from sqlalchemy.pool import NullPool  # noqa: PLC0415 - heavy, and only migrations need it

    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: _DjangosConnection(connection),
        poolclass=NullPool,
        use_native_hstore=False,
    )
    try:
        with engine.connect() as wrapped:
            yield wrapped
    except DBAPIError as error:
        raise (error.orig or error) from error


class _DjangosConnection:
    """A psycopg connection that SQLAlchemy can neither commit, roll back nor close."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the connection
        return getattr(self._connection, name)

    def commit(self) -> None:
        """Do nothing: Django commits."""

    def rollback(self) -> None:
        """Do nothing: Django rolls back."""

    def close(self) -> None:
        """Do nothing: Django closes."""

    def add_notice_handler(self, handler: object) -> None:
        """Do nothing: the connection is Django's."""

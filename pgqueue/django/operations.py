"""How a Django migration runs one of the schema's own revisions, the very ones that ``pgqueue migrate`` runs.

``migrate`` runs them on Django's connection, within its transaction. ``sqlmigrate`` prints what they would run.
Another database of the project is left alone.
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
from pgqueue.store import schema
from pgqueue.store.drivers import psycopg_connection

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection

TRANSACTION = re.compile(r"^(?:BEGIN|COMMIT);\n+", re.MULTILINE)


class Revision(Operation):
    """One revision of the schema, there and back."""

    category = OperationCategory.SQL

    def __init__(self, revision: str, before: str = "base") -> None:
        """Name it.

        Args:
            revision: the revision to bring the schema to.
            before: the one before it, for the way back.
        """
        self.revision = revision
        self.before = before

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: the models are unmanaged."""

    def database_forwards(
        self,
        app_label: str,  # noqa: ARG002 - Django's signature
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - as above
        to_state: ProjectState,  # noqa: ARG002 - as above
    ) -> None:
        """Bring the schema up to the revision; where ``pgqueue migrate`` has done so, there is nothing to do."""
        _go(schema_editor, schema.upgrade, self.revision, f"{self.before}:{self.revision}")

    def database_backwards(
        self,
        app_label: str,  # noqa: ARG002 - Django's signature
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - as above
        to_state: ProjectState,  # noqa: ARG002 - as above
    ) -> None:
        """Take the schema down to the revision before; jobs are lost with the tables."""
        _go(schema_editor, schema.downgrade, self.before, f"{self.revision}:{self.before}")

    def describe(self) -> str:
        """For ``migrate --plan``."""
        return f"Bring pgqueue's schema to revision {self.revision}"

    @property
    def migration_name_fragment(self) -> str:
        """For whoever squashes it."""
        return f"revision_{self.revision}"


def _go(schema_editor: BaseDatabaseSchemaEditor, move: Callable[..., None], revision: str, span: str) -> None:
    """Move the schema, or print how; in the project's queue's database only."""
    configured = conf.read()
    if schema_editor.connection.alias != configured.alias:
        return
    name = configured.options.get("schema", "pgqueue")
    if schema_editor.collect_sql:
        schema_editor.execute(_script(name, span, down=move is schema.downgrade), params=None)
        return
    with (
        schema_editor.connection.wrap_database_errors,
        lent(psycopg_connection(schema_editor.connection)) as connection,
    ):
        move(connection, schema=name, revision=revision)


def _script(name: str, span: str, *, down: bool) -> str:
    """The SQL of the revisions from one to another. Whether it is all one transaction is for Django to say."""
    from alembic import command  # noqa: PLC0415 - heavy, and only migrations need it

    config = schema._config(name, None)  # noqa: SLF001 - the same scripts, printed
    config.output_buffer = printed = io.StringIO()
    (command.downgrade if down else command.upgrade)(config, span, sql=True)
    return TRANSACTION.sub("", printed.getvalue()).strip()


@contextmanager
def lent(connection: "psycopg.Connection[Any]") -> "Iterator[Connection]":
    """Django's connection as SQLAlchemy's, for Alembic; its transaction stays Django's to end."""
    from sqlalchemy import create_engine  # noqa: PLC0415 - as above
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - as above
    from sqlalchemy.pool import NullPool  # noqa: PLC0415 - as above

    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: _Lent(connection),
        poolclass=NullPool,
        use_native_hstore=False,
    )
    try:
        with engine.connect() as lent:
            yield lent
    except DBAPIError as error:
        raise (error.orig or error) from error


class _Lent:
    """A psycopg connection that whoever borrows it can neither end the transaction of, nor close."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the connection has
        return getattr(self._connection, name)

    def commit(self) -> None:
        """Leave it to Django."""

    def rollback(self) -> None:
        """Leave it to Django."""

    def close(self) -> None:
        """Leave it to Django."""

    def add_notice_handler(self, handler: object) -> None:
        """Leave the connection as it is."""

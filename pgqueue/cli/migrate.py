"""``pgqueue migrate``: install, upgrade, print or check the schema. :mod:`pgqueue.store.schema` does the work."""

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.errors import ConfigurationError, DatabaseError, SchemaError
from pgqueue.store import schema
from pgqueue.store.database import Database


@click.command()
@click.option(
    "--to", metavar="REVISION", help="Up or down to this one; base takes the schema and its jobs away."
)
@click.option("--sql", is_flag=True, help="Print the SQL for an empty database in place of running it.")
@click.option("--check", is_flag=True, help="Say whether the schema can be worked with; exit code 1 if not.")
@with_queue
def migrate(queue: PgQueue, /, *, to: str | None, sql: bool, check: bool) -> None:
    """Bring the schema up to this release; running workers go on meanwhile."""
    if check and (sql or to):
        raise click.UsageError("--check changes nothing and prints no SQL; give it alone")
    database, revision = queue.database, to or "head"
    if sql:
        _print(database, revision)
    elif check:
        _check(database)
    else:
        _migrate(database, revision)
        click.echo(f'schema "{database.catalogue.schema}" is at revision {to or schema.REVISION}')


def _print(database: Database, revision: str) -> None:
    from alembic.util import CommandError  # noqa: PLC0415 - heavy, and --check needs none of it

    try:
        schema.upgrade_script(schema=database.catalogue.schema, revision=revision)
    except CommandError as error:
        raise ConfigurationError(f"--to {revision}: {error}") from error


def _check(database: Database) -> None:
    name = database.catalogue.schema
    try:
        revision = database.run(schema.verify(name))
    except SchemaError as error:
        click.echo(f"pgqueue: {error}", err=True)
        click.get_current_context().exit(1)
    click.echo(f'schema "{name}" is at revision {revision}')


def _migrate(database: Database, revision: str) -> None:
    from alembic.util import CommandError  # noqa: PLC0415 - as above
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - as above

    database.connect().close()  # fails in words, where SQLAlchemy would wrap them in its own
    try:
        schema.migrate(database.dsn, schema=database.catalogue.schema, revision=revision)
    except CommandError as error:
        raise ConfigurationError(f"--to {revision}: {error}") from error
    except DBAPIError as error:
        raise DatabaseError(f"the database refused: {error.orig}") from error

"""``pgqueue migrate``: install, upgrade, print or check the schema. :mod:`pgqueue.store.schema.schema` does the work."""

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.errors import SchemaError
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import without_secrets
from pgqueue.store.schema import schema
from pgqueue.store.shards.sharded import ShardedDatabase


@click.command()
@click.option(
    "--to", metavar="REVISION", help="Go up or down to this revision; base drops the schema with all jobs."
)
@click.option("--sql", is_flag=True, help="Print the SQL for an empty database, and run nothing.")
@click.option(
    "--check",
    is_flag=True,
    help="Only check the tables; the exit code is 1 if this release cannot work with them.",
)
@with_queue
def migrate(queue: PgQueue, /, *, to: str | None, sql: bool, check: bool) -> None:
    """Install pgqueue's tables, or upgrade them to this release. Running workers continue."""
    if check and (sql or to):
        raise click.UsageError("--check changes nothing and prints no SQL; give it alone")
    database, revision = queue.database, to or "head"
    if sql:
        schema.upgrade_script(schema=database.catalogue.schema, revision=revision)
        return
    several = database.databases if isinstance(database, ShardedDatabase) else []
    for one in several or [database]:
        where = f"{without_secrets(one.dsn)}: " if several else ""
        if check:
            _check(one, where)
        else:
            _migrate(one, revision, to, where)


def _migrate(database: Database, revision: str, to: str | None, where: str) -> None:
    database.connect().close()  # its error is one line, without the password
    direct = database.listen_dsn or database.dsn  # past a pooler, where a way is known
    schema.migrate(direct, schema=database.catalogue.schema, revision=revision)
    reached = to or database.run(schema.verify(database.catalogue.schema))
    click.echo(f'{where}schema "{database.catalogue.schema}" is at revision {reached}')


def _check(database: Database, where: str) -> None:
    name = database.catalogue.schema
    try:
        revision = database.run(schema.verify(name))
    except SchemaError as error:
        click.echo(f"pgqueue: {where}{error}", err=True)
        click.get_current_context().exit(1)
    click.echo(f'{where}schema "{name}" is at revision {revision}')

"""``pgqueue grants``: print the SQL that gives a PostgreSQL role the rights that its program needs, or run it."""

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.values import names
from pgqueue.store.schema.grants import EXTRAS, ROLES, Role, grant_statements, revoke_statements


@click.command()
@click.argument("role", type=click.Choice(ROLES))
@click.option("--to", "name", metavar="NAME", required=True, help="The role in PostgreSQL, which exists.")
@click.option("--queues", type=names, help="Of a producer: it may enqueue to these queues alone.")
@click.option("--also", type=names, help=f"Of a producer: what it also uses: {', '.join(EXTRAS)}.")
@click.option("--sql-only", is_flag=True, help="Of a producer: it enqueues by the SQL function alone.")
@click.option("--revoke", is_flag=True, help="Take all rights away, and a producer's limit to queues.")
@click.option("--apply", is_flag=True, help="Run the SQL as well, in one transaction.")
@with_queue
def grants(
    queue: PgQueue,
    /,
    *,
    role: Role,
    name: str,
    queues: list[str] | None,
    also: list[str] | None,
    sql_only: bool,
    revoke: bool,
    apply: bool,
) -> None:
    """Print the SQL that gives a role its rights: an owner, a worker, a producer, a monitor, a reader or an operator."""
    schema = queue.database.catalogue.schema
    if revoke:
        if queues or also or sql_only:
            raise click.UsageError(
                "--revoke takes all rights away; give it without --queues, --also and --sql-only"
            )
        statements = revoke_statements(role, name, schema=schema)
    else:
        statements = grant_statements(
            role, name, schema=schema, queues=queues, also=also or (), sql_alone=sql_only
        )
    script = "".join(f"{statement};\n" for statement in statements)
    click.echo(script, nl=False)
    if apply:
        with queue.database.connect() as connection, connection.transaction():
            connection.execute("set local lock_timeout = '1s'")
            connection.execute(script.encode())
        click.echo("-- done", err=True)

"""``pgqueue bench clean``: drops the bench's schema, if an earlier bench left one."""

import click

from pgqueue.cli.app import Settings
from pgqueue.cli.bench import place
from pgqueue.cli.bench.place import SCHEMA
from pgqueue.cli.bench.stage import database


@click.command()
@click.pass_obj
def clean(settings: Settings, /) -> None:
    """Drop the bench's schema, if an earlier bench could not."""
    with place.alone(database(settings).dsn) as connection:
        dropped = place.drop(connection)
    click.echo(f'schema "{SCHEMA}" is dropped' if dropped else f'there is no schema "{SCHEMA}"')

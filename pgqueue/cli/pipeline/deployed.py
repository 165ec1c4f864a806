"""``pgqueue pipeline deployed``: records when a version of your code went live, or lists the recorded versions."""

from datetime import datetime

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, local, print_json, print_table
from pgqueue.cli.values import instant
from pgqueue.store.pipeline import rollups


@click.command()
@click.argument("version", required=False)
@click.option("--at", type=instant, metavar="TIME", help="When it went live, in ISO 8601.  [default: now]")
@json_option
@with_queue
def deployed(queue: PgQueue, /, *, version: str | None, at: datetime | None, as_json: bool) -> None:
    """Record that VERSION of your code went live. The report uses it to say what became slower.

    Without VERSION, list the recorded versions, newest first.
    """
    if version is None:
        if at is not None:
            raise click.UsageError("--at says when a version went live: name the VERSION, too.")
        found = queue.database.run(rollups.deploys())
    else:
        if not version.strip():
            raise click.UsageError("VERSION is empty: name the version, such as 1.4.0 or a commit.")
        found = [queue.database.run(rollups.note_deploy(version, at=at))]
    if as_json:
        print_json(found if version is None else found[0])
    elif version is None:
        rows = [(one.deployed_at, one.version) for one in found]
        print_table(
            ("live since", "version"),
            rows,
            empty="no version is recorded; record one with `pgqueue pipeline deployed VERSION`",
        )
    else:
        click.echo(f"{found[0].version}: live since {local(found[0].deployed_at)}")

"""``pgqueue why``: say in one sentence why a job does not run; with ``--json`` also the facts behind it."""

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, spelled_out
from pgqueue.cli.values import JOB_ID


@click.command()
@click.argument("job_id", metavar="JOB", type=JOB_ID)
@json_option
@with_queue
def why(queue: PgQueue, /, *, job_id: int, as_json: bool) -> None:
    """Say why the job with the id JOB does not run, or how it runs or ended.

    The exit code is 1 if there is no record of it.
    """
    found = queue.why(job_id)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        click.echo(spelled_out(found.sentence), err=found.state is None)
    if found.state is None:
        click.get_current_context().exit(1)

"""``pgqueue why``: why a job does not run."""

from functools import partial

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, say
from pgqueue.cli.values import JOB_ID
from pgqueue.values.insight.why import Why


@click.command()
@click.argument("job_id", metavar="JOB", type=JOB_ID)
@json_option
@with_queue
def why(queue: PgQueue, /, *, job_id: int, as_json: bool) -> None:
    """Say why the job with the id JOB does not run, or how it runs or ended.

    The exit code is 1 if there is no record of it.
    """
    found = why_of(queue, job_id)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        say(found.sentence, err=found.state is None)
    if found.state is None:
        click.get_current_context().exit(1)


def why_of(queue: PgQueue, job_id: int) -> Why:
    """Why a job does not run, without secrets."""
    found, hides = queue.why(job_id), queue.redaction
    if found.state is None:
        return found
    return hides.why(found, queue.job(job_id), partial(hides.message, job_of=queue.job))

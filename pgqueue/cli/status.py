"""``pgqueue status``: whether all is right with the queue, and its problems, the worst first."""

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, say

COLOURS = {"critical": "red", "warning": "yellow", "info": None}


@click.command()
@json_option
@with_queue
def status(queue: PgQueue, /, *, as_json: bool) -> None:
    """Say whether all is right, and name each problem, the worst first, with a command that solves it or shows more.

    The exit code is 1 while a problem is critical: jobs do not run, or fail.
    """
    found = queue.redaction.shown(queue.insight.health())
    if as_json:
        print_json(found)
    else:
        if found.well:
            say(found.sentence, colour="green")
        for problem in found.problems:
            say(f"{problem.level}: {problem.sentence}", colour=COLOURS[problem.level])
            if problem.command is not None:
                say(f"  {problem.command}", indent=2)
    if any(one.level == "critical" for one in found.problems):
        click.get_current_context().exit(1)

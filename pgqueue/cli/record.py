"""One job's record, as ``pgqueue jobs show`` prints it: for people, as JSON, or as a test."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.reproduction import written_test
from pgqueue.cli.output import json_option, local, print_json, spelled_out, zone
from pgqueue.cli.progress import words
from pgqueue.cli.values import JOB_ID
from pgqueue.values.jobs.job import AttemptError, Job

F = TypeVar("F", bound=Callable[..., Any])


def record_options(verb: F) -> F:
    """Which job, and how it is shown."""
    for add in (
        json_option,
        click.option(
            "--pytest",
            "as_pytest",
            is_flag=True,
            help="Print a test that runs the task with the job's arguments, and fails until the task is mended.",
        ),
        click.argument("job_id", metavar="ID", type=JOB_ID),
    ):
        verb = add(verb)
    return verb


def show_record(queue: PgQueue, job: Job, *, as_json: bool, as_pytest: bool) -> None:
    """Print the record of a job.

    Raises:
        InvalidOption: a test is asked for, and the job's arguments are not kept.
    """
    if as_json and as_pytest:
        raise click.UsageError("give --json or --pytest, not both")
    if as_pytest:
        click.echo(
            written_test(queue, job).encode(), nl=False
        )  # Python reads UTF-8, whatever the shell speaks
        return
    progress = queue.progress(job.id)
    if as_json:
        print_json({**msgspec.to_builtins(job), "progress": progress})
        return
    for name in job.__struct_fields__:
        value = getattr(job, name)
        if name != "errors" and value is not None:
            click.echo(f"{name:<13}{_show_value(name, value)}")
    if progress is not None:
        click.echo(f"{'progress':<13}{words(progress)}, at {_show_value('at', progress.at)}")
    if not job.state.ended:
        click.echo(f"{'now':<13}{spelled_out(queue.why(job.id).sentence)}")
    for error in job.errors:
        _show_error(error)


def _show_value(name: str, value: object) -> str:
    if isinstance(value, datetime):
        return f"{local(value)} {zone()}"
    text = msgspec.json.encode(value).decode() if name in {"args", "result", "meta"} else str(value)
    return spelled_out(text)


def _show_error(error: AttemptError) -> None:
    at = f", {local(error.at)} {zone()}" if error.at else ""
    click.echo(f"\nattempt {error.attempt}{at}: {spelled_out(error.type)}: {spelled_out(error.message)}")
    if error.traceback:
        click.echo(spelled_out(error.traceback.rstrip(), keep="\n"))
    if error.left_out:
        click.echo(f"\n({error.left_out} more errors followed; only the first and the last ones are kept)")

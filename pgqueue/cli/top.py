"""``pgqueue top``: the command. The screen is in :mod:`pgqueue.cli.top_screen`, what it shows in :mod:`pgqueue.cli.top_snapshot`."""

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import top_snapshot
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table, say
from pgqueue.cli.values import LENGTH
from pgqueue.errors import ConfigurationError
from pgqueue.values.hints import missing_extra

if TYPE_CHECKING:
    from pgqueue.cli.top_screen import Top
TEN_MINUTES = timedelta(minutes=10)


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(0.5, 60),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--window", type=LENGTH, default=TEN_MINUTES, help="Over how long tasks are summed up; without it 10min."
)
@click.option("--once", is_flag=True, help="Print it once, as text, and end; so it does into a pipe.")
@click.option("--read-only", is_flag=True, help="Keys change nothing.")
@json_option
@with_queue
def top(
    queue: PgQueue, /, *, interval: float, window: timedelta, once: bool, read_only: bool, as_json: bool
) -> None:
    """Show queues, workers, tasks and running jobs, live.

    The first line says whether all is right. Tab and the arrow keys select a row; p pauses a queue, x closes a queue or makes a worker quiet,
    r retries dead jobs, c cancels a running job. Each asks first. Enter opens a running job. Space stops the figures, q ends.
    """
    queue.database.verify()
    if as_json:
        print_json(top_snapshot.read(queue, window))
    elif once or not sys.stdout.isatty():
        _print(top_snapshot.read(queue, window))
    else:
        screen()(queue, interval=interval, window=window, read_only=read_only).run()


def screen() -> type["Top"]:
    """The screen (:mod:`pgqueue.cli.top_screen`).

    Raises:
        ConfigurationError: Textual is not installed.
    """
    try:
        from pgqueue.cli.top_screen import Top  # noqa: PLC0415 - Textual is an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            missing_extra("top", "pgqueue top needs Textual, and --once prints the figures without it")
        ) from error
    return Top


def _print(found: top_snapshot.Snapshot) -> None:
    say(top_snapshot.verdict(found)[0])
    say(top_snapshot.summary(found))
    for heads, rows, none in (
        (top_snapshot.QUEUES, top_snapshot.queue_rows(found), "no queues"),
        (top_snapshot.TASKS, top_snapshot.task_rows(found), "no task has run"),
        (top_snapshot.WORKERS, top_snapshot.worker_rows(found), "no workers"),
        (top_snapshot.JOBS, top_snapshot.job_rows(found), "no running jobs"),
    ):
        click.echo()
        print_table(heads, [*rows.values()], empty=none)

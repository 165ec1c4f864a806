"""The progress of a job as people see it: one line, or on a terminal a bar that moves until the job has ended."""

import time
from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.output import spelled_out
from pgqueue.values.jobs.job import Job
from pgqueue.values.jobs.note import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

EVERY = 0.5
"""Seconds between two looks. A worker writes progress about once a second."""


def words(progress: Progress) -> str:
    """As in ``3 of 4 (75 %): image 3``."""
    done = f"{progress.done:,}"
    if progress.total is not None:
        done += f" of {progress.total:,}"
    if progress.share is not None:
        done += f" ({progress.share:.0%})".replace("%", " %")
    return done if progress.message is None else f"{done}: {spelled_out(progress.message)}"


def watch(queue: PgQueue, job_id: int) -> Job:
    """Show how far a job is until it has ended; its record then. Into a pipe, each change is a line."""
    with _bar() as bar:
        shown, row = "", bar.add_task("", total=None, words="")
        while not (job := queue.job(job_id)).state.ended:
            progress = queue.progress(job_id)
            said = f"{job.state}" if progress is None else f"{job.state}  {words(progress)}"
            if progress is not None:
                bar.update(row, total=progress.total, completed=progress.done)
            bar.update(row, words=said)
            if bar.disable and said != shown:
                click.echo(said)
            shown = said
            time.sleep(EVERY)
    return job


def _bar() -> "Bar":
    from rich.progress import BarColumn, TextColumn  # noqa: PLC0415 - for people only
    from rich.progress import Progress as Bar  # noqa: PLC0415 - for people only

    columns = (BarColumn(), TextColumn("{task.fields[words]}", markup=False))
    console = _console()
    return Bar(*columns, console=console, disable=not console.is_terminal, transient=True)


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - for people only

    return Console()

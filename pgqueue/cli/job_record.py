"""How the shell shows one job: its record as fields, as JSON, as a test or as a text, and how far it is."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.reproduction import written_test
from pgqueue.cli.output import print_fields, print_json, say
from pgqueue.cli.times import local, zone
from pgqueue.cli.why import why_of
from pgqueue.values.jobs.job import AttemptError, Job
from pgqueue.values.jobs.note import Progress
from pgqueue.values.payloads.storable import spelled_out
from pgqueue.values.secret_forms import HIDDEN

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

FIRST = ("task", "queue", "state", "now", "progress", "args")
"""The fields of a job that come first where there is little room."""
EVERY = 0.5
"""Seconds between two looks. A worker writes progress about once a second."""


def show_record(queue: PgQueue, job: Job, *, as_json: bool, as_pytest: bool) -> None:
    """Print the record of a job.

    Raises:
        InvalidOption: a test is asked for, and the job's arguments are not kept.
    """
    if as_json and as_pytest:
        raise click.UsageError("give --json or --pytest, not both")
    job, progress = _shown(queue, job)
    if as_pytest:
        test = written_test(queue, job, hidden=HIDDEN)
        click.echo(test.encode(), nl=False)  # Python reads UTF-8, whatever the shell speaks
        return
    if as_json:
        print_json({**msgspec.to_builtins(job), "progress": progress})
        return
    print_fields(_fields(queue, job, progress))
    for error in job.errors:
        click.echo()
        for line in _error_lines(error):
            say(line)


def record_text(queue: PgQueue, job_id: int) -> str:
    """The record of a job as text: its state, why, its arguments, its last error, and then the rest.

    Raises:
        JobNotFound: there is no record of it.
    """
    job, progress = _shown(queue, queue.job(job_id))
    fields = dict(_fields(queue, job, progress))
    first = [f"{name}: {spelled_out(fields.pop(name))}" for name in FIRST if name in fields]
    error = ["", *map(spelled_out, _error_lines(job.errors[-1]))] if job.errors else []
    return "\n".join([*first, *error, "", *(f"{name}: {spelled_out(text)}" for name, text in fields.items())])


def _shown(queue: PgQueue, job: Job) -> tuple[Job, Progress | None]:
    """Return a job and its progress, without secrets."""
    progress = queue.redaction.shown(queue.progress(job.id), secrets=queue.redaction.secrets_of(job))
    return queue.redaction.job(job), progress


def _fields(queue: PgQueue, job: Job, progress: Progress | None) -> list[tuple[str, str]]:
    fields = [(name, getattr(job, name)) for name in job.__struct_fields__ if name != "errors"]
    shown = [(name, _show_value(name, value)) for name, value in fields if value is not None]
    if progress is not None:
        shown.append(("progress", f"{words(progress)}, at {_show_value('at', progress.at)}"))
    if not job.state.ended:
        shown.append(("now", why_of(queue, job.id).sentence))
    return shown


def _show_value(name: str, value: object) -> str:
    if isinstance(value, datetime):
        return f"{local(value)} {zone()}"
    return msgspec.json.encode(value).decode() if name in {"args", "result", "meta"} else str(value)


def _error_lines(error: AttemptError) -> Iterator[str]:
    at = f", {local(error.at)} {zone()}" if error.at else ""
    yield f"attempt {error.attempt}{at}: {error.type}: {error.message}"
    if error.traceback:
        yield from error.traceback.rstrip().split("\n")
    if error.left_out:
        yield ""
        yield f"({error.left_out} more errors followed; only the first and the last ones are kept)"


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
            progress = queue.redaction.shown(queue.progress(job_id), secrets=queue.redaction.secrets_of(job))
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

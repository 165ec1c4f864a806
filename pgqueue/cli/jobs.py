"""``pgqueue jobs`` and ``pgqueue why``: list and show jobs, run scheduled ones now; cancel, purge, move and reprioritise many."""

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.reproduction import written_test
from pgqueue.cli.app import with_queue
from pgqueue.cli.bulk import criteria, describe_selection, operate, refuse_both, selection_options
from pgqueue.cli.output import (
    READY,
    CommandAnswer,
    attempts,
    by_option,
    json_option,
    last_error,
    local,
    not_changed,
    page_options,
    print_json,
    print_page,
    report,
    zone,
)
from pgqueue.cli.values import JOB_ID, LENGTH, look_up
from pgqueue.cli.verbs import VerbGroup
from pgqueue.values.jobs.job import AttemptError, Job, JobState
from pgqueue.values.jobs.note import Progress
from pgqueue.values.payloads.storable import spelled_out

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
HEADS = ("id", "state", "queue", "task", "priority", "attempts", f"time ({zone()})", "last error")

EVERY = 0.5
"""Seconds between two looks. A worker writes progress about once a second."""


@click.group(cls=VerbGroup)
def jobs() -> None:
    """List or show jobs, see where they are in their code; run, cancel, purge, move or reprioritise them."""


@jobs.command("list")
@click.option(
    "--state",
    type=click.Choice([one.value for one in JobState]),
    multiple=True,
    help="Only jobs in this state; give it again for more states.",
)
@click.option("--unique-key", help="Only jobs with this unique key.")
@page_options
@with_queue
def list_jobs(
    queue: PgQueue,
    /,
    *,
    state: tuple[str, ...],
    queue_name: str | None,
    limit: int,
    as_json: bool,
    **filters: Any,  # noqa: ANN401 - as Insight.search takes them
) -> None:
    """List jobs that match every filter, newest first.

    The time is when the job ended, else when it started, else when it is due.
    """
    found = queue.insight.search(state=state or None, queue=queue_name, limit=limit, **filters)
    print_page(found, HEADS, _row, limit=limit, as_json=as_json)


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option(
    "--pytest",
    "as_pytest",
    is_flag=True,
    help="Print a test that runs the task with the job's arguments, and fails until the task is mended.",
)
@json_option
@click.option("--watch", "watched", is_flag=True, help="First show how far it is, until it has ended.")
@with_queue
def show(queue: PgQueue, /, *, job_id: int, watched: bool, as_json: bool, as_pytest: bool) -> None:
    """Show the record of a job: its fields, its progress, the errors of its failed attempts, and why it does not run."""
    if watched and (as_json or as_pytest):
        raise click.UsageError("--watch is for people, --json and --pytest for programs; give one of them")
    job = watch(queue, job_id) if watched else queue.job(job_id)
    show_record(queue, job, as_json=as_json, as_pytest=as_pytest)


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option(
    "--timeout", type=LENGTH, default="15s", show_default=True, help="How long to wait for the answer."
)
@by_option
@json_option
@with_queue
def stack(queue: PgQueue, /, *, job_id: int, timeout: timedelta, by: str | None, as_json: bool) -> None:
    """Ask the worker of a running job where the job is in its code. The exit code is 1 if it does not answer in time."""
    found = queue.control.stack(job_id, timeout=timeout, by=by)
    if as_json:
        print_json(found)
    else:
        click.echo(f"job {job_id}, {found.worker}:", err=True)
        click.echo(spelled_out(found.said, keep="\n"), err=found.answered_at is None)
    if found.answered_at is None:
        click.get_current_context().exit(1)


@jobs.command()
@click.argument("job_ids", metavar="[ID]...", type=JOB_ID, nargs=-1)
@selection_options(dead=False)
@with_queue
def cancel(queue: PgQueue, /, *, job_ids: tuple[int, ...], **given: Any) -> None:  # noqa: ANN401 - the criteria
    """Cancel jobs: waiting jobs end at once, and workers are asked to stop running ones.

    Name them by ID, by criteria, or all. Criteria cancel up to 1,000 jobs in each transaction. The exit code is 1 if one of
    the IDs had ended already.
    """
    if job_ids:
        refuse_both(given)
        report({job_id: _cancel_answer(queue, job_id) for job_id in job_ids})
        return
    chosen = queue.control.jobs(**criteria(queue, given))
    operate(
        queue,
        given,
        preview=lambda: chosen.preview("cancel"),
        do=lambda progress: chosen.cancel(progress=progress),
        what="cancel {} jobs",
        done=f"cancelled: {describe_selection(given, 'live jobs')}",
    )


@jobs.command()
@selection_options(dead=False)
@with_queue
def purge(queue: PgQueue, /, **given: Any) -> None:  # noqa: ANN401 - the criteria
    """Cancel jobs that wait, and their flows with them; those that run are left alone.

    `pgqueue dead purge` deletes dead jobs.
    """
    chosen = queue.control.jobs(**criteria(queue, given))
    operate(
        queue,
        given,
        preview=lambda: chosen.preview("purge"),
        do=lambda progress: chosen.purge(progress=progress),
        what="cancel {} waiting jobs",
        done=f"cancelled: {describe_selection(given, 'waiting jobs')}",
    )


@jobs.command()
@click.option("--to", metavar="QUEUE", required=True, help="Into which queue.")
@selection_options(dead=False)
@with_queue
def move(queue: PgQueue, /, *, to: str, **given: Any) -> None:  # noqa: ANN401 - the criteria
    """Move jobs that wait to another queue; those that run are left alone."""
    chosen = queue.control.jobs(**criteria(queue, given))
    note_unknown = look_up(queue, to)
    operate(
        queue,
        given,
        preview=lambda: chosen.preview("move", to=to),
        do=lambda progress: chosen.move(to, progress=progress),
        what=f"move {{}} waiting jobs to {to}",
        done=f"moved to {to}: {describe_selection(given, 'waiting jobs')}",
    )
    note_unknown()


@jobs.command()
@click.option(
    "--priority", type=int, required=True, help="The new priority: -100 to 100, higher runs sooner."
)
@selection_options(dead=False)
@with_queue
def reprioritise(queue: PgQueue, /, *, priority: int, **given: Any) -> None:  # noqa: ANN401 - the criteria
    """Give jobs that wait another priority; those that run are left alone."""
    chosen = queue.control.jobs(**criteria(queue, given))
    operate(
        queue,
        given,
        preview=lambda: chosen.preview("reprioritise", priority=priority),
        do=lambda progress: chosen.reprioritise(priority, progress=progress),
        what=f"give {{}} waiting jobs the priority {priority}",
        done=f"got priority {priority}: {describe_selection(given, 'waiting jobs')}",
    )


@jobs.command("run-now")
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
@with_queue
def run_now(queue: PgQueue, /, *, job_ids: tuple[int, ...]) -> None:
    """Make scheduled jobs ready before their time, also those that wait for their next attempt.

    `pgqueue dead retry` is for dead jobs. The exit code is 1 if one of the jobs is not scheduled.
    """
    report({job_id: _ready(queue, job_id) for job_id in job_ids})


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


def _ready(queue: PgQueue, job_id: int) -> CommandAnswer:
    return READY if queue.control.run_now(job_id) else not_changed(queue, job_id)


def _cancel_answer(queue: PgQueue, job_id: int) -> CommandAnswer:
    match queue.cancel(job_id):
        case None:
            return not_changed(queue, job_id)
        case JobState.RUNNING:
            return CommandAnswer(done=True, words="running; its worker is asked to stop it")
        case state:
            return CommandAnswer(done=True, words=str(state))


def _row(job: Job) -> list[object]:
    return [job.id, job.state, job.queue, job.task, job.priority, attempts(job), _when(job), last_error(job)]


def _when(job: Job) -> str:
    if job.ended_at is not None:
        return f"ended {local(job.ended_at)}"
    if job.state is JobState.RUNNING and job.started_at is not None:
        return f"started {local(job.started_at)}"
    return f"due {local(job.run_at)}"


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

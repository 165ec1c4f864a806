"""``pgqueue jobs``: list and show jobs, run scheduled ones now; cancel, purge, move and reprioritise one or many."""

from datetime import timedelta
from typing import Any

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.answers import READY, CommandAnswer, not_changed, report
from pgqueue.cli.app import with_queue
from pgqueue.cli.bulk import criteria, describe_selection, operate, refuse_both, selection_options
from pgqueue.cli.known import look_up
from pgqueue.cli.output import json_option, local, print_json, spelled_out, zone
from pgqueue.cli.pages import attempts, last_error, page_options, print_page
from pgqueue.cli.progress import watch
from pgqueue.cli.record import record_options, show_record
from pgqueue.cli.values import JOB_ID, LENGTH
from pgqueue.cli.verbs import VerbGroup
from pgqueue.values.jobs.job import Job, JobState

HEADS = ("id", "state", "queue", "task", "priority", "attempts", f"time ({zone()})", "last error")


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
@record_options
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
@click.option("--by", help="Who asks; without it you, as user@host.")
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

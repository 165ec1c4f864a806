"""``pgqueue jobs``: list and show jobs, run scheduled ones now; cancel, move and reprioritise many."""

from datetime import datetime, timedelta
from typing import Any

import click

from pgqueue.app.operator import operator_name
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.bulk import criteria, describe_selection, operate, refuse_both, selection_options
from pgqueue.cli.job_record import show_record, watch
from pgqueue.cli.kept_logs import show_logs
from pgqueue.cli.output import (
    READY,
    CommandAnswer,
    attempts,
    json_option,
    last_error,
    not_changed,
    page_options,
    print_json,
    print_page,
    report,
    steers,
)
from pgqueue.cli.table import Column, When
from pgqueue.cli.times import local, zone
from pgqueue.cli.values import JOB_ID, LENGTH, instant, look_up
from pgqueue.cli.verbs import VerbGroup
from pgqueue.errors import DatabaseError, PgQueueError
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.payloads.storable import spelled_out

COLUMNS = (
    "id",
    Column("state", 0, state=True, least=0),
    Column("queue", 4, least=8),
    Column("task", 1, least=16),
    Column("priority", 7),
    Column("attempts", 6, least=0),
    Column("time", 3),
    Column("last error", 5),
)


@click.group(cls=VerbGroup)
def jobs() -> None:
    """List or show jobs, see where they are in their code; run, cancel, move or reprioritise them."""


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
    found = queue.redaction.shown(
        queue.insight.search(state=state or None, queue=queue_name, limit=limit, **filters)
    )
    print_page(found, COLUMNS, _row, limit=limit, as_json=as_json)


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
@click.option(
    "--logs",
    "with_logs",
    is_flag=True,
    help="Show what its attempts logged, where pgqueue.middleware.KeepLogs keeps it, and nothing else.",
)
@click.option("--follow", is_flag=True, help="With --logs: go on with new lines until the job has ended.")
@with_queue
def show(
    queue: PgQueue,
    /,
    *,
    job_id: int,
    watched: bool,
    as_json: bool,
    as_pytest: bool,
    with_logs: bool,
    follow: bool,
) -> None:
    """Show the record of a job: its fields, its progress, the errors of its failed attempts, and why it does not run."""
    if follow and not with_logs:
        raise click.UsageError("--follow goes on with the lines of --logs; give both")
    if with_logs:
        if watched or as_pytest or (follow and as_json):
            raise click.UsageError("--logs stands alone, or with --json or --follow")
        show_logs(queue, job_id, follow=follow, as_json=as_json)
        return
    if watched and (as_json or as_pytest):
        raise click.UsageError("--watch is for people, --json and --pytest for programs; give one of them")
    job = watch(queue, job_id) if watched else queue.job(job_id)
    show_record(queue, job, as_json=as_json, as_pytest=as_pytest)


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option(
    "--timeout", type=LENGTH, default="15s", show_default=True, help="How long to wait for the answer."
)
@steers
@json_option
@with_queue
def stack(queue: PgQueue, /, *, job_id: int, timeout: timedelta, as_json: bool) -> None:
    """Ask the worker of a running job where the job is in its code. The exit code is 1 if it does not answer in time."""
    asked = queue.control.stack(job_id, timeout=timeout)
    found = queue.redaction.shown(asked, secrets=queue.redaction.secrets_of(queue.job(job_id)))
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
@steers
@with_queue
def run_now(queue: PgQueue, /, *, job_ids: tuple[int, ...]) -> None:
    """Make scheduled jobs ready before their time, also those that wait for their next attempt.

    `pgqueue dead retry` is for dead jobs. The exit code is 1 if one of the jobs is not scheduled.
    """
    report({job_id: _ready(queue, job_id) for job_id in job_ids})


@jobs.command()
@click.argument("at", metavar="INSTANT", type=instant)
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
@steers
@with_queue
def reschedule(queue: PgQueue, /, *, at: datetime, job_ids: tuple[int, ...]) -> None:
    """Give scheduled and ready jobs another time: INSTANT, in ISO 8601 with a time zone; one that has passed makes them ready.

    The exit code is 1 if one of the jobs is neither scheduled nor ready.
    """
    moved = CommandAnswer(done=True, words=f"due {local(at)} {zone()}")
    report({one: moved if queue.control.reschedule(one, at) else not_changed(queue, one) for one in job_ids})


@jobs.command()
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
@steers
@with_queue
def copy(queue: PgQueue, /, *, job_ids: tuple[int, ...]) -> None:
    """Enqueue jobs like former ones, live or ended: with their tasks, arguments, queues, priorities and meta, due at once.

    The former jobs are left as they are. The new ones have no unique keys. The exit code is 1 if one cannot be copied.
    """
    report({job_id: _copied(queue, job_id) for job_id in job_ids})


def _ready(queue: PgQueue, job_id: int) -> CommandAnswer:
    return READY if queue.control.run_now(job_id) else not_changed(queue, job_id)


def _copied(queue: PgQueue, job_id: int) -> CommandAnswer:
    try:
        copy_id = queue.enqueue_copy(job_id, by=operator_name(None)).id
    except DatabaseError:
        raise  # of all jobs, not of this one
    except PgQueueError as error:
        return CommandAnswer(done=False, words=str(error))
    return CommandAnswer(done=True, words=f"copied: job {copy_id}")


def _cancel_answer(queue: PgQueue, job_id: int) -> CommandAnswer:
    match queue.cancel(job_id, by=operator_name(None)):
        case None:
            return not_changed(queue, job_id)
        case JobState.RUNNING:
            return CommandAnswer(done=True, words="running; its worker is asked to stop it")
        case state:
            return CommandAnswer(done=True, words=str(state))


def _row(job: Job) -> list[object]:
    return [job.id, job.state, job.queue, job.task, job.priority, attempts(job), _when(job), last_error(job)]


def _when(job: Job) -> When:
    if job.ended_at is not None:
        return When("ended", job.ended_at)
    if job.state is JobState.RUNNING and job.started_at is not None:
        return When("started", job.started_at)
    return When("due", job.run_at)

"""``pgqueue dead``: list dead jobs, make them ready again, or delete them."""

from typing import Any

import click

from pgqueue.app.operator import operator_name
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.bulk import criteria, describe_selection, operate, refuse_both, selection_options
from pgqueue.cli.output import attempts, last_error, page_options, print_page, report, retry_answers
from pgqueue.cli.table import Column
from pgqueue.cli.values import JOB_ID
from pgqueue.cli.verbs import VerbGroup
from pgqueue.store.audit import audited
from pgqueue.store.jobs import control
from pgqueue.values.jobs.job import Job, JobState

COLUMNS = (
    "id",
    Column("queue", 4, least=8),
    Column("task", 1, least=16),
    Column("attempts", 6, least=0),
    Column("died", 3),
    Column("reason", 5, least=0),
    Column("last error", 2, least=16),
)
_ids = click.argument("job_ids", metavar="[ID]...", type=JOB_ID, nargs=-1)


@click.group(cls=VerbGroup)
def dead() -> None:
    """List, retry or delete dead jobs. `pgqueue jobs show` shows one."""


@dead.command("list")
@page_options
@with_queue
def list_dead(
    queue: PgQueue,
    /,
    *,
    queue_name: str | None,
    limit: int,
    as_json: bool,
    **filters: Any,  # noqa: ANN401 - as Insight.search takes them
) -> None:
    """List dead jobs, newest first, with the last error of each.

    `pgqueue jobs show ID` shows the errors of all attempts.
    """
    found = queue.redaction.shown(
        queue.insight.search(state=JobState.DEAD, queue=queue_name, limit=limit, **filters)
    )
    print_page(found, COLUMNS, _row, limit=limit, as_json=as_json)


@dead.command()
@_ids
@selection_options(dead=True)
@click.option(
    "--without-key", is_flag=True, help="Drop their unique keys: they run beside live jobs of their keys."
)
@with_queue
def retry(queue: PgQueue, /, *, job_ids: tuple[int, ...], without_key: bool, **given: Any) -> None:  # noqa: ANN401 - the criteria
    """Make dead jobs ready again, with all their attempts.

    Name them by ID, by criteria, or all. A job stays dead while a live job has its unique key. Criteria retry up to 1,000 jobs
    in each transaction. The exit code is 1 if one of the IDs was not retried, or if jobs match the criteria and none of them was.
    """
    if job_ids:
        refuse_both(given)
        done = queue.database.run(
            audited(
                control.retry_dead(job_ids, without_key=without_key),
                "retry",
                f"jobs {', '.join(map(str, job_ids))}",
                by=operator_name(None),
                jobs=len,
            )
        )
        report(dict(retry_answers(queue, done)))
        return
    chosen = queue.control.dead(**criteria(queue, given))
    operate(
        queue,
        given,
        preview=chosen.preview,
        do=lambda progress: chosen.retry(without_key=without_key, progress=progress),
        what="make {} dead jobs ready again",
        done=f"ready again: {describe_selection(given, 'dead jobs')}",
        asks=False,
    )


@dead.command()
@_ids
@selection_options(dead=True)
@with_queue
def purge(queue: PgQueue, /, *, job_ids: tuple[int, ...], **given: Any) -> None:  # noqa: ANN401 - the criteria
    """Delete dead jobs for ever, with their arguments and errors.

    Name them by ID, by criteria, or all. The exit code is 1 if one of the IDs is not dead.
    """
    if job_ids:
        refuse_both(given)
    chosen = queue.control.dead(**({"ids": job_ids} if job_ids else criteria(queue, given)))
    jobs = f"dead jobs {', '.join(map(str, job_ids))}" if job_ids else describe_selection(given, "dead jobs")
    done = operate(
        queue,
        given,
        preview=chosen.preview,
        do=lambda progress: chosen.purge(progress=progress),
        what="delete {} dead jobs for ever",
        done=f"deleted: {jobs}",
    )
    if done is not None and done.done < len(set(job_ids)):
        click.get_current_context().exit(1)


def _row(job: Job) -> list[object]:
    return [job.id, job.queue, job.task, attempts(job), job.ended_at, job.reason, last_error(job)]

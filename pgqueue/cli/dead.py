"""``pgqueue dead``: list dead jobs, make them ready again, or delete them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.answers import READY, not_changed, report
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import zone
from pgqueue.cli.pages import attempts, last_error, paged, print_page
from pgqueue.cli.values import JOB_ID, LENGTH
from pgqueue.cli.verbs import Group
from pgqueue.store import control
from pgqueue.values.job import Job, JobState

F = TypeVar("F", bound=Callable[..., Any])
HEADS = ("id", "queue", "task", "attempts", f"died ({zone()})", "reason", "last error")


@click.group(cls=Group)
def dead() -> None:
    """List, retry or delete dead jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead jobs: these ids, or those that match every filter, or all."""

    job_ids: tuple[int, ...]
    task: str | None
    queue_name: str | None
    older_than: timedelta | None
    everything: bool

    def __post_init__(self) -> None:
        """Raise an error unless exactly one of the three is given."""
        given = [bool(self.job_ids), self.has_filters, self.everything]
        if not any(given):
            raise click.UsageError("Say which dead jobs: IDs, or --task, --queue and --older-than, or --all.")
        if sum(given) > 1:
            raise click.UsageError(
                "Give IDs, or filters (--task, --queue, --older-than), or --all: only one of the three."
            )

    @property
    def has_filters(self) -> bool:
        """Whether any filter is given."""
        return not (self.task is None and self.queue_name is None and self.older_than is None)

    def filters(self, queue: PgQueue) -> dict[str, Any]:
        """The filters as the queue's parameters; ages are by the database's clock."""
        before = None if self.older_than is None else queue.database.run(control.clock()) - self.older_than
        return {"task": self.task, "queue": self.queue_name, "before": before}

    def __str__(self) -> str:
        """The selection, in words."""
        if self.job_ids:
            return f"dead jobs {', '.join(map(str, self.job_ids))}"
        words = ["all dead jobs" if self.everything else "the dead jobs"]
        words += [f"of task {self.task}"] if self.task is not None else []
        words += [f"of queue {self.queue_name}"] if self.queue_name is not None else []
        words += (
            [f"dead for longer than {str(self.older_than).removesuffix(', 0:00:00')}"]
            if self.older_than is not None
            else []
        )
        return " ".join(words)


def _selecting(verb: F) -> F:
    """The arguments and options that make a selection."""
    for add in (
        click.option("--all", "everything", is_flag=True, help="All dead jobs."),
        click.option("--older-than", type=LENGTH, help="Only jobs that died before this much time."),
        click.option("--queue", "queue_name", help="Only jobs of this queue."),
        click.option("--task", help="Only jobs of this task."),
        click.argument("job_ids", metavar="[ID]...", type=JOB_ID, nargs=-1),
    ):
        verb = add(verb)
    return verb


@dead.command("list")
@paged
@with_queue
def list_dead(
    queue: PgQueue,
    /,
    *,
    queue_name: str | None,
    limit: int,
    as_json: bool,
    **filters: Any,  # noqa: ANN401 - as PgQueue.jobs takes them
) -> None:
    """List dead jobs, newest first, with the last error of each.

    `pgqueue jobs show ID` shows the errors of all attempts.
    """
    found = queue.jobs(state=JobState.DEAD, queue=queue_name, limit=limit, **filters)
    print_page(found, HEADS, _row, limit=limit, as_json=as_json)


@dead.command()
@_selecting
@with_queue
def retry(queue: PgQueue, /, **given: Any) -> None:  # noqa: ANN401 - a selection's fields
    """Make dead jobs ready again, with all their attempts.

    Name them by ID, by filters, or all. The exit code is 1 if one of the IDs could not be retried.
    """
    chosen = Selection(**given)
    if chosen.job_ids:
        revived = set(queue.database.run(control.retry_dead(chosen.job_ids)))
        report({one: READY if one in revived else not_changed(queue, one) for one in chosen.job_ids})
        return
    click.echo(f"{len(queue.retry_dead(**chosen.filters(queue)))} ready again: {chosen}")


@dead.command()
@_selecting
@click.option("--yes", is_flag=True, help="Delete without asking.")
@with_queue
def purge(queue: PgQueue, /, *, yes: bool, **given: Any) -> None:  # noqa: ANN401 - a selection's fields
    """Delete dead jobs for ever, with their arguments and errors.

    Name them by ID, by filters, or all. The exit code is 1 if one of the IDs is not dead.
    """
    chosen = Selection(**given)
    if not yes:
        click.confirm(f"Delete {chosen} for ever?", abort=True, err=True)
    count = queue.purge_dead(chosen.job_ids or None, everything=chosen.everything, **chosen.filters(queue))
    click.echo(f"{count} deleted: {chosen}")
    if count < len(set(chosen.job_ids)):
        click.get_current_context().exit(1)


def _row(job: Job) -> list[object]:
    return [job.id, job.queue, job.task, attempts(job), job.ended_at, job.reason, last_error(job)]

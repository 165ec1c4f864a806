"""``pgqueue dead``: list dead jobs, make them ready again, or delete them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.answers import REMEDIES, report, retried
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import spelled_out, zone
from pgqueue.cli.pages import attempts, last_error, paged, print_page
from pgqueue.cli.values import JOB_ID, LENGTH
from pgqueue.cli.verbs import Group
from pgqueue.store import control
from pgqueue.store.plan import Plan
from pgqueue.store.sweep import run_sweep
from pgqueue.values.job import Job, JobState
from pgqueue.values.retried import Retried

F = TypeVar("F", bound=Callable[..., Any])
SHOWN = 10
"""Dead jobs that are named one by one if a filter leaves them dead."""
TELL_EVERY = 1.0
"""Seconds between two lines of progress."""
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
    error: str | None
    everything: bool

    def __post_init__(self) -> None:
        """Raise an error unless exactly one of the three is given."""
        given = [bool(self.job_ids), self.has_filters, self.everything]
        if not any(given):
            raise click.UsageError(
                "Say which dead jobs: IDs, or --task, --queue, --error and --older-than, or --all."
            )
        if sum(given) > 1:
            raise click.UsageError(
                "Give IDs, or filters (--task, --queue, --error, --older-than), or --all: only one of the three."
            )

    @property
    def has_filters(self) -> bool:
        """Whether any filter is given."""
        return any(one is not None for one in (self.task, self.queue_name, self.older_than, self.error))

    def filters(self, queue: PgQueue) -> dict[str, Any]:
        """The filters as the queue's parameters; ages are by the database's clock."""
        before = None if self.older_than is None else queue.database.run(control.clock()) - self.older_than
        return {"task": self.task, "queue": self.queue_name, "before": before, "error": self.error}

    def __str__(self) -> str:
        """The selection, in words."""
        if self.job_ids:
            return f"dead jobs {', '.join(map(str, self.job_ids))}"
        words = ["all dead jobs" if self.everything else "the dead jobs"]
        words += [f"of task {self.task}"] if self.task is not None else []
        words += [f"of queue {self.queue_name}"] if self.queue_name is not None else []
        words += [f"whose last error is {self.error}"] if self.error is not None else []
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
        click.option("--error", metavar="TYPE", help="Only jobs whose last error is of this type."),
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
@click.option(
    "--without-key", is_flag=True, help="Drop their unique keys: they run beside live jobs of their keys."
)
@with_queue
def retry(queue: PgQueue, /, *, without_key: bool, **given: Any) -> None:  # noqa: ANN401 - a selection's fields
    """Make dead jobs ready again, with all their attempts.

    Name them by ID, by filters, or all. A job stays dead while a live job has its unique key. Filters retry 1,000 jobs in
    each transaction: if you interrupt the command, run it again for the rest. The exit code is 1 if one of the IDs was not
    retried, or if jobs match the filters and none of them was.
    """
    chosen = Selection(**given)
    if chosen.job_ids:
        done = queue.database.run(control.retry_dead(chosen.job_ids, without_key=without_key))
        report(dict(retried(queue, done)))
        return
    steps = control.retrying(**chosen.filters(queue), without_key=without_key)
    done = run_sweep(steps, Progress(queue).run)
    click.echo(spelled_out(f"{len(done)} ready again: {chosen}"))
    _print_left(done)
    if not done and (done.held or done.unreadable):
        click.get_current_context().exit(1)


class Progress:
    """Runs portions of a retry, and tells on stderr, once a second, how many jobs are ready again."""

    def __init__(self, queue: PgQueue) -> None:
        """Nothing is retried yet."""
        self._queue = queue
        self._count = 0
        self._told = time.monotonic()

    def run(self, portion: Plan[tuple[Retried, int | None]]) -> tuple[Retried, int | None]:
        """Run a portion."""
        done, after = self._queue.database.run(portion)
        self._count += len(done)
        if after is not None and time.monotonic() >= self._told + TELL_EVERY:
            self._told = time.monotonic()
            click.echo(f"{self._count} ready again so far", err=True)
        return done, after


def _print_left(done: Retried) -> None:
    """Tell which jobs stay dead, the first of them by name."""
    for one in done.held[:SHOWN]:
        twin = "has ended since" if one.twin is None else f"is job {one.twin}"
        click.echo(
            spelled_out(f"{one.id}: stays dead: the live job with its key {one.unique_key!r} {twin}"),
            err=True,
        )
    if done.held:
        shown = f" (the first {SHOWN} are shown)" if len(done.held) > SHOWN else ""
        click.echo(
            f"{len(done.held)} stay dead, as live jobs have their unique keys{shown}: {REMEDIES}", err=True
        )
    if done.unreadable:
        ids = ", ".join(map(str, done.unreadable[:SHOWN]))
        click.echo(f"{len(done.unreadable)} stay dead, as their arguments cannot be read: {ids}", err=True)


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

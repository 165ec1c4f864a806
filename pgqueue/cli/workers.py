"""``pgqueue workers``: look at workers, and ask them to change their number of slots, to be quiet, to stop, to restart."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_fields, print_json, print_table, say, steers
from pgqueue.cli.table import Column
from pgqueue.cli.values import concurrency as as_concurrency
from pgqueue.cli.verbs import VerbGroup
from pgqueue.values.workers.worker import ALL, SHOWN, Steered, WorkerStatus

F = TypeVar("F", bound=Callable[..., Any])
COLUMNS = (
    Column("id", least=0),
    Column("worker", 0),
    Column("state", 0, state=True, least=0),
    Column("slots", 1),
    Column("chosen from", 5, least=0),
    Column("queues", 2),
    Column("tasks", 4),
    Column("started", 3),
    Column("version", 6, least=0),
)
NOTHING_ASKED = 1
"""The exit code if no worker could be asked."""


@click.group(cls=VerbGroup)
def workers() -> None:
    """List workers, or ask them to change their slots, to be quiet, stop or restart.

    A worker is named by the first characters of its id, or by HOST:PID.
    """


def _names_workers(function: F) -> F:
    for option in (
        steers,
        click.option("--all", "everyone", is_flag=True, help="Ask every live worker."),
        click.argument("worker", metavar="[WORKER]", required=False),
    ):
        function = option(function)
    return function


@workers.command("list")
@json_option
@with_queue
def list_workers(queue: PgQueue, /, *, as_json: bool) -> None:
    """List the workers: their state, slots, queues and tasks, at the last heartbeat."""
    found = queue.redaction.shown(queue.workers.list())
    if as_json:
        print_json([_worker_fields(one) for one in found])
        return
    print_table(COLUMNS, [_row(one) for one in found], empty="no workers")
    for one in found:
        if one.answer is not None:
            say(f"{one}: {one.answer}")


@workers.command()
@click.argument("worker")
@json_option
@with_queue
def show(queue: PgQueue, /, *, worker: str, as_json: bool) -> None:
    """Show a worker, and what it was asked to do."""
    shown = _worker_fields(queue.redaction.shown(queue.workers.get(worker)))
    if as_json:
        print_json(shown)
        return
    print_fields((name, value) for name, value in shown.items() if value is not None)


@workers.command("set")
@_names_workers
@click.option(
    "--concurrency",
    type=as_concurrency,
    metavar="N|MIN-MAX",
    required=True,
    help="How many jobs to run at a time.",
)
@with_queue
def set_slots(
    queue: PgQueue,
    /,
    *,
    worker: str | None,
    everyone: bool,
    concurrency: int | tuple[int, int],
) -> None:
    """Change how many jobs a worker runs at a time. No attempt is cut short."""
    _tell(
        queue.workers.set(_which(worker, everyone), concurrency=concurrency),
        "asked to change its slots",
    )


@workers.command()
@_names_workers
@with_queue
def quiet(queue: PgQueue, /, *, worker: str | None, everyone: bool) -> None:
    """Have a worker claim no more jobs. It finishes those that run, and stays."""
    _tell(queue.workers.quiet(_which(worker, everyone)), "asked to be quiet")


@workers.command()
@_names_workers
@with_queue
def resume(queue: PgQueue, /, *, worker: str | None, everyone: bool) -> None:
    """Have a quiet worker claim jobs again."""
    _tell(queue.workers.resume(_which(worker, everyone)), "asked to claim jobs again")


@workers.command()
@_names_workers
@with_queue
def stop(queue: PgQueue, /, *, worker: str | None, everyone: bool) -> None:
    """Stop a worker gracefully, as SIGTERM does. Its supervisor does not start another."""
    _tell(queue.workers.stop(_which(worker, everyone)), "asked to stop")


@workers.command()
@_names_workers
@with_queue
def restart(queue: PgQueue, /, *, worker: str | None, everyone: bool) -> None:
    """Stop a worker gracefully, and have its supervisor start a new process."""
    _tell(queue.workers.restart(_which(worker, everyone)), "asked to restart")


def _which(worker: str | None, everyone: bool) -> str:  # noqa: FBT001 - both as the command line has them
    if (worker is None) is not everyone:
        raise click.UsageError("name one worker, or give --all")
    return worker or ALL


def _tell(done: Steered, what: str) -> None:
    for one in done.asked:
        say(f"{one}: {what}")
    for refused in done.refused:
        say(f"not asked: {refused}", err=True)
    if not done.asked:
        if not done.refused:
            click.echo("no live worker", err=True)
        click.get_current_context().exit(NOTHING_ASKED)


def _row(one: WorkerStatus) -> tuple[object, ...]:
    return (
        str(one.id)[:SHOWN],
        one.name,
        one.state,
        one.slots,
        "" if one.bounds.fixed else str(one.bounds),
        "all" if one.queues is None else ", ".join(one.queues),
        "all" if one.tasks is None else ", ".join(one.tasks),
        one.started_at,
        one.version,
    )


def _worker_fields(one: WorkerStatus) -> dict[str, object]:
    asked = one.asked
    return {
        "id": str(one.id),
        "host": one.host,
        "pid": one.pid,
        "state": one.state,
        "slots": one.slots,
        "concurrency": str(one.bounds),
        "quiet": one.quiet,
        "listens": one.listens,
        "supervised": one.supervised,
        "queues": None if one.queues is None else list(one.queues),
        "tasks": None if one.tasks is None else list(one.tasks),
        "started_at": one.started_at,
        "blocked_since": one.blocked_since,
        "not_returned": one.not_returned or None,
        "asked_concurrency": None if asked.bounds is None else str(asked.bounds),
        "asked_to_be_quiet": asked.quiet,
        "asked_to_end": asked.end,
        "asked_at": asked.at,
        "asked_by": asked.by,
        "answer": one.answer,
        "version": one.version,
    }

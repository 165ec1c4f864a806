"""``pgqueue queues``: how many jobs each queue has, and whether workers may claim them."""

from datetime import timedelta

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.known import look_up
from pgqueue.cli.output import json_option, print_json, print_table, spelled_out
from pgqueue.cli.verbs import Group
from pgqueue.store import control
from pgqueue.values.standing import QueueStanding

HEADS = (
    "queue",
    "paused",
    "ready",
    "running",
    "scheduled",
    "blocked",
    "dead",
    "oldest ready",
    "ended/s",
    "unknown",
)


@click.group(cls=Group)
def queues() -> None:
    """List, pause or resume queues."""


@queues.command("list")
@json_option
@with_queue
def list_queues(queue: PgQueue, /, *, as_json: bool) -> None:
    """List the queues: jobs by state, how long the oldest ready job has waited, jobs ended per second."""
    found = _standings(queue)
    if as_json:
        print_json(found)
        return
    print_table(HEADS, [_row(one) for one in found], empty="no queues", shortened={"queue"})
    if any(one.estimated for one in found):
        click.echo("~: estimated from a sample, since there are many jobs")
    for one in found:
        if one.unknown:
            said = (
                f"{one.queue}: no worker that claimed {one.unknown} of these jobs knew their task, since "
                f"{one.unknown_since:%Y-%m-%d %H:%M:%S %Z}: {', '.join(one.unknown_tasks)}"
            )
            click.echo(spelled_out(said))
    for problem in queue.database.run(control.worker_problems()):
        click.echo(spelled_out(str(problem)))


@queues.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@with_queue
def pause(queue: PgQueue, /, *, names: tuple[str, ...]) -> None:
    """Pause queues: no worker starts their jobs. Running jobs continue."""
    for name in names:
        queue.require_queue(name)
    note_unknown = look_up(queue, *names)
    for name in names:
        queue.pause(name)
        click.echo(f"{name}: paused")
    note_unknown()


@queues.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@with_queue
def resume(queue: PgQueue, /, *, names: tuple[str, ...]) -> None:
    """Resume paused queues: workers start their jobs again."""
    for name in names:
        queue.require_queue(name)
    for name in names:
        click.echo(f"{name}: {'resumed' if queue.resume(name) else 'was not paused'}")


def _standings(queue: PgQueue) -> list[QueueStanding]:
    """The known queues, and those that the app declares."""
    found = {one.queue: one for one in queue.standings()}
    declared = {name: QueueStanding(queue=name) for name in queue.queues or ()}
    return [one for _, one in sorted({**declared, **found}.items())]


def _row(one: QueueStanding) -> tuple[object, ...]:
    sign = "~" if one.estimated else ""
    numbers = (one.ready, one.running, one.scheduled, one.blocked, one.dead)
    return (
        one.queue,
        "" if one.paused_at is None else "paused",
        *(f"{sign if number else ''}{number}" for number in numbers),
        "" if one.oldest_ready is None else str(timedelta(seconds=round(one.oldest_ready))),
        f"{one.rate:.1f}" if one.rate else "",
        one.unknown,
    )

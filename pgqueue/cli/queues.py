"""``pgqueue queues``: how many jobs each queue has, and whether workers may claim them."""

from datetime import datetime

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.known import look_up
from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.verbs import Group


class Standing(msgspec.Struct):
    """A queue, and how many of its jobs are in each state that has not ended well.

    ``unknown`` of them went back, because the worker that claimed them did not know their task.
    """

    queue: str
    paused: bool = False
    ready: int = 0
    running: int = 0
    scheduled: int = 0
    blocked: int = 0
    dead: int = 0
    unknown: int = 0
    unknown_tasks: list[str] = []
    unknown_since: datetime | None = None


@click.group(cls=Group)
def queues() -> None:
    """List, pause or resume queues."""


@queues.command("list")
@json_option
@with_queue
def list_queues(queue: PgQueue, /, *, as_json: bool) -> None:
    """List the queues that have waiting, running or dead jobs, are paused, or are declared by the app."""
    found = _standings(queue)
    if as_json:
        print_json(found)
        return
    heads = Standing.__struct_fields__[:-3]
    rows = [msgspec.structs.astuple(one)[:-3] for one in found]
    print_table(
        heads,
        [(name, "paused" if paused else "", *counts) for name, paused, *counts in rows],
        empty="no queues",
    )
    for one in found:
        if one.unknown:
            click.echo(
                f"{one.queue}: no worker that claimed {one.unknown} of these jobs knew their task, since "
                f"{one.unknown_since:%Y-%m-%d %H:%M:%S %Z}: {', '.join(one.unknown_tasks)}"
            )


@queues.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@with_queue
def pause(queue: PgQueue, /, *, names: tuple[str, ...]) -> None:
    """Pause queues: no worker starts their jobs. Jobs that run go on."""
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


def _standings(queue: PgQueue) -> list[Standing]:
    counts, paused = queue.counts()
    names = {*(queue.queues or ()), *paused, *(one.queue for one in counts)}
    found = {name: Standing(name, paused=name in paused) for name in sorted(names)}
    for one in counts:
        standing = found[one.queue]
        setattr(standing, one.state, one.count)
        standing.unknown += one.unknown
        standing.unknown_tasks = sorted({*standing.unknown_tasks, *one.unknown_tasks})
        moments = [at for at in (standing.unknown_since, one.unknown_since) if at is not None]
        standing.unknown_since = min(moments, default=None)
    return list(found.values())

"""``pgqueue signal``: tell a job that waits, or a key, what it waits for."""

import click
import msgspec

from pgqueue.app.flows.handle import FlowHandle
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.values import any_json
from pgqueue.errors import InvalidOption


@click.command()
@click.argument("target")
@click.argument("name")
@click.argument("payload", metavar="[JSON]", type=any_json, required=False)
@click.option("--by", help="Who sends it, for the audit; without it the audit has no line.")
@with_queue
def signal(queue: PgQueue, /, *, target: str, name: str, payload: msgspec.Raw | None, by: str | None) -> None:
    """Send the signal NAME to TARGET: a job's id, key:TEXT or flow:ID. JSON is what the task gets."""
    first = queue.signal(_read(queue, target), name, payload, by=by)
    click.echo(
        f"signal {name} sent to {target}"
        if first
        else f"{target} has signal {name} already; its payload stays as it is"
    )


def _read(queue: PgQueue, target: str) -> FlowHandle | int | str:
    if target.isascii() and target.removeprefix("job:").isdigit():
        return int(target.removeprefix("job:"))
    if target.startswith("key:"):
        return target.removeprefix("key:")
    if target.isascii() and target.startswith("flow:") and target.removeprefix("flow:").isdigit():
        return FlowHandle(int(target.removeprefix("flow:")), queue, ())
    raise InvalidOption(f"TARGET {target!r}: give a job's id, key:TEXT or flow:ID")

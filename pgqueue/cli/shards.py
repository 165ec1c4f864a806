"""``pgqueue shards``: declare the databases of a queue its shards, add one, end the move of keys, and see how all stand."""

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.shards import sharded_database
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.table import Column
from pgqueue.cli.verbs import VerbGroup
from pgqueue.errors import ConnectionFailed
from pgqueue.store.shards import resharding
from pgqueue.store.shards.shard_databases import Shard
from pgqueue.store.shards.shards import remaining
from pgqueue.values.shards import ShardState

COLUMNS = ("shard", Column("where", 1, least=20), Column("state", 0, state=True), "keys that move")


@click.group(cls=VerbGroup)
def shards() -> None:
    """List the shards of a queue; declare them, add one."""


@shards.command("list")
@json_option
@with_queue
def list_shards(queue: PgQueue, /, *, as_json: bool) -> None:
    """List the databases of the app's PgQueue(shards=[...]), and whether keys move."""
    found = [(one, _keys_to_move(one)) for one in queue.shards.list()]
    if as_json:
        print_json(
            [
                {
                    "dsn": one.dsn,
                    "state": None if one.state is None else msgspec.to_builtins(one.state),
                    "error": one.error,
                    "moving_keys": left,
                }
                for one, left in found
            ]
        )
        return
    print_table(COLUMNS, [_row(one, left) for one, left in found], empty="no shards")


@shards.command()
@with_queue
def init(queue: PgQueue, /) -> None:
    """Make the databases of the list the shards 0, 1, ... of a new queue. Each must have its tables (pgqueue migrate)."""
    _tell(resharding.declare(sharded_database(queue)))


@shards.command()
@with_queue
def add(queue: PgQueue, /) -> None:
    """Add the database of the list that is no shard yet, and let keys move to it.

    First give every program the longer list. A program that has not got it is refused the keys that have moved, and goes on
    with the others.
    """
    _tell(resharding.add(sharded_database(queue)))
    click.echo("keys move as they become free; `pgqueue shards finish` ends the move when none is left")


@shards.command()
@with_queue
def finish(queue: PgQueue, /) -> None:
    """End the move of keys to the shard that was added last; exit code 1 while keys still live where they were."""
    left = resharding.finish(sharded_database(queue))
    for number, keys in left.items():
        if keys:
            click.echo(
                f"shard {number}: {keys:,} keys still live there; try again when their jobs have ended"
            )
    if any(left.values()):
        click.get_current_context().exit(1)
    click.echo("the move has ended")


def _tell(found: list[ShardState]) -> None:
    for one in found:
        members = ", ".join(map(str, one.members))
        click.echo(f"shard {one.number} of {members}{': keys move to the last' if one.moving else ''}")


def _keys_to_move(one: Shard) -> int | None:
    """Return how many keys are to move from a shard; None: it does not answer, or no key moves."""
    if one.state is None or not one.state.moving:
        return None
    try:
        return one.database.run(remaining())
    except ConnectionFailed:
        return None


def _row(one: Shard, left: int | None) -> tuple[object, ...]:
    if one.state is None:
        return None, one.dsn, f"does not answer: {one.error}" if one.error else "no shard yet", None
    joining = one.state.number not in one.state.members
    state = "declared" if joining else "keys move" if one.state.moving else "serves"
    return one.state.number, one.dsn, state, left

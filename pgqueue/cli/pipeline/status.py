"""``pgqueue pipeline status``: shows the state of each day."""

from datetime import timedelta

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.pipeline.options import in_lake, margin_option, place, size

HEADS = ("day", "state", "rows", "size", "files", "not in the lake", "generation", "verified")


@click.command()
@in_lake
@margin_option
@json_option
@with_queue
def status(
    queue: PgQueue, /, *, lake: str | None, config: str | None, margin: timedelta, as_json: bool
) -> None:
    """Show each day: open, closed, exported, verified or pruned, and its rows in the lake."""
    where = place(lake, config)

    from pgqueue.spark.lake import status as states  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PyArrow

    queue.database.verify()
    found = states.status(queue.database, Lake(where), margin=margin)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.day,
            one.state,
            one.rows,
            size(one.bytes) if one.generation else None,
            one.files,
            one.waiting,
            one.generation,
            one.verified_at,
        )
        for one in found
    ]
    print_table(HEADS, rows, empty="no day has ended jobs")

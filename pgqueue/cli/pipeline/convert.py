"""``pgqueue pipeline convert``: brings a lake of an earlier release to Delta tables."""

from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import in_lake, place
from pgqueue.spark.report.words import some

if TYPE_CHECKING:
    from pgqueue.spark.lake.convert import Converted


@click.command()
@in_lake
@json_option
@with_queue
def convert(queue: PgQueue, /, *, lake: str | None, config: str | None, as_json: bool) -> None:
    """Bring a lake of an earlier release to Delta tables, in its place. A lake of this release stays as it is.

    It can be stopped and run again. Run `pgqueue pipeline verify` after it.
    """
    where = place(lake, config)

    from pgqueue.spark.lake import convert as converting  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - needs PyArrow

    queue.database.verify()
    found = converting.convert(queue.database, Lake(where), tell=_tell)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{some(len(found), 'day')} converted: {some(sum(one.rows for one in found), 'row')}")


def _tell(one: "Converted") -> None:
    click.echo(f"{one.table} {one.day or 'without days'}: {some(one.rows, 'row')}", err=True)

"""``pgqueue keys``: make keys for :mod:`pgqueue.encryption`, say which keys this program would use, and which ones rows need."""

from datetime import UTC, datetime
from urllib.parse import quote

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table, say
from pgqueue.cli.table import Column
from pgqueue.cli.verbs import VerbGroup
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import insight
from pgqueue.values.jobs.options import check_text

RINGS = {"s": "shared", "t": "tenant"}


@click.group(cls=VerbGroup)
def keys() -> None:
    """Make keys for encryption; list those that are set, and those that rows need."""


@keys.command()
@click.option("--name", help="Its name; without it today's date.")
@click.option("--tenant", help="Whose key it is; without it all jobs share it.")
@click.option("--lookup", is_flag=True, help="The key for unique and limit keys, of which there is one.")
def new(name: str | None, tenant: str | None, *, lookup: bool) -> None:
    """Print a new random key, as PGQUEUE_KEYS or the file of PGQUEUE_KEYS_FILE takes it: put it before older ones."""
    from pgqueue.encryption import keys as rules  # noqa: PLC0415 - it needs an extra

    if lookup and (name or tenant):
        raise InvalidOption("--lookup: that key has neither a name of its own nor a tenant")
    own = rules.LOOKUP if lookup else rules.checked_name(name or f"{datetime.now(UTC):%Y-%m-%d}")
    whose = "" if tenant is None else f"{quote(check_text('--tenant', tenant), safe='')}/"
    click.echo(f"{whose}{own}={rules.new_key()}")


@keys.command("list")
def list_keys() -> None:
    """List the names of the keys in PGQUEUE_KEYS or PGQUEUE_KEYS_FILE: the first of each line encrypts. No key is printed."""
    from pgqueue.encryption.keys import Keys  # noqa: PLC0415 - it needs an extra

    found = Keys.from_environment()
    click.echo(f"shared: {', '.join(found.ring)}")
    for tenant, ring in sorted(found.listed().items()):
        say(f"tenant {tenant}: {', '.join(ring)}")


@keys.command()
@json_option
@with_queue
def used(queue: PgQueue, /, *, as_json: bool) -> None:
    """Count the rows that need each key, by table: a key that is not listed can be removed. It reads all rows."""
    found = queue.database.run(insight.keys_used())
    if as_json:
        print_json(found)
        return
    rows = [(one.table, RINGS[one.ring], one.key, one.rows) for one in found]
    print_table(
        (Column("table", 0), "ring", Column("key", 0, least=20), Column("rows", 0)),
        rows,
        empty="no row is encrypted",
    )

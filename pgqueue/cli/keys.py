"""``pgqueue keys``: make keys for :mod:`pgqueue.encryption`, and say which keys this program would use. It asks no database."""

from datetime import UTC, datetime
from urllib.parse import quote

import click

from pgqueue.cli.verbs import VerbGroup
from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.options import check_text
from pgqueue.values.payloads.storable import spelled_out


@click.group(cls=VerbGroup)
def keys() -> None:
    """Make keys for encryption; list the names of those that are set."""


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
        click.echo(spelled_out(f"tenant {tenant}: {', '.join(ring)}"))

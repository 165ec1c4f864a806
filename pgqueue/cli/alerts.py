"""``pgqueue alerts``: how alerts stand, and silence them. Code declares them; workers look at them."""

from datetime import timedelta

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table, say, steers
from pgqueue.cli.table import Column
from pgqueue.cli.values import Length
from pgqueue.cli.verbs import VerbGroup

NAME = click.argument("name")
COLUMNS = (
    "alert",
    Column("state", 0, state=True),
    Column("found", 2, least=20),
    Column("since", 3),
    Column("looked at", 5),
    Column("task", 4),
)


@click.group(cls=VerbGroup)
def alerts() -> None:
    """List the alerts that code declares, and silence them."""


@alerts.command("list")
@json_option
@with_queue
def list_alerts(queue: PgQueue, /, *, as_json: bool) -> None:
    """List the alerts: how each stands, what the last look found, and which task is told."""
    found = queue.redaction.shown(queue.alerts.list())
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    rows = [(one.name, one.state, one.summary, one.since, one.looked_at, one.task) for one in found]
    print_table(COLUMNS, rows, empty="no alerts")
    for one in found:
        if one.silenced_until is not None:
            say(
                f"{one.name}: silenced by {one.silenced_by} until {one.silenced_until.astimezone():%Y-%m-%d %H:%M:%S}"
            )
        if one.error is not None:
            say(f"{one.name}: {one.error}")


@alerts.command()
@NAME
@click.option(
    "--for", "length", type=Length(above_zero=True), required=True, help="For how long, such as 30m or 8h."
)
@steers
@with_queue
def silence(queue: PgQueue, /, *, name: str, length: timedelta) -> None:
    """Tell the task of an alert nothing for a time. An alert that still holds is told then."""
    until = queue.alerts.silence(name, length)
    say(f"{name}: silenced until {until and until.astimezone():%Y-%m-%d %H:%M:%S}")


@alerts.command()
@NAME
@steers
@with_queue
def unsilence(queue: PgQueue, /, *, name: str) -> None:
    """Tell the task of a silenced alert again."""
    queue.alerts.unsilence(name)
    say(f"{name}: told again")


@alerts.command()
@NAME
@steers
@with_queue
def remove(queue: PgQueue, /, *, name: str) -> None:
    """Delete an alert. One that code declares comes back when a worker of that code starts."""
    if queue.alerts.remove(name):
        say(f"{name}: removed")
    else:
        say(f"{name}: there is no alert of this name", err=True)
        click.get_current_context().exit(1)

"""``pgqueue alerts``: how alerts stand, and silence them. Code declares them; workers look at them."""

from datetime import timedelta

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import by_option, json_option, print_json, print_table, zone
from pgqueue.cli.values import Length
from pgqueue.cli.verbs import VerbGroup
from pgqueue.values.payloads.storable import spelled_out

NAME = click.argument("name")


@click.group(cls=VerbGroup)
def alerts() -> None:
    """List the alerts that code declares, and silence them."""


@alerts.command("list")
@json_option
@with_queue
def list_alerts(queue: PgQueue, /, *, as_json: bool) -> None:
    """List the alerts: how each stands, what the last look found, and which task is told."""
    found = queue.alerts.list()
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    heads = ("alert", "state", "found", f"since ({zone()})", f"looked at ({zone()})", "task")
    rows = [(one.name, one.state, one.summary, one.since, one.looked_at, one.task) for one in found]
    print_table(heads, rows, empty="no alerts", shortened={"found"})
    for one in found:
        if one.silenced_until is not None:
            click.echo(
                spelled_out(
                    f"{one.name}: silenced by {one.silenced_by} until {one.silenced_until.astimezone():%Y-%m-%d %H:%M:%S}"
                )
            )
        if one.error is not None:
            click.echo(spelled_out(f"{one.name}: {one.error}"))


@alerts.command()
@NAME
@click.option(
    "--for", "length", type=Length(above_zero=True), required=True, help="For how long, such as 30m or 8h."
)
@by_option
@with_queue
def silence(queue: PgQueue, /, *, name: str, length: timedelta, by: str | None) -> None:
    """Tell the task of an alert nothing for a time. An alert that still holds is told then."""
    until = queue.alerts.silence(name, length, by=by)
    click.echo(spelled_out(f"{name}: silenced until {until and until.astimezone():%Y-%m-%d %H:%M:%S}"))


@alerts.command()
@NAME
@by_option
@with_queue
def unsilence(queue: PgQueue, /, *, name: str, by: str | None) -> None:
    """Tell the task of a silenced alert again."""
    queue.alerts.unsilence(name, by=by)
    click.echo(spelled_out(f"{name}: told again"))


@alerts.command()
@NAME
@by_option
@with_queue
def remove(queue: PgQueue, /, *, name: str, by: str | None) -> None:
    """Delete an alert. One that code declares comes back when a worker of that code starts."""
    if queue.alerts.remove(name, by=by):
        click.echo(spelled_out(f"{name}: removed"))
    else:
        click.echo(spelled_out(f"{name}: there is no alert of this name"), err=True)
        click.get_current_context().exit(1)

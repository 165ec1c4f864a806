"""``pgqueue retention``: what is kept for how long, how much there is, what is removed next; and to change it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import confirm, json_option, print_json, print_table, say, steers
from pgqueue.cli.table import Column
from pgqueue.cli.times import short_duration
from pgqueue.cli.values import LENGTH, Length
from pgqueue.cli.verbs import VerbGroup
from pgqueue.store import retention as store
from pgqueue.values.retention import FOREVER, Kept, Removal, as_kept_days, require_kept

COLUMNS = (
    Column("what", least=0),
    Column("queue", 1),
    Column("kept for", 0, least=20),
    Column("set by", 6),
    Column("rows", 3),
    Column("size", 2),
    Column("oldest", 7),
    Column("next removal", 4),
    Column("frees", 5),
)
UNITS = ("bytes", "kB", "MB", "GB")


class LengthOrForever(Length):
    """A length of time, or ``forever``."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        return FOREVER if value == "forever" else super().convert(value, param, ctx)

    def get_metavar(self, *_: object, **__: object) -> str:
        """What the help shows."""
        return "30d|forever"


KEPT = LengthOrForever()


@click.group(cls=VerbGroup, invoke_without_command=True)
@json_option
@click.pass_context
def retention(ctx: click.Context, /, *, as_json: bool) -> None:
    """Show what is kept for how long, how much there is, and when what is removed next; `set` changes it."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(_show, as_json=as_json)


@with_queue
def _show(queue: PgQueue, /, *, as_json: bool) -> None:
    found = queue.insight.retention()
    if as_json:
        print_json(found)
        return
    print_table(COLUMNS, [_row(one, datetime.now(UTC)) for one in found], empty="nothing is kept")
    click.echo("~: an estimate. Workers remove what is due every 10 minutes.")


@retention.command("set")
@click.option(
    "--history",
    type=KEPT,
    help="For how long ended jobs are kept, by whole days; of one queue 0: those that succeed are not kept.",
)
@click.option("--dead", type=KEPT, help="For how long dead jobs are kept.")
@click.option(
    "--queue", "name", help="Of this queue only; without it, of the queues that have no length of their own."
)
@click.option("--minutes", type=LENGTH, help="For how long the figures of minutes are kept.")
@click.option("--hours", type=LENGTH, help="For how long the figures of hours and days are kept.")
@steers
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_queue
def set_retention(
    queue: PgQueue,
    /,
    *,
    history: timedelta | None,
    dead: timedelta | None,
    name: str | None,
    minutes: timedelta | None,
    hours: timedelta | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Change for how long jobs are kept. It says what the next tidying removes, and asks.

    A program that gives another length in code, PgQueue(history=...), stores that when its next worker starts.
    """
    if history is dead is minutes is hours is None:
        raise click.UsageError("give --history, --dead, --minutes or --hours.")
    if name is not None and (minutes is not None or hours is not None):
        raise click.UsageError("--minutes and --hours are of all queues together: leave --queue out.")
    for option, length in (("history", history), ("dead", dead)):
        if length is not None:
            as_kept_days(option, length)
    require_kept(history if name is None else None)
    removed = queue.database.run(store.preview(history=history, dead=dead, queue=name))
    if not _goes_on(removed, dry_run=dry_run, yes=yes):
        return
    if name is not None:
        given: dict[str, Any] = {"keep_history": history, "keep_dead": dead}
        chosen = {key: value for key, value in given.items() if value is not None}
        queue.control.set(name, **chosen)
    elif history is not None or dead is not None:
        queue.control.keep(history=history, dead=dead)
    if minutes is not None or hours is not None:
        queue.control.keep_series(minutes=minutes, hours=hours)
    _show_changed(queue, name)


def _goes_on(removed: Sequence[Removal], *, dry_run: bool, yes: bool) -> bool:
    """Say what would be removed, and ask; False: nothing is to be changed."""
    said = [_removal(one) for one in removed if one.count]
    if dry_run or (said and not yes):
        click.echo(f"the next tidying removes {', '.join(said) or 'nothing'}", err=not dry_run)
    if said and not yes and not dry_run:
        confirm()
    return not dry_run


def _show_changed(queue: PgQueue, name: str | None) -> None:
    for one in queue.insight.retention():
        if one.queue == name and (
            name is not None or one.set_at is not None or one.what.startswith("figures")
        ):
            say(f"{one.what}: kept {_length(one)}")


def _removal(one: Removal) -> str:
    if one.what == "days of the history":
        return f"{one.count:,} days of the history (~{one.rows:,} jobs, {_size(one.bytes)})"
    return f"{one.count:,} {one.what}"


def _row(one: Kept, now: datetime) -> tuple[object, ...]:
    frees = [
        f"~{one.frees_rows:,} rows" if one.frees_rows else "",
        _size(one.frees_bytes) if one.frees_bytes else "",
    ]
    return (
        one.what,
        one.queue or "",
        _length(one),
        _said_by(one),
        "" if one.rows is None else f"~{one.rows:,}",
        _size(one.bytes),
        one.oldest,
        "due" if one.next_at is not None and one.next_at < now else one.next_at,
        ", ".join(filter(None, frees)),
    )


def _said_by(one: Kept) -> str:
    if one.set_at is None:
        return "" if one.keeps is None else "pgqueue"
    return one.set_by or "unknown"


def _length(one: Kept) -> str:
    """For how long, or until when."""
    if one.keeps is None:
        return "for ever" if one.until is None else f"until {one.until}"
    said = (
        "for ever"
        if one.keeps >= FOREVER
        else short_duration(one.keeps.total_seconds()).removesuffix(" 0 h").removesuffix(" 0 s")
    )
    return said if one.until is None else f"{said} ({one.until})"


def _size(count: int | None) -> str:
    if count is None:
        return ""
    size, unit = float(count), 0
    while size >= 1000 and unit < len(UNITS) - 1:  # noqa: PLR2004 - the next unit
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {UNITS[unit]}" if unit < 2 else f"{size:.1f} {UNITS[unit]}"  # noqa: PLR2004 - MB

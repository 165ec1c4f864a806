"""``pgqueue compare``: which tasks became slower, or fail more, since an instant such as a deploy."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table, say
from pgqueue.cli.table import Column
from pgqueue.cli.times import local, short_duration, zone
from pgqueue.cli.values import ABOVE_ZERO, LENGTH, instant
from pgqueue.values.insight.comparison import Comparison, ComparisonLine
from pgqueue.values.insight.series import Spread

COLUMNS = (
    Column("changed", 1, least=16),
    Column("run p50", 4, least=0),
    Column("run p95", 2, least=0),
    Column("failed", 3, least=0),
    Column("wait p95", 5, least=0),
    Column("attempts", 6, least=0),
)


def _since(_: click.Context, __: click.Parameter, value: str) -> datetime | timedelta:
    if value[-1:].isalpha() and value[-1] != "Z":
        return LENGTH.convert(value, None, None)
    return instant(value)


@click.command()
@click.argument("at", callback=_since)
@click.option(
    "--window",
    "length",
    type=ABOVE_ZERO,
    default="1h",
    show_default=True,
    help="How long before, and after, is looked at.",
)
@click.option(
    "--by", type=click.Choice(["task", "queue"]), default="task", show_default=True, help="Of what."
)
@click.option("--queue", "queue_name", help="Only jobs of this queue.")
@click.option("--task", help="Only jobs of this task.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=30, show_default=True, help="At most this many."
)
@json_option
@with_queue
def compare(
    queue: PgQueue,
    /,
    *,
    at: datetime | timedelta,
    length: timedelta,
    by: str,
    queue_name: str | None,
    task: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Compare what happened before and after AT: an instant in ISO 8601 with its time zone, or how long ago, such as 2h.

    Tasks that became slower, fail more, wait longer or run no more come first. A change is named where it is beyond chance.
    """
    found = queue.insight.compare(
        at, length, by="queue" if by == "queue" else "task", queue=queue_name, task=task
    )
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    say(_windows(found))
    rows = [_row(one, by) for one in found.lines[:limit]]
    print_table((by, *COLUMNS), rows, empty="no worker has measured a job in these windows")
    if len(found.lines) > limit:
        click.echo(f"and {len(found.lines) - limit:,} more; --limit shows them")


def _windows(found: Comparison) -> str:
    before = f"{local(found.before_since)} to {local(found.before_until)}"
    return f"before: {before}; after: {local(found.after_since)} to {local(found.after_until)} ({zone()})"


def _row(one: ComparisonLine, by: str) -> Sequence[object]:
    return (
        f"other {by}s" if one.name is None else one.name,
        ", ".join(one.changes) or ("too few to tell" if one.few else ""),
        _times(one.before.run, one.after.run, "p50"),
        _times(one.before.run, one.after.run, "p95"),
        f"{_percent(one.failed_before)} -> {_percent(one.failed_after)}",
        _times(one.before.wait, one.after.wait, "p95"),
        f"{one.before.started:,} -> {one.after.started:,}",
    )


def _times(before: Spread | None, after: Spread | None, which: str) -> str:
    said = (short_duration(None if one is None else getattr(one, which)) or "-" for one in (before, after))
    return " -> ".join(said)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"

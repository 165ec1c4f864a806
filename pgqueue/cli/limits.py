"""``pgqueue limits``: look at limits, see which jobs hold their places, and change their numbers."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import confirm, json_option, print_json, print_table, say, steers
from pgqueue.cli.table import Column
from pgqueue.cli.values import Length
from pgqueue.cli.verbs import VerbGroup
from pgqueue.store.limits import limit_control
from pgqueue.values.limits.limit import Limit, Rate
from pgqueue.values.limits.status import LaneChange
from pgqueue.values.queues.settings import EXISTING, Existing

F = TypeVar("F", bound=Callable[..., Any])
SHOWN = 200
"""Keys, and jobs that hold places, which are shown to people: to print 100,000 rows takes a minute."""
COLUMNS = (
    "limit",
    Column("says", 2, least=16),
    Column("running", 0),
    Column("waiting", 1),
    Column("set at", 4),
    Column("by", 3),
)
LOST = 1
"""The exit code of a recount that found places which lost workers hold."""


def _asking(verb: F) -> F:
    """The options of a verb that changes many jobs."""
    for option in (
        steers,
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing."),
    ):
        verb = option(verb)
    return verb


@click.group(cls=VerbGroup)
def limits() -> None:
    """List limits and rates, show who holds their places, change their numbers."""


@limits.command("list")
@json_option
@with_queue
def list_limits(queue: PgQueue, /, *, as_json: bool) -> None:
    """List the limits: what each says, how many jobs run and wait under it (~ about), and who changed it."""
    found = queue.insight.limits()
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    rows = [
        (
            one.name,
            one.numbers.said,
            one.running,
            f"{'~' * one.estimated}{one.waiting}",
            one.set_at,
            one.set_by,
        )
        for one in found
    ]
    print_table(COLUMNS, rows, empty="no limits")


@limits.command()
@click.argument("limit")
@json_option
@with_queue
def show(queue: PgQueue, /, *, limit: str, as_json: bool) -> None:
    """Show a limit: its keys, and the jobs that hold its places, with their workers; of each 200, with --json all."""
    found = queue.redaction.shown(queue.insight.limit(limit))
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    of = found.limit
    say(f"{of.name}: {of.numbers.said}; the code says: {of.numbers.declared or 'nothing'}")
    keys = [(one.key, one.running, one.waiting, one.next_start) for one in found.keys[:SHOWN]]
    print_table(("key", "running", "waiting", "next start"), keys, empty="no keys")
    _echo_left(len(found.keys), "keys")
    held = [
        (
            one.job_id,
            one.task,
            one.lane.replace("\n", ", "),
            one.worker or ("lost" if one.since else "waits for its retry"),
            one.since,
        )
        for one in found.holders[:SHOWN]
    ]
    columns = ("job", Column("task", 1), Column("keys", 3), Column("worker", 2, state=True), "since")
    print_table(columns, held, empty="no job runs under it")
    _echo_left(len(found.holders), "jobs that hold places")


@limits.command("set")
@click.argument("limit")
@click.option("--most", type=int, metavar="N", help="How many jobs of a key run at once.")
@click.option("--rate", metavar="N/minute", help="How many start per second, minute, hour, day, or 30s, 15m.")
@click.option("--every", type=Length(above_zero=True), help="The exact time between two starts.")
@click.option("--burst", type=int, metavar="N", help="How many start at once after a pause, of a rate.")
@click.option(
    "--existing",
    type=click.Choice(EXISTING),
    default="replace",
    help="What is done if the limit has other numbers.",
)
@steers
@with_queue
def set_limit(
    queue: PgQueue,
    /,
    *,
    limit: str,
    most: int | None,
    rate: str | None,
    every: timedelta | None,
    burst: int | None,
    existing: Existing,
) -> None:
    """Change the numbers of a limit; queue:NAME limits a queue as a whole. Workers keep them from their next claim on."""
    if [most, rate, every].count(None) != 2:  # noqa: PLR2004 - one of three
        raise click.UsageError("give one of --most, --rate and --every")
    if burst is not None and rate is None:
        raise click.UsageError("--burst belongs to --rate")
    numbers = (
        Limit(most) if most is not None else Rate(rate, every=every, burst=1 if burst is None else burst)
    )
    held = queue.control.limits.set(limit, numbers, existing=existing)
    say(f"{limit}: {held.numbers.said}")


@limits.command()
@click.argument("limit")
@steers
@with_queue
def unset(queue: PgQueue, /, *, limit: str) -> None:
    """Restore the numbers that the code declares; a limit that no code declares, such as queue:NAME, is removed."""
    queue.control.limits.unset(limit)
    say(f"{limit}: the numbers of the code hold again; without any, it is forgotten")


@limits.command()
@click.argument("limit")
@_asking
@with_queue
def delete(queue: PgQueue, /, *, limit: str, dry_run: bool, yes: bool) -> None:
    """Forget a limit that no code declares any more, and free the jobs that have it in their lane."""
    if _asks(queue, limit, f"free them and forget limit {limit}", dry_run=dry_run, yes=yes):
        done = queue.control.limits.delete(limit)
        _echo_change(done, "freed" if done.locked else f"freed; {limit} is forgotten")


@limits.command()
@click.argument("limit")
@click.option("--to", metavar="LIMIT", help="Under which other limit; it must be by the same arguments.")
@click.option("--to-none", is_flag=True, help="Under none: they need not wait for this limit.")
@_asking
@with_queue
def move(queue: PgQueue, /, *, limit: str, to: str | None, to_none: bool, dry_run: bool, yes: bool) -> None:
    """Put the jobs that have a limit in their lane under another limit, or under none; the limit stays."""
    if (to is None) is not to_none:
        raise click.UsageError("give one of --to and --to-none")
    where = "none" if to is None else to
    if _asks(queue, limit, f"move them from limit {limit} to {where}", dry_run=dry_run, yes=yes):
        _echo_change(queue.control.limits.move(limit, to), f"moved to {where}")


@limits.command()
@json_option
@with_queue
def recount(queue: PgQueue, /, *, as_json: bool) -> None:
    """Count the running jobs of each limit, and those that lost workers hold. The exit code is 1 if there are any."""
    found = queue.insight.limits()
    lost = sum(one.lost for one in found)
    if as_json:
        print_json([{"name": one.name, "running": one.running, "lost": one.lost} for one in found])
    else:
        print_table(
            ("limit", "running", Column("lost", 0, bad=True)),
            [(one.name, one.running, one.lost) for one in found],
            empty="no limits",
        )
    if lost:
        click.echo(
            f"{lost} places are held by lost workers; the next sweep of a live worker frees them", err=True
        )
        click.get_current_context().exit(LOST)


@limits.command()
@click.argument("share", metavar="JSON")
@click.argument("weight", type=int, required=False)
@steers
@with_queue
def weigh(queue: PgQueue, /, *, share: str, weight: int | None) -> None:
    """Give the share of some fair_by values, like '{"tenant": "acme"}', a weight; without one, 1."""
    try:
        values = msgspec.json.decode(share)
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"{share!r} is no JSON: {error}", param_hint="JSON") from error
    queue.control.limits.weigh(values, weight)
    click.echo(f"weight {weight or 1}")


def _echo_left(count: int, what: str) -> None:
    if count > SHOWN:
        click.echo(f"and {count - SHOWN:,} more {what}; --json shows all", err=True)


def _asks(queue: PgQueue, limit: str, what: str, *, dry_run: bool, yes: bool) -> bool:
    """Say what would be done, and ask; False: it is not to be done."""
    if yes and not dry_run:
        return True
    found = queue.database.run(limit_control.named(limit))
    has = "job has" if found.jobs == 1 else "jobs have"
    said = f"{found.jobs:,} {has} limit {limit} in their lane, {found.waiting:,} of them wait there now"
    tasks = f"; tasks have it, as their workers last said: {', '.join(found.tasks)}" if found.tasks else ""
    say(f"{said}{tasks}", err=not dry_run)
    say(f"this will {what}", err=not dry_run)
    if not dry_run:
        confirm()
    return not dry_run


def _echo_change(done: LaneChange, what: str) -> None:
    say(f"{done.jobs:,} {what}")
    if done.locked:
        left = f"{done.locked:,} were left: other transactions had them locked; run the command again"
        click.echo(left, err=True)

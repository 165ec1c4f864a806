"""``pgqueue limits``: look at limits, see which jobs hold their places, and change their numbers."""

from datetime import timedelta

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import by_option, json_option, print_json, print_table, spelled_out, zone
from pgqueue.cli.values import Length
from pgqueue.cli.verbs import VerbGroup
from pgqueue.values.limits.limit import Limit, Rate

SHOWN = 200
"""Keys, and jobs that hold places, which are shown to people: to print 100,000 rows takes a minute."""
LOST = 1
"""The exit code of a recount that found places which lost workers hold."""


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
    heads = ("limit", "says", "running", "waiting", f"set at ({zone()})", "by")
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
    print_table(heads, rows, empty="no limits", shortened={"by"})


@limits.command()
@click.argument("limit")
@json_option
@with_queue
def show(queue: PgQueue, /, *, limit: str, as_json: bool) -> None:
    """Show a limit: its keys, and the jobs that hold its places, with their workers; of each 200, with --json all."""
    found = queue.insight.limit(limit)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    of = found.limit
    click.echo(
        spelled_out(f"{of.name}: {of.numbers.said}; the code says: {of.numbers.declared or 'nothing'}")
    )
    keys = [(one.key, one.running, one.waiting, one.next_start) for one in found.keys[:SHOWN]]
    print_table(("key", "running", "waiting", f"next start ({zone()})"), keys, empty="no keys")
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
    print_table(("job", "task", "keys", "worker", f"since ({zone()})"), held, empty="no job runs under it")
    _echo_left(len(found.holders), "jobs that hold places")


@limits.command("set")
@click.argument("limit")
@click.option("--most", type=int, metavar="N", help="How many jobs of a key run at once.")
@click.option("--rate", metavar="N/minute", help="How many start per second, minute, hour, day, or 30s, 15m.")
@click.option("--every", type=Length(above_zero=True), help="The exact time between two starts.")
@click.option("--burst", type=int, metavar="N", help="How many start at once after a pause, of a rate.")
@click.option("--unset", is_flag=True, help="What the code says; a limit of a queue as a whole is removed.")
@by_option
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
    unset: bool,
    by: str | None,
) -> None:
    """Change the numbers of a limit; queue:NAME limits a queue as a whole. Workers keep them from their next claim on."""
    if [most, rate, every].count(None) + (not unset) != 3:  # noqa: PLR2004 - one of four
        raise click.UsageError("give one of --most, --rate, --every and --unset")
    if burst is not None and rate is None:
        raise click.UsageError("--burst belongs to --rate")
    if unset:
        queue.control.limits.unset(limit, by=by)
        click.echo(spelled_out(f"{limit}: as the code says"))
        return
    numbers = (
        Limit(most) if most is not None else Rate(rate, every=every, burst=1 if burst is None else burst)
    )
    click.echo(spelled_out(f"{limit}: {queue.control.limits.set(limit, numbers, by=by).numbers.said}"))


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
            ("limit", "running", "lost"),
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

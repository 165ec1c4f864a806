"""``pgqueue pipeline generate``: makes up history of any size, with :mod:`pgqueue.spark.made_up.history`."""

from datetime import date

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.bench.bars import bar
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.values import day
from pgqueue.spark.made_up.days import CROWD_HOUR, CROWD_TENANT, SLOWED, SLOWER, STORM_HOURS, Day, Wish
from pgqueue.spark.made_up.history import Generated, last_closed_day
from pgqueue.spark.made_up.history import generate as make_history
from pgqueue.spark.made_up.world import BUSIEST


@click.command()
@click.option("--rows", type=click.IntRange(min=1), required=True, help="How many ended jobs, in all.")
@click.option("--days", type=click.IntRange(min=1), required=True, help="On how many days.")
@click.option("--until", type=day, help="The last day. [default: yesterday, in UTC]")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Another seed makes another history.",
)
@click.option("--skew", type=float, help=f"The share of all jobs in the queue {BUSIEST}, such as 0.9.")
@click.option(
    "--connections",
    type=click.IntRange(min=1),
    help="How many days to generate at a time. [default: processors]",
)
@click.option("--force-beside", is_flag=True, help="Generate it also beside real jobs; it stays there.")
@json_option
@with_queue
def generate(
    queue: PgQueue,
    /,
    *,
    rows: int,
    days: int,
    until: date | None,
    seed: int,
    skew: float | None,
    connections: int | None,
    force_beside: bool,
    as_json: bool,
) -> None:
    """Generate the history of a shop: ended jobs, dead jobs, workers and deploys of past days.

    The same options make the same history. It is written to the queue's own tables, so a queue that was ever used is
    refused. At the end the command prints the events that the report should find.
    """
    wish = Wish(rows=rows, days=days, until=until or last_closed_day(queue.database), seed=seed, skew=skew)
    with bar(rows) as progress:

        def told(day: Day) -> None:
            progress.step(str(day.day), steps=day.rows)

        made = make_history(queue.database, wish, beside=force_beside, connections=connections, told=told)
    if as_json:
        print_json(msgspec.to_builtins(made))
    else:
        for name, words in lines(made):
            click.echo(f"{name:8} {words}")


def lines(made: Generated) -> list[tuple[str, str]]:
    """Lines that say what was made, and which events the report should find."""
    storm, crowd = made.events.storm, made.events.crowd
    there = f", {made.before} existed already" if made.before else ""
    return [
        ("days", f"{made.first} to {made.last}: {made.days} made{there}"),
        ("rows", f"{made.rows:,} in {made.seconds:.1f} s, {made.rows / made.seconds:,.0f} a second"),
        (
            "deploys",
            ", ".join(f"{release.version} on {release.at:%Y-%m-%d}" for release in made.events.releases),
        ),
        ("slower", f"{SLOWED} takes {SLOWER} times as long from {made.events.slower.version} on"),
        ("storm", f"{BUSIEST}: {storm}, {STORM_HOURS[0]}:00 to {STORM_HOURS[-1] + 1}:00"),
        ("crowd", f"{BUSIEST}: tenant-{CROWD_TENANT} on {crowd}, {CROWD_HOUR}:00 to {CROWD_HOUR + 1}:00"),
    ]

"""``pgqueue pipeline rollup``: sum up the lake's days, for plots and for the report."""

from collections.abc import Iterable
from datetime import date, timedelta

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.errors import ConfigurationError
from pgqueue.spark.config import Config, load

SHOWN = 5


class Done(msgspec.Struct):
    """What a roll-up wrote."""

    days: list[date]
    lake: str
    postgres: bool


def span_of_days(value: str) -> list[date]:
    """A day, or the days from one to another with two dots between them."""
    first, dots, last = value.partition("..")
    try:
        start, end = date.fromisoformat(first), date.fromisoformat(last if dots else first)
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: use a day such as 2026-11-20, or days such as 2026-11-01..2026-11-20."
        ) from None
    if end < start:
        raise click.BadParameter(f"{value!r}: the last day lies before the first.")
    return [start + timedelta(days=number) for number in range((end - start).days + 1)]


@click.command()
@click.option(
    "--lake", metavar="PATH_OR_URI", envvar="PGQUEUE_LAKE", show_envvar=True, help="Where the lake is."
)
@click.option("--config", metavar="FILE", help="A pipeline.toml: promises, tenants, costs.")
@click.option(
    "--days",
    type=span_of_days,
    multiple=True,
    help="Only this UTC day, or FIRST..LAST; may be given again. All that changed by default.",
)
@click.option("--no-postgres", is_flag=True, help="Write to the lake only.")
@json_option
@with_queue
def rollup(
    queue: PgQueue,
    /,
    *,
    lake: str | None,
    config: str | None,
    days: tuple[list[date], ...],
    no_postgres: bool,
    as_json: bool,
) -> None:
    """Sum up the lake's days by hour, task, tenant and worker: into the lake, and into tables to plot from.

    Only days that changed since the last time are read: late rows, a new promise, a day that was not there.
    """
    told = load(config)
    place = lake_of(lake, told)
    chosen = [day for span in days for day in span] or None

    from pgqueue.spark import rollup as rollups  # noqa: PLC0415 - PySpark, after all that can be refused without it
    from pgqueue.spark.lake import Lake  # noqa: PLC0415 - as above
    from pgqueue.spark.session import session  # noqa: PLC0415 - as above

    written = rollups.rollup(
        session(), None if no_postgres else queue.database, Lake(place), told, days=chosen
    )
    done = Done(written, place, not no_postgres)
    if as_json:
        print_json(done)
    else:
        click.echo(in_words(done.days))


def lake_of(given: str | None, config: Config) -> str:
    """Where the lake is: as the command line or the environment says, else as the file does.

    Raises:
        ConfigurationError: nothing says where.
    """
    found = given or config.lake
    if found is None:
        raise ConfigurationError(
            'no lake: give --lake, set PGQUEUE_LAKE, or write lake = "..." into the file that --config names'
        )
    return found


def in_words(days: Iterable[date]) -> str:
    """What was done, in a line."""
    done = [str(day) for day in days]
    if not done:
        return "nothing to do: every day is up to date"
    named = ", ".join(done if len(done) <= SHOWN else [*done[: SHOWN - 1], f"... {done[-1]}"])
    return f"{len(done)} {'day' if len(done) == 1 else 'days'} rolled up: {named}"

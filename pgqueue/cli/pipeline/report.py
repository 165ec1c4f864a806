"""``pgqueue pipeline rollup``, ``deployed``, ``report`` and ``whatif``: what the lake tells, as figures, in a report, in a replay."""

from collections.abc import Iterable
from datetime import date, datetime, timedelta

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table, say
from pgqueue.cli.pipeline.options import (
    LakeOptions,
    Spark,
    days_option,
    in_lake,
    lasting_secrets,
    on_spark,
    span_of_days,
)
from pgqueue.cli.times import local
from pgqueue.cli.values import LENGTH, day, instant, names
from pgqueue.store.pipeline import rollups
from pgqueue.values.queues.served_queues import parse_served
from pgqueue.values.redaction import Redaction

SHOWN_DAYS = 5
SHOWN_TASKS = 20
"""Rows of the table of a replay; ``--json`` has all."""
MARKS = {"look": "!", "ok": " ", "unknown": "?", "info": " "}
"""The mark before each answer: ``!`` for findings, ``?`` for too little data."""


class RollupResult(msgspec.Struct):
    """The days that a roll-up wrote."""

    days: list[date]
    lake: str
    postgres: bool


@click.command()
@in_lake
@on_spark
@days_option("--days", "Only this UTC day (or FIRST..LAST). [default: all that changed]")
@click.option("--no-postgres", is_flag=True, help="Write to the lake only.")
@json_option
@with_queue
def rollup(
    queue: PgQueue,
    /,
    *,
    spark: Spark,
    given: LakeOptions,
    days: set[date],
    no_postgres: bool,
    as_json: bool,
) -> None:
    """Sum up the lake's days by hour, task, tenant and worker: into the lake, and into tables to plot from.

    Only days that changed since the last run are read: late rows, a new promise, a new day.
    """
    from pgqueue.spark.rollup.rollup import rollup as roll_up  # noqa: PLC0415 - slow to import, so other errors come first

    database = None if no_postgres else queue.database
    written = roll_up(
        spark,
        database,
        given.lake(),
        given.config,
        days=sorted(days) or None,
        redaction=Redaction(lasting_secrets(queue)),
    )
    if as_json:
        print_json(RollupResult(written, given.place, not no_postgres))
    else:
        click.echo(_days_text(written))


def _days_text(days: Iterable[date]) -> str:
    done = [str(day) for day in days]
    if not done:
        return "nothing to do: every day is up to date"
    named = ", ".join(done if len(done) <= SHOWN_DAYS else [*done[: SHOWN_DAYS - 1], f"... {done[-1]}"])
    return f"{len(done)} {'day' if len(done) == 1 else 'days'} rolled up: {named}"


@click.command()
@click.argument("version", required=False)
@click.option("--at", type=instant, metavar="TIME", help="When it went live, in ISO 8601.  [default: now]")
@json_option
@with_queue
def deployed(queue: PgQueue, /, *, version: str | None, at: datetime | None, as_json: bool) -> None:
    """Record that VERSION of your code went live. The report uses it to say what became slower.

    Without VERSION, list the recorded versions, newest first.
    """
    if version is None:
        if at is not None:
            raise click.UsageError("--at says when a version went live: name the VERSION, too.")
        found = queue.insight.deploys()
    else:
        if not version.strip():
            raise click.UsageError("VERSION is empty: name the version, such as 1.4.0 or a commit.")
        found = [queue.database.run(rollups.note_deploy(version, at=at))]
    if as_json:
        print_json(found if version is None else found[0])
    elif version is None:
        rows = [(one.deployed_at, one.version) for one in found]
        print_table(
            ("live since", "version"),
            rows,
            empty="no version is recorded; record one with `pgqueue pipeline deployed VERSION`",
        )
    else:
        click.echo(f"{found[0].version}: live since {local(found[0].deployed_at)}")


@click.command()
@in_lake
@click.option(
    "--until", type=day, metavar="DAY", help="The last day of the week to report on. [default: the newest]"
)
@click.option(
    "--weeks",
    type=click.IntRange(1, 52),
    default=8,
    show_default=True,
    help="How many earlier weeks to compare with.",
)
@click.option("--out", metavar="FILE", help="The page's file. [default: report/report-DAY.html in the lake]")
@json_option
def report(
    *,
    given: LakeOptions,
    until: date | None,
    weeks: int,
    out: str | None,
    as_json: bool,
) -> None:
    """Report on the week up to a day: unusual hours, tasks that a deploy slowed, and when workers will be too few.

    Reads only the roll-ups in the lake, and needs neither a database nor Spark. Writes one HTML file, and the same answers as Parquet under report/.
    """
    from pgqueue.spark.lake.steps import log_step  # noqa: PLC0415 - slow to import, so other errors come first
    from pgqueue.spark.report.rendering import check_out  # noqa: PLC0415 - slow to import, so other errors come first

    lake = given.lake()
    lake.marker()
    check_out(out, "week.html")
    from pgqueue.spark.report.report import answers, write  # noqa: PLC0415 - needs DuckDB
    from pgqueue.spark.report.rollups import WEEK_DAYS  # noqa: PLC0415 - needs DuckDB

    with log_step(lake, "report") as size:
        size.days = WEEK_DAYS
        found = write(answers(lake, given.config, until=until, weeks=weeks), lake, out=out)
    if as_json:
        print_json(found)
        return
    for section in found.sections.values():
        say(f"{MARKS[section.state]} {section.title} {section.answer}", indent=2)
    click.echo(f"The page: {found.html}")


@click.command()
@in_lake
@click.option(
    "--days", type=span_of_days, required=True, metavar="DAY", help="The UTC day to replay (or FIRST..LAST)."
)
@click.option("--workers", type=int, required=True, metavar="N", help="How many worker processes.")
@click.option(
    "--concurrency",
    type=int,
    default=20,
    show_default=True,
    metavar="N",
    help="How many jobs each runs at a time.",
)
@click.option(
    "--queues",
    type=names,
    metavar="QUEUE[:WEIGHT],...",
    help="The queues that all of them serve. [default: all]",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=N",
    help="At most N jobs of a key at once: customer_id=5, task:send=5, task:send:customer_id=5, queue:mail=50. Can be given "
    "several times.",
)
@click.option(
    "--had-limit",
    "had",
    multiple=True,
    metavar="NAME=N",
    help="A limit that these jobs had, in the same form: it stays, if no --limit has its name. Can be given several times.",
)
@click.option(
    "--schedule",
    "moves",
    multiple=True,
    metavar="TASK=CRON",
    help="Let a task's jobs be ready at these times (UTC): as many a day as were. Can be given several times.",
)
@click.option("--late", type=LENGTH, default="1m", show_default=True, help="A job that waits longer is late.")
@click.option("--out", metavar="FILE", help="Write a page with pictures to this file.")
@json_option
def whatif(
    *,
    given: LakeOptions,
    days: list[date],
    workers: int,
    concurrency: int,
    queues: list[str] | None,
    limits: tuple[str, ...],
    had: tuple[str, ...],
    moves: tuple[str, ...],
    late: timedelta,
    out: str | None,
    as_json: bool,
) -> None:
    """Replay recorded jobs under other settings: how long would they have waited?

    Reads only the lake, and needs neither a database nor Spark. Each job is ready when it was, and runs as long as it did.
    The settings that the jobs had are replayed first, and the error is printed; a figure that this replay misses by more than
    25% is not predicted. Limits that your tasks have are not in the lake: give them with --had-limit.
    """
    from pgqueue.spark.report.rendering import check_out  # noqa: PLC0415 - slow to import, so other errors come first
    from pgqueue.spark.whatif import page  # noqa: PLC0415 - needs PyArrow
    from pgqueue.spark.whatif.settings import ReplaySettings, read_limit, read_move  # noqa: PLC0415 - needs NumPy
    from pgqueue.spark.whatif.whatif import whatif as compared  # noqa: PLC0415 - needs PyArrow

    settings = ReplaySettings(
        workers=workers,
        concurrency=concurrency,
        serving=parse_served(queues),
        limits=tuple(map(read_limit, limits)),
        had=tuple(map(read_limit, had)),
        moved=tuple(map(read_move, moves)),
        late=late,
    )
    if out is not None:
        check_out(out, "whatif.html")
    found = compared(given.lake(), days, settings)
    if out is not None:
        page.write(found, out)
    if as_json:
        print_json(found)
        return
    for line in (*page.answer(found), *page.checked(found)):
        click.echo(line)
    rows = [(row.queue, row.task, *page.cells(row)) for row in found.tasks[:SHOWN_TASKS]]
    print_table(page.HEADS, rows, empty="")
    if len(found.tasks) > SHOWN_TASKS:
        click.echo(f"The first {SHOWN_TASKS} of {len(found.tasks):,} tasks; --json has all.")
    for line in page.not_known(found):
        click.echo(line)
    if out is not None:
        click.echo(f"The page: {out}")

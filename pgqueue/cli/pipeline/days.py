"""``pgqueue pipeline export``, ``verify``, ``prune`` and ``compact``: the verbs that write days to the lake, or drop them."""

from collections import Counter
from datetime import date, timedelta
from typing import TYPE_CHECKING

import click

from pgqueue.app.operator import operator_name
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, steers
from pgqueue.cli.pipeline.options import (
    LakeOptions,
    Spark,
    days_option,
    in_lake,
    kept_for,
    margin_option,
    on_spark,
    size,
    verified_lakes,
)
from pgqueue.cli.values import LENGTH
from pgqueue.errors import DaysNotExported, InvalidOption
from pgqueue.spark.report.words import some
from pgqueue.store.pipeline import lake as plans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgqueue.spark.lake.compact import CompactedDay
    from pgqueue.spark.lake.export import ExportedDay
    from pgqueue.spark.lake.prune import PrunedDay
    from pgqueue.spark.lake.verify import VerifyResult
    from pgqueue.store.pipeline.lake import Session


@click.command()
@in_lake
@on_spark
@margin_option
@click.option(
    "--wait",
    type=LENGTH,
    default="1m",
    show_default=True,
    help="Wait this long for transactions that may still add to a closed day; what they add later is left to the next export.",
)
@click.option(
    "--rows-per-file",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="The most rows of a file; a queue with more rows on a day has several files.",
)
@days_option(
    "--again",
    "Write this UTC day (or FIRST..LAST) again from the database, in place of the lake's rows. Dead jobs "
    "that were revived or purged since are then not in it.",
)
@click.option(
    "--change-data-feed",
    is_flag=True,
    help="Switch on Delta's change data feed of the table ended, for readers that follow its changes; it stays on.",
)
@json_option
@with_queue
def export(
    queue: PgQueue,
    /,
    *,
    spark: Spark,
    given: LakeOptions,
    margin: timedelta,
    wait: timedelta,
    rows_per_file: int,
    again: set[date],
    change_data_feed: bool,
    as_json: bool,
) -> None:
    """Write every closed day that is not in the lake yet, and late rows of the days that are.

    A day is closed when it is over. Where a transaction stays open that may add rows to it, what is final is written, and
    the rest is left to the next export. The exit code is 1 if a day could not be exported; the others were.
    """
    from pgqueue.spark.lake import export as exports  # noqa: PLC0415 - slow to import, so other errors come first

    options = exports.ExportOptions(
        margin=margin,
        wait=wait,
        rows_per_file=rows_per_file,
        again=again,
        hide=given.config.hide,
        change_data_feed=change_data_feed,
    )
    queue.database.verify()
    left: list[Session] = []
    try:
        done = exports.export(
            spark, queue.database, given.lake(), options=options, tell=_tell_exported, tell_open=left.extend
        )
    except DaysNotExported as error:
        click.echo(f"pgqueue: {error}", err=True)
        click.get_current_context().exit(1)
    if left:
        click.echo(_of_open(left), err=True)
    if as_json:
        print_json(done)
    elif done or not left:
        click.echo(_exported_text(done))


def _tell_exported(one: "ExportedDay") -> None:
    rows = f"{some(one.history, 'row')} of the history, {some(one.dead, 'dead job')}"
    files = f"{some(one.files, 'file')}, {size(one.bytes)}"
    click.echo(f"{one.day}: {rows}; {files}; {one.seconds:.1f} s", err=True)


def _of_open(left: "Sequence[Session]") -> str:
    named = "; ".join(map(str, left))
    return f"rows that open transactions may add to closed days are left to the next export: {named}"


def _exported_text(done: "Sequence[ExportedDay]") -> str:
    if not done:
        return "nothing to export: every closed day is in the lake"
    rows = sum(one.history + one.dead for one in done)
    return f"{some(len(done), 'day')} exported: {some(rows, 'row')}, {size(sum(one.bytes for one in done))}"


@click.command()
@in_lake
@on_spark
@click.option("--all", "everything", is_flag=True, help="Verify the days that are verified already, too.")
@days_option("--day", "Only this UTC day (or FIRST..LAST), verified already or not.")
@json_option
@with_queue
def verify(
    queue: PgQueue,
    /,
    *,
    spark: Spark,
    given: LakeOptions,
    everything: bool,
    day: set[date],
    as_json: bool,
) -> None:
    """Compare the exported days with the database, row by row: counts, and checksums of every column.

    Only days that are verified can be pruned. The exit code is 1 if a day differs.
    """
    from pgqueue.spark.lake import verify as verifying  # noqa: PLC0415 - slow to import, so other errors come first

    queue.database.verify()
    lake, is_first = given.lake(), not verified_lakes(queue)
    found = verifying.verify(
        spark, queue.database, lake, days=day or None, everything=everything, tell=_tell_verified
    )
    if is_first and any(one.finding is verifying.DayFinding.VERIFIED for one in found):
        click.echo(f"from now on {kept_for([lake.uri])}", err=True)
    differing = [one for one in found if one.reason]
    if as_json:
        print_json(found)
    elif not found:
        click.echo("nothing to verify: every day in the lake is verified")
    else:
        agreeing = sum(one.finding is verifying.DayFinding.VERIFIED for one in found)
        click.echo(f"{some(agreeing, 'day')} verified, {some(len(differing), 'day')} differing")
    if differing:
        click.get_current_context().exit(1)


def _tell_verified(one: "VerifyResult") -> None:
    rows = f"{some(one.history, 'row')} of the history, {some(one.dead, 'dead job')}"
    if one.standing != one.dead:
        rows += f" ({some(one.standing, 'is', 'are')} still in the database)"
    click.echo(f"{one.day}: {one.finding}; {rows}" + (f"; {one.reason}" if one.reason else ""), err=True)


@click.command()
@in_lake
@click.option(
    "--keep",
    type=LENGTH,
    default="7d",
    show_default=True,
    help="Keep the history of the last days, such as 7d.",
)
@click.option(
    "--keep-lake",
    type=LENGTH,
    help="Drop older days from the lake, too, such as 730d; their roll-ups stay. [default: keep all]",
)
@click.option(
    "--wait",
    type=LENGTH,
    default="1m",
    show_default=True,
    help="Wait this long, in all, until nothing else uses the history; then try each day once more.",
)
@days_option("--day", "Only this UTC day (or FIRST..LAST).")
@json_option
@with_queue
def prune(
    queue: PgQueue,
    /,
    *,
    given: LakeOptions,
    keep: timedelta,
    keep_lake: timedelta | None,
    wait: timedelta,
    day: set[date],
    as_json: bool,
) -> None:
    """Drop the days of the history that are verified in the lake, after comparing each once more.

    Dead jobs stay. The exit code is 1 if a verified day was refused, because it has changed or was in use.
    """
    from pgqueue.spark.lake import prune as pruning  # noqa: PLC0415 - slow to import, so other errors come first

    queue.database.verify()
    lake, days = given.lake(), day or None
    found = pruning.prune(queue.database, lake, keep=keep, days=days, lock_wait=wait, tell=_tell_pruned)
    if keep_lake is not None:
        found += pruning.drop(queue.database, lake, keep=keep_lake, days=days, tell=_tell_pruned)
    if as_json:
        print_json(found)
    else:
        click.echo(_pruned_text(found))
    if any(one.fate in (pruning.Fate.REFUSED, pruning.Fate.BUSY) for one in found):
        click.get_current_context().exit(1)


def _pruned_text(found: "list[PrunedDay]") -> str:
    rows, days = Counter[str](), Counter[str]()
    for one in found:
        days[one.fate] += 1
        rows[one.fate] += one.rows
    pruned, dropped = days.pop("pruned", 0), days.pop("dropped", 0)
    said = f"{some(pruned, 'day')} pruned: {some(rows['pruned'], 'row')}"
    if dropped:
        said += f"; {some(dropped, 'day')} dropped from the lake: {some(rows['dropped'], 'row')}"
    return f"{said}; {some(days.total(), 'day')} kept"


def _tell_pruned(one: "PrunedDay") -> None:
    rows = f"; {some(one.rows, 'row')}" if one.rows else ""
    click.echo(f"{one.day}: {one.fate}{rows}" + (f"; {one.reason}" if one.reason else ""), err=True)


@click.command()
@in_lake
@steers
@with_queue
def leave(queue: PgQueue, /, *, given: LakeOptions) -> None:
    """End what `verify` began: workers drop old history by its age again, whether a lake has it or not.

    The lake need not exist any more, and keeps what it has. The days that were pruned cannot be verified in it again.
    """
    queue.database.verify()
    uri = given.lake().uri
    days, others = queue.database.run(plans.leave(uri, by=operator_name(None)))
    if not days:
        raise InvalidOption(f"no day of this database is verified in {uri}: {_verified_in(queue)}")
    click.echo(
        f"{some(days, 'day')} of the history {'is' if days == 1 else 'are'} verified in {uri} no longer"
    )
    if others:
        click.echo(f"history is still kept for another lake: {_verified_in(queue)}", err=True)
    else:
        click.echo(
            "workers drop old history by its age again: `pgqueue retention` shows what goes when", err=True
        )


def _verified_in(queue: PgQueue) -> str:
    lakes = verified_lakes(queue)
    return f"days are verified in {', '.join(lakes)}" if lakes else "none is verified in any lake"


@click.command()
@in_lake
@click.option(
    "--rows-per-file",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="The most rows of a merged file; as many are in memory at once.",
)
@days_option("--days", "Only this UTC day (or FIRST..LAST). [default: all]")
@json_option
@with_queue
def compact(
    queue: PgQueue,
    /,
    *,
    given: LakeOptions,
    rows_per_file: int,
    days: set[date],
    as_json: bool,
) -> None:
    """Merge the small files of each day into one. The rows stay the same, and verified days stay verified."""
    from pgqueue.spark.lake import compact as compacting  # noqa: PLC0415 - slow to import, so other errors come first

    queue.database.verify()
    found = compacting.compact(
        queue.database, given.lake(), rows_per_file=rows_per_file, days=days or None, tell=_tell_compacted
    )
    if as_json:
        print_json(found)
    else:
        click.echo(f"{some(len(found), 'day')} compacted: {some(sum(one.rows for one in found), 'row')}")


def _tell_compacted(one: "CompactedDay") -> None:
    click.echo(f"{one.day}: {some(one.before, 'file')} became {one.after}; {some(one.rows, 'row')}", err=True)

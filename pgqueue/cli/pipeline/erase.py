"""``pgqueue pipeline erase``: removes chosen jobs from the lake, its roll-ups and the database's history."""

from datetime import date, timedelta
from typing import TYPE_CHECKING

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json
from pgqueue.cli.pipeline.options import (
    LakeOptions,
    Spark,
    days_option,
    in_lake,
    lasting_secrets,
    on_spark,
)
from pgqueue.cli.values import LENGTH
from pgqueue.errors import InvalidOption
from pgqueue.spark.config import Config
from pgqueue.spark.report.words import some
from pgqueue.values.redaction import Redaction

if TYPE_CHECKING:
    from pgqueue.spark.erasing import EraseCondition, ErasedDay


class EraseResult(msgspec.Struct):
    """What was erased, and how it was checked."""

    days: list["ErasedDay"]
    differing: list[str]
    dry_run: bool


@click.command()
@in_lake
@on_spark
@click.option("--tenant", help="Jobs of this tenant; the file of --config says where a job's tenant is.")
@click.option("--key", help="Jobs with this unique key.")
@click.option(
    "--where",
    metavar="SQL",
    help="Jobs for which this expression of DuckDB over the columns of ended jobs is true.",
)
@click.option("--reason", default="", help="Recorded with each changed day, such as the number of a request.")
@days_option("--days", "Only this UTC day (or FIRST..LAST). [default: all]")
@click.option(
    "--keep-files",
    type=LENGTH,
    default="0s",
    help="Keep the files of earlier versions this long, such as 24h, for readers of the change data feed; "
    "until then they hold the jobs. [default: delete them at once]",
)
@click.option("--dry-run", is_flag=True, help="Only count the jobs.")
@json_option
@with_queue
def erase(
    queue: PgQueue,
    /,
    *,
    spark: Spark,
    given: LakeOptions,
    tenant: str | None,
    key: str | None,
    where: str | None,
    reason: str,
    days: set[date],
    dry_run: bool,
    keep_files: timedelta,
    as_json: bool,
) -> None:
    """Remove chosen jobs from the lake, its roll-ups, the history and the dead jobs, for good.

    Give one of --tenant, --key and --where. Jobs that are not in the lake yet are not touched. Changed days are verified, and
    their roll-ups are made again; give the --config that they were made with. The exit code is 1 if a day differs.
    """
    from pgqueue.spark import erasing  # noqa: PLC0415 - slow to import, so other errors come first

    queue.database.verify()
    condition = _condition(given.config, tenant, key, where)
    if dry_run:
        found = erasing.erase(
            queue.database, given.lake(), condition, days=days or None, dry_run=True, tell=_tell_dry
        )
        differing = []
    else:
        found, verified = erasing.erase_everywhere(
            spark,
            queue.database,
            given.lake(),
            given.config,
            condition,
            reason=reason,
            days=days or None,
            keep_files=keep_files,
            redaction=Redaction(lasting_secrets(queue)),
            tell=_tell,
        )
        differing = [f"day {one.day}: {one.reason}" for one in verified if one.reason]
    if as_json:
        print_json(EraseResult(found, differing, dry_run))
    else:
        click.echo(_in_words(found, dry_run=dry_run))
        for one in differing:
            click.echo(one, err=True)
    if differing:
        click.get_current_context().exit(1)


def _condition(config: Config, tenant: str | None, key: str | None, where: str | None) -> "EraseCondition":
    from pgqueue.spark import erasing  # noqa: PLC0415 - needs PyArrow

    chosen = [one for one in (tenant, key, where) if one is not None]
    if len(chosen) != 1:
        raise InvalidOption("give one of --tenant, --key and --where")
    if tenant is not None:
        return erasing.of_tenant(tenant, config)
    return erasing.EraseCondition(where) if where is not None else erasing.of_key(chosen[0])


def _in_words(found: "list[ErasedDay]", *, dry_run: bool) -> str:
    rows = sum(one.rows for one in found)
    if not found:
        return "no such jobs in the lake"
    jobs = f"{some(rows, 'job')} of {some(len(found), 'day')}"
    if dry_run:
        return f"{jobs} would be erased"
    erased = (
        f"{jobs} erased from the lake, {sum(one.database for one in found)} of them from the database, too"
    )
    stays = sum(one.in_flows for one in found)
    return f"{erased}; {_in_flows(stays)}: run it again when they have ended" if stays else erased


def _in_flows(jobs: int) -> str:
    return f"{some(jobs, 'job')} of workflows that go on stay"


def _tell(one: "ErasedDay") -> None:
    said = f"{one.day}: {some(one.rows, 'job')} erased, {one.database} from the database"
    click.echo(f"{said}; {_in_flows(one.in_flows)}" if one.in_flows else said, err=True)


def _tell_dry(one: "ErasedDay") -> None:
    click.echo(f"{one.day}: {some(one.rows, 'job')}", err=True)

"""``pgqueue pipeline steps``: shows how long each run of a step took, and what it cost."""

from typing import TYPE_CHECKING

import click
import msgspec

from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.pipeline.options import in_lake, lake_of
from pgqueue.spark.config import Config, load

if TYPE_CHECKING:
    from datetime import datetime

    from pgqueue.spark.lake.steps import StepRun

HEADS = ("started", "step", "seconds", "cpu seconds", "days", "rows", "cost", "error")


class PricedRun(msgspec.Struct):
    """A run of a step, and what it cost."""

    step: str
    started_at: "datetime"
    seconds: float
    cpu_seconds: float
    days: int
    rows: int
    cost: float | None
    error: str | None


@click.command()
@in_lake
@click.option(
    "--last", type=click.IntRange(min=1), default=20, show_default=True, help="Show this many runs."
)
@json_option
def steps(*, lake: str | None, config: str | None, last: int, as_json: bool) -> None:
    """Show the last runs of export, verify, rollup, report, prune and others: duration, CPU time, rows and cost.

    The cost is the duration times the price of a second in the file of --config.
    """
    told = load(config)
    place = lake_of(lake, told)

    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.lake.steps import steps as runs  # noqa: PLC0415 - needs PyArrow

    found = [_with_cost(one, told) for one in runs(Lake(place))[-last:]]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.started_at,
            one.step,
            f"{one.seconds:.1f}",
            f"{one.cpu_seconds:.1f}",
            one.days,
            one.rows,
            None
            if one.cost is None
            else f"{one.cost:.4f} {told.cost.currency if told.cost else ''}".rstrip(),
            one.error,
        )
        for one in found
    ]
    print_table(HEADS, rows, empty="no step was logged")


def _with_cost(one: "StepRun", config: Config) -> PricedRun:
    cost = None if config.cost is None else one.seconds * config.cost.per_run_second
    return PricedRun(
        step=one.step,
        started_at=one.started_at,
        seconds=one.seconds,
        cpu_seconds=one.cpu_seconds,
        days=one.days,
        rows=one.rows,
        cost=cost,
        error=one.error,
    )

"""``pgqueue runs``: DataFrames that were written under a name: how far their jobs are; cancel what has not ended."""

from typing import Any

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.bulk import operate
from pgqueue.cli.output import json_option, print_fields, print_json, print_table, steers
from pgqueue.cli.table import Column
from pgqueue.cli.verbs import VerbGroup
from pgqueue.store.insight import runs as plans
from pgqueue.values.insight.runs import Run
from pgqueue.values.workers.lease import duration_text

COLUMNS = (
    Column("run", 0, least=12),
    Column("task", 3, least=12),
    Column("written", 4),
    Column("jobs", 1),
    Column("waiting", 5),
    Column("running", 5),
    Column("dead", 2),
    Column("ended", 1),
)


@click.group(cls=VerbGroup)
def runs() -> None:
    """List DataFrames that were written under a name, and how far their jobs are; cancel what has not ended."""


@runs.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="At most how many."
)
@json_option
@with_queue
def list_runs(queue: PgQueue, /, *, limit: int, as_json: bool) -> None:
    """List the latest runs. Ended are jobs that succeeded or were cancelled, and those whose history was deleted."""
    found = queue.insight.runs(limit=limit)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    rows = [
        (
            one.name,
            ", ".join(one.tasks),
            one.last_at,
            one.jobs,
            one.waiting,
            one.running,
            one.dead,
            one.ended,
        )
        for one in found
    ]
    print_table(COLUMNS, rows, empty="no runs: a DataFrame that is written with the option run is one")


@runs.command()
@click.argument("run")
@json_option
@with_queue
def show(queue: PgQueue, /, *, run: str, as_json: bool) -> None:
    """Show a run: its jobs by state, its rate in the last minute, and how long the rest takes."""
    found = queue.insight.run(run)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    print_fields(_fields(found).items())


@runs.command()
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@steers
@with_queue
def cancel(queue: PgQueue, /, *, run: str, **given: Any) -> None:  # noqa: ANN401 - the options
    """Cancel the jobs of a run that have not ended: waiting jobs end at once, and workers are asked to stop running ones."""
    queue.database.run(plans.glance(run))  # an unknown one is an error
    chosen = queue.control.jobs(run=run)
    operate(
        queue,
        given,
        preview=lambda: chosen.preview("cancel"),
        do=lambda progress: chosen.cancel(progress=progress),
        what="cancel {} jobs",
        done=f"cancelled: the live jobs of the run {run}",
    )


def _fields(run: Run) -> dict[str, object]:
    shown: dict[str, object] = {
        "run": run.name,
        "tasks": ", ".join(run.tasks),
        "writes": run.writes,
        "written": run.first_at if run.writes == 1 else f"{run.first_at} to {run.last_at}",
        "rows": run.rows,
        "jobs": run.jobs,
    }
    for name in ("blocked", "scheduled", "ready", "running", "succeeded", "dead", "cancelled", "gone"):
        shown[name] = getattr(run, name)
    for name in ("rejected", "refused", "changed"):
        if getattr(run, name):
            shown[f"rows {name}"] = getattr(run, name)
    shown["rate"] = f"{run.rate or 0:.1f}/s"
    if run.seconds_left is not None:
        shown["time left"] = duration_text(round(run.seconds_left))
    if run.ended_at is not None:
        shown["last end"] = run.ended_at
    return shown

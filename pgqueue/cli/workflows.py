"""``pgqueue workflows``: look at chains, groups and workflows, draw, cancel and retry them."""

from pathlib import Path

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table, steers
from pgqueue.cli.table import Column
from pgqueue.cli.values import JOB_ID
from pgqueue.cli.verbs import VerbGroup
from pgqueue.errors import FlowError
from pgqueue.values.flows.drawing import draw_flow, mermaid, svg
from pgqueue.values.flows.record import FlowRecord, FlowState, describe_counts
from pgqueue.values.flows.retry import WHAT, What

FLOW_ID = JOB_ID
COLUMNS = (
    "id",
    Column("kind", 6, least=0),
    Column("name", 1),
    Column("key", 4, least=8),
    Column("state", 0, state=True, least=0),
    Column("created", 3),
    Column("ended", 5),
    Column("jobs", 2, least=20),
)
FLOW = click.argument("flow_id", metavar="ID", type=FLOW_ID)


@click.group(cls=VerbGroup)
def workflows() -> None:
    """List, show, cancel or retry chains, groups and workflows."""


@workflows.command("list")
@click.option(
    "--state",
    type=click.Choice([str(one) for one in FlowState]),
    multiple=True,
    help="Only in this state; repeat it for more.",
)
@click.option("--kind", type=click.Choice(["chain", "group", "workflow"]), help="Only of this kind.")
@click.option("--name", help="Only of this name.")
@click.option("--key", help="Only of this key.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most this many."
)
@click.option(
    "--before",
    type=FLOW_ID,
    metavar="ID",
    help="Only with a lower id; for the next page the last id of this one.",
)
@json_option
@with_queue
def list_flows(
    queue: PgQueue,
    /,
    *,
    state: tuple[str, ...],
    kind: str | None,
    name: str | None,
    key: str | None,
    limit: int,
    before: int | None,
    as_json: bool,
) -> None:
    """List chains, groups and workflows, newest first, and how many of their jobs are in which state."""
    found = queue.redaction.shown(
        queue.flows.list(state=state or None, kind=kind, name=name, key=key, before=before, limit=limit)
    )
    if as_json:
        print_json(found)
        return
    print_table(COLUMNS, [_row(one) for one in found], empty="no workflows match")
    if len(found) == limit:
        click.echo(f"there may be more: --before {found[-1].id}", err=True)


@workflows.command()
@FLOW
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print the text of a Mermaid diagram.")
@click.option(
    "--svg", "svg_file", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture to this file."
)
@json_option
@with_queue
def show(queue: PgQueue, /, *, flow_id: int, as_mermaid: bool, svg_file: Path | None, as_json: bool) -> None:
    """Draw a workflow: its nodes in the order in which they can run, and why each of them waits.

    Members of a group of more than 512 are only counted.
    """
    if sum((as_mermaid, svg_file is not None, as_json)) > 1:
        raise click.UsageError("Give one of --mermaid, --svg and --json.")
    found = queue.redaction.shown(queue.flows.get(flow_id))
    if as_json:
        print_json(found)
    elif as_mermaid:
        click.echo(mermaid(found))
    elif svg_file is not None:
        svg_file.write_text(svg(found), encoding="utf-8")
        click.echo(f"{svg_file}: written", err=True)
    else:
        click.echo(draw_flow(found))


@workflows.command()
@click.argument("flow_ids", metavar="ID...", type=FLOW_ID, nargs=-1, required=True)
@steers
@with_queue
def cancel(queue: PgQueue, /, *, flow_ids: tuple[int, ...]) -> None:
    """Cancel all that has not ended in workflows. Workers are asked to stop the jobs that run.

    If you interrupt the command, run it again for the rest.
    """
    failed = False
    for flow_id in flow_ids:
        try:
            done = queue.flows.cancel(flow_id)
        except FlowError as error:
            done, words = False, str(error)
        else:
            words = "cancelled" if done else "not changed: it has ended"
        click.echo(f"{flow_id}: {words}", err=not done)
        failed |= not done
    if failed:
        click.get_current_context().exit(1)


@workflows.command()
@FLOW
@click.option(
    "--what",
    type=click.Choice(WHAT),
    default="downstream",
    show_default=True,
    help="The failed jobs; also what was cancelled or skipped because of them; or everything.",
)
@steers
@with_queue
def retry(queue: PgQueue, /, *, flow_id: int, what: What) -> None:
    """Run parts of a workflow again, all in one transaction. Parts that succeeded keep their results."""
    count = queue.flows.retry(flow_id, what=what)
    click.echo(f"{flow_id}: {count} jobs run again", err=not count)
    if not count:
        click.get_current_context().exit(1)


def _row(one: FlowRecord) -> tuple[object, ...]:
    jobs = "more than 10,000 nodes" if one.counts is None else describe_counts(one.counts)
    return one.id, one.kind, one.name, one.key, one.state, one.created_at, one.ended_at, jobs

"""``pgqueue audit``: what operators did, and operations on many jobs that were interrupted."""

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.bulk import run
from pgqueue.cli.output import json_option, print_json, print_table, steers
from pgqueue.cli.table import Column
from pgqueue.cli.values import JOB_ID
from pgqueue.cli.verbs import VerbGroup
from pgqueue.values.bulk.operation import AuditEntry

COLUMNS = (
    "id",
    Column("time", 1),
    Column("by", 2),
    Column("action", 0, least=0),
    Column("target", 3),
    Column("jobs", 4),
    Column("state", 5, state=True, least=0),
    Column("details", 6, least=16),
)


@click.group(cls=VerbGroup)
def audit() -> None:
    """List what operators did; continue an operation on many jobs."""


@audit.command("list")
@click.option("--limit", type=int, default=100, show_default=True, help="List at most this many.")
@click.option("--before", type=JOB_ID, metavar="ID", help="Only entries with a lower id.")
@json_option
@with_queue
def list_audit(queue: PgQueue, /, *, limit: int, before: int | None, as_json: bool) -> None:
    """List what operators did to queues, jobs and workers, newest first."""
    found = queue.redaction.shown(queue.insight.audit(before=before, limit=limit))
    if as_json:
        print_json(found)
        return
    print_table(COLUMNS, [_row(one) for one in found], empty="nothing was done")


@audit.command()
@click.argument("operation", metavar="ID", type=JOB_ID)
@steers
@json_option
@with_queue
def resume(queue: PgQueue, /, *, operation: int, as_json: bool) -> None:
    """Continue an operation on many jobs that was interrupted."""
    run(
        lambda progress: queue.control.resume_operation(operation, progress=progress),
        total=0,
        done=f"done in all: operation {operation}",
        as_json=as_json,
    )


def _row(one: AuditEntry) -> tuple[object, ...]:
    state = "unfinished" if one.unfinished else None
    details = msgspec.json.encode(one.details).decode() if one.details else None
    return one.id, one.at, one.by, one.action, one.target, one.jobs, state, details

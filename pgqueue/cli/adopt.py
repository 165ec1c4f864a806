"""``pgqueue adopt``: move waiting jobs from the tables of another queue system into pgqueue's, in one transaction."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import queue_of
from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.verbs import CommandOptions, VerbGroup
from pgqueue.moving.adoption import Judge
from pgqueue.store import adopt as plans
from pgqueue.store.plan import Plan
from pgqueue.values.jobs.unique import Unique

F = TypeVar("F", bound=Callable[..., Any])
HEADS = ("task", "queue", "jobs", "outcome")


class AdoptionLine(msgspec.Struct, omit_defaults=True):
    """Jobs of one task and queue, and their outcome."""

    task: str
    queue: str | None
    jobs: int
    new_task: str | None = None
    new_queue: str | None = None
    why: str | None = None

    def words(self) -> str:
        """The outcome, as text."""
        if self.why is not None:
            return f"left: {self.why}"
        return f"copied to task {self.new_task} in queue {self.new_queue}"


class AdoptionReport(msgspec.Struct):
    """What was done, or in a dry run would be.

    Of the copied jobs, ``clamped`` had a priority out of range, ``tried`` had earlier attempts, which are not counted,
    and ``without_headers`` had headers, which are dropped.
    """

    dry_run: bool
    copied: list[AdoptionLine]
    left: list[AdoptionLine]
    clamped: int
    tried: int
    without_headers: int


class DryRunRollback(Exception):
    """Rolls a dry run back."""


@click.group(cls=VerbGroup)
def adopt() -> None:
    """Move waiting jobs from the tables of Procrastinate or PgQueuer in the same database."""


def _adopt_options(verb: F) -> F:
    for add in (
        json_option,
        click.option("--dry-run", is_flag=True, help="Do everything, print the outcome, and roll back."),
        click.option("--max-attempts", type=int, help="The jobs are dead after this many failed attempts."),
        click.option("--into", help="Move all jobs to this queue."),
        click.option(
            "--any-task", is_flag=True, help="Move jobs of tasks that --app does not register, too."
        ),
        click.option(
            "--rename",
            "renames",
            metavar="OLD=NEW",
            multiple=True,
            help="A task's new name; give it again for more tasks.",
        ),
        click.option(
            "--task", "tasks", multiple=True, help="Only jobs of this task; give it again for more tasks."
        ),
        click.option(
            "--from-schema", help="The schema of the other queue's tables, if not on the search path."
        ),
    ):
        verb = add(verb)
    return verb


@adopt.command()
@_adopt_options
@click.option(
    "--queue", "queues", multiple=True, help="Only jobs of this queue; give it again for more queues."
)
@click.option("--without-locks", is_flag=True, help="Move jobs that have a lock, too, without the lock.")
@click.pass_obj
def procrastinate(settings: CommandOptions, /, **given: Any) -> None:  # noqa: ANN401 - the options above
    """Move waiting jobs from Procrastinate. The exit code is 1 if one was left there."""
    _adopt(settings, plans.from_procrastinate, Unique(until="started"), **given)


@adopt.command()
@_adopt_options
@click.option("--payload-as", metavar="PARAMETER", help="Give the payload to this parameter.")
@click.option(
    "--payload-is",
    type=click.Choice(["json", "text", "base64"]),
    default="json",
    help="How to read the payload.  [default: json]",
)
@click.pass_obj
def pgqueuer(settings: CommandOptions, /, *, payload_as: str | None, payload_is: str, **given: Any) -> None:  # noqa: ANN401 - the options above
    """Move waiting jobs from PgQueuer. The exit code is 1 if one was left there."""
    if payload_as is None and payload_is != "json":
        raise click.UsageError(
            f"--payload-is {payload_is} needs --payload-as: only a JSON object names its parameters"
        )
    _adopt(settings, plans.from_pgqueuer, Unique(), payload_as=payload_as, payload_is=payload_is, **given)


def _adopt(
    settings: CommandOptions,
    plan: Callable[[plans.Adoption], Plan[plans.AdoptionTally]],
    unique: Unique,
    *,
    tasks: tuple[str, ...],
    renames: tuple[str, ...],
    from_schema: str | None,
    dry_run: bool,
    as_json: bool,
    queues: tuple[str, ...] = (),
    **rules: Any,  # noqa: ANN401 - the judge's own
) -> None:
    queue = queue_of(settings)
    click.get_current_context().call_on_close(queue.close)
    judge = Judge(
        queue=queue,
        unique=unique,
        tasks=None if settings.app is None else queue.tasks,
        rename=_parse_renames(renames),
        **rules,
    )
    adoption = plans.Adoption(
        judge=judge, tasks=tasks or None, queues=queues or None, from_schema=from_schema
    )
    report = _report(_run(queue, plan(adoption), dry_run=dry_run), dry_run=dry_run)
    print_json(report) if as_json else _print(report)
    if report.left:
        click.get_current_context().exit(1)


def _run(queue: PgQueue, plan: Plan[plans.AdoptionTally], *, dry_run: bool) -> plans.AdoptionTally:
    tally = plans.AdoptionTally()
    with suppress(DryRunRollback), queue.database.transaction() as connection:
        tally = queue.database.run(plan, connection)
        if dry_run:
            raise DryRunRollback
    return tally


def _parse_renames(renames: tuple[str, ...]) -> Mapping[str, str]:
    pairs = [rename.partition("=") for rename in renames]
    for old, _, new in pairs:
        if not (old and new):
            raise click.BadParameter(
                f"{old!r}: write the old name and the new one, OLD=NEW.", param_hint="--rename"
            )
    return {old: new for old, _, new in pairs}


def _report(tally: plans.AdoptionTally, *, dry_run: bool) -> AdoptionReport:
    copied = [
        AdoptionLine(one.task, one.queue, count, one.new_task, one.new_queue)
        for one, count in tally.copied.items()
    ]
    left = [AdoptionLine(one.task, one.queue, count, why=one.why) for one, count in tally.left.items()]
    for lines in (copied, left):
        lines.sort(key=lambda line: (line.task, line.queue or "", line.words()))
    return AdoptionReport(dry_run, copied, left, tally.clamped, tally.tried, tally.headers)


def _print(report: AdoptionReport) -> None:
    lines = [*report.copied, *report.left]
    print_table(
        HEADS, [(one.task, one.queue, one.jobs, one.words()) for one in lines], empty="no job waits there"
    )
    for count, words in (
        (report.clamped, "had a priority out of range, and have the nearest priority now"),
        (report.tried, "had earlier attempts, and have all their attempts again"),
        (report.without_headers, "had headers, which were dropped"),
    ):
        if count:
            click.echo(f"{count} {words}")
    copied, left = (sum(line.jobs for line in lines) for lines in (report.copied, report.left))
    undone = "; a dry run: nothing was changed" if report.dry_run else ""
    click.echo(f"{copied} copied, {left} left{undone}")

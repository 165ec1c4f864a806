"""``pgqueue chaos``: work while faults happen, and a verdict on the promises. :mod:`pgqueue.chaos` does the work.

This file has the options, and makes the schema in the user's database when a DSN is given.
"""

import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import click

from pgqueue.bench.own_schema import own_schema
from pgqueue.chaos.faults import FAULTS, Fault, choose_faults, missing_tools
from pgqueue.chaos.run import (
    MOST_SHOWN,
    ChaosPlan,
    RunOutcome,
    complaints,
    outcome_fields,
    rows,
    run,
    verdict,
)
from pgqueue.chaos.stage import ChaosStage
from pgqueue.chaos.staging import staged
from pgqueue.chaos.tasks import SCHEMA
from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.signals import end_like_an_interrupt
from pgqueue.cli.verbs import CommandOptions
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database

COMMAND = "pgqueue chaos"


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True, help="How long faults happen."
)
@click.option("--faults", default="", metavar="NAME,...", help="Only these; --list shows all.")
@click.option("--list", "lists", is_flag=True, help="List the faults, and which this run would leave out.")
@click.option("--seed", type=int, help="Of all choices: the same seed makes the same choices.")
@click.option(
    "--jobs", type=click.IntRange(min=0), default=0, help="Add this many orders, also if it takes longer."
)
@click.option(
    "--rate", type=click.FloatRange(min=1), default=100.0, show_default=True, help="Orders a second."
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=2, show_default=True, help="How many processes work."
)
@click.option(
    "--lease",
    type=click.FloatRange(min=1),
    default=3.0,
    show_default=True,
    help="The workers' lease, in seconds.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=0),
    default=0,
    help="Let each fault happen this often, however long that takes, in place of --seconds.",
)
@click.option(
    "--pause",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Seconds of quiet between two faults.",
)
@click.option(
    "--overload", is_flag=True, help="No faults: ten times as much work as the workers can do, for --seconds."
)
@click.option("--keep", is_flag=True, help="Keep the logs, and say where they are.")
@json_option
@click.pass_context
def chaos(
    ctx: click.Context,
    /,
    *,
    seconds: float,
    faults: str,
    lists: bool,
    seed: int | None,
    jobs: int,
    rate: float,
    workers: int,
    lease: float,
    rounds: int,
    pause: float,
    overload: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Put the queue under faults while it works, and check every promise.

    Without a DSN it starts PostgreSQL servers of its own, and all faults happen. With a DSN it works in the schema
    pgqueue_chaos of that database, which it makes and drops: use a staging database. Faults that would reach
    other programs are left out then. The last line is the verdict, and the exit code is 1 if a promise was broken.
    """
    dsn = (ctx.find_object(CommandOptions) or CommandOptions()).dsn
    absent = missing_tools(own_server=dsn is None)
    names = [name.strip() for name in faults.split(",") if name.strip()]
    wanted = [] if overload else choose_faults(names)
    possible = [fault for fault in wanted if not set(fault.needs) & set(absent)]
    left_out = {fault.name: _why(fault, absent) for fault in wanted if fault not in possible}
    if lists:
        _list(absent)
        return
    for name, why in left_out.items():
        click.echo(f"  left out: {name}: {why}", err=True)
    if not possible and not overload:
        raise ConfigurationError("no fault can happen here, so there is nothing to check; --list says why")
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    plan = ChaosPlan(seconds, jobs, rate, workers, possible, seed, rounds, pause, overload)
    with (
        end_like_an_interrupt(signal.SIGTERM, signal.SIGHUP),
        _open_stage(dsn, plan, lease, keep=keep) as stage,
    ):
        outcome = run(stage, plan, _tell)
    _show(outcome, seed, left_out, as_json=as_json)
    if complaints(outcome):
        ctx.exit(1)


def _why(fault: Fault, absent: Mapping[str, str]) -> str:
    return next(absent[need] for need in fault.needs if need in absent)


@contextmanager
def _open_stage(dsn: str | None, plan: ChaosPlan, lease: float, *, keep: bool) -> Iterator[ChaosStage]:
    """Everything that a run needs, in a schema of its own if the database is the user's."""
    kept = _tell if keep else None
    with ExitStack() as opened:
        if dsn is not None:
            theirs = Database(dsn, schema=SCHEMA)
            opened.enter_context(own_schema(theirs, COMMAND))
            dsn = theirs.dsn
        yield opened.enter_context(staged(dsn, plan.faults, lease=lease, seed=plan.seed, kept=kept))


def _tell(words: str) -> None:
    click.echo(f"  {words}", err=True)


def _list(absent: Mapping[str, str]) -> None:
    shown = [
        (fault.name, fault.does, f"left out: {_why(fault, absent)}" if set(fault.needs) & set(absent) else "")
        for fault in FAULTS.values()
    ]
    print_table(("FAULT", "WHAT HAPPENS", ""), shown, empty="")


def _show(outcome: RunOutcome, seed: int, left_out: dict[str, str], *, as_json: bool) -> None:
    broken = complaints(outcome)
    if as_json:
        print_json(outcome_fields(outcome, seed=seed, left_out=left_out))
    else:
        if outcome.overload:
            click.echo(outcome.overload.told())
        else:
            print_table(("FAULT", "TIMES", "MEDIAN S", "LONGEST S"), rows(outcome), empty="no fault happened")
        if outcome.judged.not_judged:
            click.echo(
                f"{outcome.judged.lost_by_setting:,} jobs were lost with a primary whose replica did not have them: that is "
                f"what asynchronous replication means; {outcome.judged.not_judged:,} jobs of that time are not judged"
            )
        for complaint in broken[:MOST_SHOWN]:
            click.echo(f"BROKEN {complaint}")
        click.echo(f"seed {seed}")
    click.echo(verdict(outcome), err=as_json)

"""``pgqueue pipeline check``: the quality of the lake's jobs; or, of a new release, whether it keeps the contracts of its tasks."""

from datetime import date
from typing import TYPE_CHECKING

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, say
from pgqueue.cli.pipeline.options import LakeOptions, days_option, in_lake_if_named, require_lake
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.spark.report.words import some
from pgqueue.values.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection

    from pgqueue.spark.typed.check import ContractCheck
    from pgqueue.values.payloads.contract_changes import ContractChange

NAMED = 5
"""Tasks that a line names."""


@click.command()
@in_lake_if_named
@days_option("--days", "Only this UTC day (or FIRST..LAST). [default: all that changed]")
@click.option(
    "--contracts",
    "of_contracts",
    is_flag=True,
    help="Check the tasks of --app in place of the lake's jobs: whether the release before can be followed by this one. Compares "
    "with the contracts in the lake, if one is named, else in the database.",
)
@click.option(
    "--accept",
    multiple=True,
    metavar="TASK",
    help="With --contracts: the breaks of this task are meant. Can be given several times.",
)
@json_option
@with_queue
def check(
    queue: PgQueue,
    /,
    *,
    given: LakeOptions | None,
    days: set[date],
    of_contracts: bool,
    accept: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check the quality of the lake's jobs: wrong times, rows twice, dead jobs without an error, and your own conditions.

    The results are rows of the lake's table checks. The exit code is 1 if a check failed.

    With --contracts and --app: check that each task of the app takes the arguments of the jobs that wait, and has the columns
    that readers know. A removed argument, a new one without a default, and another or a narrower type break this. The exit code
    is 1 if a task breaks its contract.
    """
    if of_contracts:
        _check_contracts(queue, given, days, accept, as_json=as_json)
    elif accept:
        raise InvalidOption("--accept goes with --contracts")
    else:
        _check_jobs(queue, require_lake(given), days, as_json=as_json)


def _check_jobs(queue: PgQueue, given: LakeOptions, days: set[date], *, as_json: bool) -> None:
    from pgqueue.spark import checks  # noqa: PLC0415 - slow to import, so other errors come first

    queue.database.verify()
    found = checks.check(queue.database, given.lake(), given.config.checks, days=days or None)
    failed = [one for one in found if not one.passed]
    if as_json:
        print_json(found)
    else:
        checked = len({one.day for one in found})
        click.echo(
            f"{some(checked, 'day')} checked: {some(len(found) - len(failed), 'check')} passed, {len(failed)} failed"
        )
        for one in failed:
            of = "" if one.task is None else f" of task {one.task}"
            allowed = f"; allowed are {one.most:.1%}" if one.most else ""
            click.echo(
                f"{one.day}: {one.name}: {one.found} of {some(one.jobs, 'job')}{of}, such as {one.example}{allowed}",
                err=True,
            )
    if failed:
        click.get_current_context().exit(1)


def _check_contracts(
    queue: PgQueue,
    given: LakeOptions | None,
    days: "Collection[date]",
    accept: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    from pgqueue.spark.typed.check import check_contracts  # noqa: PLC0415 - for this verb alone

    if not queue.tasks:
        raise ConfigurationError("no tasks to compare: --app names the app whose release is checked")
    if days:
        raise InvalidOption("--days are days of jobs: they do not go with --contracts")
    for name in accept:
        if name not in queue.tasks:
            raise InvalidOption(
                f"--accept {name!r:.80}: the app has no such task{did_you_mean(name, queue.tasks)}"
            )
    if given is None:
        queue.database.verify()
    found = check_contracts(queue.database if given is None else given.lake(), queue.tasks, accept=accept)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found.breaking:
        click.get_current_context().exit(1)


def _print(found: "ContractCheck") -> None:
    broken = {one.task for one in found.breaking}
    click.echo(
        f"{some(found.compared, 'task')} compared: {len(broken)} break{'s' if len(broken) == 1 else ''} the contract"
    )
    for one in found.changes:
        mark = (
            "accepted" if one.breaks and one.task in found.accepted else "breaks" if one.breaks else "allowed"
        )
        say(f"{mark}: {one.task}: {_said(one)}", err=one.breaks)
    for words, names in (
        ("new, with no contract yet", found.new),
        ("not in this app (removed, or another app's)", found.absent),
        ("not compared, since their types have no schema that can be stored", found.unknown),
    ):
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            say(f"{words}: {', '.join(names[:NAMED])}{more}")


def _said(one: "ContractChange") -> str:
    what = {
        "removed": "was removed",
        "added": "is new, without a default" if one.breaks else "is new, with a default",
        "required": "must be given now",
        "narrowed": "does not take all that it took",
        "widened": "takes more than it took",
    }[one.what]
    place = one.place if one.argument is None else f"argument {one.place}"
    was = f"; was {one.was}" if one.was is not None else ""
    now = f"; is {one.now}" if one.now is not None else ""
    jobs = "" if not one.jobs else f"; {some(one.jobs, 'live job has', 'live jobs have')} the old form"
    return f"{place} {what}{was}{now}{jobs}"

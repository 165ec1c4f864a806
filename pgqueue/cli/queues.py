"""``pgqueue queues``: what queues hold, whether workers claim from them, and their settings."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from pgqueue.app.operator import operator_name
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_fields, print_json, print_table, say, steers
from pgqueue.cli.table import Column
from pgqueue.cli.times import local, short_duration
from pgqueue.cli.values import ABOVE_ZERO, LENGTH, look_up
from pgqueue.cli.verbs import VerbGroup
from pgqueue.store.audit import reason
from pgqueue.store.jobs import control
from pgqueue.store.plan import Plan
from pgqueue.store.queues import queues as store
from pgqueue.values.jobs.options import is_pattern, stands_for
from pgqueue.values.queues.settings import EXISTING, WHEN_FULL, Existing, QueueSettings
from pgqueue.values.queues.standing import STATES, QueueStanding

if TYPE_CHECKING:
    from pgqueue.values.queues.settings import QueueSettingOptions

COLUMNS = (
    "queue",
    Column("state", 1, state=True, least=0),
    Column("ready", 0),
    Column("running", 0),
    Column("scheduled", 6),
    Column("blocked", 5),
    Column("dead", 2, bad=True),
    Column("oldest ready", 3),
    Column("ended/s", 7),
    Column("unknown", 4, bad=True),
)

MOST_SHOWN = 1_000
"""Rows of the table: laying out 100,000 takes two minutes."""

_several = click.argument("names", metavar="QUEUE...", nargs=-1, required=True)


@click.group(cls=VerbGroup)
def queues() -> None:
    """List queues, pause or close them, change their settings. `pgqueue jobs` moves or cancels their jobs."""


@queues.command("list")
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@json_option
@with_queue
def list_queues(queue: PgQueue, /, *, names: tuple[str, ...], as_json: bool) -> None:
    """List the queues: jobs by state, how long the oldest ready job has waited, jobs ended per second.

    A name with * in it is a pattern. The table shows 1,000 queues at most, --json all of them.
    """
    found = [
        one for one in _standings(queue) if not names or any(stands_for(name, one.queue) for name in names)
    ]
    if as_json:
        print_json(found)
        return
    more, found = len(found) - MOST_SHOWN, found[:MOST_SHOWN]
    print_table(COLUMNS, [_row(one) for one in found], empty="no queues")
    if more > 0:
        say(f"and {more:,} more queues: name some, as in `pgqueue queues list 'mail-*'`, or use --json")
    if any(one.estimated for one in found):
        click.echo("~: about, from a sample, since there are many jobs")
    for one in found:
        if one.unknown:
            said = (
                f"{one.queue}: no live worker runs the task of {one.unknown:,} of these jobs, since "
                f"{one.unknown_since:%Y-%m-%d %H:%M:%S %Z}: {', '.join(one.unknown_tasks)}"
            )
            say(said)
    for problem in queue.database.run(control.worker_problems()):
        say(str(problem))


@queues.command()
@click.argument("name", metavar="QUEUE")
@json_option
@with_queue
def show(queue: PgQueue, /, *, name: str, as_json: bool) -> None:
    """Show one queue: its jobs, its settings, and who paused it, when and why."""
    found = next((one for one in _standings(queue) if one.queue == name), None)
    if found is None:
        raise click.ClickException(
            f"{name!r}: no job and no row names this queue; `pgqueue queues list` shows those that are"
        )
    if as_json:
        print_json(found)
        return
    print_fields(_facts(found))


@queues.command()
@_several
@steers
@with_queue
def pause(queue: PgQueue, /, *, names: tuple[str, ...]) -> None:
    """Pause queues: no worker starts their jobs, until you resume them. Running jobs continue.

    A name with * in it is a pattern: '*' is all queues that there are now.
    """
    _stop(
        queue,
        names,
        partial(store.pause, why=reason(), by=operator_name(None)),
        "paused",
        "was paused already",
    )


@queues.command()
@_several
@steers
@with_queue
def close(queue: PgQueue, /, *, names: tuple[str, ...]) -> None:
    """Close queues: enqueues to them are refused, until you resume them. Their jobs run.

    A name with * in it is a pattern: '*' is all queues that there are now.
    """
    done = "closed: it takes no new jobs"
    _stop(
        queue, names, partial(store.close, why=reason(), by=operator_name(None)), done, "was closed already"
    )


@queues.command()
@_several
@steers
@with_queue
def resume(queue: PgQueue, /, *, names: tuple[str, ...]) -> None:
    """Resume paused or closed queues: workers start their jobs again, and they take new ones."""
    _require(queue, names)
    for name in names:
        changed = queue.database.run(store.resume(name, by=operator_name(None)))
        _tell(name, changed, "resumed", "was neither paused nor closed")


@queues.command("set")
@click.argument("name", metavar="QUEUE")
@click.option("--priority", type=int, help="Of jobs whose enqueue and task name none.")
@click.option("--max-attempts", type=int, help="Of jobs whose enqueue and task name none.")
@click.option("--timeout", type=ABOVE_ZERO, help="How long an attempt may take whose task names no timeout.")
@click.option(
    "--keep-history", type=LENGTH, help="For how long its ended jobs are kept; 0: not those that succeed."
)
@click.option("--keep-dead", type=LENGTH, help="For how long its dead jobs are kept.")
@click.option("--backlog", type=int, help="From how many ready jobs on it is full.")
@click.option(
    "--when-full",
    type=click.Choice(WHEN_FULL),
    help="Whether enqueues to a full queue fail, or log a warning.",
)
@click.option(
    "--ageing", type=ABOVE_ZERO, help="The wait that is worth one priority, so that old jobs do not starve."
)
@click.option("--ageing-to", type=int, help="The highest priority that waiting jobs get so.  [default: 100]")
@click.option(
    "--interval",
    type=ABOVE_ZERO,
    help="With --existing: the exact time between the starts of two of its jobs.",
)
@click.option("--unset", multiple=True, metavar="SETTING", help="Take this setting away, such as timeout.")
@click.option(
    "--existing",
    type=click.Choice(EXISTING),
    help="Declare all settings at once: what is done with other settings that the queue has.",
)
@steers
@json_option
@with_queue
def set_queue(
    queue: PgQueue,
    /,
    *,
    name: str,
    unset: tuple[str, ...],
    existing: Existing | None,
    interval: timedelta | None,
    as_json: bool,
    **given: Any,  # noqa: ANN401 - the settings' own types
) -> None:
    """Change settings of a queue, and print what holds. They act on running workers within a second.

    With --existing, the settings that you do not give are taken away.
    """
    chosen = {key: value for key, value in given.items() if value is not None}
    if existing is not None and unset:
        raise click.UsageError("--existing declares all settings; --unset changes one: give one of the two.")
    if existing is None and interval is not None:
        raise click.UsageError(
            f"--interval belongs to --existing; to change it alone, use limits set queue:{name} --every"
        )
    unset = tuple(one.replace("-", "_") for one in unset)
    held = (
        queue.control.set(name, unset=unset, **cast("QueueSettingOptions", chosen))
        if existing is None
        else queue.control.declare(
            name, existing=existing, interval=interval, **cast("QueueSettingOptions", chosen)
        )
    )
    if as_json:
        print_json(held)
        return
    print_fields(_settings(held))


def _stop(
    queue: PgQueue,
    names: Sequence[str],
    stop: Callable[[str], Plan[Collection[str]]],
    done: str,
    else_said: str,
) -> None:
    _require(queue, names)
    note_unknown = look_up(queue, *(name for name in names if not is_pattern(name)))
    for name in names:
        _tell(name, queue.database.run(stop(name)), done, else_said)
    note_unknown()


def _require(queue: PgQueue, names: Iterable[str]) -> None:
    for name in names:
        if not is_pattern(name):
            queue.require_queue(name)


def _tell(name: str, changed: Collection[str], done: str, else_said: str) -> None:
    if is_pattern(name) and not changed:
        say(f"{name}: no queue to change")
    for one in changed or ([] if is_pattern(name) else [name]):
        say(f"{one}: {done if changed else else_said}")


def _facts(one: QueueStanding) -> Iterable[tuple[str, object]]:
    yield "queue", one.queue
    yield "state", _state(one)
    for word, at, by, why in (
        ("paused", one.paused_at, one.paused_by, one.paused_why),
        ("closed", one.closed_at, one.closed_by, one.closed_why),
    ):
        if at is not None:
            yield word, f"since {local(at)} by {by or 'unknown'}{f': {why}' if why else ''}"
    for name in ("ready", "running", "scheduled", "blocked", "dead"):
        yield name, getattr(one, name)
    yield from _settings(one.settings)


def _settings(held: QueueSettings) -> Iterable[tuple[str, object]]:
    for name, value in msgspec.structs.asdict(held).items():
        yield name.replace("_", " "), "not set" if value is None else value


def _state(one: QueueStanding) -> str:
    words = [word for word, at in (("paused", one.paused_at), ("closed", one.closed_at)) if at is not None]
    if one.settings.backlog is not None and one.ready >= one.settings.backlog:
        words.append("full")
    return ", ".join(words)


def _standings(queue: PgQueue) -> Sequence[QueueStanding]:
    return queue.redaction.shown(queue.insight.queues())


def _row(one: QueueStanding) -> tuple[object, ...]:
    return (
        one.queue,
        _state(one),
        *(f"{'~' * (state in one.estimated)}{getattr(one, state)}" for state in STATES),
        short_duration(one.oldest_ready),
        f"{one.rate:.1f}" if one.rate else "",
        one.unknown or None,
    )

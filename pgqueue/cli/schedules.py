"""``pgqueue schedules``: look at schedules, add them, pause, resume, remove and fire them."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from pgqueue.app.operator import operator_name
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import app_queue_of, with_queue
from pgqueue.cli.output import json_option, print_fields, print_json, print_table, say, steers
from pgqueue.cli.table import Column
from pgqueue.cli.times import local
from pgqueue.cli.values import LENGTH, instant, json_object
from pgqueue.cli.verbs import CommandOptions, VerbGroup
from pgqueue.values.payloads.storable import spelled_out
from pgqueue.values.schedules.schedule import Schedule
from pgqueue.values.schedules.zone import find_zone
from pgqueue.values.workers.lease import duration_text

if TYPE_CHECKING:
    from pgqueue.app.schedules.declared_schedules import TimingOptions

LATE = 60.0
"""Seconds. A schedule that is later than this is named below the list."""
NAME = click.argument("name")
COLUMNS = (
    "name",
    Column("task", 5),
    Column("rule", 2),
    Column("state", 1, state=True, least=0),
    Column("last", 4),
    Column("next", 3),
)
limit_option = click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most this many."
)


@click.group(cls=VerbGroup)
def schedules() -> None:
    """List, add, pause or fire schedules. Instants are shown in your time zone."""


@schedules.command("list")
@click.option("--task", help="Only those of this task.")
@click.option("--after", default="", help="Only those behind this name.")
@limit_option
@json_option
@with_queue
def list_schedules(queue: PgQueue, /, *, task: str | None, after: str, limit: int, as_json: bool) -> None:
    """List the schedules by name: the rule, the last and the next tick."""
    found = queue.redaction.shown(queue.schedules.find(task=task, after=after, limit=limit))
    if as_json:
        print_json([_schedule_fields(one) for one in found])
        return
    rows = [(one.name, one.task, one.rule, one.state, one.last, one.next) for one in found]
    print_table(COLUMNS, rows, empty="no schedules")
    for one in found:
        if one.error is not None:
            say(f"{one.name}: set aside: {one.error}")
    for late in queue.insight.schedules(limit=limit):
        if late.lag > LATE and late.name in {one.name for one in found}:
            say(f"{late.name}: late: its next tick has been due for {duration_text(late.lag)}")


@schedules.command()
@NAME
@limit_option
@json_option
@with_queue
def show(queue: PgQueue, /, *, name: str, limit: int, as_json: bool) -> None:
    """Show a schedule and its latest runs."""
    found = queue.redaction.shown(queue.schedules.get(name))
    runs = queue.schedules.runs(name, limit=limit)
    if as_json:
        print_json({**_schedule_fields(found), "runs": runs})
        return
    print_fields((field, value) for field, value in _schedule_fields(found).items() if value is not None)
    click.echo()
    rows = [(run.at, run.fired_at, run.kind, run.state, run.job_id, run.job_state) for run in runs]
    columns = (
        "tick",
        Column("fired", 4),
        Column("kind", 3),
        Column("state", 2),
        Column("job", 0),
        Column("job's state", 1, state=True),
    )
    print_table(columns, rows, empty="no runs")


@schedules.command()
@NAME
@click.argument("task")
@click.option("--args", "arguments", type=json_object, default="{}", help="The arguments, a JSON object.")
@click.option("--cron", help="5 fields, 6 with seconds first, or @daily.")
@click.option("--every", type=LENGTH, help="The time between two ticks.")
@click.option("--at", type=instant, help="The only tick, in ISO 8601 with a time zone.")
@click.option("--timezone", help="The time zone of --cron, such as Europe/London; UTC by default.")
@click.option("--start", type=instant, help="No tick is earlier.")
@click.option("--end", type=instant, help="No tick is later.")
@click.option("--jitter", type=LENGTH, help="Each job waits for up to this long.")
@click.option("--missed", type=click.Choice(["latest", "skip", "all"]), help="Which missed ticks fire.")
@click.option(
    "--tolerance",
    type=LENGTH,
    help="A tick that is later than this is missed; less late ones all fire.  [default: 60]",
)
@click.option("--overlap", type=click.Choice(["allow", "skip", "queue"]), help="While an earlier job runs.")
@click.option("--queue", "queue_name", help="The queue; without it the task's own.")
@click.option("--priority", type=int, help="From -100 to 100; a job with a higher one runs sooner.")
@click.option("--max-attempts", type=int, help="A job is dead after this many failed attempts.")
@click.option("--replace", is_flag=True, help="Change the schedule of this name, if there is one.")
@steers
@click.pass_obj
def add(
    settings: CommandOptions,
    /,
    *,
    name: str,
    task: str,
    arguments: dict[str, Any],
    cron: str | None,
    queue_name: str | None,
    priority: int | None,
    max_attempts: int | None,
    replace: bool,
    **given: Any,  # noqa: ANN401 - the timing's options
) -> None:
    """Add a schedule of TASK, a task of your app. Give --cron, --every or --at."""
    queue = app_queue_of(settings)
    click.get_current_context().call_on_close(queue.close)
    chosen = queue.find_task(task).using(queue=queue_name, priority=priority, max_attempts=max_attempts)
    timing: TimingOptions = {key: value for key, value in given.items() if value is not None}  # type: ignore[assignment]  # by name
    if replace:
        said = str(
            queue.schedules.put(name, chosen.call(**arguments), cron, by=operator_name(None), **timing)
        )
    else:
        queue.schedules.add(name, chosen.call(**arguments), cron, by=operator_name(None), **timing)
        said = "added"
    click.echo(f"{spelled_out(name)}: {said}")


@schedules.command()
@NAME
@steers
@with_queue
def pause(queue: PgQueue, /, *, name: str) -> None:
    """Pause a schedule: no tick fires. Its jobs continue."""
    click.echo(f"{spelled_out(name)}: {'paused' if queue.schedules.pause(name) else 'was paused already'}")


@schedules.command()
@NAME
@steers
@with_queue
def resume(queue: PgQueue, /, *, name: str) -> None:
    """Resume a schedule that is paused or set aside."""
    done = queue.schedules.resume(name)
    click.echo(f"{spelled_out(name)}: {'resumed' if done else 'was not paused'}")


@schedules.command()
@NAME
@steers
@with_queue
def remove(queue: PgQueue, /, *, name: str) -> None:
    """Delete a schedule. Its jobs stay. One that code declares comes back when a worker of that code starts."""
    found = queue.schedules.get(name)
    queue.schedules.remove(name)
    back = (
        ""
        if found.module is None
        else f"; {found.module} declared it, and a worker of it that starts adds it"
    )
    say(f"{name}: removed{back}")


@schedules.command()
@NAME
@steers
@with_queue
def fire(queue: PgQueue, /, *, name: str) -> None:
    """Enqueue a job of a schedule now. Its next tick stays."""
    handle = queue.schedules.fire(name)
    if handle is None:
        say(f"{name}: a live job has its unique key", err=True)
        click.get_current_context().exit(1)
    else:
        say(f"{name}: job {handle.id} added")


@schedules.command("next")
@NAME
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many.")
@json_option
@with_queue
def next_ticks(queue: PgQueue, /, *, name: str, count: int, as_json: bool) -> None:
    """Show the next ticks of a schedule in its time zone, and what clock changes do to them."""
    ticks, found = queue.schedules.next(name, count=count), queue.schedules.get(name)
    if as_json:
        print_json([{"at": tick.at, "runs": tick.runs, "note": tick.note} for tick in ticks])
        return
    there = find_zone(found.timing.timezone) if found.timing else ZoneInfo("UTC")
    rows = [
        (f"{tick.at:%Y-%m-%d %H:%M:%S}", f"{tick.at.astimezone(there):%a %Y-%m-%d %H:%M:%S %z}", tick.note)
        for tick in ticks
    ]
    print_table(("UTC", str(there), ""), rows, empty="no further tick")


@schedules.command()
@NAME
@click.argument("start", type=instant)
@click.argument("end", type=instant)
@steers
@with_queue
def backfill(queue: PgQueue, /, *, name: str, start: datetime, end: datetime) -> None:
    """Fire the ticks from START to END that have not fired, in order."""
    runs = queue.schedules.backfill(name, start, end)
    none = "" if runs else _why_none(queue.schedules.get(name), start, end)
    say(f"{name}: {'1 tick' if len(runs) == 1 else f'{len(runs)} ticks'}{none}")


def _why_none(schedule: Schedule, start: datetime, end: datetime) -> str:
    timing = schedule.timing
    if timing is None:
        return ""
    if timing.start is not None and end < timing.start:
        return f": its first tick is not before its start, {local(timing.start)}"
    until = (tick.at for tick in timing.after(start - timedelta(microseconds=1)) if tick.runs)
    first = next(until, None)
    return ": it has no tick in this time" if first is None or first > end else ": all have fired already"


def _schedule_fields(one: Schedule) -> dict[str, object]:
    """Return a schedule for people and programs, without the options of its timing that are at their defaults."""
    shown: dict[str, object] = {
        name: getattr(one, name)
        for name in ("name", "state", "rule", "task", "queue", "args", "priority", "max_attempts", "unique_key", "meta",
                     "module", "created_at", "last", "next", "paused_at", "paused_by", "failed_at", "error")
    }  # fmt: skip
    if one.timing is not None:
        for name in ("timezone", "start", "end", "gap", "repeat", "jitter", "missed", "tolerance", "overlap"):
            value = getattr(one.timing, name)
            shown[name] = str(value) if isinstance(value, timedelta) else value
    return shown

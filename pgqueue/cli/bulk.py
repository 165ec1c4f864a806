"""What the commands that act on many jobs share: the criteria, the preview, the question, the progress, and the answer."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import click
import msgspec

from pgqueue.app.bulk import OnProgress
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.output import REMEDIES, confirm, json_option, print_json, print_table, say, steers
from pgqueue.cli.values import LENGTH, instant, json_object, look_up
from pgqueue.store.jobs import control
from pgqueue.values.bulk.filter import LIVE
from pgqueue.values.bulk.operation import BulkResult, Preview, SkipReason
from pgqueue.values.jobs.options import is_pattern

F = TypeVar("F", bound=Callable[..., Any])
TELL_EVERY = 1.0
"""Seconds between two lines of progress, where it is not shown as a bar."""
SHOWN = 10
"""Groups of jobs that a preview shows."""
WHY: Mapping[SkipReason, str] = {
    SkipReason.LOCKED: "other transactions had them locked; run the command again",
    SkipReason.KEY_HELD: f"live jobs have their unique keys: {REMEDIES}",
    SkipReason.OUT_OF_TURN: "their flow has ended, and another flow of its key has not",
    SkipReason.REFUSED: "the database refused",
}
_ALL = {
    "queue": ("of queue {}", click.option("--queue", help="Only jobs of this queue; 'mail-*' is a pattern.")),
    "task": ("of task {}", click.option("--task", help="Only jobs of this task; a pattern is allowed.")),
    "run": (
        "of the run {}",
        click.option("--run", help="Only jobs of this run, one of those that pgqueue runs list shows."),
    ),
    "args": (
        "whose arguments contain {}",
        click.option(
            "--args", type=json_object, metavar="JSON", help="Only jobs whose arguments contain this."
        ),
    ),
    "meta": (
        "whose meta contains {}",
        click.option("--meta", type=json_object, metavar="JSON", help="Only jobs whose meta contains this."),
    ),
    "enqueued_after": (
        "enqueued since {}",
        click.option(
            "--enqueued-after", type=instant, metavar="TIME", help="Enqueued at this time or later."
        ),
    ),
    "enqueued_before": (
        "enqueued before {}",
        click.option("--enqueued-before", type=instant, metavar="TIME", help="Enqueued before this time."),
    ),
    "min_priority": (
        "of priority {} or higher",
        click.option("--min-priority", type=int, help="Of this priority or higher."),
    ),
    "max_priority": (
        "of priority {} or lower",
        click.option("--max-priority", type=int, help="Of this priority or lower."),
    ),
    "error": (
        "whose last error is {}",
        click.option("--error", metavar="TYPE", help="Only jobs whose last error is of this type."),
    ),
    "message": (
        "whose last error says {!r}",
        click.option("--message", metavar="TEXT", help="Only jobs whose last error has this in its message."),
    ),
}
_STATE = (
    "that are {}",
    click.option(
        "--state",
        multiple=True,
        type=click.Choice([*(one.value for one in LIVE), "waiting"]),
        help="Only in this state; give it again for more. Waiting: blocked, scheduled or ready.",
    ),
)
_OLDER = (
    "dead for longer than {}",
    click.option("--older-than", type=LENGTH, help="Only jobs that died before this much time."),
)
_OPTIONS = {"everything": "all", "as_json": "json"}
_CRITERIA = {**_ALL, "state": _STATE, "older_than": _OLDER}


def selection_options(*, dead: bool) -> Callable[[F], F]:
    """The options that say which jobs, and how the command is run."""
    options = [
        *(option for _, option in _ALL.values()),
        _OLDER[1] if dead else _STATE[1],
        click.option("--all", "everything", is_flag=True, help=f"All {'dead' if dead else 'live'} jobs."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        json_option,
        steers,
    ]

    def add(verb: F) -> F:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return add


def criteria(queue: PgQueue, given: Mapping[str, Any]) -> dict[str, Any]:
    """The criteria as ``queue.control`` takes them, from the options; an age is by the database's clock.

    Raises:
        UsageError: none is given, or ``--all`` beside others.
    """
    chosen = {name: given[name] for name in _CRITERIA if given.get(name) not in (None, ())}
    if given["everything"] == bool(chosen):
        raise click.UsageError(
            "--all is all of them: give it without criteria."
            if chosen
            else "Say which jobs: by criteria such as --queue and --task, or --all."
        )
    age: timedelta | None = chosen.pop("older_than", None)
    if age is not None:
        chosen["died_before"] = queue.database.run(control.clock()) - age
    return chosen or {"everything": True}


def refuse_both(given: Mapping[str, Any]) -> None:
    """Refuse criteria, and what belongs to them, beside ids.

    Raises:
        UsageError: there are any.
    """
    others = [name for name in (*_CRITERIA, "everything", "dry_run", "as_json") if given.get(name)]
    if others:
        named = ", ".join(f"--{_OPTIONS.get(name, name).replace('_', '-')}" for name in others)
        raise click.UsageError(f"Give IDs or criteria, not both: {named}.")


def describe_selection(given: Mapping[str, Any], jobs: str) -> str:
    """The selection in words: ``the dead jobs of task sell``."""
    words = []
    for name, (phrase, _) in _CRITERIA.items():
        value = given.get(name)
        if value not in (None, ()):
            words.append(phrase.format(_word(value)))
    return " ".join([f"the {jobs}" if words else f"all {jobs}", *words])


def operate(
    queue: PgQueue,
    given: Mapping[str, Any],
    *,
    preview: Callable[[], Preview],
    do: Callable[[OnProgress], BulkResult],
    what: str,
    done: str,
    asks: bool = True,
) -> BulkResult | None:
    """Show what an operation would do, ask, do it, and print what was done; None: it was not to be done.

    Args:
        queue: whose jobs.
        given: the options.
        preview: what it would do.
        do: does it.
        what: what it does, for the question: ``move {} jobs to mail``, with a place for the number.
        done: the same when it is done, with the jobs: ``ready again: all dead jobs``.
        asks: whether a program that cannot answer must give ``--yes``.
    """
    found = queue.redaction.shown(preview())
    if not found.count:
        _hint(queue, given.get("queue"))
    as_json = given.get("as_json", False)
    if given.get("dry_run"):
        _show(found, what, as_json=as_json, to_stderr=False)
        return None
    if asks or sys.stdin.isatty():
        _confirm(found, what, yes=given["yes"])
    result = queue.redaction.shown(_run(found, do, done))
    _report(result, done, as_json=as_json)
    return result


def run(do: Callable[[OnProgress], BulkResult], *, total: int, done: str, as_json: bool) -> None:
    """Do an operation that needs no question, and print what was done."""
    _report(_run(Preview(total), do, done), done, as_json=as_json)


def _hint(queue: PgQueue, name: str | None) -> None:
    if name is not None and not is_pattern(name):
        look_up(queue, name)()


def _show(found: Preview, what: str, *, as_json: bool, to_stderr: bool) -> None:
    if as_json:
        print_json(found)
        return
    left = f"; {found.left_alone} running are left alone" if found.left_alone else ""
    say(f"this will {_counted(what, found.count)}{left}", err=to_stderr)
    if found.groups and not to_stderr:
        groups = found.groups[:SHOWN]
        print_table(
            ("queue", "task", "state", "jobs"),
            [(one.queue, one.task, one.state, one.count) for one in groups],
            empty="",
        )
    if to_stderr:
        for one in found.groups[:SHOWN]:
            say(f"  {one.count} {one.state} in {one.queue}: {one.task}", err=True)
    if len(found.groups) > SHOWN:
        click.echo(f"and {len(found.groups) - SHOWN} more groups", err=to_stderr)
    for job in found.sample:
        args = msgspec.json.encode(job.args).decode()
        say(f"such as {job.id}: {job.task} {args:.80}", err=to_stderr)


def _counted(what: str, count: int) -> str:
    said = what.format(count)
    return said.replace(" jobs", " job", 1) if count == 1 else said


def _confirm(found: Preview, what: str, *, yes: bool) -> None:
    if not yes:
        _show(found, what, as_json=False, to_stderr=True)
        confirm()


def _run(found: Preview, do: Callable[[OnProgress], BulkResult], done: str) -> BulkResult:
    last: list[BulkResult] = []
    with _progress(found.count, done) as tell:

        def told(result: BulkResult) -> None:
            last[:] = [result]
            tell(result)

        try:
            return do(told)
        except KeyboardInterrupt:
            if last:
                click.echo(
                    f"\ninterrupted: {_number(last[0])} {done}; to continue: pgqueue audit resume {last[0].operation}",
                    err=True,
                )
            raise


@contextmanager
def _progress(total: int, done: str) -> Iterator[OnProgress]:
    """Show a bar on a terminal; else print a line each second."""
    if not sys.stderr.isatty():
        yield _ProgressLines(done).tell
        return
    with click.progressbar(length=total, file=sys.stderr, show_pos=True) as bar:

        def tell(result: BulkResult) -> None:
            bar.update(_number(result) + sum(result.skipped.values()) - bar.pos)

        yield tell


class _ProgressLines:
    def __init__(self, done: str) -> None:
        self._done = done.partition(":")[0]
        self._told = time.monotonic()

    def tell(self, result: BulkResult) -> None:
        if time.monotonic() >= self._told + TELL_EVERY:
            self._told = time.monotonic()
            click.echo(f"{_number(result)} {self._done} so far", err=True)


def _report(result: BulkResult, done: str, *, as_json: bool) -> None:
    """Print what was done; the exit code is 1 if all jobs were skipped."""
    if as_json:
        print_json(result)
    else:
        say(f"{_number(result)} {done}")
        if result.asked:
            click.echo(f"of these, {result.asked} run: their workers are asked to stop them")
        for one in result.examples:
            if one.detail is not None:
                say(f"{one.id}: {one.detail}", err=True)
        for why, count in result.skipped.items():
            ids = ", ".join(str(one.id) for one in result.examples if one.why is why)
            click.echo(
                f"{count} skipped, such as {ids}: {WHY[why]}" if ids else f"{count} skipped: {WHY[why]}",
                err=True,
            )
    if result.skipped and not _number(result):
        click.get_current_context().exit(1)


def _number(result: BulkResult) -> int:
    return result.done + result.asked


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return " or ".join(map(str, value))
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return str(value).removesuffix(", 0:00:00") if isinstance(value, timedelta) else str(value)

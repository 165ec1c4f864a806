"""How answers are shown: tables and bars for people, JSON for programs; pages of jobs, and what a command did to each job.

Stored text may have any characters; control characters are shown as escapes, so that no job can send control codes to a
terminal.
"""

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click
import msgspec

from pgqueue.app.operator import acting
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.table import GAP, Column, fit, length
from pgqueue.cli.times import local
from pgqueue.cli.values import JOB_ID
from pgqueue.errors import JobNotFound
from pgqueue.store.audit import because
from pgqueue.values.bulk.operation import BlockedRetry, Retried
from pgqueue.values.insight.now import SearchPage, listed
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.options import LONGEST_REASON, check_text
from pgqueue.values.payloads.storable import spelled_out

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
F = TypeVar("F", bound=Callable[..., Any])
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def steers(command: F) -> F:
    """The options of a command that changes what other people and programs see: who does it, and why."""

    @click.option("--by", "said_by", help="Who does it, for the audit; without it you, as user@host.")
    @click.option("--why", "said_why", help="Why, for the audit: for people to read.")
    @functools.wraps(command)
    def call(*args: Any, said_by: str | None, said_why: str | None, **given: Any) -> Any:  # noqa: ANN401 - the command's own
        why = None if said_why is None else check_text("why", said_why, longest=LONGEST_REASON)
        with acting(said_by), because(why):
            return command(*args, **given)

    return cast("F", call)


UNWRAPPED = 100_000
"""Characters. A line is laid out before it is printed, so no console folds it."""
UNANSWERED = (
    "nothing was changed: nobody answered. Give --yes to do it without a question, --dry-run to only look"
)
UNKNOWN_WIDTH = 80
"""Characters of a line, where a terminal does not say how many it has."""
MOST_NARROW = 20
"""Characters that a line of a sentence has at least."""


def print_json(value: object) -> None:
    """Print a value as JSON; times are ISO 8601. What a terminal would obey is written as JSON's escapes."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    # Outside of its strings, JSON has printable characters and line ends only; inside, any character may be an escape.
    click.echo(
        "\n".join(
            line if line.isprintable() else _UNPRINTABLE.sub(_as_json, line) for line in text.split("\n")
        )
    )


_UNPRINTABLE = re.compile(r"[^ -~]")


def _as_json(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def confirm() -> None:
    """Ask a person whether to go on.

    Raises:
        Abort: the answer is no.
        ClickException: the standard input has ended, and is no terminal.
    """
    try:
        agreed = click.confirm("Continue?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.ClickException(UNANSWERED) from None
    if not agreed:
        raise click.Abort


def print_table(columns: Sequence[Column | str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print rows as a table: fitted to a terminal, at full length into a pipe (:mod:`pgqueue.cli.table`).

    Args:
        columns: numbers are aligned to the right.
        rows: a value per column; None is blank.
        empty: what to print on stderr if there is no row.
    """
    from rich.text import Text  # noqa: PLC0415 - for people only

    if not rows:
        say(empty, err=True)
        return
    found = fit(columns, rows, width=_width(sys.stdout))
    console, between = _console(), " " * GAP
    console.print(Text(between.join(found.heads).rstrip(), style="bold"), soft_wrap=True)
    for row in found.rows:
        line = Text(between).join(Text(cell.text, style=cell.style) for cell in row)
        line.rstrip()
        console.print(line, soft_wrap=True)
    if found.left_out:
        say(f"left out: {', '.join(found.left_out)}; a wider terminal, a pipe and --json show all", err=True)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print a line per field, its name before its value; a value that is longer than the terminal goes on below."""
    known = list(fields)
    wide = max((len(name) for name, _ in known), default=0) + 1
    for name, value in known:
        shown = local(value) if isinstance(value, datetime) else str(value)
        say(f"{name:<{wide}}{shown}", indent=wide)


def say(text: str, *, err: bool = False, indent: int = 0, colour: str | None = None) -> None:
    """Print a sentence, wrapped at its words on a terminal. A word that is longer than the terminal stays whole.

    Args:
        text: control characters in it are shown as escapes.
        err: on stderr.
        indent: blanks before each line after the first.
        colour: on a terminal, unless the reader wants none (``NO_COLOR``).
    """
    shown = spelled_out(text)
    wide = _width(sys.stderr if err else sys.stdout)
    if wide is not None and length(shown) > wide:
        lines = _wrapped(shown[indent:], max(wide - indent, MOST_NARROW))
        shown = shown[:indent] + f"\n{' ' * indent}".join(lines)
    click.secho(shown, err=err, fg=None if os.environ.get("NO_COLOR") else colour)


def _wrapped(text: str, wide: int) -> list[str]:
    first, *words = text.split(" ")
    lines = [first]
    for word in words:
        if length(lines[-1]) + 1 + length(word) <= wide:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - for people only

    return Console(width=UNWRAPPED, markup=False, emoji=False, highlight=False)


def _width(stream: TextIO) -> int | None:
    """Return the characters of a line of a terminal; None: the stream is none."""
    if not stream.isatty():
        return None
    return os.get_terminal_size(stream.fileno()).columns or UNKNOWN_WIDTH


REMEDIES = "cancel that job, or wait until it has ended, and retry again; or retry without the key: pgqueue dead retry --without-key"
"""What a user can do about dead jobs whose unique key a live job has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """Whether the command changed the job, and what it did or why not."""

    done: bool
    words: str


_OTHER_VERB = {
    JobState.DEAD: "; `pgqueue dead retry {}` makes it ready again",
    JobState.SCHEDULED: "; `pgqueue jobs run-now {}` starts it before its time",
}
READY = CommandAnswer(done=True, words="ready")


def not_changed(queue: PgQueue, job_id: int) -> CommandAnswer:
    """Why the command did not change a job: the job's state."""
    try:
        job = queue.job(job_id)
    except JobNotFound:
        return CommandAnswer(done=False, words="there is no record of it")
    return CommandAnswer(
        done=False, words=f"not changed: {job.state}{_OTHER_VERB.get(job.state, '').format(job_id)}"
    )


def retry_answers(queue: PgQueue, done: Retried) -> Iterator[tuple[int, CommandAnswer]]:
    """What a retry did to each job."""
    stays = {
        one.id: _why_held(one, queue.redaction.message(one.unique_key, one.id, queue.job))
        for one in done.held
    }
    stays |= dict.fromkeys(
        done.out_of_turn,
        "its flow has ended, and another flow of its key has not; wait for that one, or cancel it",
    )
    yield from ((job_id, READY) for job_id in done)
    for job_id, why in stays.items():
        yield job_id, CommandAnswer(done=False, words=f"stays dead: {why}")
    yield from ((job_id, not_changed(queue, job_id)) for job_id in done.not_dead)


def _why_held(one: BlockedRetry, key: str | None) -> str:
    if one.twin is None:
        return f"a live job had its unique key {key!r}, and has ended since; retry again"
    return f"live job {one.twin} has its unique key {key!r}; {REMEDIES}"


def report(answers: Mapping[int, CommandAnswer]) -> None:
    """Print a line per job; end with exit code 1 if a job was not changed."""
    for job_id, outcome in answers.items():
        click.echo(f"{job_id}: {spelled_out(outcome.words)}", err=not outcome.done)
    if not all(outcome.done for outcome in answers.values()):
        click.get_current_context().exit(1)


def page_options(verb: F) -> F:
    """The options of every list of jobs: the filters, the page, and JSON."""
    for add in (
        json_option,
        click.option(
            "--before",
            type=JOB_ID,
            metavar="ID",
            help="Only jobs with a lower id; for the next page give the last id of this one.",
        ),
        click.option("--limit", type=int, default=100, show_default=True, help="List at most this many."),
        click.option("--run", help="Only jobs of this run, one of those that pgqueue runs list shows."),
        click.option("--task", help="Only jobs of this task; * stands for any characters."),
        click.option("--queue", "queue_name", help="Only jobs of this queue; * stands for any characters."),
    ):
        verb = add(verb)
    return verb


def print_page(
    found: SearchPage,
    columns: Sequence[Column | str],
    row: Callable[[Job], Sequence[object]],
    *,
    limit: int,
    as_json: bool,
) -> None:
    """Show a page, and how to get the next one."""
    if as_json:
        print_json(listed(found.jobs))
    else:
        print_table(columns, [row(job) for job in found.jobs], empty="no jobs match")
    if found.looked_to is not None:
        click.echo(
            f"older jobs than {found.looked_to} were not looked at: --before {found.looked_to}", err=True
        )
    elif len(found.jobs) == limit and not as_json:
        click.echo(f"there may be more: --before {found.jobs[-1].id}", err=True)


class Bar:
    """How far a command is."""

    def __init__(self, progress: "Progress", steps: float) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=steps, told="")

    def tell(self, words: str) -> None:
        """Show what is running."""
        self._progress.update(self._task, told=words)

    def step(self, words: str = "", *, steps: float = 1) -> None:
        """Count finished steps."""
        self._progress.update(self._task, advance=steps, told=words)


@contextmanager
def bar(steps: float) -> Iterator[Bar]:
    """A progress bar on stderr for the length of the block, if that is a terminal.

    Args:
        steps: how many there will be.
    """
    from rich.console import Console  # noqa: PLC0415 - for people only
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - for people only

    columns = (TextColumn("{task.fields[told]}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        yield Bar(progress, steps)


def attempts(job: Job) -> str:
    """A job's spent attempts, and its allowed attempts."""
    return f"{job.attempts}/{job.max_attempts}"


def last_error(job: Job) -> str | None:
    """The error of a job's last failed attempt, in one line."""
    if not job.errors:
        return None
    error = job.errors[-1]
    return f"{error.type}: {error.message}".splitlines()[0]

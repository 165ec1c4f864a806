"""How answers are shown: tables and bars for people, JSON for programs; pages of jobs, and what a command did to each job.

Stored text may have any characters; control characters are shown as escapes, so that no job can send control codes to a
terminal.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.values import JOB_ID
from pgqueue.errors import JobNotFound
from pgqueue.values.bulk.operation import BlockedRetry, Retried
from pgqueue.values.insight.now import SearchPage
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.payloads.storable import spelled_out

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
F = TypeVar("F", bound=Callable[..., Any])
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
by_option = click.option("--by", help="Who does it; without it you, as user@host.")
UNWRAPPED = 100_000
LONGEST_NAME = 40
"""Characters of a name in a column that is shortened."""


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


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str, shortened: Collection[str] = ()
) -> None:
    """Print rows as a table: fitted to a terminal, at full length into a pipe.

    Args:
        heads: of the columns; numbers are aligned to the right.
        rows: a value per column; None is blank.
        empty: what to print on stderr if there is no row.
        shortened: the heads of columns whose cells are cut on a terminal, so that each row stays on one line.
    """
    from rich.table import Table  # noqa: PLC0415 - for people only

    if not rows:
        click.echo(empty, err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, head in enumerate(heads):
        right = all(isinstance(row[number], int) for row in rows)
        if head in shortened and _width() is None:
            table.add_column(head, overflow="ellipsis", no_wrap=True, max_width=LONGEST_NAME)
        else:
            table.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for row in rows:
        table.add_row(*map(_cell, row))
    _console().print(table)


def local(instant: datetime) -> str:
    """An instant in the reader's time zone."""
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def short_duration(seconds: float | None) -> str:
    """A length of time, short: ``340 ms``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for length, name, less, less_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= length:
            return f"{whole // length:,} {name} {whole % length // less} {less_name}"
    return f"{whole} s"


def zone() -> str:
    """The name of the reader's time zone; both names if it has a summer time."""
    return "/".join(dict.fromkeys(time.tzname if time.daylight else time.tzname[:1]))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return spelled_out(local(value) if isinstance(value, datetime) else str(value))


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - for people only

    return Console(width=_width(), markup=False, emoji=False, highlight=False)


def _width() -> int | None:
    """Return the width of the output; None: that of the terminal."""
    return None if sys.stdout.isatty() else UNWRAPPED


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
    stays = {one.id: _why_held(one) for one in done.held}
    stays |= dict.fromkeys(
        done.out_of_turn,
        "its flow has ended, and another flow of its key has not; wait for that one, or cancel it",
    )
    yield from ((job_id, READY) for job_id in done)
    for job_id, why in stays.items():
        yield job_id, CommandAnswer(done=False, words=f"stays dead: {why}")
    yield from ((job_id, not_changed(queue, job_id)) for job_id in done.not_dead)


def _why_held(one: BlockedRetry) -> str:
    if one.twin is None:
        return f"a live job had its unique key {one.unique_key!r}, and has ended since; retry again"
    return f"live job {one.twin} has its unique key {one.unique_key!r}; {REMEDIES}"


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
        click.option("--task", help="Only jobs of this task; * stands for any characters."),
        click.option("--queue", "queue_name", help="Only jobs of this queue; * stands for any characters."),
    ):
        verb = add(verb)
    return verb


def print_page(
    found: SearchPage,
    heads: Sequence[str],
    row: Callable[[Job], Sequence[object]],
    *,
    limit: int,
    as_json: bool,
) -> None:
    """Show a page, and how to get the next one."""
    if as_json:
        print_json(found.jobs)
    else:
        print_table(heads, [row(job) for job in found.jobs], empty="no jobs match")
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

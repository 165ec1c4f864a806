"""``pgqueue demo``: workers hash files, the demo kills one worker, and checks that no job was lost.

This file decides the order of events, and what is shown. The app, the database and the processes are in
:mod:`pgqueue.cli.demo_stage`, the check of every promise in :mod:`pgqueue.cli.demo_verdict`.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import click
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import demo_stage, demo_verdict
from pgqueue.cli.dashboard import serve_dashboard
from pgqueue.cli.demo_stage import SCHEMA, Connection, DemoProgress, JobHolder, WorkerFailed, WorkerProcesses
from pgqueue.cli.demo_verdict import DeadFile, DemoFile, DemoSummary
from pgqueue.cli.signals import end_like_an_interrupt
from pgqueue.cli.verbs import CommandOptions
from pgqueue.embedded import embedded_server
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.dsn import dsn_in_environment

LINE_EVERY = 1.0
MOST_DEAD_SHOWN = 10
LOOK_EVERY = 0.1
STALLED_AFTER = 30.0
"""Seconds without progress and without a live worker that runs jobs, after which the demo stops waiting."""


class SummaryLine(NamedTuple):
    """A line of the summary table: the value found, the value it must have, and whether it has it."""

    name: str
    found: int
    must_be: str
    holds: bool


class Screen:
    """Shows a user what happens."""

    def __init__(self, console: Console) -> None:
        """If the output is not a terminal, progress is a line every LINE_EVERY seconds."""
        self._console = console
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._first_seen: float | None = None
        self._told_at = 0.0

    def title(self, text: str) -> None:
        """Print the title."""
        self._print(text, style="bold", indent=0)

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line about what happened."""
        self._print(text, style=style)

    @contextmanager
    def live(self, jobs: int) -> Iterator[None]:
        """Show progress for the length of the block."""
        bar = Bar(
            TextColumn(" "),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            expand=True,
        )
        with bar:
            self._task = bar.add_task("jobs", total=jobs, told="")
            self._bar = bar
            yield
        self._bar = None

    def progress(self, now: DemoProgress) -> None:
        """Show how many jobs have ended."""
        told = f"{now.running} running, {now.reclaimed} reclaimed, {now.dead} dead, {self._rate(now):,.0f} jobs/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=now.ended, told=told)
        due = time.monotonic() - self._told_at >= LINE_EVERY or now.ended == now.jobs
        if due and not self._console.is_terminal:
            self._told_at = time.monotonic()
            self.say(f"{now.ended:,} of {now.jobs:,} jobs ended; {told}")

    def summary(self, summary: DemoSummary, complaints: Sequence[str]) -> None:
        """Show the results, and the promises that were broken."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for header in ("", "found", "must be"):
            table.add_column(header, justify="right" if header else "left")
        table.add_column("")
        table.add_row("files", f"{summary.files:,}")
        for line in _lines(summary):
            word = Text("ok", style="green") if line.holds else Text("BROKEN", style="bold red")
            table.add_row(line.name, f"{line.found:,}", line.must_be, word)
        table.add_row("jobs/s", f"{summary.jobs_per_second:,.0f}", "", f"in {summary.seconds:.1f} s")
        self._console.print(Padding(table, (0, 0, 0, 2), expand=False))
        self._dead(summary.dead)
        if summary.changed:
            self.say(f"{len(summary.changed):,} files changed meanwhile; their results were not checked.")
        for complaint in complaints:
            self.say(f"BROKEN {complaint}", style="bold red")
        if not complaints:
            self.say("Every promise was kept.", style="bold green")

    def _dead(self, dead: Sequence[DeadFile]) -> None:
        if dead:
            self.say("Dead jobs, and how their attempts ended:")
        for one in dead[:MOST_DEAD_SHOWN]:
            self._print(one.path, indent=4)
            for error, times in Counter(one.errors).items():
                self._print(f"{times} x {error}", style="dim", indent=6)
        if len(dead) > MOST_DEAD_SHOWN:
            self._print(f"and {len(dead) - MOST_DEAD_SHOWN:,} more", indent=4)
        self._console.print()

    def _rate(self, now: DemoProgress) -> float:
        """Return the jobs per second since the first ended jobs were seen."""
        if self._first_seen is None:
            if now.ended:
                self._first_seen = time.monotonic()
            return 0.0
        return now.ended / max(time.monotonic() - self._first_seen, 0.1)

    def _print(self, text: str, *, style: str = "", indent: int = 2) -> None:
        if self._console.is_terminal:
            self._console.print(Padding(Text(text, style=style), (0, 0, 0, indent), expand=False))
        else:
            self._console.print(Text(" " * indent + text), soft_wrap=True)


def _lines(summary: DemoSummary) -> Sequence[SummaryLine]:
    unreadable = len(summary.dead) - len(summary.wrongly_dead) + len(summary.not_dead)
    rightly_dead = not (summary.wrongly_dead or summary.not_dead or summary.untold)
    return (
        SummaryLine("jobs", summary.jobs, f"{summary.files:,}", summary.jobs == summary.files),
        SummaryLine("lost", len(summary.lost), "0", not summary.lost),
        SummaryLine("done twice in effect", len(summary.done_twice), "0", not summary.done_twice),
        SummaryLine("wrong", len(summary.wrong), "0", not summary.wrong),
        SummaryLine("reclaimed", len(summary.reclaimed), "> 0", bool(summary.reclaimed)),
        SummaryLine("dead", len(summary.dead), f"{unreadable:,}", rightly_dead),
    )


@click.command()
@click.argument(
    "folder", required=False, type=click.Path(exists=True, file_okay=False, readable=True, path_type=Path)
)
@click.option(
    "--json", "wants_json", is_flag=True, help="Print the summary as JSON; the rest goes to stderr."
)
@click.option(
    "--dashboard", "shows", is_flag=True, help="Show it live in the dashboard, and stay until Ctrl-C."
)
@click.pass_context
def demo(ctx: click.Context, /, *, folder: Path | None, wants_json: bool, shows: bool) -> None:
    """Hash and measure every file of FOLDER with two workers, kill one of them, and check the outcome.

    FOLDER is Python's standard library by default. Without a DSN the demo starts its own PostgreSQL;
    with one it works in the schema pgqueue_demo, which it makes and drops. The exit code is 1 if a promise
    was broken.
    """
    settings = ctx.find_object(CommandOptions) or CommandOptions()
    screen = Screen(Console(stderr=wants_json))
    with end_like_an_interrupt(signal.SIGTERM, signal.SIGHUP):
        with _run_demo(settings.dsn, folder, screen, shows=shows) as summary:
            complaints = demo_verdict.broken_promises(summary)
            screen.summary(summary, complaints)
            if wants_json:
                click.echo(json.dumps(demo_verdict.as_json(summary), indent=2))
            if shows:
                _stay(screen)
        if not shows:
            screen.say(
                f"All of it was removed again. To look at such a run in a browser: {_program()} demo --dashboard"
            )
    if complaints:
        ctx.exit(1)


@contextmanager
def _run_demo(dsn: str | None, folder: Path | None, screen: Screen, *, shows: bool) -> Iterator[DemoSummary]:
    files = _files(folder, screen)
    with ExitStack() as opened:
        own = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="pgqueue-demo-")))
        dsn = dsn or dsn_in_environment() or opened.enter_context(_own_server(screen))
        connection = opened.enter_context(demo_stage.stage(dsn))
        if shows:
            address = opened.enter_context(serve_dashboard(PgQueue(dsn, schema=SCHEMA)))
            screen.say(f"The dashboard shows it live: {address}")
        traps = demo_verdict.set_traps(own)
        everything = [*traps, *files]
        with connection.transaction():
            jobs = demo_stage.enqueue(connection, everything)
        screen.say(
            f"One transaction added {len(jobs):,} rows and {len(jobs):,} jobs; "
            f"{len(jobs) - len(files)} files cannot be read."
        )
        traps[0].path.unlink()
        with WorkerProcesses(dsn, own) as crew, _failures_shown(screen), screen.live(len(jobs)):
            _run(connection, dsn, crew, _middle(files, jobs[-len(files) :]), screen)
        yield demo_verdict.summarise(
            demo_stage.records(connection),
            demo_verdict.direct_readings(everything),
            seconds=demo_stage.seconds(connection),
        )


def _stay(screen: Screen) -> None:
    screen.say("The dashboard stays: Ctrl-C ends it, and removes everything.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


def _program() -> str:
    """How the command was called: ``make demo`` calls it by a path."""
    name = sys.argv[0]
    return name if Path(name).name == "pgqueue" else "pgqueue"


def _run(connection: Connection, dsn: str, crew: WorkerProcesses, middle: int, screen: Screen) -> None:
    with demo_stage.gate(dsn, middle) as gate:
        screen.say(f"Workers {crew.start()} and {crew.start()} start.")
        for _ in _watch(connection, crew, screen):
            holder = gate.waiting(connection)
            if holder is not None:
                break
        else:
            screen.say("No worker got to the middle of the jobs, so none was killed.")
            return
        _kill(connection, crew, holder, screen)
    screen.say(
        f"Worker {crew.start()} takes its place; the killed worker's jobs are reclaimed when its lease has passed."
    )
    for _ in _watch(connection, crew, screen):
        pass


def _kill(connection: Connection, crew: WorkerProcesses, holder: JobHolder, screen: Screen) -> None:
    if holder.pid not in crew.pids:
        raise WorkerFailed(f"process {holder.pid} works here, too, and is no worker of this demo; stop it")
    crew.kill(holder.pid)
    time.sleep(LOOK_EVERY)  # for commits that it had sent: those jobs have ended
    jobs = demo_stage.count_held_jobs(connection, holder)
    screen.say(
        f"Killed worker {holder.pid} (SIGKILL) in mid-transaction; jobs that it held: {jobs:,}.",
        style="bold red",
    )


def _watch(connection: Connection, crew: WorkerProcesses, screen: Screen) -> Iterator[DemoProgress]:
    """Poll until every job has ended, or until there was no progress for STALLED_AFTER seconds."""
    before, since = None, time.monotonic()
    while True:
        crew.check()
        now = demo_stage.progress(connection)
        screen.progress(now)
        yield now
        if now.ended == now.jobs:
            return
        if now != before or now.with_live_worker:
            before, since = now, time.monotonic()
        if time.monotonic() - since > STALLED_AFTER:
            return
        time.sleep(LOOK_EVERY)


def _files(folder: Path | None, screen: Screen) -> list[DemoFile]:
    leaving_out: frozenset[str] = frozenset()
    if folder is None:
        folder = demo_verdict.standard_library()
        leaving_out = demo_verdict.NOT_LIBRARY
    found, unnamed = demo_verdict.regular_files(folder, leaving_out=leaving_out)
    if not any(os.access(file.path, os.R_OK) for file in found):
        raise ConfigurationError(f"{folder} holds no file that can be read, so there is nothing to measure")
    screen.title(f"pgqueue demo: hash and measure the {len(found):,} files of {folder}")
    if unnamed:
        screen.say(f"Left out, because their names are not UTF-8: {unnamed:,}.")
    return found


def _middle(files: Sequence[DemoFile], jobs: Sequence[int]) -> int:
    """The job a third of the way through: the first from there whose file can be read."""
    third = len(files) // 3
    line = [*zip(files, jobs, strict=True)]
    return next(job for file, job in [*line[third:], *line[:third]] if os.access(file.path, os.R_OK))


@contextmanager
def _own_server(screen: Screen) -> Iterator[str]:
    with embedded_server() as dsn:
        screen.say("No DSN is set: the demo starts an embedded PostgreSQL for this run.")
        yield dsn


@contextmanager
def _failures_shown(screen: Screen) -> Iterator[None]:
    try:
        yield
    except WorkerFailed as error:
        screen.say(error.log)
        raise

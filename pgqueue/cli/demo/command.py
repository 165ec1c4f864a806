"""``pgqueue demo``: workers hash files, the demo kills one worker, and checks that no job was lost.

This file decides the order of events. The app is in :mod:`pgqueue.cli.demo.tasks`, the files in
:mod:`pgqueue.cli.demo.files`, the database in :mod:`pgqueue.cli.demo.stage`, the processes in
:mod:`pgqueue.cli.demo.workers`, the output in :mod:`pgqueue.cli.demo.screen`, the dashboard in
:mod:`pgqueue.cli.dashboard`, and the check of every promise in :mod:`pgqueue.cli.demo.verdict`.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click
from rich.console import Console

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import Settings
from pgqueue.cli.dashboard import served
from pgqueue.cli.demo import files as demo_files
from pgqueue.cli.demo import stage as demo_stage
from pgqueue.cli.demo import verdict as demo_verdict
from pgqueue.cli.demo.files import File
from pgqueue.cli.demo.screen import Screen
from pgqueue.cli.demo.stage import Connection, Holder, Progress
from pgqueue.cli.demo.tasks import SCHEMA
from pgqueue.cli.demo.verdict import Summary
from pgqueue.cli.demo.workers import Crew, WorkerFailed
from pgqueue.cli.signals import end_like_an_interrupt
from pgqueue.embedded import embedded_server
from pgqueue.errors import ConfigurationError
from pgqueue.store.dsn import dsn_in_environment

LOOK_EVERY = 0.1
STALLED_AFTER = 30.0
"""Seconds without progress and without a live worker that runs jobs, after which the demo stops waiting."""


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
    settings = ctx.find_object(Settings) or Settings()
    screen = Screen(Console(stderr=wants_json))
    with end_like_an_interrupt(signal.SIGTERM, signal.SIGHUP):
        with _demonstrated(settings.dsn, folder, screen, shows=shows) as summary:
            complaints = demo_verdict.broken(summary)
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
def _demonstrated(dsn: str | None, folder: Path | None, screen: Screen, *, shows: bool) -> Iterator[Summary]:
    """Run the demo on an empty database; everything is removed after the block, also after an error."""
    files = _files(folder, screen)
    with ExitStack() as opened:
        own = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="pgqueue-demo-")))
        dsn = dsn or dsn_in_environment() or opened.enter_context(_own_server(screen))
        connection = opened.enter_context(demo_stage.stage(dsn))
        if shows:
            address = opened.enter_context(served(PgQueue(dsn, schema=SCHEMA)))
            screen.say(f"The dashboard shows it live: {address}")
        traps = demo_files.set_traps(own)
        everything = [*traps.files(), *files]
        with connection.transaction():
            jobs = demo_stage.enqueue(connection, everything)
        screen.say(
            f"One transaction added {len(jobs):,} rows and {len(jobs):,} jobs; "
            f"{len(jobs) - len(files)} files cannot be read."
        )
        traps.vanishing.unlink()
        with Crew(dsn, own) as crew, _failures_shown(screen), screen.live(len(jobs)):
            _run(connection, dsn, crew, _middle(files, jobs[-len(files) :]), screen)
        yield demo_verdict.summarise(
            demo_stage.records(connection),
            demo_files.direct_readings(everything),
            seconds=demo_stage.seconds(connection),
        )


def _stay(screen: Screen) -> None:
    """Wait for Ctrl-C."""
    screen.say("The dashboard stays: Ctrl-C ends it, and removes everything.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


def _program() -> str:
    """How the command was called: ``make demo`` calls it by a path."""
    name = sys.argv[0]
    return name if Path(name).name == "pgqueue" else "pgqueue"


def _run(connection: Connection, dsn: str, crew: Crew, middle: int, screen: Screen) -> None:
    """Start two workers, kill one in the middle of a job, start another, and wait until all jobs have ended."""
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


def _kill(connection: Connection, crew: Crew, holder: Holder, screen: Screen) -> None:
    """Kill the worker that is in the middle of a job, and say how many jobs it held."""
    if holder.pid not in crew.pids:
        raise WorkerFailed(f"process {holder.pid} works here, too, and is no worker of this demo; stop it")
    crew.kill(holder.pid)
    time.sleep(LOOK_EVERY)  # for commits that it had sent: those jobs have ended
    jobs = demo_stage.held(connection, holder)
    screen.say(
        f"Killed worker {holder.pid} (SIGKILL) in mid-transaction; jobs that it held: {jobs:,}.",
        style="bold red",
    )


def _watch(connection: Connection, crew: Crew, screen: Screen) -> Iterator[Progress]:
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


def _files(folder: Path | None, screen: Screen) -> list[File]:
    """The files to measure."""
    leaving_out: frozenset[str] = frozenset()
    if folder is None:
        folder = demo_files.standard_library()
        leaving_out = demo_files.NOT_LIBRARY
    found, unnamed = demo_files.regular_files(folder, leaving_out=leaving_out)
    if not any(os.access(file.path, os.R_OK) for file in found):
        raise ConfigurationError(f"{folder} holds no file that can be read, so there is nothing to measure")
    screen.title(f"pgqueue demo: hash and measure the {len(found):,} files of {folder}")
    if unnamed:
        screen.say(f"Left out, because their names are not UTF-8: {unnamed:,}.")
    return found


def _middle(files: Sequence[File], jobs: Sequence[int]) -> int:
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
    """Show the log of a worker that failed."""
    try:
        yield
    except WorkerFailed as error:
        screen.say(error.log)
        raise

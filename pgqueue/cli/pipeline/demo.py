"""``pgqueue pipeline demo`` and ``pgqueue pipeline generate``: real jobs and made-up history, by :mod:`pgqueue.spark.demo`.

The demo runs real jobs in a worker process, makes up a month, takes both through the pipeline, and checks the result. This file
decides the order of events.
"""

import asyncio
import os
import signal
import sys
import time
import webbrowser
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console
from tenacity import stop_after_attempt

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import logs
from pgqueue.cli.app import with_queue
from pgqueue.cli.demo import Screen
from pgqueue.cli.demo_stage import WorkerFailed, WorkerProcesses
from pgqueue.cli.output import bar, json_option, print_json
from pgqueue.cli.signals import end_like_an_interrupt
from pgqueue.cli.values import day
from pgqueue.embedded import embedded_server
from pgqueue.errors import PipelineError
from pgqueue.spark.config import load
from pgqueue.spark.demo import demo as demos
from pgqueue.spark.demo import tasks
from pgqueue.spark.demo.days import CROWD_HOUR, CROWD_TENANT, SLOWED, SLOWER, STORM_HOURS, MadeUpDay, Wish
from pgqueue.spark.demo.demo import DemoComparison
from pgqueue.spark.demo.history import GeneratedHistory, last_closed_day
from pgqueue.spark.demo.history import generate as make_history
from pgqueue.spark.demo.planned import story
from pgqueue.spark.demo.world import BUSIEST
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import control
from pgqueue.store.schema import schema
from pgqueue.values.jobs.retry import Retry

LOOK_EVERY = 0.1
JOBS_WITHIN = 60.0
"""Seconds that the real jobs may take."""
WORKER = (sys.executable, "-m", "pgqueue", "--app", "pgqueue.spark.demo.tasks:queue", "worker")


@click.command()
@click.option("--rows", type=click.IntRange(min=1), required=True, help="How many ended jobs, in all.")
@click.option("--days", type=click.IntRange(min=1), required=True, help="On how many days.")
@click.option("--until", type=day, help="The last day. [default: yesterday, in UTC]")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Another seed makes another history.",
)
@click.option("--skew", type=float, help=f"The share of all jobs in the queue {BUSIEST}, such as 0.9.")
@click.option(
    "--connections",
    type=click.IntRange(min=1),
    help="How many days to generate at a time. [default: processors]",
)
@click.option("--force-beside", is_flag=True, help="Generate it also beside real jobs; it stays there.")
@json_option
@with_queue
def generate(
    queue: PgQueue,
    /,
    *,
    rows: int,
    days: int,
    until: date | None,
    seed: int,
    skew: float | None,
    connections: int | None,
    force_beside: bool,
    as_json: bool,
) -> None:
    """Generate the history of a shop: ended jobs, dead jobs, workers and deploys of past days.

    The same options make the same history. It is written to the queue's own tables, so a queue that was ever used is
    refused. At the end the command prints the events that the report should find.
    """
    wish = Wish(rows=rows, days=days, until=until or last_closed_day(queue.database), seed=seed, skew=skew)
    with bar(rows) as progress:

        def told(day: MadeUpDay) -> None:
            progress.step(str(day.day), steps=day.rows)

        made = make_history(queue.database, wish, beside=force_beside, connections=connections, told=told)
    if as_json:
        print_json(msgspec.to_builtins(made))
    else:
        for name, words in _lines(made):
            click.echo(f"{name:8} {words}")


def _lines(made: GeneratedHistory) -> list[tuple[str, str]]:
    """Lines that say what was made, and which events the report should find."""
    storm, crowd = made.events.storm, made.events.crowd
    there = f", {made.before} existed already" if made.before else ""
    return [
        ("days", f"{made.first} to {made.last}: {made.days} made{there}"),
        ("rows", f"{made.rows:,} in {made.seconds:.1f} s, {made.rows / made.seconds:,.0f} a second"),
        (
            "deploys",
            ", ".join(f"{release.version} on {release.at:%Y-%m-%d}" for release in made.events.releases),
        ),
        ("slower", f"{SLOWED} takes {SLOWER} times as long from {made.events.slower.version} on"),
        ("storm", f"{BUSIEST}: {storm}, {STORM_HOURS[0]}:00 to {STORM_HOURS[-1] + 1}:00"),
        ("crowd", f"{BUSIEST}: tenant-{CROWD_TENANT} on {crowd}, {CROWD_HOUR}:00 to {CROWD_HOUR + 1}:00"),
    ]


@dataclass(slots=True)
class DemoReport:
    """The result of the report step.

    Attributes:
        page: the page's path.
        answers: the questions with findings, each with its answer.
    """

    page: str = ""
    answers: list[tuple[str, str]] = field(default_factory=list)


@click.command()
@click.argument(
    "folder", default=Path("pipeline-demo"), type=click.Path(file_okay=False, writable=True, path_type=Path)
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=3_000, show_default=True, help="How many real jobs to run."
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="How many rows of history to generate.",
)
@click.option("--days", type=click.IntRange(min=1), default=30, show_default=True, help="On how many days.")
@click.option("--no-open", is_flag=True, help="Do not open the report.")
@click.option("--json", "wants_json", is_flag=True, help="Print the result as JSON; the rest goes to stderr.")
@click.pass_context
def demo(
    ctx: click.Context, /, *, folder: Path, jobs: int, rows: int, days: int, no_open: bool, wants_json: bool
) -> None:
    """Run jobs, generate a month of history, and export, verify, roll up, report and prune both.

    The demo starts its own PostgreSQL and deletes it at the end; the lake and the report stay in FOLDER,
    ./pipeline-demo by default. The exit code is 1 if a job that ended is not in the lake exactly once.
    """
    screen = Screen(Console(stderr=wants_json))
    folder = demos.fresh(folder)
    with end_like_an_interrupt(signal.SIGTERM, signal.SIGHUP):
        verdict, told = _demonstrate(folder, jobs, rows, days, screen)
    _conclude(verdict, told, screen)
    click.echo(f"Open the lake in DuckDB:\n\n{demos.duckdb_line(folder / 'lake')}\n", err=wants_json)
    if wants_json:
        print_json(verdict)
    if not no_open and _has_display():
        webbrowser.open(Path(told.page.removeprefix("file://")).as_uri())
    if verdict.complaints():
        ctx.exit(1)


def _demonstrate(
    folder: Path, jobs: int, rows: int, days: int, screen: Screen
) -> tuple[DemoComparison, DemoReport]:
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first

    screen.title(f"pgqueue pipeline demo: {jobs:,} real jobs and {rows:,} made-up ones, into {folder}/lake")
    with ExitStack() as opened:
        dsn = opened.enter_context(embedded_server())
        schema.migrate(dsn)
        database = Database(dsn)
        opened.callback(database.close)
        real = _real_day(dsn, folder, jobs, screen)
        ended_at = database.run(control.clock())
        planned = story(Wish(rows=rows, days=days, until=last_closed_day(database)))
        made = make_history(database, planned.wish, beside=True)
        for name, words in _lines(made):
            screen.say(f"made up, {name}: {words}")
        told = _pipeline(dsn, folder, ended_at, screen)
        found = demos.in_lake(Lake(folder / "lake"))
        return demos.judge(real, planned, found), told


def _real_day(dsn: str, folder: Path, jobs: int, screen: Screen) -> dict[int, str]:
    """Have a worker process run jobs; returns how each should have ended, by its id."""
    queue = tasks.queue
    queue.database = Database(dsn)
    try:
        real = tasks.enqueue(jobs)
        since = time.monotonic()
        with WorkerProcesses(dsn, folder, WORKER) as crew:
            crew.start()
            _wait(queue, crew)
    except WorkerFailed as error:
        screen.say(error.log)
        raise
    finally:
        queue.close()
    dead = sum(end == "dead" for end in real.values())
    screen.say(
        f"ran: {jobs:,} real jobs in a worker process, {time.monotonic() - since:.1f} s; {dead} of them are dead, as planned"
    )
    return real


def _wait(queue: PgQueue, crew: WorkerProcesses) -> None:
    until = time.monotonic() + JOBS_WITHIN
    while any(count.count for count in queue.insight.counts()[0] if not count.state.ended):
        crew.check()
        if time.monotonic() > until:
            raise PipelineError(
                f"the real jobs have not ended within {JOBS_WITHIN:.0f} s; is the machine very busy?"
            )
        time.sleep(LOOK_EVERY)


def _pipeline(dsn: str, folder: Path, ended_at: datetime, screen: Screen) -> DemoReport:
    from pgqueue.cli.pipeline.run import run_chain  # noqa: PLC0415 - PyArrow
    from pgqueue.spark import pipeline_jobs  # noqa: PLC0415 - PyArrow

    told = DemoReport()
    chain = PgQueue(dsn)

    def written(page: str) -> None:
        told.page = page

    steps = pipeline_jobs.register(
        chain,
        load(folder / "pipeline.toml"),
        lake=str(folder / "lake"),
        work=demos.work(demos.tomorrow(ended_at), written, lambda *answer: told.answers.append(answer)),
        retry=Retry(stop=stop_after_attempt(1)),  # a user is waiting
        tell=screen.say,
    )
    first = pipeline_jobs.start(steps)
    logs.configure("error")
    dead, finished = asyncio.run(run_chain(chain, pipeline_jobs.QUEUE, pipeline_jobs.KEY, first.id))
    chain.close()
    if dead is not None or not finished:
        raise PipelineError(f"a step failed: {dead.errors[-1].message if dead else 'told to stop'}")
    return told


def _conclude(verdict: DemoComparison, told: DemoReport, screen: Screen) -> None:
    for question, answer in told.answers:
        screen.say(f"the report: {question} {answer}")
    for complaint in verdict.complaints():
        screen.say(f"BROKEN {complaint}", style="bold red")
    if not verdict.complaints():
        screen.say(f"All {verdict.ended:,} jobs that ended are in the lake, each once.", style="bold green")
    screen.say(f"The report is {told.page}")


def _has_display() -> bool:
    return sys.platform in {"darwin", "win32"} or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )

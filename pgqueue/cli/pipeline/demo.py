"""``pgqueue pipeline demo``: runs real jobs, makes up a month, takes both through the pipeline, and checks the result.

This file decides the order of events. The app of the real jobs is in :mod:`pgqueue.cli.pipeline.demo_tasks`, the steps are
in :mod:`pgqueue.cli.pipeline.demo_steps`, and the check that no job was lost is in
:mod:`pgqueue.cli.pipeline.demo_verdict`.
"""

import asyncio
import os
import shlex
import shutil
import signal
import sys
import time
import webbrowser
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console
from tenacity import stop_after_attempt

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import logs
from pgqueue.cli.demo.screen import Screen
from pgqueue.cli.demo.workers import Crew, WorkerFailed
from pgqueue.cli.output import print_json
from pgqueue.cli.pipeline import demo_tasks, demo_verdict
from pgqueue.cli.pipeline.demo_verdict import Verdict
from pgqueue.cli.pipeline.generate import lines
from pgqueue.cli.signals import end_like_an_interrupt
from pgqueue.embedded import embedded_server
from pgqueue.errors import ConfigurationError, PipelineError
from pgqueue.spark.config import load
from pgqueue.spark.made_up.days import Wish, story
from pgqueue.spark.made_up.history import generate, last_closed_day
from pgqueue.store import control, schema
from pgqueue.store.database import Database
from pgqueue.values.retry import Retry

LOOK_EVERY = 0.1
JOBS_WITHIN = 60.0
"""Seconds that the real jobs may take."""
WORKER = (sys.executable, "-m", "pgqueue", "--app", "pgqueue.cli.pipeline.demo_tasks:queue", "worker")
MARK = "made-by-pgqueue-pipeline-demo"
CONFIG = """# The demo's configuration of the pipeline.
tenant = "$.tenant"

[cost]
per_run_second = 0.00002
currency = "USD"

[[slo]]
queue = "mail"
wait = "30s"
objective = 0.99

[[slo]]
queue = "webhooks"
wait = "10s"
run = "5s"
objective = 0.95
"""


@dataclass(slots=True)
class Told:
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
@click.option(
    "--json", "wants_json", is_flag=True, help="Print the verdict as JSON; the rest goes to stderr."
)
@click.pass_context
def demo(
    ctx: click.Context, /, *, folder: Path, jobs: int, rows: int, days: int, no_open: bool, wants_json: bool
) -> None:
    """Run jobs, generate a month of history, and export, verify, roll up, report and prune both.

    The demo starts its own PostgreSQL and deletes it at the end; the lake and the report stay in FOLDER,
    ./pipeline-demo by default. The exit code is 1 if a job that ended is not in the lake exactly once.
    """
    screen = Screen(Console(stderr=wants_json))
    folder = _fresh(folder)
    with end_like_an_interrupt(signal.SIGTERM, signal.SIGHUP):
        verdict, told = _demonstrate(folder, jobs, rows, days, screen)
    _conclude(verdict, told, screen)
    click.echo(f"Open the lake in DuckDB:\n\n{opening(folder / 'lake')}\n", err=wants_json)
    if wants_json:
        print_json(verdict)
    if not no_open and _has_display():
        webbrowser.open(Path(told.page.removeprefix("file://")).as_uri())
    if verdict.complaints():
        ctx.exit(1)


def opening(lake: Path) -> str:
    """A line for a shell that opens the lake in DuckDB, and shows how the jobs of each queue ended."""
    shown = "select queue, outcome, count(*) as jobs, avg(started_at - run_at) as wait from ended group by all order by all"
    program = (
        "import duckdb; from deltalake import DeltaTable; "
        f"ended = DeltaTable({str(lake / 'ended')!r}).to_pyarrow_dataset(); "
        f"duckdb.sql('{shown}').show()"
    )
    return shlex.join([sys.executable, "-c", program])


def _demonstrate(folder: Path, jobs: int, rows: int, days: int, screen: Screen) -> tuple[Verdict, Told]:
    """Run the demo on an empty database; only the folder is left afterwards."""
    from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - PyArrow is slow to import, so other errors come first
    from pgqueue.spark.session import check_java  # noqa: PLC0415 - needs PyArrow

    check_java()
    screen.title(f"pgqueue pipeline demo: {jobs:,} real jobs and {rows:,} made-up ones, into {folder}/lake")
    with ExitStack() as opened:
        dsn = opened.enter_context(embedded_server())
        schema.migrate(dsn)
        database = Database(dsn)
        opened.callback(database.close)
        real = _real_day(dsn, folder, jobs, screen)
        ended_at = database.run(control.clock())
        planned = story(Wish(rows=rows, days=days, until=last_closed_day(database)))
        made = generate(database, planned.wish, beside=True)
        for name, words in lines(made):
            screen.say(f"made up, {name}: {words}")
        told = _pipeline(dsn, folder, ended_at, screen)
        found = demo_verdict.in_lake(Lake(folder / "lake"))
        return demo_verdict.judge(real, planned, found), told


def _real_day(dsn: str, folder: Path, jobs: int, screen: Screen) -> dict[int, str]:
    """Have a worker process run jobs; returns how each should have ended, by its id."""
    queue = demo_tasks.queue
    queue.database = Database(dsn)
    try:
        real = demo_tasks.enqueue(jobs)
        since = time.monotonic()
        with Crew(dsn, folder, WORKER) as crew:
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


def _wait(queue: PgQueue, crew: Crew) -> None:
    """Poll until no live job is left."""
    until = time.monotonic() + JOBS_WITHIN
    while any(count.count for count in queue.counts()[0] if not count.state.ended):
        crew.check()
        if time.monotonic() > until:
            raise PipelineError(
                f"the real jobs have not ended within {JOBS_WITHIN:.0f} s; is the machine very busy?"
            )
        time.sleep(LOOK_EVERY)


def _pipeline(dsn: str, folder: Path, ended_at: datetime, screen: Screen) -> Told:
    """Run the steps as jobs in this process.

    Raises:
        PipelineError: a step failed.
    """
    from pgqueue.cli.pipeline.demo_steps import tomorrow, work  # noqa: PLC0415 - PyArrow
    from pgqueue.cli.pipeline.run import worked  # noqa: PLC0415 - PyArrow
    from pgqueue.spark import pipeline_jobs  # noqa: PLC0415 - PyArrow

    told = Told()
    chain = PgQueue(dsn)

    def written(page: str) -> None:
        told.page = page

    tasks = pipeline_jobs.register(
        chain,
        load(folder / "pipeline.toml"),
        lake=str(folder / "lake"),
        work=work(tomorrow(ended_at), written, lambda *answer: told.answers.append(answer)),
        retry=Retry(stop=stop_after_attempt(1)),  # a user is waiting
        tell=screen.say,
    )
    first = pipeline_jobs.start(tasks)
    logs.configure("error")
    dead, finished = asyncio.run(worked(chain, pipeline_jobs.QUEUE, pipeline_jobs.KEY, first.id))
    chain.close()
    if dead is not None or not finished:
        raise PipelineError(f"a step failed: {dead.errors[-1].message if dead else 'told to stop'}")
    return told


def _conclude(verdict: Verdict, told: Told, screen: Screen) -> None:
    for question, answer in told.answers:
        screen.say(f"the report: {question} {answer}")
    for complaint in verdict.complaints():
        screen.say(f"BROKEN {complaint}", style="bold red")
    if not verdict.complaints():
        screen.say(f"All {verdict.ended:,} jobs that ended are in the lake, each once.", style="bold green")
    screen.say(f"The report is {told.page}")


def _fresh(folder: Path) -> Path:
    """The folder, emptied, with the demo's mark and configuration.

    Raises:
        ConfigurationError: it holds files that the demo did not make.
    """
    folder = folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise ConfigurationError(
                f"{folder} is not empty, and not from an earlier demo: give another folder"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text("The next `pgqueue pipeline demo` empties this folder.\n")
    (folder / "pipeline.toml").write_text(CONFIG)
    return folder


def _has_display() -> bool:
    """Whether there is a display for a browser."""
    return sys.platform in {"darwin", "win32"} or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )

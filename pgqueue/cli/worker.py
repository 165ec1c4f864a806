"""``pgqueue worker``: one process that runs jobs, or a supervisor of several (:mod:`pgqueue.cli.supervisor`).

Signals: the first SIGTERM, SIGINT or SIGHUP lets running jobs finish within the grace period, the second ends it at once. In
both cases jobs that do not finish go back to their queue, and the exit code is 0. While the app is imported, the first one
ends the process. That needs a handler: the kernel drops a signal for which process 1 of a container has none.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli import logs
from pgqueue.cli.app import app_queue_of
from pgqueue.cli.metrics import LOOPBACK, require
from pgqueue.cli.supervisor import (
    ASKED_AND_DIED,
    ASKED_TO_END,
    DONE,
    DONE_AND_DIED,
    JOBS_DIED,
    Supervisor,
    stop_signals,
)
from pgqueue.cli.values import ABOVE_ZERO, LENGTH, concurrency, names
from pgqueue.cli.verbs import CommandOptions
from pgqueue.errors import as_duration
from pgqueue.values.jobs.options import EXCLUDES
from pgqueue.values.queues.served_queues import ORDERS
from pgqueue.values.workers.lease import BLOCKED_AFTER, GRACE, LEASE, POLL, SWEEP
from pgqueue.worker.attempt import run_to_the_end
from pgqueue.worker.sharded import ShardedWorker, worker_of
from pgqueue.worker.worker import Worker

log = logging.getLogger("pgqueue.worker")

LEVELS = ("debug", "info", "warning", "error")
PARENT_CHECK_EVERY = 1.0
"""Seconds."""
LAST_PORT = 65_535
LONG_LOADING = 30.0
"""Seconds after which a worker that still imports the app says so."""
CANCEL_TIMEOUT = 2.0
"""Seconds that the app's asyncio tasks have to end after they were cancelled."""

option = partial(click.option, show_default=True)


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():g}"


@click.command()
@click.option(
    "--queues",
    type=names,
    metavar="QUEUE[:WEIGHT],...",
    help="Serve only these queues: names, patterns ('mail-*'), and with ! before it what is not served.",
)
@option(
    "--order",
    type=click.Choice(ORDERS),
    default="shares",
    help="Serve each queue by its weight, or strictly one before the next.",
)
@click.option(
    "--tasks",
    type=names,
    metavar="TASK,...",
    help="Run only these tasks of the app: names and patterns ('mail.*').",
)
@click.option("--not-tasks", type=names, metavar="TASK,...", help="Leave these tasks to other workers.")
@option(
    "--concurrency",
    type=concurrency,
    metavar="N|MIN-MAX",
    default="20",
    help="How many jobs each process runs at a time. With 5-50 it chooses by its load.",
)
@option("--processes", type=click.IntRange(min=1), default=1, help="How many worker processes to run.")
@option(
    "--lease",
    type=ABOVE_ZERO,
    default=_seconds(LEASE),
    help="Other workers take over the jobs of a dead worker after this.",
)
@option(
    "--poll", type=ABOVE_ZERO, default=_seconds(POLL), help="Look for jobs this often without being notified."
)
@option("--sweep", type=ABOVE_ZERO, default=_seconds(SWEEP), help="Look for dead workers this often.")
@option(
    "--grace", type=LENGTH, default=_seconds(GRACE), help="Running jobs may continue this long after a stop."
)
@option(
    "--unknown-after",
    type=ABOVE_ZERO,
    default="3d",
    help="Give up jobs whose task no worker has known for this long.",
)
@option(
    "--blocked-after",
    type=ABOVE_ZERO,
    default=_seconds(BLOCKED_AFTER),
    help="Log an event loop that a task has blocked for this long.",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="End when no job is left that may run now. The exit code is 3 if jobs died.",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="End after this many attempts, in each process.",
)
@click.option("--max-time", type=ABOVE_ZERO, metavar="LENGTH", help="End after this time.")
@click.option(
    "--max-jobs-per-process",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replace each process after about this many attempts.",
)
@click.option(
    "--max-memory", metavar="SIZE", help="Replace a process that has more memory, such as '512 MB'."
)
@click.option(
    "--series/--no-series",
    default=True,
    help="Write, once a minute, what was measured of its jobs.  [default: series]",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve /metrics, /healthz and /readyz there; further processes use the ports after it.",
)
@option("--metrics-host", default=LOOPBACK, help="The address that --metrics-port listens on.")
@option(
    "--log-format",
    type=click.Choice(list(logs.FORMATS)),
    default="text",
    envvar=logs.VARIABLE,
    help="How to write the log.",
)
@option("--log-level", type=click.Choice(LEVELS), default="info", help="The lowest level to log.")
@click.option(
    "--log-jobs/--no-log-jobs", default=True, help="Log a line for each job, at level info.  [default: log]"
)
@click.option(
    "--reload/--no-reload",
    default=False,
    help="For development: start again when a Python file of this folder changes.",
)
@click.option("--supervisor", type=int, hidden=True, help="Stop when this process is no longer the parent.")
@click.pass_obj
def worker(
    settings: CommandOptions,
    /,
    *,
    processes: int,
    tasks: list[str] | None,
    not_tasks: list[str] | None,
    log_level: str,
    log_format: str,
    metrics_port: int | None,
    metrics_host: str,
    log_jobs: bool,
    reload: bool,
    supervisor: int | None,
    **options: Any,  # noqa: ANN401 - Worker's own
) -> None:
    """Run the app's jobs until Ctrl-C or SIGTERM.

    The worker then starts no more jobs and waits for those that run, up to --grace. A second Ctrl-C returns them to
    the queue at once. No job is lost either way.
    """
    command = [sys.executable, "-m", "pgqueue", *settings.arguments]
    if reload:
        _reload(command)
        return
    is_replaced = options["max_jobs_per_process"] is not None or options["max_memory"] is not None
    if is_replaced and (options["max_jobs"] is not None or options["max_time"] is not None):
        raise click.UsageError(
            "--max-jobs and --max-time count for one process, and --max-jobs-per-process and --max-memory replace it: give one of both"
        )
    if tasks or not_tasks:
        options["tasks"] = [*(tasks or ()), *(f"{EXCLUDES}{name}" for name in not_tasks or ())]
    logs.configure(log_level, log_format)
    os.environ[logs.VARIABLE] = log_format
    if not log_jobs:
        logging.getLogger("pgqueue.jobs").setLevel(logging.WARNING)
    with _loading(settings.app):
        queue = app_queue_of(settings)
    if supervisor is None:
        log.info("app loaded", extra={"app": settings.app, "processes": processes})
    if metrics_port is not None:
        require()
        _require_ports(metrics_port, processes)
    metrics = None if metrics_port is None else (metrics_host, metrics_port)
    if processes == 1 and (supervisor is not None or not is_replaced):
        try:
            code = run_to_the_end(_serve(queue, settings.app, supervisor, metrics, **options))
        except asyncio.CancelledError:
            code = 1  # a job has cancelled every asyncio task; the worker has logged which jobs it ran
        click.get_current_context().exit(code)
    worker_of(queue, **options)  # raises here, once, the errors that every child would raise
    queue.database.verify()
    supervising = Supervisor(
        [*command, "--processes", "1", "--supervisor", str(os.getpid())],
        processes,
        grace=as_duration("grace", options["grace"]).total_seconds(),
        added=partial(_port_of, metrics_port),
    )
    click.get_current_context().exit(asyncio.run(supervising.run()))


def _reload(command: list[str]) -> None:
    from pgqueue.cli import reloading  # noqa: PLC0415 - for development only

    child = reloading.child_command([*command, "--no-reload"])
    reloading.run_and_reload(child, reloading.looks_at(Path.cwd()), partial(click.echo, err=True))


@contextmanager
def _loading(app: str | None) -> Iterator[None]:
    """The import of the app: a signal ends it, and with it the process; a long one is logged."""
    on_close = click.get_current_context().call_on_close
    for number in stop_signals():
        on_close(partial(signal.signal, number, signal.signal(number, _end_before_start)))
    telling = threading.Timer(LONG_LOADING, _tell_of_loading, [app, threading.get_ident()])
    telling.daemon = True
    telling.start()
    try:
        yield
    finally:
        telling.cancel()


def _end_before_start(number: int, _: object) -> None:
    log.info(
        "signal received before the worker has started: the process ends, and no job was claimed",
        extra={"signal": signal.Signals(number).name},
    )
    logging.shutdown()
    os._exit(0)  # an exception could be caught by what is being imported


def _tell_of_loading(app: str | None, thread: int) -> None:
    stack = "".join(traceback.format_stack(sys._current_frames().get(thread), limit=10))  # noqa: SLF001 - the only way
    log.warning(
        "the app is still being imported: this process serves no jobs yet",
        extra={"app": app, "seconds": LONG_LOADING, "stack": stack},
    )


def _require_ports(first: int, processes: int) -> None:
    if first and first + processes - 1 > LAST_PORT:
        raise click.UsageError(
            f"--metrics-port {first}: {processes} processes need the ports up to {LAST_PORT}"
        )


def _port_of(first: int | None, slot: int) -> list[str]:
    return ["--metrics-port", str(first + slot)] if first else []


async def _serve(
    queue: PgQueue,
    app: str | None,
    supervisor: int | None,
    metrics: tuple[str, int] | None,
    **options: Any,  # noqa: ANN401 - Worker's own
) -> int:
    """Run the worker; return the exit code, which tells a supervisor whether the worker was asked to end."""
    serving = worker_of(queue, **options)
    serving.supervised = supervisor is not None
    serving.app = app
    handle_signals(serving.stop, supervised=supervisor is not None)
    watching = asyncio.create_task(_stop_with(supervisor, serving))
    try:
        with _metrics(queue, serving, metrics):
            await serving.run()
    finally:
        watching.cancel()
        code = _exit_code(serving)
        await exit_despite_tasks(code or 1)
    return code


def _exit_code(serving: Worker | ShardedWorker) -> int:
    if serving.own_end:
        done, died = (DONE, DONE_AND_DIED) if serving.supervised else (0, JOBS_DIED)
        return died if serving.died else done
    if serving.supervised and serving.asked_to_end:
        return (ASKED_AND_DIED if serving.died else ASKED_TO_END)[serving.asked_to_end]
    return 0


def _metrics(
    queue: PgQueue, serving: Worker | ShardedWorker, where: tuple[str, int] | None
) -> AbstractContextManager[object]:
    if where is None:
        return nullcontext()
    from pgqueue.telemetry import prometheus  # noqa: PLC0415 - needs a package that not every program has

    endpoint = prometheus.serving_worker(queue, serving.vitals, host=where[0], port=where[1])
    log.info("metrics are served", extra={"host": where[0], "port": endpoint.port})
    return endpoint


def handle_signals(stop: Callable[[], object], *, supervised: bool) -> None:
    """Let signals to this process stop the worker: the first gracefully, the second at once.

    A supervised worker may receive SIGTERM twice: from a service manager that signals every process, and from its
    supervisor. For this worker SIGTERM is always the graceful stop, and SIGINT the immediate one.

    Args:
        stop: the first call stops gracefully, the second at once.
        supervised: whether there is a supervisor.
    """
    loop = asyncio.get_running_loop()
    if not supervised:
        for number in stop_signals():
            loop.add_signal_handler(number, stop)
        return

    stopping = asyncio.Event()

    def gracefully() -> None:
        if not stopping.is_set():
            stopping.set()
            stop()

    def at_once() -> None:
        stop()
        stop()

    for number in stop_signals():
        loop.add_signal_handler(number, at_once if number == signal.SIGINT else gracefully)


async def _stop_with(supervisor: int | None, serving: Worker | ShardedWorker) -> None:
    """Stop the worker when its supervisor is gone: no other process would."""
    if supervisor is None:
        return
    while os.getppid() == supervisor:  # noqa: ASYNC110 - no event tells of a parent's end
        await asyncio.sleep(PARENT_CHECK_EVERY)
    log.warning("supervisor is gone: this worker stops", extra={"supervisor": supervisor})
    serving.stop()


async def exit_despite_tasks(code: int) -> None:
    """End the process even if an asyncio task of the app does not let itself be cancelled: its job has been returned."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others and (remaining := (await asyncio.wait(others, timeout=CANCEL_TIMEOUT))[1]):
        log.error("tasks refuse to be cancelled: the process ends now", extra={"tasks": len(remaining)})
        logging.shutdown()
        os._exit(code)

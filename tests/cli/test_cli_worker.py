"""``pgqueue worker --metrics-port`` and ``--log-format``, ``pgqueue metrics``: as programs of their own."""

import asyncio
import inspect
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import click
import pytest
from cli.commands import SHOP, Process, only_row, pgqueue, started
from looking import ask, until
from prometheus_client.parser import text_string_to_metric_families

from pgqueue import JobState, PgQueue
from pgqueue.cli import supervisor as supervising_module
from pgqueue.cli.app import find
from pgqueue.cli.supervisor import MOST_EARLY_DEATHS, Supervisor, stop_signals
from pgqueue.cli.worker import _loading, exit_despite_tasks, handle_signals, worker
from pgqueue.store.connections.connection import OwnAsyncConnection
from pgqueue.store.connections.pools import _AsyncPool
from pgqueue.worker.worker import Worker

ONE_JOB = "select status, attempts from pgqueue.jobs"
FOR_EVER = ("--grace", "3600")


def enqueue(dsn: str, task: str, arguments: str = "{}") -> None:
    result = pgqueue("--app", "shop:queue", "enqueue", task, arguments, dsn=dsn)
    assert result.exit_code == 0, result.stderr


def pid_in(line: str) -> int:
    return int(line.partition("pid=")[2].split()[0])


def test_a_worker_runs_jobs_and_ends_well_when_told_to_stop(dsn: str, shop: Path, queue: PgQueue) -> None:
    enqueue(dsn, "shop.send", '{"order_id": 42}')
    with started("worker", dsn=dsn, folder=shop) as worker:
        assert queue.result(1, timeout=60) == "sent 42"
        worker.signal(signal.SIGTERM)
        worker.until("worker stopped")
        assert worker.ended() == 0
    assert only_row(dsn, "select count(*) from pgqueue.workers") == (0,)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(("dying", "code"), [(0, 0), (1, 3)], ids=["all succeed", "one dies"])
def test_a_worker_that_runs_until_nothing_is_left_says_by_its_exit_code_whether_jobs_died(
    dsn: str, shop: Path, processes: str, dying: int, code: int
) -> None:
    for number in range(5):
        enqueue(dsn, "shop.send", f'{{"order_id": {number}}}')
    for _ in range(dying):
        enqueue(dsn, "shop.leave")
    with started("worker", "--until-empty", "--processes", processes, dsn=dsn, folder=shop) as worker:
        assert worker.code(within=60) == code
    assert only_row(dsn, "select count(*) from pgqueue.jobs") == (0,)
    assert only_row(dsn, "select count(*) from pgqueue.workers") == (0,)


def test_an_exit_in_an_asyncio_task_of_a_job_is_its_failure_and_no_end_of_the_worker(
    dsn: str, shop: Path, queue: PgQueue
) -> None:
    enqueue(dsn, "shop.leave")
    with started("worker", "--concurrency", "1", dsn=dsn, folder=shop) as worker:
        worker.until("raised an exit; the event loop goes on")
        enqueue(dsn, "shop.send", '{"order_id": 42}')
        assert queue.result(2, timeout=60) == "sent 42"
        worker.signal(signal.SIGTERM)
        worker.until("worker stopped")
        assert worker.ended() == 0
    assert (queue.job(1).state, queue.job(1).errors[-1].type) == (JobState.DEAD, "SystemExit")


def test_the_log_names_app_and_tasks_and_has_a_line_for_the_job(dsn: str, shop: Path) -> None:
    enqueue(dsn, "shop.send", '{"order_id": 42}')
    with started("worker", dsn=dsn, folder=shop) as worker:
        assert "app=shop:queue processes=1" in worker.until("app loaded")
        assert "shop.refuse_to_stop, shop.send" in worker.until("worker started")
        line = worker.until("job=1")
        assert " info pgqueue.jobs job succeeded job=1 task=shop.send queue=mail attempt=1 seconds=0." in line
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


def test_a_log_that_no_program_reads_stops_neither_jobs_nor_the_end_of_the_worker(
    dsn: str, shop: Path, queue: PgQueue
) -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writes, b"x" * 4096)  # as if a program before it had filled the pipe
    os.set_blocking(writes, True)
    enqueue(dsn, "shop.send", '{"order_id": 42}')
    with started("worker", dsn=dsn, folder=shop, stderr=writes) as worker:
        assert queue.result(1, timeout=60) == "sent 42"
        worker.signal(signal.SIGTERM)
        assert worker.code(within=30) == 0
    os.close(writes)
    os.close(reads)


def test_the_lines_of_jobs_can_be_left_out(dsn: str, shop: Path, queue: PgQueue) -> None:
    enqueue(dsn, "shop.send", '{"order_id": 42}')
    with started("worker", "--no-log-jobs", dsn=dsn, folder=shop) as worker:
        assert queue.result(1, timeout=60) == "sent 42"
        worker.signal(signal.SIGTERM)
        assert "pgqueue.jobs" not in worker.rest()


def test_the_first_signal_lets_a_running_job_finish(dsn: str, shop: Path, queue: PgQueue) -> None:
    pipe = shop / "pipe"
    os.mkfifo(pipe)
    enqueue(dsn, "shop.read_pipe", f'{{"path": "{pipe}"}}')
    with started("worker", *FOR_EVER, dsn=dsn, folder=shop) as worker:
        worker.until("begun")
        worker.signal(signal.SIGTERM)
        worker.until("worker stopping")
        pipe.write_bytes(b"go on")
        assert worker.ended() == 0
    assert queue.job(1).state is JobState.SUCCEEDED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("task", ["shop.wait_for_ever", "shop.read_pipe"])
def test_the_second_signal_ends_it_at_once_and_the_job_is_ready_again(
    number: signal.Signals, task: str, dsn: str, shop: Path
) -> None:
    os.mkfifo(shop / "pipe")
    enqueue(dsn, task, "{}" if task == "shop.wait_for_ever" else f'{{"path": "{shop / "pipe"}"}}')
    with started("worker", *FOR_EVER, dsn=dsn, folder=shop) as worker:
        worker.until("begun")
        worker.signal(number)
        worker.until("worker stopping")
        worker.signal(number)
        worker.until("worker stopped")
        assert worker.ended() == 0
    assert only_row(dsn, ONE_JOB) == ("ready", 0)


SLOW_APP = """
import signal, sys
print("importing", file=sys.stderr, flush=True)
while True:
    try:
        signal.pause()
    except BaseException:
        pass
"""


@pytest.mark.parametrize("number", stop_signals())
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_signal_that_comes_while_the_app_is_imported_ends_the_worker(
    number: signal.Signals, processes: str, dsn: str, tmp_path: Path
) -> None:
    with started("worker", "--processes", processes, dsn=dsn, folder=tmp_path, app=SLOW_APP) as worker:
        worker.until("importing")
        worker.signal(number)
        assert f"no job was claimed signal={number.name}" in worker.until("no job was claimed")
        assert worker.ended() == 0


def test_the_first_process_of_a_container_obeys_a_signal_while_it_imports_the_app(
    dsn: str, tmp_path: Path
) -> None:
    """The kernel drops a signal without a handler for such a process."""
    (tmp_path / "shop.py").write_text(SLOW_APP)
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    with subprocess.Popen(  # noqa: S603 - our own words
        [*command, sys.executable, "-m", "pgqueue", "--app", "shop:queue", "worker"],
        cwd=tmp_path,
        env={**os.environ, "PGQUEUE_DSN": dsn},
        stderr=subprocess.PIPE,
        text=True,
    ) as outer:
        assert outer.stderr is not None
        try:
            if "importing" not in (said := outer.stderr.readline()):
                pytest.skip(f"this system makes no container: {said}")
            (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            os.kill(int(inner), signal.SIGTERM)
            assert outer.wait(20) == 0
        finally:
            outer.kill()


def test_a_long_import_of_the_app_is_logged_with_where_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, told = threading.Event(), threading.Event()

    class AfterTheBeginning(threading.Timer):
        """Does not tell before the import has begun."""

        def run(self) -> None:
            assert begun.wait(20)
            super().run()

    monkeypatch.setattr("pgqueue.cli.worker.threading.Timer", AfterTheBeginning)
    monkeypatch.setattr("pgqueue.cli.worker.LONG_LOADING", 0.0)
    monkeypatch.setattr("pgqueue.cli.worker.BEGUN", begun, raising=False)
    monkeypatch.setattr("pgqueue.cli.worker.TOLD", told, raising=False)
    (tmp_path / "slow_shop.py").write_text(
        "from pgqueue.cli import worker\n"
        "worker.BEGUN.set()\n"
        "worker.TOLD.wait(20)\n"
        "from pgqueue import PgQueue\n"
        "queue = PgQueue()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def tell(_: logging.LogRecord) -> bool:
        told.set()
        return True

    caplog.handler.addFilter(tell)
    with click.Context(worker), _loading("slow_shop:queue"):
        find("slow_shop:queue")
    (record,) = caplog.records
    assert "still being imported" in record.getMessage()
    assert "slow_shop.py" in vars(record)["stack"]


@pytest.mark.skipif(signal.SIGHUP not in stop_signals(), reason="SIGHUP is ignored here, as under nohup")
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_hangup_lets_a_running_job_finish(processes: str, dsn: str, shop: Path, queue: PgQueue) -> None:
    pipe = shop / "pipe"
    os.mkfifo(pipe)
    enqueue(dsn, "shop.read_pipe", f'{{"path": "{pipe}"}}')
    with started("worker", "--processes", processes, *FOR_EVER, dsn=dsn, folder=shop) as worker:
        worker.until("begun")
        worker.signal(signal.SIGHUP)
        worker.until("stopping")
        pipe.write_bytes(b"go on")
        assert worker.ended() == 0
    assert queue.job(1).state is JobState.SUCCEEDED


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stop_signals() == [signal.SIGTERM, signal.SIGINT]
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in stop_signals()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_task_that_refuses_to_be_cancelled_does_not_keep_the_process(dsn: str, shop: Path) -> None:
    enqueue(dsn, "shop.refuse_to_stop")
    with started("worker", "--grace", "0", dsn=dsn, folder=shop) as worker:
        worker.until("begun")
        worker.signal(signal.SIGTERM)
        worker.until("tasks refuse to be cancelled")
        assert worker.ended() == 1
    assert only_row(dsn, ONE_JOB) == ("ready", 0)


def test_a_pool_that_connects_anew_when_the_worker_stops_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server takes the connection and says nothing."""

    async def stopping(server: socket.socket) -> None:
        dsn = f"postgresql://shop@127.0.0.1:{server.getsockname()[1]}/shop"
        pool = _AsyncPool(dsn, connection_class=OwnAsyncConnection, min_size=1, open=False)
        await pool.open()
        ending = asyncio.create_task(pool.end_when_cancelled())
        with (await asyncio.get_running_loop().sock_accept(server))[0]:
            await exit_despite_tasks(1)
        assert ending.cancelled()

    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        asyncio.run(stopping(server))
    assert ended == []


def test_a_worker_serves_only_the_queues_it_is_given(dsn: str, shop: Path, queue: PgQueue) -> None:
    enqueue(dsn, "shop.wait_for_ever")
    enqueue(dsn, "shop.send", '{"order_id": 1}')
    with started("worker", "--queues", "other,mail", dsn=dsn, folder=shop) as worker:
        assert queue.result(2, timeout=60) == "sent 1"
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
    assert queue.job(1).state is JobState.READY


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["--lease", "0"], "Invalid value for '--lease': '0' is too short"),
        (["--concurrency", "0"], "concurrency=0"),
        (["--queues", "a b"], "queue='a b'"),
        (["--lease", "soon"], "'soon' is no length of time"),
        (["--processes", "0"], "0 is not in the range x>=1"),
        (["--processes", "2", "--poll", "0"], "Invalid value for '--poll': '0' is too short"),
    ],
)
def test_a_value_out_of_range_is_refused(words: list[str], refusal: str, dsn: str, shop: Path) -> None:
    assert shop.exists()
    result = pgqueue("--app", "shop:queue", "worker", *words, dsn=dsn)
    assert result.exit_code == 2
    assert refusal in result.stderr


def test_every_option_of_a_worker_is_one_of_the_command_with_the_same_default() -> None:
    of_worker = {
        name: one.default
        for name, one in inspect.signature(Worker).parameters.items()
        if one.kind is one.KEYWORD_ONLY and name != "beside"  # of a program that has several
    }
    given = worker.make_context("worker", []).params
    assert {name: given[name] for name in of_worker} == of_worker


@pytest.mark.parametrize("words", [[], ["--processes", "2"]])
def test_a_missing_schema_is_refused_once(words: list[str], empty_dsn: str, shop: Path) -> None:
    with started("worker", *words, dsn=empty_dsn, folder=shop) as worker:
        loaded, line = worker.rest().splitlines()
        assert worker.ended() == 2
    assert " info pgqueue.worker app loaded " in loaded
    assert line.startswith("pgqueue: error: schema")


@pytest.mark.skipif(signal.SIGHUP not in stop_signals(), reason="SIGHUP is ignored here, as under nohup")
def test_a_hangup_of_a_child_lets_its_running_job_finish(dsn: str, shop: Path, queue: PgQueue) -> None:
    pipe = shop / "pipe"
    os.mkfifo(pipe)
    with started("worker", "--processes", "2", *FOR_EVER, dsn=dsn, folder=shop) as supervisor:
        children = _children(supervisor, 2)
        enqueue(dsn, "shop.read_pipe", f'{{"path": "{pipe}"}}')
        supervisor.until("begun")
        for child in children:
            os.kill(child, signal.SIGHUP)
        supervisor.until("stopping")
        pipe.write_bytes(b"go on")
        assert queue.result(1, timeout=60) is None
        supervisor.signal(signal.SIGTERM)
        assert supervisor.ended() == 0


CANCELS = """
@queue.task(max_attempts=1)
async def cancel_all() -> None:
    for one in asyncio.all_tasks():
        one.cancel()
    await asyncio.sleep(0)
"""


def test_a_job_that_cancels_every_asyncio_task_ends_the_process_with_the_jobs_that_it_ran(
    dsn: str, tmp_path: Path
) -> None:
    ask(dsn, "select pgqueue.enqueue('shop.cancel_all')")
    with started("worker", *FOR_EVER, dsn=dsn, folder=tmp_path, app=SHOP + CANCELS) as worker:
        said = worker.rest()
        assert worker.ended() == 1
    assert "the event loop ends, and the worker was not stopped" in said
    assert "jobs=[1]" in said
    assert "pgqueue/cli/worker.py" not in said  # no traceback of the command


def test_a_killed_child_is_started_again(dsn: str, shop: Path, queue: PgQueue) -> None:
    with started("worker", "--processes", "2", dsn=dsn, folder=shop) as supervisor:
        first, second = _children(supervisor, 2)
        os.kill(first, signal.SIGKILL)
        assert "code=-9" in supervisor.until(f"worker process died pid={first}")
        (third,) = _children(supervisor, 1)
        enqueue(dsn, "shop.send", '{"order_id": 3}')
        assert queue.result(1, timeout=60) == "sent 3"
        supervisor.signal(signal.SIGTERM)
        assert supervisor.ended() == 0
    for child in (first, second, third):
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_a_second_signal_to_the_supervisor_ends_its_children_at_once(dsn: str, shop: Path) -> None:
    enqueue(dsn, "shop.wait_for_ever")
    with started("worker", "--processes", "2", *FOR_EVER, dsn=dsn, folder=shop) as supervisor:
        supervisor.until("begun")
        supervisor.signal(signal.SIGINT)
        assert "Ctrl-C again returns them to the queue now" in supervisor.until("stopping: each worker")
        supervisor.until("running=1")
        supervisor.signal(signal.SIGINT)
        supervisor.until("stopping now: each worker returns its running jobs to the queue")
        supervisor.until("worker stopping now: 1 job returned to the queue")
        assert supervisor.ended() == 0
    assert only_row(dsn, ONE_JOB) == ("ready", 0)


async def test_a_supervised_worker_takes_a_repeated_sigterm_for_one_and_sigint_for_the_second_stop() -> None:
    stops: list[None] = []
    done = asyncio.Event()
    handle_signals(lambda: stops.append(None), supervised=True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, done.set)
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
        os.kill(os.getpid(), number)
    await done.wait()
    assert len(stops) == 1
    done.clear()
    for number in (signal.SIGINT, signal.SIGUSR1):
        os.kill(os.getpid(), number)
    await done.wait()
    assert len(stops) == 3


def test_children_stop_when_their_supervisor_is_killed(dsn: str, shop: Path) -> None:
    with started("worker", "--processes", "2", dsn=dsn, folder=shop) as supervisor:
        _children(supervisor, 2)
        supervisor.signal(signal.SIGKILL)
        assert supervisor.rest().count("worker stopped") == 2


async def test_a_supervisor_gives_up_on_children_that_keep_dying_young() -> None:
    command = [sys.executable, "-c", "raise SystemExit(2)"]
    assert await Supervisor(command, 2, first_pause=0.0).run() == 2


async def test_a_supervisor_that_gives_up_never_ends_well() -> None:
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert await Supervisor(command, 1, first_pause=0.0).run() == 1


async def test_children_that_grew_up_are_started_again_without_end(tmp_path: Path) -> None:
    births = tmp_path / "births"
    program = (
        f"import os, signal; births = open({str(births)!r}, 'a'); births.write('x'); births.flush();"
        f"births.tell() == {3 * MOST_EARLY_DEATHS} and os.kill(os.getppid(), signal.SIGTERM)"
    )
    assert await Supervisor([sys.executable, "-c", program], 1, first_pause=0.0, stable_after=0.0).run() == 0
    assert len(births.read_text()) >= 3 * MOST_EARLY_DEATHS


@pytest.mark.parametrize("again", [True, False])
async def test_a_child_that_obeys_no_signal_is_killed_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, again: bool
) -> None:
    monkeypatch.setattr(supervising_module, "KILLED_AFTER", 0.1)
    program = (
        "import signal, sys, time; [signal.signal(one, signal.SIG_IGN) for one in (signal.SIGTERM, signal.SIGINT)];"
        "open(sys.argv[1], 'w').close(); time.sleep(3600)"
    )
    deaf = tmp_path / "deaf"
    supervising = Supervisor([sys.executable, "-c", program, str(deaf)], 1, grace=3600.0 if again else 0.1)
    running = asyncio.create_task(supervising.run())
    await until(deaf.exists)
    supervising.stop()
    if again:
        supervising.stop()
    assert await running == 0


def _children(supervisor: Process, count: int) -> list[int]:
    """Wait until ``count`` more children are at work; their process ids."""
    pids = [pid_in(supervisor.until("worker process started")) for _ in range(count)]
    for _ in range(count):
        supervisor.until("worker started")
    return pids


LOOPBACK = "127.0.0.1"


def free_ports() -> int:
    """The first of two ports that no program listens on."""
    while True:
        with socket.create_server((LOOPBACK, 0)) as one:
            port = int(one.getsockname()[1])
            try:
                with socket.create_server((LOOPBACK, port + 1)):
                    return port
            except OSError:
                continue


def test_each_process_of_a_worker_has_a_port_of_its_own(dsn: str, shop: Path) -> None:
    port = free_ports()
    with started(
        "worker",
        "--processes",
        "2",
        "--metrics-port",
        str(port),
        "--log-format",
        "json",
        dsn=dsn,
        folder=shop,
    ) as worker:
        lines = [json.loads(worker.until("metrics are served")) for _ in range(2)]
        assert {line["port"] for line in lines} == {port, port + 1}
        for one in (port, port + 1):
            with urllib.request.urlopen(f"http://{LOOPBACK}:{one}/metrics", timeout=20) as answer:
                assert b"pgqueue_worker_slots 20.0" in answer.read()


def test_two_workers_on_one_port_are_refused_in_one_line(dsn: str, shop: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = str(taken.getsockname()[1])
        with started("worker", "--metrics-port", port, dsn=dsn, folder=shop) as worker:
            assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in worker.until("error:")
            assert worker.ended() == 2


def test_ports_above_the_last_one_are_refused(dsn: str, shop: Path) -> None:
    assert shop.is_dir()
    found = pgqueue("--app", "shop:queue", "worker", "--processes", "3", "--metrics-port", "65534", dsn=dsn)
    assert (found.exit_code, "3 processes need the ports up to 65535" in found.stderr) == (2, True)


def test_metrics_of_the_queue_can_be_served(dsn: str, shop: Path) -> None:
    with started("metrics", "--port", "0", dsn=dsn, folder=shop) as serving:
        port = serving.until("metrics on").split(":")[2].partition("/")[0]
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=20) as answer:
            assert b"pgqueue_up 1.0" in answer.read()


def test_metrics_that_are_printed_have_no_control_characters_and_are_still_read(dsn: str) -> None:
    ask(dsn, "insert into pgqueue.jobs (queue, task) values (E'a\\x1b[2J\\u202eé', 't')")
    printed = pgqueue("metrics", dsn=dsn).stdout
    assert printed.replace("\n", "").isprintable()
    names = {
        sample.labels.get("queue")
        for one in text_string_to_metric_families(printed)
        for sample in one.samples
    }
    assert "a\\x1b[2J\\u202eé" in names


def test_metrics_of_a_database_that_is_away_are_an_error() -> None:
    found = pgqueue("metrics", "--dsn", f"postgresql://u@{LOOPBACK}:1/nowhere")
    assert found.exit_code == 2
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("form", "shows"), [("json", '"job": 1, "task": "shop.send"'), ("logfmt", " job=1 task=shop.send ")]
)
def test_the_log_of_a_worker_is_for_programs_if_asked(
    form: str, shows: str, dsn: str, shop: Path, queue: PgQueue
) -> None:
    pgqueue("--app", "shop:queue", "enqueue", "shop.send", '{"order_id": 42}', dsn=dsn)
    with started("worker", "--log-format", form, dsn=dsn, folder=shop) as worker:
        assert queue.result(1, timeout=60) == "sent 42"
        assert shows in worker.until("job succeeded")

"""The demo's worker processes: starts them with the command line as a user does, stops them, and kills one."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pgqueue.errors import PgQueueError

COMMAND = (sys.executable, "-m", "pgqueue", "--app", "pgqueue.cli.demo.tasks:queue", "worker")
SETTINGS = ("--concurrency", "4", "--lease", "2", "--sweep", "1")
NOT_FOR_WORKERS = frozenset({"PGQUEUE_APP", "PGQUEUE_DIRECT_DSN", "PGQUEUE_REPLICA_DSN", "DATABASE_URL"})
GRACE = 10.0
LAST_LINES = 15


class WorkerFailed(PgQueueError):
    """A worker process ended, or did not stop.

    Attributes:
        log: the last lines of its log.
    """

    def __init__(self, message: str, log: str = "") -> None:
        """Keep the message and the log."""
        super().__init__(message)
        self.log = log


class Crew:
    """Worker processes; leaving the block stops them all."""

    def __init__(self, dsn: str, folder: Path, command: Sequence[str] = ()) -> None:
        """Start none yet.

        Args:
            dsn: the database that they use.
            folder: the folder of their logs.
            command: starts one, in place of the demo's command.
        """
        kept = {name: value for name, value in os.environ.items() if name not in NOT_FOR_WORKERS}
        self._environment = {**kept, "PGQUEUE_DSN": dsn}
        self._folder = folder
        self._command = command or COMMAND
        self._logs: dict[int, Path] = {}
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Begin without workers."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Stop all running workers: gracefully at the end, at once after an error or an interrupt."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM if error is None else signal.SIGKILL)
        for process in self._running.values():
            _wait(process)
        self._running.clear()

    @property
    def pids(self) -> list[int]:
        """The process ids of running workers."""
        return list(self._running)

    def start(self) -> int:
        """Start a worker.

        It has its own process group, so Ctrl-C reaches only the demo, which then stops the worker. The worker stops by
        itself when the demo is gone.

        Returns:
            Its process id.
        """
        path = self._folder / f"worker-{len(self._logs) + 1}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - a fixed command
                [*self._command, *SETTINGS, "--supervisor", str(os.getpid())],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._logs[process.pid] = path
        self._running[process.pid] = process
        return process.pid

    def kill(self, pid: int) -> None:
        """Kill a worker as a crash or the out-of-memory killer would, and wait until it is gone."""
        process = self._running.pop(pid)
        process.kill()
        process.wait()

    def check(self) -> None:
        """Check that all workers are alive.

        Raises:
            WorkerFailed: a worker has ended.
        """
        for pid, process in self._running.items():
            status = process.poll()
            if status is not None:
                raise WorkerFailed(f"worker {pid} ended by itself, with status {status}", self._tail(pid))

    def _tail(self, pid: int) -> str:
        lines = self._logs[pid].read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""The demo's worker processes: started from the command line as anybody would, stopped, and killed."""

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
NOT_FOR_WORKERS = frozenset({"PGQUEUE_APP", "PGQUEUE_DIRECT_DSN", "DATABASE_URL"})
GRACE = 10.0
LAST_LINES = 15


class WorkerFailed(PgQueueError):
    """A worker process did what it should not.

    Attributes:
        log: the last lines of its log.
    """

    def __init__(self, message: str, log: str = "") -> None:
        """Tell what it did."""
        super().__init__(message)
        self.log = log


class Crew:
    """Worker processes; leaving the block stops them all."""

    def __init__(self, dsn: str, folder: Path, command: Sequence[str] = ()) -> None:
        """Start none yet.

        Args:
            dsn: which database they are to use.
            folder: where their logs go.
            command: what starts one, in place of the demo's own.
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
        """Stop whoever runs: kindly at the end, at once after an error or an interrupt."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM if error is None else signal.SIGKILL)
        for process in self._running.values():
            _wait(process)
        self._running.clear()

    @property
    def pids(self) -> list[int]:
        """Who runs."""
        return list(self._running)

    def start(self) -> int:
        """Start a worker.

        It is in a process group of its own, so that Ctrl-C reaches the demo alone, which then stops it; and it
        stops by itself when the demo is gone.

        Returns:
            Its process id.
        """
        path = self._folder / f"worker-{len(self._logs) + 1}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own words
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
        """Make sure that all are alive.

        Raises:
            WorkerFailed: one is not.
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

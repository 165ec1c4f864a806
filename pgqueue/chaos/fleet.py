"""The worker processes: started with the command line as a user does, and killed, frozen, stopped and replaced."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pgqueue.chaos.log import FOLDER, WORKER, path_of

APP = "pgqueue.chaos.tasks:queue"
NOT_FOR_CHILDREN = frozenset(
    {"PGQUEUE_APP", "PGQUEUE_DSN", "PGQUEUE_DIRECT_DSN", "DATABASE_URL", "PGOPTIONS"}
)
GRACE = 3.0
"""Seconds that a worker which stops gives its running jobs."""
ENDS_WITHIN = 30.0
LAST_LINES = 12
MOST_REMEMBERED = 64
"""Processes, ended ones among them, after which the ended ones are forgotten."""
NO_ENV: Mapping[str, str] = {}


class FleetProcess:
    """A process of the run."""

    def __init__(self, popen: "subprocess.Popen[bytes]", output: Path) -> None:
        self._popen = popen
        self._output = output
        self.pid = popen.pid

    @property
    def status(self) -> int | None:
        """How it ended; None: it runs."""
        return self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def end(self, *, at_once: bool = False) -> int:
        """End it, gracefully or with SIGKILL; how it ended. One that does not end in time is killed."""
        self._popen.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
        self._popen.send_signal(signal.SIGCONT)
        try:
            return self._popen.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()

    def last_words(self) -> str:
        """The last lines of its output."""
        lines = self._output.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])


class ProcessEnd(NamedTuple):
    """When a process was gone, in seconds of the monotonic clock, and whether it had returned its jobs."""

    at: float
    returned: bool


class Fleet:
    """All processes of a run; leaving the block ends them.

    Attributes:
        workers: those that work now and are not part of a fault.
        left: when processes were gone, in seconds of the monotonic clock; and whether they were told to stop.
        surprises: what is to be told of workers that ended by themselves, or did not stop when asked.
    """

    def __init__(self, dsn: str, folder: Path, words: Sequence[str]) -> None:
        """``dsn`` leads to the database through the proxy."""
        kept = {name: value for name, value in os.environ.items() if name not in NOT_FOR_CHILDREN}
        self._env = {**kept, "PGQUEUE_DSN": dsn, FOLDER: str(folder)}
        self._folder = folder
        self._words = words
        self._children: list[FleetProcess] = []
        self._started = 0
        self.workers: list[FleetProcess] = []
        self.left: dict[int, ProcessEnd] = {}
        self.surprises: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for child in self._children:
            if child.status is None:
                child.signal(signal.SIGTERM if error is None else signal.SIGKILL)
                child.signal(signal.SIGCONT)
        for child in self._children:
            if child.status is None:
                child.end(at_once=error is not None)

    def worker(self, *words: str, env: Mapping[str, str] = NO_ENV) -> FleetProcess:
        """Start a worker that is not one of :attr:`workers`.

        Args:
            words: further options.
            env: further settings of its environment.
        """
        command = ["-m", "pgqueue", "--app", APP, "worker", "--no-log-jobs", "--supervisor", str(os.getpid())]
        return self.run([*command, *self._words, *words], env=env)

    def hire(self, count: int = 1) -> None:
        """Start workers."""
        self.workers += [self.worker() for _ in range(count)]

    def dismiss(self, worker: FleetProcess, *, at_once: bool) -> None:
        """End a worker, and start another in its place."""
        self.workers.remove(worker)
        self.stopped(worker, at_once=at_once)
        self.hire()

    def stopped(self, worker: FleetProcess, *, at_once: bool = False) -> None:
        """End a worker, and remember if it did not stop as it should."""
        status = worker.end(at_once=at_once)
        self.left[worker.pid] = ProcessEnd(time.monotonic(), returned=not at_once and not status)
        if not at_once and status and self._has_worked(worker):
            self.surprises.append(
                f"a worker that was told to stop ended with status {status}: {worker.last_words()}"
            )

    def replace_ended(self) -> None:
        """Start a worker for each that ended by itself. None should, but one that did not reach the database at its start."""
        for worker in [one for one in self.workers if one.status is not None]:
            self.workers.remove(worker)
            self.left[worker.pid] = ProcessEnd(time.monotonic(), returned=False)
            if self._has_worked(worker):
                self.surprises.append(
                    f"a worker ended by itself with status {worker.status}: {worker.last_words()}"
                )
            self.hire()

    def _has_worked(self, worker: FleetProcess) -> bool:
        """Whether the worker has claimed a job: its log begins with that.

        A worker that never starts shows as work that does not go on.
        """
        return path_of(self._folder, WORKER, worker.pid).exists()

    def run(self, words: Sequence[str], *, env: Mapping[str, str] = NO_ENV) -> FleetProcess:
        """Start a Python process; Ctrl-C does not reach it."""
        output = self._folder / f"output-{self._started:05}.log"
        with output.open("wb") as file:
            popen = subprocess.Popen(  # noqa: S603 - our own words
                [sys.executable, *words],
                env={**self._env, **env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                process_group=0,
            )
        self._started += 1
        child = FleetProcess(popen, output)
        self._children.append(child)
        if len(self._children) > MOST_REMEMBERED:
            self._children = [one for one in self._children if one.status is None]
        return child

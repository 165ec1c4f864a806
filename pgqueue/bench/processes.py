"""The bench's processes: contenders, each started as a separate program, so that no two share an interpreter."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from pgqueue.bench.contract import NAMES
from pgqueue.errors import PgQueueError

NOT_FOR_CHILDREN = frozenset(
    {"PGQUEUE_DSN", "PGQUEUE_DIRECT_DSN", "PGQUEUE_REPLICA_DSN", "PGQUEUE_APP", "DATABASE_URL", *NAMES}
)
SHOWN_OF_ERROR = 300


class Contender(NamedTuple):
    """A contender's name, and its program."""

    name: str
    module: str


OURS = Contender("pgqueue", "pgqueue.bench.peer")
FLOOR = Contender("floor", "pgqueue.bench.floor")


class ProcessFailed(PgQueueError):
    """A process of the bench ended by itself, or said nothing."""


class Process:
    """A contender at work on one of its verbs."""

    def __init__(self, name: str, popen: "subprocess.Popen[str]", errors: IO[str]) -> None:
        self._name = name
        self._popen = popen
        self._errors = errors

    def until_busy(self) -> None:
        """Wait until it has begun its first job."""
        self._next_line(wanted="busy")

    def ask(self) -> dict[str, Any]:
        """What it has to report so far."""
        self._popen.send_signal(signal.SIGUSR1)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Wait for the next thing it reports."""
        found: dict[str, Any] = json.loads(self._next_line(wanted="{"))
        return found

    def stop(self) -> dict[str, Any]:
        """Stop it gracefully; its last report."""
        self._popen.send_signal(signal.SIGTERM)
        return self.result()

    def result(self) -> dict[str, Any]:
        """Wait for its end; its last report, {} if there is none.

        Raises:
            ProcessFailed: it failed.
        """
        assert self._popen.stdout is not None  # noqa: S101 - for the type checker
        told = [line for line in self._popen.stdout if line.startswith("{")]
        if self._popen.wait():
            raise self._failure()
        return json.loads(told[-1]) if told else {}

    def kill(self) -> None:
        """End it at once."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    def _next_line(self, *, wanted: str) -> str:
        assert self._popen.stdout is not None  # noqa: S101 - for the type checker
        for line in self._popen.stdout:
            if line.startswith(wanted):
                return line
        self._popen.wait()
        raise self._failure()

    def _failure(self) -> ProcessFailed:
        self._errors.seek(0)
        words = " ".join(self._errors.read().split())[-SHOWN_OF_ERROR:]
        return ProcessFailed(
            f"`{self._name}` ended with status {self._popen.returncode}: {words or 'no output'}"
        )


class BenchProcesses:
    """The processes of a bench; leaving the block ends them all."""

    def __init__(self, dsn: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in NOT_FOR_CHILDREN}
        self._environment = {**kept, "DSN": dsn, "PARENT": str(os.getpid())}
        self._started: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """End all running processes, and forget them."""
        for process in self._started:
            process.kill()
        self._started.clear()

    def call(self, contender: Contender, *words: object, **settings: object) -> dict[str, Any]:
        """Have a contender do one of its verbs, and return its report."""
        return self.start(contender, *words, **settings).result()

    def start(self, contender: Contender, *words: object, **settings: object) -> Process:
        """Have a contender begin one of its verbs.

        It is in a process group of its own, so that Ctrl-C reaches the bench alone.

        Args:
            contender: who.
            words: the verb and its arguments.
            settings: as :mod:`pgqueue.bench.contract` names them.
        """
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - until its end
        popen = subprocess.Popen(  # noqa: S603 - our own words
            [sys.executable, "-m", contender.module, *map(str, words)],
            env=self._environment | {name: str(value) for name, value in settings.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            process_group=0,
        )
        process = Process(f"{contender.name} {words[0]}", popen, errors)
        self._started.append(process)
        return process

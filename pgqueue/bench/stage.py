"""Everything that a measurement needs: the schema, the processes, the sizes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from pgqueue.app.pgqueue import PgQueue
from pgqueue.bench import floor, peer
from pgqueue.bench.bench_schema import SCHEMA, BenchSchema
from pgqueue.bench.contract import NAMES, ContenderSettings
from pgqueue.bench.floor import TABLES
from pgqueue.errors import PgQueueError
from pgqueue.store.schema import schema


class Contender(NamedTuple):
    """A contender's name, and its program."""

    name: str
    module: str


OURS = Contender("pgqueue", "pgqueue.bench.peer")
FLOOR = Contender("floor", "pgqueue.bench.floor")
STUCK = 30.0
"""Seconds without a job after which a worker that has not run all of them ends: a busy machine pauses for some."""
UNENDED = {OURS: f"{SCHEMA}.all_jobs where ended_at is null", FLOOR: f"{SCHEMA}.floor_jobs"}
FILL = {OURS: peer.fill, FLOOR: floor.fill}

NOT_FOR_CHILDREN = frozenset(
    {"PGQUEUE_DSN", "PGQUEUE_DIRECT_DSN", "PGQUEUE_REPLICA_DSN", "PGQUEUE_APP", "DATABASE_URL", *NAMES}
)
SHOWN_OF_ERROR = 300


class BenchFailed(PgQueueError):
    """A measurement that says nothing: jobs are missing, or did not come."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured of each load.

    Attributes:
        jobs: to drain, or to enqueue at once.
        singles: enqueued one by one.
        pickups: jobs that an idle worker picks up.
        churn: jobs that run under a held snapshot, a round of ``jobs`` after another.
        behind: ready jobs that wait behind those measured.
        future: jobs of the highest priority that are not due.
        other: jobs in a queue that is not served.
        names: queues with one job each.
        crowd: enqueued by all concurrent enqueuers together.
        in_flight: jobs that run at a time where memory is measured.
        idle_seconds: for which an idle worker is watched.
        concurrency: of workers.
    """

    jobs: int = 20_000
    singles: int = 2_000
    pickups: int = 200
    churn: int = 120_000
    behind: int = 1_000_000
    future: int = 1_000_000
    other: int = 1_000_000
    names: int = 100_000
    crowd: int = 8_000
    in_flight: int = 1_000
    idle_seconds: float = 30.0
    concurrency: int = 20

    @property
    def drains(self) -> int:
        """How many rounds of jobs run under a held snapshot; two at least, a first and a last."""
        return max(2, self.churn // self.jobs)


FULL = Sizes()
SMALL = Sizes(
    jobs=2_000,
    singles=200,
    pickups=20,
    churn=4_000,
    behind=5_000,
    future=5_000,
    other=5_000,
    names=2_000,
    crowd=400,
    in_flight=1_000,
    idle_seconds=2.0,
)


@dataclass(frozen=True, slots=True)
class BenchStage:
    """What measurements share.

    Attributes:
        place: the schema.
        crew: the processes.
        concurrency: of workers.
        floor: whether the bare client is measured, too.
    """

    place: BenchSchema
    crew: BenchProcesses
    concurrency: int = 20
    floor: bool = True

    def begin(self, contender: Contender) -> None:
        """Make everything again, for a contender."""
        self.crew.clear()
        self.place.fresh()
        if contender is OURS:
            schema.migrate(self.place.dsn, schema=SCHEMA)
        else:
            self.place.connection.execute(TABLES.encode())

    def fill(self, contender: Contender, count: int, **settings: object) -> None:
        """Enqueue jobs that wait for a worker, in this process: what is not measured needs no program of its own.

        Args:
            contender: for whom.
            count: how many.
            settings: as :mod:`pgqueue.bench.contract` names them.
        """
        given = {name: str(value) for name, value in settings.items()}
        FILL[contender](ContenderSettings.read({"DSN": self.place.dsn} | given), count)

    def queue(self) -> PgQueue:
        """The queue, for enqueuers in this process."""
        return PgQueue(self.place.dsn, schema=SCHEMA)

    def work(self, contender: Contender, jobs: int, *, processes: int = 1, **settings: object) -> float:
        """Have workers run all jobs there are; how many in a second, from the first start to the last.

        Raises:
            BenchFailed: that is not how many they ran.
        """
        # Two do not know of each other's jobs, so each goes on until there are no more.
        end = {"STOP_AFTER": jobs, "IDLE": STUCK} if processes == 1 else {"IDLE": 0.5, "FIRST": 2}
        workers = [
            self.crew.start(contender, "worker", **({"CONC": self.concurrency} | end | settings))
            for _ in range(processes)
        ]
        reports = [report for report in [worker.result() for worker in workers] if report["count"]]
        ran = sum(report["count"] for report in reports)
        left = self.place.one(f"select count(*) from {UNENDED[contender]}")
        if ran != jobs or left:
            raise BenchFailed(f"{contender.name} ran {ran:,} of {jobs:,} jobs, and {left:,} have not ended")
        return rate(jobs, max(one["last"] for one in reports) - min(one["first"] for one in reports))


def rate(jobs: int, seconds: float) -> float:
    """Jobs a second."""
    return jobs / max(seconds, 1e-6)

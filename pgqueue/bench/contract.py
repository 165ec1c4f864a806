"""What every contender of the bench is told, and what it says.

A contender is a program with the verbs ``setup``, ``enqueue1``, ``bulk`` and ``worker``. Settings come from the
environment, so that a program in any language can be driven the same way. Each verb prints one JSON object; a
worker prints, besides, a line ``busy`` at its first job, and its JSON object so far at each SIGUSR1. SIGTERM ends it.
"""

import json
import os
import random
import resource
import string
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import click
import msgspec

NAMES = (
    "DSN", "GAP", "PAD", "TEXT", "DELAY", "PRIORITY", "QUEUE", "NAMES", "THREADS", "FLAKY",
    "IDLE", "FIRST", "STOP_AFTER", "CONC", "SYNC", "WAIT", "QUEUES", "PARENT", "TRACE",
)  # fmt: skip
"""What :class:`ContenderSettings` reads."""


@dataclass(frozen=True, slots=True)
class ContenderSettings:
    """How to measure, read from the environment.

    Attributes:
        dsn: ``DSN``; by default where ``pgqueue`` finds its database.
        gap: ``GAP``, seconds between two single enqueues.
        pad: ``PAD``, bytes of payload.
        text: ``TEXT``, what the payload is: ``x``, one letter again and again, as other contenders send it, or
            ``random``, letters that compress little.
        delay: ``DELAY``, seconds until enqueued jobs are due.
        priority: ``PRIORITY`` of enqueued jobs.
        queue: ``QUEUE`` to enqueue in.
        names: ``NAMES``, over how many queues ``bulk`` spreads its jobs; 0: all stand in ``QUEUE``.
        threads: ``THREADS`` that enqueue one by one, together.
        flaky: ``FLAKY``, how many jobs fail at first, in addition to those that do not.
        idle: ``IDLE``, seconds without a job after which a worker ends; 0: it does not.
        first: ``FIRST``, seconds that a worker waits for its first job, if that is longer.
        stop_after: ``STOP_AFTER`` jobs a worker ends, too; 0: it does not.
        concurrency: ``CONC``, of the worker.
        sync: ``SYNC=1``, the job is a plain function in a thread.
        wait: ``WAIT``, seconds that each job waits for something.
        queues: ``QUEUES`` to serve, with commas between; all by default.
        parent: ``PARENT``, the process without which a worker ends.
        trace: ``TRACE``, a file to which libpq writes every message that the worker exchanges with the server.
    """

    dsn: str | None = None
    gap: float = 0.0
    pad: int = 0
    text: str = "x"
    delay: float = 0.0
    priority: int = 0
    queue: str = "default"
    names: int = 0
    threads: int = 1
    flaky: int = 0
    idle: float = 2.0
    first: float = 8.0
    stop_after: int = 0
    concurrency: int = 20
    sync: bool = False
    wait: float = 0.0
    queues: list[str] | None = None
    parent: int = 0
    trace: str | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read them; a setting that is empty is not given."""
        given: dict[str, Any] = {name.lower(): environ[name] for name in NAMES if environ.get(name)}
        if "queues" in given:
            given["queues"] = given["queues"].split(",")
        if "conc" in given:
            given["concurrency"] = given.pop("conc")
        return msgspec.convert(given, cls, strict=False)

    def seconds_to_wait(self, meter: "Meter", started: float) -> float:
        """How many seconds a worker waits for a job now, at most 1; 0 or less: it ends."""
        if self.parent and os.getppid() != self.parent:
            return 0.0  # no process is left to read its report
        if not self.idle:
            return 1.0
        quiet = time.time() - (meter.seen or started)
        return min(1.0, (self.idle if meter.seen else max(self.idle, self.first)) - quiet)


@dataclass(slots=True)
class Meter:
    """Counts job starts and, where asked, how long each took from enqueue to start (milliseconds).

    Attributes:
        stop_after: at how many to call ``enough``.
        enough: called then, on any thread.
        seen: when there last was a job of any kind, in epoch seconds; 0: never.
    """

    stop_after: int = 0
    enough: Callable[[], object] = lambda: None
    count: int = 0
    first: float | None = None
    last: float | None = None
    seen: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def hit(self, sent: float) -> None:
        """Count one; ``sent``: when it was enqueued, in epoch seconds, or 0."""
        now = time.time()
        if self.first is None:
            self.first = now
            click.echo("busy")
        self.last = self.seen = now
        self.count += 1
        if sent:
            self.latencies.append((now - sent) * 1e3)
        if self.count == self.stop_after:
            self.enough()

    def touch(self) -> None:
        """Note a job that does not count."""
        self.seen = time.time()

    def report(self) -> dict[str, Any]:
        """The worker's JSON object; the latencies are those since the last one."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        found: dict[str, Any] = {
            "count": self.count,
            "first": self.first,
            "last": self.last,
            "rss_mb": used.ru_maxrss // 1024,
            "rss_now_mb": _resident_mb(used),
            "cpu_seconds": used.ru_utime + used.ru_stime,
        }
        latencies, self.latencies = sorted(self.latencies), []
        return found | ({"lat_ms": latencies} if latencies else {})

    def print_report(self) -> None:
        """Print it."""
        click.echo(json.dumps(self.report()))


def padding(settings: ContenderSettings) -> str:
    """The payload of a job."""
    if settings.text == "random":
        return "".join(random.Random(0).choices(string.ascii_letters, k=settings.pad))  # noqa: S311 - no secret
    return "x" * settings.pad


def print_timing(count: int, seconds: float) -> None:
    """Print what an enqueuing verb has to say.

    Args:
        count: how many were enqueued.
        seconds: how long that took.
    """
    click.echo(json.dumps({"n": count, "seconds": seconds}))


def _resident_mb(used: "resource.struct_rusage") -> float:
    """Return this process's memory now, in MB; where the system does not report it, the most that it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return used.ru_maxrss / 1024
    return pages * resource.getpagesize() / (1 << 20)

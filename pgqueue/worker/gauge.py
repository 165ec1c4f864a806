"""What a worker measures of its load: slots, event loop, memory, CPU time. What follows is decided in ``values/load.py``."""

import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from pgqueue.values.load import GROW_AGAIN_AFTER, Load
from pgqueue.worker.claims import Claims
from pgqueue.worker.fetcher import Fetcher
from pgqueue.worker.watch import Watch

LOOKS = 10
"""Slots count as unused when they were free at this many looks."""
ROOT = Path("/")
V2 = Path("sys/fs/cgroup")
V1 = Path("sys/fs/cgroup/memory")


class Gauge:
    """Measures the load of one worker. Called in the worker's event loop, about once a second."""

    def __init__(self, claims: Claims, fetcher: Fetcher, watch: Watch) -> None:
        """Measure nothing yet.

        Args:
            claims: know how many slots are taken, and how many claims wait.
            fetcher: knows whether the last claim found as many jobs as it asked for.
            watch: knows how soon the event loop answers.
        """
        self._claims = claims
        self._fetcher = fetcher
        self._watch = watch
        self._taken: deque[int] = deque(maxlen=LOOKS)
        self._cores = _cores()
        self._clocks = time.monotonic(), time.thread_time(), time.process_time()
        self._strained_at = time.monotonic() - GROW_AGAIN_AFTER

    def measure(self) -> Load:
        """The load since the last call."""
        self._taken.append(self._claims.taken)
        load = Load(
            busy=max(self._taken),
            more=bool(self._claims.waiting) or self._fetcher.filled,
            latency=self._watch.latency(),
            memory=memory_in_use(),
            cpu=self._cpu(),
            since_strained=time.monotonic() - self._strained_at,
        )
        if load.strained:
            self._strained_at = time.monotonic()
        return load

    def _cpu(self) -> float:
        """The share of a core that the loop's thread used, or that of all cores that the process used: the larger one.

        Python runs one thread at a time, so a loop that uses a whole core can do no more, however many cores there are.
        """
        before, self._clocks = self._clocks, (time.monotonic(), time.thread_time(), time.process_time())
        passed, loop, process = (now - then for now, then in zip(self._clocks, before, strict=True))
        return max(loop, process / self._cores) / max(passed, 1e-3)


def memory_in_use(root: Path = ROOT) -> float | None:
    """The share in use of the memory that this process may have; None: the system does not say.

    The control group of a container or a service has a limit for all its processes, and so may those around it; the
    machine has one, too. The fullest one counts. Memory that the kernel can take back at once is not in use.
    """
    return max(_shares(root), default=None)


def _shares(root: Path) -> Iterator[float]:
    for group in _groups(root):
        for limit, usage in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            most, used = _number(group / limit), _number(group / usage)
            if (
                most and used is not None and most < 1 << 60
            ):  # version 1 writes "no limit" as a number of this size
                cached = _fields(group / "memory.stat").get("inactive_file", 0)
                yield (used - cached) / most
    machine = _fields(root / "proc/meminfo")
    if "MemTotal" in machine and "MemAvailable" in machine:
        yield 1 - machine["MemAvailable"] / machine["MemTotal"]


def _groups(root: Path) -> Iterator[Path]:
    """The directories of the control groups that this process is in, the innermost first."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0" or "memory" in kinds.split(","):
            base = root / (V2 if number == "0" else V1)
            inner = base / path.lstrip("/")
            yield from (one for one in (inner, *inner.parents) if one.is_relative_to(base))


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _fields(file: Path) -> dict[str, int]:
    """The numbers of a file of lines like ``MemTotal: 1234 kB``."""
    words = (line.split() for line in _text(file).splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}

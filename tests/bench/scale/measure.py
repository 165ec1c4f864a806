"""Measures how long a step takes, and the most memory that its processes use, from Linux's /proc."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, TypeVar

T = TypeVar("T")
EVERY = 0.2
PROC = Path("/proc")


class StepUsage(NamedTuple):
    """The time and the memory of a step.

    Attributes:
        seconds: from its beginning to its end.
        megabytes: the most memory of the process and its descendants, shared pages counted once; 0 where there is no
            /proc.
    """

    seconds: float
    megabytes: int


def measure_step(step: Callable[[], T], *, root: int | None = None) -> tuple[T, StepUsage]:
    """Run a step, and measure the memory of processes meanwhile.

    Args:
        step: what to run.
        root: the process whose memory counts, with its descendants; by default this process, with Spark's Java.
    """
    peak = 0
    over = threading.Event()

    def look() -> None:
        nonlocal peak
        while True:
            peak = max(peak, memory(root or os.getpid()))
            if over.wait(EVERY):
                return

    watching = threading.Thread(target=look, name="pgqueue-scale-memory", daemon=True)
    watching.start()
    since = perf_counter()
    try:
        result = step()
        seconds = perf_counter() - since
    finally:
        over.set()
        watching.join()
    return result, StepUsage(seconds, peak // 1000)


def memory(root: int) -> int:
    """Kilobytes of memory of a process and its descendants now; a shared page is divided among its processes."""
    return sum(map(_kilobytes, family(root)))


def family(root: int) -> set[int]:
    """A process and its descendants."""
    parents = dict(_parents())
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found


def parent(pid: int) -> int | None:
    """A process's parent; None: it has ended, or runs on another machine."""
    return dict(_parents()).get(pid)


def _parents() -> Iterator[tuple[int, int]]:
    for folder in PROC.glob("[0-9]*"):
        told = _read(folder / "stat").rpartition(")")[2].split()  # the name before it may hold any character
        if told:
            yield int(folder.name), int(told[1])


def _kilobytes(pid: int) -> int:
    lines = _read(PROC / str(pid) / "smaps_rollup").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _read(path: Path) -> str:
    """A file of /proc; empty if the process has ended or belongs to another user."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

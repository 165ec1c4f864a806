"""How long a step takes, and how much memory its processes have at the most, as Linux's /proc tells it."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, TypeVar

T = TypeVar("T")
EVERY = 0.2
PROC = Path("/proc")


class Took(NamedTuple):
    """What a step took.

    Attributes:
        seconds: from its beginning to its end.
        megabytes: of memory, at the most: the process and all below it, pages that they share counted once; 0 where
            there is no /proc.
    """

    seconds: float
    megabytes: int


def measured(step: Callable[[], T], *, root: int | None = None) -> tuple[T, Took]:
    """Do something, and look at processes meanwhile.

    Args:
        step: what to do.
        root: the process whose memory counts, with that of all below it; by default this one, and so Spark's Java.
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
    return result, Took(seconds, peak // 1000)


def memory(root: int) -> int:
    """Kilobytes of memory that a process and all below it have now, shared pages divided among those who share them."""
    return sum(map(_kilobytes, family(root)))


def family(root: int) -> set[int]:
    """A process and all below it."""
    parents = dict(_parents())
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found


def parent(pid: int) -> int | None:
    """A process's parent; None: it is gone, or of another machine."""
    return dict(_parents()).get(pid)


def _parents() -> Iterator[tuple[int, int]]:
    for folder in PROC.glob("[0-9]*"):
        told = _read(folder / "stat").rpartition(")")[2].split()  # the name before it may hold anything
        if told:
            yield int(folder.name), int(told[1])


def _kilobytes(pid: int) -> int:
    lines = _read(PROC / str(pid) / "smaps_rollup").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _read(path: Path) -> str:
    """A file of /proc; nothing, where the process is gone or not ours."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

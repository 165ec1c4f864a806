"""What the system says of processes and memory: of this one, of another one, of the container and of the machine. Linux only."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
V2 = Path("sys/fs/cgroup")
V1 = Path("sys/fs/cgroup/memory")


def memory_in_use(root: Path = ROOT) -> float | None:
    """The share in use of the memory that this process may have; None: the system does not say.

    The control group of a container or a service has a limit for all its processes, and so may those around it; the
    machine has one, too. The fullest one counts. Memory that the kernel can take back at once is not in use.
    """
    return max((used / most for used, most in _memory(root)), default=None)


def free_memory(root: Path = ROOT) -> int | None:
    """How many bytes this process and those beside it may still take; None: the system does not say."""
    return min((most - used for used, most in _memory(root)), default=None)


def resident_memory(process: int | None = None, *, root: Path = ROOT) -> int | None:
    """The resident memory of a process in bytes, by default of this one; None: the system does not say."""
    fields = _fields(root / f"proc/{process or 'self'}/status")
    return fields["VmRSS"] * 1024 if "VmRSS" in fields else None


def descendants(process: int, *, root: Path = ROOT) -> list[int]:
    """The processes that a process has started, and those that these have; empty: the system does not say."""
    parents: dict[int, list[int]] = {}
    for stat in root.glob("proc/[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found = [*parents.get(process, ())]
    for one in found:  # it grows meanwhile
        found += parents.get(one, ())
    return found


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Yield how many bytes are in use, and how many there are: for each group, and for the machine."""
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
                yield used - cached, most
    machine = _fields(root / "proc/meminfo")
    if "MemTotal" in machine and "MemAvailable" in machine:
        yield (machine["MemTotal"] - machine["MemAvailable"]) * 1024, machine["MemTotal"] * 1024


def _groups(root: Path) -> Iterator[Path]:
    """The directories of the control groups that this process is in, the innermost first."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0" or "memory" in kinds.split(","):
            base = root / (V2 if number == "0" else V1)
            inner = base / path.lstrip("/")
            yield from (one for one in (inner, *inner.parents) if one.is_relative_to(base))


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

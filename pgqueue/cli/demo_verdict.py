"""Checks the demo's promises: reads the same files without the queue, and compares what the database recorded of them.

The records come from the database (:mod:`pgqueue.cli.demo_stage`). This file asks it nothing.
"""

import hashlib
import os
import stat
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pgqueue.values.jobs.job import AttemptError, JobState

WORKER_LOST = "WorkerLost"
TRAP_ATTEMPTS = 2
NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__"})
CHUNK = 1 << 18
OWN_MEMORY = Path("/proc/self/mem")


class Measure(msgspec.Struct, frozen=True):
    """A file's hash and sizes."""

    sha256: str
    bytes: int
    lines: int


class UnreadableFile(msgspec.Struct, frozen=True):
    """The file cannot be read, so its job must be dead."""


class ChangedFile(msgspec.Struct, frozen=True):
    """The file was changed or removed during the demo, so its result cannot be checked."""


Direct: TypeAlias = Measure | UnreadableFile | ChangedFile
"""The result of reading a file directly."""


class Record(msgspec.Struct, frozen=True):
    """The database's record of one file.

    Attributes:
        path: the file.
        states: the state of each record of its job; there should be one.
        times: how often a result was stored.
        measure: the result, or None.
        errors: how attempts failed.
        max_attempts: how many attempts the job had.
    """

    path: str
    states: tuple[str, ...]
    times: int = 0
    measure: Measure | None = None
    errors: tuple[AttemptError, ...] = ()
    max_attempts: int = 0

    @property
    def dead(self) -> bool:
        """Whether the job is in the dead table."""
        return JobState.DEAD in self.states

    @property
    def reclaimed(self) -> bool:
        """Whether the job was reclaimed from a lost worker."""
        return any(error.type == WORKER_LOST for error in self.errors)


class DeadFile(msgspec.Struct, frozen=True):
    """A file whose job is in the dead table, and how each attempt failed."""

    path: str
    errors: list[str]


class DemoSummary(msgspec.Struct, frozen=True):
    """The demo's results. Files are named by their paths.

    Attributes:
        files: the number of files.
        jobs: how many of them have a job.
        lost: files whose job has not ended, or ended without a result.
        done_twice: files whose job ended more than once, or whose result was stored more than once.
        wrong: files with a result that a direct reading does not confirm.
        reclaimed: files whose job was reclaimed from the killed worker.
        dead: files whose job is in the dead table, and why.
        not_dead: files that cannot be read, but whose job is not dead.
        wrongly_dead: files that can be read, but whose job is dead.
        untold: files whose dead job lacks the error of an attempt.
        changed: files that changed during the demo, so that their results were not checked.
        seconds: from the start of the first job to the end of the last.
    """

    files: int
    jobs: int
    lost: list[str]
    done_twice: list[str]
    wrong: list[str]
    reclaimed: list[str]
    dead: list[DeadFile]
    not_dead: list[str]
    wrongly_dead: list[str]
    untold: list[str]
    changed: list[str]
    seconds: float

    @property
    def jobs_per_second(self) -> float:
        """Jobs ended per second, over the whole run."""
        return self.jobs / self.seconds if self.seconds > 0 else 0.0


def summarise(records: Sequence[Record], direct: Mapping[str, Direct], *, seconds: float) -> DemoSummary:
    """Compare the recorded results with the files.

    Args:
        records: one for each file.
        direct: what a direct reading found, by path.
        seconds: how long the jobs took.
    """

    def paths(applies: Callable[[Record, Direct], bool]) -> list[str]:
        return [record.path for record in records if applies(record, direct[record.path])]

    return DemoSummary(
        files=len(direct),
        jobs=sum(bool(record.states) for record in records),
        lost=paths(lambda record, _: _is_lost(record)),
        done_twice=paths(lambda record, _: record.times > 1 or len(record.states) > 1),
        wrong=paths(_is_wrong),
        reclaimed=paths(lambda record, _: record.reclaimed),
        dead=[_dead_file(record) for record in records if record.dead],
        not_dead=paths(lambda record, found: isinstance(found, UnreadableFile) and not record.dead),
        wrongly_dead=paths(lambda record, found: isinstance(found, Measure) and record.dead),
        untold=paths(lambda record, _: record.dead and not _tells_all(record)),
        changed=paths(lambda _, found: isinstance(found, ChangedFile)),
        seconds=seconds,
    )


def broken_promises(summary: DemoSummary) -> list[str]:
    """The broken promises, a sentence each; empty: all were kept."""
    complaints = [
        _complaint("lost", summary.lost, "no end, or no result"),
        _complaint("done twice in effect", summary.done_twice, "more than one end or result"),
        _complaint("wrong", summary.wrong, "a result that reading the file does not confirm"),
        _complaint("not dead", summary.not_dead, "a file that cannot be read, but no dead job"),
        _complaint("dead", summary.wrongly_dead, "a dead job, but a file that can be read"),
        _complaint("dead", summary.untold, "a dead job without the error of each attempt"),
    ]
    if summary.jobs != summary.files:
        complaints.insert(0, f"jobs: {summary.jobs:,} for {summary.files:,} files")
    if not summary.reclaimed:
        complaints.append("reclaimed: no job of the killed worker was taken over")
    return [complaint for complaint in complaints if complaint]


def as_json(summary: DemoSummary) -> dict[str, Any]:
    """The summary for programs: short lists as paths, others as numbers."""
    fields: dict[str, Any] = msgspec.to_builtins(summary)
    return {
        **fields,
        "reclaimed": len(summary.reclaimed),
        "changed": len(summary.changed),
        "jobs_per_second": round(summary.jobs_per_second, 1),
        "broken": broken_promises(summary),
    }


def _is_lost(record: Record) -> bool:
    if JobState.SUCCEEDED in record.states:
        return record.times == 0
    return not record.dead


def _is_wrong(record: Record, found: Direct) -> bool:
    return record.times > 0 and not isinstance(found, ChangedFile) and record.measure != found


def _tells_all(record: Record) -> bool:
    return [error.attempt for error in record.errors] == list(range(1, record.max_attempts + 1))


def _dead_file(record: Record) -> DeadFile:
    return DeadFile(record.path, [f"{error.type}: {error.message}" for error in record.errors])


def _complaint(name: str, paths: Sequence[str], what: str) -> str:
    if not paths:
        return ""
    return f"{name}: {len(paths):,} with {what}, such as {paths[0]}"


class DemoFile(msgspec.Struct, frozen=True):
    """A file to be measured.

    Attributes:
        path: its absolute path.
        stamp: its size and time of change when it was listed; None: it must fail.
    """

    path: Path
    stamp: tuple[int, int] | None = None


def set_traps(folder: Path) -> list[DemoFile]:
    """Make three files that must fail: the first is removed later, the second is a folder, the third cannot be read.

    File modes do not stop root from reading; reading a process's own memory from address 0 fails for every user.
    """
    vanishing, directory, unreadable = (
        folder / f"{name}.txt" for name in ("vanishes", "directory", "unreadable")
    )
    vanishing.write_text("soon gone\n")
    directory.mkdir()
    if OWN_MEMORY.exists():
        unreadable = OWN_MEMORY
    else:
        unreadable.touch(mode=0)
    return [DemoFile(vanishing), DemoFile(directory), DemoFile(unreadable)]


def standard_library() -> Path:
    """The folder of Python's own modules."""
    return Path(sysconfig.get_path("stdlib"))


def regular_files(folder: Path, *, leaving_out: Collection[str] = ()) -> tuple[list[DemoFile], int]:
    """Every regular file below a folder, in order. Links are not followed.

    Args:
        folder: where to look.
        leaving_out: names of folders to skip.

    Returns:
        The files; and the number of files whose names are not UTF-8, which neither JSON nor PostgreSQL can hold.
    """
    found = sorted(_walk(folder.resolve(), leaving_out), key=lambda file: file.path)
    named = [file for file in found if _is_utf8(str(file.path))]
    return named, len(found) - len(named)


def measure_file(path: Path) -> Measure:
    """Read a file from end to end.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    size = lines = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            lines += chunk.count(b"\n")
    return Measure(digest.hexdigest(), size, lines)


def direct_readings(files: Iterable[DemoFile]) -> dict[str, Direct]:
    """The result of reading each file directly, by path."""
    return {str(file.path): _read(file) for file in files}


def _walk(folder: Path, leaving_out: Collection[str]) -> Iterator[DemoFile]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in leaving_out]
        for name in names:
            path = Path(where, name)
            stamp = _stamp(path)
            if stamp is not None:
                yield DemoFile(path, stamp)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a regular file's size and time of change; None: it is not a regular file, or gone."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _read(file: DemoFile) -> Direct:
    try:
        found: Direct = measure_file(file.path)
    except OSError:
        found = UnreadableFile()
    return ChangedFile() if file.stamp is not None and _stamp(file.path) != file.stamp else found


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True

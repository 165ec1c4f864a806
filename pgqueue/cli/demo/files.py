"""The files of the demo: lists them, makes three that must fail, and reads them directly.

This module does not use the queue.
"""

import os
import stat
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from pgqueue.cli.demo.tasks import measured
from pgqueue.cli.demo.verdict import Changed, Direct, Unreadable

TRAP_ATTEMPTS = 2
NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__"})
OWN_MEMORY = Path("/proc/self/mem")


class File(msgspec.Struct, frozen=True):
    """A file to be measured.

    Attributes:
        path: its absolute path.
        stamp: its size and time of change when it was listed; None: it must fail.
    """

    path: Path
    stamp: tuple[int, int] | None = None


class Traps(msgspec.Struct, frozen=True):
    """Three files that cannot be read.

    Attributes:
        vanishing: a file that is removed later.
        directory: a folder instead of a file.
        unreadable: a file that may open, but cannot be read.
    """

    vanishing: Path
    directory: Path
    unreadable: Path

    def files(self) -> list[File]:
        """All three files."""
        return [File(self.vanishing), File(self.directory), File(self.unreadable)]


def set_traps(folder: Path) -> Traps:
    """Make the files that must fail.

    File modes do not stop root from reading; reading a process's own memory from address 0 fails for every user.
    """
    traps = Traps(folder / "vanishes.txt", folder / "directory.txt", folder / "unreadable.txt")
    traps.vanishing.write_text("soon gone\n")
    traps.directory.mkdir()
    if OWN_MEMORY.exists():
        return msgspec.structs.replace(traps, unreadable=OWN_MEMORY)
    traps.unreadable.touch(mode=0)
    return traps


def standard_library() -> Path:
    """The folder of Python's own modules."""
    return Path(sysconfig.get_path("stdlib"))


def regular_files(folder: Path, *, leaving_out: Collection[str] = ()) -> tuple[list[File], int]:
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


def direct_readings(files: Iterable[File]) -> dict[str, Direct]:
    """The result of reading each file directly, by path."""
    return {str(file.path): _read(file) for file in files}


def _walk(folder: Path, leaving_out: Collection[str]) -> Iterator[File]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in leaving_out]
        for name in names:
            path = Path(where, name)
            stamp = _stamp(path)
            if stamp is not None:
                yield File(path, stamp)


def _stamp(path: Path) -> tuple[int, int] | None:
    """A regular file's size and time of change; None: it is not a regular file, or gone."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _read(file: File) -> Direct:
    try:
        found: Direct = measured(file.path)
    except OSError:
        found = Unreadable()
    return Changed() if file.stamp is not None and _stamp(file.path) != file.stamp else found


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True

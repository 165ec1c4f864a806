"""The files of a lake, on a disk or in an object store. Paths are below the lake; what they mean is the lake's business.

Files are reached through :mod:`pyarrow.fs`, from this process: Spark Connect has no JVM at hand.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import ArrowException, fs, parquet

from pgqueue.errors import LakeError

UNFINISHED = ".unfinished-"
PATTERN = "*?[]{}\\"
ARROWS = {"s3a": "s3", "s3n": "s3"}
"""What Arrow calls a file system that Spark calls otherwise."""


class Folder:
    """A folder and all below it.

    Attributes:
        uri: where it is, as Spark is told.
    """

    def __init__(self, uri: str) -> None:
        """Say where it is. Nothing is looked at yet.

        Args:
            uri: a path, or a URI of a file system that Arrow and Spark both know.

        Raises:
            LakeError: no such file system is known, or the path has characters that Spark reads as a pattern.
        """
        self.uri = uri.rstrip("/") if "://" in uri else f"file://{Path(uri).expanduser().absolute()}"
        if found := [char for char in self.uri if char in PATTERN]:
            raise LakeError(
                f"{self.uri}: Spark takes {found[0]} in a path for a pattern; choose another folder"
            )
        try:
            self._files, self._root = self._opened()
        except (ArrowException, OSError, ValueError) as error:
            raise LakeError(f"{self.uri} is no place for a lake: {error}") from error

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        with self._errors("read"):
            return bool(self._files.get_file_info(self._at(path)).type == fs.FileType.File)

    def paths(self, path: str = "") -> list[str]:
        """All files below a path, in order."""
        selector = fs.FileSelector(self._at(path), allow_not_found=True, recursive=True)
        with self._errors("read"):
            found = [one.path for one in self._files.get_file_info(selector) if one.type == fs.FileType.File]
        return sorted(one.removeprefix(self._root).lstrip("/") for one in found)

    def read(self, path: str) -> bytes:
        """What is in a file."""
        with self._errors("read"), self._files.open_input_stream(self._at(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, data: bytes) -> None:
        """Put data in a file's place, in one rename: the file is as it was, or as it is to be."""
        place, _, name = path.rpartition("/")
        unfinished = f"{place}/{UNFINISHED}{uuid.uuid4().hex}-{name}"
        with self._errors("write"):
            self._files.create_dir(self._at(place), recursive=True)
            with self._files.open_output_stream(self._at(unfinished)) as stream:
                stream.write(data)
            self._files.move(self._at(unfinished), self._at(path))

    def move(self, path: str, target: str) -> None:
        """Move a file."""
        with self._errors("write"):
            self._files.create_dir(self._at(target.rpartition("/")[0]), recursive=True)
            self._files.move(self._at(path), self._at(target))

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._errors("write"):
            self._files.delete_file(self._at(path))

    def remove_all(self, path: str) -> None:
        """Remove a folder, if it is there."""
        with self._errors("write"):
            if self._files.get_file_info(self._at(path)).type == fs.FileType.Directory:
                self._files.delete_dir(self._at(path))

    def measured(self, path: str) -> tuple[int, int]:
        """How many rows a Parquet file has, and how many bytes."""
        with self._errors("read"):
            size = self._files.get_file_info(self._at(path)).size
            return parquet.read_metadata(self._at(path), filesystem=self._files).num_rows, size

    def _opened(self) -> tuple[fs.FileSystem, str]:
        scheme, _, rest = self.uri.partition("://")
        if scheme == "file":  # not as a URI, in which % would be an escape
            return fs.LocalFileSystem(), rest
        files, root = fs.FileSystem.from_uri(f"{ARROWS.get(scheme, scheme)}://{rest}")
        return files, root

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (ArrowException, OSError) as error:
            raise LakeError(
                f"cannot {verb} in the lake {self.uri}: {error}; check --lake, that it can be reached, and whose it is"
            ) from error

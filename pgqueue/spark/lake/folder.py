"""Reads and writes the files of a lake, on a disk or in an object store. Paths are relative to the lake.

:mod:`pgqueue.spark.lake.lake` decides what the paths mean. Files are reached through :mod:`pyarrow.fs`, from this
process, because Spark Connect gives no access to a JVM.
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
"""Arrow's names of file systems that Spark names differently."""


class Folder:
    """A folder and all below it.

    Attributes:
        uri: its place, in Spark's form.
    """

    def __init__(self, uri: str) -> None:
        """Set the folder's place. No file is read yet.

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
        """Whether the file exists."""
        with self._errors("read"):
            return bool(self._files.get_file_info(self._at(path)).type == fs.FileType.File)

    def paths(self, path: str = "") -> list[str]:
        """All files below a path, in order."""
        selector = fs.FileSelector(self._at(path), allow_not_found=True, recursive=True)
        with self._errors("read"):
            found = [one.path for one in self._files.get_file_info(selector) if one.type == fs.FileType.File]
        return sorted(one.removeprefix(self._root).lstrip("/") for one in found)

    def read(self, path: str) -> bytes:
        """A file's contents."""
        with self._errors("read"), self._files.open_input_stream(self._at(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, data: bytes) -> None:
        """Replace a file's contents, in one rename: a reader sees the old file or the new one."""
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
        """Remove a folder, if it exists."""
        with self._errors("write"):
            if self._files.get_file_info(self._at(path)).type == fs.FileType.Directory:
                self._files.delete_dir(self._at(path))

    def measured(self, path: str) -> tuple[int, int]:
        """The number of rows of a Parquet file, and its size in bytes."""
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

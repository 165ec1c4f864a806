"""Reads and writes the files of a lake, on a disk or in an object store. Paths are relative to the lake.

:mod:`pgqueue.spark.lake.lake` decides what the paths mean. Files are reached through :mod:`pyarrow.fs`, in this process and
in Spark's executors, because a JVM from PyPI knows no object store, and Spark Connect gives no access to one.
"""

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs

from pyarrow import ArrowException, fs

from pgqueue.errors import LakeError

UNFINISHED = ".unfinished-"
PATTERN = "*?[]{}\\"
ESCAPE = re.compile(r"%[0-9a-fA-F]{2}|#")
"""In a path that has it, ``deltalake`` looks for another one, or does not find files that do not count."""
ARROWS = {"s3a": "s3", "s3n": "s3"}
"""Arrow's names of file systems that Spark names differently."""
LOCAL = "file"
S3_OPTIONS = {"region", "scheme", "endpoint_override"}
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
CONNECT_TIMEOUT = 1.5
"""Seconds of each of three attempts."""


def open_location(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a location that :meth:`Folder.at` named, and the path in it."""
    scheme, _, rest = location.partition("://")
    if scheme == LOCAL:  # not as a URI, in which % would be an escape
        return fs.LocalFileSystem(), rest
    scheme, (place, _, options) = ARROWS.get(scheme, scheme), rest.partition("?")
    if scheme == "s3" and "@" not in place:
        return _s3(place, options), place
    files, root = fs.FileSystem.from_uri(f"{scheme}://{rest}")
    return files, root


def _s3(place: str, options: str) -> fs.S3FileSystem:
    """Arrow's file system, as its URI describes it; a store that does not answer is given up within 5 s.

    A file that is small is sent in one request.
    """
    given = {name: values[-1] for name, values in parse_qs(options).items()}
    if unknown := sorted(given.keys() - S3_OPTIONS):
        raise ValueError(f"{unknown[0]}: of the options of an S3 URI use {', '.join(sorted(S3_OPTIONS))}")
    settings = {name: given[name] for name in ("region", "scheme", "endpoint_override") if name in given}
    told = next((url for name in ENDPOINTS if (url := os.environ.get(name))), None)
    if told and "endpoint_override" not in settings:
        settings["scheme"], _, settings["endpoint_override"] = told.rpartition("://")
    if "endpoint_override" not in settings and not settings.get(
        "region", os.environ.get("AWS_DEFAULT_REGION")
    ):
        settings["region"] = fs.resolve_s3_region(place.partition("/")[0])
    return fs.S3FileSystem(
        connect_timeout=CONNECT_TIMEOUT,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
        allow_delayed_open=True,
        **settings,
    )


class Folder:
    """A folder and all below it.

    Attributes:
        uri: its place, without the options that a URI of an object store may have after ``?``.
        storage_options: these options, as ``deltalake`` names them.
    """

    def __init__(self, uri: str) -> None:
        """Set the folder's place. No file is read yet.

        Args:
            uri: a path, or a URI of a file system that Arrow and ``deltalake`` both know.

        Raises:
            LakeError: no such file system is known, or the path has characters that Spark reads as a pattern, or
                ``deltalake`` as an escape.
        """
        whole = uri if "://" in uri else f"{LOCAL}://{Path(uri).expanduser().absolute()}"
        place, self._options = _split(whole)
        self.uri = place.rstrip("/")
        self.storage_options = _for_deltalake(self._options)
        if found := [char for char in self.uri if char in PATTERN]:
            raise LakeError(
                f"{self.uri}: Spark takes {found[0]} in a path for a pattern; choose another folder"
            )
        if self.uri.startswith(f"{LOCAL}:") and (escape := ESCAPE.search(self.uri)):
            raise LakeError(
                f"{self.uri}: {escape[0]} in a path is taken for a part of a URL; choose another folder"
            )
        try:
            self._files, self._root = open_location(self.at(""))
        except (ArrowException, OSError, ValueError) as error:
            raise LakeError(f"{self.uri} is no place for a lake: {error}") from error

    @property
    def is_local(self) -> bool:
        """Whether it is on a file system of this machine."""
        return isinstance(self._files, fs.LocalFileSystem)

    def at(self, path: str) -> str:
        """The place of a file or folder below, as :func:`open_location` takes it, in any process."""
        return f"{self.uri}/{path}".rstrip("/") + (f"?{self._options}" if self._options else "")

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
        """Replace a file's contents, at once: a reader sees the old file or the new one."""
        place, _, name = path.rpartition("/")
        unfinished = f"{place}/{UNFINISHED}{uuid.uuid4().hex}-{name}".lstrip("/")
        with self._errors("write"):
            if not self.is_local:
                with self._files.open_output_stream(
                    self._at(path)
                ) as stream:  # an object is there when it is whole
                    stream.write(data)
                return
            self._files.create_dir(self._at(place), recursive=True)
            with self._files.open_output_stream(self._at(unfinished)) as stream:
                stream.write(data)
            self._files.move(self._at(unfinished), self._at(path))

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


def _split(uri: str) -> tuple[str, str]:
    """Return a URI without its options, and the options."""
    if uri.startswith(f"{LOCAL}:"):
        return uri, ""
    place, _, options = uri.partition("?")
    return place, options


def _for_deltalake(options: str) -> Mapping[str, str]:
    """Return the options of Arrow's URI as ``deltalake`` names them; both take what is not given from the environment."""
    given = {name: values[-1] for name, values in parse_qs(options).items()}
    found = {}
    if endpoint := given.get("endpoint_override"):
        scheme = given.get("scheme", "https")
        found["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        found["AWS_ALLOW_HTTP"] = str(found["AWS_ENDPOINT_URL"].startswith("http://")).lower()
    if region := given.get("region"):
        found["AWS_REGION"] = region
    return found

"""PostgreSQL servers for the suite: the embedded 18, Debian's own, or one that is already there."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgqueue.embedded import Server, embedded_binaries, embedded_server, throwaway_server
from pgqueue.testing.databases import hasten

DEBIAN = Path("/usr/lib/postgresql")
MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it
ROOM = 4 * 1024**3
"""Bytes that the suite may need there; it uses 1 GiB."""


def use_memory() -> None:
    """Keep all temporary files in memory where there is room: copying a database takes a third of the CPU time."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def on_the_oldest() -> bool:
    """Whether the tests run on Debian's PostgreSQL, the oldest that is supported."""
    return not os.environ.get("PGQUEUE_TEST_DSN") and os.environ.get("PGQUEUE_TEST_SERVER") == "debian"


@contextmanager
def server() -> Iterator[str]:
    """The server to test on: PGQUEUE_TEST_DSN, or PGQUEUE_TEST_SERVER=debian, or the embedded one."""
    given = os.environ.get("PGQUEUE_TEST_DSN")
    if given:
        yield given
    elif on_the_oldest():
        with debian_server() as dsn:
            yield dsn
    else:
        with embedded_server() as dsn:
            hasten(dsn)
            yield dsn


@contextmanager
def debian_server() -> Iterator[str]:
    """A throwaway cluster of the PostgreSQL that Debian packages, which never waits for its disk."""
    binaries = sorted(DEBIAN.glob("*/bin"))
    if not binaries:
        raise RuntimeError("Debian's PostgreSQL is not installed; `make test` installs it")
    with throwaway_server(binaries[-1]) as server:
        hasten(server.dsn)
        yield server.dsn


@contextmanager
def standby_of(primary: Server) -> Iterator[Server]:
    """A hot standby that streams from a server, which must run on the embedded binaries; deleted at the end."""
    binaries, folder = embedded_binaries(), Path(tempfile.mkdtemp(prefix="pgqueue-standby-"))
    standby = Server(binaries, folder, primary.identity)
    words = ["-d", primary.dsn, "-D", str(folder / "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync"]
    try:
        subprocess.run([str(binaries / "pg_basebackup"), *words], check=True, capture_output=True)  # noqa: S603 - a fixed command
        if primary.identity:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, primary.identity["user"], primary.identity["group"], follow_symlinks=False)
        standby.start()
        yield standby
    finally:
        standby.stop()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port of the loopback address that no program listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

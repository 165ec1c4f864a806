"""PostgreSQL servers for the suite: the embedded 18, Debian's own, or one that is already there."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgqueue.embedded import embedded_server
from pgqueue.testing.databases import hasten

DEBIAN = Path("/usr/lib/postgresql")


@contextmanager
def server() -> Iterator[str]:
    """The server to test on: PGQUEUE_TEST_DSN, or PGQUEUE_TEST_SERVER=debian, or the embedded one."""
    given = os.environ.get("PGQUEUE_TEST_DSN")
    if given:
        yield given
    elif os.environ.get("PGQUEUE_TEST_SERVER") == "debian":
        with debian_server() as dsn:
            yield dsn
    else:
        with embedded_server() as dsn:
            hasten(dsn)
            yield dsn


@contextmanager
def debian_server() -> Iterator[str]:
    """A throwaway cluster of the PostgreSQL that Debian packages."""
    binaries = sorted(DEBIAN.glob("*/bin"))
    if not binaries:
        raise RuntimeError("Debian's PostgreSQL is not installed; `make test` installs it")
    folder = Path(tempfile.mkdtemp(prefix="pgqueue-debian-"))
    port = free_port()
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["runuser", "-u", "postgres", "--"]

    def ctl(*words: str) -> None:
        subprocess.run([*as_user, *words], check=True, capture_output=True, cwd="/")  # noqa: S603 - our own words

    binary, data = binaries[-1], folder / "data"
    ctl(str(binary / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8")
    options = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
    ctl(str(binary / "pg_ctl"), "-w", "-D", str(data), "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        ctl(str(binary / "pg_ctl"), "-w", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

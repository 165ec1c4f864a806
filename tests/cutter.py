"""A TCP proxy before the test's server that closes a connection in place of passing on its n-th request."""

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

import psycopg
from psycopg.conninfo import conninfo_to_dict

REQUESTS = b"QPBEFCcd"
"""The first bytes of what a client sends after it has logged in, without its good-bye."""
MOST = 60
"""Requests of one act; the tests are about few statements."""


class Cutter:
    """Passes bytes on, and counts the requests of all connections: what a client sends until the server answers.

    Attributes:
        dsn: the way through it.
        requests: how many there were since the last :meth:`cut_at`.
    """

    def __init__(self, dsn: str) -> None:
        where = conninfo_to_dict(dsn)
        self._host, self._port = str(where["host"]), int(str(where.get("port", 5432)))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._at = 0
        self.requests = 0
        # asyncpg, SQLAlchemy and Django take this form, too; the server would answer a question for TLS with no
        self.dsn = (
            f"postgresql://{where['user']}:{where.get('password') or ''}@127.0.0.1:"
            f"{self._listening.getsockname()[1]}/{where['dbname']}"
        )

    def cut_at(self, number: int) -> None:
        """Count afresh, and close the connection that sends this request; 0: none."""
        with self._lock:
            self._at, self.requests = number, 0

    @contextmanager
    def running(self) -> Iterator["Cutter"]:
        """Accept connections for the length of the block."""
        accepting = threading.Thread(target=self._accept, name="cutter", daemon=True)
        accepting.start()
        try:
            yield self
        finally:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            for one in self._open:
                _close(one)
            accepting.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = self._connected()
                self._open += [client, server]
                answered = threading.Event()
                for work in (self._ask, self._answer):
                    threading.Thread(target=work, args=(client, server, answered), daemon=True).start()

    def _connected(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return server

    def _ask(self, client: socket.socket, server: socket.socket, answered: threading.Event) -> None:
        with suppress(OSError):
            while (data := client.recv(65_536)) and not (
                answered.is_set() and data[:1] in REQUESTS and self._is_cut(answered)
            ):
                server.sendall(data)
        _close(server)  # first: the client hears of the end when the server has heard of it
        _close(client)

    def _is_cut(self, answered: threading.Event) -> bool:
        answered.clear()
        with self._lock:
            self.requests += 1
            return self.requests == self._at

    def _answer(self, client: socket.socket, server: socket.socket, answered: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65_536):
                answered.set()
                client.sendall(data)
        _close(server)
        _close(client)


async def tell_the_truth(
    cutter: Cutter, act: Callable[[], Awaitable[object]], done: Callable[[], int], *, commits: bool
) -> list[BaseException | None]:
    """Cut the connection at each request of an act: its caller hears an error of a driver or of pgqueue, or all is done.

    Args:
        cutter: through which the act's connections lead.
        act: what is done; each call does the same.
        done: how often it was done, as another connection finds it.
        commits: whether an act without an error does it; else it ends with a rollback, and is never done.

    Returns:
        What each cut ended with, the first request's first; None: no error.
    """
    ends: list[BaseException | None] = []
    await _outcome(act)  # opens pools
    for number in count(1):
        assert number < MOST
        before = done()
        cutter.cut_at(number)
        error = await _outcome(act)
        if cutter.requests < number:
            assert error is None
            return ends
        assert not isinstance(error, psycopg.Rollback), f"a Rollback leaked at request {number}"
        assert done() - before == (1 if commits and error is None else 0), f"request {number}: {error!r}"
        ends.append(error)
    raise AssertionError


async def _outcome(act: Callable[[], Awaitable[object]]) -> BaseException | None:
    try:
        await act()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error
    return None


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()

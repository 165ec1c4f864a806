"""A TCP way to the test's server, of which a test can make the open connections silent: open, and no answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Way:
    """Passes bytes on.

    Attributes:
        dsn: through it.
        opened: how many connections were made through it.
    """

    def __init__(self, dsn: str, port: int) -> None:
        self.server = conninfo_to_dict(dsn)
        self.dsn = make_conninfo("", **{**self.server, "host": "127.0.0.1", "port": port})
        self.opened = 0
        self._speaks: list[threading.Event] = []

    def silence(self, *, last: bool = False) -> None:
        """From now on nothing passes on the connections that are open, or on the last; later ones are as usual."""
        for speaks in self._speaks[-1 if last else 0 :]:
            speaks.clear()

    def join(self, client: socket.socket, stack: ExitStack) -> None:
        host, port = str(self.server["host"]), self.server.get("port", 5432)
        there = socket.socket(socket.AF_UNIX if host.startswith("/") else socket.AF_INET)
        there.connect(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, int(port or 0)))
        speaks = threading.Event()
        speaks.set()
        self._speaks.append(speaks)
        self.opened += 1
        for one, other in ((client, there), (there, client)):
            stack.callback(_shut, one)
            threading.Thread(target=_pass, args=(one, other, speaks), daemon=True).start()


@contextmanager
def way_to(dsn: str) -> Iterator[Way]:
    """A way to a server, for the length of a block."""
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as door:
        way = Way(dsn, door.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    way.join(door.accept()[0], stack)

        threading.Thread(target=accept, daemon=True).start()
        yield way
        _shut(door)


def _pass(one: socket.socket, other: socket.socket, speaks: threading.Event) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            if speaks.is_set():
                other.sendall(data)
    _shut(other)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()

"""What a thread needs that waits on a connection: a bell to wake it, and a guard that cuts a silent connection off."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from pgqueue.store.connections.connection import OwnConnection
from pgqueue.store.connections.session import cut_off

ANSWER_WITHIN = 30.0
"""Seconds. A connection that does not answer a statement within this time is cut off."""


class ThreadWaker:
    """Wakes a thread that waits for one of several files."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()
        for end in (self._inside, self._outside):
            end.settimeout(0)
        self._rings = False

    def fileno(self) -> int:
        """What to wait for."""
        return self._inside.fileno()

    def ring(self) -> None:
        """Wake the thread; from any thread."""
        if not self._rings:
            self._rings = True
            with suppress(OSError):
                self._outside.send(b"!")

    def hush(self) -> None:
        """Be silent until the next ring. What was done before a ring that this takes in is visible to the caller."""
        with suppress(OSError):
            self._inside.recv(64)
        self._rings = False

    def close(self) -> None:
        """Close the files."""
        self._inside.close()
        self._outside.close()


class ConnectionWatchdog:
    """Cuts a connection off that does not answer within :data:`ANSWER_WITHIN`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: tuple[float, OwnConnection] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pgqueue-ends-guard", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    @contextmanager
    def over(self, connection: OwnConnection) -> Iterator[None]:
        """Guard a connection while a statement runs on it."""
        self._asked = monotonic(), connection
        try:
            yield
        finally:
            with self._lock:  # it is not being cut off at this moment, so it may be closed
                self._asked = None

    def _run(self) -> None:
        while not self._over.wait(ANSWER_WITHIN / 4):
            with self._lock:
                if self._asked is not None and monotonic() - self._asked[0] > ANSWER_WITHIN:
                    cut_off(self._asked[1])

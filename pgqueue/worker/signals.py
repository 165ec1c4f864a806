"""Whether anything happens: how closely a worker looks for jobs that nobody has told it of.

While jobs come, or where notifications cannot be heard, it looks every ``poll``. When nothing has happened for a
while and it would be told if it did, the looks every ``sweep`` suffice, and an idle worker hardly costs anything.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

CALM_AFTER = 10.0
"""Seconds without a sign of life. A transaction that began before the worker fell asleep tells nobody of its
jobs; one that is still open after this long is not waited for so closely."""


class Activity:
    """Knows when the last sign of life was, and whether the worker hears notifications.

    Attributes:
        deaf: nobody can tell this worker anything.
    """

    def __init__(self, on_stir: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        """Begin restless and deaf.

        Args:
            on_stir: called when calm has ended.
            clock: seconds, from any beginning.
        """
        self.deaf = True
        self._on_stir = on_stir
        self._clock = clock
        self._until = clock() + CALM_AFTER

    def stir(self) -> None:
        """There was a sign of life: a notification, or a job."""
        was_calm = self.reigns
        self._until = self._clock() + CALM_AFTER
        if was_calm:
            self._on_stir()

    @property
    def reigns(self) -> bool:
        """Whether nothing has happened for a while, and it would be known if it had."""
        return not self.deaf and self._clock() >= self._until


Work: TypeAlias = Callable[[], object]


class TaskLoop:
    """The event loop in which a worker runs users' coroutines, and its thread.

    Attributes:
        loop: the loop; None before the worker runs.
        thread: the thread's identity; None before the worker runs.
    """

    def __init__(self) -> None:
        """Not known yet."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: int | None = None

    def here(self) -> None:
        """The running loop is the one."""
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()

    def call(self, what: Work) -> None:
        """Call something in the loop: at once where this is the loop's thread, else soon."""
        if self.thread in (None, threading.get_ident()):
            what()
        else:
            self.call_soon(what)

    def call_soon(self, what: Work) -> None:
        """Call something in the loop, at its next turn."""
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the worker has ended
                self.loop.call_soon_threadsafe(what)

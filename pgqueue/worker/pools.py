"""Threads for tasks that are plain functions.

They are daemons, so that a function that never returns cannot keep the process from ending, and they can be
abandoned: a timed-out attempt leaves its thread to finish whenever it does, and another takes its place.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any


class _Stage(Enum):
    """How far a call has got."""

    WAITS = auto()
    RUNS = auto()
    DONE = auto()
    GIVEN_UP = auto()


class _Work:
    """One call on its way through a thread. Its stage is changed by whoever holds the lock."""

    __slots__ = ("call", "context", "future", "lock", "stage")

    def __init__(
        self, call: Callable[[], Any], future: "asyncio.Future[tuple[Any, BaseException | None]]"
    ) -> None:
        self.call = call
        self.future = future
        self.context = contextvars.copy_context()
        self.lock = threading.Lock()
        self.stage = _Stage.WAITS

    def advance(self, before: _Stage, after: _Stage) -> bool:
        """Go from one stage to the next; False: the call was given up meanwhile."""
        with self.lock:
            if self.stage is not before:
                return False
            self.stage = after
            return True

    def give_up(self) -> bool:
        """Nobody waits for the call any more; True: a thread is lost to it."""
        with self.lock:
            was, self.stage = self.stage, _Stage.GIVEN_UP
            return was is _Stage.RUNS


class Threads:
    """Up to ``size`` calls at a time; used from one event loop."""

    def __init__(self, size: int) -> None:
        """Start no thread yet.

        Args:
            size: at most how many threads, abandoned ones not counted.
        """
        self._size = size
        self._threads = 0
        self._busy = 0
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()

    async def run(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
        """Call it in a thread, with a copy of the current context variables.

        Returns:
            What it returns.

        Raises:
            BaseException: what it raises.
            CancelledError: the waiting was cancelled; the thread goes on by itself and is replaced.
        """
        loop = asyncio.get_running_loop()
        work = _Work(call, loop.create_future())
        self._busy += 1
        if self._threads < min(self._size, self._busy):
            self._threads += 1
            threading.Thread(target=self._serve, args=(loop,), name="pgqueue-task", daemon=True).start()
        self._work.put(work)
        try:
            value, error = await work.future
        except asyncio.CancelledError:
            self._threads -= work.give_up()
            raise
        finally:
            self._busy -= 1
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (work := self._work.get()) is not None:
            if not work.advance(_Stage.WAITS, _Stage.RUNS):
                continue
            answer = _outcome(work)
            if not work.advance(_Stage.RUNS, _Stage.DONE):
                return  # another thread has taken this one's place
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_deliver, work.future, answer)


def _outcome(work: _Work) -> tuple[Any, BaseException | None]:
    try:
        return work.context.run(work.call), None
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits
        return None, error


def _deliver(
    future: "asyncio.Future[tuple[Any, BaseException | None]]", answer: tuple[Any, BaseException | None]
) -> None:
    if not future.done():
        future.set_result(answer)

"""Keeps a number of worker processes running.

A child that dies is started again after a pause that grows while it keeps dying young. When every child keeps
dying young there is something wrong that starting again will not mend, and the supervisor gives up. A child that
ended because somebody stopped it alone is started again, too: that is how to renew them one by one.

Children live in sessions of their own, so that Ctrl-C in a terminal reaches only the supervisor, which passes
it on: as SIGTERM, and the second time as SIGINT. They stop by themselves when the supervisor is gone. Both are
explained in :mod:`pgqueue.cli.worker`.
"""

import asyncio
import logging
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress

log = logging.getLogger("pgqueue.supervisor")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
GROWN_UP = 10.0
TOO_OFTEN = 5
GAVE_UP = 1
STOPPING = "stopping: each worker waits for its running jobs; Ctrl-C again returns them to the queue now"
AGAIN = "stopping now: each worker returns its running jobs to the queue"


class Supervisor:
    """Runs a command in several processes until it is told to stop."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        *,
        first_pause: float = FIRST_PAUSE,
        grown_up: float = GROWN_UP,
    ) -> None:
        """Start nothing yet.

        Args:
            command: what each child is.
            processes: how many of them.
            first_pause: seconds before a child that died is started again; doubled each time it dies young.
            grown_up: seconds from which on a child has not died young.
        """
        self._command = command
        self._first_pause = first_pause
        self._grown_up = grown_up
        self._children: dict[int, Process] = {}
        self._early_deaths = [0] * processes
        self._last_code = 0
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Keep the children running until stopped.

        Returns:
            The exit code: 0 after a stop; after giving up, that of the last child to die.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        await asyncio.gather(*(self._keep(slot) for slot in range(len(self._early_deaths))))
        return (self._last_code or GAVE_UP) if self._gives_up() else 0

    def stop(self) -> None:
        """Stop all children; called again, at once."""
        again = self._stopping.is_set()
        log.info(AGAIN if again else STOPPING, extra={"processes": len(self._children)})
        self._stopping.set()
        for child in self._children.values():
            _signal(child, signal.SIGINT if again else signal.SIGTERM)

    async def _keep(self, slot: int) -> None:
        while not self._stopping.is_set():
            child, code, seconds = await self._run_child(slot)
            if self._stopping.is_set():
                return
            self._early_deaths[slot] = 0 if seconds >= self._grown_up else self._early_deaths[slot] + 1
            self._last_code = code if code > 0 else GAVE_UP
            if self._gives_up():
                log.error(
                    "worker processes keep dying at their start; giving up", extra={"code": self._last_code}
                )
                self.stop()
                return
            pause = min(self._first_pause * 2 ** max(0, self._early_deaths[slot] - 1), LONGEST_PAUSE)
            log.warning("worker process died", extra={"pid": child.pid, "code": code, "restart_in": pause})
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    async def _run_child(self, slot: int) -> tuple[Process, int, float]:
        started = time.monotonic()
        child = await asyncio.create_subprocess_exec(*self._command, start_new_session=True)
        self._children[slot] = child
        if self._stopping.is_set():  # told so while it was being started
            _signal(child, signal.SIGTERM)
        log.info("worker process started", extra={"pid": child.pid})
        code = await child.wait()
        del self._children[slot]
        return child, code, time.monotonic() - started

    def _gives_up(self) -> bool:
        return all(deaths >= TOO_OFTEN for deaths in self._early_deaths)


def _signal(child: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        child.send_signal(number)

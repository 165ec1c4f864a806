"""Keeps a number of worker processes running.

A child that dies is started again after a pause, which doubles each time the child dies soon after its start. If
every child dies soon after its start several times, a restart will not help, and the supervisor gives up. A child that
a user stopped is started again, too: so a user can restart the workers one by one. A child that was asked from outside to
stop (``pgqueue workers stop``) is not; one that was asked to restart is started again at once.

Each child has a session of its own, so that Ctrl-C in a terminal reaches only the supervisor. The supervisor sends the
children SIGTERM, and the second time SIGINT. They stop by themselves when the supervisor is gone.
:mod:`pgqueue.cli.worker` explains both.
"""

import asyncio
import logging
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress

log = logging.getLogger("pgqueue.supervisor")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STABLE_AFTER = 10.0
MOST_EARLY_DEATHS = 5
GAVE_UP = 1
ASKED_TO_END = {"stop": 85, "restart": 86}
ASKED_AND_DIED = {"stop": 89, "restart": 90}
"""The exit codes with which a child says that it ended because it was asked to, from outside."""
DONE, DONE_AND_DIED = 87, 88
"""The exit codes of a child that ended by itself: no job of its attempts is dead, or some are."""
JOBS_DIED = 3
"""The exit code of a command whose worker ended by itself, if jobs of its attempts are dead."""
STOPPING = "stopping: each worker waits for its running jobs; Ctrl-C again returns them to the queue now"
AGAIN = "stopping now: each worker returns its running jobs to the queue"
KILLED_AFTER = 30.0
"""Seconds from the instant at which a child has to have stopped until it is killed: it may hold the GIL, or be frozen."""


class Supervisor:
    """Runs a command in several processes until it is told to stop."""

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        *,
        first_pause: float = FIRST_PAUSE,
        stable_after: float = STABLE_AFTER,
        grace: float = 0.0,
        added: Callable[[int], Sequence[str]] = lambda _: (),
    ) -> None:
        """``first_pause``: seconds before a child that died is started again; doubled after each early death.

        ``stable_after``: seconds; a death before this age is an early death. ``grace``: seconds in which children
        let their running jobs finish. ``added`` returns what the command of a child has
        besides, by the child's place, from 0.
        """
        self._command = command
        self._added = added
        self._first_pause = first_pause
        self._stable_after = stable_after
        self._grace = grace
        self._children: dict[int, Process] = {}
        self._early_deaths = [0] * processes
        self._ended: set[int] = set()
        self._last_code = 0
        self._jobs_died = False
        self._is_done = False
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Keep the children running until stopped.

        Returns:
            The exit code: 0 after a stop; after giving up, that of the last child to die; ``JOBS_DIED`` if the children ended by
            themselves and jobs of their attempts are dead.
        """
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self.stop)
        await asyncio.gather(*(self._keep(slot) for slot in range(len(self._early_deaths))))
        if self._gives_up():
            return self._last_code or GAVE_UP
        return JOBS_DIED if self._jobs_died and self._is_done else 0

    def stop(self) -> None:
        """Stop all children gracefully; a second call stops them at once."""
        again = self._stopping.is_set()
        log.info(AGAIN if again else STOPPING, extra={"processes": len(self._children)})
        self._stopping.set()
        for child in self._children.values():
            _signal(child, signal.SIGINT if again else signal.SIGTERM)
        within = KILLED_AFTER if again else self._grace + KILLED_AFTER
        asyncio.get_running_loop().call_later(within, self._kill)

    def _kill(self) -> None:
        for child in self._children.values():
            log.error("worker process has not stopped: it is killed", extra={"pid": child.pid})
            _signal(child, signal.SIGKILL)

    async def _keep(self, slot: int) -> None:
        while not self._stopping.is_set():
            child, code, seconds = await self._run_child(slot)
            self._jobs_died |= code in {DONE_AND_DIED, *ASKED_AND_DIED.values()}
            self._is_done |= code in {DONE, DONE_AND_DIED}
            if self._stopping.is_set():
                return
            if code in {DONE, DONE_AND_DIED}:
                log.info("worker process ended by itself", extra={"pid": child.pid})
                self._ended.add(slot)
                return
            if code in {ASKED_TO_END["stop"], ASKED_AND_DIED["stop"]}:
                log.info("worker process stopped, as it was asked to", extra={"pid": child.pid})
                self._ended.add(slot)
                return
            if code in {ASKED_TO_END["restart"], ASKED_AND_DIED["restart"]}:
                log.info(
                    "worker process ended, as it was asked to: it starts again", extra={"pid": child.pid}
                )
                continue
            self._early_deaths[slot] = 0 if seconds >= self._stable_after else self._early_deaths[slot] + 1
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
        child = await asyncio.create_subprocess_exec(
            *self._command, *self._added(slot), start_new_session=True
        )
        self._children[slot] = child
        if self._stopping.is_set():  # stop() was called while the child was being started
            _signal(child, signal.SIGTERM)
        log.info("worker process started", extra={"pid": child.pid})
        code = await child.wait()
        del self._children[slot]
        return child, code, time.monotonic() - started

    def _gives_up(self) -> bool:
        kept = [deaths for slot, deaths in enumerate(self._early_deaths) if slot not in self._ended]
        return bool(kept) and min(kept) >= MOST_EARLY_DEATHS


def stop_signals() -> list[signal.Signals]:
    """The signals that stop a worker; not SIGHUP where it is ignored, as under ``nohup``."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hangup]


def _signal(child: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        child.send_signal(number)

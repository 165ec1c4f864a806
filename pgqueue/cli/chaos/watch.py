"""What the workers do, seen from their log while they do it: whether work goes on."""

import time
from pathlib import Path

from pgqueue.cli.chaos.kinds import is_step
from pgqueue.cli.chaos.log import Tail
from pgqueue.values.history.events import Ended, Enqueued, JobName, Started

LOOK_EVERY = 0.05
"""Seconds between two looks at the log."""


class Watch:
    """Follows the log. Used from one thread.

    Attributes:
        enqueued: how many jobs were enqueued, as far as their enqueuers know.
        ended: how many jobs have succeeded or are dead.
    """

    def __init__(self, folder: Path) -> None:
        """Begin with the first line.

        Args:
            folder: of the log.
        """
        self.enqueued = 0
        self.ended = 0
        self._tail = Tail(folder)
        self._open: dict[tuple[int, JobName], float] = {}
        self._newest_start = 0.0
        self._its_end = 0.0

    def look(self) -> None:
        """Read what is new."""
        for event, process in self._tail.news():
            match event:
                case Started() if not is_step(event.job):
                    self._open[process, event.job] = event.at
                case Enqueued(commit="acknowledged"):
                    self.enqueued += 1
                case Ended():
                    started = self._open.pop((process, event.job), 0.0)
                    if event.state in {"succeeded", "dead"}:
                        self._served(started, event.at)

    def served_after(self, instant: float, *, within: float) -> float | None:
        """Wait until a job that started after an instant has ended, and the database has recorded it.

        Args:
            instant: of the monotonic clock.
            within: for how many seconds to wait.

        Returns:
            When it ended; None: none did.
        """
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            self.look()
            if self._newest_start > instant:
                return self._its_end
            time.sleep(LOOK_EVERY)
        return None

    def _served(self, started: float, ended: float) -> None:
        self.ended += 1
        if started > self._newest_start:
            self._newest_start, self._its_end = started, ended

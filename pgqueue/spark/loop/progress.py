"""Shows how far a run is: one line that is written again on a terminal, a line now and then elsewhere, or a function of the caller's."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO, TypeAlias

from pgqueue.values.insight.runs import Run
from pgqueue.values.workers.lease import duration_text

EVERY = 10.0
"""Seconds between two lines, where there is no terminal."""
SMOOTHED = 30.0
"""Seconds over which the rate is measured."""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        run: its name.
        jobs: how many jobs it has.
        done: how many succeeded or were cancelled.
        dead: how many are dead.
        running: how many run.
        waiting: how many wait.
        rate: how many end per second; None: not known yet.
        seconds_left: how long the others take at this rate; None: not known yet.
    """

    run: str
    jobs: int
    done: int
    dead: int
    running: int
    waiting: int
    rate: float | None
    seconds_left: float | None

    def __str__(self) -> str:
        share = 100 * (self.done + self.dead) // self.jobs if self.jobs else 100
        said = f"{self.run}: {share} %, {self.done:,} of {self.jobs:,} done, {self.running:,} running, {self.dead:,} dead"
        if self.rate is not None:
            said += f", {self.rate:,.1f}/s"
        if self.seconds_left is not None:
            said += f", {duration_text(round(self.seconds_left))} left"
        return said


OnProgress: TypeAlias = Callable[[Progress], object]
"""Is called after each look."""


@dataclass
class Pace:
    """Measures the rate at which jobs of a run end, from look to look."""

    looks: list[tuple[float, int]] = field(default_factory=list)

    def progress(self, run: Run, at: float) -> Progress:
        """How far a run is.

        Args:
            run: what was found.
            at: when, on a clock that goes on evenly, in seconds.
        """
        ended = run.ended + run.dead
        self.looks.append((at, ended))
        older = [look for look in self.looks if look[0] <= at - SMOOTHED]
        self.looks = older[-1:] + self.looks[len(older) :]
        since, before = self.looks[0]
        rate = (ended - before) / (at - since) if at > since else None
        left = run.live / rate if rate and run.live else None
        return Progress(run.name, run.jobs, run.ended, run.dead, run.running, run.waiting, rate, left)


class ProgressLine:
    """Writes the progress to a stream."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._told = float("-inf")
        self._last = ""
        self._shown = ""

    def __call__(self, progress: Progress) -> None:
        """Show a look."""
        said = str(progress)
        if self._is_terminal:
            self._stream.write(f"\r{said}{' ' * (len(self._last) - len(said))}")
            self._stream.flush()
        elif self._clock() - self._told >= EVERY:
            self._told = self._clock()
            self._write(said)
        self._last = said

    def close(self) -> None:
        """End the line; where there is no terminal, write the last look, unless its line was written."""
        if self._is_terminal and self._last:
            self._stream.write("\n")
            self._stream.flush()
        elif self._last != self._shown:
            self._write(self._last)

    def _write(self, said: str) -> None:
        self._stream.write(f"{said}\n")
        self._stream.flush()
        self._shown = said

"""What a worker measures of its jobs, for the time series.

It is told of batches, as observers are, and counts batch by batch: most are of one queue and one task
(:mod:`pgqueue.app.hooks.observer`). A minute is one of the database's clock, whose offset from this process's the worker asks for.
What is gathered is written by :class:`pgqueue.worker.series.SeriesWriter` when its minute is over, so a worker that dies loses
its last minute.
"""

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, assert_never

from pgqueue.app.hooks.observer import Observer, claimed_parts, ended_parts
from pgqueue.values.insight.series import COUNTS
from pgqueue.values.insight.sketch import count_times, count_waits, merge
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Unknown, Verdict, Waits

PAIRS = 200
"""Pairs of queue and task that are told apart in one minute; the others are counted together."""
KEPT = 5_000
"""Minutes of pairs that wait to be written. While there are more, what was enqueued in earlier minutes is kept by the hour,
and what cannot be written is dropped."""
LONGEST_NAME = 500
"""Characters of a queue's or task's name; jobs with a longer one are counted with those beyond the bound."""
MINUTE = 60
HOUR = 60
"""Minutes."""

Key: TypeAlias = tuple[int, str | None, str | None]
"""A minute since 1970, a queue and a task; no queue and no task: those beyond the bound."""

NOT_RUN = frozenset({"expired", "unknown"})
"""Reasons of a death before an attempt."""


class MinuteTally:
    """What was counted of one queue and task in one minute."""

    __slots__ = ("counts", "runs", "waits")

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.waits: dict[int, int] = {}
        self.runs: dict[int, int] = {}

    def row(self, key: Key) -> dict[str, Any]:
        """The row of ``series_written``."""
        minute, queue, task = key
        at = datetime.fromtimestamp(minute * MINUTE, UTC).isoformat()
        waits, runs = sorted(self.waits.items()), sorted(self.runs.items())
        return {
            "at": at,
            "queue": queue,
            "task": task,
            **{name: self.counts[name] for name in COUNTS},
            "wait_bins": [bin_ for bin_, _ in waits],
            "wait_counts": [count for _, count in waits],
            "run_bins": [bin_ for bin_, _ in runs],
            "run_counts": [count for _, count in runs],
        }


class Measures(Observer):
    """Counts what happens to the jobs of one worker, until it is taken to be written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[Key, MinuteTally] = {}
        self._pairs = Counter[int]()
        # The clock of this process, until set_clock() is called.
        self._offset = time.time() - time.monotonic()

    def set_clock(self, now: datetime, asked: float, answered: float) -> None:
        """Go by the database's clock.

        Args:
            now: its time.
            asked: when it was asked for, in seconds of the monotonic clock.
            answered: when the answer was there.
        """
        self._offset = now.timestamp() - (asked + answered) / 2

    @property
    def left(self) -> float:
        """How many seconds of the present minute are left, on the database's clock."""
        return MINUTE - (time.monotonic() + self._offset) % MINUTE

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Count jobs that were claimed, how long they were due, and when they were enqueued."""
        now = time.monotonic() + self._offset
        minute = int(now // MINUTE)
        with self._lock:
            for queue, task, some, due in claimed_parts(claims):
                tally = self._tally(minute, queue, task)
                tally.counts["started"] += len(some)
                count_waits(tally.waits, due, now)
                first = [one.created_at_epoch for one in some if one.attempt == 1]
                self._count_enqueued(first, minute, queue, task, 1)

    def ended(self, verdicts: Sequence[Verdict]) -> None:
        """Count what became of attempts, and how long they ran."""
        minute = self._minute()
        with self._lock:
            for queue, task, some, succeeded in ended_parts(verdicts):
                tally = self._tally(minute, queue, task)
                if len(succeeded) == len(some):  # most often
                    tally.counts["succeeded"] += len(some)
                    count_times(tally.runs, succeeded)
                else:
                    _count(tally, some)
                    back = [one.claim for one in some if not one.spends]
                    first = [claim.created_at_epoch for claim in back if claim.attempt == 1]
                    self._count_enqueued(first, minute, queue, task, -1)  # the next claim is its first again

    def reclaimed(self, verdicts: Sequence[Verdict]) -> None:
        """Count attempts of lost workers, and what becomes of their jobs."""
        minute = self._minute()
        with self._lock:
            for queue, task, some, _ in ended_parts(verdicts):
                tally = self._tally(minute, queue, task)
                tally.counts["reclaimed"] += len(some)
                _count(tally, some, ran=False)

    def take(self, *, everything: bool = False) -> dict[Key, MinuteTally]:
        """Hand over what is to be written: of minutes that are over, or all of it."""
        minute = self._minute()
        with self._lock:
            taken = {key: tally for key, tally in self._tallies.items() if everything or key[0] < minute}
            for key in taken:
                del self._tallies[key]
            self._pairs = Counter({minute: self._pairs[minute]})
        return taken

    def put_back(self, tallies: Mapping[Key, MinuteTally]) -> int:
        """Keep what could not be written, as far as there is room; returns how many rows were dropped."""
        with self._lock:
            room = max(0, KEPT - len(self._tallies))
            newest = sorted(tallies, key=lambda key: -key[0])
            for key in newest[:room]:
                if key in self._tallies:
                    _add(tallies[key], self._tallies[key])
                self._tallies[key] = tallies[key]
        return max(0, len(newest) - room)

    def _minute(self) -> int:
        return int((time.monotonic() + self._offset) // MINUTE)

    def _count_enqueued(
        self, created: list[float], now: int, queue: str | None, task: str | None, step: int
    ) -> None:
        created.sort()
        end = len(created)
        while end:
            minute = min(int(created[end - 1] // MINUTE), now)
            start = 0
            if minute > 0:
                start = min(bisect_left(created, minute * MINUTE, 0, end), end - 1)
            kept = minute if len(self._tallies) < KEPT else minute - minute % HOUR
            self._tally(max(kept, 0), queue, task).counts["enqueued"] += step * (end - start)
            end = start

    def _tally(self, minute: int, queue: str | None, task: str | None) -> MinuteTally:
        found = self._tallies.get((minute, queue, task))
        if found is not None:
            return found
        key: Key = minute, queue, task
        if self._pairs[minute] >= PAIRS or max(len(queue or ""), len(task or "")) > LONGEST_NAME:
            key = minute, None, None
        if key not in self._tallies:
            self._pairs[minute] += 1
            self._tallies[key] = MinuteTally()
        return self._tallies[key]


def _count(tally: MinuteTally, verdicts: Sequence[Verdict], *, ran: bool = True) -> None:
    """Count verdicts of any kinds; without ``ran`` it is not known how long the attempts ran."""
    counts, times = tally.counts, list[float]()
    for verdict in verdicts:
        match verdict:
            case Succeeded(seconds=seconds):
                counts["succeeded"] += 1
                times.append(seconds)
            case Again():
                counts["failed"] += 1
                counts["retried"] += 1
            case Died(reason=reason, seconds=seconds):
                counts["dead"] += 1
                counts["expired"] += reason == "expired"
                counts["failed"] += reason not in NOT_RUN
                if ran and seconds is not None:
                    times.append(seconds)
            case Cancelled():
                counts["cancelled"] += 1
            case Returned() | Unknown() | Waits():
                pass  # the attempt is not counted
            case _:
                assert_never(verdict)
    count_times(tally.runs, sorted(times))


def _add(tally: MinuteTally, other: MinuteTally) -> None:
    tally.counts.update(other.counts)
    merge(tally.waits, other.waits, other.waits.values())
    merge(tally.runs, other.runs, other.runs.values())

"""The log of a run: what happened, as lines in files outside of the queue, and what is read of it while it grows.

The lines are the events of :mod:`pgqueue.chaos.history.events`. The files are outside of the database, so they remain what they
are when the database forgets. Each process has a file of its own, and each line is written by one call of the system: what was
written before a process is killed is in the file. Times are those of the system's monotonic clock, which all processes of a
machine share and no fault changes.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, assert_never

import msgspec

from pgqueue.app.hooks.observer import Observer
from pgqueue.chaos.history.events import (
    Claimed,
    Ended,
    EndState,
    Enqueued,
    Event,
    JobName,
    LiveState,
    Reclaimed,
    Started,
    events_of,
    line_of,
)
from pgqueue.chaos.kinds import TICK, is_step, name_of
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Returned, Succeeded, Unknown, Verdict, Waits

FOLDER = "CHAOS_LOG"
"""The setting that tells a process where to write."""
ENDING = ".jsonl"
WORKER = "worker"
"""What the names of the workers' files begin with."""
_NAME = re.compile(r"-(\d+)[.]jsonl$")
LOOK_EVERY = 0.05
"""Seconds between two looks at the log."""


class HistoryLog:
    """Appends events to a file. Each call is one write at the file's end, so lines of other processes are never split.

    It is safe to use in many threads, and after a fork. Nothing is kept in memory: what was written stays if the process is
    killed.
    """

    __slots__ = ("_file",)

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, *events: Event) -> None:
        """Append events with one write.

        Raises:
            OSError: the disk is full, or another error of the system; a part of a line may be in the file.
        """
        left = b"".join(map(line_of, events))
        while left:
            written = os.write(self._file, left)
            if written < len(left):  # the disk is full: the next line of any process begins on its own
                left = b"\n" + left[left.rfind(b"\n", 0, written) + 1 :]
            else:
                break


def log_of_process(folder: Path, name: str) -> HistoryLog:
    """This process's own file.

    Args:
        folder: where; another process reads it there.
        name: what the file's name begins with.
    """
    return HistoryLog(path_of(folder, name, os.getpid()))


def path_of(folder: Path, name: str, process: int) -> Path:
    """The file of a process; it is there once the process has written."""
    return folder / f"{name}-{process}{ENDING}"


class LogLine(NamedTuple):
    """An event, and the id of the process that wrote it."""

    event: Event
    process: int


class Tail:
    """Reads what was added to the files of a folder since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def news(self) -> Iterator[LogLine]:
        """The new lines of each file in their order; the files one after the other."""
        for path in sorted(self._folder.glob(f"*{ENDING}")):
            if path.stat().st_size > self._read.get(path, 0):
                yield from self._news_of(path)

    def _news_of(self, path: Path) -> Iterator[LogLine]:
        named = _NAME.search(path.name)
        process = int(named[1]) if named else 0
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    return  # the rest of it comes later, or its writer was killed
                self._read[path] = self._read.get(path, 0) + len(line)
                for event in events_of([line])[0]:  # none of a line that a full disk has torn
                    yield LogLine(event, process)


class LogWatch:
    """Follows the log. Used from one thread.

    Attributes:
        enqueued: how many jobs were enqueued, as far as their enqueuers know.
        ended: how many jobs have succeeded or are dead.
    """

    def __init__(self, folder: Path) -> None:
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


class _JobName(msgspec.Struct):
    name: str | None = None


class HistoryWriter(Observer):
    """Writes what it is told of."""

    def __init__(self, log: Callable[[], HistoryLog]) -> None:
        """The log is made when the first line is written."""
        self._log = log
        self._decoder = msgspec.json.Decoder(_JobName)

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Claims, after the database has answered."""
        at = time.monotonic()
        self._log().write(
            *(Claimed(**_attempt(at, one, name), most=one.max_attempts) for one, name in self._named(claims))
        )

    def ended(self, verdicts: Sequence[Verdict]) -> None:
        """Verdicts, after the database has recorded them."""
        at = time.monotonic()
        states = {id(one.claim): _state(one) for one in verdicts}
        self._log().write(
            *(
                Ended(**_attempt(at, one, name), state=states[id(one)], spent=states[id(one)] != "ready")
                for one, name in self._named([one.claim for one in verdicts])
            )
        )

    def lost(self, claims: Sequence[Claim]) -> None:
        """Attempts whose verdicts are refused."""
        at = time.monotonic()
        self._log().write(
            *(Ended(**_attempt(at, one, name), state=None) for one, name in self._named(claims))
        )

    def reclaimed(self, verdicts: Sequence[Verdict]) -> None:
        """Jobs of lost workers that this one has taken over. Only their ids are known here."""
        at = time.monotonic()
        self._log().write(
            *(Reclaimed(**_attempt(at, one.claim, one.claim.id), state=_state(one)) for one in verdicts)
        )

    def _named(self, claims: Iterable[Claim]) -> Iterable[tuple[Claim, str]]:
        for claim in claims:
            if claim.task == TICK:
                yield claim, name_of(TICK, claim.id)
            elif (name := self._decoder.decode(claim.args or "{}").name) is not None:
                yield claim, name


def observer(log: Callable[[], HistoryLog]) -> HistoryWriter | None:
    """An observer, if this process is one that writes a log."""
    return HistoryWriter(log) if FOLDER in os.environ else None


def _attempt(at: float, claim: Claim, job: JobName) -> dict[str, Any]:
    worker, attempt, fence = str(claim.worker_id), claim.attempt, claim.fence
    return {"at": at, "job": job, "worker": worker, "attempt": attempt, "fence": fence}


def _state(verdict: Verdict) -> EndState | LiveState:
    match verdict:
        case Succeeded():
            return "succeeded"
        case Died():
            return "dead"
        case Cancelled():
            return "cancelled"
        case Again():
            return "scheduled"
        case Returned() | Unknown() | Waits():
            return "ready"
        case _:
            assert_never(verdict)

"""What is kept of the log of an attempt: its last lines, within bounds, and their JSON.

Of a stored log the number of the attempt can be read by SQL; the lines are encoded by the queue's codec.
"""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from pgqueue.values.jobs.job import Claim
from pgqueue.values.payloads.codec import Codec, JobPart, encoded_note, opened_value
from pgqueue.values.payloads.storable import UNREADABLE, storable_text

L = TypeVar("L")
MOST_LINES: Final = 200
"""Lines of an attempt that are kept: the last ones."""
MOST_BYTES: Final = 64 * 1024
"""Bytes of these lines, as JSON."""
LONGEST_LINE: Final = 2_000
"""Characters of a line, with its traceback; of the message the first ones are kept, of the traceback the last ones."""
LEAST_TRACE: Final = 600
"""Characters of a line that its traceback may have, however long the message is."""
KEPT_ATTEMPTS: Final = 20
"""Attempts of a job of which a log is kept: a later one takes the place of the one that many attempts before it."""


class LogLine(msgspec.Struct, frozen=True):
    """A line that an attempt logged.

    Attributes:
        at: when, by the worker's clock, in UTC.
        level: the name of its level, such as ``INFO``.
        logger: the name of its logger.
        text: the message, and the traceback of its error on the lines after it.
    """

    at: datetime
    level: str
    logger: str
    text: str


class AttemptLog(msgspec.Struct, frozen=True):
    """The last lines that an attempt of a job logged.

    Attributes:
        attempt: which attempt, from 1.
        written_at: when they were written, by the database's clock.
        lines: at most 200, the oldest first.
        left_out: how many lines before them were logged, and are not kept.
    """

    attempt: int
    written_at: datetime
    lines: tuple[LogLine, ...]
    left_out: int = 0


class StoredLog(msgspec.Struct, frozen=True):
    """The log of an attempt as it is to be stored.

    Attributes:
        claim: the attempt.
        value: the log as JSON.
    """

    claim: Claim
    value: str

    @property
    def name(self) -> str:
        """The name of its note."""
        return str(self.claim.attempt % KEPT_ATTEMPTS)


class RawLine(NamedTuple):
    """A line as it was logged, within its bound: secrets are in it.

    Attributes:
        seconds: when, in seconds since 1970.
        level: the name of its level.
        logger: the name of its logger.
        message: its beginning, at most :data:`LONGEST_LINE` characters.
        left_out: how many more characters it had.
        trace: the end of the traceback of its error, at most as many characters; empty: it has none.
        cut: whether more was before it.
    """

    seconds: float
    level: str
    logger: str
    message: str
    left_out: int
    trace: str
    cut: bool

    @classmethod
    def of(cls, seconds: float, level: str, logger: str, message: str, trace: str) -> "RawLine":
        """The line with this message and this traceback, within its bound."""
        longest = LONGEST_LINE - LEAST_TRACE if trace else LONGEST_LINE
        room = LONGEST_LINE - min(len(message), longest)
        left_out = max(0, len(message) - longest)
        return cls(seconds, level, logger, message[:longest], left_out, trace[-room:], len(trace) > room)

    @property
    def size(self) -> int:
        """Its characters."""
        return len(self.message) + len(self.trace)

    def encoded(self, hide: Callable[[str], str]) -> bytes:
        """The line as JSON, storable.

        Args:
            hide: removes secrets. It is given what was cut already, and hides the part of a secret at a cut, too.
        """
        text = hide(self.message)
        if self.left_out:
            text += f"… ({self.left_out:,} more characters)"
        if self.trace:
            text += f"\n{'…' * self.cut}{hide(self.trace)}"
        return msgspec.json.encode((self.seconds, *_origin(self.level, self.logger), storable_text(text)))


@lru_cache(maxsize=1_000)
def _origin(level: str, logger: str) -> tuple[str, str]:
    return storable_text(level[:40]), storable_text(logger[:200])


class LastLines(Generic[L]):
    """The last lines of a log within the bounds. Not safe to use from several threads.

    Attributes:
        lines: the lines, the oldest first.
        size: how many bytes they take, or characters.
        left_out: how many lines went for later ones.
    """

    def __init__(self, most: int) -> None:
        self.lines: deque[L] = deque()
        self._sizes: deque[int] = deque()
        self._most = most
        self.size = 0
        self.left_out = 0

    def add(self, line: L, size: int) -> None:
        """Keep a line of this size; the oldest ones go for it. The last line is kept in any case."""
        self.lines.append(line)
        self._sizes.append(size)
        self.size += size
        while len(self.lines) > MOST_LINES or (self.size > self._most and len(self.lines) > 1):
            self.lines.popleft()
            self.size -= self._sizes.popleft()
            self.left_out += 1


def encoded_log(codec: Codec | None, claim: Claim, lines: bytes, left_out: int) -> StoredLog:
    """The log of an attempt as it is to be stored.

    Args:
        codec: encodes the lines; None: nothing does.
        claim: the attempt.
        lines: as a JSON array.
        left_out: how many lines before them are not kept.

    Raises:
        PayloadNotEncodable: the codec failed.
    """
    stored = encoded_note(codec, claim, lines)
    value = b'{"attempt":%d,"left_out":%d,"lines":%b}' % (claim.attempt, left_out, stored)
    return StoredLog(claim, value.decode())


def opened_log(codec: Codec | None, value: str, at: datetime, part: JobPart) -> AttemptLog:
    """A stored log, decoded. Never raises: what cannot be read is one line that says why."""
    try:
        stored = msgspec.json.decode(value, type=_Stored)
        lines = opened_value(codec, stored.lines, part)
        if isinstance(lines, dict):
            return AttemptLog(stored.attempt, at, (_unreadable(at, str(lines.get(UNREADABLE, "encoded"))),))
        read = msgspec.convert(lines, list[tuple[float, str, str, str]])
        shown = tuple(LogLine(datetime.fromtimestamp(when, UTC), *words) for when, *words in read)
    except (msgspec.MsgspecError, ValueError, OverflowError, OSError, RecursionError) as error:
        return AttemptLog(0, at, (_unreadable(at, str(error)),))
    return AttemptLog(stored.attempt, at, shown, stored.left_out)


class _Stored(msgspec.Struct):
    attempt: int
    left_out: int
    lines: Any


def _unreadable(at: datetime, why: str) -> LogLine:
    return LogLine(at, "", "", f"the log cannot be read: {why}")

"""The lines that attempts log, on their way to the notes of their jobs; :class:`pgqueue.middleware.KeepLogs` collects them.

An attempt adds lines to its own :class:`LogBuffer`, within bounds, and waits for nothing. About once a second the worker takes
all buffers that have changed, and writes them. If that fails it tries again; the attempts never learn of it.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from pgqueue.app.logger import bounded_logger
from pgqueue.errors import PayloadNotDecodable, PayloadNotEncodable
from pgqueue.store.jobs.ending import AT_ONCE
from pgqueue.values.jobs.attempt_log import (
    MOST_BYTES,
    LastLines,
    RawLine,
    StoredLog,
    encoded_log,
)
from pgqueue.values.jobs.error_text import traceback_of
from pgqueue.values.jobs.job import Claim
from pgqueue.values.payloads.codec import Codec, args_text, logged_error
from pgqueue.values.payloads.storable import value_of

if TYPE_CHECKING:
    from pgqueue.values.redaction import Redaction
    from pgqueue.values.secret_forms import SecretForms

log = bounded_logger("pgqueue.task")

TRIES: Final = 10
"""How often the lines of an attempt are tried to be written."""
LEAST_BYTES: Final = 2_000
"""Bytes of lines that are kept for each job of a batch, however many jobs it has: all of them have the same lines."""
MOST_WAITING: Final = 64 * 1024 * 1024
"""Bytes of ended attempts that wait to be written. The lines of those that end when there are more are dropped, and counted."""
OF_A_BUFFER: Final = 1_000
"""Bytes that a buffer takes besides its lines, about."""


class LogBuffer:
    """The last lines that one attempt has logged, for each of its jobs. Lines may be added in any thread.

    Most lines of a long log go for later ones before they are written. So they are kept as they were logged, and secrets are
    removed when they are to be written.

    Attributes:
        counted: how many of the bytes that wait are its own.
    """

    def __init__(self, claims: Sequence[Claim], waiting: "WaitingLogs") -> None:
        """Made by :meth:`WaitingLogs.begin`."""
        self._claims = claims
        self._waiting = waiting
        self._most = max(MOST_BYTES // len(claims), LEAST_BYTES)
        self._news = LastLines[RawLine](self._most)
        self._kept = LastLines[bytes](self._most)
        self._lock = threading.Lock()
        self._open = True
        self._changed = False
        self._tries = 0
        self.counted = 0

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        return self._news.size + self._kept.size + OF_A_BUFFER

    def add(self, record: logging.LogRecord) -> None:
        """Keep the line of a record; after :meth:`close` nothing is kept."""
        if self._is_news(_raw_line(record)):
            self._waiting.changed(self)

    def _is_news(self, line: RawLine) -> bool:
        """Keep a line; whether it is the first one since the log was written."""
        with self._lock:
            if not self._open:
                return False
            self._news.add(line, line.size)
            known, self._changed = self._changed, True
        return not known

    def close(self) -> None:
        """The attempt has ended: keep no more lines."""
        with self._lock:
            self._open = False
        if self._changed:
            self._waiting.ended(self)

    def stored(self) -> Iterator[StoredLog]:
        """The log of each job as it is to be stored, without secrets; what is added from now on is news. For one thread at a time."""
        with self._lock:
            self._changed = False
            news, self._news = self._news, LastLines(self._most)
        for one in news.lines:
            line = one.encoded(self._hide)
            self._kept.add(line, len(line))
        self._kept.left_out += news.left_out
        lines = b"[%b]" % b",".join(self._kept.lines)
        for claim in self._claims:
            if (made := self._waiting.encoded(claim, lines, self._kept.left_out)) is not None:
                yield made

    def again(self) -> bool:
        """It was not written: whether to try again. With later lines it is tried again in any case."""
        self._tries += 1
        if self._tries >= TRIES:
            return False
        with self._lock:
            known, self._changed = self._changed, True
        return not known

    def _hide(self, text: str) -> str:
        return self._waiting.redaction.text(text, self._secrets) or ""

    @cached_property
    def _secrets(self) -> "SecretForms":
        values = []
        for claim in self._claims:
            try:
                codec = self._waiting.codec
                values.append(value_of(claim.args if codec is None else args_text(codec, claim)))
                values.append(None if claim.meta is None else value_of(claim.meta))
            except (PayloadNotDecodable, msgspec.MsgspecError):
                pass  # the attempt cannot read them, either
        return self._waiting.redaction.secrets_in(*values)


def _raw_line(record: logging.LogRecord) -> RawLine:
    try:
        message = record.getMessage()
    except Exception as error:  # noqa: BLE001 - the arguments may be of any class
        message = f"{record.msg!s:.500} (the arguments of this line cannot be shown: {type(error).__name__})"
    trace = ""
    if record.exc_info and record.exc_info[1] is not None:
        trace = (record.exc_text or traceback_of(record.exc_info[1])).rstrip("\n")
    return RawLine.of(record.created, record.levelname, record.name, message, trace)


class WaitingLogs:
    """The logs of one worker's attempts that have lines which are not written yet. Safe to use from any thread.

    Attributes:
        codec: encodes the lines; None: nothing does.
    """

    def __init__(self, codec: Codec | None, redaction: "Callable[[], Redaction]") -> None:
        """``redaction`` is called when the first line is kept."""
        self.codec = codec
        self._make_redaction = redaction
        self._changed: dict[LogBuffer, None] = {}
        self._bytes = 0
        self._dropped = 0
        self._lock = threading.Lock()

    @cached_property
    def redaction(self) -> "Redaction":
        """Hides secrets."""
        return self._make_redaction()

    def begin(self, claims: Sequence[Claim]) -> LogBuffer:
        """A buffer for an attempt of these jobs."""
        return LogBuffer(claims, self)

    def changed(self, one: LogBuffer) -> None:
        """Have the lines of an attempt written."""
        with self._lock:
            self._changed[one] = None

    def ended(self, one: LogBuffer) -> None:
        """Keep the lines of an attempt that has ended until they are written, if not too many wait."""
        with self._lock:
            if one not in self._changed:
                return
            if self._bytes + one.size <= MOST_WAITING:
                self._bytes += one.size
                one.counted += one.size
            else:
                del self._changed[one]
                self._dropped += 1

    def portions(self) -> int:
        """How many times :meth:`writing` gives something, if nothing changes meanwhile."""
        return -(-len(self._changed) // AT_ONCE)

    @contextmanager
    def writing(self) -> Iterator["LogPortion"]:
        """Logs that have changed, to be written within the block: those of up to 1,000 attempts.

        After an error they are kept for another try, ``TRIES`` times at most: one that the database never takes must not hold back
        those of other jobs.
        """
        with self._lock:
            taken = list(islice(self._changed, AT_ONCE))
            for one in taken:
                del self._changed[one]
                self._bytes -= one.counted
                one.counted = 0
            dropped, self._dropped = self._dropped, 0
        if dropped:
            log.warning(
                "the log lines of attempts were not kept: attempts log more than the database takes",
                extra={"attempts": dropped},
            )
        try:
            yield LogPortion(taken)
        except BaseException:
            with self._lock:
                for one in taken:
                    if one.again():
                        self._changed[one] = None
                        self._bytes += one.size
                        one.counted = one.size
            raise

    def encoded(self, claim: Claim, lines: bytes, left_out: int) -> StoredLog | None:
        """The log of a job as it is to be stored; None: the codec failed, which is logged."""
        try:
            return encoded_log(self.codec, claim, lines, left_out)
        except PayloadNotEncodable as error:
            words = logged_error(self.codec, error)
            log.warning("log lines not kept: %s", words, extra={"job": claim.id, "task": claim.task})
            return None


class LogPortion:
    """Logs that are about to be written."""

    def __init__(self, taken: Sequence[LogBuffer]) -> None:
        self._taken = taken

    def stored(self) -> list[StoredLog]:
        """As they are to be stored. It takes a while for many long lines, so not in an event loop."""
        return [made for one in self._taken for made in one.stored()]

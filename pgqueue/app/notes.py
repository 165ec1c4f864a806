"""What one attempt notes for later attempts of its job: the results of steps, a checkpoint, and its progress.

All that is noted is read in one statement when the attempt first asks. A note is written under the fence, as soon as there
is something to note: an attempt that no longer holds its job raises ``Superseded``, and nothing is noted.

A process that dies between the end of a step's function and its note has done the step without noting it: a later attempt
runs it again. What happens with an attempt that fails is decided by the worker, as without steps.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from pgqueue.app.logger import bounded_logger
from pgqueue.errors import (
    ConfigurationError,
    InvalidOption,
    PayloadNotDecodable,
    PayloadNotEncodable,
    PayloadTooLarge,
    Superseded,
)
from pgqueue.store.connections.database import Database
from pgqueue.store.jobs import notes
from pgqueue.store.jobs.notes import NoteKey, StoredProgress
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.note import Progress, ProgressReport, StoredReport, check_step, encoded_report
from pgqueue.values.payloads.codec import Codec, encoded_note, logged_error, note_text, opened_value
from pgqueue.values.payloads.result import ReturnType, returned_by
from pgqueue.values.payloads.signature import encode_plain
from pgqueue.values.payloads.storable import UNREADABLE, value_of

CHECKPOINT: NoteKey = ("checkpoint", "")


class NoteHost(Protocol):
    """Where notes are kept.

    Attributes:
        database: where the job is.
        codec: encodes and decodes notes.
        max_payload: the most bytes of a note as JSON.
    """

    database: Database
    codec: Codec | None
    max_payload: int


class RunningStep(NamedTuple):
    """A step that is being run.

    Attributes:
        name: its name.
        returns: what its function returns.
    """

    name: str
    returns: ReturnType

    @property
    def key(self) -> NoteKey:
        """Where its result is noted."""
        return "step", self.name

    def read(self, text: str) -> Any:  # noqa: ANN401 - as annotated
        """A stored result, as the function's annotation says."""
        try:
            return self.returns.decode(text)
        except PayloadNotDecodable as error:
            raise PayloadNotDecodable(
                f"step {self.name!r}: the stored result does not fit the function: {error}"
            ) from error


class Notes:
    """The steps and the checkpoint of one attempt. Safe to use from several threads, or several asyncio tasks."""

    def __init__(self, claim: Claim, keeps: NoteHost, superseded: Callable[[str], Superseded]) -> None:
        """``superseded`` notes that the attempt no longer holds its job, and makes the error that says what was not done."""
        self._claim = claim
        self._keeps = keeps
        self._superseded = superseded
        self._known: dict[NoteKey, str | None] | None = None
        self._names: set[str] = set()
        self._last: ReturnType | None = None
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - as annotated
        """Run a step, or return the result that is noted; see :meth:`pgqueue.Context.step`."""
        with self._begin_step(name, function) as step:
            if (text := self._recall(step.key)) is not None:
                return step.read(text)
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                raise _not_awaited(step, value)
            stored, result = self._prepare(step, value)
            self._keep(step.key, stored)
            return result

    async def astep(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - as annotated
        """As :meth:`step`, awaited; the function may be an ``async def``, too."""
        with self._begin_step(name, function) as step:
            if (text := await self._arecall(step.key)) is not None:
                return step.read(text)
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            stored, result = self._prepare(step, value)
            await self._akeep(step.key, stored)
            return result

    def checkpoint(self, value: object) -> None:
        """Note a value in place of the former checkpoint."""
        self._keep(CHECKPOINT, self._encoded("checkpoint", self._checkpoint(value)))

    async def acheckpoint(self, value: object) -> None:
        """As :meth:`checkpoint`, awaited."""
        await self._akeep(CHECKPOINT, self._encoded("checkpoint", self._checkpoint(value)))

    def last_checkpoint(self) -> Any:  # noqa: ANN401 - any JSON
        """The last checkpoint of the job; None: there is none."""
        text = self._recall(CHECKPOINT)
        return None if text is None else value_of(text)

    async def alast_checkpoint(self) -> Any:  # noqa: ANN401 - any JSON
        """As :meth:`last_checkpoint`, awaited."""
        text = await self._arecall(CHECKPOINT)
        return None if text is None else value_of(text)

    @contextmanager
    def _begin_step(self, name: str, function: Callable[..., Any]) -> Iterator[RunningStep]:
        """Take the name. A step that raises frees it, so that the attempt can try it again."""
        check_step(name)
        if not callable(function):
            raise InvalidOption(
                f"step {name!r}: {function!r:.80} is no function; give the arguments behind it"
            )
        with self._lock:
            if name in self._names:
                raise InvalidOption(
                    f"step {name!r} is run twice in one attempt; give each its own name, in a loop such as "
                    'f"page {number}"'
                )
            self._names.add(name)
        try:
            yield RunningStep(name, self._returned_by(name, function))
        except BaseException:
            self._names.discard(name)
            raise

    def _returned_by(self, name: str, function: Callable[..., Any]) -> ReturnType:
        returns = returned_by(function, self._last)
        if returns is not self._last:
            try:
                returns.require_readable()
            except ConfigurationError as error:  # before it is called: what it does might not be undone
                raise ConfigurationError(f"step {name!r} was not run: {error}") from error
            self._last = returns
        return returns

    def _recall(self, key: NoteKey) -> str | None:
        """Return the note as JSON; None: there is none."""
        with self._lock:
            if self._known is None:
                self._known = self._keeps.database.run(notes.recall(self._claim.id))
        if key not in self._known:
            return None
        text = self._known[key]
        return self._decode(text or self._keeps.database.run(notes.recall_long(self._claim.id, key)))

    async def _arecall(self, key: NoteKey) -> str | None:
        async with self._turn:
            if self._known is None:
                self._known = await self._keeps.database.arun(notes.recall(self._claim.id))
        if key not in self._known:
            return None
        text = self._known[key]
        return self._decode(text or await self._keeps.database.arun(notes.recall_long(self._claim.id, key)))

    def _decode(self, text: str | None) -> str | None:
        return None if text is None else note_text(self._keeps.codec, self._claim, text)

    def _keep(self, key: NoteKey, stored: str) -> None:
        kept = self._keeps.database.run(notes.keep(self._claim, key, stored))
        self._require(key, kept=kept)

    async def _akeep(self, key: NoteKey, stored: str) -> None:
        kept = await self._keeps.database.arun(notes.keep(self._claim, key, stored))
        self._require(key, kept=kept)

    def _require(self, key: NoteKey, *, kept: bool) -> None:
        if not kept:
            raise self._superseded(f"{_describe_key(key)} was not recorded")
        if key == CHECKPOINT and self._known is not None:
            self._known[key] = None  # to be asked for: its transaction may yet be rolled back

    def _prepare(self, step: RunningStep, value: object) -> tuple[str, Any]:
        """Return a result as it is to be stored, and as this attempt and later ones get it."""
        what = _describe_key(step.key)
        data = self._json(f"the result of {what}", partial(step.returns.encode, value))
        try:
            result = step.returns.decode(data)
        except PayloadNotDecodable as error:
            raise PayloadNotEncodable(
                f"the result of {what} cannot be recorded: it could not be read back: {error}"
            ) from error
        return self._encoded(f"the result of {what}", data), result

    def _checkpoint(self, value: object) -> str:
        return self._json("checkpoint", partial(encode_plain, value, "checkpoint"))

    def _json(self, what: str, encode: Callable[[], bytes | None]) -> str:
        try:
            data = encode() or b"null"
        except PayloadNotEncodable as error:
            raise PayloadNotEncodable(f"{what} cannot be recorded: {error}") from error
        if len(data) > self._keeps.max_payload:
            raise PayloadTooLarge(
                f"{what} cannot be recorded: it takes {len(data):,} bytes as JSON, over the limit of "
                f"{self._keeps.max_payload:,}; store it elsewhere and record a reference, or raise PgQueue(max_payload=...)"
            )
        return data.decode()

    def _encoded(self, what: str, data: str) -> str:
        try:
            return encoded_note(self._keeps.codec, self._claim, data.encode()).decode()
        except PayloadNotEncodable as error:
            raise PayloadNotEncodable(f"{what} cannot be recorded: {error}") from error


def _describe_key(key: NoteKey) -> str:
    kind, name = key
    return f"step {name!r}" if kind == "step" else kind


def _not_awaited(step: RunningStep, value: Awaitable[Any]) -> InvalidOption:
    if inspect.iscoroutine(value):
        value.close()
    return InvalidOption(
        f"step {step.name!r}: its function must be awaited; in an async def task: await ctx.astep(...)"
    )


log = bounded_logger("pgqueue.task")


TRIES = 10
"""How often a report is tried to be written."""


class _Kept(NamedTuple):
    claim: Claim
    report: ProgressReport
    tries: int = 1


class Board:
    """The reports of one worker or take that are not written yet. Safe to use from any thread."""

    def __init__(self, codec: Codec | None) -> None:
        self._codec = codec
        self._newest: dict[int, _Kept] = {}
        self._lock = threading.Lock()

    def put(self, claim: Claim, report: ProgressReport) -> None:
        """Keep a report in place of the job's former one."""
        with self._lock:
            self._newest[claim.id] = _Kept(claim, report)

    def take(self) -> list[StoredReport]:
        """All reports, as they are to be written; none is left."""
        with self.writing() as reports:
            return reports

    @contextmanager
    def writing(self) -> Iterator[list[StoredReport]]:
        """All reports, to be written within the block. After an error they are kept for another try, unless a newer one has come.

        Each is tried ``TRIES`` times at most: one that the database never takes must not hold back those of other jobs.
        """
        with self._lock:
            taken, self._newest = self._newest, {}
        try:
            yield [self._stored(one.claim, one.report) for one in taken.values()]
        except BaseException:
            with self._lock:
                again = {
                    job: one._replace(tries=one.tries + 1) for job, one in taken.items() if one.tries < TRIES
                }
                self._newest = again | self._newest
            raise

    def _stored(self, claim: Claim, report: ProgressReport) -> StoredReport:
        try:
            return StoredReport(claim, encoded_report(self._codec, claim, report))
        except PayloadNotEncodable as error:
            words = logged_error(self._codec, error)
            log.warning("progress message not kept: %s", words, extra={"job": claim.id, "task": claim.task})
            return StoredReport(claim, encoded_report(None, claim, ProgressReport(report.done, report.total)))


def opened_progress(codec: Codec | None, noted: StoredProgress | None) -> Progress | None:
    """The progress of a job, with its message decoded; what cannot be decoded is shown as unreadable, with the reason."""
    if noted is None:
        return None
    message = opened_value(codec, noted.progress.message, noted.part)
    if isinstance(message, dict):
        message = str(message.get(UNREADABLE, "(encoded)"))
    return msgspec.structs.replace(noted.progress, message=message)

"""Where arguments, results, notes and errors become what is stored, and come back: the one place to encrypt or to redact them.

How a task's types become JSON is decided in :mod:`pgqueue.values.payloads.signature` and :mod:`pgqueue.values.payloads.result`; this file begins
and ends with that JSON. Without a :class:`Codec` it is stored as it is.

What a codec encodes is stored in an envelope. Arguments, results and notes are ``{"$encoded": "<text>"}``; they stay JSON that
every column and every reader of the tables admits. An error keeps its attempt, type and time; its message and traceback
are in ``encoded``. What is in no envelope was stored without a codec, and is read as it is. So encoded and plain
jobs can be mixed, and a codec can be added to a queue that has jobs.

What is shown of a value that cannot be decoded is as for one that Python cannot read: :mod:`pgqueue.values.payloads.storable`.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import msgspec

from pgqueue.errors import InvalidOption, PayloadNotDecodable, PayloadNotEncodable
from pgqueue.values.jobs.error_text import text_of
from pgqueue.values.jobs.job import AttemptError, Claim, Job, NewJob
from pgqueue.values.jobs.options import check_key, check_text
from pgqueue.values.jobs.verdict import Verdict
from pgqueue.values.limits.task_limits import encoded_lane
from pgqueue.values.payloads.storable import (
    SHOWN,
    UNREADABLE,
    object_of,
    refuse_unstorable,
    storable_json,
    value_of,
)

ENVELOPE: Final = "$encoded"
"""The one key of an encoded value."""
ENCODED: Final = "(encoded)"
"""The message of an encoded error, as it is shown without the codec."""
LONGEST_ERROR = 64_000
"""Characters of an encoded error; a longer one is not kept, since the database might refuse it for ever."""


Kind: TypeAlias = Literal["args", "result", "note", "error", "signal"]


class JobPart(msgspec.Struct, frozen=True):
    """What a codec is given: a part of a job, and of which job.

    Attributes:
        kind: the job's arguments, its result, one error, or a note: the result of a step, a checkpoint, or the message of
            its progress; or the payload of a signal. All are JSON; arguments and errors are objects, and an error has
            ``message`` and ``traceback``.
        task: the name of the job's task; empty for a signal, whose sender does not know it.
    """

    kind: Kind
    task: str
    _meta: str | bytes | dict[str, Any] | None = None

    @property
    def meta(self) -> dict[str, Any]:
        """What the enqueuer sent along with the job, in clear; empty: nothing."""
        if isinstance(self._meta, str | bytes):
            return object_of(self._meta)
        return self._meta or {}


SIGNAL: Final = JobPart("signal", "")


class Codec:
    """Encodes what is stored of jobs: subclass it, and override what it should do. As it is, it changes nothing.

    One object serves all threads of a process. A call holds up the event loop: do not wait in it. A codec that raises
    at an enqueue fails the enqueue; in a worker it ends only the job in question.

    Attributes:
        hides_errors: whether logs of workers and takes name only the class of an error that a task raised, and where it was
            raised; False: they have its message, too.
    """

    hides_errors: bool = False

    def encode(self, data: bytes, part: JobPart) -> str | bytes:  # noqa: ARG002 - for subclasses
        """What to store in place of this JSON.

        Args:
            data: JSON in UTF-8.
            part: what it is.

        Returns:
            A text that :meth:`decode` understands, which is stored in an envelope; or JSON of the same kind to be
            stored in clear, such as ``data`` itself or a redacted error.
        """
        return data

    def decode(self, text: str, part: JobPart) -> bytes:  # noqa: ARG002 - for subclasses
        """The JSON that was encoded as this text. Any program that can enqueue may have written the text: check it.

        Raises:
            PayloadNotDecodable: this codec encodes nothing, so another one did.
        """
        raise PayloadNotDecodable("it is encoded, and this queue's codec does not decode")

    def key(self, key: str) -> str:
        """What to store in place of a unique key, which may be made from arguments; equal keys must stay equal."""
        return key


def checked_codec(codec: object) -> Codec | None:
    """The codec of a queue.

    Raises:
        InvalidOption: it is a class or no codec at all.
    """
    if codec is None or isinstance(codec, Codec):
        return codec
    if isinstance(codec, type):
        raise InvalidOption(f"codec={codec.__name__}: it is a class; give an object, {codec.__name__}()")
    raise InvalidOption(f"codec={codec!r:.80}: it is no pgqueue.Codec; derive its class from that")


def encoded_job(codec: Codec, job: NewJob) -> NewJob:
    """A job as it is to be enqueued; what raises is as for :func:`encoded_args`."""
    args = encoded_args(codec, job.task, job.args, job.meta)
    lane = None if job.lane is None else encoded_lane(job.lane, codec.key)
    return msgspec.structs.replace(job, args=args, unique_key=encoded_key(codec, job.unique_key), lane=lane)


def encoded_args(codec: Codec, task: str, data: bytes, meta: bytes | None = None) -> bytes:
    """Arguments as they are to be enqueued.

    Raises:
        PayloadNotEncodable: the codec failed, or what it returned cannot be stored.
    """
    return _encode(codec, data, JobPart("args", task, meta))


def same_args(codec: Codec, stored: str, job: NewJob) -> bool:
    """Whether stored arguments are encoded and decode to those of this job, which are in clear. Never raises.

    A codec may encode the same arguments as another text each time. What is stored in clear is not the same: it is to be encoded.
    """
    try:
        text = _envelope.decode(stored).text
        return _decode_text(codec, text, JobPart("args", job.task, job.meta)).encode() == job.args
    except (msgspec.MsgspecError, ValueError, RecursionError, PayloadNotDecodable):
        return False


def encoded_key(codec: Codec | None, key: str | None) -> str | None:
    """A unique key as it is stored."""
    if codec is None or key is None:
        return key
    stored = codec.key(check_text("unique_key", key))
    check_key(stored)
    return stored


def encoded_result(codec: Codec, claim: Claim, data: bytes) -> bytes:
    """A result as it is to be recorded; what raises is as for :func:`encoded_args`."""
    return _encode(codec, data, JobPart("result", claim.task, claim.meta))


def encoded_note(codec: Codec | None, claim: Claim, data: bytes) -> bytes:
    """What an attempt notes, as it is to be stored; what raises is as for :func:`encoded_args`."""
    return data if codec is None else _encode(codec, data, JobPart("note", claim.task, claim.meta))


def encoded_payload(codec: Codec | None, data: bytes) -> bytes:
    """A signal's payload as it is to be stored; what raises is as for :func:`encoded_args`."""
    return data if codec is None else _encode(codec, data, SIGNAL)


def payload_text(codec: Codec | None, text: str) -> str:
    """A stored payload of a signal, as the JSON that its sender gave; what raises is as for :func:`args_text`."""
    return text if codec is None else _decode(codec, text, SIGNAL)


def with_encoded_errors(codec: Codec | None, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Verdicts as they are to be recorded. Never raises: an error that cannot be encoded is replaced by a text that says so."""
    return verdicts if codec is None else [_with_encoded_error(codec, verdict) for verdict in verdicts]


def error_text(error: AttemptError) -> str:
    """An error as the statements take it."""
    return msgspec.json.encode(error).decode()


def args_text(codec: Codec | None, claim: Claim) -> str:
    """The arguments of a claimed job, as the JSON that its enqueuer gave.

    Raises:
        PayloadNotDecodable: they are encoded, and cannot be decoded.
    """
    if codec is None:
        return claim.args
    return _decode(codec, claim.args, JobPart("args", claim.task, claim.meta))


def args_of(codec: Codec | None, claim: Claim) -> dict[str, Any]:
    """The arguments of a claimed job, as plain values.

    Raises:
        PayloadNotDecodable: they cannot be decoded, or Python cannot read them.
    """
    text = args_text(codec, claim)
    try:
        found: dict[str, Any] = json.loads(text)  # it reads more than msgspec does
    except (ValueError, RecursionError) as error:
        raise PayloadNotDecodable(f"{claim.task}: {error}") from error
    return found


def args_shown(codec: Codec | None, claim: Claim) -> dict[str, Any]:
    """The arguments of a claimed job, as a record shows them. Never raises."""
    return _readable(lambda: object_of(args_text(codec, claim)))  # type: ignore[no-any-return]  # objects, both


def result_text(codec: Codec | None, job: Job, text: str) -> str:
    """A stored result, as the JSON that the task returned; what raises is as for :func:`args_text`."""
    return text if codec is None else _decode(codec, text, JobPart("result", job.task, job.meta))


def node_result_text(codec: Codec | None, task: str, text: str, meta: str | None) -> str:
    """The stored result of another job of the same flow, as JSON; what raises is as for :func:`args_text`."""
    return text if codec is None else _decode(codec, text, JobPart("result", task, meta))


def kept_text(codec: Codec | None, task: str, text: str) -> str:
    """Values that a job keeps in its meta, encoded as arguments are, as JSON; what raises is as for :func:`args_text`."""
    return text if codec is None else _decode(codec, text, JobPart("args", task))


def note_text(codec: Codec | None, claim: Claim, text: str) -> str:
    """What an attempt noted, as JSON; what raises is as for :func:`args_text`."""
    return text if codec is None else _decode(codec, text, JobPart("note", claim.task, claim.meta))


def decode_job(codec: Codec | None, job: Job) -> Job:
    """A record with everything decoded; what cannot be decoded is shown as unreadable, with the reason."""
    if codec is None:
        return job
    return msgspec.structs.replace(
        job,
        args=opened_value(codec, job.args, JobPart("args", job.task, job.meta)),
        result=opened_value(codec, job.result, JobPart("result", job.task, job.meta)),
        errors=tuple(
            _opened_error(codec, error, JobPart("error", job.task, job.meta)) for error in job.errors
        ),
    )


def opened_value(codec: Codec | None, value: Any, part: JobPart) -> Any:  # noqa: ANN401 - any JSON
    """A stored value, decoded if it is an envelope. Never raises."""
    if codec is None or not isinstance(value, dict) or value.keys() != {ENVELOPE}:
        return value
    return _readable(lambda: value_of(_decode_text(codec, value[ENVELOPE], part)))


def opened_errors(codec: Codec | None, errors: object, part: JobPart) -> object:
    """The stored errors of a job as Django reads them, a list of objects, decoded if they are encoded. Never raises."""
    if codec is None or not isinstance(errors, list):
        return errors
    shown = list(errors)
    for place, error in enumerate(errors):
        if isinstance(error, dict) and isinstance(error.get("encoded"), str):
            found = _opened_error(codec, AttemptError(0, "", ENCODED, encoded=error["encoded"]), part)
            shown[place] = {**error, "message": found.message, "traceback": found.traceback}
    return shown


def _opened_error(codec: Codec, error: AttemptError, part: JobPart) -> AttemptError:
    if error.encoded is None:
        return error
    try:
        said = _said.decode(_decode_text(codec, error.encoded, part))
    except (PayloadNotDecodable, msgspec.MsgspecError) as failure:
        return msgspec.structs.replace(error, message=f"{ENCODED[:-1]}: {failure})")
    return msgspec.structs.replace(error, message=said.message, traceback=said.traceback, encoded=None)


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = msgspec.field(name=ENVELOPE)


class _ErrorText(msgspec.Struct, frozen=True):
    message: str
    traceback: str | None = None


_envelope = msgspec.json.Decoder(_Envelope)
_said = msgspec.json.Decoder(_ErrorText)


def _encode(codec: Codec, data: bytes, part: JobPart) -> bytes:
    stored = _encode_part(codec, data, part)
    if isinstance(stored, str):
        return msgspec.json.encode(_Envelope(stored))
    if part.kind == "args" and not stored.startswith(b"{"):
        raise PayloadNotEncodable(f"{part.task}: the codec returned arguments that are no JSON object")
    return stored


def _encode_part(codec: Codec, data: bytes, part: JobPart) -> str | bytes:
    try:
        stored = codec.encode(data, part)
        if isinstance(stored, str):
            return check_text("Codec.encode()", str(stored))
        if stored is not data:
            stored = storable_json(stored)
            refuse_unstorable(stored)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a codec may raise anything, as a task may
        raise PayloadNotEncodable(f"{part.task}: the codec failed to encode: {_cause(error)}") from error
    return stored


def _with_encoded_error(codec: Codec, verdict: Verdict) -> Verdict:
    claim, error = verdict.claim, getattr(verdict, "error", None)
    if error is None or not claim.task:  # without a task it is a lost claim, and the words are pgqueue's own
        return verdict
    encoded = _encoded_error(codec, error, JobPart("error", claim.task, claim.meta))
    return msgspec.structs.replace(verdict, error=encoded)


def _encoded_error(codec: Codec, error: AttemptError, part: JobPart) -> AttemptError:
    replaced = partial(msgspec.structs.replace, error)
    try:
        stored = _encode_part(codec, msgspec.json.encode(_ErrorText(error.message, error.traceback)), part)
        if not isinstance(stored, str):
            said = _said.decode(stored)
            return replaced(message=said.message, traceback=said.traceback)
    except (PayloadNotEncodable, msgspec.MsgspecError) as failure:
        kind = type(failure.__cause__ or failure).__name__  # not its message, which may quote the error
        return replaced(message=f"(not kept: the codec raised {kind})", traceback=None)
    if len(stored) > LONGEST_ERROR:
        return replaced(message=f"(not kept: encoded, it takes {len(stored):,} characters)", traceback=None)
    return replaced(message=ENCODED, traceback=None, encoded=stored)


def _decode(codec: Codec, stored: str, part: JobPart) -> str:
    if ENVELOPE not in stored:
        return stored
    try:
        text = _envelope.decode(stored).text
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return stored
    return _decode_text(codec, text, part)


def _decode_text(codec: Codec, text: str, part: JobPart) -> str:
    try:
        data = str(codec.decode(text, part), "utf-8")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a codec may raise anything, as a task may
        raise PayloadNotDecodable(f"{part.task}: the codec failed to decode: {_cause(error)}") from error
    if part.kind == "args" and not data.lstrip().startswith("{"):
        raise PayloadNotDecodable(f"{part.task}: the codec decoded arguments that are no JSON object")
    return data


def _cause(error: BaseException) -> str:
    said = text_of(error)
    if said and isinstance(error, PayloadNotDecodable | PayloadNotEncodable):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _readable(read: Callable[[], Any]) -> Any:  # noqa: ANN401 - any JSON
    try:
        return read()
    except PayloadNotDecodable as error:
        return {UNREADABLE: str(error)[:SHOWN]}


class HiddenError(Exception):
    """Stands in a log for an error whose message a codec hides."""


def logged_error(codec: Codec | None, error: BaseException | None) -> BaseException | None:
    """An error as it may be logged: itself, or one that names its class and has its traceback."""
    if error is None or codec is None or not codec.hides_errors:
        return error
    kind = type(error)
    words = f"{kind.__module__}.{kind.__qualname__} (the codec hides its message; the job's record has it)"
    return HiddenError(words).with_traceback(error.__traceback__)


def logged_undecodable(codec: Codec | None, error: PayloadNotDecodable) -> str:
    """Why arguments cannot be read, as it may be logged; a codec's own words, such as which key it lacks, are not hidden."""
    said_by_codec = isinstance(error.__cause__, PayloadNotDecodable)
    return str(error if said_by_codec else logged_error(codec, error))

"""JSON that PostgreSQL stores unchanged and Python reads back: the bounds on arguments, results and meta; and the readers.

A reader never fails: what Python cannot read is shown as its text.

``sql/schema/0001_09_enqueue.up.sql`` has the same bounds for jobs that are enqueued by SQL. :mod:`pgqueue.values.payloads.signature`
checks what a task's annotations allow.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pgqueue.errors import InvalidOption, PayloadNotEncodable
from pgqueue.values.jobs.job import ARGS_NOT_KEPT, AttemptError, Job

# find() searches the bytes: ``in`` takes 0.3 µs, because it first checks whether the other side is a number.
DEEPEST = 200
"""The most levels: Python's json module reads about 1,000, fewer where the stack is partly used."""

SURELY_STORABLE = 2 * DEEPEST
"""Bytes. JSON of at most this length has no more than 200 levels: each takes two."""
NUL = b"\\u0000"
"""What JSON with NUL in it contains; JSON without it may contain this, too, behind an escaped backslash."""
NULL = b"null"
"""What NaN and infinity become in JSON."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BEYOND_JSONB = re.compile(rb"[eE][+-]?[0-9]{5}|(?<![0-9])[0-9]{10001}")
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def refuse_unstorable(data: bytes) -> None:
    """Refuse JSON with NUL in it, or with more than 200 levels.

    Args:
        data: JSON as msgspec writes it: no escape stands for a printable character.

    Raises:
        PayloadNotEncodable: the JSON cannot be stored and read back.
    """
    if data.find(NUL) >= 0 and _NUL.search(data):
        raise PayloadNotEncodable("a string holds NUL (\\x00), which PostgreSQL cannot store")
    if len(data) > SURELY_STORABLE and data.count(b"[") + data.count(b"{") > DEEPEST and _is_too_deep(data):
        raise PayloadNotEncodable(
            f"it has more than {DEEPEST} levels of lists and objects; store it elsewhere and enqueue a reference"
        )


def refuse_non_finite(value: object) -> None:
    """Refuse NaN and infinity: JSON has neither, and they would be stored as null.

    Args:
        value: the encoded value, of JSON's types.

    Raises:
        PayloadNotEncodable: it contains one.
    """
    if _has_non_finite(value):
        raise PayloadNotEncodable("JSON has no NaN or infinity; send None or a string instead")


def storable_text(text: str) -> str:
    """The text without what PostgreSQL cannot store: NUL and lone surrogates are replaced."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()


def has_line_ends(data: bytes) -> bool:
    """Whether this JSON has line ends, which would end a row of COPY. Only parts encoded elsewhere have: msgspec escapes them."""
    return data.find(b"\n") >= 0 or data.find(b"\r") >= 0 or data.find(b"\t") >= 0


def storable_json(data: bytes) -> bytes:
    """JSON of which a part was encoded elsewhere (``msgspec.Raw``), written as msgspec writes it.

    Raises:
        PayloadNotEncodable: it holds a number that Python cannot read or jsonb cannot hold, or half a surrogate
            pair.
    """
    try:
        msgspec.json.decode(data)
        data = msgspec.json.format(data, indent=-1)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PayloadNotEncodable(f"its JSON cannot be read: {error}") from error
    if _BEYOND_JSONB.search(_STRING.sub(b"", data)):
        raise PayloadNotEncodable("it holds a number that jsonb cannot; write it as a string")
    return data


def _is_too_deep(data: bytes) -> bool:
    """Remove the innermost level DEEPEST times; return whether a level is left."""
    brackets = _STRING.sub(b"", data).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(DEEPEST):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _has_non_finite(value: object) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(_has_non_finite(item) for item in value.values())
        case list() | tuple() | set() | frozenset():
            return any(_has_non_finite(item) for item in value)
    return False


SCHEDULE, SCHEDULED_FOR = "pgqueue_schedule", "pgqueue_scheduled_for"
"""The keys that a schedule adds to the meta of its jobs: its name, and the tick. sql/schema/0001_15_schedules.up.sql adds them."""
COPY_OF = "pgqueue_copy_of"
"""The key in the meta of a copied job: the id of the job of which it is a copy."""
LARGEST = 8_192
"""Bytes of JSON. sql/schema/0001_09_enqueue.up.sql has the same bound, for jobs that are enqueued by SQL."""


def encode_meta(meta: Mapping[str, Any]) -> bytes:
    """The values as one JSON object.

    Raises:
        InvalidOption: the meta is not a mapping with strings as keys, has no JSON form that PostgreSQL stores, or takes
            more than :data:`LARGEST` bytes.
    """
    if not isinstance(meta, Mapping) or not all(isinstance(name, str) for name in meta):
        raise _refusal(meta, "use a dict with strings as keys")
    try:
        data = msgspec.json.encode(dict(meta))
        if has_line_ends(data):
            data = storable_json(data)
        refuse_unstorable(data)
        msgspec.json.decode(data)
        if data.find(NULL) >= 0:
            refuse_non_finite(msgspec.to_builtins(dict(meta)))
    except (PayloadNotEncodable, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise _refusal(meta, error) from error
    if len(data) > LARGEST:
        raise _refusal(
            meta,
            f"it takes {len(data):,} bytes as JSON, more than {LARGEST:,}; "
            "store what is larger elsewhere and send a reference along",
        )
    return data


def _refusal(meta: object, reason: object) -> InvalidOption:
    try:
        shown = f"{meta!r:.60}"
    except (ValueError, RecursionError):  # numbers of over 4,300 digits, thousands of levels
        shown = f"<{type(meta).__name__}>"
    return InvalidOption(f"meta={shown}: {reason}")


def escapes_in(text: str, *, keep: str = "") -> dict[int, str]:
    """The escape of each character of a text that is not to be printed, by its number, for ``str.translate``.

    Args:
        text: any text.
        keep: characters that stay, such as line ends.
    """
    unseen = [char for char in set(text) if not (char.isprintable() or char in keep)]
    return {ord(char): char.encode("unicode_escape").decode() for char in unseen}


def spelled_out(text: str, *, keep: str = "") -> str:
    """Text with its control characters, and those that turn the text around them, as escapes, except those in ``keep``."""
    return text if text.isprintable() else text.translate(escapes_in(text, keep=keep))


UNREADABLE: Final = "(unreadable)"
"""The one key of what is shown in place of a value that cannot be read; the value is its text, or why it is not."""
SHOWN = 1_000
"""Characters of that text."""

_errors = msgspec.json.Decoder(tuple[AttemptError, ...])


def object_of(text: str | bytes) -> dict[str, Any]:
    """A JSON object; what is none, or cannot be read, is shown as text."""
    found = value_of(text)
    if isinstance(found, str):  # what jsonb cannot hold, as pgqueue.as_jsonb() gives it
        return {UNREADABLE: found[:SHOWN]}
    return found if isinstance(found, dict) else _show_unreadable(text)


def value_of(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    """A JSON value; what cannot be read is shown as text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _show_unreadable(text)


def errors_of(text: str) -> tuple[AttemptError, ...]:
    """The errors of a job; what cannot be read is shown as the message of one error."""
    try:
        return _errors.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return (AttemptError(attempt=0, type=UNREADABLE, message=text[:SHOWN]),)


def _show_unreadable(text: str | bytes) -> dict[str, Any]:
    return {UNREADABLE: (text if isinstance(text, str) else text.decode(errors="replace"))[:SHOWN]}


def require_args(job: Job) -> None:
    """Refuse a job whose arguments are not known.

    Raises:
        InvalidOption: they are not kept, or cannot be read.
    """
    if set(job.args) == {ARGS_NOT_KEPT}:
        raise InvalidOption(
            f"job {job.id}: its arguments are not kept in the history, since they took {job.args[ARGS_NOT_KEPT]} bytes; "
            "PgQueue(history_args=...) says how many may"
        )
    if set(job.args) == {UNREADABLE}:
        raise InvalidOption(f"job {job.id}: its arguments cannot be read: {job.args[UNREADABLE]:.200}")

"""Checks that PostgreSQL stores a JSON text unchanged and Python reads it back: the bounds on arguments and results.

``sql/schema/0001_09_enqueue.up.sql`` has the same bounds for jobs that are enqueued by SQL. :mod:`pgqueue.values.payloads.signature`
checks what a task's annotations allow.
"""

import math
import re

import msgspec

from pgqueue.errors import PayloadNotEncodable

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
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BEYOND_JSONB = re.compile(rb"[eE][+-]?[0-9]{5}|[0-9]{10001}")
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

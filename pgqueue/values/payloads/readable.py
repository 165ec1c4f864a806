"""What is stored of jobs, read so that no value fails: what Python cannot read is shown as its text.

Jobs that were enqueued before there were bounds, or written into the table by SQL, may hold such values. A record shows
them, so that one job never fails a page of others. What a codec has encoded is decoded in :mod:`pgqueue.values.payloads.codec`.
"""

from typing import Any, Final

import msgspec

from pgqueue.values.jobs.job import AttemptError

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

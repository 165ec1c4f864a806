"""A job's record, from the row that ``sql/show.sql`` or ``sql/list.sql`` brings.

Jobs that were enqueued before there were bounds, or written into the table by SQL, may hold what Python cannot read.
Such a value is shown as its text, so that one job never fails a page of others. Times are moved into Python's years by
the statements.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pgqueue.store.plan import Row
from pgqueue.values.job import AttemptError, Job, JobState

UNREADABLE = "(unreadable)"
"""The one key of what is shown in place of a value that Python cannot read; its text is the value."""
SHOWN = 1_000
"""Characters of that text."""

_errors = msgspec.json.Decoder(tuple[AttemptError, ...])


def job_of(row: Row) -> Job:
    """The record in a row."""
    values = dict(zip(Job.__struct_fields__, row, strict=True))
    values["state"] = JobState(values["state"])
    for name, read in _READ.items():
        if values[name] is not None:
            values[name] = read(values[name])
    values["errors"] = values["errors"] or ()
    return Job(**values)


def object_of(text: str) -> dict[str, Any]:
    """A JSON object; what is none, or cannot be read, is shown as text."""
    found = _value(text)
    if isinstance(found, str):  # what jsonb cannot hold, as pgqueue.as_jsonb() gives it
        return {UNREADABLE: found[:SHOWN]}
    return found if isinstance(found, dict) else {UNREADABLE: text[:SHOWN]}


def _value(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {UNREADABLE: text[:SHOWN]}


def _attempt_errors(text: str) -> tuple[AttemptError, ...]:
    try:
        return _errors.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return (AttemptError(attempt=0, type=UNREADABLE, message=text[:SHOWN]),)


_READ: Mapping[str, Callable[[str], Any]] = {
    "args": object_of,
    "errors": _attempt_errors,
    "result": _value,
    "meta": object_of,
}
"""How the JSON of a column is read; it comes as text."""

"""A job's record, from the row that ``sql/show.sql`` or ``sql/list.sql`` brings.

Jobs that were enqueued before there were bounds, or written into the table by hand, may hold what Python cannot read.
Such a value is shown as its text, so that one job never fails a page of others. Times are moved into Python's years by
the statements.
"""

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
    values = list(row)
    values[1] = JobState(row[1])
    values[4] = _arguments(row[4])
    values[15] = () if row[15] is None else _attempt_errors(row[15])
    values[17] = None if row[17] is None else _value(row[17])
    return Job(*values)


def _arguments(text: str) -> dict[str, Any]:
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

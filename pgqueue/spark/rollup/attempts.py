"""Why attempts failed: the failed attempts of jobs, with a reason in which varying numbers and names are replaced.

A job keeps an object for each failed attempt (``errors``), also when it succeeded later. The attempt counts in the hour
in which its job ended, because only then does the job come to the lake. Messages are kept without the secrets of their jobs, as the
queue's rule finds them, and without addresses of e-mail, since a report has many readers.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from pgqueue.values.jobs.verdict import NOT_KEPT
from pgqueue.values.redaction import Redaction

READ = 2_000
"""Characters of a message that are read."""
LONGEST_REASON = 200
LONGEST_SAMPLE = 500
LONGEST_TYPE = 100
UNREADABLE = "unreadable"
"""The type that is shown for errors that are not in pgqueue's form."""
LIMIT = 2**31
DEFAULT = Redaction()
EMAIL = r"(?<![\w.+-])[\w.+-]++(?:@|%40)[\w-]+(?:\.[\w-]+)*"
"""An address of a person, also on a host without a domain."""
SPACE = r" \t\n\v\f\r"
TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?"
OFFSET = r" ?Z\b| ?[+-][0-9]{2}(?::?[0-9]{2})?\b"
VARYING = (
    (rf"\b[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{TIME}(?:{OFFSET})?", "<time>"),
    (r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (EMAIL, "<email>"),
    (r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*`|“[^”]*”|«[^»]*»", "<text>"),
    (rf"(?i)\b[a-z][a-z0-9+]*://[^{SPACE}<>,;)\]]+", "<url>"),
    (rf"(?<![\w<>/])(?:[A-Za-z]:\\|~?/)[^{SPACE}:,;()\[\]<>]+", "<path>"),
    (r"(?i)\b0x[0-9a-f]+\b|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}\b", "<hex>"),
    (r"[0-9]+(?:[.,:][0-9]+)*", "<n>"),
    (rf"[{SPACE}]+", " "),
)
"""Patterns of what varies between messages, and their replacements, applied in this order."""
READS = ("day", "ended_at", "queue", "task", "outcome", "attempts", "args", "meta", "errors")
"""The columns of ended jobs that are read."""
FAILED = pa.schema(
    [
        ("day", pa.date32()),
        ("ended_at", pa.timestamp("us", "UTC")),
        ("queue", pa.string()),
        ("task", pa.string()),
        ("error_type", pa.string()),
        ("reason", pa.string()),
        ("failed_at", pa.timestamp("us", "UTC")),
        ("sample", pa.string()),
        ("is_first", pa.bool_()),
        ("is_fatal", pa.bool_()),
    ]
)
"""A failed attempt: of which job, why, when, an original message, whether it is the job's first of this reason, and whether the
job died of it."""


class AttemptRow(NamedTuple):
    """A failed attempt, as a job keeps it; what is not there, or not of this type, is null."""

    number: int | None
    at: datetime | None
    error_type: str | None
    message: str | None


def failed_attempts(
    batches: Iterable[pa.RecordBatch], redaction: Redaction = DEFAULT
) -> Iterator[pa.RecordBatch]:
    """The failed attempts of jobs, as :data:`FAILED`.

    Args:
        batches: ended jobs with the columns :data:`READS`.
        redaction: hides the secrets in messages.
    """
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in READS)
        rows = [
            row for job in zip(*columns, strict=True) if job[-1] is not None for row in _rows(redaction, *job)
        ]
        if rows:
            made = zip(FAILED, zip(*rows, strict=True), strict=True)
            yield pa.record_batch([pa.array(values, field.type) for field, values in made], schema=FAILED)


def reason_of(message: str) -> str:
    """A message with its varying parts replaced, so that failures of one kind have one reason.

    Args:
        message: the original message; only its first :data:`READ` characters are used.
    """
    return _reason(message[:READ])


@lru_cache(maxsize=1_000)
def _reason(short: str) -> str:
    for pattern, word in VARYING:
        short = re.sub(pattern, word, short)
    return short.strip(" ")[:LONGEST_REASON]


def attempts_of(errors: str) -> list[AttemptRow]:
    """The failed attempts in a job's errors; if they cannot be read, one of type :data:`UNREADABLE`."""
    try:
        found = json.loads(errors, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return [AttemptRow(None, None, UNREADABLE, errors)] if errors.strip() else []
    listed = found if isinstance(found, list) else [found]
    there = [one for one in listed if one is not None]
    if not all(isinstance(one, dict) for one in there):
        return [AttemptRow(None, None, UNREADABLE, errors)]
    return [
        AttemptRow(
            _number(one.get("attempt")),
            _instant(one.get("at")),
            _text(one.get("type")),
            _text(one.get("message")),
        )
        for one in there
    ]


def _rows(  # noqa: PLR0917 - the columns of a job
    redaction: Redaction,
    day: date,
    ended_at: datetime,
    queue: str,
    task: str,
    outcome: str,
    attempts: int | None,
    args: str | None,
    meta: str | None,
    errors: str,
) -> Iterator[tuple[Any, ...]]:
    """The rows of one job, in the columns of :data:`FAILED`."""
    listed = [one for one in attempts_of(errors) if not _is_note(one, outcome, attempts)]
    seen = set()
    lasting = _since_buried(listed, day)
    secrets = redaction.secrets_in(_object(args), _object(meta))
    for place, one in enumerate(lasting, start=1):
        message = redaction.text(_beginning(one.message or ""), secrets) or ""
        key = (one.error_type or "")[:LONGEST_TYPE], reason_of(message)
        is_fatal = place == len(lasting) and outcome == "dead"
        sample = re.sub(EMAIL, "<email>", message)[:LONGEST_SAMPLE]
        yield day, ended_at, queue, task, *key, one.at, sample, key not in seen, is_fatal
        seen.add(key)


def _beginning(message: str) -> str:
    """What is read of a message: no part of a word, since a part of an address or of a secret is not recognised."""
    short = message[:READ]
    return short if short == message else short.rpartition(" ")[0] or short


def _object(text: str | None) -> Any:  # noqa: ANN401 - any JSON
    """Return a JSON column's value; None: the lake leaves it out, hashes it, or it cannot be read."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_note(one: AttemptRow, outcome: str, attempts: int | None) -> bool:
    """Whether an attempt only says why a succeeded job's result is not kept; see :func:`pgqueue.values.jobs.verdict.why_not_kept`."""
    return outcome == "succeeded" and one.number == attempts and one.error_type == NOT_KEPT


def _since_buried(listed: Sequence[AttemptRow], day: date) -> Sequence[AttemptRow]:
    """The attempts without those that an earlier record of the job has.

    A dead job that is revived starts again at attempt 1, and keeps its errors. If it had died on an earlier day, the lake
    has another record of it for that day.
    """
    for place in range(len(listed) - 1, 0, -1):
        this, former = listed[place], listed[place - 1]
        begins_again = (this.number or LIMIT) <= (former.number or 0)
        if begins_again and former.at is not None and former.at.date() < day:
            return listed[place:]
    return listed


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 < value < LIMIT else None


def _instant(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    """Return text without halves of surrogate pairs, which no file can hold; any other value as JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else text.encode(errors="replace").decode()


def _refuse(name: str) -> object:
    # JSON has no NaN and no infinity.
    raise ValueError(name)

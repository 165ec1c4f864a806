"""Writes arrays in PostgreSQL's text form, for statements that carry a value per job.

The driver writes them element by element: 0.37 µs for a number, a sixth of a worker's work for a short job. Written here,
a number costs a tenth of that, and an idle worker's first claim takes a twelfth less.
"""

from collections.abc import Iterable, Sequence

import msgspec

from pgqueue.values.job import Mark


def numbers(values: Sequence[float | None]) -> str:
    """An array of finite numbers; PostgreSQL writes numbers and null as JSON does."""
    return "{" + msgspec.json.encode(values)[1:-1].decode() + "}"


def texts(values: Iterable[str | None]) -> str:
    """An array of strings."""
    return "{" + ",".join("NULL" if value is None else _quoted(value) for value in values) + "}"


def columns(marks: Iterable[Mark]) -> dict[str, str]:
    """Marks as the parameters of the statements."""
    found = list(marks)
    return {
        "mark_ranks": numbers([mark.rank for mark in found]),
        "mark_run_ats": texts(mark.run_at.isoformat() for mark in found),
        "mark_ids": numbers([mark.id for mark in found]),
    }


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

"""What the database's refusal of a statement says: whether one row may be its cause, and its words for a log."""

import psycopg

OF_A_ROW = ("22", "23", "54", "P0", "XX")
"""Classes of errors that one row can cause: its data, a constraint, its length, a trigger, a part of a file that cannot be read."""

PASSED_FOR = 60.0
"""Seconds for which a job is passed over that the database refuses to have claimed."""


def of_a_row(refusal: psycopg.Error) -> bool:
    """Whether what one row holds may be the cause."""
    return (refusal.sqlstate or "").startswith(OF_A_ROW)


def in_one_line(error: BaseException) -> str:
    """The first line of an error: a driver adds the statement and where it failed."""
    return str(error).strip().partition("\n")[0]

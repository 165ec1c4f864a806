"""Model fields that read whatever a row holds, so that one bad row never fails a query of many.

A time that lies outside of Python's years is read as the nearest one inside. JSON that Python cannot read, for its
levels or for its digits, is read as ``{"(unreadable)": "its text"}``. Filters and orders are by what is stored.
"""

from typing import TYPE_CHECKING, Any

from django.db import models

from pgqueue.django import conf

if TYPE_CHECKING:
    ReadsTime = models.DateTimeField[Any, Any]
else:
    ReadsTime = models.DateTimeField

UNREADABLE = "(unreadable)"
SHOWN = 1_000
"""Characters of an unreadable value that are read."""


class TimeField(ReadsTime):
    """A time, moved into Python's years by the database; in the select list only, so that indices serve the rest."""

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:  # noqa: ANN401 - Django's call
        """The column as it is selected."""
        del compiler
        schema = conf.written().get("SCHEMA", "pgqueue")
        return f'"{schema}".as_datetime({sql})', params


class ValueField(models.JSONField):
    """Any JSON."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:  # noqa: ANN401 - Django's call
        """The value, or what stands for one that Python cannot read."""
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return {UNREADABLE: str(value)[:SHOWN]}

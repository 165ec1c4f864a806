"""Model fields that read any stored value, so that one bad row never fails a query of many.

A time outside of Python's years is read as the nearest time inside. JSON that Python cannot read, because of its
levels or its digits, is read as ``{"(unreadable)": "its text"}``. Filters and orders use the stored value.
"""

from typing import TYPE_CHECKING, Any

from django.db import models

from pgqueue.django import conf
from pgqueue.values.payloads.readable import SHOWN, UNREADABLE

if TYPE_CHECKING:
    ReadsTime = models.DateTimeField[Any, Any]
else:
    ReadsTime = models.DateTimeField


class TimeField(ReadsTime):
    """A time, moved into Python's years by the database; in the select list only, so that filters can use indices."""

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:  # noqa: ANN401 - Django's call
        """The column as it is selected."""
        del compiler
        schema = conf.raw_settings().get("SCHEMA", "pgqueue")
        return f'"{schema}".as_datetime({sql})', params


class ValueField(models.JSONField):
    """Any JSON."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:  # noqa: ANN401 - Django's call
        """The value, or a replacement for one that Python cannot read."""
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return {UNREADABLE: str(value)[:SHOWN]}

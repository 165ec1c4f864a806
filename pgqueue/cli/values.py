"""Values on the command line: spans of time, instants, JSON objects, queue names, job ids."""

import re
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")

JOB_ID = click.IntRange(min=1, max=(1 << 63) - 1)


class Span(click.ParamType):
    """A length of time: seconds, or a number with s, m, h, d or w behind it."""

    name = "seconds"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> timedelta:
        """Read it."""
        if isinstance(value, timedelta):
            return value
        match = _SPAN.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is no length of time; use seconds, or a number with s, m, h, d or w", param, ctx)
        try:
            return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
        except OverflowError:
            self.fail(f"{value!r} is too long", param, ctx)


class Instant(click.ParamType):
    """A time in ISO 8601; whether it must have a time zone is the core's to say."""

    name = "iso-time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:  # noqa: ANN401
        """Read it."""
        try:
            return value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no ISO 8601 time; use one like 2030-01-31T08:00:00+01:00", param, ctx)


class JsonObject(click.ParamType):
    """A JSON object."""

    name = "json"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> dict[str, Any]:
        """Read it."""
        if isinstance(value, dict):
            return value
        try:
            return msgspec.json.decode(str(value).encode(), type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            self.fail(f"{value!r} is no JSON object ({error}); use one like '{{\"order_id\": 42}}'", param, ctx)


class Names(click.ParamType):
    """Names with commas between them."""

    name = "a,b"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's signature
        param: click.Parameter | None,  # noqa: ARG002 - as above
        ctx: click.Context | None,  # noqa: ARG002 - as above
    ) -> list[str]:
        """Split them; whether each is a name is the core's to say."""
        return value if isinstance(value, list) else [name.strip() for name in str(value).split(",")]

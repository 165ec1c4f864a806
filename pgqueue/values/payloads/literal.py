"""Values of JSON as Python source, laid out as ``ruff format`` lays it out: in one line where it fits, else a line for each item."""

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final
from unicodedata import combining, east_asian_width

WIDTH: Final = 88
INDENT: Final = " " * 4
DEEPEST: Final = 30
"""Levels of a value that are written as source; Python's parser takes about 90. A deeper value is written as its JSON."""
_UNQUOTED: Final = re.compile(r"""[^'"]+""")


def literal(value: Any, *, indent: str = "", before: int = 0, after: int = 0) -> str:  # noqa: ANN401 - any JSON
    """A value of JSON as a Python expression.

    It needs no import, but for ``json`` where the value is nested more deeply than ``DEEPEST`` levels.

    Args:
        value: what ``json.loads`` returns.
        indent: of the line that it begins in.
        before: columns of that line that are taken, with the indent.
        after: columns that follow it in its last line.
    """
    if too_deep(value):
        return call("json.loads", [text(json.dumps(value))], indent=indent, before=before)
    return _laid_out(value, indent, before, after)


def _laid_out(value: Any, indent: str, before: int, after: int) -> str:  # noqa: ANN401 - any JSON
    one_line = _flat(value)
    if before + _columns(one_line) + after <= WIDTH or not (isinstance(value, dict | list) and value):
        return one_line
    inner = indent + INDENT
    if isinstance(value, list):
        lines = [f"{inner}{_laid_out(one, inner, len(inner), 1)},\n" for one in value]
        return "".join(("[\n", *lines, indent, "]"))
    lines = []
    for name, one in value.items():
        head = f"{inner}{text(name)}: "
        lines.append(f"{head}{_laid_out(one, inner, _columns(head), 1)},\n")
    return "".join(("{\n", *lines, indent, "}"))


def call(function: str, arguments: Sequence[str], *, indent: str = "", before: int | None = None) -> str:
    """A call as a Python expression: in one line, else its arguments in one line, else a line for each.

    Args:
        function: its name.
        arguments: as source, of one line each.
        indent: of the line that it begins in.
        before: columns of that line that are taken; by default those of the indent.
    """
    inner, together = indent + INDENT, ", ".join(arguments)
    one_line = f"{function}({together})"
    if (len(indent) if before is None else before) + _columns(one_line) <= WIDTH:
        return one_line
    if len(arguments) == 1 or len(inner) + _columns(together) <= WIDTH:
        return f"{function}(\n{inner}{together}\n{indent})"
    return "".join((f"{function}(\n", *(f"{inner}{one},\n" for one in arguments), indent, ")"))


def too_deep(value: object) -> bool:
    """Whether a value is nested more deeply than its source may be."""
    level = [value]
    for _ in range(DEEPEST):
        level = list(chain.from_iterable(map(_within, level)))
        if not level:
            return False
    return True


def text(value: str) -> str:
    """A string as Python source: in double quotes, unless others need fewer escapes. What cannot be printed is escaped."""
    quote = "'" if value.count('"') > value.count("'") else '"'
    return quote + _UNQUOTED.sub(_escape, value).replace(quote, f"\\{quote}") + quote


def _escape(part: re.Match[str]) -> str:
    return repr(part[0])[1:-1]


def _flat(value: Any) -> str:  # noqa: ANN401 - any JSON
    match value:
        case str():
            return text(value)
        case dict():
            return f"{{{', '.join(f'{text(name)}: {_flat(one)}' for name, one in value.items())}}}"
        case list():
            return f"[{', '.join(map(_flat, value))}]"
        case float():
            return repr(value).replace("e+", "e")
        case _:
            return repr(value)


def _within(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _columns(source: str) -> int:
    """Return how wide a line is shown, as ruff counts it."""
    if source.isascii():
        return len(source)
    return sum(2 if east_asian_width(one) in "WF" else not combining(one) for one in source)

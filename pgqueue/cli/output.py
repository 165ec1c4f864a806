"""How answers are shown: as a table for people, or as JSON for programs. The commands decide what is shown.

Stored text may have any characters; control characters are shown as escapes, so that no job can send control codes to a
terminal.
"""

import sys
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console

UNWRAPPED = 100_000
LONGEST_NAME = 40
"""Characters of a name in a column that is shortened."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object) -> None:
    """Print a value as JSON; times are ISO 8601."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str, shortened: Collection[str] = ()
) -> None:
    """Print rows as a table: fitted to a terminal, at full length into a pipe.

    Args:
        heads: of the columns; numbers are aligned to the right.
        rows: a value per column; None is blank.
        empty: what to print on stderr if there is no row.
        shortened: the heads of columns whose cells are cut on a terminal, so that each row stays on one line.
    """
    from rich.table import Table  # noqa: PLC0415 - for people only

    if not rows:
        click.echo(empty, err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, head in enumerate(heads):
        right = all(isinstance(row[number], int) for row in rows)
        if head in shortened and _width() is None:
            table.add_column(head, overflow="ellipsis", no_wrap=True, max_width=LONGEST_NAME)
        else:
            table.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for row in rows:
        table.add_row(*map(_cell, row))
    _console().print(table)


def spelled_out(text: str, *, keep: str = "") -> str:
    """Text with its control characters written as escapes, except those in ``keep``."""
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def local(instant: datetime) -> str:
    """An instant in the reader's time zone."""
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def short_duration(seconds: float | None) -> str:
    """A length of time, short: ``340 ms``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for length, name, less, less_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= length:
            return f"{whole // length:,} {name} {whole % length // less} {less_name}"
    return f"{whole} s"


def zone() -> str:
    """The name of the reader's time zone; both names if it has a summer time."""
    return "/".join(dict.fromkeys(time.tzname if time.daylight else time.tzname[:1]))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return spelled_out(local(value) if isinstance(value, datetime) else str(value))


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - for people only

    return Console(width=_width(), markup=False, emoji=False, highlight=False)


def _width() -> int | None:
    """Return the width of the output; None: that of the terminal."""
    return None if sys.stdout.isatty() else UNWRAPPED

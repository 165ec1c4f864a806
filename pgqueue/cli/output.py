"""How things are shown: as a table for people, or as JSON for programs. The commands decide what is shown.

Stored text may hold anything; control characters are spelled out, so that no job can write control codes to your terminal.
"""

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console

UNWRAPPED = 100_000

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object) -> None:
    """A value of ours as JSON; times are ISO 8601."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Rows under heads: fitted to a terminal, at full length into a pipe.

    Args:
        heads: of the columns; numbers stand to the right.
        rows: a value per column; None is left blank.
        empty: what to say, on stderr, when there is none.
    """
    from rich.table import Table  # noqa: PLC0415 - for people only

    if not rows:
        click.echo(empty, err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, head in enumerate(heads):
        right = all(isinstance(row[number], int) for row in rows)
        table.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for row in rows:
        table.add_row(*map(_cell, row))
    _console().print(table)


def spelled_out(text: str, *, keep: str = "") -> str:
    """Text with its control characters, but for those to keep, written as escapes."""
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def local(instant: datetime) -> str:
    """An instant on the reader's own clock."""
    return f"{instant.astimezone():%Y-%m-%d %H:%M:%S}"


def zone() -> str:
    """The name of the time zone of the reader's clock; both names where it changes in summer."""
    return "/".join(dict.fromkeys(time.tzname if time.daylight else time.tzname[:1]))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return spelled_out(local(value) if isinstance(value, datetime) else str(value))


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - as above

    width = None if sys.stdout.isatty() else UNWRAPPED
    return Console(width=width, markup=False, emoji=False, highlight=False)

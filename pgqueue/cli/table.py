"""How a table fits a terminal: which columns are left out, which cells are cut, and which words are coloured.

A column says at its declaration how important it is. A table that is wider than the terminal shows ages in place of
instants and no blank columns, then cuts long cells at ``…``, and then leaves out the least important columns. No cell is folded. A pipe has no
width, so it gets every column at its full length. :mod:`pgqueue.cli.output` prints tables; ``pgqueue top`` shows them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Final, NamedTuple

from pgqueue.cli.times import age, local, zone
from pgqueue.values.payloads.storable import spelled_out

GAP: Final = 2
"""Blanks between two columns."""
LEAST, LEAST_KEY = 12, 24
"""Characters that a cut cell keeps, if its column says no other number."""
LESS: Final = "…"
COLOURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("dead", "failed", "stalled", "lost", "firing", "error", "unresponsive"), "bold red"),
    **dict.fromkeys(
        ("paused", "closed", "full", "quiet", "stopping", "blocked", "unfinished", "late"), "yellow"
    ),
    "set aside": "bold red",
    "does not answer": "bold red",
}
"""The colours of words that ask for a look."""
_WORDS = re.compile(rf"\b({'|'.join(COLOURS)})\b")
_NUMBER = re.compile(
    r"[~-]?\d[\d,]*(\.\d+)?( ?(%|ms|s|min|h|d|bytes|[kMG]B))?( \d+ (s|min|h))?( \(\d+ ?%\))?( \+\d+ claimed)?"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        head: its name.
        rank: how soon it is left out: the highest of a table goes first, 0 stays. None: its place, so that the first
            column stays and the last one goes first.
        least: how many characters of a cut cell are of use; 0: its cells are never cut. None: 24 in the first column,
            where names are cut in the middle, and 12 in others; numbers and instants are never cut.
        state: its words are coloured if they ask for a look.
        bad: its numbers are coloured if they are above zero.
    """

    head: str
    rank: int | None = None
    least: int | None = None
    state: bool = False
    bad: bool = False


class When(NamedTuple):
    """A cell that says what happened at an instant, such as ``ended 2030-01-31 08:00:00``."""

    word: str
    at: datetime


class Cell(NamedTuple):
    """A cell that is ready to be shown: padded to the width of its column, with the style of its words."""

    text: str
    style: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table that fits.

    Attributes:
        heads: of the columns that are shown, padded.
        rows: their cells.
        left_out: the heads of the columns that are not shown.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left_out: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Filled:
    """A column with its cells."""

    column: Column
    place: int
    head: str
    cells: Sequence[str]
    right: bool
    whole: int
    """The width that shows every cell at its full length."""
    least: int

    @property
    def rank(self) -> int:
        return self.place if self.column.rank is None else self.column.rank


def fit(
    columns: Sequence[Column | str], rows: Sequence[Sequence[object]], *, width: int | None, gap: int = GAP
) -> Fitted:
    """Lay out a table.

    Args:
        columns: a text is a column of this name.
        rows: a value per column; None is blank.
        width: of the terminal, in characters; None: there is no bound.
        gap: blanks between two columns.
    """
    declared = [Column(one) if isinstance(one, str) else one for one in columns]
    filled = _filled(declared, rows, ages=False)
    if width is not None and _sum(filled, gap, "whole") > width:
        filled = _filled(declared, rows, ages=True)
        filled = [one for one in filled if any(one.cells) or not one.rank]
    shown = list(filled)
    while width is not None and len(shown) > 1 and _sum(shown, gap, "least") > width:
        last = max(shown, key=lambda one: (one.rank, one.place))
        if not last.rank:
            break
        shown.remove(last)
    widths = _widths(shown, None if width is None else width - gap * (len(shown) - 1))
    heads = [_padded(cut(one.head, wide), wide, one.right) for one, wide in zip(shown, widths, strict=True)]
    laid = [
        [_cell(one, one.cells[number], wide) for one, wide in zip(shown, widths, strict=True)]
        for number in range(len(rows))
    ]
    return Fitted(heads, laid, [one.column.head for one in filled if one not in shown])


def cut(text: str, width: int, *, middle: bool = False) -> str:
    """A text of at most this many characters of a terminal; ``…`` stands where some were cut.

    Args:
        text: printable.
        width: in characters of a terminal, of which some letters take two.
        middle: cut there, so that names which differ at the end can be told apart.
    """
    if length(text) <= width:
        return text
    behind = (width - 1) // 2 if middle else 0
    tail = _start(text[::-1], behind)[::-1]
    return f"{_start(text, width - 1 - behind)}{LESS}{tail}"


def length(text: str) -> int:
    """How many characters of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - for people only

    return int(cell_len(text))


def colour(column: Column, text: str) -> str:
    """The style of a cell; empty: none."""
    if column.bad:
        return "bold red" if any(one in "123456789" for one in text) else ""
    found = _WORDS.search(text) if column.state else None
    return COLOURS[found[0]] if found else ""


def _filled(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, ages: bool) -> list[_Filled]:
    now = datetime.now(UTC)
    return [
        _column(one, place, [row[place] for row in rows], now if ages else None)
        for one, place in zip(columns, count())
    ]


def _column(column: Column, place: int, values: Sequence[object], now: datetime | None) -> _Filled:
    dated = any(isinstance(one, datetime) for one in values)
    timed = dated or any(isinstance(one, When) for one in values)
    cells = [_text(one, now) for one in values]
    right = not timed and any(cells) and all(_NUMBER.fullmatch(one) for one in cells if one)
    head = f"{column.head} ({zone()})" if timed and now is None else column.head
    whole = max(map(length, (head, *cells)))
    least = column.least if column.least is not None else LEAST if place else LEAST_KEY
    fixed = right or timed or not least
    return _Filled(
        column, place, head, cells, right, whole, whole if fixed else min(whole, max(least, length(head)))
    )


def _text(value: object, now: datetime | None) -> str:
    match value:
        case None:
            return ""
        case When(word, at):
            return spelled_out(f"{word} {local(at) if now is None else age(at, now)}")
        case datetime():
            return local(value) if now is None else age(value, now)
        case _:
            return spelled_out(str(value))


def _sum(columns: Iterable[_Filled], gap: int, what: str) -> int:
    widths: list[int] = [getattr(one, what) for one in columns]
    return sum(widths) + gap * (len(widths) - 1)


def _widths(columns: Sequence[_Filled], room: int | None) -> list[int]:
    """The width of each column: what is left beyond the least of all goes to those that need the least more."""
    if room is None:
        return [one.whole for one in columns]
    widths = [min(one.least, room) for one in columns]
    spare = room - sum(widths)
    while spare > 0 and (short := [at for at, one in enumerate(columns) if widths[at] < one.whole]):
        for at in short[:spare]:
            widths[at] += 1
        spare -= len(short[:spare])
    return widths


def _cell(one: _Filled, text: str, wide: int) -> Cell:
    shown = _padded(cut(text, wide, middle=not one.rank), wide, one.right)
    return Cell(shown, colour(one.column, text))


def _padded(text: str, wide: int, right: bool) -> str:  # noqa: FBT001 - of the column
    blanks = " " * (wide - length(text))
    return blanks + text if right else text + blanks


def _start(text: str, width: int) -> str:
    """The first characters that fit in this width."""
    taken = 0
    for at, letter in enumerate(text):
        taken += length(letter)
        if taken > width:
            return text[:at]
    return text

"""What an answer consists of, whoever shows it: sentences, tables, plots."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes


class State(StrEnum):
    """Whether somebody should look."""

    LOOK = "look"
    CALM = "calm"
    UNKNOWN = "unknown"
    INFO = "info"
    """There is nothing to judge."""


class Kind(StrEnum):
    """What a column holds, and so how it is written on the page and in Parquet."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SECONDS = "seconds"
    SHARE = "share"
    MONEY = "money"
    HOUR = "hour"
    """Hours since 1970, UTC; an instant in Parquet."""
    DAY = "day"


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: in Parquet.
        head: on the page; empty: only in Parquet.
        kind: of its values, each of which may be None.
    """

    name: str
    head: str
    kind: Kind


Value = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """An answer as a table.

    Attributes:
        name: of the folder under ``report/`` in the lake.
        caption: what a row is.
        columns: in order.
        rows: a value per column, those that matter most first.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A picture.

    Attributes:
        title: what it is of.
        says: what one sees in it, for those who do not see it too.
        draw: draws it on the axes it is given.
        inches: its height; it is 9 wide.
    """

    title: str
    says: str
    draw: "Callable[[Axes], None]"
    inches: float = 2.6


@dataclass(frozen=True, kw_only=True)
class Section:
    """A question and its answer.

    Attributes:
        name: short, for links and programs.
        title: the question's.
        state: whether somebody should look.
        answer: in a sentence or two.
        compared: with what, and by which rule.
        advice: what to do about it.
        findings: a sentence each, the most important first.
        tables: the same as tables.
        plots: pictures of the most important.
    """

    name: str
    title: str
    state: State
    answer: str
    compared: str
    advice: str = ""
    findings: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()

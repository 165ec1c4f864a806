"""The parts of an answer: sentences, tables, plots. The page and the tables' files are made from them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.axes import Axes


class SectionState(StrEnum):
    """Whether a user should act."""

    LOOK = "look"
    OK = "ok"
    UNKNOWN = "unknown"
    INFO = "info"
    """There is nothing to judge."""


class ValueKind(StrEnum):
    """The kind of a column's values; it decides their form on the page and in Parquet."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SECONDS = "seconds"
    SHARE = "share"
    MONEY = "money"
    HOUR = "hour"
    """Hours since 1970, UTC; an instant in Parquet."""
    DAY = "day"


class ReportColumn(NamedTuple):
    """A column of a table.

    Attributes:
        name: its name in Parquet.
        head: its heading on the page; empty: only in Parquet.
        kind: the kind of its values, each of which may be None.
    """

    name: str
    head: str
    kind: ValueKind


Value = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """An answer as a table.

    Attributes:
        name: the name of its folder under ``report/`` in the lake.
        caption: its caption on the page.
        columns: in order.
        rows: a value per column, the most important rows first.
    """

    name: str
    caption: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A picture.

    Attributes:
        title: its title.
        says: a description for screen readers.
        draw: draws it on the given axes.
        inches: its height in inches; the width is 9 inches.
    """

    title: str
    says: str
    draw: "Callable[[Axes], None]"
    inches: float = 2.6


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of the report: what all answers to it share.

    Attributes:
        name: a short name, for links and programs; its table has it, too.
        title: the question.
        compared: what is compared, and by which rule.
        advice: what to do.
        caption: the caption of its table.
        columns: those of its table.
    """

    name: str
    title: str
    compared: str
    advice: str = ""
    caption: str
    columns: tuple[ReportColumn, ...]

    def answered(
        self,
        state: SectionState,
        answer: str,
        rows: "Iterable[tuple[Value, ...]]" = (),
        *,
        findings: "Iterable[str]" = (),
        plots: "Iterable[Plot]" = (),
    ) -> "Section":
        """An answer to it."""
        table = ReportTable(name=self.name, caption=self.caption, columns=self.columns, rows=tuple(rows))
        return Section(
            name=self.name,
            title=self.title,
            state=state,
            answer=answer,
            compared=self.compared,
            advice=self.advice,
            findings=tuple(findings),
            tables=(table,),
            plots=tuple(plots),
        )


@dataclass(frozen=True, kw_only=True)
class Section:
    """A question and its answer.

    Attributes:
        name: a short name, for links and programs.
        title: the question.
        state: whether a user should act.
        answer: one or two sentences.
        compared: what was compared, and by which rule.
        advice: what to do.
        findings: one sentence each, the most important first.
        tables: the findings as tables.
        plots: pictures of the most important findings.
    """

    name: str
    title: str
    state: SectionState
    answer: str
    compared: str
    advice: str = ""
    findings: tuple[str, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    plots: tuple[Plot, ...] = ()

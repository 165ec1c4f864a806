"""What the report's page shows; ``templates/report.html`` decides how."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from pgqueue.spark.report import words
from pgqueue.spark.report.rendering import rendered
from pgqueue.spark.report.rollups import Period
from pgqueue.spark.report.section import Column, Kind, Section, State, Table, Value

SHOWN = 25
"""Rows of a table that are on the page; the lake has them all."""

MARKS = {
    State.LOOK: "look here",
    State.OK: "nothing to do",
    State.UNKNOWN: "cannot tell",
    State.INFO: "for information",
}
RIGHT = {Kind.COUNT, Kind.NUMBER, Kind.SECONDS, Kind.SHARE, Kind.MONEY}
WRITTEN: Mapping[Kind, Callable[[float], str]] = {
    Kind.COUNT: words.count,
    Kind.SECONDS: words.span,
    Kind.SHARE: words.share,
    Kind.MONEY: lambda value: f"{value:,.2f}",
    Kind.HOUR: lambda value: words.hour(int(value)),
    Kind.DAY: lambda value: words.day(int(value)),
}
Cell = tuple[str, str]
"""A cell's class and its text."""


def page(sections: Sequence[Section], weeks: Period | None, whose: str) -> bytes:
    """The report as HTML.

    Args:
        sections: the answers, in order.
        weeks: the weeks of the report; None: the lake is empty.
        whose: names the database.
    """
    return rendered(
        "report",
        title=f"Jobs of {_reported(weeks)}" if weeks else "Jobs: nothing in the lake yet",
        about=_about(weeks, words.clean(whose)),
        sections=sections,
        urgent_first=sorted(sections, key=lambda one: one.state is not State.LOOK),
        marks=MARKS,
        most=SHOWN,
        heads=_heads,
        cells=_cells,
    )


def shown(value: Value, kind: Kind) -> str:
    """A value in the form of the page."""
    if value is None:
        return words.NONE
    if isinstance(value, str):
        return words.clean(value, 300)
    return WRITTEN.get(kind, words.number)(value)


def _about(weeks: Period | None, whose: str) -> str:
    if weeks is None:
        return f"{whose}. Nothing has been exported and rolled up yet."
    former, held = len(weeks.days) - len(weeks.reported), len(weeks.reported)
    compared = (
        f"compared with {words.some(former, 'day')} of the {words.some(weeks.weeks, 'week')} before"
        if former
        else "there are no earlier days to compare with"
    )
    return f"{whose}. {words.some(held, 'day')} of this week {'is' if held == 1 else 'are'} in the lake; {compared}."


def _reported(weeks: Period) -> str:
    if len(weeks.reported) == 1:
        return words.day(weeks.until)
    return f"{words.day(weeks.reported[0])} to {words.day(weeks.until)}"


def _heads(table: Table) -> list[Cell]:
    return [(_side(column), column.head) for column in table.columns if column.head]


def _cells(table: Table) -> Iterator[list[Cell]]:
    """The rows that are on the page; columns without a heading are only in the lake."""
    for row in table.rows[:SHOWN]:
        yield [
            (_side(column), shown(value, column.kind))
            for column, value in zip(table.columns, row, strict=True)
            if column.head
        ]


def _side(column: Column) -> str:
    if column.kind in RIGHT:
        return "number"
    return "text" if column.kind is Kind.TEXT else "when"

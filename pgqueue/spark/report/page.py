"""What the report's page shows; ``templates/report.html`` decides how."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from pgqueue.spark.report import words
from pgqueue.spark.report.rendering import render_page
from pgqueue.spark.report.rollups import Period
from pgqueue.spark.report.section import ReportColumn, ReportTable, Section, SectionState, Value, ValueKind

SHOWN = 25
"""Rows of a table that are on the page; the lake has them all."""

MARKS = {
    SectionState.LOOK: "look here",
    SectionState.OK: "nothing to do",
    SectionState.UNKNOWN: "cannot tell",
    SectionState.INFO: "for information",
}
RIGHT = {ValueKind.COUNT, ValueKind.NUMBER, ValueKind.SECONDS, ValueKind.SHARE, ValueKind.MONEY}
WRITTEN: Mapping[ValueKind, Callable[[float], str]] = {
    ValueKind.COUNT: words.count,
    ValueKind.SECONDS: words.span,
    ValueKind.SHARE: words.share,
    ValueKind.MONEY: lambda value: f"{value:,.2f}",
    ValueKind.HOUR: lambda value: words.hour(int(value)),
    ValueKind.DAY: lambda value: words.day(int(value)),
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
    return render_page(
        "report",
        title=f"Jobs of {_report_title(weeks)}" if weeks else "Jobs: nothing in the lake yet",
        about=_about(weeks, words.clean(whose)),
        sections=sections,
        urgent_first=sorted(sections, key=lambda one: one.state is not SectionState.LOOK),
        marks=MARKS,
        most=SHOWN,
        heads=_heads,
        cells=_cells,
    )


def format_value(value: Value, kind: ValueKind) -> str:
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


def _report_title(weeks: Period) -> str:
    if len(weeks.reported) == 1:
        return words.day(weeks.until)
    return f"{words.day(weeks.reported[0])} to {words.day(weeks.until)}"


def _heads(table: ReportTable) -> list[Cell]:
    return [(_side(column), column.head) for column in table.columns if column.head]


def _cells(table: ReportTable) -> Iterator[list[Cell]]:
    for row in table.rows[:SHOWN]:
        yield [
            (_side(column), format_value(value, column.kind))
            for column, value in zip(table.columns, row, strict=True)
            # A column without a heading is only in the lake.
            if column.head
        ]


def _side(column: ReportColumn) -> str:
    if column.kind in RIGHT:
        return "number"
    return "text" if column.kind is ValueKind.TEXT else "when"

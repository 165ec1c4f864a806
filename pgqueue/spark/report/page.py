"""The page: one HTML file with all its pictures and styles, for a screen, for paper and for a screen reader.

It is built as a tree of elements and written by the standard library. So the name of a queue, a task, a tenant or an
exception is always text on the page, and never markup.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from pgqueue.spark.report import words
from pgqueue.spark.report.figures import svg
from pgqueue.spark.report.rollups import Period
from pgqueue.spark.report.section import Column, Kind, Section, State, Table, Value
from pgqueue.spark.report.sheet import SHEET

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
Child = ET.Element | str


def page(sections: Sequence[Section], weeks: Period | None, whose: str) -> str:
    """The report as HTML.

    Args:
        sections: the answers, in order.
        weeks: the weeks of the report; None: the lake is empty.
        whose: names the database.
    """
    title = f"Jobs of {_reported(weeks)}" if weeks else "Jobs: nothing in the lake yet"
    root = _tag("html", _head(title), _body(title, sections, weeks, words.clean(whose)), lang="en")
    return f"<!DOCTYPE html>\n{ET.tostring(root, encoding='unicode', method='html')}\n"


def shown(value: Value, kind: Kind) -> str:
    """A value in the form of the page."""
    if value is None:
        return words.NONE
    if isinstance(value, str):
        return words.clean(value, 300)
    return WRITTEN.get(kind, words.number)(value)


def _head(title: str) -> ET.Element:
    return _tag(
        "head",
        _tag("meta", charset="utf-8"),
        _tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _tag("meta", name="color-scheme", content="light dark"),
        _tag("title", title),
        _tag("style", SHEET),
    )


def _body(title: str, sections: Sequence[Section], weeks: Period | None, whose: str) -> ET.Element:
    return _tag(
        "body",
        _tag("a", "To the answers", href="#answers", class_="skip"),
        _tag("header", _tag("h1", title), *_about(weeks, whose)),
        _tag(
            "main",
            _summary(sections),
            *(_section(section) for section in sections),
            id="answers",
        ),
        _tag(
            "footer",
            _tag(
                "p",
                f"Written by pgqueue on {datetime.now(UTC):%d %b %Y, %H:%M} UTC. The tables are in the lake, as Parquet, "
                "under report/. All times are UTC.",
            ),
        ),
    )


def _about(weeks: Period | None, whose: str) -> Iterable[ET.Element]:
    if weeks is None:
        yield _tag("p", f"{whose}. Nothing has been exported and rolled up yet.")
        return
    former = len(weeks.days) - len(weeks.reported)
    compared = (
        f"compared with {words.some(former, 'day')} of the {words.some(weeks.weeks, 'week')} before"
        if former
        else "there are no earlier days to compare with"
    )
    held = len(weeks.reported)
    yield _tag(
        "p",
        f"{whose}. {words.some(held, 'day')} of this week {'is' if held == 1 else 'are'} in the lake; {compared}.",
    )


def _reported(weeks: Period) -> str:
    if len(weeks.reported) == 1:
        return words.day(weeks.until)
    return f"{words.day(weeks.reported[0])} to {words.day(weeks.until)}"


def _summary(sections: Sequence[Section]) -> ET.Element:
    """The summary: every answer in one line, the most urgent first."""
    order = sorted(sections, key=lambda one: one.state is not State.LOOK)
    return _tag(
        "nav",
        _tag("h2", "In short", id="summary"),
        _tag("ul", *(_line(section) for section in order)),
        **{"aria-labelledby": "summary"},
    )


def _line(section: Section) -> ET.Element:
    return _tag(
        "li",
        _mark(section.state),
        " ",
        _tag("a", section.title, href=f"#{section.name}"),
        " ",
        section.answer,
        class_=str(section.state),
    )


def _section(section: Section) -> ET.Element:
    name = section.name
    return _tag(
        "section",
        _tag("h2", section.title, " ", _mark(section.state), id=name),
        _tag("p", section.answer, class_="answer"),
        *(_picture(section, number) for number in range(len(section.plots))),
        *(part for table in section.tables if table.rows for part in _table(table)),
        _tag("p", _tag("strong", "What was compared. "), section.compared, class_="note"),
        *(
            (_tag("p", _tag("strong", "What to do. "), section.advice, class_="note"),)
            if section.advice
            else ()
        ),
        **{"aria-labelledby": name},
    )


def _mark(state: State) -> ET.Element:
    return _tag("span", MARKS[state], class_=f"mark {state}")


def _picture(section: Section, number: int) -> ET.Element:
    plot = section.plots[number]
    drawing = _tag("div", svg(plot, f"{section.name}{number}"), class_="drawing")
    return _tag("figure", _tag("figcaption", plot.title), drawing)


def _table(table: Table) -> Iterable[ET.Element]:
    columns = [(index, column) for index, column in enumerate(table.columns) if column.head]
    heads = _tag("tr", *(_tag("th", column.head, scope="col", class_=_side(column)) for _, column in columns))
    rows = [_row(row, columns) for row in table.rows[:SHOWN]]
    caption = f"{table.name}-caption"
    whole = _tag(
        "table", _tag("caption", table.caption, id=caption), _tag("thead", heads), _tag("tbody", *rows)
    )
    yield _tag("div", whole, class_="scroll", tabindex="0", role="region", **{"aria-labelledby": caption})
    if len(table.rows) > SHOWN:
        yield _tag(
            "p", f"The first {SHOWN} of {len(table.rows)}; all are in report/{table.name}.", class_="note"
        )


def _row(row: Sequence[Value], columns: Sequence[tuple[int, Column]]) -> ET.Element:
    cells = []
    for place, (index, column) in enumerate(columns):
        text = shown(row[index], column.kind)
        if place == 0:
            cells.append(_tag("th", text, scope="row"))
        else:
            cells.append(_tag("td", text, class_=_side(column)))
    return _tag("tr", *cells)


def _side(column: Column) -> str:
    if column.kind in RIGHT:
        return "number"
    return "text" if column.kind is Kind.TEXT else "when"


def _tag(name: str, /, *children: Child, class_: str | None = None, **attributes: str) -> ET.Element:
    """An element with its children."""
    element = ET.Element(name, {**attributes, **({"class": class_} if class_ else {})})
    for child in children:
        if isinstance(child, ET.Element):
            element.append(child)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + child
        else:
            element.text = (element.text or "") + child
    return element

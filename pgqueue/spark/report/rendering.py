"""Pages from the templates of this package: one HTML file with all its pictures and styles; and what the report's page shows.

A page is for a screen, for paper and for a screen reader. The templates decide how it looks. They escape all that they are given,
so the name of a queue, a task, a tenant or an exception is always text on a page, and never markup.

matplotlib draws the pictures. They become SVG with the page's colours, in light and dark mode and on paper. Several of them fit into
one page: unique identifiers, no addresses of other sites, colours as variables. The same figures give the same bytes.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.report import words
from pgqueue.spark.report.section import (
    Plot,
    ReportColumn,
    ReportTable,
    Section,
    SectionState,
    Value,
    ValueKind,
)
from pgqueue.values.hints import missing_extra

if TYPE_CHECKING:
    from os import PathLike

    from jinja2 import Environment
    from markupsafe import Markup

    from pgqueue.spark.report.rollups import Period


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
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
WIDTH = 9.0

INK, FAINT = "#010101", "#010102"
LINES = ("#010103", "#010104", "#010105", "#010106", "#010107", "#010108")
WARNING = "#010109"
NAMES = {
    INK: "--ink",
    FAINT: "--faint",
    **{line: f"--line{number}" for number, line in enumerate(LINES, 1)},
    WARNING: "--warning",
}
"""The colours that stand for variables of the page's style sheet."""

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a queue's name may contain dollar signs
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": False,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}
_REFERENCE = re.compile(r"(url\(#|^#)([^)]+)")


def check_out(out: "str | PathLike[str] | None", example: str) -> None:
    """Check, before any work, that a page can be made, and can have this name.

    Args:
        out: the page's file or URI; None: it has a name of its own.
        example: a good name, for the message.

    Raises:
        InvalidOption: it is a folder.
        ConfigurationError: the extra ``report`` is not installed.
    """
    missing = [name for name in ("jinja2", "matplotlib", "scipy") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            missing_extra(
                "report",
                f"a page needs {' and '.join(missing)}, and {'it is' if len(missing) == 1 else 'they are'} not installed",
            )
        )
    if out is not None and "://" not in str(out) and Path(out).expanduser().is_dir():
        raise InvalidOption(f"out={str(out)!r} is a folder: name the page's file in it, such as {example}")


def place_of(out: "str | PathLike[str]") -> tuple[Folder, str]:
    """The folder of a page's file or URI, and its name there."""
    if "://" in str(out):
        place, _, name = str(out).rpartition("/")
        return Folder(place), name
    path = Path(out).expanduser().absolute()
    return Folder(str(path.parent)), path.name


def render_page(template: str, **values: Any) -> bytes:  # noqa: ANN401 - what the template reads
    """A page in UTF-8; half surrogate pairs in users' text become escapes.

    Args:
        template: its name, without ``.html``.
        values: what it shows; ``now`` is added.
    """
    page = (
        _templates()
        .get_template(f"{template}.html")
        .render(now=f"{datetime.now(UTC):%d %b %Y, %H:%M}", **values)
    )
    return page.encode("utf-8", "backslashreplace")


def page(sections: Sequence[Section], weeks: "Period | None", whose: str) -> bytes:
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


def svg(plot: Plot, name: str) -> ET.Element:
    """A picture as an element of a page.

    Args:
        plot: what to draw.
        name: the prefix of its identifiers; unique in the page.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - heavy
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy

    drawn = io.StringIO()
    style: Any = {**STYLE, "svg.hashsalt": name}
    with rc_context(style), _any_letters():
        sheet = Figure(figsize=(WIDTH, plot.inches), layout="constrained")
        plot.draw(sheet.subplots())
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        sheet.savefig(drawn, format="svg", transparent=True, metadata=nothing)
    root = ET.fromstring(drawn.getvalue())  # noqa: S314 - drawn a line above, and no entities in it
    _adopt(root, name)
    root.attrib.update({"role": "img", "aria-label": plot.says})
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    return root


def picture(plot: "Plot", name: str) -> "Markup":
    """A picture as a part of a page; ``name`` is the prefix of its identifiers, unique in the page."""
    from markupsafe import Markup  # noqa: PLC0415 - of the extra "report"

    return Markup(ET.tostring(svg(plot, name), encoding="unicode", method="html"))  # noqa: S704 - ElementTree escapes it


def _about(weeks: "Period | None", whose: str) -> str:
    if weeks is None:
        return f"{whose}. Nothing has been exported and rolled up yet."
    former, held = len(weeks.days) - len(weeks.reported), len(weeks.reported)
    compared = (
        f"compared with {words.some(former, 'day')} of the {words.some(weeks.weeks, 'week')} before"
        if former
        else "there are no earlier days to compare with"
    )
    return f"{whose}. {words.some(held, 'day')} of this week {'is' if held == 1 else 'are'} in the lake; {compared}."


def _report_title(weeks: "Period") -> str:
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


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - of the extra "report"

    templates = Environment(
        loader=PackageLoader("pgqueue.spark.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["picture"] = picture
    return templates


@contextmanager
def _any_letters() -> Iterator[None]:
    with warnings.catch_warnings():
        # matplotlib's font lacks some letters; the reader's browser has them.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support .* natively")
        yield


def _adopt(root: ET.Element, name: str) -> None:
    used = {found[2] for value in _values(root) for found in _REFERENCE.finditer(value)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        attributes = {key.removeprefix(XLINK): value for key, value in element.attrib.items()}
        own = attributes.pop("id", None)
        attributes = {key: _rename_ids(_colour_text(value), name) for key, value in attributes.items()}
        if own in used:
            attributes["id"] = f"{name}-{own}"
        element.attrib.clear()
        element.attrib.update(attributes)


def _values(root: ET.Element) -> Iterator[str]:
    for element in root.iter():
        yield from element.attrib.values()


def _rename_ids(value: str, name: str) -> str:
    return _REFERENCE.sub(lambda found: f"{found[1]}{name}-{found[2]}", value)


def _colour_text(value: str) -> str:
    for colour, variable in NAMES.items():
        value = value.replace(colour, f"var({variable})")
    return value

"""The page of a comparison: one HTML file with its tables and pictures, in the style of the report.

Names of queues and tasks are always text on it, and never markup: the standard library writes the elements.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from pgqueue.errors import InvalidOption
from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.report import words
from pgqueue.spark.report.figures import svg
from pgqueue.spark.report.sheet import SHEET
from pgqueue.spark.whatif.plots import plots
from pgqueue.spark.whatif.told import HEADS, answer, cells, not_known

if TYPE_CHECKING:
    from pgqueue.spark.whatif.whatif import Comparison

SHOWN = 50
"""Rows of the table of tasks on the page; ``--json`` has all."""


def write(found: "Comparison", out: str) -> str:
    """Write the page; its place.

    Args:
        found: the comparison.
        out: a file, or a URI of an object store.

    Raises:
        LakeError: it cannot be written.
    """
    place, _, name = out.rpartition("/") if "://" in out else ("", "", "")
    if not place:
        path = Path(out).expanduser().absolute()
        place, name = str(path.parent), path.name
    Folder(place).write(name, page(found).encode("utf-8", "backslashreplace"))
    return out


def check_out(out: str | None) -> None:
    """Check, before any work, that a page can have this name.

    Raises:
        InvalidOption: it is a folder.
    """
    if out is not None and "://" not in out and Path(out).expanduser().is_dir():
        raise InvalidOption(f"out={out!r} is a folder: name the page's file in it, such as whatif.html")


def page(found: "Comparison") -> str:
    """The comparison as HTML."""
    title = f"What if: {', '.join(words.clean(one) for one in found.settings)}"
    head = _tag(
        "head",
        _tag("meta", charset="utf-8"),
        _tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _tag("meta", name="color-scheme", content="light dark"),
        _tag("title", title),
        _tag("style", SHEET),
    )
    body = _tag(
        "body",
        _tag("header", _tag("h1", title)),
        _tag(
            "main",
            *(_tag("p", line, class_="answer") for line in answer(found)),
            *_pictures(found),
            _table(found),
        ),
        _tag(
            "footer",
            *(_tag("p", line, class_="note") for line in not_known(found)),
            _tag("p", f"Written by pgqueue on {datetime.now(UTC):%d %b %Y, %H:%M} UTC. All times are UTC."),
        ),
    )
    root = _tag("html", head, body, lang="en")
    return f"<!DOCTYPE html>\n{ET.tostring(root, encoding='unicode', method='html')}\n"


def _pictures(found: "Comparison") -> Iterator[ET.Element]:
    for number, plot in enumerate(plots(found)):
        drawing = _tag("div", svg(plot, f"whatif{number}"), class_="drawing")
        yield _tag("figure", _tag("figcaption", plot.title), drawing)


def _table(found: "Comparison") -> ET.Element:
    shown = found.tasks[:SHOWN]
    left = f" The first {SHOWN} of {len(found.tasks):,} tasks." if len(found.tasks) > SHOWN else ""
    caption = _tag("caption", f"Waits by task: was, and would be.{left}", id="tasks")
    heads = _tag("tr", *(_tag("th", head, scope="col") for head in HEADS))
    rows = [_row([words.clean(one.queue), words.clean(one.task), *cells(one)]) for one in shown]
    whole = _tag("table", caption, _tag("thead", heads), _tag("tbody", *rows))
    return _tag("div", whole, class_="scroll", tabindex="0", role="region", **{"aria-labelledby": "tasks"})


def _row(texts: Sequence[str]) -> ET.Element:
    first, *others = texts
    return _tag("tr", _tag("th", first, scope="row"), *(_tag("td", text) for text in others))


def _tag(
    name: str, /, *children: ET.Element | str, class_: str | None = None, **attributes: str
) -> ET.Element:
    element = ET.Element(name, {**attributes, **({"class": class_} if class_ else {})})
    for child in children:
        if isinstance(child, str):
            element.text = child
        else:
            element.append(child)
    return element

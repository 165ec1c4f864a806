"""Pictures as parts of a page: SVG with the page's colours, in light and dark mode and on paper.

matplotlib draws. This module makes several of its pictures fit into one page: unique identifiers, no addresses of other
sites, colours as variables. The same figures give the same bytes.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree as ET

from pgqueue.spark.report.section import Plot

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

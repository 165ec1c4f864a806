"""What the page of a comparison shows; ``whatif.html``, among the templates of the report, decides how."""

from pathlib import Path
from typing import TYPE_CHECKING

from pgqueue.errors import InvalidOption
from pgqueue.spark.lake.folder import Folder
from pgqueue.spark.report import words
from pgqueue.spark.report.rendering import render_page, require
from pgqueue.spark.whatif.plots import plots
from pgqueue.spark.whatif.whatif_text import HEADS, answer, cells, not_known

if TYPE_CHECKING:
    from pgqueue.spark.whatif.whatif import ReplayComparison

SHOWN = 50
"""Rows of the table of tasks on the page; ``--json`` has all."""


def write(found: "ReplayComparison", out: str) -> str:
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
    Folder(place).write(name, page(found))
    return out


def check_out(out: str | None) -> None:
    """Check, before any work, that a page can be made, and can have this name.

    Raises:
        InvalidOption: it is a folder.
        ConfigurationError: the extra ``report`` is not installed.
    """
    if out is not None:
        require()
    if out is not None and "://" not in out and Path(out).expanduser().is_dir():
        raise InvalidOption(f"out={out!r} is a folder: name the page's file in it, such as whatif.html")


def page(found: "ReplayComparison") -> bytes:
    """The comparison as HTML."""
    left = f" The first {SHOWN} of {len(found.tasks):,} tasks." if len(found.tasks) > SHOWN else ""
    sides = ["text", "text", *["number"] * (len(HEADS) - 2)]
    return render_page(
        "whatif",
        title=f"What if: {', '.join(words.clean(one) for one in found.settings)}",
        answers=answer(found),
        plots=plots(found),
        caption=f"Waits by task: was, and would be.{left}",
        heads=list(zip(sides, HEADS, strict=True)),
        rows=[
            list(zip(sides, (words.clean(one.queue), words.clean(one.task), *cells(one)), strict=True))
            for one in found.tasks[:SHOWN]
        ],
        not_known=not_known(found),
    )

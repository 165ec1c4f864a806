"""Pages from the templates of this package: one HTML file with all its pictures and styles.

A page is for a screen, for paper and for a screen reader. The templates escape all that they are given, so the name of a queue,
a task, a tenant or an exception is always text on a page, and never markup.
"""

from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from pgqueue.errors import ConfigurationError
from pgqueue.spark.report.figures import svg

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from pgqueue.spark.report.section import Plot


def require() -> None:
    """Check, before any work, that what makes pages is installed.

    Raises:
        ConfigurationError: the extra ``report`` is not installed.
    """
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"a page needs {' and '.join(missing)}, and {'it is' if len(missing) == 1 else 'they are'} not installed: "
            "pip install 'pgqueue[report]'"
        )


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


def picture(plot: "Plot", name: str) -> "Markup":
    """A picture as a part of a page; ``name`` is the prefix of its identifiers, unique in the page."""
    from markupsafe import Markup  # noqa: PLC0415 - of the extra "report"

    return Markup(ET.tostring(svg(plot, name), encoding="unicode", method="html"))  # noqa: S704 - ElementTree escapes it


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

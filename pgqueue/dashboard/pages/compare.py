"""What changed at an instant, such as a deploy: the same figures of each task, or queue, before and after it."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pgqueue.dashboard.filters import read_instant
from pgqueue.dashboard.page import Content, Page, Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.length import read_length

if TYPE_CHECKING:
    from pgqueue.values.insight.now import Which
LINES: Final = 100
"""Tasks, or queues, that are shown."""
DEPLOYS: Final = 8
"""The latest deploys, which are offered as instants."""
SINCE: Final = "1h"
"""How long before and after, and when, a comparison looks if the address says nothing."""


def read(visit: Visit) -> Content:
    """A comparison; the address says of which instant."""
    at, window, task = visit.text("at"), visit.text("window"), visit.text("task")
    by: Which = "queue" if visit.text("by") == "queue" else "task"
    found = visit.queue.insight.compare(_instant(at or SINCE), _length(window or SINCE), by=by, task=task)
    return {
        "at": at or SINCE,
        "window": window or SINCE,
        "task": task,
        "by": by,
        "deploys": visit.queue.insight.deploys()[:DEPLOYS],
        "found": {
            name: getattr(found, name)
            for name in ("before_since", "before_until", "after_since", "after_until")
        },
        "lines": found.lines[:LINES],
        "more": max(0, len(found.lines) - LINES),
        "worse": sum(one.worse for one in found.lines),
    }


def _instant(text: str) -> datetime:
    at = read_instant("at", text)
    return datetime.now(UTC) if at is None else at


def _length(text: str) -> timedelta:
    try:
        return read_length(text, above_zero=True)
    except InvalidOption as error:
        raise InvalidOption(f"window: {error}") from None


PAGE = Page(name="compare", path="/compare", title="Compare", read=read, place=15, every=None)

"""What changed at an instant, such as a deploy: tasks, or queues, that became slower or fail more, the worst first."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pgqueue.dashboard.filters import read_instant
from pgqueue.dashboard.page import Content, Page
from pgqueue.dashboard.visit import Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.length import read_length

if TYPE_CHECKING:
    from pgqueue.values.insight.now import Which

SHOWN: Final = 100
FIRST_AT: Final = "1h"
FIRST_WINDOW: Final = "1h"


def read(visit: Visit) -> Content:
    """A window before the instant beside one after it, which is as long."""
    at, window, task = visit.text("at"), visit.text("window"), visit.text("task")
    by: Which = "queue" if visit.text("by") == "queue" else "task"
    found = visit.queue.insight.compare(
        _instant(at or FIRST_AT), _length(window or FIRST_WINDOW), by=by, task=task
    )
    return {
        "at": at or FIRST_AT,
        "window": window or FIRST_WINDOW,
        "task": task,
        "by": by,
        "found": {
            name: getattr(found, name)
            for name in ("before_since", "before_until", "after_since", "after_until")
        },
        "lines": found.lines[:SHOWN],
        "more": max(0, len(found.lines) - SHOWN),
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

"""The tasks: all of them in a window, searched and sorted, and one of them with its charts and the errors of its dead jobs."""

from collections.abc import Callable, Mapping
from typing import Final

from pgqueue.dashboard.page import Content, Page, Visit
from pgqueue.dashboard.pages.windows import WINDOWS, chosen_window, window_charts
from pgqueue.errors import InvalidOption
from pgqueue.values.insight.comparison import failed_share
from pgqueue.values.insight.series import Figures, Spread, Total

ERRORS: Final = 10
"""Errors that are shown."""
TASKS: Final = 50
"""Tasks of a page."""


def _longest(spread: Spread | None) -> float:
    return spread.p95 if spread is not None else -1.0


SORTS: Final[Mapping[str, Callable[[Figures], float]]] = {
    "ended": lambda one: one.succeeded + one.failed,
    "failed": lambda one: one.failed,
    "failed share": lambda one: failed_share(one) or 0.0,
    "dead": lambda one: one.dead,
    "wait": lambda one: _longest(one.wait),
    "run": lambda one: _longest(one.run),
}
"""By what tasks are sorted, the highest first; without a word they are sorted by name."""


def _read_tasks(visit: Visit) -> Content:
    window, sort = chosen_window(visit), visit.text("sort") or "ended"
    if sort not in {*SORTS, "name"}:
        raise InvalidOption(f"sort={sort!r:.40}: use {', '.join([*SORTS, 'name'])}")
    wanted, first = visit.text("q"), max(0, visit.number("first") or 0)
    totals = visit.queue.insight.totals(WINDOWS[window], by="task")
    found = sorted((one for one in totals.lines if _matches(one, wanted)), key=lambda one: one.name or "")
    if sort != "name":
        found.sort(key=lambda one: SORTS[sort](one.figures), reverse=True)
    return {
        "window": window,
        "windows": [*WINDOWS],
        "sort": sort,
        "sorts": [*SORTS, "name"],
        "q": wanted,
        "tasks": found[first : first + TASKS],
        "count": len(found),
        "first": first,
        "before": max(0, first - TASKS) if first else None,
        "after": first + TASKS if first + TASKS < len(found) else None,
    }


def _matches(one: Total, wanted: str | None) -> bool:
    return wanted is None or (one.name is not None and wanted.lower() in one.name.lower())


def _read_task(visit: Visit) -> Content:
    window, task = chosen_window(visit), visit.name
    totals = visit.queue.insight.totals(WINDOWS[window], by="queue", task=task)
    errors = visit.queue.insight.errors(task=task, limit=ERRORS)
    return {
        "task": task,
        "window": window,
        "windows": [*WINDOWS],
        "charts": window_charts(visit, window, task=task),
        "queues": totals.lines,
        "errors": errors.groups,
        "complete": errors.complete,
        "counted": errors.jobs,
    }


PAGES = (
    Page(name="task", path="/task", title="Task", read=_read_task, under="overview", every=20),
    Page(name="tasks", path="/tasks", title="Tasks", read=_read_tasks, under="overview", every=20),
)

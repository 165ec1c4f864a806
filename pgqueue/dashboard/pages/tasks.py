"""One task: what happened to its jobs over a window, and why they died."""

from typing import Final

import msgspec

from pgqueue.dashboard.page import Content, Page
from pgqueue.dashboard.visit import Visit
from pgqueue.dashboard.windows import WINDOWS, charts, chosen_series, chosen_window

ERRORS: Final = 10
"""Errors that are shown."""


def read(visit: Visit) -> Content:
    """Its figures in the window, and the errors of its dead jobs."""
    window, task = chosen_window(visit), visit.name
    totals = visit.queue.insight.totals(WINDOWS[window], by="queue", task=task)
    errors = visit.queue.insight.errors(task=task, limit=ERRORS)
    return {
        "task": task,
        "window": window,
        "windows": [*WINDOWS],
        "charts": charts(chosen_series(visit, task=task)),
        "queues": totals.lines,
        "errors": [
            msgspec.structs.replace(
                one,
                message=visit.redaction.message(visit.chosen, one.last_job, one.message, visit.queue.job),
            )
            for one in errors.groups
        ],
        "complete": errors.complete,
        "counted": errors.jobs,
    }


PAGE = Page(name="task", path="/task", title="Task", read=read, under="overview", every=20)

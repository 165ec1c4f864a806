"""The queues, and one of them: how it stands, its settings and limits, what happened in it; it is paused, closed, set."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Page, PageAction, Visit
from pgqueue.dashboard.pages.queue_settings import ACTION as SETTINGS
from pgqueue.dashboard.pages.queue_settings import setting_texts
from pgqueue.dashboard.pages.windows import WINDOWS, chosen_window, depth_charts, window_charts
from pgqueue.dashboard.tables import Table
from pgqueue.values.queues.served_queues import is_served
from pgqueue.values.queues.standing import QueueStanding

STATES: Final[dict[str, Callable[[QueueStanding, int], bool]]] = {
    "with ready jobs": lambda one, _: one.ready > 0,
    "with dead jobs": lambda one, _: one.dead > 0,
    "paused": lambda one, _: one.paused_at is not None,
    "closed": lambda one, _: one.closed_at is not None,
    "without workers": lambda _, workers: not workers,
}
COUNTED: Final = ("ready", "running", "scheduled", "blocked", "dead", "rate")


def read(visit: Visit) -> Content:
    """All queues."""
    queues = visit.standings
    serving = _count_serving(visit, [one.queue for one in queues])
    table = Table(
        visit,
        queues,
        name=lambda one: one.queue,
        states={
            name: partial(lambda holds, one: holds(one, serving[one.queue]), holds)
            for name, holds in STATES.items()
        },
        sorts={
            "name": lambda one: one.queue,
            **{name: partial(_most_first, name) for name in COUNTED},
            "oldest": lambda one: (-(one.oldest_ready or 0.0), one.queue),
            "workers": lambda one: (serving[one.queue], one.queue),
        },
    )
    if visit.endpoint != "queues":
        return {"queues": table.all, "serving": serving}
    largest = max((one.ready for one in table.all), default=0)
    return {"queues": table.rows, "serving": serving, "table": table, "largest": largest}


def _most_first(field: str, one: QueueStanding) -> tuple[float, str]:
    return -getattr(one, field), one.queue


def _count_serving(visit: Visit, queues: Sequence[str]) -> dict[str, int]:
    """How many live workers serve each queue."""
    entries = Counter(one.queues for one in visit.queue.workers.list() if one.alive)
    return {
        queue: sum(count for served, count in entries.items() if served is None or is_served(served, queue))
        for queue in queues
    }


def read_one(visit: Visit) -> Content:
    """One queue, and what happened in it."""
    window, standing = chosen_window(visit), visit.standing
    totals = visit.queue.insight.totals(WINDOWS[window], by="task", queue=standing.queue)
    return {
        "queue": standing,
        "settings": [(name, value) for name, value in setting_texts(standing.settings).items() if value],
        "limit": next(
            (one for one in visit.queue.insight.limits() if one.name == f"queue:{standing.queue}"), None
        ),
        "workers": [
            one for one in visit.queue.workers.list() if one.alive and is_served(one.queues, standing.queue)
        ],
        "charts": [
            *window_charts(visit, window, queue=standing.queue),
            *depth_charts(visit, window, queue=standing.queue),
        ],
        "tasks": totals.lines,
        "window": window,
        "windows": [*WINDOWS],
    }


def _ask(
    visit: Visit, *, title: str, button: str, text: str, possible: Callable[[QueueStanding], bool]
) -> ActionQuestion:
    standing = visit.standing
    return ActionQuestion(
        title=title.format(standing.queue),
        text=text if possible(standing) else "This holds already.",
        button=button,
        back=_back(visit),
        destroys=False,
        facts=(("Ready jobs", f"{standing.ready:,}"), ("Running jobs", f"{standing.running:,}")),
        possible=possible(standing),
    )


def _pause(visit: Visit) -> ActionResult:
    done = visit.queue.control.pause(visit.standing.queue, why=visit.why, by=visit.by)
    return _result(visit, "is paused" if done else "was paused already", well=done)


def _close(visit: Visit) -> ActionResult:
    done = visit.queue.control.close(visit.standing.queue, why=visit.why, by=visit.by)
    return _result(visit, "takes no new jobs" if done else "was closed already", well=done)


def _resume(visit: Visit) -> ActionResult:
    done = visit.queue.control.resume(visit.standing.queue, by=visit.by)
    return _result(visit, "is resumed" if done else "was neither paused nor closed", well=done)


def _result(visit: Visit, words: str, *, well: bool = True) -> ActionResult:
    return ActionResult(f"Queue {visit.name} {words}.", _back(visit), well=well)


def _back(visit: Visit) -> str:
    return visit.url("queue", name=visit.name)


def _action(  # noqa: PLR0917 - a row of a table
    name: str,
    title: str,
    button: str,
    do: Callable[..., ActionResult],
    text: str,
    possible: Callable[[QueueStanding], bool],
) -> PageAction:
    return PageAction(
        name=f"queue-{name}",
        path=f"/queue/{name}",
        right=Right.PAUSE,
        ask=partial(_ask, title=title, button=button, text=text, possible=possible),
        do=do,
        under="queues",
    )


PAGES = (
    Page(name="queues", path="/queues", title="Queues", read=read, place=20, every=10),
    Page(name="queue", path="/queue", title="Queue", read=read_one, under="queues", every=20),
)
ACTIONS = (
    _action(
        "pause",
        "Pause queue {}?",
        "Pause",
        _pause,
        "No worker claims its jobs until it is resumed. What runs goes on, and new jobs are taken.",
        lambda one: one.paused_at is None,
    ),
    _action(
        "close",
        "Stop taking new jobs into queue {}?",
        "Stop taking new jobs",
        _close,
        "Enqueues to it fail until it is resumed. Its jobs run, so it becomes empty.",
        lambda one: one.closed_at is None,
    ),
    _action(
        "resume",
        "Resume queue {}?",
        "Resume",
        _resume,
        "Workers claim its jobs again, and it takes new ones.",
        lambda one: one.paused_at is not None or one.closed_at is not None,
    ),
    SETTINGS,
)

"""The queues, and one of them: how it stands, its settings and limits, what happened in it; it is paused, drained, set."""

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

import msgspec
from werkzeug.exceptions import NotFound

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.dashboard.pages.overview import (
    WINDOWS,
    charts,
    chosen_depths,
    chosen_series,
    chosen_window,
    deep_charts,
)
from pgqueue.errors import InvalidOption
from pgqueue.values.length import WRITTEN, read_length
from pgqueue.values.queues.served_queues import is_served
from pgqueue.values.queues.settings import QueueSettings
from pgqueue.values.queues.standing import QueueStanding

_A_LENGTH: Final = f"{WRITTEN}; empty: nothing is said"
_A_NUMBER: Final = "empty: nothing is said"
HINTS: Final = {
    "priority": _A_NUMBER,
    "max_attempts": _A_NUMBER,
    "timeout": _A_LENGTH,
    "keep_history": "yes or no; empty: nothing is said",
    "keep_dead": _A_LENGTH,
    "backlog": "ready jobs from which on it is full; empty: nothing is said",
    "when_full": "warn or refuse; empty: nothing is said",
    "ageing": f"the wait that is worth one priority: {_A_LENGTH}",
    "ageing_to": _A_NUMBER,
}
_WORDS: Final = {"yes": True, "no": False}


def read(visit: Visit) -> Content:
    """All queues."""
    queues = visit.standings
    return {"queues": queues}


def read_one(visit: Visit) -> Content:
    """One queue, and what happened in it."""
    window, standing = chosen_window(visit), _queue_standing(visit)
    totals = visit.queue.insight.totals(WINDOWS[window], by="task", queue=standing.queue)
    return {
        "queue": standing,
        "settings": [(name, value) for name, value in _form_texts(standing.settings).items() if value],
        "limit": next(
            (one for one in visit.queue.insight.limits() if one.name == f"queue:{standing.queue}"), None
        ),
        "workers": [
            one for one in visit.queue.workers.list() if one.alive and is_served(one.queues, standing.queue)
        ],
        "charts": [
            *charts(chosen_series(visit, queue=standing.queue)),
            *deep_charts(chosen_depths(visit, queue=standing.queue)),
        ],
        "tasks": totals.lines,
        "window": window,
        "windows": [*WINDOWS],
    }


def _queue_standing(visit: Visit) -> QueueStanding:
    for one in visit.standings:
        if one.queue == visit.name:
            return one
    raise NotFound(f"There is no queue {visit.name!r:.120} with jobs, settings or a state.")


def _form_texts(settings: QueueSettings) -> dict[str, str]:
    return {name: _one(value) for name, value in msgspec.structs.asdict(settings).items()}


def _one(value: object) -> str:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return f"{int(seconds) if seconds == int(seconds) else seconds}s"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _read(name: str, text: str) -> Any:  # noqa: ANN401 - the setting's own type
    if name in {"timeout", "keep_dead", "ageing"}:
        try:
            return read_length(text)
        except InvalidOption as error:
            raise InvalidOption(f"{name}: {error}") from None
    if name == "keep_history":
        if text not in _WORDS:
            raise InvalidOption(f"{name}={text!r:.40}: write yes or no")
        return _WORDS[text]
    if name == "when_full":
        return text
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise InvalidOption(f"{name}={text!r:.40}: write a whole number")
    return int(text)


def _ask(visit: Visit, *, verb: str, text: str, possible: Callable[[QueueStanding], bool]) -> ActionQuestion:
    standing = _queue_standing(visit)
    return ActionQuestion(
        title=f"{verb} queue {standing.queue}?",
        text=text if possible(standing) else "This holds already.",
        button=verb,
        back=_back(visit),
        destroys=False,
        fields=() if verb == "Resume" else (Field(name="why", label="Why", hint="for people to read"),),
        facts=(("Ready jobs", f"{standing.ready:,}"), ("Running jobs", f"{standing.running:,}")),
        possible=possible(standing),
    )


def _pause(visit: Visit) -> ActionResult:
    done = visit.queue.control.pause(
        _queue_standing(visit).queue, why=visit.field("why") or None, by=visit.by
    )
    return _result(visit, "is paused" if done else "was paused already", well=done)


def _drain(visit: Visit) -> ActionResult:
    done = visit.queue.control.drain(
        _queue_standing(visit).queue, why=visit.field("why") or None, by=visit.by
    )
    return _result(visit, "takes no new jobs" if done else "was drained already", well=done)


def _resume(visit: Visit) -> ActionResult:
    done = visit.queue.control.resume(_queue_standing(visit).queue, by=visit.by)
    return _result(visit, "is resumed" if done else "was neither paused nor drained", well=done)


def _ask_settings(visit: Visit) -> ActionQuestion:
    standing = _queue_standing(visit)
    return ActionQuestion(
        title=f"Settings of queue {standing.queue}",
        text="They hold for its jobs where their enqueue and their task say nothing. Running workers keep them within a second.",
        button="Store",
        back=_back(visit),
        destroys=False,
        fields=tuple(
            Field(name=name, label=name.replace("_", " ").capitalize(), value=value, hint=HINTS[name])
            for name, value in _form_texts(standing.settings).items()
        ),
    )


def _set(visit: Visit) -> ActionResult:
    standing = _queue_standing(visit)
    before = _form_texts(standing.settings)
    changed = {
        name: visit.field(name)
        for name in before
        if name in visit.request.form and visit.field(name) != before[name]
    }
    given = {name: _read(name, text) for name, text in changed.items() if text}
    unset = [name for name, text in changed.items() if not text]
    if changed:
        visit.queue.control.set(standing.queue, unset=unset, by=visit.by, **given)
    return _result(visit, "has these settings now" if changed else "has these settings already")


def _result(visit: Visit, words: str, *, well: bool = True) -> ActionResult:
    return ActionResult(f"Queue {visit.name} {words}.", _back(visit), well=well)


def _back(visit: Visit) -> str:
    return visit.url("queue", name=visit.name)


def _action(
    name: str, do: Callable[..., ActionResult], text: str, possible: Callable[[QueueStanding], bool]
) -> PageAction:
    return PageAction(
        name=f"queue-{name}",
        path=f"/queue/{name}",
        right=Right.PAUSE,
        ask=partial(_ask, verb=name.capitalize(), text=text, possible=possible),
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
        _pause,
        "No worker claims its jobs until it is resumed. What runs goes on, and new jobs are taken.",
        lambda one: one.paused_at is None,
    ),
    _action(
        "drain",
        _drain,
        "Enqueues to it fail until it is resumed. Its jobs run, so it becomes empty.",
        lambda one: one.drained_at is None,
    ),
    _action(
        "resume",
        _resume,
        "Workers claim its jobs again, and it takes new ones.",
        lambda one: one.paused_at is not None or one.drained_at is not None,
    ),
    PageAction(
        name="queue-set", path="/queue/set", right=Right.SET, ask=_ask_settings, do=_set, under="queues"
    ),
)

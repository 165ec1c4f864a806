"""The form of a queue's settings: what is set, what holds where nothing is, in which unit, and what each is for."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Field, PageAction, Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.length import WRITTEN, read_length
from pgqueue.values.queues.defaults import PACKAGE
from pgqueue.values.queues.settings import QueueSettings
from pgqueue.values.workers.lease import duration_text

LENGTHS: Final = frozenset({"timeout", "keep_history", "keep_dead", "ageing"})
NUMBERS: Final = frozenset({"priority", "max_attempts", "backlog", "ageing_to"})
MEANT: Final = {
    "priority": "of jobs whose task names none, -100 to 100; a higher one runs sooner",
    "max_attempts": "attempts after which a job is dead",
    "timeout": f"for how long an attempt may run: {WRITTEN}",
    "keep_history": "for how long ended jobs are kept, in days: 30d; 0: jobs that succeed are not kept",
    "keep_dead": f"for how long dead jobs are kept: {WRITTEN}",
    "backlog": "ready jobs from which on the queue is full",
    "when_full": "what an enqueue to the full queue does",
    "ageing": f"a wait of this length is worth one priority: {WRITTEN}",
    "ageing_to": "the highest priority that waiting gives, 1 to 100",
}
"""What each setting is for, and its unit."""
CHOICES: Final = (
    ("", "not set: it logs a warning"),
    ("warn", "warn: it logs a warning"),
    ("refuse", "refuse: it fails"),
)


def setting_texts(settings: QueueSettings) -> dict[str, str]:
    """The settings as a form has them; empty: nothing is said."""
    return {name: _text(value) for name, value in msgspec.structs.asdict(settings).items()}


def _text(value: object) -> str:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return f"{int(seconds) if seconds == int(seconds) else seconds}s"
    return "" if value is None else str(value)


def _held(visit: Visit) -> Mapping[str, str]:
    """What holds where nothing is set."""
    kept = {one.what: one.keeps for one in visit.queue.insight.retention() if one.queue is None}
    return {
        "priority": str(PACKAGE.priority),
        "max_attempts": str(PACKAGE.max_attempts),
        "timeout": "no limit",
        "keep_history": _kept(kept.get("history")),
        "keep_dead": _kept(kept.get("dead jobs")),
        "backlog": "it is never full",
        "ageing": "a wait changes no priority",
        "ageing_to": "100",
    }


def _kept(length: timedelta | None) -> str:
    return (
        "for ever" if length is None else f"{duration_text(length.total_seconds())}, as in the whole database"
    )


def _ask(visit: Visit) -> ActionQuestion:
    texts, held = setting_texts(_settings(visit)), _held(visit)
    return ActionQuestion(
        title=f"Settings of queue {visit.name}",
        text="They hold for its jobs where the enqueue and the task say nothing. Running workers keep them within a second.",
        button="Store",
        back=visit.url("queue", name=visit.name),
        destroys=False,
        fields=tuple(_field(name, text, held.get(name)) for name, text in texts.items()),
    )


def _field(name: str, text: str, held: str | None) -> Field:
    label = name.replace("_", " ").capitalize()
    if held is None:
        return Field(name=name, label=label, kind="select", value=text, hint=MEANT[name], options=CHOICES)
    kind: Any = "number" if name in NUMBERS else "text"
    return Field(name=name, label=label, kind=kind, value=text, hint=f"{MEANT[name]}; empty: {held}")


def _set(visit: Visit) -> ActionResult:
    before = setting_texts(_settings(visit))
    changed = {
        name: visit.field(name)
        for name in before
        if name in visit.request.form and visit.field(name) != before[name]
    }
    given = {name: _read(name, text) for name, text in changed.items() if text}
    unset = [name for name, text in changed.items() if not text]
    if changed:
        visit.queue.control.set(visit.name, unset=unset, by=visit.by, **given)
    said = "has these settings now" if changed else "has these settings already"
    return ActionResult(f"Queue {visit.name} {said}.", visit.url("queue", name=visit.name))


def _settings(visit: Visit) -> QueueSettings:
    return visit.standing.settings


def _read(name: str, text: str) -> Any:  # noqa: ANN401 - the setting's own type
    if name in LENGTHS:
        try:
            return read_length(text)
        except InvalidOption as error:
            raise InvalidOption(f"{name}: {error}") from None
    if name == "when_full":
        return text
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise InvalidOption(f"{name}={text!r:.40}: write a whole number")
    return int(text)


ACTION = PageAction(name="queue-set", path="/queue/set", right=Right.SET, ask=_ask, do=_set, under="queues")

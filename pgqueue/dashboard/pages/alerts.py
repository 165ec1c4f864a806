"""The alerts: how each stands and what the last look found; they are silenced for a time, and told again."""

from datetime import UTC
from typing import Final

from werkzeug.exceptions import NotFound

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.alerts.state import AlertStatus
from pgqueue.values.length import WRITTEN, read_length

USUAL: Final = "1h"
"""The length of a silence that the form proposes."""


def read(visit: Visit) -> Content:
    """Every alert, active ones first."""
    return {"alerts": sorted(visit.queue.alerts.list(), key=lambda one: (not one.active, one.name))}


def _ask(visit: Visit) -> ActionQuestion:
    found = _one(visit)
    return ActionQuestion(
        title=f"Silence alert {found.name}?",
        text="Its task is told nothing for this time; looks go on. If it still holds then, its task is told.",
        button="Silence",
        back=visit.url("alerts"),
        destroys=False,
        fields=(Field(name="length", label="For", value=USUAL, hint=WRITTEN, required=True),),
        facts=_facts(found),
    )


def _silence(visit: Visit) -> ActionResult:
    try:
        length = read_length(visit.field("length"), above_zero=True)
    except InvalidOption as error:
        raise InvalidOption(f"For: {error}") from None
    until = visit.queue.alerts.silence(visit.name, length, by=visit.by)
    end = "" if until is None else f" until {until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return ActionResult(f"Alert {visit.name} is silenced{end}.", visit.url("alerts"))


def _ask_again(visit: Visit) -> ActionQuestion:
    found = _one(visit)
    possible = found.silenced_until is not None
    return ActionQuestion(
        title=f"Tell the task of alert {found.name} again?",
        text="Its silence ends now. If the alert holds, its task is told at the next look."
        if possible
        else "It is not silenced.",
        button="Tell again",
        back=visit.url("alerts"),
        destroys=False,
        facts=_facts(found),
        possible=possible,
    )


def _tell_again(visit: Visit) -> ActionResult:
    visit.queue.alerts.unsilence(visit.name, by=visit.by)
    return ActionResult(f"The task of alert {visit.name} is told again.", visit.url("alerts"))


def _one(visit: Visit) -> AlertStatus:
    for one in visit.queue.alerts.list():
        if one.name == visit.name:
            return one
    raise NotFound(f"There is no alert {visit.name!r:.120}.")


def _facts(found: AlertStatus) -> tuple[tuple[str, object], ...]:
    return (("State", found.state), ("Found", found.summary or "—"), ("Told", found.task))


PAGE = Page(name="alerts", path="/alerts", title="Alerts", read=read, place=65)
ACTIONS = (
    PageAction(
        name="alert-silence",
        path="/alert/silence",
        right=Right.SILENCE,
        ask=_ask,
        do=_silence,
        under="alerts",
    ),
    PageAction(
        name="alert-unsilence",
        path="/alert/unsilence",
        right=Right.SILENCE,
        ask=_ask_again,
        do=_tell_again,
        under="alerts",
    ),
)

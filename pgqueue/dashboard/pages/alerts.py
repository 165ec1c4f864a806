"""The alerts, and one of them: its rule, how it stands, whom it notified, who silenced it and why; it is silenced there."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any, Final

from werkzeug.exceptions import NotFound

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.audit_words import sentence
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.errors import InvalidOption, JobNotFound, NotGranted
from pgqueue.values.alerts.state import AlertStatus
from pgqueue.values.alerts.words import about_of, meaning_of
from pgqueue.values.bulk.operation import AuditEntry
from pgqueue.values.length import WRITTEN, read_length

USUAL: Final = "1h"
"""The length of a silence that the form proposes."""
NOTIFIED: Final = 200
"""Jobs of the task of an alert among which its notifications are."""
STEPS: Final = 20
"""What operators did with an alert that is shown."""


def read(visit: Visit) -> Content:
    """Every alert, active ones first."""
    found = sorted(visit.queue.alerts.list(), key=lambda one: (not one.active, one.name))
    return {"alerts": found, "about": {one.name: about_of(one.rule) for one in found}}


def read_one(visit: Visit) -> Content:
    """One alert."""
    found = _one(visit)
    steps = [
        one
        for one in visit.queue.insight.audit(target=found.name, limit=STEPS)
        if one.action.startswith("alert ")
    ]
    notified = _notified(visit, found)
    return {
        "alert": found,
        "meaning": meaning_of(found.rule),
        "about": about_of(found.rule),
        "why": _why(found, steps),
        "notified": notified,
        "steps": steps,
        "sentences": [sentence(one) for one in steps],
    }


def _notified(visit: Visit, found: AlertStatus) -> Sequence[dict[str, Any]] | None:
    """The jobs by which the task of an alert was notified, latest first; None: this login may not read arguments."""
    try:
        # A search reads the last 100,000 jobs; the alert knows the last one of its task, however old it is.
        jobs = [*visit.queue.insight.search(task=found.task, limit=NOTIFIED).jobs]
        if found.job_id is not None and found.job_id not in {one.id for one in jobs}:
            with suppress(JobNotFound):
                jobs.append(visit.queue.job(found.job_id))
    except NotGranted:
        return None
    said = [(job, job.args.get(found.argument)) for job in jobs]
    return [
        {
            "job": job.id,
            "job_state": str(job.state),
            "at": job.created_at,
            "state": str(told.get("state")),
            "summary": visit.redaction.text(str(told.get("summary") or "")),
            "reminder": told.get("reminder"),
        }
        for job, told in said
        if isinstance(told, dict) and told.get("name") == found.name
    ]


def _why(found: AlertStatus, steps: Sequence[AuditEntry]) -> str | None:
    """Why it is silenced; None: it is not, or no reason was given."""
    if found.silenced_until is None:
        return None
    latest = next((one for one in steps if one.action == "alert silence"), None)
    why = None if latest is None or latest.details is None else latest.details.get("why")
    return None if why is None else str(why)


def _ask(visit: Visit) -> ActionQuestion:
    found = _one(visit)
    return ActionQuestion(
        title=f"Silence alert {found.name}?",
        text="Its task is not notified for this time; workers go on checking. If the condition holds then, the task is notified.",
        button="Silence",
        back=visit.url("alert", name=found.name),
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
    return ActionResult(f"Alert {visit.name} is silenced{end}.", visit.url("alert", name=visit.name))


def _ask_unsilence(visit: Visit) -> ActionQuestion:
    found = _one(visit)
    possible = found.silenced_until is not None
    return ActionQuestion(
        title=f"End the silence of alert {found.name}?",
        text="If its condition holds at the next check, its task is notified."
        if possible
        else "It is not silenced.",
        button="End silence",
        back=visit.url("alert", name=found.name),
        destroys=False,
        facts=_facts(found),
        possible=possible,
    )


def _unsilence(visit: Visit) -> ActionResult:
    visit.queue.alerts.unsilence(visit.name, by=visit.by)
    return ActionResult(f"Alert {visit.name} is not silenced any more.", visit.url("alert", name=visit.name))


def _one(visit: Visit) -> AlertStatus:
    for one in visit.queue.alerts.list():
        if one.name == visit.name:
            return one
    raise NotFound(f"There is no alert {visit.name!r:.120}.")


def _facts(found: AlertStatus) -> tuple[tuple[str, object], ...]:
    return (("State", found.state), ("Found", found.summary or "—"), ("Notifies", found.task))


PAGES = (
    Page(name="alerts", path="/alerts", title="Alerts", read=read, place=65),
    Page(name="alert", path="/alert", title="Alert", read=read_one, under="alerts"),
)
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
        ask=_ask_unsilence,
        do=_unsilence,
        under="alerts",
    ),
)

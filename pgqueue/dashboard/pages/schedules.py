"""The schedules, and one of them: its next ticks and what clock changes do to them, its runs; what can be done with it."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.filters import read_instant
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.schedules.zone import find_zone

SHOWN: Final = 200
TICKS: Final = 15
"""Next ticks, and runs, that are shown of a schedule."""
ANY: Final = frozenset({"active", "paused", "ended", "set aside"})
"""The states of a schedule."""
INSTANT: Final = "in the past: an age such as 2h, or 2026-11-23T14:00 in UTC"


def read(visit: Visit) -> Content:
    """All schedules, the latest first."""
    found = visit.queue.insight.schedules(limit=SHOWN + 1)
    return {"schedules": found[:SHOWN], "more": len(found) > SHOWN}


def read_one(visit: Visit) -> Content:
    """One schedule, its next ticks and its runs."""
    found = visit.queue.schedules.get(visit.name)
    there = find_zone(found.timing.timezone) if found.timing else ZoneInfo("UTC")
    ticks = visit.queue.schedules.next(visit.name, count=TICKS) if found.timing else []
    return {
        "schedule": msgspec.structs.replace(
            found,
            args=visit.redaction.value(found.args),
            meta=visit.redaction.value(found.meta),
            unique_key=visit.redaction.text(found.unique_key),
        ),
        "state": found.state,
        "zone": str(there),
        "ticks": [
            {
                "at": tick.at,
                "there": f"{tick.at.astimezone(there):%a %Y-%m-%d %H:%M:%S %z}",
                "note": tick.note,
                "runs": tick.runs,
            }
            for tick in ticks
        ],
        "runs": visit.queue.schedules.runs(visit.name, limit=TICKS),
    }


def _ask(
    visit: Visit,
    *,
    verb: str,
    text: str,
    states: Collection[str],
    fields: tuple[Field, ...] = (),
    destroys: bool = False,
) -> ActionQuestion:
    found = visit.queue.schedules.get(visit.name)
    possible = found.state in states
    declared = (
        f" {found.module} declares it: a worker of it that starts adds it again." if found.module else ""
    )
    return ActionQuestion(
        title=f"{verb} schedule {visit.name}?",
        text=text + (declared if destroys else "")
        if possible
        else f"It is {found.state}, so this cannot be done.",
        button=verb,
        back=_back(visit),
        destroys=destroys,
        fields=fields,
        facts=(("When", found.rule), ("Task", found.task), ("Queue", found.queue), ("State", found.state)),
        possible=possible,
    )


def _pause(visit: Visit) -> ActionResult:
    done = visit.queue.schedules.pause(visit.name, by=visit.by)
    return _result(visit, "is paused" if done else "was paused already", well=done)


def _resume(visit: Visit) -> ActionResult:
    done = visit.queue.schedules.resume(visit.name, by=visit.by)
    return _result(visit, "is resumed" if done else "was not paused", well=done)


def _fire(visit: Visit) -> ActionResult:
    handle = visit.queue.schedules.fire(visit.name, by=visit.by)
    if handle is None:
        return _result(visit, "has not fired: a live job has its unique key", well=False)
    return _result(visit, f"has fired: job {handle.id}")


def _remove(visit: Visit) -> ActionResult:
    done = visit.queue.schedules.remove(visit.name, by=visit.by)
    said = "is removed" if done else "had been removed already"
    return ActionResult(f"Schedule {visit.name} {said}.", visit.url("schedules"), well=done)


def _fill(visit: Visit) -> ActionResult:
    start, end = (read_instant(name, visit.field(name) or None) for name in ("start", "end"))
    if start is None or end is None:
        raise InvalidOption("start and end: write an age such as 2h, or 2026-11-23T14:00")
    runs = visit.queue.schedules.backfill(visit.name, start, end, by=visit.by)
    fired = f"{len(runs):,} tick{'' if len(runs) == 1 else 's'}"
    return _result(visit, f"has fired {fired} of that time", well=bool(runs))


def _result(visit: Visit, words: str, *, well: bool = True) -> ActionResult:
    return ActionResult(f"Schedule {visit.name} {words}.", _back(visit), well=well)


def _back(visit: Visit) -> str:
    return visit.url("schedule", name=visit.name)


def _action(
    name: str,
    do: Callable[..., ActionResult],
    text: str,
    states: Collection[str] = ANY,
    *,
    fields: tuple[Field, ...] = (),
    destroys: bool = False,
) -> PageAction:
    verb = name.capitalize()
    return PageAction(
        name=f"schedule-{name}",
        path=f"/schedule/{name}",
        right=Right.SCHEDULE,
        ask=partial(_ask, verb=verb, text=text, states=states, fields=fields, destroys=destroys),
        do=do,
        under="schedules",
    )


PAGES = (
    Page(name="schedules", path="/schedules", title="Schedules", read=read, place=60),
    Page(name="schedule", path="/schedule", title="Schedule", read=read_one, under="schedules"),
)
ACTIONS = (
    _action("pause", _pause, "None of its ticks fires until it is resumed.", ANY - {"paused"}),
    _action(
        "resume",
        _resume,
        "Its ticks fire again. Those that became due meanwhile were missed: its rule says which of them fire.",
        {"paused", "set aside"},
    ),
    _action("fire", _fire, "A job of it is enqueued now; its next tick stays."),
    _action(
        "backfill",
        _fill,
        "The ticks of a stretch of the past that have not fired are fired now, in order: a job for each.",
        fields=(
            Field(name="start", label="From", hint=INSTANT, required=True),
            Field(name="end", label="To", hint=INSTANT, required=True),
        ),
    ),
    _action("remove", _remove, "It is deleted, and none of its ticks fires. Its jobs stay.", destroys=True),
)

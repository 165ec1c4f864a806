"""The schedules, and one of them: its rule in words, its next ticks and its runs; it is fired, paused, resumed and removed.

The forms that add and change one are in ``schedule_forms.py``.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, tzinfo
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.filters import read_instant
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.insight.now import ScheduleLag
from pgqueue.values.schedules.schedule import ScheduleRun, Timing
from pgqueue.values.schedules.words import rule_in_words
from pgqueue.values.schedules.zone import find_zone

SHOWN: Final = 100
DOTS: Final = 10
"""The last runs of each schedule of the list."""
TICKS: Final = 15
"""Next ticks, and runs, that are shown of a schedule."""
ANY: Final = frozenset({"active", "paused", "ended", "set aside"})
"""The states of a schedule."""
INSTANT: Final = "in the past: an age such as 2h, or 2026-11-23T14:00 in UTC"


def read(visit: Visit) -> Content:
    """All schedules, the latest first, and the last runs of each."""
    found = visit.queue.insight.schedules(limit=SHOWN + 1)
    shown = found[:SHOWN]
    runs = visit.queue.schedules.last_runs([one.name for one in shown], limit=DOTS)
    return {
        "schedules": shown,
        "more": len(found) > SHOWN,
        "rules": {one.name: _rule(one.timing) for one in shown},
        "next": {one.name: _local(one) for one in shown},
        "runs": {name: some[::-1] for name, some in runs.items()},
    }


def _rule(timing: Timing | None) -> dict[str, str | None]:
    """A rule in words, and the cron expression, if it has one."""
    if timing is None:
        return {"words": "it makes no sense", "cron": None}
    return {"words": rule_in_words(timing), "cron": timing.cron}


def _local(one: ScheduleLag) -> str | None:
    """The next tick in the schedule's time zone."""
    if one.next_at is None or one.timing is None:
        return None
    return f"{one.next_at.astimezone(find_zone(one.timing.timezone)):%a %H:%M:%S}"


def read_one(visit: Visit) -> Content:
    """One schedule, its next ticks and its runs."""
    found = visit.queue.schedules.get(visit.name)
    zone = find_zone(found.timing.timezone) if found.timing else ZoneInfo("UTC")
    ticks = visit.queue.schedules.next(visit.name, count=TICKS) if found.timing else []
    runs = visit.queue.schedules.runs(visit.name, limit=TICKS)
    return {
        "schedule": found,
        "state": found.state,
        "rule": _rule(found.timing),
        "zone": str(zone),
        "in_utc": any(
            not _is_utc(one, zone) for one in (*(tick.at for tick in ticks), *(run.at for run in runs))
        ),
        "clock_changes": any(tick.note for tick in ticks),
        "ticks": [
            {"at": tick.at, "there": _there(tick.at, zone), "note": tick.note, "runs": tick.runs}
            for tick in ticks
        ],
        "runs": runs,
        "runs_there": [_there(run.at, zone) for run in runs],
        "dots": _dots(runs),
    }


def _dots(runs: Sequence[ScheduleRun]) -> list[ScheduleRun]:
    return [*runs[:DOTS]][::-1]


def _there(at: datetime, zone: tzinfo) -> str:
    return f"{at.astimezone(zone):%a %Y-%m-%d %H:%M:%S}"


def _is_utc(at: datetime, zone: tzinfo) -> bool:
    return not at.astimezone(zone).utcoffset()


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

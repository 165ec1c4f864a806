"""The forms that add a schedule and change one. They change those that people made; what code declares, its code changes.

They are checked by what the API checks, and a person needs the right to enqueue, too, since each tick enqueues a job.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import available_timezones

import msgspec
from werkzeug.exceptions import Forbidden

from pgqueue.app.named import NamedOptions, named_job
from pgqueue.app.schedules.declared_schedules import require_stored
from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Field, PageAction, Visit
from pgqueue.errors import InvalidOption, PayloadNotEncodable, PayloadTooLarge, UnknownTask
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.length import read_length
from pgqueue.values.payloads.schema import example_of, parameters_of
from pgqueue.values.schedules.schedule import Schedule, ScheduleChange, Timing
from pgqueue.values.schedules.zone import find_zone
from pgqueue.values.secret_forms import HIDDEN

MOST: Final = 1_000
"""Tasks to choose from."""
RULE: Final = "cron: 0 9 * * MON-FRI, or @daily; a time between two ticks: 15m, 2h, 7d; or one instant: 2026-11-23T14:00"
OBJECT: Final = "a JSON object, by the names of the parameters"


def _ask_add(visit: Visit) -> ActionQuestion:
    _check_right(visit)
    task = visit.text("task")
    known = visit.queue.insight.known_tasks(limit=MOST)
    schema = _schema(next((one.arguments for one in known if one.name == task), None))
    return ActionQuestion(
        title="Add a schedule",
        text="A job of the task is enqueued at each tick.",
        button="Add",
        back=visit.url("schedules"),
        destroys=False,
        facts=parameters_of(schema),
        fields=(
            Field(name="name", label="Name", hint="such as: report of customer 42", required=True),
            *_fields([one.name for one in known], task or "", "", "UTC", _pretty(example_of(schema))),
        ),
    )


def _ask_edit(visit: Visit) -> ActionQuestion:
    _check_right(visit)
    found = visit.queue.schedules.get(visit.name)
    timing = found.timing
    return ActionQuestion(
        title=f"Change schedule {visit.name}",
        text=f"{found.module} declares it: change it in that code, and a worker that starts stores it."
        if found.module
        else "Another rule invents no ticks of the past. Its other options stay.",
        button="Store",
        back=visit.url("schedule", name=visit.name),
        destroys=False,
        possible=found.module is None,
        fields=_fields(
            [one.name for one in visit.queue.insight.known_tasks(limit=MOST)],
            found.task,
            "" if timing is None else _written(timing),
            "UTC" if timing is None else timing.timezone,
            _pretty(visit.redaction.value(found.args)),
        ),
    )


def _check_right(visit: Visit) -> None:
    if not visit.can(Right.ENQUEUE):
        raise Forbidden("You do not have the right 'enqueue', which this needs besides 'schedule'.")


def _fields(tasks: list[str], task: str, rule: str, zone: str, arguments: str) -> tuple[Field, ...]:
    return (
        Field(name="task", label="Task", value=task, options=tasks, required=True),
        Field(name="rule", label="Rule", value=rule, hint=RULE, required=True),
        Field(
            name="timezone",
            label="Time zone",
            value=zone,
            hint="of the rule, such as Europe/London",
            options=sorted(available_timezones()),
            required=True,
        ),
        Field(name="arguments", label="Arguments", kind="area", value=arguments, hint=OBJECT),
    )


def _add(visit: Visit) -> ActionResult:
    _check_right(visit)
    name = visit.field("name")
    job = _job(visit, _arguments(visit), {})
    _store(visit, name, job, _timing(visit, None), ScheduleChange.ADDED)
    return ActionResult(f"Schedule {name} is added.", visit.url("schedule", name=name))


def _edit(visit: Visit) -> ActionResult:
    _check_right(visit)
    found = visit.queue.schedules.get(visit.name)
    if found.module is not None:
        raise InvalidOption(f"{found.module} declares schedule {visit.name!r}: change it in that code")
    shown = visit.redaction.value(found.args)
    arguments = _arguments(visit)
    if visit.field("task") == found.task:  # another task may show what this one hides
        arguments = restored(arguments, shown, found.args)
    if HIDDEN in _pretty(arguments):
        raise InvalidOption(
            f"arguments: {HIDDEN} stands for a hidden value that is not there any more; write the value itself"
        )
    job = _job(visit, arguments, _kept(visit, found))
    done = _store(visit, visit.name, job, _timing(visit, found.timing), ScheduleChange.CHANGED)
    said = "is as it was" if done is ScheduleChange.UNCHANGED else "is changed"
    return ActionResult(f"Schedule {visit.name} {said}.", visit.url("schedule", name=visit.name))


def _kept(visit: Visit, found: Schedule) -> NamedOptions:
    """What the form does not show, and a change keeps; another task has a queue of its own."""
    kept: NamedOptions = {"priority": found.priority, "max_attempts": found.max_attempts, "meta": found.meta}
    if visit.field("task") == found.task:
        kept["queue"] = found.queue
    return kept


def _job(visit: Visit, arguments: Mapping[str, Any], options: NamedOptions) -> NewJob:
    task = visit.field("task")
    try:
        return named_job(visit.queue, task, arguments, options, known=True)
    except UnknownTask as error:
        raise InvalidOption(f"task: {error}") from None
    except (PayloadNotEncodable, PayloadTooLarge) as error:
        raise InvalidOption(f"arguments: {error}") from error


def _store(visit: Visit, name: str, job: NewJob, timing: Timing, change: ScheduleChange) -> ScheduleChange:
    plan = visit.queue.schedules.edition(
        name, job, timing, by=visit.by, replace=change is ScheduleChange.CHANGED
    )
    return require_stored(name, visit.queue.database.run(plan))


def _timing(visit: Visit, stored: Timing | None) -> Timing:
    """The timing that was typed; the options that are not in the form stay."""
    text, zone = visit.field("rule"), visit.field("timezone")
    given: dict[str, Any] = {
        "cron": None,
        "every": None,
        "at": None,
        "timezone": zone,
        **_rule_of(text, zone),
    }
    base = Timing(every=1) if stored is None else stored  # type: ignore[arg-type]  # seconds
    if given["cron"] is None:
        given |= {"gap": None, "repeat": None}
    if given["every"] is None:
        given["anchor"] = None
    try:
        return replace(base, **given)
    except InvalidOption as error:
        raise InvalidOption(
            f"rule: {error}" if not str(error).startswith("timezone") else str(error)
        ) from None


def _rule_of(text: str, zone: str) -> dict[str, Any]:
    try:
        return {"every": read_length(text.removeprefix("every "), above_zero=True)}
    except InvalidOption:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return {"cron": text}
    return {"at": at if at.tzinfo else at.replace(tzinfo=find_zone(zone))}


def _written(timing: Timing) -> str:
    if timing.cron is not None:
        return timing.cron
    if timing.every is not None:
        return f"{timing.every.total_seconds():.15g}s"
    assert timing.at is not None  # noqa: S101 - one of the three is given
    return timing.at.astimezone(UTC).isoformat()


def restored(typed: Any, shown: Any, stored: Any) -> Any:  # noqa: ANN401 - any JSON
    """What was typed, where the hidden values that were left as they were shown are what is stored.

    Args:
        typed: what a person sent.
        shown: what the form showed.
        stored: what that was made of.
    """
    if typed == shown:
        return stored
    if isinstance(typed, dict) and isinstance(shown, dict) and isinstance(stored, dict):
        return {
            name: restored(value, shown[name], stored[name]) if name in shown and name in stored else value
            for name, value in typed.items()
        }
    if (
        isinstance(typed, list)
        and isinstance(shown, list)
        and isinstance(stored, list)
        and len(typed) == len(shown) == len(stored)
    ):
        return [restored(*each) for each in zip(typed, shown, stored, strict=True)]
    return typed


def _arguments(visit: Visit) -> dict[str, Any]:
    try:
        return msgspec.json.decode(visit.field("arguments") or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidOption(f"arguments: {error}; write {OBJECT}") from None


def _schema(text: str | None) -> Mapping[str, Any]:
    found = msgspec.json.decode(text) if text else {}
    return found if isinstance(found, dict) else {}


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


ACTIONS = (
    PageAction(
        name="schedule-add",
        path="/schedules/add",
        right=Right.SCHEDULE,
        ask=_ask_add,
        do=_add,
        under="schedules",
    ),
    PageAction(
        name="schedule-edit",
        path="/schedule/edit",
        right=Right.SCHEDULE,
        ask=_ask_edit,
        do=_edit,
        under="schedules",
    ),
)

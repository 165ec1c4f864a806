"""The condition of an alert in words: ``a job of queue mail has been ready for more than 5 min``. Pure."""

from pgqueue.errors import Duration, InvalidOption, as_duration
from pgqueue.values.alerts.alert import (
    Backlog,
    DeadJobs,
    Failures,
    LateSchedule,
    OldestReady,
    Rule,
    SaturatedLimit,
    StalledWorkers,
    UnservedTask,
    decode_condition,
)
from pgqueue.values.workers.lease import duration_text


def meaning_of(stored: str) -> str:
    """When the condition of an alert holds, in words.

    Args:
        stored: the condition as it is stored.
    """
    try:
        return meaning(decode_condition(stored))
    except InvalidOption:
        return stored


def about_of(stored: str) -> dict[str, str]:
    """The queue, task, schedule and limit that a stored condition names; nothing of one that this release does not know."""
    try:
        return decode_condition(stored).about
    except InvalidOption:
        return {}


def meaning(rule: Rule) -> str:
    """When a condition holds, in words."""
    over = duration_text(rule.threshold)
    count = f"{rule.threshold:,.0f}"
    match rule:
        case OldestReady():
            said = f"a job{_of(rule)} has been ready for more than {over}"
        case Backlog():
            said = f"more than {count} jobs{_of(rule)} are ready"
        case Failures():
            said = f"more than {count} attempts{_of(rule)} failed within {_length(rule.within)}"
        case DeadJobs():
            lately = "" if rule.within is None else f" that died within {_length(rule.within)}"
            said = f"there are more than {count} dead jobs{_of(rule)}{lately}"
        case LateSchedule():
            which = "a schedule" if rule.schedule is None else f"schedule {rule.schedule}"
            said = f"the next tick of {which} has been due for more than {over}"
        case StalledWorkers():
            said = f"more than {count} live workers are stalled"
        case UnservedTask():
            said = f"no live worker has run the task of a job{_of(rule)} that waits, for more than {over}"
        case SaturatedLimit():
            said = f"no place of limit {rule.limit} is free"
    return said


def _of(rule: Rule) -> str:
    named = [f"{what} {name}" for what, name in rule.about.items()]
    return f" of {', '.join(named)}" if named else ""


def _length(given: Duration) -> str:
    return duration_text(as_duration("within", given).total_seconds())

"""Which jobs an address means: its parameters, checked, as a page of jobs and as an operation on many jobs take them.

Instants are written as ages (``2h``: two hours ago, by this machine's clock) or in ISO 8601; without a zone they are UTC.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from pgqueue.dashboard.page import Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.bulk.filter import LIVE
from pgqueue.values.jobs.job import JobState
from pgqueue.values.length import read_length

LONGEST_JSON: Final = 10_000
_PAIR: Final = re.compile(r"([\w.-]+)\s*=\s*(.+)", re.DOTALL)


class ChosenFilters(msgspec.Struct, frozen=True, kw_only=True):
    """What an address says of jobs; None or empty: nothing.

    Attributes:
        states: in one of these states.
        queue: in this queue.
        task: of this task.
        key: with this unique key.
        args: whose arguments contain these.
        after: enqueued at this instant or later.
        until: enqueued before this instant.
        error: whose last error is of this type.
        died: dead since before this instant.
        given: the parameters, as they were written.
    """

    states: tuple[JobState, ...] = ()
    queue: str | None = None
    task: str | None = None
    key: str | None = None
    args: dict[str, Any] | None = None
    after: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    died: datetime | None = None
    given: Mapping[str, Any] = {}


NAMES: Final = ("state", "queue", "task", "key", "args", "after", "until", "error", "died")


def chosen_filter(visit: Visit) -> ChosenFilters:
    """What the address says.

    Raises:
        InvalidOption: a parameter cannot be read, or would look for a hidden field.
    """
    args = visit.request.args
    return ChosenFilters(
        states=tuple(map(_state, visit.texts("state"))),
        queue=visit.text("queue"),
        task=visit.text("task"),
        key=visit.text("key"),
        args=_arguments(visit),
        after=read_instant("after", visit.text("after")),
        until=read_instant("until", visit.text("until")),
        error=visit.text("error"),
        died=read_instant("died", visit.text("died")),
        given={name: args.getlist(name) for name in NAMES if any(args.getlist(name))},
    )


def search_page(visit: Visit, wanted: ChosenFilters, *, state: Any, limit: int) -> dict[str, Any]:  # noqa: ANN401 - states as a search takes them
    """A page of the jobs that match: ``jobs``, ``older`` for the next page, and ``looked_to`` if the search stopped before."""
    found = visit.queue.insight.search(
        state=state,
        queue=wanted.queue,
        task=wanted.task,
        unique_key=wanted.key,
        args=wanted.args,
        enqueued_after=wanted.after,
        enqueued_before=wanted.until,
        error=wanted.error,
        before=visit.number("below"),
        limit=limit + 1,
    )
    jobs = visit.redaction.jobs(found.jobs[:limit])
    older = jobs[-1].id if len(found.jobs) > limit else None
    return {"jobs": jobs, "older": older, "looked_to": found.looked_to}


def live_criteria(visit: Visit) -> dict[str, Any]:
    """The same as criteria of ``queue.control.jobs``.

    Raises:
        InvalidOption: a parameter does not apply to operations on live jobs.
    """
    wanted = chosen_filter(visit)
    if wanted.key:
        raise InvalidOption("key: leave it out; at most one live job has it, and its own page cancels it")
    if ended := [state for state in wanted.states if state not in LIVE]:
        raise InvalidOption(f"state={ended[0].value}: these jobs have ended; choose among {', '.join(LIVE)}")
    return _criteria(wanted, state=wanted.states or None)


def dead_criteria(visit: Visit) -> dict[str, Any]:
    """The same as criteria of ``queue.control.dead``."""
    wanted = chosen_filter(visit)
    return _criteria(wanted, error=wanted.error, died_before=wanted.died)


def spoken_filter(visit: Visit, jobs: str) -> str:
    """The filter in words: ``live jobs · queue mail · task send``."""
    given = chosen_filter(visit).given
    return " · ".join(
        [jobs if given else f"all {jobs}", *(f"{name} {', '.join(given[name])}" for name in given)]
    )


def _criteria(wanted: ChosenFilters, **others: Any) -> dict[str, Any]:  # noqa: ANN401 - criteria of any type
    given = {
        "queue": wanted.queue,
        "task": wanted.task,
        "args": wanted.args,
        "enqueued_after": wanted.after,
        "enqueued_before": wanted.until,
        **others,
    }
    return {name: value for name, value in given.items() if value is not None} or {"everything": True}


def _state(text: str) -> JobState:
    try:
        return JobState(text)
    except ValueError:
        raise InvalidOption(f"state={text!r:.40}: there are {', '.join(JobState)}") from None


def _arguments(visit: Visit) -> dict[str, Any] | None:
    """``{"order_id": 7}``, or ``order_id=7``."""
    text = visit.text("args", LONGEST_JSON)
    if text is None:
        return None
    pair = _PAIR.fullmatch(text)
    try:
        found = {pair[1]: _value(pair[2].strip())} if pair else msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidOption(f'args={text!r:.80}: write order_id=7, or JSON such as {{"order_id": 7}}')
    if hidden := visit.redaction.named_in(found):
        raise InvalidOption(f"args: {hidden!r} is hidden here, so it cannot be searched for")
    return found


def _value(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text


def read_instant(name: str, text: str | None) -> datetime | None:
    """An instant as people write it; None: nothing is given.

    Raises:
        InvalidOption: it cannot be read.
    """
    if text is None:
        return None
    try:
        if text[-1:].isalpha() and text[-1] != "Z":
            return datetime.now(UTC) - read_length(text)
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (InvalidOption, ValueError, OverflowError):
        raise InvalidOption(f"{name}={text!r:.40}: write an age such as 2h, or 2026-11-23T14:00") from None

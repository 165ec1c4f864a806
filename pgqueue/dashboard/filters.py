"""Which jobs an address means: its parameters, checked, as a page of jobs and as an operation on many jobs take them.

What is typed into the box of a list (``q``) stands for other parameters (:mod:`pgqueue.dashboard.search_box`); those that it has not are
taken from the address. Instants are written as ages (``2h``: two hours ago, by this machine's clock) or in ISO 8601; without
a zone they are UTC.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from pgqueue.dashboard.page import LONGEST, Visit
from pgqueue.dashboard.search_box import LONGEST_JSON, box_text, read_arguments, read_box
from pgqueue.errors import InvalidOption
from pgqueue.values.bulk.filter import LIVE
from pgqueue.values.jobs.job import JobState
from pgqueue.values.length import read_length

NAMES: Final = ("state", "queue", "task", "run", "key", "args", "after", "until", "error", "died", "group")
"""The parameters of a filter."""
CHOSEN: Final = "chosen"
"""The parameter of a form with check boxes: only the jobs whose ``id`` is there are meant, and none if there is no id."""
MOST_CHOSEN: Final = 1_000
_ID: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


class ChosenFilters(msgspec.Struct, frozen=True, kw_only=True):
    """What an address says of jobs; None or empty: nothing.

    Attributes:
        states: in one of these states.
        queue: in this queue.
        task: of this task.
        run: of this run.
        key: with this unique key.
        args: whose arguments contain these.
        after: enqueued at this instant or later.
        until: enqueued before this instant.
        error: whose last error is of this type.
        died: dead since before this instant.
        group: in the group of errors with this key.
        id: the job of this id, which was typed into the box.
        given: the parameters, as they were written.
        typed: what the box shows.
    """

    states: tuple[JobState, ...] = ()
    queue: str | None = None
    task: str | None = None
    run: str | None = None
    key: str | None = None
    args: dict[str, Any] | None = None
    after: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    died: datetime | None = None
    group: str | None = None
    id: int | None = None
    given: Mapping[str, Sequence[str]] = {}
    typed: str = ""

    @property
    def criteria(self) -> dict[str, Any]:
        """What an operation and a search call the same; without states, key and id."""
        given = {
            "queue": self.queue,
            "task": self.task,
            "run": self.run,
            "args": self.args,
            "enqueued_after": self.after,
            "enqueued_before": self.until,
            "error": self.error,
            "error_group": self.group,
        }
        return {name: value for name, value in given.items() if value is not None}


def chosen_filter(visit: Visit) -> ChosenFilters:
    """What the address says.

    Raises:
        InvalidOption: a parameter cannot be read, or would look for a hidden field.
    """
    typed = visit.text("q", LONGEST_JSON)
    given = _given(visit) if typed is None else {**_given(visit), **read_box(typed)}

    def text(name: str, longest: int = LONGEST) -> str | None:
        value = given.get(name, [""])[0].strip()
        if len(value) > longest:
            raise InvalidOption(f"{name}: it has more than {longest:,} characters")
        return value or None

    number = text("id")
    return ChosenFilters(
        states=tuple(map(_state, given.get("state", ()))),
        queue=text("queue"),
        task=text("task"),
        run=text("run"),
        key=text("key"),
        args=_arguments(visit, text("args", LONGEST_JSON)),
        after=read_instant("after", text("after")),
        until=read_instant("until", text("until")),
        error=text("error"),
        died=read_instant("died", text("died")),
        group=text("group"),
        id=None if number is None else _id(number),
        given={name: given[name] for name in NAMES if name in given},
        typed=box_text(given) if typed is None else typed,
    )


def typed_filter(visit: Visit) -> ChosenFilters:
    """What was typed, unread: for a form that shows it again beside what is wrong."""
    given = _given(visit)
    return ChosenFilters(given=given, typed=visit.request.args.get("q", "") or box_text(given))


def _given(visit: Visit) -> dict[str, list[str]]:
    args = visit.request.args
    return {name: found for name in NAMES if (found := [one for one in args.getlist(name) if one])}


def chosen_ids(visit: Visit) -> list[int] | None:
    """The jobs whose boxes were checked; None: all that match are meant.

    Raises:
        InvalidOption: one is no id, or there are too many.
    """
    found = visit.texts("id")
    if not found and CHOSEN not in visit.request.args:
        return None
    if len(found) > MOST_CHOSEN or not all(map(_ID.fullmatch, found)):
        raise InvalidOption(f"id: give up to {MOST_CHOSEN:,} ids of jobs")
    return [*map(int, found)]


def live_criteria(visit: Visit) -> dict[str, Any]:
    """The same as criteria of ``queue.control.jobs``.

    Raises:
        InvalidOption: a parameter does not apply to operations on live jobs.
    """
    if (ids := chosen_ids(visit)) is not None:
        return {"ids": ids}
    wanted = chosen_filter(visit)
    if wanted.id is not None:
        return {"ids": [wanted.id]}
    if wanted.key:
        raise InvalidOption("key: leave it out; at most one live job has it, and its own page cancels it")
    if ended := [state for state in wanted.states if state not in LIVE]:
        raise InvalidOption(f"state={ended[0].value}: these jobs have ended; choose among {', '.join(LIVE)}")
    states = {"state": wanted.states} if wanted.states else {}
    return {**wanted.criteria, **states} or {"everything": True}


def dead_criteria(visit: Visit) -> dict[str, Any]:
    """The same as criteria of ``queue.control.dead``."""
    if (ids := chosen_ids(visit)) is not None:
        return {"ids": ids}
    wanted = chosen_filter(visit)
    if wanted.id is not None:
        return {"ids": [wanted.id]}
    if wanted.key:
        raise InvalidOption("key: leave it out, and choose the jobs that you mean in the list")
    died = {} if wanted.died is None else {"died_before": wanted.died}
    return {**wanted.criteria, **died} or {"everything": True}


def spoken_filter(visit: Visit, jobs: str) -> str:
    """The filter in words: ``live jobs · queue mail · task send``."""
    if (ids := chosen_ids(visit)) is not None:
        return f"{len(ids):,} chosen job{'' if len(ids) == 1 else 's'}"
    given = chosen_filter(visit).given
    words = [
        "one group of errors" if name == "group" else f"{name} {', '.join(given[name])}" for name in given
    ]
    return " · ".join([jobs if given else f"all {jobs}", *words])


def _id(text: str) -> int:
    if int(text) >= 2**63:
        raise InvalidOption(f"there is no job {text}: ids are lower")
    return int(text)


def _state(text: str) -> JobState:
    try:
        return JobState(text)
    except ValueError:
        raise InvalidOption(f"state={text!r:.40}: there are {', '.join(JobState)}") from None


def _arguments(visit: Visit, text: str | None) -> dict[str, Any] | None:
    """``{"order_id": 7}``, or ``order_id=7``."""
    if text is None:
        return None
    found = read_arguments(text)
    if found is None:
        raise InvalidOption(f'args={text!r:.80}: write order_id=7, or JSON such as {{"order_id": 7}}')
    if hidden := visit.redaction.named_in(found):
        raise InvalidOption(f"args: {hidden!r} is hidden here, so it cannot be searched for")
    return found


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

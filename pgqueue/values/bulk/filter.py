"""Which jobs an operator means: a filter, checked, and the same rule as that of a search in SQL, for jobs in memory."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal, Self, TypedDict

import msgspec

from pgqueue.errors import InvalidOption, PayloadNotEncodable
from pgqueue.values.hints import remedy
from pgqueue.values.jobs.error_group import error_group_of
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.jobs.options import PRIORITIES, check_instant, check_number, check_text, stands_for
from pgqueue.values.payloads.storable import refuse_unstorable

MOST_IDS = 10_000
"""Ids in one filter."""
WAITING = (JobState.BLOCKED, JobState.SCHEDULED, JobState.READY)
LIVE = (*WAITING, JobState.RUNNING)
_LIKE = str.maketrans({"\\": r"\\", "%": r"\%", "_": r"\_", "*": "%"})


class Criteria(TypedDict, total=False):
    """Which jobs: those that match every criterion given.

    Attributes:
        ids: one of these ids, at most 10,000.
        queue: in this queue; a pattern such as ``mail-*`` is allowed.
        task: of this task; a pattern is allowed.
        args: whose arguments contain these, as jsonb containment has it: ``{"customer_id": 7}``.
        meta: whose ``meta`` contains this.
        run: of the run of this name: jobs that DataFrames were written as.
        enqueued_after: enqueued at this instant or later.
        enqueued_before: enqueued before this instant.
        min_priority: of this priority or a higher one.
        max_priority: of this priority or a lower one.
        error: whose last error is of this type, such as ``ConnectionError``; with the module or without.
        message: whose last error's message contains this text.
        error_group: whose last error is in the group of this key: :attr:`ErrorGroup.key` of ``queue.insight.errors()``.
        everything: must be true where nothing else is given: then all jobs are meant.
    """

    ids: Collection[int]
    queue: str
    task: str
    args: Mapping[str, Any]
    meta: Mapping[str, Any]
    run: str
    enqueued_after: datetime
    enqueued_before: datetime
    min_priority: int
    max_priority: int
    error: str
    message: str
    error_group: str
    everything: bool


class LiveCriteria(Criteria, total=False):
    """Which live jobs.

    Attributes:
        state: in this state or one of several: ``blocked``, ``scheduled``, ``ready``, ``running``; ``waiting`` stands for the first three.
    """

    state: JobState | str | Collection[JobState | str]


class DeadCriteria(Criteria, total=False):
    """Which dead jobs.

    Attributes:
        died_before: dead since before this instant.
    """

    died_before: datetime


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Criteria that were checked; the fields are those of :class:`LiveCriteria` and :class:`DeadCriteria`."""

    ids: tuple[int, ...] | None = None
    queue: str | None = None
    task: str | None = None
    state: tuple[JobState, ...] | None = None
    args: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    run: str | None = None
    enqueued_after: datetime | None = None
    enqueued_before: datetime | None = None
    died_before: datetime | None = None
    min_priority: int | None = None
    max_priority: int | None = None
    error: str | None = None
    message: str | None = None
    error_group: str | None = None

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> Self:
        """The filter of some criteria.

        Raises:
            InvalidOption: there are none and ``everything`` is not true, one is unknown or out of its range, or two
                contradict each other.
        """
        chosen = {name: value for name, value in given.items() if value is not None}
        everything = chosen.pop("everything", False)
        _check_known(chosen)
        if not isinstance(everything, bool):
            raise InvalidOption(f"everything={everything!r}: use True or False")
        if everything == bool(chosen):
            raise InvalidOption(_CONTRADICTS if chosen else _NOTHING)
        for name in ("queue", "task", "run", "error", "message", "error_group"):
            if name in chosen and not check_text(name, chosen[name]):
                raise InvalidOption(f"{name}='': an empty text matches no job; leave it out")
        for name in ("args", "meta"):
            if name in chosen:
                chosen[name] = _object(name, chosen[name])
        if "ids" in chosen:
            chosen["ids"] = check_ids("ids", chosen["ids"])
        if "state" in chosen:
            chosen["state"] = _states(chosen["state"])
        _check_bounds(chosen)
        return cls(**chosen)

    def matches(self, job: Job) -> bool:
        """Whether a job is meant. Which jobs are of a run only the database knows: here, none is."""
        last = job.errors[-1] if job.errors else None
        return (
            self.run is None
            and (self.ids is None or job.id in self.ids)
            and (self.queue is None or stands_for(self.queue, job.queue))
            and (self.task is None or stands_for(self.task, job.task))
            and (self.state is None or job.state in self.state)
            and (self.args is None or contains(job.args, self.args))
            and (self.meta is None or contains(job.meta, self.meta))
            and (self.enqueued_after is None or job.created_at >= self.enqueued_after)
            and (self.enqueued_before is None or job.created_at < self.enqueued_before)
            and (self.min_priority is None or job.priority >= self.min_priority)
            and (self.max_priority is None or job.priority <= self.max_priority)
            and (self.error is None or (last is not None and f".{last.type}".endswith(f".{self.error}")))
            and (self.message is None or (last is not None and self.message in last.message))
            and (self.error_group is None or self.error_group == error_group_of(job))
        )

    def json(self, name: Literal["args", "meta"]) -> str | None:
        """What arguments or meta must contain, as JSON."""
        value = getattr(self, name)
        return None if value is None else msgspec.json.encode(value).decode()

    def __str__(self) -> str:
        given = msgspec.to_builtins(self)
        return ", ".join(f"{name}={value}" for name, value in given.items()) or "all"


def check_ids(name: str, value: object) -> tuple[int, ...]:
    """Ids of jobs, each once, in their order.

    Raises:
        InvalidOption: they are no ids, or more than :data:`MOST_IDS`.
    """
    if isinstance(value, str) or not isinstance(value, Collection):
        raise InvalidOption(f"{name}={value!r:.80}: use a list of ids")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < 1 << 63:
            raise InvalidOption(
                f"{name}: {one!r:.80} is no id of a job; an id is a whole number, as in handle.id"
            )
    if len(value) > MOST_IDS:
        raise InvalidOption(
            f"{name}: {len(value):,} are given, at most {MOST_IDS:,} are taken; give them in parts"
        )
    return tuple(sorted({*value}))


def like(pattern: str | None) -> str | None:
    """A pattern of names as SQL's LIKE has it."""
    return None if pattern is None else pattern.translate(_LIKE)


def contains(whole: object, part: object) -> bool:
    """Whether a JSON value contains another one, as ``jsonb @> jsonb`` has it."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(contains(one, wanted) for one in whole) for wanted in part)
    return _kind(whole) is _kind(part) and whole == part


def _kind(value: object) -> type:
    # 1 and 1.0 are one number; True is none.
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


_NOTHING = "a filter without a criterion would mean every job; give a criterion, or everything=True"
_CONTRADICTS = "everything=True and a criterion contradict each other; give one of them"


def _check_known(given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in JobFilter.__struct_fields__:
            raise InvalidOption(
                f"{name}: there is no such criterion; {remedy(name, JobFilter.__struct_fields__)}"
            )


def _check_bounds(given: Mapping[str, Any]) -> None:
    for name in ("enqueued_after", "enqueued_before", "died_before"):
        check_instant(name, given.get(name))
    for name in ("min_priority", "max_priority"):
        if name in given:
            check_number(name, given[name], PRIORITIES)
    for low, high in (("enqueued_after", "enqueued_before"), ("min_priority", "max_priority")):
        if low in given and high in given and not _in_order(given[low], given[high], low):
            raise InvalidOption(f"{low}={given[low]} and {high}={given[high]}: no job is in these bounds")


def _in_order(low: Any, high: Any, name: str) -> bool:  # noqa: ANN401 - two instants, or two numbers
    return bool(low <= high if name == "min_priority" else low < high)


def _object(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidOption(f"{name}={value!r:.80}: use an object, such as {{'customer_id': 7}}")
    try:
        data = msgspec.json.encode(value)
        refuse_unstorable(data)
        found: dict[str, Any] = msgspec.json.decode(data)
    except (TypeError, ValueError, RecursionError, PayloadNotEncodable) as error:
        raise InvalidOption(f"{name}={value!r:.80}: {error}") from error
    return found


def _states(value: Any) -> tuple[JobState, ...]:  # noqa: ANN401 - a state, or several
    given = [value] if isinstance(value, str) else [*value]
    if "waiting" in given:
        given = [*WAITING, *(one for one in given if one != "waiting")]
    for one in given:
        if one not in LIVE:
            raise InvalidOption(
                f"state={one!r:.80}: live jobs are {', '.join(LIVE)}, or waiting for the first three; dead ones have verbs of their own"
            )
    if not given:
        raise InvalidOption("state=[]: name at least one state, or leave it out")
    return tuple(sorted({JobState(one) for one in given}))

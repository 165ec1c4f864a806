"""The conditions of alerts, what a task is told when one holds, and in which words. Pure values.

When an alert is told is decided in :mod:`pgqueue.values.alerts.state`; how the figures are read, in
:mod:`pgqueue.store.alerts.alert_readings`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from pgqueue.errors import Duration, InvalidOption, as_duration, as_limit
from pgqueue.values.jobs.options import check_number, check_text
from pgqueue.values.workers.lease import duration_text

MOST_DEAD = 20_000
"""The last dead jobs are counted, up to this number."""
SHORTEST_WINDOW = timedelta(minutes=1)
"""Workers write once a minute how many attempts failed."""
LARGEST = 2**53
"""A larger number is not exact as the float that a task is told."""
CUT = 500
"""Characters of a summary."""

Sign: TypeAlias = Literal["firing", "resolved"]


class AlertCondition(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=True, forbid_unknown_fields=True
):
    """What an alert looks at. It holds while the value is above ``over``."""

    def __post_init__(self) -> None:
        for name in ("queue", "task", "schedule", "limit"):
            if (given := getattr(self, name, None)) is not None:
                check_text(name, given)
        if (within := getattr(self, "within", None)) is not None:
            within = as_duration("within", within)
            if not SHORTEST_WINDOW <= within <= timedelta(days=30):
                raise InvalidOption(f"within={within}: use a minute to 30 days")
            msgspec.structs.force_setattr(self, "within", within)

    @property
    def kind(self) -> str:
        """The name of the condition."""
        return type(self).__name__

    @property
    def threshold(self) -> float:
        """Seconds, or a number of jobs, attempts or workers."""
        over = getattr(self, "over", 0)
        return over.total_seconds() if isinstance(over, timedelta) else float(over)

    @property
    def about(self) -> dict[str, str]:
        """The queue, task, schedule and limit that it names."""
        given = {name: getattr(self, name, None) for name in ("queue", "task", "schedule", "limit")}
        return {name: value for name, value in given.items() if value is not None}

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words.

        Args:
            value: None: there is none.
            about: the queue, task, schedule, limit and worker that it is of.
        """
        raise NotImplementedError


class LengthCondition(AlertCondition, frozen=True, kw_only=True):
    """A condition whose value is a length of time.

    Attributes:
        over: the condition holds when it is longer than this; seconds, or a timedelta.
    """

    over: Duration

    def __post_init__(self) -> None:
        super().__post_init__()
        msgspec.structs.force_setattr(self, "over", as_limit("over", self.over))


class OldestReady(LengthCondition, frozen=True, kw_only=True):
    """For how long the job that waits longest has been ready. Paused queues are left out.

    Attributes:
        over: the condition holds when it is longer than this; seconds, or a timedelta.
        queue: of this queue; None: of all queues.
    """

    queue: str | None = None

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words."""
        if value is None:
            return f"{_place(about)}: no job is ready"
        return f"{_place(about)}: a job has been ready for {duration_text(value)}, over {duration_text(self.threshold)}"


class Backlog(AlertCondition, frozen=True, kw_only=True):
    """How many jobs are ready; of a large table an estimate. Jobs that wait for a limit are not ready.

    Attributes:
        over: the condition holds when there are more than this.
        queue: in this queue; None: in all queues together.
    """

    over: int
    queue: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("over", self.over, range(LARGEST))

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words."""
        return f"{_place(about)}: ready jobs: {_number(value)}, over {_number(self.over)}"


class Failures(AlertCondition, frozen=True, kw_only=True):
    """How many attempts failed. Workers write this once a minute.

    Attributes:
        over: the condition holds when there were more than this.
        within: in this time before the look, in whole minutes; seconds, or a timedelta. From a minute to 30 days.
        task: of this task; None: of all tasks.
        queue: of jobs of this queue; None: of all queues.
    """

    over: int
    within: Duration
    task: str | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("over", self.over, range(LARGEST))

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words."""
        within = duration_text(as_duration("within", self.within).total_seconds())
        return (
            f"{_place(about)}: failed attempts within {within}: {_number(value)}, over {_number(self.over)}"
        )


class DeadJobs(AlertCondition, frozen=True, kw_only=True):
    """How many jobs are dead; of the last 20,000 that died.

    Attributes:
        over: the condition holds when there are more than this, up to 19,999.
        within: only jobs that died in this time before the look; None: at any time.
        task: of this task; None: of all tasks.
        queue: of this queue; None: of all queues.
    """

    over: int = 0
    within: Duration | None = None
    task: str | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("over", self.over, range(MOST_DEAD))

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words."""
        within = as_duration("within", self.within)
        lately = "" if within is None else f" within {duration_text(within.total_seconds())}"
        return f"{_place(about)}: dead jobs{lately}: {_number(value)}, over {_number(self.over)}"


class LateSchedule(LengthCondition, frozen=True, kw_only=True):
    """For how long the next tick of a schedule has been due and has not fired; also of one that was set aside.

    Attributes:
        over: the condition holds when it is longer than this; seconds, or a timedelta.
        schedule: of this schedule; None: the latest of all that are not paused.
    """

    schedule: str | None = None

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words."""
        if value is None:
            return f"{_place(about)}: no tick is due"
        return f"{_place(about)}: a tick has been due for {duration_text(value)}, over {duration_text(self.threshold)}"


class StalledWorkers(AlertCondition, frozen=True, kw_only=True):
    """How many live workers are stalled: they do not look for jobs, or their event loop has been blocked for 30 s.

    Attributes:
        over: the condition holds when there are more than this.
    """

    over: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("over", self.over, range(LARGEST))

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words."""
        first = f"; the first is {about['worker']}" if "worker" in about else ""
        return f"stalled workers: {_number(value)}, over {_number(self.over)}{first}"


class UnservedTask(LengthCondition, frozen=True, kw_only=True):
    """For how long no live worker has run a task whose jobs wait; of several tasks, the one for which that is longest.

    Attributes:
        over: the condition holds when it is longer.
        queue: of jobs of this queue; None: of any.
    """

    queue: str | None = None

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words."""
        if value is None:
            return f"{_place(about)}: live workers run all tasks whose jobs wait"
        return f"{_place(about)}: no live worker has run it for {duration_text(value)}, over {duration_text(self.threshold)}"


class SaturatedLimit(AlertCondition, frozen=True, kw_only=True):
    """How many jobs hold places of a limit; of a limit with keys, of the fullest key. It holds while no place is free.

    Attributes:
        limit: the name of a limit of concurrency, as ``pgqueue limits list`` shows it.
    """

    limit: str

    def said(self, value: float | None, about: Mapping[str, str]) -> str:
        """The value in words."""
        return f"limit {about.get('limit', self.limit)}: {_number(value)} places are taken"


Rule: TypeAlias = (
    OldestReady
    | Backlog
    | Failures
    | DeadJobs
    | LateSchedule
    | StalledWorkers
    | UnservedTask
    | SaturatedLimit
)
_DECODER = msgspec.json.Decoder(Rule)


class Reading(msgspec.Struct, frozen=True):
    """What a look has found.

    Attributes:
        value: seconds or a number; None: there is nothing of that kind.
        threshold: what it was compared with.
        holds: whether the condition holds.
        about: of which queue, task, schedule, limit or worker it is.
    """

    value: float | None
    threshold: float
    holds: bool
    about: dict[str, str]

    @classmethod
    def over(cls, rule: AlertCondition, value: float | None, **about: str | None) -> "Reading":
        """A value that is compared with the condition's own threshold."""
        named = rule.about | {name: given for name, given in about.items() if given is not None}
        return cls(value, rule.threshold, value is not None and value > rule.threshold, named)


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """What the task of an alert is told: its one argument.

    Attributes:
        name: of the alert.
        state: ``firing``, or ``resolved``.
        kind: the name of its condition, such as ``OldestReady``.
        summary: the value in words.
        value: in seconds, or a number; None: there is nothing of that kind.
        threshold: what it was compared with.
        since: at which look the condition held first, without a break.
        at: when the look was at which this was decided.
        reminder: how many times this alert was told before since then.
        queue: of which queue it is; None: of several, or of none.
        task: of which task it is.
        schedule: of which schedule it is.
        limit: of which limit it is.
        worker: of which worker it is, like ``web-1:4711``.
    """

    name: str
    state: Sign
    kind: str
    summary: str
    value: float | None
    threshold: float
    since: datetime
    at: datetime
    reminder: int = 0
    queue: str | None = None
    task: str | None = None
    schedule: str | None = None
    limit: str | None = None
    worker: str | None = None

    def __str__(self) -> str:
        return f"{self.name} is {self.state}: {self.summary}"


def summary(rule: AlertCondition, reading: Reading) -> str:
    """What a look has found, in words."""
    return rule.said(reading.value, reading.about)[:CUT]


def encode_condition(rule: AlertCondition) -> str:
    """A condition as it is stored."""
    return msgspec.json.encode(rule).decode()


def decode_condition(stored: str) -> Rule:
    """A stored condition.

    Raises:
        InvalidOption: it makes no sense to this release.
    """
    try:
        rule: Rule = _DECODER.decode(stored)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOption(f"the stored condition {stored:.200} cannot be read: {error}") from error
    return rule


def _number(value: float | None) -> str:
    return f"{value or 0:,.0f}"


def _place(about: Mapping[str, str]) -> str:
    named = [f"{name} {about[name]}" for name in ("queue", "task", "schedule") if name in about]
    return ", ".join(named) or "all queues"

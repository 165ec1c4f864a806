"""The settings of a queue, checked; and which of them hold where a queue has settings already."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict

import msgspec

from pgqueue.errors import Duration, InvalidOption, QueueExists, as_duration, as_limit
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.options import ATTEMPTS, PRIORITIES, check_number, one_of
from pgqueue.values.retention import as_kept_days

PRIORITY: Final = 0
MAX_ATTEMPTS: Final = 25
"""What jobs have where their enqueue, their task and their queue say nothing."""

AGEING_TO = range(1, 101)
LONGEST_AGEING = timedelta(days=366)

Existing = Literal["keep", "replace", "fail"]
"""What is done with other settings that a queue has: they stay, they are replaced, or an error is raised."""
WhenFull = Literal["warn", "refuse"]
"""What an enqueue to a full queue does: it logs a warning, or fails."""
WHEN_FULL: tuple[WhenFull, ...] = ("warn", "refuse")
BACKLOGS = range(1, 1_000_001)
"""To find out whether a queue is full, as many entries of an index are read."""
EXISTING: tuple[Existing, ...] = ("keep", "replace", "fail")


class QueueSettingOptions(TypedDict, total=False):
    """Settings of a queue.

    Attributes:
        priority: of jobs whose enqueue and task name none.
        max_attempts: of jobs whose enqueue and task name none.
        timeout: how long an attempt may take whose task names no timeout; seconds, or a timedelta.
        keep_history: for how long its ended jobs are kept, a day or more; seconds, or a timedelta. 0: jobs that succeed are not kept.
        keep_dead: for how long its dead jobs are kept; seconds, or a timedelta.
        backlog: from how many ready jobs on it is full, 1…1,000,000.
        when_full: ``refuse``: an enqueue to a full queue raises ``BacklogFull``; ``warn``, as without a value: it logs a warning.
        ageing: the wait that is worth one priority; seconds, or a timedelta.
        ageing_to: the highest priority that waiting jobs get so, 1…100; 100 where nothing is said.
    """

    priority: int
    max_attempts: int
    timeout: Duration
    keep_history: Duration
    keep_dead: Duration
    backlog: int
    when_full: WhenFull
    ageing: Duration
    ageing_to: int


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the jobs of one queue. None: nothing is said, so the next one in the order call, task, queue, package decides.

    Attributes:
        priority: of jobs whose enqueue and task name none.
        max_attempts: of jobs whose enqueue and task name none.
        timeout: how long an attempt may take whose task names no timeout.
        keep_history: for how long its ended jobs are kept; 0: jobs that succeed are not kept.
        keep_dead: for how long its dead jobs are kept.
        backlog: from how many ready jobs on it is full.
        when_full: ``refuse``: an enqueue to a full queue fails; ``warn``, as without a value: it logs a warning.
        ageing: a job that has waited this long once, twice, … has at least priority 1, 2, …
        ageing_to: the highest priority that it gets so; 100 where nothing is said.
    """

    priority: int | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    keep_history: timedelta | None = None
    keep_dead: timedelta | None = None
    backlog: int | None = None
    when_full: WhenFull | None = None
    ageing: timedelta | None = None
    ageing_to: int | None = None

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> "QueueSettings":
        """Check them; lengths of time are seconds, or timedeltas.

        Raises:
            InvalidOption: there is no such setting, or a value is out of its range.
        """
        for name in given:
            if name not in cls.__struct_fields__:
                near = did_you_mean(name, cls.__struct_fields__)
                raise InvalidOption(f"{name}: a queue has no such setting{near}")
        values = {name: value for name, value in given.items() if value is not None}
        numbers = (
            ("priority", PRIORITIES),
            ("max_attempts", ATTEMPTS),
            ("backlog", BACKLOGS),
            ("ageing_to", AGEING_TO),
        )
        for name, allowed in numbers:
            if name in values:
                check_number(name, values[name], allowed)
        if "when_full" in values:
            one_of("when_full", values["when_full"], WHEN_FULL, listed=repr)
        if "timeout" in values:
            values["timeout"] = as_limit("timeout", values["timeout"])
        if "keep_history" in values:
            values["keep_history"] = as_kept_days("keep_history", values["keep_history"])
        if "keep_dead" in values:
            values["keep_dead"] = _check_kept(values["keep_dead"])
        if "ageing" in values:
            values["ageing"] = _check_ageing(values["ageing"])
        return cls(**values)

    def over(self, held: "QueueSettings", *, existing: Existing, queue: str) -> "QueueSettings":
        """What holds where a queue has settings and is declared with these.

        Raises:
            QueueExists: ``existing`` is ``fail``, and the queue has other settings.
        """
        one_of("existing", existing, EXISTING, listed=repr)
        self.require_pairs()
        if existing == "replace" or held in (self, NO_SETTINGS):
            return self
        if existing == "fail":
            raise QueueExists(
                f"queue {queue!r} has other settings: {differences(held, self)}; declare it with existing='replace' to "
                "store yours, or existing='keep' to leave them"
            )
        return held

    def but(self, given: "QueueSettings", unset: Iterable[str]) -> "QueueSettings":
        """These settings, with others changed or taken away.

        Raises:
            InvalidOption: they say what a full queue does, and not when it is full.
        """
        changed = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not None}
        chosen = msgspec.structs.replace(self, **{**dict.fromkeys(unset), **changed})
        chosen.require_pairs()
        return chosen

    def require_pairs(self) -> None:
        """Refuse what a full queue does where nothing says when it is full; and a highest priority where nothing is raised.

        Raises:
            InvalidOption: it is said.
        """
        if self.when_full is not None and self.backlog is None:
            raise InvalidOption(
                f"when_full={self.when_full!r}: the queue has no backlog, so it is never full; give backlog=, too, or unset both"
            )
        if self.ageing_to is not None and self.ageing is None:
            raise InvalidOption(
                f"ageing_to={self.ageing_to!r}: the queue has no ageing, so no priority is raised; give ageing=, too, or unset both"
            )


NO_SETTINGS = QueueSettings()


def differences(held: QueueSettings, given: QueueSettings) -> str:
    """The settings that differ, in words."""
    return ", ".join(
        f"{name}={getattr(held, name)!s} (given: {getattr(given, name)!s})"
        for name in held.__struct_fields__
        if getattr(held, name) != getattr(given, name)
    )


class KnownQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that was paused, closed, declared or given settings.

    Attributes:
        queue: its name.
        paused_at: since when no worker claims its jobs; None: workers do.
        paused_by: who paused it.
        paused_why: why.
        closed_at: since when enqueues to it are refused; None: they are not.
        closed_by: who closed it.
        closed_why: why.
        settings: what holds for its jobs.
    """

    queue: str
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_why: str | None = None
    closed_at: datetime | None = None
    closed_by: str | None = None
    closed_why: str | None = None
    settings: QueueSettings = NO_SETTINGS


def _check_kept(value: Any) -> timedelta:  # noqa: ANN401 - what a caller gave
    kept: timedelta = as_duration("keep_dead", value)
    if kept < timedelta(0):
        raise InvalidOption(f"keep_dead={value!r}: use zero or more")
    return kept


def _check_ageing(value: Any) -> timedelta:  # noqa: ANN401 - what a caller gave
    every: timedelta = as_duration("ageing", value)
    if not timedelta(seconds=1) <= every <= LONGEST_AGEING:
        raise InvalidOption(
            f"ageing={value!r}: use seconds or a timedelta, from one second to 366 days: the wait that is worth one priority"
        )
    return every

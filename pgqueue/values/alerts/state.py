"""When an alert is told: once when its condition holds, and again only after it has not held for a time. Pure rules.

An alert is *ok*, *pending* while its condition holds for less than ``after``, *firing*, and *clearing* while the condition of a
firing alert does not hold for less than ``clear_for``. A condition that comes and goes within ``clear_for`` is one alert.
An instant of the future is one that a clock noted before it was set back: it counts as now.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from pgqueue.errors import Duration, as_delay, as_limit
from pgqueue.values.alerts.alert import Rule, Sign

EVERY = timedelta(seconds=15)
"""From one look at an alert to the next."""
FAILED_AGAIN = timedelta(minutes=1)
"""From a look that failed to the next."""
CLEAR_FOR = timedelta(minutes=5)


class Terms(msgspec.Struct, frozen=True):
    """When an alert is told.

    Attributes:
        after: for how long its condition must hold before.
        clear_for: for how long it must not hold before the alert is over.
        repeat_every: after which time the alert is told again while it goes on; None: it is not.
        resolved: whether it is told when the alert is over.
    """

    after: timedelta
    clear_for: timedelta
    repeat_every: timedelta | None
    resolved: bool

    @classmethod
    def checked(
        cls, after: Duration, clear_for: Duration, repeat_every: Duration | None, *, resolved: bool
    ) -> "Terms":
        """Check them.

        Raises:
            InvalidOption: one is out of its range.
        """
        return cls(
            as_delay("after", after),
            as_delay("clear_for", clear_for),
            as_limit("repeat_every", repeat_every),
            bool(resolved),
        )


class AlertState(msgspec.Struct, frozen=True):
    """How an alert stands between two looks.

    Attributes:
        held_at: at which look its condition held first; None: it is ok.
        firing_at: since when it is firing; None: it is not.
        clear_at: at which look the condition of a firing alert held no more; None: it does.
        told_at: when its task was told last; None: not since it is firing.
        told: how many times its task was told since then.
    """

    held_at: datetime | None = None
    firing_at: datetime | None = None
    clear_at: datetime | None = None
    told_at: datetime | None = None
    told: int = 0

    @property
    def name(self) -> str:
        """``ok``, ``pending``, ``firing`` or ``clearing``."""
        if self.firing_at is None:
            return "ok" if self.held_at is None else "pending"
        return "firing" if self.clear_at is None else "clearing"


OK = AlertState()


class AlertJudgement(NamedTuple):
    """What follows of a look.

    Attributes:
        state: how the alert stands now.
        tells: what its task is told; None: nothing.
        since: at which look the condition held first; None: it did not.
        untold: how the alert stands if the task could not be told.
    """

    state: AlertState
    tells: Sign | None = None
    since: datetime | None = None
    untold: AlertState = OK


def judge(
    terms: Terms, state: AlertState, *, holds: bool, now: datetime, silenced: bool = False
) -> AlertJudgement:
    """Decide what follows of a look.

    Args:
        terms: when the alert is told.
        state: how it stood.
        holds: whether its condition holds.
        now: when the look is.
        silenced: whether its task is told nothing.
    """
    state = _not_after(state, now)
    return (
        _judge_held(terms, state, now, silenced=silenced)
        if holds
        else _clear(terms, state, now, silenced=silenced)
    )


def _judge_held(terms: Terms, state: AlertState, now: datetime, *, silenced: bool) -> AlertJudgement:
    since = state.held_at or now
    fires = state.firing_at is not None or now - since >= terms.after
    state = msgspec.structs.replace(
        state, held_at=since, firing_at=(state.firing_at or now) if fires else None, clear_at=None
    )
    if not fires or silenced or not _due(terms, state, now):
        return AlertJudgement(state, since=since)
    told = msgspec.structs.replace(state, told_at=now, told=state.told + 1)
    return AlertJudgement(told, "firing", since, untold=state)


def _due(terms: Terms, state: AlertState, now: datetime) -> bool:
    if state.told_at is None:
        return True
    return terms.repeat_every is not None and now - state.told_at >= terms.repeat_every


def _clear(terms: Terms, state: AlertState, now: datetime, *, silenced: bool) -> AlertJudgement:
    if state.firing_at is None:
        return AlertJudgement(OK)
    state = msgspec.structs.replace(state, clear_at=state.clear_at or now)
    if state.clear_at is not None and now - state.clear_at < terms.clear_for:
        return AlertJudgement(state, since=state.held_at)
    tells = terms.resolved and state.told > 0 and not silenced
    return AlertJudgement(OK, "resolved" if tells else None, state.held_at, untold=state)


def _not_after(state: AlertState, now: datetime) -> AlertState:
    instants = {
        name: min(at, now)
        for name in ("held_at", "firing_at", "clear_at", "told_at")
        if (at := getattr(state, name)) is not None
    }
    return msgspec.structs.replace(state, **instants)


class NewAlert(msgspec.Struct, frozen=True):
    """An alert that code declares.

    Attributes:
        name: what it is called.
        module: the module that declares it.
        rule: its condition.
        terms: when it is told.
        task: the task that is told.
        argument: the name of that task's parameter.
        queue: the queue of its jobs.
        priority: their priority; None: what the queue says.
        max_attempts: after how many attempts one is dead; None: what the queue says.
        expires_in: for how long one may wait to be started; None: for ever.
    """

    name: str
    module: str
    rule: Rule
    terms: Terms
    task: str
    argument: str
    queue: str
    priority: int | None = None
    max_attempts: int | None = None
    expires_in: timedelta | None = None


class AlertStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How an alert stands, at the last look.

    Attributes:
        name: what it is called.
        module: the module that declares it.
        kind: the name of its condition.
        rule: the condition and its options, as JSON.
        task: the task that is told.
        queue: the queue of its jobs.
        state: ``ok``, ``pending`` (its condition holds, for less than ``after``), ``firing``, or ``clearing`` (its condition holds no
            more, for less than ``clear_for``).
        summary: what the last look found, in words; None: there was none.
        value: the same as a number; None: there is nothing of that kind.
        threshold: what it was compared with.
        since: at which look its condition held first; None: it is ok.
        looked_at: when the last look was; None: there was none.
        told_at: when its task was told last since the alert is firing; None: it was not.
        told: how many times.
        job_id: the last job by which its task was told; None: there is none.
        silenced_until: until when its task is told nothing; None: it is told.
        silenced_by: who silenced it.
        failed_at: since when looks fail, or its task cannot be told; None: they do not.
        error: why.
        terms: when its task is told.
        argument: the name of that task's parameter.
    """

    name: str
    module: str
    kind: str
    rule: str
    task: str
    queue: str
    state: str
    summary: str | None
    value: float | None
    threshold: float | None
    since: datetime | None
    looked_at: datetime | None
    told_at: datetime | None
    told: int
    job_id: int | None
    silenced_until: datetime | None
    silenced_by: str | None
    failed_at: datetime | None
    error: str | None
    terms: Terms
    argument: str

    @property
    def active(self) -> bool:
        """Whether it is firing or clearing."""
        return self.state in {"firing", "clearing"}

"""Plans for alerts: store those that an app declares, look at one and tell its task, list them, silence them.

A look is one transaction: it locks the alert's row, reads its condition, decides (:mod:`pgqueue.values.alerts.state`), adds the job
of its task, and notes how the alert stands. So the task is told once, however many workers look and whatever crashes.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from pgqueue.errors import InvalidOption, JobError
from pgqueue.store import audit
from pgqueue.store.alerts.alert_readings import Answers, Moment, read
from pgqueue.store.jobs import enqueue
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.values.alerts.alert import Alert, Reading, decode_condition, encode_condition, summary
from pgqueue.values.alerts.state import (
    EVERY,
    FAILED_AGAIN,
    AlertJudgement,
    AlertState,
    AlertStatus,
    NewAlert,
    Terms,
    judge,
)
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.jobs.options import check_text
from pgqueue.values.schedules.schedule import Applied, ScheduleChange

ALERT = "pgqueue_alert"
"""The key of a job's meta under which the name of its alert is."""
TIMEOUT = timedelta(seconds=3)
"""The server cancels a statement of a look that takes longer. With ten million jobs one takes milliseconds."""
LONGEST_ERROR = 1_000
"""Characters of an error that are kept."""


class DueAlerts(NamedTuple):
    """What is to be looked at.

    Attributes:
        names: the alerts that are to be looked at now.
        next_in: seconds until the next one is; None: there is none.
    """

    names: Sequence[str]
    next_in: float | None


class AlertLook(NamedTuple):
    """What a look at an alert has done.

    Attributes:
        alert: what its task was told; None: nothing.
        error: why its task could not be told; None: it could, or the same was noted before.
    """

    alert: Alert | None = None
    error: str | None = None


@plan(transaction=True)
def apply(
    declared: Sequence[NewAlert], modules: Sequence[str], *, now: datetime | None = None
) -> Steps[Applied]:
    """Store the alerts that an app declares, all or none, and remove those that its modules no longer declare.

    Args:
        declared: the alerts.
        modules: the modules whose alerts these are; those of other modules stay.
        now: the instant; the database's own by default.
    """
    yield Statement("schedules/apply_lock", {}, returns=False)
    names = [one.name for one in declared]
    removed = yield Statement("alerts/remove", {"names": [], "modules": [*modules], "declared": names})
    changes = {}
    for one in sorted(declared, key=lambda new: new.name):
        changes[one.name] = yield from _put(one, now)
    return Applied.of(changes, sorted(row[0] for row in removed))


@plan(transaction=True)
def remove(name: str, *, by: str | None) -> Steps[bool]:
    """Delete an alert; False: there was none of this name.

    Args:
        name: which.
        by: who.
    """
    params: dict[str, list[str]] = {"names": [check_text("name", name)], "modules": [], "declared": []}
    if not (yield Statement("alerts/remove", params)):
        return False
    yield from audit.note("alert remove", name, by=by)
    return True


@plan
def listed(*, now: datetime | None = None) -> Steps[list[AlertStatus]]:
    """Every alert by name, and how it stands.

    Args:
        now: the instant; the database's own by default.
    """
    return [_status(row) for row in (yield Statement("alerts/list", {"now": now}))]


@plan(transaction=True)
def silence(
    name: str, length: timedelta | None, *, by: str | None, now: datetime | None = None
) -> Steps[datetime | None]:
    """Have the task of an alert told nothing for a time; until when.

    Args:
        name: which alert.
        length: for how long; None: have it told again.
        by: who.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: there is none of this name.
    """
    params = {"name": check_text("name", name), "length": length, "by": by, "now": now}
    rows = yield Statement("alerts/silence", params)
    if not rows:
        raise no_alert(name, [one.name for one in (yield from listed(now=now))])
    yield from audit.note(
        "alert unsilence" if length is None else "alert silence", name, by=by, length=length
    )
    until: datetime | None = rows[0][0]
    return until


@plan
def due(*, now: datetime | None = None) -> Steps[DueAlerts]:
    """Which alerts are to be looked at.

    Args:
        now: the instant; the database's own by default.
    """
    ((names, next_in),) = yield Statement("alerts/due", {"now": now})
    return DueAlerts(names, next_in)


@plan(transaction=True)
def look(name: str, *, answers: Answers | None = None, now: datetime | None = None) -> Steps[AlertLook]:
    """Look at an alert, if no other worker does or has, and tell its task what is to be told.

    Args:
        name: which alert.
        answers: what looks of this moment have read; it is added to.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: its condition makes no sense.
    """
    timeout = f"{TIMEOUT // timedelta(milliseconds=1)}ms"
    rows = yield Statement("alerts/lock", {"name": name, "timeout": timeout, "now": now})
    if not rows:
        return AlertLook()
    (row,) = rows
    at, new = row[0], _alert_of_row(name, row)
    reading = yield from read(new.rule, Moment(now, {} if answers is None else answers))
    judged = judge(new.terms, AlertState(*row[12:17]), holds=reading.holds, now=at, silenced=row[17] is True)
    alert = alert_to_tell(new, reading, judged, at)
    job_id, error = (None, None) if alert is None else (yield from _tell(alert, new, now))
    params = msgspec.structs.asdict(judged.state if error is None else judged.untold) | {
        "name": name,
        "value": reading.value,
        "threshold": reading.threshold,
        "summary": summary(new.rule, reading),
        "job_id": job_id,
        "error": error,
        "every": EVERY,
        "now": now,
    }
    yield Statement("alerts/settle", params, returns=False)
    return AlertLook(None if error else alert, None if error == row[18] else error)


@plan
def fail(name: str, error: str, *, now: datetime | None = None) -> Steps[bool]:
    """Note that a look at an alert failed; it is looked at again in a minute. False: the same was noted before.

    Args:
        name: which alert.
        error: why.
        now: the instant; the database's own by default.
    """
    params = {"name": name, "error": storable_error(error), "every": FAILED_AGAIN, "now": now}
    return bool((yield Statement("alerts/fail", params)))


def alert_to_tell(new: NewAlert, reading: Reading, judged: AlertJudgement, at: datetime) -> Alert | None:
    """What a task is told after a look; None: nothing."""
    if judged.tells is None:
        return None
    return Alert(
        name=new.name,
        state=judged.tells,
        kind=new.rule.kind,
        summary=summary(new.rule, reading),
        value=reading.value,
        threshold=reading.threshold,
        since=judged.since or at,
        at=at,
        reminder=judged.untold.told if judged.tells == "firing" else 0,
        **reading.about,
    )


def job_of(alert: Alert, new: NewAlert) -> NewJob:
    """The job by which a task is told. It is stored in clear: it has names and numbers that the tables have in clear, too."""
    return NewJob(
        task=new.task,
        args=msgspec.json.encode({new.argument: alert}),
        queue=new.queue,
        priority=new.priority,
        max_attempts=new.max_attempts,
        expires_in=new.expires_in,
        meta=msgspec.json.encode({ALERT: alert.name}),
    )


def no_alert(name: str, known: Sequence[str]) -> InvalidOption:
    """The error for a name that no alert has."""
    return InvalidOption(
        f"alert {name!r:.200}: there is none of this name{did_you_mean(name, known)}; `pgqueue alerts list` shows those that there are"
    )


def storable_error(error: str) -> str:
    """An error as text that every database stores."""
    return error.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()[:LONGEST_ERROR]


def _tell(alert: Alert, new: NewAlert, now: datetime | None) -> Steps[tuple[int | None, str | None]]:
    """Add the job; return its id, or why it was refused: then the next look tries again."""
    try:
        added = yield from enqueue.enqueue(job_of(alert, new), now=now)
    except JobError as error:
        return None, storable_error(f"its task is not told: {error}")
    yield Statement("alerts/put_in_lane", {"id": added.id}, returns=False)
    return added.id, None


def _alert_of_row(name: str, row: Row) -> NewAlert:
    """The alert of a row of ``alerts/lock``; which module declares it does not matter."""
    return NewAlert(name, "", decode_condition(row[1]), Terms(*row[2:6]), *row[6:12])


def _put(new: NewAlert, now: datetime | None) -> Steps[ScheduleChange]:
    params = (
        msgspec.structs.asdict(new)
        | msgspec.structs.asdict(new.terms)
        | {"rule": encode_condition(new.rule), "now": now}
    )
    params.pop("terms")
    rows = yield Statement("alerts/put", params)
    if rows:
        return ScheduleChange.ADDED if rows[0][0] else ScheduleChange.CHANGED
    owners = yield Statement("alerts/owner", {"name": new.name})
    return ScheduleChange.UNCHANGED if owners and owners[0][0] == new.module else ScheduleChange.TAKEN


def _status(row: Row) -> AlertStatus:
    state = AlertState(*row[14:19])
    return AlertStatus(
        name=row[0],
        module=row[1],
        kind=kind_of(row[2]),
        rule=row[2],
        task=row[3],
        queue=row[4],
        state=state.name,
        summary=row[5],
        value=row[6],
        threshold=row[7],
        since=state.held_at,
        looked_at=row[8],
        told_at=state.told_at,
        told=state.told,
        job_id=row[9],
        silenced_until=row[10],
        silenced_by=row[11],
        failed_at=row[12],
        error=row[13],
        terms=Terms(*row[19:23]),
        argument=row[23],
    )


def kind_of(rule: str) -> str:
    """The name of a stored condition, whether this release knows it or not."""
    try:
        return decode_condition(rule).kind
    except InvalidOption:
        return "unknown"

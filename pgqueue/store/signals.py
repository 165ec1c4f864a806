"""Signals: what programs outside of a job tell it, and how jobs wait for that, or for a time.

A job that waits in the middle of its work holds no slot and no connection: its attempt has ended, unspent, and the job is
blocked with a row in ``waits`` (:mod:`pgqueue.store.jobs.admission`). The first signal of each name to each target is kept, and
every later attempt is given it. The deadline of a wait is kept in ``deadlines``.

No signal is lost between the attempt that begins to wait and the program that sends:

- :func:`send` stores the signal and admits all jobs that its transaction sees waiting. The row says ``not settled``.
- :func:`wait` blocks a job unless it sees the signal.
- Where neither sees the other, because the two transactions overlap or the sender's snapshot is old, a worker settles the
  signal after it is committed: :func:`admit_due`. Blocking holds a lock shared, and settling holds it alone, so that each
  blocked job is seen by settling or sees the signal. No sender holds or waits for that lock, however long its transaction is.

What a task calls is in :mod:`pgqueue.app.signals.waits`, what sends in :mod:`pgqueue.app.job_methods`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.jobs.ending import States, states_of
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.signals import SignalWait

ADMITTED_AT_ONCE = 1_000

Sent: TypeAlias = Literal["first", "repeated", "gone", "invalid", "expired"]
"""What became of a signal: stored; there was one already; its job or flow has ended or never was; the token is none of
ours; the token has expired."""


class SignalLook(NamedTuple):
    """What an attempt finds.

    Attributes:
        over: the deadline has passed, and no signal came before.
        arrived: the signal is there.
        payload: its payload as it is stored; None: it has none.
    """

    over: bool
    arrived: bool
    payload: str | None


class AdmissionResult(NamedTuple):
    """How many signals and deadlines were dealt with, and which jobs the database refused to admit."""

    handled: int
    refused: Sequence[int]


@plan(adds=True)
def send(target: str, name: str, payload: str | None = None, *, now: datetime | None = None) -> Steps[Sent]:
    """Store a signal, and admit what waits for it in the same transaction.

    Args:
        target: ``job:ID``, ``flow:ID`` or ``key:TEXT``.
        name: which signal.
        payload: JSON; None: none.
        now: the instant; the database's own by default.
    """
    params = {"target": target, "name": name, "payload": payload, "now": now}
    ((sent,),) = yield Statement("signals/send", params)
    return sent  # type: ignore[no-any-return]  # as the function says


@plan(adds=True)
def resolve(token: str, payload: str | None = None, *, now: datetime | None = None) -> Steps[Sent]:
    """Send the signal that a callback's token stands for; arguments as for :func:`send`."""
    ((sent,),) = yield Statement("signals/resolve", {"token": token, "payload": payload, "now": now})
    return sent  # type: ignore[no-any-return]  # as the function says


@plan
def callback(awaited: SignalWait, *, now: datetime | None = None) -> Steps[str]:
    """The token of a callback, valid until the deadline of its wait; the same in all attempts."""
    params = {
        "job": awaited.job_id,
        "name": awaited.name,
        "reason": awaited.reason,
        "timeout": awaited.timeout,
        "now": now,
    }
    ((token,),) = yield Statement("signals/callback", params)
    return str(token)


@plan
def look(awaited: SignalWait, *, now: datetime | None = None) -> Steps[SignalLook]:
    """Whether what an attempt waits for is there, or the wait is over."""
    params = {
        "job": awaited.job_id,
        "target": awaited.target,
        "name": awaited.name,
        "reason": awaited.reason,
        "now": now,
    }
    (row,) = yield Statement("signals/look", params)
    return SignalLook(*row)


@plan(transaction=True)
def wait(fenced: Mapping[str, object], awaited: Sequence[SignalWait]) -> Steps[States]:
    """Block jobs whose attempts wait; a job that is missing in the result has its signal, or is not held any more.

    Args:
        fenced: the worker, the ids, the fences and the instant, as all statements that end attempts take them.
        awaited: what each job waits for, in the same order.
    """
    timeouts = [None if one.timeout is None else one.timeout.total_seconds() for one in awaited]
    yield Statement("signals/lock", {})
    rows = yield Statement(
        "signals/wait",
        {
            **fenced,
            "reasons": texts(one.reason for one in awaited),
            "targets": texts(one.target for one in awaited),
            "names": texts(one.name for one in awaited),
            "timeouts": numbers(timeouts),
        },
    )
    return states_of(rows)


@plan
def admit_due(*, now: datetime | None = None) -> Steps[AdmissionResult]:
    """Admit jobs whose signal was sent while they began to wait, and jobs whose deadline has passed, some at a time."""
    ((settled, refused),) = yield Statement("signals/settle", {"now": now, "limit": ADMITTED_AT_ONCE})
    ((lapsed, also_refused),) = yield Statement("signals/lapse", {"now": now, "limit": ADMITTED_AT_ONCE})
    return AdmissionResult(settled + lapsed, [*refused, *also_refused])

"""Plans by which a worker is known, and takes and keeps jobs.

The protocol. A worker is a row in ``workers`` with a fresh uuid and a lease that it renews each beat; its
claims are the ``running`` jobs that name the uuid. A sweeper that finds the lease in the past deletes the row
(:mod:`pgqueue.store.upkeep`), and with it every claim: running jobs that name no known worker are reclaimed. ``renew`` and
that deletion contend for one row, so exactly one of them wins: a worker that is told its lease is lost has lost every
claim, and one that is not has kept them all.

Running jobs are in no index: each entry would be written at every claim and rarely read, and while a transaction holds
a snapshot open, the entries of ended jobs would stay. Instead the table is read from end to end: when a worker left and
may have held jobs, and when the answer to a claim was lost with its connection, so that jobs may be in the name of a
worker that does not know of them. Such jobs go back unspent. Where the answer came and the worker could not handle it,
those attempts end as failed, so that a job that breaks its worker runs out of attempts (:mod:`pgqueue.worker.reconciler`).
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from operator import attrgetter
from random import getrandbits
from types import MappingProxyType
from uuid import UUID, uuid4

import msgspec

from pgqueue.store import finish
from pgqueue.store.arrays import columns, numbers, texts
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.portions import Portions
from pgqueue.store.workers import asked_of
from pgqueue.values.health import WorkerHealth
from pgqueue.values.job import HEAD, Claim, Mark
from pgqueue.values.serving import Serving
from pgqueue.values.shares import Split, in_turn
from pgqueue.values.verdict import Returned, describe, failed, lost
from pgqueue.values.workers import Ask, Doing

NO_MARKS: Mapping[str, Mark] = MappingProxyType({})
NOT_SAID = WorkerHealth()
ASKED_AT_ONCE = 100
"""One statement claims from at most this many queues, or one from each where there is room for more."""

# One number for each claim statement of this process. It starts at random: a worker of the previous release, which
# counts the claims of each job instead, must not come to a number that it used before.
_fences = count(getrandbits(30))


def next_fence() -> int:
    """A number that no claim of this process has had before; it leaves room for older workers, which add to it."""
    return next(_fences) % 2**30


class WorkerInfo(msgspec.Struct, frozen=True):
    """How a worker introduces itself.

    Attributes:
        id: fresh for every process and every lost lease.
        host: where it runs, for people to read.
        pid: its process id there.
        concurrency: how many jobs it runs at a time.
        version: of pgqueue.
        queues: what it serves; None: all queues.
        tasks: the tasks that it knows; None: not said, it may know any.
        doing: what it does; None: it does not do what it is asked to do from outside, as a take.
    """

    id: UUID
    host: str
    pid: int
    concurrency: int
    version: str
    queues: Sequence[str] | None
    tasks: Sequence[str] | None = None
    doing: Doing | None = None

    @classmethod
    def here(
        cls,
        concurrency: int,
        queues: Sequence[str] | None,
        *,
        id: UUID | None = None,  # noqa: A002 - the field's name
        tasks: Sequence[str] | None = None,
        doing: Doing | None = None,
    ) -> "WorkerInfo":
        """A worker of this process, under this id or a new one."""
        from pgqueue.values.version import __version__  # noqa: PLC0415 - reads a file, which enqueuers do without

        host, pid = socket.gethostname(), os.getpid()
        return cls(id or uuid4(), host, pid, concurrency, __version__, queues, tasks, doing)


class Heard(msgspec.Struct, frozen=True):
    """What a worker hears with a heartbeat.

    Attributes:
        ask: what it is asked to do.
        to_cancel: which of its jobs are to be cancelled.
        stacks: of which of its jobs a program asks for the stack.
    """

    ask: Ask
    to_cancel: Sequence[int] = ()
    stacks: Sequence[int] = ()


@plan
def register(worker: WorkerInfo, lease: timedelta, *, now: datetime | None = None) -> Steps[None]:
    """Make a worker known. It is asleep until it says otherwise."""
    yield Statement(
        "register",
        {
            "worker": worker.id,
            "lease": lease,
            "host": worker.host,
            "pid": worker.pid,
            "concurrency": worker.concurrency,
            "version": worker.version,
            "queues": None if worker.queues is None else list(worker.queues),
            "tasks": None if worker.tasks is None else list(worker.tasks),
            **_said(worker.doing),
            "now": now,
        },
        returns=False,
    )


@plan
def renew(
    worker: UUID,
    lease: timedelta,
    *,
    health: WorkerHealth = NOT_SAID,
    doing: Doing | None = None,
    now: datetime | None = None,
) -> Steps[Ask | None]:
    """Extend a worker's lease, store how it is and what it does, and hear what it is asked to do.

    None: the lease is lost, and every claim with it.
    """
    row = yield from _renewed(worker, lease, health, doing, now)
    return None if row is None else asked_of(row[:-1])


def _renewed(
    worker: UUID, lease: timedelta, health: WorkerHealth, doing: Doing | None, now: datetime | None
) -> Steps[Row | None]:
    blocked = health.blocked
    rows = yield Statement(
        "renew",
        {
            "worker": worker,
            "lease": lease,
            "blocked_for": None if blocked is None else _ago(blocked.seconds),
            "blocked_job": None if blocked is None else blocked.job,
            "blocked_task": None if blocked is None else blocked.task,
            "blocked_where": None if blocked is None else blocked.where,
            "not_returned": health.not_returned,
            "memory": health.memory,
            "running": None if health.running is None else numbers(health.running),
            "looked": _ago(health.looked),
            "look_within": health.look_within,
            "not_listening": _ago(health.not_listening),
            **_said(doing),
            "maximum": doing and doing.bounds.maximum,
            "answer": doing and doing.answer,
            "now": now,
        },
    )
    return rows[0] if rows else None


@plan
def set_idle(worker: UUID, *, idle: bool) -> Steps[None]:
    """Say whether the worker wants to be notified of new jobs."""
    yield Statement("set_idle", {"worker": worker, "asleep": idle}, returns=False)


@plan
def leave(worker: UUID) -> Steps[None]:
    """Take a worker off the list; what it still holds is reclaimed by the next sweep."""
    yield Statement("leave", {"worker": worker}, returns=False)


@plan
def leave_without_jobs(worker: UUID) -> Steps[None]:
    """Take a worker off the list that holds nothing, so that no sweeper looks for its jobs."""
    yield from leave(worker)
    yield Statement("leave_without_jobs", {"worker": worker}, returns=False)


@plan
def claim(
    worker: UUID,
    quotas: Mapping[str, int],
    *,
    limit: int | None = None,
    marks: Mapping[str, Mark] = NO_MARKS,
    now: datetime | None = None,
) -> Steps[list[Claim]]:
    """Take ready jobs, spending an attempt of each.

    Args:
        worker: who takes them; must be registered.
        quotas: at most how many from each queue. Queues are asked in this order.
        limit: at most how many in all; when they are found, the other queues are not asked.
        marks: from which position on; from the head where none is given.
        now: the instant of the claim; the database's own by default.

    Returns:
        Claims in the order in which they are to start: priority, time, id.
    """
    asked_at = time.monotonic()
    rows = yield Statement(
        "claim",
        {
            "worker": worker,
            "queues": texts(quotas),
            "quotas": numbers([*quotas.values()]),
            **columns(marks.get(queue, HEAD) for queue in quotas),
            "limit": limit,
            "fence": next_fence(),
            "now": now,
        },
    )
    return [Claim(row[0], worker, *row[1:], asked_at) for row in rows]  # type: ignore[call-arg]  # mypy has row[1:] fill all fields


@plan
def fill(
    worker: UUID,
    queues: Sequence[str],
    room: int,
    *,
    split: Split | None = None,
    marks: Mapping[str, Mark] = NO_MARKS,
    now: datetime | None = None,
) -> Steps[list[Claim]]:
    """Claim from several queues, a share from each, until there is no room or nothing more is ready.

    Args:
        worker: who takes them.
        queues: where from; when there is less room than queues, the first ones that have jobs are served.
        room: at most how many.
        split: says how many from each; None: an equal share.
        marks: as for :func:`claim`.
        now: as for :func:`claim`.
    """
    claims: list[Claim] = []
    unfilled = list(queues)
    while unfilled and len(claims) < room:
        left = room - len(claims)
        if split is None:
            quotas = dict.fromkeys(unfilled[: max(left, ASKED_AT_ONCE)], max(1, left // len(unfilled)))
        else:
            quotas = split.quotas(unfilled, left)
        found = yield from claim(worker, quotas, limit=left, marks=marks, now=now)
        claims += found
        served = Counter(one.queue for one in found)
        if split is not None:
            split.learn(quotas, served, left)
        unfilled = [one for one in unfilled if one not in quotas]
        unfilled += [queue for queue, share in quotas.items() if served[queue] == share]
    return claims


@plan
def look(
    worker: UUID,
    served: Serving,
    room: int,
    *,
    portions: Portions,
    split: Split | None = None,
    now: datetime | None = None,
) -> Steps[list[Claim]]:
    """Claim what is ready, as :func:`fill` does, in portions so that no answer is too long: a look of a take or a drain.

    Args:
        worker: who takes them.
        served: where from. Of names, the first ones are served where there is less room than queues; of all queues and of
            patterns, those whose names come first.
        room: at most how many.
        portions: how long the answers of this worker are.
        split: as for :func:`fill`.
        now: as for :func:`claim`.

    Returns:
        Claims in the order of the queues, or in that of the split.
    """
    if not served.is_open:
        queues = served.filtered(served.names)
        return (yield from _in_portions(worker, queues, room, portions=portions, split=split, now=now))
    claims: list[Claim] = []
    waiting: list[str] = []
    after = None
    while len(claims) < room:
        names = yield from next_queues(after, ASKED_AT_ONCE)
        waiting += served.filtered(names)
        is_last = len(names) < ASKED_AT_ONCE
        if is_last or split is None:  # shares and orders are of all queues
            claims += yield from _in_portions(
                worker, waiting, room - len(claims), portions=portions, split=split, now=now
            )
            waiting = []
        if is_last:
            break
        after = names[-1]
    return claims


def _in_portions(
    worker: UUID,
    queues: Sequence[str],
    room: int,
    *,
    portions: Portions,
    split: Split | None,
    now: datetime | None,
) -> Steps[list[Claim]]:
    claims: list[Claim] = []
    while queues and len(claims) < room:
        portion = min(room - len(claims), portions.most)
        # a portion smaller than the number of queues goes on where the last one ended
        first = len(claims) % len(queues)
        found = yield from fill(worker, [*queues[first:], *queues[:first]], portion, split=split, now=now)
        portions.learn(found)
        claims += found
        if len(found) < portion:
            break
    if split is not None:
        return in_turn(split, claims, attrgetter("queue"))
    places = {name: place for place, name in enumerate(queues)}
    return sorted(claims, key=lambda one: places[one.queue])


@plan
def new_queues(known: Sequence[str] = (), *, limit: int | None = None) -> Steps[list[str]]:
    """The queues in which ready jobs stand, other than those that are known; at most ``limit`` and perhaps one."""
    rows = yield Statement("new_queues", {"known": texts(known), "limit": limit})
    return sorted(row[0] for row in rows)


@plan
def next_queues(after: str | None, limit: int) -> Steps[list[str]]:
    """The next queues in which ready jobs stand, in the database's order of names.

    Args:
        after: the name after which to look; None: from the first name on.
        limit: at most how many; fewer: there are no more.
    """
    rows = yield Statement("next_queues", {"after": after, "limit": limit})
    return [row[0] for row in rows]


@plan
def beat(
    worker: UUID,
    lease: timedelta,
    known: Sequence[int],
    *,
    health: WorkerHealth = NOT_SAID,
    doing: Doing | None = None,
    now: datetime | None = None,
) -> Steps[Heard | None]:
    """Renew the lease, and hear what there is to hear; None: the lease is lost, and every claim with it.

    Args:
        worker: whose.
        lease: for how long from now.
        known: every job the worker knows to be in its name.
        health: how the worker is.
        doing: what it does.
        now: the instant of the beat; the database's own by default.
    """
    row = yield from _renewed(worker, lease, health, doing, now)
    if row is None:
        return None
    *asked, stacks = row
    to_cancel = (yield from cancel_requests(worker, known)) if known else ()
    return Heard(asked_of(asked), to_cancel, tuple(stacks))


def _ago(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _said(doing: Doing | None) -> dict[str, object]:
    """What a worker says that it does, as arguments of a statement."""
    return {
        "minimum": doing and doing.bounds.minimum,
        "slots": doing and doing.slots,
        "draining": doing and doing.draining,
        "supervised": doing and doing.supervised,
    }


@plan(transaction=True)
def return_unknown(worker: UUID, known: Sequence[int], *, ran: Collection[int] = ()) -> Steps[list[int]]:
    """Return what the worker holds in the database but does not know of.

    Args:
        worker: whose.
        known: the jobs that it knows to be in its name; they are left alone.
        ran: of the others those whose attempt was started here: that attempt is spent. A claim that was never started
            goes back unspent.

    Returns:
        The ids. A job that was to be cancelled has ended as that; all others are in line again, or dead.
    """
    unknown = yield from unknown_claims(worker, known)
    how = "ran this attempt, and could not record how it ended"
    verdicts = [lost(one, seconds=0.0, how=how) if one.id in ran else Returned(one) for one in unknown]
    return sorted((yield from finish.finish(worker, verdicts, keep=True)))


@plan(transaction=True)
def give_up(worker: UUID, known: Sequence[int], error: Exception) -> Steps[list[int]]:
    """End as failed, with this error, the attempts that the worker holds but does not know of; the ids."""
    unknown = yield from unknown_claims(worker, known)
    verdicts = [failed(one, describe(error, one.attempt)) for one in unknown]
    return sorted((yield from finish.finish(worker, verdicts, keep=True)))


@plan
def cancel_requests(worker: UUID, known: Sequence[int]) -> Steps[list[int]]:
    """Which of the worker's jobs a caller asked to cancel."""
    rows = yield Statement("cancel_requests", {"worker": worker, "known": numbers([*known])})
    return [row[0] for row in rows]


@plan(transaction=True)
def unknown_claims(worker: UUID, known: Sequence[int]) -> Steps[list[Claim]]:
    """What the worker holds in the database but does not know of, as far as that is needed to end it.

    Only numbers are read, which any row has.
    """
    yield Statement("allow_full_reads", {})
    rows = yield Statement("unknown_claims", {"worker": worker, "known": numbers([*known])})
    return [
        Claim(job_id, worker, claims, attempt, most, 0, "", "", "{}", 0.0, 0.0, 0.0)
        for job_id, claims, attempt, most in rows
    ]

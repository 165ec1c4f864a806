"""Plans that take jobs from queues, and end what a worker holds without knowing of it.

One answer holds as many jobs as the length of the last jobs' arguments allows (:class:`Portions`).

A worker's claims are the ``running`` jobs that name it (:mod:`pgqueue.store.workers.leases`). Running jobs are in no index: each entry
would be written at every claim and rarely read, and while a transaction holds a snapshot open, the entries of ended jobs would
stay. Instead the table is read from end to end: when a worker left and may have held jobs, and when the answer to a claim was
lost with its connection, so that jobs may be in the name of a worker that does not know of them. Such jobs go back unspent. Where
the answer came and the worker could not handle it, those attempts end as failed, so that a job that breaks its worker runs out of
attempts (:mod:`pgqueue.worker.reconciler`).
"""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from pgqueue.store.arrays import columns, numbers, texts
from pgqueue.store.jobs import finish
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import HEAD, Claim, Mark
from pgqueue.values.jobs.verdict import Returned, failed_verdict, lost_verdict
from pgqueue.values.queues.served_queues import ServedQueues
from pgqueue.values.queues.shares import Split, in_turn

LARGEST_ANSWER = 1_000_000
"""The most characters of arguments that an answer should hold: more take no less time for each job, and more memory."""
_ARGS = attrgetter("args")
FIRST = 100
"""Jobs in the first answer."""


class Portions:
    """Decides the size of answers of one worker or take."""

    def __init__(self) -> None:
        self._length = LARGEST_ANSWER / FIRST

    @property
    def most(self) -> int:
        """How many jobs the next answer may hold."""
        return max(1, int(LARGEST_ANSWER / self._length))

    def learn(self, claims: Sequence[Claim]) -> None:
        """Adjust the size after an answer."""
        if claims:
            length = sum(map(len, map(_ARGS, claims))) / len(claims)
            self._length = max(1.0, length, self._length / 2)


NO_MARKS: Mapping[str, Mark] = MappingProxyType({})
ASKED_AT_ONCE = 100
"""One statement claims from at most this many queues, or one from each where there is room for more."""

_fences = count(1)


def next_fence() -> int:
    """A number that no claim of this process has had before, of those that the column holds."""
    return next(_fences) % 2**31


@plan
def claim(
    worker: UUID,
    quotas: Mapping[str, int],
    *,
    limit: int | None = None,
    marks: Mapping[str, Mark] = NO_MARKS,
    left_out: Sequence[str] = (),
    now: datetime | None = None,
) -> Steps[list[Claim]]:
    """Take ready jobs, spending an attempt of each.

    Args:
        worker: who takes them; must be registered.
        quotas: at most how many from each queue. Queues are asked in this order.
        limit: at most how many in all; when they are found, the other queues are not asked.
        marks: from which position on; from the head where none is given.
        left_out: tasks whose jobs are left to other workers.
        now: the instant of the claim; the database's own by default.

    Returns:
        Claims in the order in which they are to start: priority, time, id.
    """
    asked_at = time.monotonic()
    rows = yield Statement(
        "jobs/claim",
        {
            "worker": worker,
            "queues": texts(quotas),
            "quotas": numbers([*quotas.values()]),
            **columns(marks.get(queue, HEAD) for queue in quotas),
            "left_out": texts(left_out),
            "limit": limit,
            "fence": next_fence(),
            "now": now,
        },
    )
    return [Claim(row[0], worker, *row[1:], asked_at) for row in rows]  # type: ignore[call-arg]  # mypy has row[1:] fill all fields


class ReadyHead(NamedTuple):
    """The first ready job of a queue.

    Attributes:
        id: the job's.
        queue: its queue.
        task: its task.
        mark: its position.
    """

    id: int
    queue: str
    task: str
    mark: Mark


@plan
def head(
    queues: Sequence[str], marks: Mapping[str, Mark] = NO_MARKS, *, left_out: Sequence[str] = ()
) -> Steps[ReadyHead | None]:
    """The job that a claim of one job would take; None: there is none.

    Args:
        queues: where from, in the order in which they are asked.
        marks: from which position on; from the head where none is given.
        left_out: tasks whose jobs are left to other workers.
    """
    params = {
        "queues": texts(queues),
        "left_out": texts(left_out),
        **columns(marks.get(queue, HEAD) for queue in queues),
    }
    for job_id, queue, task, rank, run_at in (yield Statement("jobs/claim_head", params)):
        return ReadyHead(job_id, queue, task, Mark(rank, datetime.fromtimestamp(run_at, UTC), job_id))
    return None


@plan
def fill(
    worker: UUID,
    queues: Sequence[str],
    room: int,
    *,
    split: Split | None = None,
    marks: Mapping[str, Mark] = NO_MARKS,
    left_out: Sequence[str] = (),
    now: datetime | None = None,
) -> Steps[list[Claim]]:
    """Claim from several queues, a share from each, until there is no room or nothing more is ready.

    Args:
        worker: who takes them.
        queues: where from; when there is less room than queues, the first ones that have jobs are served.
        room: at most how many.
        split: says how many from each; None: an equal share.
        marks: as for :func:`claim`.
        left_out: as for :func:`claim`.
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
        found = yield from claim(worker, quotas, limit=left, marks=marks, left_out=left_out, now=now)
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
    served: ServedQueues,
    room: int,
    *,
    portions: Portions,
    split: Split | None = None,
    left_out: Sequence[str] = (),
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
        left_out: as for :func:`claim`.
        now: as for :func:`claim`.

    Returns:
        Claims in the order of the queues, or in that of the split.
    """
    if not served.is_open:
        queues = served.filtered(served.names)
        return (
            yield from _in_portions(
                worker, queues, room, portions=portions, split=split, left_out=left_out, now=now
            )
        )
    claims: list[Claim] = []
    waiting: list[str] = []
    after = None
    while len(claims) < room:
        names = yield from next_queues(after, ASKED_AT_ONCE)
        waiting += served.filtered(names)
        is_last = len(names) < ASKED_AT_ONCE
        if is_last or split is None:  # shares and orders are of all queues
            claims += yield from _in_portions(
                worker,
                waiting,
                room - len(claims),
                portions=portions,
                split=split,
                left_out=left_out,
                now=now,
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
    left_out: Sequence[str],
    now: datetime | None,
) -> Steps[list[Claim]]:
    claims: list[Claim] = []
    while queues and len(claims) < room:
        portion = min(room - len(claims), portions.most)
        # a portion smaller than the number of queues goes on where the last one ended
        first = len(claims) % len(queues)
        turn = [*queues[first:], *queues[:first]]
        found = yield from fill(worker, turn, portion, split=split, left_out=left_out, now=now)
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
    rows = yield Statement("workers/new_queues", {"known": texts(known), "limit": limit})
    return sorted(row[0] for row in rows)


@plan
def next_queues(after: str | None, limit: int) -> Steps[list[str]]:
    """The next queues in which ready jobs stand, in the database's order of names.

    Args:
        after: the name after which to look; None: from the first name on.
        limit: at most how many; fewer: there are no more.
    """
    rows = yield Statement("workers/next_queues", {"after": after, "limit": limit})
    return [row[0] for row in rows]


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
    verdicts = [
        lost_verdict(one, seconds=0.0, how=how) if one.id in ran else Returned(one) for one in unknown
    ]
    return sorted((yield from finish.finish(worker, verdicts, keep=True)))


@plan(transaction=True)
def give_up(worker: UUID, known: Sequence[int], error: Exception) -> Steps[list[int]]:
    """End as failed, with this error, the attempts that the worker holds but does not know of; the ids."""
    unknown = yield from unknown_claims(worker, known)
    verdicts = [failed_verdict(one, describe(error, one.attempt)) for one in unknown]
    return sorted((yield from finish.finish(worker, verdicts, keep=True)))


@plan(transaction=True)
def unknown_claims(worker: UUID, known: Sequence[int]) -> Steps[list[Claim]]:
    """What the worker holds in the database but does not know of, as far as that is needed to end it.

    Only numbers are read, which any row has.
    """
    yield Statement("connections/allow_full_reads", {})
    rows = yield Statement("workers/unknown_claims", {"worker": worker, "known": numbers([*known])})
    return [
        Claim(job_id, worker, fence, attempt, most, 0, "", "", "{}", 0.0, 0.0, 0.0)
        for job_id, fence, attempt, most in rows
    ]

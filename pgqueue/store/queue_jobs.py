"""Plans that act on all jobs of a queue: purge and move, in portions, each in a transaction of its own.

Jobs are read in the order of their ids, :data:`LOOKED_AT` at a time, so that no index on the queue is needed, a transaction
stays short, and an interruption loses nothing. Running jobs are left alone. A job that another transaction has locked is
skipped: run it again.
"""

from datetime import datetime

import msgspec

from pgqueue.store import queues
from pgqueue.store.admission import forget
from pgqueue.store.finish import cancel_waiting
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.sweep import Sweep
from pgqueue.store.waking import wake
from pgqueue.values.job import JobState

LOOKED_AT = 5_000
"""Jobs that one transaction reads."""


class Contents(msgspec.Struct, frozen=True):
    """The jobs of a queue.

    Attributes:
        waiting: those that a purge cancels and a move moves.
        running: those that it leaves alone.
        dead: those that are dead.
    """

    waiting: int
    running: int
    dead: int


@plan
def contents(queue: str) -> Steps[Contents]:
    """How many jobs a queue has; it reads all live and dead jobs."""
    ((waiting, running, dead),) = yield Statement("queues/count", {"queue": queue})
    return Contents(waiting, running, dead)


def moving(queue: str, target: str, *, by: str | None = None) -> Sweep[int]:
    """Move the waiting jobs of a queue to another one; how many."""
    count = 0
    after: int | None = -1
    while after is not None:
        moved, after = yield move_portion(queue, target, after=after)
        count += moved
    yield noted("move", queue, by=by, jobs=count, to=target)
    return count


def purging(queue: str, *, by: str | None = None) -> Sweep[int]:
    """Cancel the waiting jobs of a queue; how many."""
    count = 0
    after: int | None = -1
    while after is not None:
        cancelled, after = yield purge_portion(queue, after=after)
        count += cancelled
    yield noted("purge", queue, by=by, jobs=count)
    return count


@plan(transaction=True)
def move_portion(queue: str, target: str, *, after: int) -> Steps[tuple[int, int | None]]:
    """Move some; how many, and after which id to go on; None: there are no others."""
    params = {"queue": queue, "target": target, "after": after, "limit": LOOKED_AT}
    ((last, moved),) = yield Statement("queues/move", params)
    if moved:
        yield from wake()
    return moved, last


@plan(transaction=True)
def purge_portion(queue: str, *, after: int, now: datetime | None = None) -> Steps[tuple[int, int | None]]:
    """Cancel some, as :func:`pgqueue.store.control.cancel` does one; as :func:`move_portion`."""
    params = {"queue": queue, "after": after, "limit": LOOKED_AT}
    ((last, ids),) = yield Statement("queues/waiting", params)
    if ids:
        yield from forget(ids)
    ended = (yield from cancel_waiting(ids, now=now)) if ids else {}
    return sum(state is JobState.CANCELLED for state in ended.values()), last


@plan
def noted(action: str, queue: str, *, by: str | None, jobs: int, to: str | None = None) -> Steps[None]:
    """Write down what was done, where it was done to any job."""
    if jobs:
        yield from queues.note(action, queue, by=by, jobs=jobs, to=to)

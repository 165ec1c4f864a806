"""Plans that keep a queue within its bound: what an enqueue asks about a queue that has one, or is drained.

Only ready jobs count: those that workers could start now. What a process has found is remembered for a second
(:class:`pgqueue.values.queues.defaults.QueueCache`), so a bound is exceeded by what all enqueuers add within a second, at most. A batch
asks each time, and counts its own jobs.
"""

import logging
from collections import Counter
from collections.abc import Iterable

from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.jobs.job import NewJob
from pgqueue.values.queues.defaults import QueueCache, QueueDefaults, drained_error, full

log = logging.getLogger("pgqueue")


@plan
def require_room(queue: str, *, count: int = 1, known: QueueCache | None = None) -> Steps[None]:
    """Refuse jobs for a queue that is drained or full; log a warning, where its setting says so.

    Args:
        queue: which.
        count: how many jobs.
        known: what this process remembers of queues; it learns whether there is room for one job.

    Raises:
        QueueDrained: it takes no new jobs.
        BacklogFull: with these jobs it would have more ready jobs than its bound, and refuses them.
    """
    if known is not None:
        known.refuse(queue)
    began = 0.0 if known is None else known.clock()
    rows = yield Statement("queues/room", {"queue": queue, "count": count})
    is_drained, bound, when_full, is_full = rows[0] if rows else (False, None, None, False)
    if is_drained:
        raise drained_error(queue)
    refuses = bound if is_full and when_full == "refuse" else None
    if known is not None and bound is not None:
        known.note_room(queue, refuses, took=known.clock() - began)
    if refuses is not None:
        raise full(queue, refuses, count)
    if is_full and (known is None or known.warns(queue)):
        log.warning("queue is full: %s", full(queue, bound, count), extra={"queue": queue, "backlog": bound})


def count_bounded(jobs: Iterable[NewJob], defaults: QueueDefaults) -> Counter[str]:
    """How many of these jobs are for each queue that has a bound."""
    return Counter(job.queue for job in jobs if job.queue in defaults.bounded)


@plan
def require_rooms(counts: Counter[str]) -> Steps[None]:
    """Refuse jobs of which some are for a full queue; parameters and errors as for :func:`require_room`."""
    for queue, count in sorted(counts.items()):
        yield from require_room(queue, count=count)

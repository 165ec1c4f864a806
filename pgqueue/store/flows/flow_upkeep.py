"""Plans that keep flows in order. Each is safe to run by many workers at once.

A job of a flow can be gone without its flow having been told: the database set it aside, or a person deleted its row. Such nodes are found and settled here.
"""

from collections.abc import Sequence
from datetime import datetime

from pgqueue.store.arrays import numbers
from pgqueue.store.flows import flow_progress
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.flows.flow import NodeState
from pgqueue.values.jobs.job import JobFlags

SETTLED_AT_ONCE = 500
DROPPED_AT_ONCE = 10_000


@plan(transaction=True)
def settle_stranded(*, limit: int = SETTLED_AT_ONCE, now: datetime | None = None) -> Steps[int]:
    """Do what follows the end of jobs of which their flows were not told; returns how many jobs.

    Args:
        limit: at most how many; if it returns as many, there may be more.
        now: the instant to record; the database's own by default.
    """
    found = yield Statement("flows/stranded", {"limit": limit})
    free, _ = yield from flow_progress.lock_free(jobs=[row[0] for row in found])
    rows = [row for row in found if row[0] in free]
    if rows:
        ended = [(job_id, state, JobFlags.FLOW) for job_id, state, _ in rows]
        results = {job_id: result for job_id, _, result in rows if result is not None}
        yield from flow_progress.ended(ended, results, now=now)
    return len(rows)


@plan(transaction=True)
def settle_purged(*, limit: int = SETTLED_AT_ONCE, now: datetime | None = None) -> Steps[int]:
    """Cancel what waits for the retry of jobs that were purged from the dead ones; returns for how many.

    Args:
        limit: at most how many; if it returns as many, there may be more.
        now: the instant to record; the database's own by default.
    """
    rows = yield Statement("flows/purged", {"limit": limit})
    _, free = yield from flow_progress.lock_free(nodes=[row[0] for row in rows])
    nodes = sorted(free)
    if nodes:
        yield from _stop_waiting(nodes)
        yield from flow_progress.resume(dict.fromkeys(nodes, NodeState.FAILED), (), now=now)
    return len(nodes)


@plan
def drop_flows(*, now: datetime | None = None) -> Steps[int]:
    """Delete flows that ended before the retention of the history, and have no dead job; returns how many nodes went."""
    count, deleted = 0, DROPPED_AT_ONCE
    while deleted == DROPPED_AT_ONCE:
        ((deleted,),) = yield Statement("flows/drop", {"now": now, "limit": DROPPED_AT_ONCE})
        count += deleted
    return count


def _stop_waiting(nodes: Sequence[int]) -> Steps[None]:
    yield Statement("flows/stop_waiting", {"nodes": numbers(nodes)}, returns=False)

"""Plans that cancel flows, and that run them again.

A cancel takes many transactions: first the flow is marked, so that nothing in it is released any more; then a portion of its
nodes is ended in each. If it is interrupted, another cancel continues. A retry is one transaction: all of it, or none.

What a retry changes in the graph is decided in :mod:`pgqueue.values.flows.retry`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pgqueue.store import audit
from pgqueue.store.arrays import numbers, texts
from pgqueue.store.flows import flow_progress
from pgqueue.store.flows.flow_progress import reason
from pgqueue.store.jobs import admission
from pgqueue.store.jobs.ending import AT_ONCE, cancelled
from pgqueue.store.jobs.enqueue import reserve
from pgqueue.store.jobs.notifications import tell_ended, wake
from pgqueue.store.jobs.sweep import Sweep
from pgqueue.store.plan import Copy, Statement, Steps, plan
from pgqueue.values.flows.flow import PORTION, EdgeRule, NodeKind, NodeState
from pgqueue.values.flows.retry import (
    NAMED,
    Rerun,
    StoredEdge,
    StoredNode,
    What,
    not_ended,
    not_found,
    not_retried,
    out_of_turn,
    rerun,
    spoken_node,
    why_missing,
)
from pgqueue.values.jobs.job import JobFlags, JobState

LAST = (1 << 63) - 1, (1 << 31) - 1
"""Behind every node: a group's id, and a place in it."""
_FLOW, _ASKS, _MEMBER = (
    int(JobFlags.FLOW),
    int(JobFlags.ASKS),
    int(JobFlags.MEMBER),
)  # flags are slow to add: 5 us


class _Portion(NamedTuple):
    """What a portion of a cancel saw.

    Attributes:
        live: whether there was a job that had not ended, and that no worker had been asked to stop.
        after: the last position; None: there are no nodes before it.
    """

    live: bool
    after: tuple[int, int] | None


def cancel_flow(flow_id: int, *, by: str | None = None, now: datetime | None = None) -> Sweep[bool]:
    """Cancel all of a flow that has not ended, a portion in each transaction.

    Args:
        flow_id: which.
        by: who cancels it, for the audit.
        now: the instant; the database's own by default.

    Returns:
        Whether there was anything to cancel; False: it had ended.

    Raises:
        FlowNotFound: there is no record of it.
    """
    if not (yield audit.audited(begin_cancel(flow_id), "workflow cancel", str(flow_id), by=by)):
        return False
    found = True
    while found:  # a job may start, or go back to its line, behind a position that was passed
        yield ask(flow_id)
        found = False
        after: tuple[int, int] | None = LAST
        while after is not None:
            live, after = yield cancel_portion(flow_id, after, now=now)
            found |= live
    yield end_root(flow_id, now=now)
    return True


@plan(transaction=True)
def begin_cancel(flow_id: int) -> Steps[bool]:
    """Mark a flow as cancelled, so that nothing in it is released; False: it had ended."""
    _, _, ended = yield from _take(flow_id)
    if not ended:
        yield Statement("flows/put_state", {"flow": flow_id, "state": "cancelled"}, returns=False)
    return not ended


@plan
def ask(flow_id: int) -> Steps[None]:
    """Ask the workers of a flow's running jobs to stop them."""
    yield Statement("flows/ask", {"flow": flow_id})


@plan(transaction=True)
def cancel_portion(flow_id: int, after: tuple[int, int], *, now: datetime | None = None) -> Steps[_Portion]:
    """End up to 1,000 nodes before a position, and their jobs; those that run are left to their workers."""
    yield from _take(flow_id)
    position = {"parent": after[0], "place": after[1]}
    rows = yield Statement("flows/open", {"flow": flow_id, **position, "limit": AT_ONCE})
    ended = yield from cancelled([row[3] for row in rows if row[4]], now=now)
    gone = {row[0] for row in ended}
    yield from admission.forget(gone)
    yield from tell_ended(ended)
    nodes = [node for node, _, _, job, _ in rows if job is None or job in gone]
    if nodes:
        yield from flow_progress.abandon(nodes, now=now)
    return _Portion(any(row[4] for row in rows), (rows[-1][1], rows[-1][2]) if len(rows) == AT_ONCE else None)


@plan(transaction=True)
def end_root(flow_id: int, *, now: datetime | None = None) -> Steps[None]:
    """End a cancelled flow that waited for its turn."""
    yield from _take(flow_id)
    if rows := (yield Statement("flows/root", {"flow": flow_id})):
        yield from flow_progress.abandon([row[0] for row in rows], now=now)


@plan(transaction=True)
def revive(
    job_ids: Sequence[int], *, without_key: bool, now: datetime | None = None
) -> Steps[tuple[set[int], set[int]]]:
    """Return dead jobs to their lines; those that are in flows have not failed any more.

    Args:
        job_ids: which.
        without_key: return them without their unique keys.
        now: the instant; the database's own by default.

    Returns:
        The ids of the jobs that are ready, and of those that stay dead: their flow has ended, and another one of its key
        has not.
    """
    flows = [row[0] for row in (yield Statement("flows/lock", {"jobs": numbers(job_ids), "nodes": "{}"}))]
    barred = (yield from _out_of_turn(flows, job_ids)) if flows else set[int]()
    ids = [job_id for job_id in job_ids if job_id not in barred]
    rows = yield Statement("jobs/revive", {"ids": ids, "without_key": without_key, "now": now})
    revived = {row[0] for row in rows}
    if flows and revived:
        yield Statement("flows/reopen", {"jobs": numbers(sorted(revived))}, returns=False)
    return revived, barred


def _out_of_turn(flows: Collection[int], job_ids: Sequence[int]) -> Steps[set[int]]:
    keys = [row[0] for row in (yield Statement("flows/ended_keys", {"flows": numbers([*flows])}))]
    if not keys:
        return set()
    yield Statement("flows/lock_key", {"keys": texts(keys)})
    return {row[0] for row in (yield Statement("flows/out_of_turn", {"jobs": numbers(job_ids)}))}


class _LoadedNode(NamedTuple):
    """A node as it is stored, and what its job is to be."""

    now: StoredNode
    job: int | None
    name: str | None
    task: str | None
    flags: int

    def __str__(self) -> str:
        return spoken_node(self.name, self.task, self.now.place, self.job)


@plan(transaction=True)
def retry(flow_id: int, what: What, *, now: datetime | None = None) -> Steps[int]:
    """Run parts of a flow again: all of them, or none.

    Args:
        flow_id: which.
        what: see :func:`pgqueue.values.flows.retry.rerun`.
        now: the instant; the database's own by default.

    Returns:
        How many jobs run again.

    Raises:
        FlowNotFound: there is no record of it.
        FlowRefused: it cannot be retried; the message says why.
    """
    key, state, ended = yield from _take(flow_id)
    if not ended and (state == "cancelled" or what == "all"):
        raise not_ended(flow_id, state)
    if key is not None and ended:
        yield from _require_turn(flow_id, key)
    loaded, edges = yield from _load(flow_id)
    changes = rerun([node.now for node in loaded.values()], edges, what)
    if not changes.states and not changes.skipped:
        return 0
    if ended:  # one that waits for its turn goes on waiting
        yield Statement("flows/put_state", {"flow": flow_id, "state": "running"}, returns=False)
    jobs = yield from _bring_back(loaded, changes, now=now)
    yield from _put(loaded, changes, jobs)
    settled = [node for node, its in changes.states.items() if its is NodeState.RELEASED and node not in jobs]
    yield from flow_progress.resume({}, settled, now=now)  # a group that has no open member
    if any(changes.states[node] is NodeState.RELEASED for node in jobs):
        yield from wake()
    return len(jobs)


def _take(flow_id: int) -> Steps[tuple[str | None, str, bool]]:
    rows = yield Statement("flows/take", {"flow": flow_id})
    if not rows:
        raise not_found(flow_id)
    key, state, ended = rows[0]
    return key, state, ended


def _require_turn(flow_id: int, key: str) -> Steps[None]:
    yield Statement("flows/lock_key", {"keys": texts([key])})
    if rows := (yield Statement("flows/rival", {"key": key})):
        raise out_of_turn(flow_id, rows[0][0], key)


def _load(flow_id: int) -> Steps[tuple[dict[int, _LoadedNode], list[StoredEdge]]]:
    rows = yield Statement("flows/load_nodes", {"flow": flow_id})
    found = yield Statement("flows/load_edges", {"flow": flow_id})
    edges = [StoredEdge(before, after, EdgeRule(rule), met) for before, after, rule, met in found]
    followed = {edge.before for edge in edges}
    loaded: dict[int, _LoadedNode] = {}
    for node, parent, place, kind, state, waits_for, job, name, task, asks in rows:
        counts = parent is not None and loaded[parent].now.kind is NodeKind.GROUP and node not in followed
        flags = _FLOW + asks * _ASKS + counts * _MEMBER
        it = StoredNode(node, parent, place, NodeKind(kind), NodeState(state), waits_for)
        loaded[node] = _LoadedNode(it, job, name, task, flags)
    return loaded, edges


def _bring_back(
    loaded: Mapping[int, _LoadedNode], changes: Rerun, *, now: datetime | None
) -> Steps[dict[int, int]]:
    """Add the jobs of the nodes that run again; return their ids, by the node. A dead job keeps its id."""
    nodes = [loaded[node] for node in changes.states if loaded[node].job is not None]
    dead = [node for node in nodes if node.now.state is NodeState.FAILED]
    ended = [node for node in nodes if node.now.state is not NodeState.FAILED]
    jobs = {node.now.id: _job(node) for node in dead}
    new_ids = (yield from reserve(len(ended))) if ended else []
    jobs |= {node.now.id: new for node, new in zip(ended, new_ids, strict=True)}
    back: set[int] = set()
    for part in _parts(dead):
        rows = yield Statement(
            "flows/revive",
            {
                "ids": [*map(_job, part)],
                "statuses": [*_statuses(part, changes)],
                "now": now,
            },
        )
        back |= {row[0] for row in rows}
    for part in _parts(ended):
        rows = yield Statement(
            "flows/renew",
            {
                "ids": [*map(_job, part)],
                "new_ids": [jobs[node.now.id] for node in part],
                "statuses": [*_statuses(part, changes)],
                "flags": [node.flags for node in part],
                "now": now,
            },
        )
        back |= {row[0] for row in rows}
    if missing := [node for node in nodes if jobs[node.now.id] not in back]:
        yield from _refuse(missing)
    return jobs


def _refuse(missing: Sequence[_LoadedNode]) -> Steps[None]:
    by_job = {_job(node): node for node in missing[:NAMED]}
    rows = yield Statement("flows/not_retried", {"ids": numbers([*by_job])})
    known = {job: why for job, *why in rows}
    reasons = [why_missing(str(node), *known[job]) for job, node in by_job.items()]
    raise not_retried(reasons, others=len(missing) - len(reasons))


def _put(loaded: Mapping[int, _LoadedNode], changes: Rerun, jobs: Mapping[int, int]) -> Steps[None]:
    states = {**changes.states, **dict.fromkeys(changes.skipped, NodeState.SKIPPED)}
    nodes = sorted({*states, *changes.waits_for})
    params = {
        "nodes": numbers(nodes),
        "states": texts(states.get(node) for node in nodes),
        "waits_for": numbers([changes.waits_for.get(node, loaded[node].now.waits_for) for node in nodes]),
        "jobs": numbers([jobs.get(node) for node in nodes]),
    }
    yield Statement("flows/put_nodes", params, returns=False)
    if changes.met:
        params = {
            "froms": numbers([before for before, _ in changes.met]),
            "tos": numbers([after for _, after in changes.met]),
            "mets": numbers([*changes.met.values()]),
        }
        yield Statement("flows/put_edges", params, returns=False)
    params = {
        "nodes": numbers([node for node, _ in changes.counts]),
        "portions": numbers([portion for _, portion in changes.counts]),
        "opens": numbers([opened for opened, _ in changes.counts.values()]),
        "faileds": numbers([failed for _, failed in changes.counts.values()]),
    }
    yield Statement("flows/recount", params, returns=False)
    yield from _block(loaded, changes, jobs)


def _block(loaded: Mapping[int, _LoadedNode], changes: Rerun, jobs: Mapping[int, int]) -> Steps[None]:
    """Write what the jobs wait for that do not run at once, and those whose reason may be another one now."""
    waiting: dict[int, str] = {}
    for node, count in changes.waits_for.items():
        state = changes.states.get(node, loaded[node].now.state)
        job = jobs.get(node, loaded[node].job)
        if job is None or state is not NodeState.WAITING:
            continue
        at = loaded[node].now
        parent = at.id if at.parent is None else at.parent  # a job is never the root
        waiting[job] = reason(node) if count else reason(parent, at.place // PORTION)
    if waiting:
        yield from admission.forget(waiting)
        yield Copy("flows/copy_waits", [b"%b\t%d\n" % (why.encode(), job) for job, why in waiting.items()])


def _statuses(nodes: Iterable[_LoadedNode], changes: Rerun) -> Iterable[str]:
    for node in nodes:
        free = changes.states[node.now.id] is NodeState.RELEASED
        yield JobState.READY if free else JobState.BLOCKED


def _parts(nodes: Sequence[_LoadedNode]) -> Iterable[Sequence[_LoadedNode]]:
    nodes = sorted(nodes, key=_job)
    return (nodes[start : start + AT_ONCE] for start in range(0, len(nodes), AT_ONCE))


def _job(node: _LoadedNode) -> int:
    assert node.job is not None  # noqa: S101 - only asked of nodes that have one
    return node.job

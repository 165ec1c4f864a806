"""Plans that add nodes to a flow that runs, in the transaction that completes the job which adds them.

The job's own node has not ended when the nodes are written, so the group that it is in, and those around it, are open: what
follows them waits for the new nodes, too, however late they come.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.flows import flow_progress, flows
from pgqueue.store.jobs import finish
from pgqueue.store.jobs.ending import States
from pgqueue.store.jobs.enqueue import queue_defaults, reserve
from pgqueue.store.plan import Copy, Statement, Steps, plan
from pgqueue.values.flows.addition import (
    Addition,
    check_names,
    check_place,
    has_started,
    in_no_flow,
    no_longer_held,
    would_wait_for_each_other,
)
from pgqueue.values.flows.flow import EdgeRule, NodeGroup, NodeKind, NodeState, nodes_of
from pgqueue.values.jobs.verdict import Succeeded


@plan(transaction=True)
def complete(
    done: Succeeded, additions: Sequence[Addition], *, keep: bool, now: datetime | None = None
) -> Steps[States]:
    """Complete a job, and add to its flow what it asked for: both, or nothing.

    Args:
        done: that the job succeeded.
        additions: what to add.
        keep: whether succeeded jobs go to the history.
        now: the instant; the database's own by default.

    Raises:
        FlowRefused: the flow is being cancelled, or something that is to be added does not fit. Nothing is changed.
        Superseded: this attempt no longer holds its job. Nothing is changed.
    """
    for addition in additions:
        yield from _add(done.claim.id, addition, now=now)
    states = yield from finish.record(done.claim.worker_id, [done], keep=keep, now=now)
    if not states:
        raise no_longer_held(done.claim)
    return states


class _AdditionPlace:
    """Where nodes are added.

    Attributes:
        own: the node of the job that adds.
        flow: the flow's id.
        group: the group's id.
        kind: what the group is.
        next: the place of its next member.
    """

    def __init__(self, row: tuple[int, int, str, int, str, str | None, int | None], into: str | None) -> None:
        own, flow, flow_state, group, kind, state, last = row
        check_place(into, flow, flow_state, state)
        self.own = own
        self.flow = flow
        self.group = group
        self.kind = NodeKind(kind)
        self.next = 0 if last is None else last + 1


def _place(job_id: int, into: str | None) -> Steps[_AdditionPlace]:
    """Lock a group's last count, then its flow, and read where its next member stands."""
    params = {"job": job_id, "name": into}
    rows = yield Statement("flows/growing", params)
    if not rows:
        raise in_no_flow(job_id)
    if rows[0][3] is not None and rows[0][4] == NodeKind.GROUP:
        yield Statement("flows/lock_last_count", {"node": rows[0][3]})
    yield Statement("flows/lock", {"jobs": numbers([job_id]), "nodes": numbers([])})
    (row,) = yield Statement("flows/growing", params)
    return _AdditionPlace(row, into)


def _add(job_id: int, addition: Addition, *, now: datetime | None) -> Steps[None]:
    place = yield from _place(job_id, addition.into)
    named = yield from _named_nodes(place, addition)
    nodes = nodes_of(NodeGroup(place.kind, addition.steps))
    firsts = [at for at, node in enumerate(nodes) if node.parent == 0]
    for at in firsts:
        nodes[at].place += place.next
    ids = [place.group, *(yield from flows.reserve_nodes(len(nodes) - 1))]
    clock, defaults = yield from queue_defaults(now, refuses=False)  # the flow was there before the close
    new = flows.NewNodes(place.flow, nodes, ids, clock, released=True, defaults=defaults, grows=True)
    for name, rule in (addition.after or {}).items():
        before = place.own if name is None else named[name][0]
        for at in firsts:
            new.wait_for(at, before, rule)
    new.number_jobs((yield from reserve(len(new.with_jobs))))
    held = [named[name][0] for name in addition.before]
    yield from _hold(
        held, [ids[at] for at in firsts], after=[node for node, _ in named.values() if node not in held]
    )
    yield from flows.write(new)
    ended = {
        node: state
        for name, (node, state) in named.items()
        if name in (addition.after or ()) and state is not NodeState.WAITING
    }
    groups = [ids[at] for at, node in enumerate(nodes) if at and node.kind.is_group and new.released[at]]
    yield from flow_progress.resume(
        {node: state for node, state in ended.items() if state is not NodeState.RELEASED}, groups, now=now
    )


def _named_nodes(place: _AdditionPlace, addition: Addition) -> Steps[dict[str, tuple[int, NodeState]]]:
    """Return the existing nodes that an addition names; refuse what is not there, and names that are taken."""
    known: dict[str, tuple[int, NodeState]] = {}
    if names := [*dict.fromkeys([*addition.known_names, *addition.new_names])]:
        rows = yield Statement("flows/named", {"parent": place.group, "names": texts(names)})
        known = {name: (node, NodeState(state)) for name, node, state in rows}
    check_names(addition, place.kind, known)
    return {name: known[name] for name in addition.known_names}


def _hold(held: Sequence[int], new: Sequence[int], *, after: Collection[int]) -> Steps[None]:
    if not held:
        return
    params = {"nodes": numbers([*held]), "counts": numbers([len(new)] * len(held))}
    waiting = {row[0] for row in (yield Statement("flows/hold", params))}
    if len(waiting) < len({*held}):
        raise has_started()
    if after and (yield Statement("flows/reaches", {"starts": numbers([*held]), "ends": numbers([*after])})):
        raise would_wait_for_each_other()
    yield Copy(
        "flows/copy_edges", [flows.edge_row(one, node, EdgeRule.CANCEL) for node in held for one in new]
    )

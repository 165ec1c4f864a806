"""Flows in memory: what a running job adds to its flow when it is completed.

:class:`FlowGrowth` answers the plan of :mod:`pgqueue.store.flows.flow_growth`, with the same refusals
(:mod:`pgqueue.values.flows.addition`). As a transaction does, it changes all or nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgqueue.store.jobs.ending import States
from pgqueue.testing.flows import WAITING, EdgeRow, FlowRow, NodeRow
from pgqueue.testing.row import JobRow
from pgqueue.values.flows.addition import (
    Addition,
    check_names,
    check_place,
    has_started,
    in_no_flow,
    no_longer_held,
    would_wait_for_each_other,
)
from pgqueue.values.flows.flow import EdgeRule, NodeGroup, nodes_of
from pgqueue.values.jobs.verdict import Succeeded

if TYPE_CHECKING:
    from pgqueue.testing.table import JobTable


class FlowGrowth:
    """Adds nodes to the flows of a queue."""

    def __init__(self, table: "JobTable") -> None:
        self._table = table
        self._flows = table.flows

    def complete(
        self, done: Succeeded, additions: Sequence[Addition], *, keep: bool, now: datetime
    ) -> States:
        """Complete a job, and add to its flow what it asked for: both, or nothing."""
        own = self._flows.of_job(done.claim.id)
        if own is None:
            raise in_no_flow(done.claim.id)
        with self._all_or_nothing(own.flow):
            for addition in additions:
                self._add(own, addition, now)
            states = self._table.claims.record(done.claim.worker_id, [done], keep=keep, now=now)
            if not states:
                raise no_longer_held(done.claim)
        return states

    def _add(self, own: NodeRow, addition: Addition, now: datetime) -> None:
        flow, group = own.flow, _group(own, addition.into)
        check_place(addition.into, flow.id, flow.state, None if group is None else group.state)
        assert group is not None  # noqa: S101 - just checked
        known = {one.new.name: one for one in group.members if one.new.name is not None}
        check_names(addition, group.new.kind, known)
        given = nodes_of(NodeGroup(group.new.kind, addition.steps))
        new = self._flows.made(flow, given, now, root=group)
        firsts = [node for node in new if node.parent is group]
        befores = [
            (own if name is None else known[name], rule) for name, rule in (addition.after or {}).items()
        ]
        for before, rule in befores:
            _wait(firsts, before, rule)
        held = [known[name] for name in addition.before]
        if any(node.state is not WAITING for node in held):
            raise has_started()
        if {before for before, _ in befores} & _behind(held):
            raise would_wait_for_each_other()
        for node in held:
            for one in firsts:
                _wait([node], one, EdgeRule.CANCEL)
        self._start(new, [before for before, _ in befores], now)

    def _start(self, new: Iterable[NodeRow], befores: Iterable[NodeRow], now: datetime) -> None:
        for node in new:
            if not node.waits_for:
                self._flows.release(node, now)
        for before in befores:
            self._flows.follow_again(before, now)
        self._flows.follow_events(now)

    @contextmanager
    def _all_or_nothing(self, flow: FlowRow) -> Iterator[None]:
        """If the block raises, put the flow and its jobs back as they were."""
        jobs = [node.job for node in flow.nodes if node.job is not None]
        edges = [edge for node in flow.nodes for edge in node.edges]
        changed: list[FlowRow | NodeRow | JobRow | EdgeRow] = [flow, *flow.nodes, *jobs, *edges]
        kept = [(one, _values(one)) for one in changed]
        count = len(flow.nodes)
        try:
            yield
        except BaseException:
            self._flows.forget(flow.nodes[count:])
            self._table.adding.forget([node.job.id for node in flow.nodes[count:] if node.job is not None])
            for one, values in kept:
                for name, value in values.items():
                    setattr(one, name, value)
            raise


def _group(own: NodeRow, into: str | None) -> NodeRow | None:
    """Return the group that a node is in, or the nearest one of a name beside or around it; None: there is none."""
    if into is None:
        return own.parent
    around: NodeRow | None = own
    while around is not None and around.parent is not None:
        for one in around.parent.members:
            if one.new.name == into and one.new.kind.is_group:
                return one
        around = around.parent
    return None


def _wait(nodes: Iterable[NodeRow], before: NodeRow, rule: EdgeRule) -> None:
    for node in nodes:
        before.edges.append(EdgeRow(before, node, rule))
        node.waits_for += 1


def _behind(nodes: Collection[NodeRow]) -> set[NodeRow]:
    """Return the nodes that wait, directly or not, for one of these."""
    found: set[NodeRow] = set()
    todo = [*nodes]
    while todo:
        more = {edge.after for edge in todo.pop().edges} - found
        found |= more
        todo += more
    return found


def _values(one: FlowRow | NodeRow | JobRow | EdgeRow) -> dict[str, Any]:
    held = {each.name: getattr(one, each.name) for each in fields(one)}
    return {name: copy(value) if isinstance(value, list) else value for name, value in held.items()}

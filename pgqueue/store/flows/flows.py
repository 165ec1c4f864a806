"""Plans that add flows: chains, groups and workflows, whole, in one transaction.

Jobs that wait for others are ``blocked`` (:mod:`pgqueue.store.jobs.admission`); what releases them is in
:mod:`pgqueue.store.flows.flow_progress`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from pgqueue.store.arrays import numbers, texts
from pgqueue.store.flows import flow_progress
from pgqueue.store.flows.flow_progress import reason
from pgqueue.store.jobs.copying import (
    NULL,
    ROWS_PER_CHUNK,
    copied_names,
    copied_sent,
    copied_text,
    due_at,
    expires_at,
    new_by_each,
)
from pgqueue.store.jobs.enqueue import queue_defaults, reserve
from pgqueue.store.limits.lanes import put
from pgqueue.store.plan import Copy, Statement, Steps, plan
from pgqueue.store.queues.queues import count_bounded, require_rooms
from pgqueue.values.flows.flow import (
    PORTION,
    EdgeRule,
    NewFlow,
    NewNode,
    Nodes,
    NodeState,
    flags_of,
    flow_key_taken,
    job_key_taken,
    nodes_of,
    spec_of,
    spec_text,
)
from pgqueue.values.jobs.job import JobState, NewJob
from pgqueue.values.queues.defaults import QueueDefaults


class AddedFlow(msgspec.Struct, frozen=True):
    """A flow that was added.

    Attributes:
        id: of the flow.
        jobs: the ids of its jobs, in the order of the nodes.
    """

    id: int
    jobs: Sequence[int]


@plan(transaction=True, adds=True)
def add(flow: NewFlow, *, now: datetime | None = None) -> Steps[AddedFlow]:
    """Add a flow and all its jobs.

    Args:
        flow: what to add.
        now: the instant to count delays from; the database's own by default.

    Raises:
        BacklogFull: the queue of one of its jobs has no room for all of them, and refuses them.
        FlowRefused: another flow of its key runs, or a live job has the unique key of one of its jobs. Nothing is added.
    """
    nodes = nodes_of(flow.parts)
    clock, defaults = yield from queue_defaults(now)
    yield from require_rooms(count_bounded((node.job for node in nodes if node.job is not None), defaults))
    flow_id, runs = yield from _add_row(flow, now=now)
    new = NewNodes(
        flow_id, nodes, (yield from reserve_nodes(len(nodes))), clock, released=runs, defaults=defaults
    )
    new.number_jobs((yield from reserve(len(new.with_jobs))))
    yield from write(new)
    if runs:
        groups = [new.ids[at] for at, node in enumerate(nodes) if node.kind.is_group and new.released[at]]
        yield from flow_progress.resume({}, groups, now=now)  # an empty one has ended already
    return AddedFlow(flow_id, [*new.jobs.values()])


def _add_row(flow: NewFlow, *, now: datetime | None) -> Steps[tuple[int, bool]]:
    if flow.key is not None:
        yield Statement("flows/lock_key", {"keys": texts([flow.key])})
    params = {"kind": flow.kind, "name": flow.name, "key": flow.key, "now": now}
    ((flow_id, state),) = yield Statement("flows/add", params)
    if state == "waiting" and not flow.in_turn:
        raise flow_key_taken(str(flow.key))
    return flow_id, state == "running"


@plan
def reserve_nodes(count: int) -> Steps[list[int]]:
    """Ids for as many nodes, in ascending order."""
    runs = yield Statement("flows/reserve", {"count": count})
    return [node for first, last in runs for node in range(first, last + 1)]


class NewNodes:
    """New nodes with the ids that they get.

    Attributes:
        flow: the flow's id.
        nodes: the nodes.
        ids: their ids.
        clock: the instant at which they are added.
        defaults: what queues say of jobs that do not say it themselves.
        first: the index of the first one that is new: 1 if the root exists.
        before: the existing nodes for which a new one waits, and what happens if they fail, by the index of the new one.
        released: whether a node waits for nothing.
        jobs: the id of the job of each node that has one, by the node's index.
    """

    def __init__(
        self,
        flow: int,
        nodes: Nodes,
        ids: Sequence[int],
        clock: datetime,
        *,
        released: bool,
        defaults: QueueDefaults,
        grows: bool = False,
    ) -> None:
        """``released``: the root is released. ``grows``: the root exists: it is the group to which the other nodes are added.

        ``defaults``: what queues say of jobs that do not say it themselves.
        """
        self.flow = flow
        self.nodes = nodes
        self.ids = ids
        self.clock = clock
        self.defaults = defaults
        self.first = int(grows)
        self.before: dict[int, list[tuple[int, EdgeRule]]] = {}
        self.jobs: dict[int, int] = {}
        self.released: list[bool] = []
        for node in nodes:
            free = released if node.parent is None else self.released[node.parent] and not node.after
            self.released.append(free)

    def wait_for(self, at: int, before: int, rule: EdgeRule) -> None:
        """Have a new node, given by its index, wait for an existing one, given by its id."""
        self.before.setdefault(at, []).append((before, rule))
        held = {at}
        for inner, node in enumerate(self.nodes):
            if inner == at or node.parent in held:
                held.add(inner)
                self.released[inner] = False

    @property
    def with_jobs(self) -> list[int]:
        """The indexes of the nodes that have a job."""
        return [at for at, node in enumerate(self.nodes) if node.job is not None]

    def number_jobs(self, ids: Sequence[int]) -> None:
        """Give each job its id."""
        self.jobs = dict(zip(self.with_jobs, ids, strict=True))

    def status(self, at: int, job: NewJob) -> str:
        """In which state the job of a node is stored."""
        if not self.released[at]:
            return JobState.BLOCKED
        return JobState.SCHEDULED if due_at(job, self.clock) > self.clock else JobState.READY

    def waits_for(self, at: int) -> str:
        """What the job of a node that is not released waits for."""
        node = self.nodes[at]
        if node.after or node.parent is None or at in self.before:
            return reason(self.ids[at])
        return reason(self.ids[node.parent], node.place // PORTION)


@plan(transaction=True)
def write(new: NewNodes) -> Steps[None]:
    """Write the rows of new nodes, and of what belongs to them."""
    yield from _write_keyed_jobs(new)
    plain = [at for at in new.jobs if _job(new.nodes[at]).unique_key is None]
    yield Copy("flows/copy_jobs", _chunks(_job_row(new, at) for at in plain))
    yield Copy("flows/copy_nodes", _chunks(_node_row(new, at) for at in range(new.first, len(new.nodes))))
    yield Copy("flows/copy_edges", _chunks(_edge_rows(new)))
    yield Copy("flows/copy_waits", _chunks(_wait_row(new, at) for at in new.jobs if not new.released[at]))
    counts = Counter(
        (new.ids[node.parent], node.place // PORTION) for node in new.nodes if node.parent is not None
    )
    yield from count_members(counts)
    jobs = {job_id: _job(new.nodes[at]) for at, job_id in new.jobs.items()}
    if lanes := {job_id: (job.lane, job.cost) for job_id, job in jobs.items() if job.lane is not None}:
        yield from put(lanes)


@plan
def count_members(counts: Counter[tuple[int, int]]) -> Steps[None]:
    """Count members of groups as open; how many, by the group and the portion."""
    found = sorted(counts.items())
    params = {
        "nodes": numbers([node for (node, _), _ in found]),
        "portions": numbers([portion for (_, portion), _ in found]),
        "opens": numbers([count for _, count in found]),
    }
    yield Statement("flows/count", params, returns=False)


def _write_keyed_jobs(new: NewNodes) -> Steps[None]:
    # In the order of the keys, so that two enqueuers do not deadlock.
    keyed = sorted(
        (_job(new.nodes[at]).unique_key or "", at) for at in new.jobs if _job(new.nodes[at]).unique_key
    )
    if not keyed:
        return
    places = [at for _, at in keyed]
    jobs = [_job(new.nodes[at]) for at in places]
    params = new_by_each(jobs, new.clock, new.defaults) | {
        "id": [new.jobs[at] for at in places],
        "status": [str(new.status(at, _job(new.nodes[at]))) for at in places],
        "flags": [flags_of(new.nodes[at], new.nodes) for at in places],
    }
    added = {row[0] for row in (yield Statement("flows/add_keyed_jobs", params))}
    for at, job in zip(places, jobs, strict=True):
        if new.jobs[at] not in added:
            raise job_key_taken(job.unique_key)


def _job(node: NewNode) -> NewJob:
    assert node.job is not None  # noqa: S101 - only asked of nodes that have one
    return node.job


def _job_row(new: NewNodes, at: int) -> bytes:
    node = new.nodes[at]
    job = _job(node)
    priority, max_attempts = new.defaults.of(job)
    return b"%d\t%b\t%b\t%b\t%b\t%d\t%d\t%b\t%b\t%d\n" % (
        new.jobs[at],
        new.status(at, job).encode(),
        due_at(job, new.clock).isoformat().encode(),
        copied_names(job.queue, job.task),
        job.args.replace(b"\\", b"\\\\"),
        priority,
        max_attempts,
        NULL if (until := expires_at(job, new.clock)) is None else until.isoformat().encode(),
        copied_sent([job])[0],
        flags_of(node, new.nodes),
    )


def _node_row(new: NewNodes, at: int) -> bytes:
    node = new.nodes[at]
    return b"%d\t%d\t%b\t%d\t%b\t%b\t%b\t%d\t%b\t%b\t%b\n" % (
        new.ids[at],
        new.flow,
        NULL if node.parent is None else b"%d" % new.ids[node.parent],
        node.place,
        copied_text(node.name),
        node.kind.encode(),
        (NodeState.RELEASED if new.released[at] else NodeState.WAITING).encode(),
        len(node.after) + len(new.before.get(at, ())),
        copied_text(None if node.job is None else node.job.task),
        b"%d" % new.jobs[at] if at in new.jobs else NULL,
        NULL if (spec := spec_of(node)) is None else copied_text(spec_text(spec)),
    )


def _edge_rows(new: NewNodes) -> Iterator[bytes]:
    for at, node in enumerate(new.nodes):
        for before, rule in node.after:
            yield edge_row(new.ids[before], new.ids[at], rule)
    for at, waits in new.before.items():
        for existing, rule in waits:
            yield edge_row(existing, new.ids[at], rule)


def edge_row(before: int, node: int, rule: EdgeRule) -> bytes:
    """An edge in COPY's text format: which node waits for which, and what happens if that one fails."""
    return b"%d\t%d\t%b\n" % (before, node, rule.encode())


def _wait_row(new: NewNodes, at: int) -> bytes:
    return b"%b\t%d\n" % (new.waits_for(at).encode(), new.jobs[at])


def _chunks(rows: Iterable[bytes]) -> Iterator[bytes]:
    left = iter(rows)
    while chunk := b"".join(islice(left, ROWS_PER_CHUNK)):
        yield chunk

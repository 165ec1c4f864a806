"""What surrounds a job: its place in a flow, what its attempts noted, and who ran them. Pure values."""

from datetime import datetime
from uuid import UUID

import msgspec

from pgqueue.values.flows.flow import EdgeRule, NodeState
from pgqueue.values.flows.record import FlowState
from pgqueue.values.workers.worker import Stack


class Neighbour(msgspec.Struct, frozen=True):
    """A node for which a job waits, or one that waits for the job.

    Attributes:
        label: what it is called: its name, else its task, else what kind of node it is.
        state: the state of its job if that is live, else its own.
        job_id: its job's id; None: it is a group, or has no job yet.
        rule: what happens to the node that waits if the other one fails.
        met: whether there is nothing left to wait for.
    """

    label: str
    state: str
    job_id: int | None
    rule: EdgeRule
    met: bool


class FlowPlace(msgspec.Struct, frozen=True):
    """Where a job stands in its flow.

    Attributes:
        flow_id: the flow's id.
        kind: ``chain``, ``group`` or ``workflow``.
        name: what people call the flow.
        state: where the flow stands.
        node: what the job's node is called.
        node_state: where that stands.
        groups: what the groups are called that it is in, the outermost first; without the flow itself.
        before: the nodes for which it waits, also as a part of its groups; at most 50.
        after: the nodes that wait for it, or for its groups; at most 50.
        complete: False: there are more.
    """

    flow_id: int
    kind: str
    name: str
    state: FlowState
    node: str
    node_state: NodeState
    groups: tuple[str, ...] = ()
    before: tuple[Neighbour, ...] = ()
    after: tuple[Neighbour, ...] = ()
    complete: bool = True


class NoteLine(msgspec.Struct, frozen=True):
    """Something that an attempt noted, without its value.

    Attributes:
        kind: ``step`` or ``checkpoint``.
        name: of the step; empty: it is the checkpoint.
        at: when.
        bytes: how long it is, as stored.
    """

    kind: str
    name: str
    at: datetime
    bytes: int


class JobWorker(msgspec.Struct, frozen=True):
    """A worker that ran an attempt of a job.

    Attributes:
        id: its id.
        name: ``host:pid``; of a worker that is gone, the host alone where its process is not known any more.
        alive: whether its lease holds.
    """

    id: UUID
    name: str
    alive: bool


class Story(msgspec.Struct, frozen=True):
    """What surrounds a job.

    Attributes:
        stack: the answer to the last question for its stack; None: it was not asked for within ten minutes.
        place: where it stands in its flow; None: it is in none.
        notes: the steps that it has done, and its checkpoint; at most 200. They are removed some time after its end.
        workers: those that ran its attempts, as far as they are known.
    """

    place: FlowPlace | None
    notes: tuple[NoteLine, ...]
    stack: Stack | None = None
    workers: tuple[JobWorker, ...] = ()

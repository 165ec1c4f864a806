"""What a running job adds to its flow, as a value; and what is refused, in the words that all stores use.

How it is written is decided in :mod:`pgqueue.store.flows.flow_growth`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgqueue.errors import FlowRefused, Superseded
from pgqueue.values.flows.flow import EdgeRule, GroupMember, NodeKind, NodeState
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.job import Claim


@dataclass(frozen=True, slots=True)
class Addition:
    """Nodes that a running job adds to its flow; they exist if the job succeeds.

    Attributes:
        steps: the new nodes; their ``after`` names each other by place.
        into: the name of the group that they become members of; None: the group that the job is in.
        after: existing nodes for which all of them wait, by name; None stands for the job's own node.
        before: existing nodes that wait for them, by name.
    """

    steps: Sequence[GroupMember]
    into: str | None = None
    after: Mapping[str | None, EdgeRule] | None = None
    before: Sequence[str] = ()

    @property
    def new_names(self) -> list[str]:
        """The names of the new nodes that have one."""
        return [step.name for step in self.steps if step.name is not None]

    @property
    def known_names(self) -> list[str]:
        """The names of the existing nodes that it mentions."""
        return [*(name for name in self.after or () if name is not None), *self.before]


def check_place(into: str | None, flow: int, flow_state: str, state: str | None) -> None:
    """Check that nodes can be added to a group.

    Args:
        into: the name that was given.
        flow: the flow's id.
        flow_state: where that stands.
        state: where the group stands; None: there is no such group.

    Raises:
        FlowRefused: they cannot.
    """
    if state is None:
        raise FlowRefused(
            f"into={into!r}: there is no group of this name beside the job's node, or around it"
        )
    if flow_state != "running":
        raise FlowRefused(f"flow {flow} is {flow_state}")
    if state != NodeState.RELEASED:
        raise FlowRefused(f"group {into!r} is {state}; nothing can be added")


def check_names(addition: Addition, kind: NodeKind, known: Mapping[str, object]) -> None:
    """Check the names in an addition.

    Args:
        addition: what is to be added.
        kind: what the group is to which it is added.
        known: the members of that group, by name; at least those that the addition mentions.

    Raises:
        FlowRefused: a name is taken, there is no such node, or one is to be before and after the new ones.
    """
    if addition.new_names and kind is not NodeKind.WORKFLOW:
        raise FlowRefused("add(): this job is a member of a group, not a node of a workflow; use extend()")
    for name in addition.new_names:
        if name in known:
            raise FlowRefused(f"add({name!r}): the workflow has this node already; use another name")
    for name in addition.known_names:
        if name not in known:
            raise FlowRefused(
                f"add(): there is no node {name!r} beside this job's{did_you_mean(name, known)}"
            )
    if {*addition.before} & {*(addition.after or ())}:
        raise would_wait_for_each_other()


def in_no_flow(job_id: int) -> FlowRefused:
    """What to raise where the job that adds is in no flow."""
    return FlowRefused(f"job {job_id} is not part of a flow")


def has_started() -> FlowRefused:
    """What to raise where a node is to wait that does not wait any more."""
    return FlowRefused(
        "add(before=...): one of these nodes has started or ended; it cannot wait for another one"
    )


def would_wait_for_each_other() -> FlowRefused:
    """What to raise where an addition would close a cycle."""
    return FlowRefused("add(): a node of after= waits for one of before=, so they would wait for each other")


def no_longer_held(job: Claim) -> Superseded:
    """What to raise where another attempt has the job that adds."""
    return Superseded(f"job {job.id}: attempt {job.attempt} no longer holds it; rolled back")

"""The nodes of a workflow: their options, checked, and a flow as a running job sees it, to which it may add nodes."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, Union

from pgqueue.errors import FlowError, InvalidOption
from pgqueue.values.flows.addition import Addition
from pgqueue.values.flows.condition import Condition
from pgqueue.values.flows.flow import EdgeRule, GroupMember, NodeGroup, check_node_name
from pgqueue.values.flows.results import FlowPosition
from pgqueue.values.jobs.job import Claim, NewJob
from pgqueue.values.jobs.options import one_of

IfFailed = Literal["cancel", "continue", "wait"]
After: TypeAlias = Union[str, "Node", Iterable[Union[str, "Node"]], Mapping[Union[str, "Node"], IfFailed]]
IF_FAILED = ("cancel", "continue", "wait")
P = TypeVar("P", bound="CanBePart")


class CanBePart(Protocol):
    """What can be a part of a flow: a call of a task, or a flow."""

    def as_part(self) -> NewJob | NodeGroup:
        """It as it is stored, each job checked and encoded as any other that is enqueued."""


class Node:
    """A node of a workflow, to name in ``after``.

    Attributes:
        name: what it is called.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        """Made by :meth:`Workflow.add`."""
        self.name = name

    def __repr__(self) -> str:
        return f"<Node {self.name!r}>"


def checked_part(part: P, where: str) -> P:
    """Check that something can be a part of a flow, and return it.

    Raises:
        InvalidOption: it cannot.
    """
    if hasattr(type(part), "as_part"):
        return part
    remedy = (
        "write task.call(...)"
        if hasattr(part, "call")
        else "give task.call(...), a chain, a group or a workflow"
    )
    raise InvalidOption(f"{where}: {part!r:.80} is no part of a flow; {remedy}")


def check_condition(skip_if: Condition | None, name: str, *, of_job: bool) -> None:
    """Check that a node can have a condition.

    Args:
        skip_if: the condition; None: it has none.
        name: the node's name.
        of_job: whether the node is a single job.

    Raises:
        InvalidOption: it cannot.
    """
    if skip_if is None:
        return
    if not of_job:
        raise InvalidOption(f"{name}: skip_if is for a single job; give it to the parts of this flow")
    if not isinstance(skip_if, Condition):
        raise InvalidOption(
            f"{name}: skip_if={skip_if!r:.80}: write a condition, such as result('extract') == 0"
        )


def spec_of(skip_if: Condition | None) -> dict[str, Any] | None:
    """What is stored with a node that has this condition."""
    return None if skip_if is None else {"skip_if": skip_if.form}


def rule_of(if_failed: IfFailed) -> EdgeRule:
    """What happens to a node if one that it waits for fails.

    Raises:
        InvalidOption: it is none of the three.
    """
    return EdgeRule(one_of("if_failed", if_failed, IF_FAILED))


def rules_of(after: object, rule: EdgeRule) -> dict[str, EdgeRule]:
    """The nodes that ``after`` names, and what happens if each fails; ``rule``, where it does not say it.

    Raises:
        InvalidOption: it names something else.
    """
    if isinstance(after, Mapping):
        return {_name("after", one): EdgeRule(one_of("after", how, IF_FAILED)) for one, how in after.items()}
    return dict.fromkeys(names_of("after", after), rule)


def names_of(what: str, nodes: object) -> list[str]:
    """The names of nodes, each once: of one node, or of several.

    Raises:
        InvalidOption: something else was given for the option ``what``.
    """
    if isinstance(nodes, str | Node):
        nodes = [nodes]
    if not isinstance(nodes, Iterable):
        raise InvalidOption(f"{what}={nodes!r:.80}: give names of nodes")
    return [*dict.fromkeys(_name(what, one) for one in nodes)]


def _name(what: str, given: object) -> str:
    if isinstance(given, Node):
        return given.name
    if isinstance(given, str):
        return given
    raise InvalidOption(f"{what}: {given!r:.80} is no node; give its name, or what add() returned")


class FlowInside:
    """The flow of a running job.

    Attributes:
        id: the flow's id.
        name: what people call the flow.
        node: what the job's own node is called, or None.
    """

    __slots__ = ("_additions", "id", "name", "node")

    def __init__(self, facts: FlowPosition | None, job: Claim, additions: list[Addition]) -> None:
        """Made by the worker.

        Raises:
            FlowError: the job is part of no flow.
        """
        if facts is None:
            raise FlowError(f"job {job.id} of {job.task} is not part of a chain, a group or a workflow")
        self.id = facts.flow_id
        self.name = facts.flow_name
        self.node = facts.name
        self._additions = additions

    def add(
        self,
        name: str,
        part: CanBePart,
        *,
        after: After | None = None,
        before: str | Iterable[str] = (),
        if_failed: IfFailed = "cancel",
        skip_if: Condition | None = None,
    ) -> None:
        """Add a node to the workflow that this job is in, once the job succeeds.

        Args:
            name: what it is called; once in its workflow.
            part: a call of a task, or a chain, group or workflow.
            after: the nodes that have to succeed before, by name; None: this job's own.
            before: nodes that have not started, and that are to wait for the new one, by name.
            if_failed: what happens to the new node if one that it waits for fails; see :meth:`Workflow.add`.
            skip_if: see :meth:`Workflow.add`.

        Raises:
            InvalidOption: a value is out of its range.
        """
        what = checked_part(part, check_node_name(name)).as_part()
        check_condition(skip_if, name, of_job=not isinstance(what, NodeGroup))
        rule = rule_of(if_failed)
        found: dict[str | None, EdgeRule] = {None: rule}
        if after is not None:
            found = dict(rules_of(after, rule).items())
        step = GroupMember(what, name, (), spec_of(skip_if))
        self._additions.append(Addition([step], None, found, names_of("before", before)))

    def extend(self, parts: Iterable[CanBePart], *, into: str | None = None) -> None:
        """Add members to a group, once this job succeeds. What follows the group waits for them, too.

        Args:
            parts: calls of tasks, or flows.
            into: the name of the group, beside this job's node or around it; None: the group that this job is a member of.

        Raises:
            InvalidOption: one of them is something else.
        """
        steps = [GroupMember(checked_part(part, "extend").as_part()) for part in parts]
        if steps:
            self._additions.append(Addition(steps, into))

"""A flow as a running job of it sees it: to which it may add what runs after it.

What is added becomes part of the flow in the transaction that completes the job, and only then: an attempt that fails
adds nothing, and one that runs again does not add it twice.
"""

from collections.abc import Iterable

from pgqueue.app.flows.nodes import (
    After,
    CanBePart,
    IfFailed,
    check_condition,
    checked_part,
    names_of,
    rule_of,
    rules_of,
    spec_of,
)
from pgqueue.errors import FlowError
from pgqueue.values.flows.addition import Addition
from pgqueue.values.flows.condition import Condition
from pgqueue.values.flows.flow import EdgeRule, GroupMember, NodeGroup, check_node_name
from pgqueue.values.flows.results import FlowPosition
from pgqueue.values.jobs.job import Claim


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

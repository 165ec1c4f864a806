"""What a retry changes in the graph of a flow: pure rules, over any flow that a small model of the engine has run."""

from collections import Counter, defaultdict
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from pgqueue.values.flows.flow import PORTION, EdgeRule, NodeKind, NodeState
from pgqueue.values.flows.retry import DONE, FAILURES, OPEN, Rerun, StoredEdge, StoredNode, What, rerun

S = NodeState


class Model:
    """A flow, and what the engine does with it; one job at a time, in the order of the nodes.

    Attributes:
        parents: the group of each node; None: the root.
        jobs: the nodes that are jobs.
        states: where each node stands.
        ran: the jobs that ran, in order.
    """

    def __init__(
        self, parents: list[int | None], jobs: set[int], edges: list[tuple[int, int, EdgeRule]]
    ) -> None:
        self.parents = parents
        self.jobs = jobs
        self.edges = edges
        self.states = [S.RELEASED if parent is None else S.WAITING for parent in parents]
        self.met: set[tuple[int, int]] = set()
        self.ran: list[int] = []

    def run(self, failing: set[int]) -> None:
        """Run it as far as it goes; these jobs fail."""
        self._settle()
        while ready := [job for job in sorted(self.jobs) if self.states[job] is S.RELEASED]:
            self.ran.append(ready[0])
            self.states[ready[0]] = S.FAILED if ready[0] in failing else S.SUCCEEDED
            self._settle()

    def cancel(self) -> None:
        for node in reversed(range(len(self.parents))):
            if self.states[node] is S.WAITING or (node in self.jobs and self.states[node] is S.RELEASED):
                self.states[node] = S.CANCELLED
        self._close()

    def rerun(self, what: What) -> Rerun:
        nodes = [
            StoredNode(
                at, parent, at, NodeKind.JOB if at in self.jobs else NodeKind.WORKFLOW, self.states[at]
            )
            for at, parent in enumerate(self.parents)
        ]
        edges = [
            StoredEdge(before, after, rule, (before, after) in self.met) for before, after, rule in self.edges
        ]
        changes = rerun(nodes, edges, what)
        for node, state in changes.states.items():
            self.states[node] = state
        for node in changes.skipped:
            self.states[node] = S.SKIPPED
        for edge, met in changes.met.items():
            (self.met.add if met else self.met.discard)(edge)
        return changes

    def members(self, group: int) -> list[int]:
        return [at for at, parent in enumerate(self.parents) if parent == group]

    def waits_for(self, node: int) -> int:
        return sum(after == node and (before, after) not in self.met for before, after, _ in self.edges)

    def _settle(self) -> None:
        before = None
        while before != (now := (list(self.states), set(self.met))):
            before = now
            self._follow()
            self._release()
            self._close()

    def _follow(self) -> None:
        for before, after, rule in self.edges:
            state = self.states[before]
            failing = state is S.RELEASED and any(
                self.states[one] in FAILURES for one in self.members(before)
            )
            if (before, after) in self.met:
                continue
            if state in DONE:
                if rule is not EdgeRule.FAILURE:
                    self.met.add((before, after))
                elif self.states[after] is S.WAITING:
                    self._end(after, S.SKIPPED)
            elif state in FAILURES or failing:
                if rule is EdgeRule.FAILURE or (rule is EdgeRule.CONTINUE and not failing):
                    self.met.add((before, after))
                elif rule is EdgeRule.CANCEL and not failing and self.states[after] is S.WAITING:
                    self._end(after, S.CANCELLED)

    def _end(self, node: int, state: NodeState) -> None:
        self.states[node] = state
        for member in self.members(node):
            if self.states[member] is S.WAITING:
                self._end(member, S.CANCELLED)

    def _release(self) -> None:
        for node, parent in enumerate(self.parents):
            free = parent is None or self.states[parent] is S.RELEASED
            if self.states[node] is S.WAITING and free and not self.waits_for(node):
                self.states[node] = S.RELEASED

    def _close(self) -> None:
        for group in reversed(range(len(self.parents))):
            if group not in self.jobs and self.states[group] is S.RELEASED:
                ends = [self.states[one] for one in self.members(group)]
                if not any(end in OPEN for end in ends):
                    self.states[group] = S.FAILED if any(end in FAILURES for end in ends) else S.SUCCEEDED


@st.composite
def models(draw: st.DrawFn) -> tuple[Model, set[int]]:
    """A flow, and which of its jobs fail the first time."""
    count = draw(st.integers(2, 14))
    parents: list[int | None] = [None]
    groups = [0]
    for node in range(1, count):
        parents.append(draw(st.sampled_from(groups)))
        if draw(st.booleans()) and node < count - 1:
            groups.append(node)
    jobs = {*range(1, count)} - {*groups}
    edges = []
    for after in range(1, count):
        siblings = [one for one in range(1, after) if parents[one] == parents[after]]
        for before in siblings[-3:]:
            if draw(st.booleans()):
                rules = [EdgeRule.CANCEL, EdgeRule.CONTINUE, EdgeRule.WAIT]
                edges.append((before, after, draw(st.sampled_from(rules))))
        alone = not any(edge[1] == after for edge in edges)
        if alone and siblings and siblings[-1] not in jobs and draw(st.booleans()):
            edges.append((siblings[-1], after, EdgeRule.FAILURE))
    failing = draw(st.sets(st.sampled_from(sorted(jobs)))) if jobs else set()
    return Model(parents, jobs, edges), failing


def used(model: Model) -> list[int]:
    """All nodes but those in parts that were skipped."""
    found: list[int] = []
    for node, parent in enumerate(model.parents):
        if parent is None or (parent in found and model.states[parent] is not S.SKIPPED):
            found.append(node)
    return found


@settings(max_examples=400, deadline=None)
@given(drawn=models(), what=st.sampled_from(["downstream", "all"]), cancelled=st.booleans())
def test_after_a_retry_a_flow_runs_to_its_end_and_no_node_runs_twice(
    *, drawn: tuple[Model, set[int]], what: What, cancelled: bool
) -> None:
    model, failing = drawn
    model.run(failing)
    if cancelled or what == "all":
        model.cancel()
    succeeded = {job for job in model.jobs if model.states[job] is S.SUCCEEDED}
    model.ran.clear()
    model.rerun(what)
    model.run(set())
    assert max(Counter(model.ran).values(), default=1) == 1
    assert what == "all" or not succeeded & {*model.ran}
    assert {model.states[node] for node in used(model)} <= DONE


@settings(max_examples=400, deadline=None)
@given(drawn=models(), again=st.booleans())
def test_what_runs_again_is_as_if_it_had_not_run(*, drawn: tuple[Model, set[int]], again: bool) -> None:
    model, failing = drawn
    fresh = Model(model.parents, model.jobs, model.edges)
    model.run(failing)
    model.cancel()
    model.ran.clear()
    model.rerun("all")
    model.run(failing if again else set())
    fresh.run(failing if again else set())
    assert (model.states, model.met, model.ran) == (fresh.states, fresh.met, fresh.ran)


@settings(max_examples=400, deadline=None)
@given(drawn=models(), what=st.sampled_from(["failed", "downstream", "all"]))
def test_counts_and_waits_are_those_of_the_new_graph(drawn: tuple[Model, set[int]], what: What) -> None:
    model, failing = drawn
    model.run(failing)
    before = _counts(model)
    changes = model.rerun(what)
    after = _counts(model)
    changed = {
        group: (after[group][0] - before[group][0], after[group][1] - before[group][1])
        for group in after
        if after[group] != before[group]
    }
    assert {group: by for group, by in changes.counts.items() if by != (0, 0)} == changed
    for node, state in changes.states.items():
        assert changes.waits_for[node] == model.waits_for(node)
        parent = model.parents[node]
        free = parent is None or model.states[parent] is S.RELEASED
        assert (state is S.RELEASED) == (free and not model.waits_for(node))
        assert parent is None or model.states[parent] in OPEN, "the group around it is open"


@settings(max_examples=300, deadline=None)
@given(drawn=models(), rounds=st.lists(st.sampled_from(["failed", "downstream"]), max_size=4))
def test_retries_that_fail_again_do_not_strand_anything(
    drawn: tuple[Model, set[int]], rounds: list[What]
) -> None:
    model, failing = drawn
    model.run(failing)
    for what in rounds:
        model.rerun(what)
        model.run(failing)
    model.rerun("downstream")
    model.run(set())
    assert {model.states[node] for node in used(model)} <= DONE


def _counts(model: Model) -> dict[tuple[int, int], tuple[int, int]]:
    found: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for node, parent in enumerate(model.parents):
        if parent is not None:
            found[parent, node // PORTION][0] += model.states[node] in OPEN
            found[parent, node // PORTION][1] += model.states[node] in FAILURES
    return {group: (opened, failed) for group, (opened, failed) in found.items()}


class Counted:
    """A node that counts how often it is read."""

    reads = 0

    def __init__(self, node: StoredNode) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        Counted.reads += 1
        return getattr(self._node, name)


def test_a_retry_of_many_failed_groups_reads_each_node_a_few_times() -> None:
    nodes = [StoredNode(0, None, 0, NodeKind.WORKFLOW, S.FAILED)]
    edges = []
    for group in range(1, 4001, 4):
        nodes += [
            StoredNode(group, 0, group, NodeKind.GROUP, S.FAILED),
            StoredNode(group + 1, group, 0, NodeKind.JOB, S.FAILED),
            StoredNode(group + 2, 0, group + 1, NodeKind.JOB, S.SUCCEEDED),
            StoredNode(group + 3, 0, group + 2, NodeKind.WORKFLOW, S.SKIPPED),
        ]
        edges += [
            StoredEdge(group, group + 2, EdgeRule.FAILURE, met=True),
            StoredEdge(group, group + 3, EdgeRule.CONTINUE, met=True),
        ]
    Counted.reads = 0
    changes = rerun(cast("list[StoredNode]", [Counted(node) for node in nodes]), edges, "downstream")
    assert Counted.reads < 30 * len(nodes)
    assert {group + 3 for group in range(1, 4001, 4)} <= changes.states.keys()

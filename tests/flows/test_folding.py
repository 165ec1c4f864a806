"""Crowds of jobs in a workflow are one node each, which counts them; sentences about nodes name no class of our own."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from pgqueue.values.flows.flow import MAP, EdgeRule, NodeKind, NodeState
from pgqueue.values.flows.folding import fold, words_in_order
from pgqueue.values.flows.record import EdgeRecord, FlowRecord, FlowState, NodeRecord, explain_nodes
from pgqueue.values.jobs.job import JobState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = NodeRecord(1, None, 0, None, NodeKind.WORKFLOW, NodeState.RELEASED)


def flow(*nodes: NodeRecord, state: FlowState = FlowState.RUNNING, key: str | None = None) -> FlowRecord:
    return FlowRecord(1, "workflow", "import", key, state, NOW, None, {}, (ROOT, *nodes))


def job(number: int, task: str, *after: int, parent: int = 1, **given: Any) -> NodeRecord:
    edges = tuple(EdgeRecord(one, f"n{one}", "waiting", EdgeRule.CANCEL, met=False) for one in after)
    known = {
        "name": f"n{number}",
        "kind": NodeKind.JOB,
        "state": NodeState.WAITING,
        "task": task or None,
        "job_id": 100 + number,
    }
    return NodeRecord(number, parent, number, after=edges, **{**known, **given})  # fmt: skip


def group(number: int, *after: int, **given: Any) -> NodeRecord:
    return job(number, "", *after, kind=NodeKind.GROUP, job_id=None, name="rows", **given)


def test_jobs_of_one_task_between_the_same_nodes_are_one_node_that_counts_them() -> None:
    states = [NodeState.SUCCEEDED, NodeState.SUCCEEDED, NodeState.FAILED]
    crowd = [job(10 + n, "load", 2, state=state) for n, state in enumerate(states)]
    running = job(13, "load", 2, state=NodeState.RELEASED, job_state=JobState.RUNNING)
    found = fold(flow(job(2, "start"), *crowd, running, job(20, "end", 10, 11, 12, 13)))
    assert [(node.label, node.kind.is_group) for node in found.flow.nodes[1:]] == [
        ("n2", False),
        ("load", True),
        ("n20", False),
    ]
    assert words_in_order(found.counts[10]) == [("failed", 1), ("running", 1), ("succeeded", 2)]
    assert [one.id for one in found.jobs[10]] == [10, 11, 12, 13]
    (edge,) = found.flow.nodes[3].after
    assert (edge.node, edge.label) == (10, "load")


def test_few_jobs_and_jobs_with_other_neighbours_stay_as_they_are() -> None:
    few = flow(job(2, "start"), *(job(10 + n, "load", 2) for n in range(3)))
    assert fold(few).flow == few
    others = flow(job(2, "start"), job(3, "start"), *(job(10 + n, "load", 2 + n % 2) for n in range(6)))
    assert fold(others).counts == {}
    in_turn = flow(*(job(10 + n, "load", *([9 + n] if n else [])) for n in range(6)))
    assert fold(in_turn).flow == in_turn


def test_a_group_of_one_task_is_its_own_node_and_the_job_that_fills_it_is_left_out() -> None:
    filler = job(4, MAP, parent=3, state=NodeState.SUCCEEDED)
    found = fold(flow(group(3), filler, *(job(10 + n, "load", parent=3) for n in range(2))))
    assert [node.id for node in found.flow.nodes] == [1, 3]
    assert (found.flow.nodes[1].label, found.flow.nodes[1].task) == ("rows", "load")
    assert found.counts == {3: {"waiting": 2}}

    failed = fold(flow(group(3), job(4, MAP, parent=3, state=NodeState.FAILED)))
    assert failed.counts == {3: {"failed": 1}}
    assert [one.label for one in failed.jobs[3]] == ["make a job for each item"]


def test_a_large_group_whose_members_are_only_counted_is_one_node() -> None:
    members = {NodeState.RELEASED: 600, NodeState.SUCCEEDED: 400}
    found = fold(flow(group(3, members=members)))
    assert found.counts == {3: {"in progress": 600, "succeeded": 400}}
    assert found.jobs == {3: []}


def test_a_group_with_parts_of_several_tasks_stays_open_and_its_crowds_are_folded() -> None:
    mixed = [job(10 + n, "load", parent=3) for n in range(5)]
    found = fold(flow(group(3), job(4, "check", parent=3), *mixed))
    assert [node.label for node in found.flow.nodes[1:]] == ["rows", "n4", "load"]


@pytest.mark.parametrize("kind", NodeKind)
@pytest.mark.parametrize("state", FlowState)
def test_no_sentence_about_a_node_shows_a_class_of_ours(kind: NodeKind, state: FlowState) -> None:
    around = NodeRecord(2, 1, 0, None, kind, NodeState.WAITING)
    inside = job(3, "load", parent=2, name=None)
    nodes = explain_nodes([ROOT, around, inside, job(4, "end", 2)], flow(state=state, key="shop 7"), behind=3)
    said = [f"{node.label!r} {node.said!r} {node.why}" for node in nodes]
    assert not [one for one in said if re.search(r"<\w+\.\w+", one)], said


def test_what_waits_for_another_flow_of_its_key_says_which() -> None:
    waiting = flow(job(2, "load"), state=FlowState.WAITING, key="shop 7")
    root = NodeRecord(1, None, 0, None, NodeKind.WORKFLOW, NodeState.WAITING)
    nodes = explain_nodes([root, *waiting.nodes[1:]], waiting, behind=3)
    assert {node.why for node in nodes} == {"waits for its turn, behind flow 3 of key 'shop 7'"}

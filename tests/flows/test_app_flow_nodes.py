"""The options of a node: the same mistakes are refused, in the same words, in a flow that is built and by a running job."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from pgqueue import PgQueue, Workflow, chain, result
from pgqueue.app.flows.inside import FlowInside
from pgqueue.errors import InvalidOption
from pgqueue.values.flows.addition import Addition
from pgqueue.values.flows.results import FlowPosition
from pgqueue.values.jobs.job import Claim

NODES = PgQueue("")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@NODES.task
def note() -> None: ...


Add = Callable[..., object]

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"if_failed": "failure"}, "if_failed='failure': use one of cancel, continue, wait"),
    ({"if_failed": ["cancel"]}, r"if_failed=\['cancel'\]: use one of cancel"),
    ({"after": {"a": "failure"}}, "after='failure': use one of cancel, continue, wait"),
    ({"after": 5}, "after=5: give names of nodes"),
    ({"after": [5]}, "after: 5 is no node; give its name"),
    ({"skip_if": True}, r"n: skip_if=True: write a condition, such as result\('extract'\) == 0"),
    ({"skip_if": result("a") == 0, "part": chain(note.call())}, "n: skip_if is for a single job; give it to"),
    ({"part": note}, r"n: .* is no part of a flow; write task.call"),
    ({"part": Workflow}, r"n: .* is no part of a flow; give task.call"),
    ({"part": None}, r"n: None is no part of a flow; give task.call"),
    ({"name": ""}, "name='': use 1 to 200 characters"),
    ({"name": 5}, "name=5: use 1 to 200 characters"),
]


def inside(additions: list[Addition]) -> FlowInside:
    """The flow of a running job, which puts what it adds here."""
    facts = FlowPosition(flow_id=1, flow_name="f", name=None, skip_if=None, before=())
    job = Claim(1, UUID(int=1), 1, 1, 25, 0, "default", "note", "{}", NOON.timestamp(), NOON.timestamp(), 0.0)
    return FlowInside(facts, job, additions)


def refused(add: Add, given: dict[str, Any], words: str) -> None:
    options = {"name": "n", "part": note.call(), **given}
    with pytest.raises(InvalidOption, match=words):
        add(options.pop("name"), options.pop("part"), **options)


@pytest.mark.parametrize(("given", "words"), MISTAKES)
def test_a_mistake_in_a_node_of_a_workflow_is_refused_and_adds_nothing(
    given: dict[str, Any], words: str
) -> None:
    flow = Workflow()
    refused(flow.add, given, words)
    assert flow.as_part().steps == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *MISTAKES,
        ({"before": 5}, "before=5: give names of nodes"),
        ({"before": [None]}, "before: None is no node; give its name"),
    ],
)
def test_a_mistake_in_what_a_running_job_adds_is_refused_and_adds_nothing(
    given: dict[str, Any], words: str
) -> None:
    additions: list[Addition] = []
    refused(inside(additions).add, given, words)
    assert additions == []


def test_a_running_job_adds_a_node_with_a_condition() -> None:
    additions: list[Addition] = []
    inside(additions).add("n", note.call(), skip_if=result("a") == 0, if_failed="continue", before="b")
    (added,) = additions
    assert added.steps[0].spec == {"skip_if": ["==", ["result", "a"], 0]}
    assert (added.after, added.before) == ({None: "continue"}, ["b"])


def test_a_member_that_a_running_job_adds_to_a_group_has_to_be_a_part_of_a_flow() -> None:
    additions: list[Addition] = []
    with pytest.raises(InvalidOption, match=r"extend: .* is no part of a flow; write task.call"):
        inside(additions).extend([note.call(), note])  # type: ignore[list-item]  # the mistake
    assert additions == []

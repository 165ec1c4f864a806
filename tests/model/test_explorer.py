"""All states of the protocol of claims are gone through. With a rule taken out, the explorer finds how a promise breaks."""

import os
from math import inf
from pathlib import Path

import pytest
from model.explorer import explore
from model.protocol import (
    ALL,
    FENCES,
    LIVES,
    Protocol,
    Rules,
    Scope,
    has_ended,
    known_transitions,
    start,
    wrong,
)

PAGE = (Path(__file__).parents[2] / "docs" / "explain" / "proof.md").read_text(encoding="utf-8")
IN_THE_SUITE = 1_500
"""States; the environment asks for all."""
MOST = inf if "PGQUEUE_TEST_MODEL" in os.environ else IN_THE_SUITE

WITHOUT_A_FENCE = """
 1. worker A registers
 2. worker B registers
 3. the lease of worker A passes
 4. an admission lets in job 1
 5. worker A claims job 1, attempt 1
 6. the sweeper deletes the row of worker A
 7. the sweeper reclaims job 1
 8. worker B claims job 1, attempt 2
 9. worker A sends: complete attempt 1 of job 1
=> promise 2: a verdict on attempt 1 of job 1 was recorded, and another claim held the job
""".strip("\n")

THE_ATTEMPT_AS_FENCE = """
 1. worker A registers
 2. worker A claims job 1, attempt 1
 3. worker A sends: return attempt 1 of job 1, and the answer is lost
 4. worker A claims job 1, attempt 1
 5. worker A sends again: return attempt 1 of job 1
=> promise 2: a verdict on attempt 1 of job 1 was recorded, and another claim held the job
""".strip("\n")


@pytest.mark.parametrize("scope", [LIVES, FENCES], ids=["lives", "fences"])
def test_no_state_breaks_a_promise_and_from_each_the_job_can_end(scope: Scope) -> None:
    protocol = Protocol(scope=scope, symmetric=True)
    found = explore(start(scope), protocol.steps, wrong)

    size = f"{len(found.came):,} | {found.steps:,}"
    print(f"states | steps: {size}")  # noqa: T201 - it is what was done
    assert found.counter_example is None
    assert found.left == 0
    assert found.stuck(has_ended) == []
    assert f"| {size} |" in PAGE
    assert protocol.taken <= known_transitions()
    assert scope is not LIVES or protocol.taken == known_transitions()


def test_no_state_near_the_start_breaks_a_promise_where_all_of_it_may_happen() -> None:
    found = explore(start(ALL), Protocol(scope=ALL, symmetric=True).steps, wrong, most=MOST)

    print(f"{len(found.came):,} states, {found.steps:,} steps, {found.left:,} left")  # noqa: T201 - as before
    assert found.counter_example is None
    assert len(found.came) >= IN_THE_SUITE


@pytest.mark.parametrize(
    ("rules", "scope", "expected"),
    [
        (Rules(fence="none"), LIVES, WITHOUT_A_FENCE),
        (Rules(fence="worker"), FENCES, THE_ATTEMPT_AS_FENCE),
        (Rules(fence="attempt"), FENCES, THE_ATTEMPT_AS_FENCE),
        (Rules(waits_for_lease=False), LIVES, "promise 2: the row of worker A was deleted before its lease"),
        (
            Rules(spends=False),
            LIVES,
            "promise 3: job 1 has 2 attempts, and is dead after 3 that failed or were lost",
        ),
    ],
    ids=[
        "no fence",
        "the worker as fence",
        "the attempt as fence",
        "no lease",
        "attempts counted at the end",
    ],
)
def test_without_a_rule_the_explorer_finds_the_way_to_a_broken_promise(
    rules: Rules, scope: Scope, expected: str
) -> None:
    found = explore(start(scope), Protocol(rules, scope).steps, wrong)

    print(found.counter_example)  # noqa: T201 - it is to be read
    assert found.counter_example is not None
    assert expected in found.counter_example
    assert expected.count("\n") == 0 or expected in PAGE

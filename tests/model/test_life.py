"""The life of jobs on a real PostgreSQL, driven by several clients at once, is that of a small model."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from model.machine import Life
from model.mutants import MUTANTS, Mutant, caught, statements
from model.world import World

from pgqueue.store.catalogue import catalogue_of

EXAMPLES = int(os.environ.get("PGQUEUE_TEST_MODEL", "25"))
IN_THE_SUITE = 1, 3, 7, 9, 14, 20, 24, 32, 36
"""Places of some mutations in the list; ``make mutants`` tries all."""
TRIED = range(len(MUTANTS)) if "PGQUEUE_TEST_MUTANTS" in os.environ else IN_THE_SUITE


def test_jobs_live_as_the_model_says_and_their_history_breaks_no_promise(dsn: str) -> None:
    class OnThisDatabase(Life):
        make_world = staticmethod(lambda: World(dsn, catalogue_of("pgqueue")))

    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(
    "mutant", [MUTANTS[place] for place in TRIED], ids=lambda one: f"{one.file}: {one.what}"
)
def test_a_mutation_is_caught(mutant: Mutant, dsn: str) -> None:
    assert caught(mutant, dsn) is not None


def test_each_mutation_changes_one_piece_of_the_code() -> None:
    for mutant in MUTANTS:
        with statements(mutant):
            pass
    assert len(MUTANTS) >= 25
    assert len({(one.file, one.old, one.new, one.by) for one in MUTANTS}) == len(MUTANTS)

"""What the databases of tests note of transitions (``tests/transitions.py``): what the package did, and not what a test did."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from store.crowd import ask
from store.samples import MINUTE, NOON, adding, new_job, taking
from transitions import ENQUEUED, TABLE, Seen, Transition, differences

from pgqueue.store.jobs import admission, control, finish
from pgqueue.store.plan import Steps, plan
from pgqueue.store.workers import upkeep
from pgqueue.values.jobs.verdict import Succeeded

Looking: TypeAlias = Callable[[], dict[Transition, str]]


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection on which each plan is committed."""
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
def seen(own: psycopg.Connection[Any], dsn: str) -> Looking:
    """What has happened in this test; its database may have notes of former tests."""
    ((since,),) = own.execute("select pg_current_xact_id()::text::bigint").fetchall()

    def look() -> dict[Transition, str]:
        found = Seen()
        found.gather(dsn, since)
        return found.examples

    return look


@plan(transaction=True)
def _blocked() -> Steps[list[int]]:
    ids = yield from adding(new_job())
    return (yield from admission.block(ids, ["a"]))


def test_each_transition_is_noted_with_the_statement_that_made_it(
    own: psycopg.Connection[Any], seen: Looking
) -> None:
    ask(own, adding(new_job(run_at=NOON + MINUTE)))
    ask(own, upkeep.poll(now=NOON + MINUTE))
    (taken,) = ask(own, taking(now=NOON + MINUTE))
    ask(own, finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True))

    assert seen() == {
        (ENQUEUED, "scheduled"): "sql/jobs/enqueue.sql",
        ("scheduled", "ready"): "sql/workers/poll.sql",
        ("ready", "running"): "sql/jobs/claim.sql",
        ("running", "succeeded"): "sql/jobs/complete.sql",
    }


def test_a_job_that_moves_to_another_table_and_back_has_changed_its_state(
    own: psycopg.Connection[Any], seen: Looking
) -> None:
    (expiring,) = ask(own, adding(new_job(expires_at=NOON)))
    ask(own, finish.expire(now=NOON))
    ask(own, control.retry(expiring))
    ask(own, control.cancel(expiring))

    assert seen() == {
        (ENQUEUED, "ready"): "sql/jobs/enqueue.sql",
        ("ready", "dead"): "sql/jobs/end.sql",
        ("dead", "ready"): "sql/jobs/revive.sql",
        ("ready", "cancelled"): "sql/jobs/end.sql",
    }


def test_what_an_enqueue_does_to_its_job_before_its_commit_is_a_part_of_the_enqueue(
    own: psycopg.Connection[Any], seen: Looking
) -> None:
    ask(own, _blocked())
    assert seen() == {(ENQUEUED, "blocked"): "sql/jobs/enqueue.sql"}


def test_a_claim_in_the_transaction_of_the_enqueue_is_a_transition(
    own: psycopg.Connection[Any], seen: Looking
) -> None:
    with own.transaction():
        ask(own, adding(new_job()))
        ask(own, taking())
    assert seen().keys() == {(ENQUEUED, "ready"), ("ready", "running")}


def test_what_is_rolled_back_was_no_transition(own: psycopg.Connection[Any], seen: Looking) -> None:
    with own.transaction(force_rollback=True):
        ask(own, adding(new_job()))
    assert seen() == {}


def test_a_function_of_the_schema_is_not_a_tests_own_statement(
    own: psycopg.Connection[Any], seen: Looking
) -> None:
    own.execute("select pgqueue.enqueue('work', '{}')")
    assert seen() == {(ENQUEUED, "ready"): "select pgqueue.enqueue('work', '{}')"}


def test_what_a_test_does_to_a_job_by_hand_is_no_transition(
    own: psycopg.Connection[Any], seen: Looking
) -> None:
    ask(own, adding(new_job()))
    own.execute("update pgqueue.jobs set status = 'running'")
    own.execute("delete from pgqueue.jobs")
    assert seen().keys() == {(ENQUEUED, "ready")}


def test_a_database_that_cannot_be_read_has_shown_nothing(dsn: str) -> None:
    found = Seen()
    found.gather(make_conninfo(dsn, dbname="gone"))
    assert found.examples == {}


def test_a_transition_that_is_not_in_the_table_is_named_with_what_made_it() -> None:
    examples = dict.fromkeys(TABLE, "sql/jobs/claim.sql") | {("succeeded", "ready"): "sql/jobs/revive.sql"}
    assert differences(examples, is_whole=True) == [
        "succeeded -> ready is not in the table, and was made by sql/jobs/revive.sql"
    ]


def test_a_transition_of_the_table_has_to_be_seen_where_all_tests_have_run() -> None:
    examples = dict.fromkeys(TABLE - {("ready", "dead")}, "sql/jobs/claim.sql")
    assert differences(examples, is_whole=True) == ["ready -> dead is in the table, and no job made it"]
    assert differences(examples, is_whole=False) == []

"""A search of jobs: what it finds, in PostgreSQL and in memory, and where it stops."""

from datetime import timedelta
from typing import Any

import pytest
from looking import ask

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import searching
from pgqueue.testing import drain, in_memory


def _sell(order_id: int, note: str = "") -> None:
    if not order_id:
        raise ConnectionError("no answer" + note)


def _filled(queue: PgQueue) -> PgQueue:
    """Jobs 1 to 6: dead, succeeded, then four that wait."""
    sell = queue.task(name="shop.sell", max_attempts=1)(_sell)
    mail = queue.task(name="shop.mail", queue="mail")(_sell)
    sell.enqueue(0)
    sell.enqueue(1)
    drain(queue, raises=False)
    sell.enqueue(2)
    mail.using(unique_key="once").enqueue(3, note="hello_world")
    mail.using(delay=3600).enqueue(4)
    sell.enqueue(10**15 + 5, note='a "quoted" wörd')
    return queue


CASES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [6, 5, 4, 3, 2, 1]),
    ({"limit": 2}, [6, 5]),
    ({"before": 3}, [2, 1]),
    ({"before": 0}, []),
    ({"state": "dead"}, [1]),
    ({"state": ["succeeded", "scheduled"]}, [5, 2]),
    ({"state": "running"}, []),
    ({"queue": "ma*"}, [5, 4]),
    ({"task": "shop.sell", "state": "ready"}, [6, 3]),
    ({"unique_key": "once"}, [4]),
    ({"args": {"order_id": 2}}, [3]),
    ({"args": {"note": "hello_world"}}, [4]),
    ({"args": {"note": 'a "quoted" wörd'}}, [6]),
    ({"args": {"order_id": 10**15 + 5}}, [6]),
    ({"args": {"order_id": "2"}}, []),
    ({"error": "ConnectionError"}, [1]),
    ({"error": "ValueError"}, []),
]


@pytest.mark.parametrize(("criteria", "ids"), CASES)
@pytest.mark.parametrize("place", ["postgresql", "memory"])
def test_a_search_finds_the_jobs_that_match_newest_first(
    queue: PgQueue, place: str, criteria: dict[str, Any], ids: list[int]
) -> None:
    if place == "memory":
        with in_memory(queue):
            found = _filled(queue).insight.search(**criteria)
    else:
        found = _filled(queue).insight.search(**criteria)
    assert [job.id for job in found.jobs] == ids
    assert found.looked_to is None


def test_a_search_stops_after_a_number_of_jobs_and_goes_on_from_there(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(queue)
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "LOOKED_AT", 2)
    monkeypatch.setattr(searching, "READ", 1)

    found = queue.insight.search(args={"note": "hello_world"})
    assert [job.id for job in found.jobs] == [4]
    found = queue.insight.search(task="no such task", state="ready")
    assert (found.jobs, found.looked_to) == ((), 4)
    assert queue.insight.search(task="no such task", state="ready", before=4).looked_to is None
    assert queue.insight.search(args={"order_id": 0}).looked_to == 5, "their arguments must be read"


def test_running_jobs_are_found_behind_any_backlog(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "LOOKED_AT", 1)
    sell = queue.task(name="shop.sell")(_sell)
    first = sell.enqueue(1)
    with queue.take(1, timeout=5):
        for number in range(5):
            sell.enqueue(number)
        found = queue.insight.search(state="running")
    assert ([job.id for job in found.jobs], found.looked_to) == ([first.id], None)


@pytest.mark.parametrize("criteria", [{}, {"state": ["ready", "dead"]}, {"queue": "mail"}])
def test_the_live_job_of_a_key_is_found_behind_any_number_of_newer_jobs(
    queue: PgQueue, monkeypatch: pytest.MonkeyPatch, criteria: dict[str, Any]
) -> None:
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "LOOKED_AT", 1)
    sell = queue.task(name="shop.sell", queue="mail", max_attempts=1)(_sell)
    keyed = sell.using(unique_key="once").enqueue(1)
    for _ in range(3):
        sell.using(priority=9).enqueue(0)
    with queue.take(3, timeout=5) as jobs:
        for job in jobs:
            job.fail("no stock")

    found = queue.insight.search(unique_key="once", **criteria)
    assert ([job.id for job in found.jobs], found.looked_to is None) == ([keyed.id], False)
    assert queue.insight.search(unique_key="once", state="dead").jobs == ()
    assert queue.insight.search(unique_key="once", queue="default").jobs == ()
    assert queue.insight.search(unique_key="once", before=keyed.id).jobs == ()
    assert [job.id for job in queue.insight.search(unique_key="once", state="ready").jobs] == [keyed.id]


def test_a_found_job_has_its_last_error_and_no_long_arguments(queue: PgQueue) -> None:
    job = queue.task(name="shop.sell")(_sell).enqueue(1, note="x" * 20_000)
    errors = '[{"attempt": 1, "type": "A", "message": "a"}, {"attempt": 2, "type": "B", "message": "b"}]'
    ask(queue, "update pgqueue.jobs set errors = %s::jsonb", errors)
    (found,) = queue.insight.search().jobs
    assert (found.id, [one.type for one in found.errors]) == (job.id, ["B"])
    assert found.args["$not_kept"] > 20_000


def test_a_time_of_the_enqueue_is_a_criterion(queue: PgQueue) -> None:
    _filled(queue)
    at = queue.job(3).created_at
    ask(queue, "update pgqueue.jobs set created_at = %s where id = 6", at + timedelta(hours=1))
    assert [job.id for job in queue.insight.search(enqueued_after=at + timedelta(minutes=1)).jobs] == [6]
    assert 6 not in [job.id for job in queue.insight.search(enqueued_before=at + timedelta(minutes=1)).jobs]


def test_a_search_that_makes_no_sense_is_refused(queue: PgQueue) -> None:
    for criteria in ({"state": "lost"}, {"queue": ""}, {"limit": 0}, {"unique_key": "a\0"}, {"args": "x"}):
        with pytest.raises(InvalidOption):
            queue.insight.search(**criteria)

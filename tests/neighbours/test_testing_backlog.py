"""A bound for a queue's backlog: in memory, on PostgreSQL, and in one open transaction of it."""

import logging
from typing import Any

import pytest
from neighbours.places import a_clock, a_database, every_place, one_database

from pgqueue import Debounce, Outcome, PgQueue, Task, chain
from pgqueue.errors import BacklogFull, InvalidOption
from pgqueue.testing import drain

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


@pytest.fixture
def send(queue: PgQueue) -> Task[[int], None]:
    """A task of the queue mail, which refuses a fourth ready job."""

    @queue.task(name="send", queue="mail")
    def send(number: int) -> None:
        pass

    queue.control.set("mail", backlog=3, when_full="refuse")
    return send


def _again(queue: PgQueue) -> None:
    """Look again: a process remembers for a second whether a queue has room."""
    queue.database.known.forget()


def test_a_full_queue_refuses_and_takes_jobs_again(queue: PgQueue, send: Task[[int], None]) -> None:
    for number in range(3):
        send.enqueue(number)
    _again(queue)
    with pytest.raises(
        BacklogFull, match=r"queue 'mail' has no room: its bound is 3 ready jobs; enqueue again"
    ) as told:
        send.enqueue(4)
    assert (told.value.queue, told.value.backlog) == ("mail", 3)
    assert len(queue.insight.search().jobs) == 3
    drain(queue)
    _again(queue)
    assert send.enqueue(5).accepted


def test_a_batch_is_refused_whole_and_nothing_is_written(queue: PgQueue, send: Task[[int], None]) -> None:
    other = send.using(queue="other")
    with pytest.raises(BacklogFull, match="and 4 more were to be added"):
        queue.enqueue_many([other.call(0), *(send.call(number) for number in range(4))])
    assert queue.insight.search().jobs == ()
    queue.enqueue_many([other.call(0), *(send.call(number) for number in range(3))])
    with pytest.raises(BacklogFull):
        queue.enqueue_many([send.using(unique_key="a").call(9)])
    assert len(queue.insight.search().jobs) == 4


def test_a_flow_is_refused_whole(queue: PgQueue, send: Task[[int], None]) -> None:
    with pytest.raises(BacklogFull):
        chain(*(send.call(number) for number in range(4))).enqueue()
    assert queue.insight.search().jobs == ()


def test_jobs_that_are_not_ready_do_not_count(queue: PgQueue, send: Task[[int], None]) -> None:
    for number in range(5):
        send.using(delay=60).enqueue(number)
        _again(queue)
    assert send.enqueue(6).accepted


@pytest.mark.parametrize(
    "options",
    [{"delay": 60}, {"unique_key": "a"}, {"unique_key": "a", "unique": Debounce(5)}, {"meta": {"a": 1}}],
)
def test_every_kind_of_enqueue_is_refused(
    queue: PgQueue, send: Task[[int], None], options: dict[str, Any]
) -> None:
    queue.enqueue_many(send.call(number) for number in range(3))
    with pytest.raises(BacklogFull):
        send.using(**options).enqueue(4)


def test_what_is_debounced_into_a_waiting_job_is_accepted(queue: PgQueue, send: Task[[int], None]) -> None:
    index = send.using(unique_key="a", unique=Debounce(5))
    index.enqueue(1)
    queue.enqueue_many(send.call(number) for number in range(3))
    _again(queue)
    assert index.enqueue(2).outcome is Outcome.REPLACED


@pytest.mark.parametrize("settings", [{"when_full": "warn"}, {}])
def test_a_full_queue_warns(
    queue: PgQueue, send: Task[[int], None], settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    queue.control.declare("mail", existing="replace", backlog=1, **settings)
    with caplog.at_level(logging.WARNING, "pgqueue"):
        queue.enqueue_many(send.call(number) for number in range(2))
        send.enqueue(3)
    assert "queue is full: queue 'mail' has no room: its bound is 1 ready jobs" in caplog.text
    assert len(queue.insight.search().jobs) == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backlog": 0}, "backlog=0"),
        ({"backlog": -1}, "backlog=-1"),
        ({"backlog": 1_000_001}, "backlog=1000001"),
        ({"backlog": 1.5}, "backlog=1.5"),
        ({"backlog": float("nan")}, "backlog=nan"),
        ({"backlog": True}, "backlog=True"),
        ({"when_full": "explode"}, "when_full='explode'"),
        ({"when_full": "warn"}, "the queue has no backlog"),
    ],
)
def test_settings_that_make_no_sense_are_refused_and_change_nothing(
    queue: PgQueue, settings: dict[str, Any], words: str
) -> None:
    queue.control.declare("mail", priority=1)
    for change in (
        queue.control.set,
        lambda name, **given: queue.control.declare(name, existing="replace", **given),
    ):
        with pytest.raises(InvalidOption, match=words):
            change("mail", **settings)
    (known,) = queue.insight.queues()
    assert (known.settings.priority, known.settings.backlog) == (1, None)


def test_a_bound_that_is_taken_away_takes_along_what_happens_at_it(
    queue: PgQueue, send: Task[[int], None]
) -> None:
    with pytest.raises(InvalidOption, match="unset both"):
        queue.control.set("mail", unset=["backlog"])
    queue.control.set("mail", unset=["backlog", "when_full"])
    queue.enqueue_many(send.call(number) for number in range(4))
    assert len(queue.insight.search().jobs) == 4

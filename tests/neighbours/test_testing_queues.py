"""A drain serves queues as a worker does: patterns, exclusions, weights, a strict order; and their timeouts hold.

A bound for a queue's backlog: in memory, on PostgreSQL, and in one open transaction of it.
"""

import asyncio
import logging
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from neighbours.places import a_clock, a_database, every_place, one_database

from pgqueue import Debounce, JobState, Outcome, PgQueue, Task, chain
from pgqueue.errors import BacklogFull, InvalidOption, TimedOut, UnknownQueue
from pgqueue.store.queues import queues
from pgqueue.testing import adrain, drain

queue, clock, emptied, database = every_place, a_clock, a_database, one_database


@pytest.fixture
def ran(queue: PgQueue) -> list[str]:
    """The queues of the jobs that ran, in order; ten jobs wait in each of four queues."""
    ran: list[str] = []

    @queue.task(name="work")
    def work(name: str) -> None:
        ran.append(name)

    for name in ("mail-a", "mail-bulk", "reports", "web"):
        for _ in range(10):
            work.using(queue=name).enqueue(name)
    return ran


@pytest.mark.parametrize(
    ("queues", "served"),
    [
        (["mail-*"], {"mail-a", "mail-bulk"}),
        (["mail-*", "!mail-bulk"], {"mail-a"}),
        (["!mail-*"], {"reports", "web"}),
        (["*", "!web", "!r*"], {"mail-a", "mail-bulk"}),
        (["web", "none"], {"web"}),
    ],
)
def test_patterns_and_exclusions_choose_queues(
    queue: PgQueue, ran: list[str], queues: list[str], served: set[str]
) -> None:
    drain(queue, queues=queues)
    assert Counter(ran) == dict.fromkeys(served, 10)


@pytest.mark.parametrize("queues", [{"web": 4, "reports": 1}, ["web:4", "reports"]])
def test_weights_are_the_shares_of_a_drain(queue: PgQueue, ran: list[str], queues: Any) -> None:
    drain(queue, queues=queues)
    assert len(ran) == 20
    assert Counter(ran[:10]) == {"web": 8, "reports": 2}
    assert ran[13:] == ["reports"] * 7  # the share of an empty queue goes to the other


def test_weights_hold_for_the_queues_of_a_pattern_each(queue: PgQueue, ran: list[str]) -> None:
    drain(queue, queues={"mail-*": 2, "*": 1})
    assert Counter(ran[:12]) == {"mail-a": 4, "mail-bulk": 4, "reports": 2, "web": 2}


def test_a_strict_order_looks_again_from_the_first_queue_after_each_job(queue: PgQueue) -> None:
    ran: list[str] = []

    @queue.task(name="urgent", queue="urgent")
    def urgent() -> None:
        ran.append("urgent")

    @queue.task(name="slow", queue="slow")
    def slow(*, asks: bool) -> None:
        ran.append("slow")
        if asks:
            urgent.enqueue()

    slow.enqueue(asks=True)
    slow.enqueue(asks=False)
    drain(queue, queues=["urg*", "slow"], order="strict")
    assert ran == ["slow", "urgent", "slow"]


def test_a_paused_queue_of_a_pattern_is_left_out(queue: PgQueue, ran: list[str]) -> None:
    queue.control.pause("mail-*")
    drain(queue, queues={"*": 1, "mail-a": 1_000})
    assert Counter(ran) == {"reports": 10, "web": 10}


def test_what_makes_no_sense_is_refused(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="contradict"):
        drain(queue, queues={"mail": 5}, order="strict")
    with pytest.raises(InvalidOption, match="a weight is a whole number"):
        drain(queue, queues={"mail": 0})
    declared = PgQueue("", queues=["mail"])
    with pytest.raises(UnknownQueue, match="stands for none of the declared queues"):
        drain(declared, queues=["web-*"])


async def test_the_timeout_of_a_queue_ends_attempts_of_tasks_without_one(queue: PgQueue) -> None:
    @queue.task(name="hangs", queue="mail", max_attempts=1)
    async def hangs() -> None:
        await asyncio.sleep(3600)

    @queue.task(name="patient", queue="mail", timeout=60)
    async def patient() -> None:
        await asyncio.sleep(0.05)

    queue.control.declare("mail", timeout=timedelta(milliseconds=20))
    hangs.enqueue()
    patient.enqueue()
    first, second = await adrain(queue, raises=False)
    assert (first.outcome, second.outcome) == (JobState.DEAD, JobState.SUCCEEDED)
    assert isinstance(first.error, TimedOut)
    assert str(first.error) == "the attempt took longer than the timeout of queue 'mail', of 0:00:00.020000"
    queue.control.set("mail", unset=["timeout"])
    patient.using(queue="mail").enqueue()
    (third,) = await adrain(queue)
    assert third.outcome is JobState.SUCCEEDED


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
    (known,) = queue.database.run(queues.known())
    assert (known.settings.priority, known.settings.backlog) == (1, None)


def test_a_bound_that_is_taken_away_takes_along_what_happens_at_it(
    queue: PgQueue, send: Task[[int], None]
) -> None:
    with pytest.raises(InvalidOption, match="unset both"):
        queue.control.set("mail", unset=["backlog"])
    queue.control.set("mail", unset=["backlog", "when_full"])
    queue.enqueue_many(send.call(number) for number in range(4))
    assert len(queue.insight.search().jobs) == 4

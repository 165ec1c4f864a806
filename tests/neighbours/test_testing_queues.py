"""A drain serves queues as a worker does: patterns, exclusions, weights, a strict order; and their timeouts hold."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from neighbours.places import a_clock, a_database, every_place, one_database

from pgqueue import JobState, PgQueue
from pgqueue.errors import InvalidOption, TimedOut, UnknownQueue
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

"""A take serves queues as a worker does: patterns, exclusions, weights, a strict order."""

from collections import Counter

import pytest
from looking import ask

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption, UnknownQueue

NAMES = ("mail-a", "mail-bulk", "reports", "web")


@pytest.fixture(autouse=True)
def waiting(queue: PgQueue) -> None:
    task = queue.task(name="note")(lambda: None)
    queue.enqueue_many(task.using(queue=name).call() for name in NAMES for _ in range(100))


def queues_of(queue: PgQueue, job_ids: list[int]) -> list[str]:
    return [queue.job(one).queue for one in job_ids]


@pytest.mark.parametrize(
    ("queues", "served"),
    [
        (["mail-*"], ["mail-a", "mail-bulk"]),
        (["mail-*", "!*-bulk"], ["mail-a"]),
        (["!mail-*"], ["reports", "web"]),
        (["none-*"], []),
    ],
)
def test_patterns_and_exclusions_choose_queues(queue: PgQueue, queues: list[str], served: list[str]) -> None:
    with queue.take(8, queues=queues, timeout=0) as jobs:
        found = queues_of(queue, [job.id for job in jobs])
    assert sorted(set(found)) == served
    assert set(Counter(found).values()) == ({8 // len(served)} if served else set())


async def test_weights_are_shares_of_what_is_taken(queue: PgQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a take begins is random, so that many small takes are fair. Here it begins with the first queue.
    monkeypatch.setattr("pgqueue.app.takes.base.expovariate", lambda _: 0.0)
    async with queue.atake(60, queues={"mail-a": 5, "web": 1}) as jobs:
        found = Counter(queues_of(queue, [job.id for job in jobs]))
    assert found.total() == 60
    assert found["web"] == 10
    with queue.take(
        200, queues=["mail-bulk:9", "web"]
    ) as taken:  # the share of an empty queue goes to the other
        left = Counter(queues_of(queue, [job.id for job in taken]))
    assert left == {"mail-bulk": 100, "web": 100 - found["web"]}


def test_a_strict_order_takes_from_a_queue_what_those_before_it_leave(queue: PgQueue) -> None:
    with queue.take(150, queues=["web", "mail-*"], order="strict") as jobs:
        found = queues_of(queue, [job.id for job in jobs])
    assert found == ["web"] * 100 + ["mail-a"] * 50


def test_a_strict_order_and_weights_are_of_all_queues_and_not_of_the_first_hundred_names(
    queue: PgQueue,
) -> None:
    task = queue.tasks["note"]
    queue.enqueue_many(task.using(queue=f"a{number:03}").call() for number in range(150))
    with queue.take(100, queues=["web", "*"], order="strict") as jobs:
        assert Counter(queues_of(queue, [job.id for job in jobs])) == {"web": 100}
    with queue.take(500, queues={"reports": 1_000, "*": 1}) as weighted:
        found = Counter(queues_of(queue, [job.id for job in weighted]))
    assert (found["reports"], len(found)) == (100, 153)


def test_the_row_of_a_take_shows_the_entries(queue: PgQueue) -> None:
    with queue.take(1, queues=["mail-*:3", "!mail-bulk"]):
        assert ask(queue, "select queues from pgqueue.workers") == [(["mail-*", "!mail-bulk"],)]


def test_what_makes_no_sense_is_refused(queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="contradict"):
        queue.take(queues={"mail": 5}, order="strict")
    with pytest.raises(InvalidOption, match="name the queues in their order"):
        queue.take(order="strict")
    with pytest.raises(UnknownQueue, match="stands for none of the declared queues"):
        PgQueue("", queues=["mail"]).take(queues=["web-*"])

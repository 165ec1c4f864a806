"""How queues stand is asked once for all who look at about the same time, where a look takes long."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from pgqueue.dashboard.shared_standings import SharedStandings

if TYPE_CHECKING:
    from pgqueue import PgQueue


@pytest.fixture(autouse=True)
def each_look_is_new() -> None:
    """Not in these tests: their looks take as long as they say."""


class Slow:
    """A queue whose look takes some seconds of the clock."""

    def __init__(self, takes: float) -> None:
        self.takes, self.now, self.looks = takes, 0.0, 0
        self.insight = self

    def queues(self) -> list[int]:
        self.looks += 1
        self.now += self.takes
        return [self.looks]


def _shared(queue: Slow) -> Callable[[], object]:
    shared = SharedStandings({"": cast("PgQueue", queue)}, lambda: queue.now)
    return lambda: shared.of("")


def test_an_answer_that_took_long_is_shown_for_two_seconds() -> None:
    queue = Slow(0.5)
    look = _shared(queue)
    assert (look(), look()) == ([1], [1])
    queue.now += 1.9
    assert look() == [1]
    queue.now += 0.2
    assert look() == [2]


def test_of_a_small_table_each_look_is_new() -> None:
    queue = Slow(0.001)
    look = _shared(queue)
    look()
    queue.now += 0.02
    assert look() == [2]


def test_what_somebody_has_changed_is_seen_at_once() -> None:
    queue = Slow(0.5)
    shared = SharedStandings({"": cast("PgQueue", queue)}, lambda: queue.now)
    shared.of("")
    shared.forget()
    assert cast("Any", shared.of("")) == [2]


def test_who_asks_while_another_one_does_gets_that_answer() -> None:
    begun, go = threading.Event(), threading.Event()

    class Waiting(Slow):
        def queues(self) -> list[int]:
            begun.set()
            assert go.wait(20)
            return super().queues()

    queue = Waiting(0.5)
    look = _shared(cast("Slow", queue))
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(look())) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    go.set()
    for thread in threads:
        thread.join()
    assert answers == [[1]] * 5

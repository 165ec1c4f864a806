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


def test_a_list_of_jobs_shows_an_older_answer_while_nobody_has_changed_anything() -> None:
    queue = Slow(0.2)
    shared: Any = SharedStandings({"": cast("PgQueue", queue)}, lambda: queue.now)
    assert shared.for_list("", again=False) == [1]
    queue.now += 9.0
    assert shared.for_list("", again=False) == [1]
    assert shared.of("") == [2], "the page of queues has a new one"
    queue.now += 11.0
    assert shared.for_list("", again=True) == [2], "a list that is refreshed asks for it each 15 s"
    assert shared.for_list("", again=False) == [3]
    shared.forget()
    assert shared.for_list("", again=True) == [4]
    queue.now += 16.0
    assert shared.for_list("", again=True) == [5]


def test_a_list_of_few_jobs_shows_a_new_answer_at_each_look() -> None:
    queue = Slow(0.001)
    shared: Any = SharedStandings({"": cast("PgQueue", queue)}, lambda: queue.now)
    shared.for_list("", again=False)
    queue.now += 0.1
    assert shared.for_list("", again=False) == [2]
    assert shared.for_list("", again=True) == [2]


def test_what_somebody_has_changed_is_seen_at_once() -> None:
    queue = Slow(0.5)
    shared = SharedStandings({"": cast("PgQueue", queue)}, lambda: queue.now)
    shared.of("")
    shared.forget()
    assert cast("Any", shared.of("")) == [2]


class Waiting(Slow):
    """A queue whose look waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__(0.5)
        self.begun, self.go = threading.Event(), threading.Event()
        self.fails = False

    def queues(self) -> list[int]:
        self.begun.set()
        assert self.go.wait(20)
        answer = super().queues()
        if self.fails:
            raise ConnectionError(f"look {self.looks}")
        return answer


def _looked_together(
    queue: Waiting, look: Callable[[], object], meanwhile: Callable[[], object]
) -> list[object]:
    answers: list[object] = []

    def one() -> None:
        try:
            answers.append(look())
        except ConnectionError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=one) for _ in range(5)]
    threads[0].start()
    assert queue.begun.wait(20)
    for thread in threads[1:]:
        thread.start()
    meanwhile()
    queue.go.set()
    for thread in threads:
        thread.join()
    return answers


def test_who_asks_while_another_one_does_gets_that_answer() -> None:
    queue = Waiting()
    assert _looked_together(queue, _shared(queue), lambda: None) == [[1]] * 5


def test_a_failed_look_is_the_answer_for_all_who_waited_for_it() -> None:
    """Else each of them waits as long again, one after the other, while the database does not answer."""
    queue = Waiting()
    queue.fails = True
    look = _shared(queue)
    assert _looked_together(queue, look, lambda: None) == ["look 1"] * 5
    queue.fails = False
    assert look() == [2]


def test_an_answer_that_was_under_way_when_a_user_changed_something_is_not_shown_later() -> None:
    queue = Waiting()
    shared = SharedStandings({"": cast("PgQueue", queue)}, lambda: queue.now)
    answers = _looked_together(queue, lambda: shared.of(""), shared.forget)
    assert sorted(map(str, answers)) == ["[1]", *["[2]"] * 4]

"""Days are read ahead in threads, a few at a time, and their results come in order."""

import threading
from collections.abc import Callable, Iterator

import pytest

from pgqueue.spark.lake.ahead import DAYS, ahead


class Reads:
    """Reads that each wait until the test releases them."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.released = {number: threading.Event() for number in range(9)}
        self._changed = threading.Condition()

    def __call__(self, number: int) -> int:
        with self._changed:
            self.begun.append(number)
            self._changed.notify_all()
        assert self.released[number].wait(60)
        return number * 10

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.begun) >= count, 60)


def press_ctrl_c(reads: Reads, found: Iterator[tuple[int, Callable[[], int]]]) -> None:
    """An interrupt in the main thread, while all threads read."""
    next(found)
    reads.wait_for(DAYS)
    raise KeyboardInterrupt


@pytest.fixture
def reads() -> Iterator[Reads]:
    made = Reads()
    yield made
    for event in made.released.values():
        event.set()


def test_results_come_in_order_though_the_first_is_read_last(reads: Reads) -> None:
    with ahead(reads, [0, 1, 2, 3]) as found:
        one, first = next(found)
        reads.wait_for(DAYS)
        assert sorted(reads.begun) == [0, 1]
        for number in (1, 2, 3, 0):
            reads.released[number].set()
        assert (one, first()) == (0, 0)
        assert [(one, result()) for one, result in found] == [(1, 10), (2, 20), (3, 30)]


def test_no_more_is_read_than_the_caller_has_taken_and_the_days_ahead(reads: Reads) -> None:
    for event in reads.released.values():
        event.set()
    with ahead(reads, range(9)) as found:
        for number, result in found:
            assert result() == number * 10
            assert max(reads.begun) <= number + DAYS
    assert len(reads.begun) == 9


def test_an_error_is_raised_at_its_turn_and_the_others_go_on() -> None:
    def read(number: int) -> int:
        if number == 1:
            raise OSError("unreadable")
        return number

    found: list[object] = []
    with ahead(read, [0, 1, 2]) as results:
        for _, result in results:
            try:
                found.append(result())
            except OSError as error:
                found.append(str(error))
    assert found == [0, "unreadable", 2]


def test_after_an_error_of_the_caller_running_reads_are_interrupted_and_no_other_begins(reads: Reads) -> None:
    def interrupt() -> None:
        for event in reads.released.values():
            event.set()

    with pytest.raises(KeyboardInterrupt), ahead(reads, range(9), interrupt) as found:
        press_ctrl_c(reads, found)
    assert sorted(reads.begun) == [0, 1]


def test_ctrl_c_again_and_again_does_not_leave_a_read_without_an_interrupt(reads: Reads) -> None:
    """The first interrupts come to nothing: a read was between two statements, or the user pressed Ctrl-C meanwhile."""
    tries: list[int] = []

    def interrupt() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise KeyboardInterrupt
        for event in reads.released.values():
            event.set()

    with pytest.raises(KeyboardInterrupt), ahead(reads, range(9), interrupt) as found:
        press_ctrl_c(reads, found)
    assert len(tries) == 4

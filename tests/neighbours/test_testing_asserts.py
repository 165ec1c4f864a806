"""Assertions on what was enqueued, and what they say when it was not."""

from typing import Any

import psycopg
import pytest
from neighbours.places import HOUR, MINUTE, NOON, a_clock, a_database, every_place, one_database

from pgqueue import JobState, PgQueue, Task
from pgqueue.errors import ConfigurationError, InvalidOption, PayloadNotEncodable
from pgqueue.testing import (
    Clock,
    aassert_enqueued,
    aassert_not_enqueued,
    assert_enqueued,
    assert_not_enqueued,
    drain,
    in_database,
    in_memory,
)

queue, clock, emptied, database = every_place, a_clock, a_database, one_database
Send = Task[..., None]


@pytest.fixture
def send(queue: PgQueue) -> Send:
    @queue.task(name="send")
    def send(to: str, copies: int = 1) -> None: ...

    return send


def test_matching_jobs_are_returned_oldest_first(send: Send) -> None:
    ids = [send.enqueue("ada").id, send.using(queue="mail").enqueue("ada").id]
    send.enqueue("ben")
    assert [job.id for job in assert_enqueued(send, args=("ada",))] == ids
    assert [job.id for job in assert_enqueued(send, args=["ada"], queue="mail", count=1)] == ids[1:]
    assert len(assert_enqueued(send, count=3)) == 3


def test_arguments_are_compared_as_calls_and_not_as_they_were_written(send: Send) -> None:
    send.enqueue(copies=2, to="ada")
    send.enqueue("ben", copies=1)
    assert_enqueued(send, args=("ada", 2), count=1)
    assert_enqueued(send, kwargs={"to": "ada", "copies": 2}, count=1)
    assert_enqueued(send, args=("ben",), count=1)
    assert_not_enqueued(send, args=("ada",))
    with pytest.raises(PayloadNotEncodable):
        assert_enqueued(send, kwargs={"copies": 2})


def test_every_option_can_be_expected(send: Send) -> None:
    special = send.using(queue="mail", priority=3, max_attempts=4, unique_key="key", delay=HOUR)
    special.enqueue("ada")
    expected: dict[str, Any] = {
        "queue": "mail",
        "priority": 3,
        "max_attempts": 4,
        "unique_key": "key",
        "delay": HOUR,
        "run_at": NOON + HOUR,
    }
    assert_enqueued(send, **expected)
    others: dict[str, Any] = {
        "queue": "post",
        "priority": 0,
        "max_attempts": 25,
        "unique_key": "other",
        "delay": MINUTE,
        "run_at": NOON,
    }
    for name, value in others.items():
        with pytest.raises(AssertionError, match=f"other {name}$"):
            assert_enqueued(send, **{**expected, name: value})


def test_delays_count_from_the_enqueue(emptied: str) -> None:
    queue = PgQueue("")

    @queue.task
    def send() -> None: ...

    with in_memory(queue) as memory:
        send.using(delay=HOUR).enqueue()
        memory.clock.travel(MINUTE)
        assert len(assert_enqueued(send, delay=HOUR)) == 1
    with in_database(queue, emptied):
        send.using(delay=HOUR).enqueue()
        assert len(assert_enqueued(send, delay=HOUR)) == 1
        assert_not_enqueued(send, delay=MINUTE)


def test_what_has_run_was_enqueued(queue: PgQueue, send: Send) -> None:
    send.enqueue("ada")
    drain(queue)
    (job,) = assert_enqueued(send, args=("ada",))
    assert job.state is JobState.SUCCEEDED


def test_a_count_is_exact(send: Send) -> None:
    send.enqueue("ada")
    send.enqueue("ada")
    assert_enqueued(send)
    assert_enqueued(send, count=2)
    with pytest.raises(AssertionError, match=r"expected 1 jobs of send, found 2; there is:"):
        assert_enqueued(send, count=1)
    assert assert_enqueued(send, args=("ben",), count=0) == []


def test_a_failure_shows_the_nearest_first(queue: PgQueue, send: Send) -> None:
    @queue.task(name="other")
    def other(to: str) -> None: ...

    other.enqueue("ada")
    send.using(queue="mail").enqueue("zoe")
    nearest = send.enqueue("adam").id
    send.enqueue("zoe")
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(send, args=("ada",), queue="default")
    lines = str(failed.value).splitlines()
    assert lines[0] == "expected a job of send with queue='default', args={'to': 'ada'}, found 0; there is:"
    assert lines[1].startswith(
        f"  job {nearest}: send {{'to': 'adam'}} in default, ready, priority 0, run_at "
    )
    assert [line.partition("; ")[2] for line in lines[1:]] == [
        "other args",
        "other args",
        "other args, queue" if "args, queue" in lines[3] else "other queue, args",
        "other task",
    ]


def test_a_failure_shows_five_and_tells_of_the_rest(send: Send) -> None:
    with pytest.raises(AssertionError, match=r"found 0; nothing was enqueued$"):
        assert_enqueued(send)
    for number in range(7):
        send.enqueue("ada", number)
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(send, args=("ben",))
    assert len(str(failed.value).splitlines()) == 1 + 5 + 1
    assert str(failed.value).endswith("and 2 more")


def test_what_was_not_to_be_enqueued_is_shown(send: Send) -> None:
    assert_not_enqueued(send)
    handle = send.enqueue("ada")
    assert_not_enqueued(send, args=("ben",))
    with pytest.raises(
        AssertionError, match=f"expected no job of send with args=.*found 1; there is:\n  job {handle.id}"
    ):
        assert_not_enqueued(send, args=("ada",))


def test_a_misspelt_expectation_is_refused(send: Send) -> None:
    with pytest.raises(InvalidOption, match="a job has no arg; expect args, kwargs"):
        assert_enqueued(send, arg=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="is no task of a PgQueue"):
        assert_enqueued(print)  # type: ignore[arg-type]


def test_an_open_transaction_sees_what_it_has_enqueued(emptied: str) -> None:
    queue = PgQueue("")

    @queue.task
    def send() -> None: ...

    with in_database(queue, emptied), psycopg.connect(emptied) as connection:
        send.using(connection=connection).enqueue()
        assert_enqueued(send, connection=connection, count=1)
        assert_not_enqueued(send)
        with pytest.raises(AssertionError):
            assert_not_enqueued(send, connection=connection)
        connection.rollback()


async def test_an_open_transaction_of_an_awaitable_connection_does_so_too(emptied: str) -> None:
    queue = PgQueue("")

    @queue.task
    async def send() -> None: ...

    with in_database(queue, emptied):
        async with await psycopg.AsyncConnection.connect(emptied) as connection:
            await send.using(connection=connection).aenqueue()
            await aassert_enqueued(send, connection=connection, count=1)
            await aassert_not_enqueued(send)
            with pytest.raises(AssertionError):
                await aassert_enqueued(send)
            with pytest.raises(AssertionError):
                await aassert_not_enqueued(send, connection=connection)
            await connection.rollback()


def test_delays_are_the_same_on_a_clock_in_every_place(clock: Clock, send: Send) -> None:
    clock.travel(MINUTE)
    send.using(delay=HOUR).enqueue("ada")
    (job,) = assert_enqueued(send, delay=HOUR, run_at=NOON + MINUTE + HOUR)
    assert job.run_at == NOON + MINUTE + HOUR

"""A process that is forked within a take is a copy: it holds no jobs, and leaves its parent's connections alone."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from looking import ask

from pgqueue import PgQueue
from pgqueue.errors import JobError


def states(queue: PgQueue) -> list[tuple[Any, ...]]:
    return ask(queue, "select status::text, attempts from pgqueue.jobs order by id")


def in_child(leave: Callable[[], None]) -> Callable[[], int]:
    """``fork()``: in the parent the child's exit code; in the child it leaves the block of the take, or raises."""

    def fork() -> int:
        if (child := os.fork()) == 0:
            leave()
            return -1
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return fork


def go_on() -> None: ...


def end() -> None:
    raise SystemExit


def fail() -> None:
    raise ValueError


ways = pytest.mark.parametrize("leave", [go_on, end, fail])


@ways
def test_a_child_that_leaves_the_block_settles_nothing(queue: PgQueue, leave: Callable[[], None]) -> None:
    @queue.task(name="note")
    def note(number: int) -> None: ...

    queue.enqueue_many(note.call(number) for number in range(2))
    fork, me = in_child(leave), os.getpid()
    try:
        with queue.take(2, timeout=0) as jobs:
            if fork() == 0:
                assert states(queue) == [("running", 1)] * 2
                jobs[0].complete()
    finally:
        if os.getpid() != me:
            os._exit(0)
    assert states(queue) == []
    assert ask(queue, "select count(*) from pgqueue.job_history") == [(2,)]
    assert ask(queue, "select count(*) from pgqueue.workers") == [(0,)]


@ways
def test_so_does_one_of_an_awaited_take(queue: PgQueue, leave: Callable[[], None]) -> None:
    @queue.task(name="note")
    def note(number: int) -> None: ...

    queue.enqueue_many(note.call(number) for number in range(2))
    fork, me = in_child(leave), os.getpid()

    async def take() -> None:
        try:
            async with queue.atake(2, timeout=0) as jobs:
                if fork() == 0:
                    assert states(queue) == [("running", 1)] * 2
                    await jobs[0].acomplete()
        finally:
            if os.getpid() != me:
                os._exit(0)

    asyncio.run(take())
    assert states(queue) == []
    assert ask(queue, "select count(*) from pgqueue.job_history") == [(2,)]


def test_a_child_that_settles_a_job_is_told_who_holds_it(queue: PgQueue) -> None:
    @queue.task(name="note")
    def note(number: int) -> None: ...

    note.enqueue(1)
    with queue.take(timeout=0) as jobs:
        if (child := os.fork()) == 0:
            code = 1
            try:
                jobs[0].complete()
            except JobError as error:
                code = 0 if "settle them there" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert states(queue) == [("running", 1)]
    assert states(queue) == []

"""Middleware runs around each attempt, in the worker and in drains; a call by hand is the function itself."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from running import Running
from tenacity import stop_after_attempt, wait_fixed, wait_random
from worker.helping import ended

from pgqueue import Context, JobState, Middleware, PgQueue, Retry
from pgqueue.errors import InvalidOption


class Noting(Middleware):
    """Notes when an attempt begins and ends, and what became of it."""

    def __init__(self, name: str, noted: list[str]) -> None:
        self.name = name
        self.noted = noted

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:
        self.noted.append(f"{self.name} in {ctx.job.task}")
        try:
            return call()
        finally:
            self.noted.append(f"{self.name} out")

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:
        self.noted.append(f"{self.name} in {ctx.job.task}")
        try:
            return await call()
        finally:
            self.noted.append(f"{self.name} out")


async def test_the_first_middleware_is_the_outermost_around_functions_of_both_kinds(
    dsn: str, running: Running
) -> None:
    noted: list[str] = []
    queue = PgQueue(dsn, middleware=[Noting("outer", noted), Noting("inner", noted)])

    @queue.task(name="plain", max_attempts=1)
    def plain(ctx: Context, number: int) -> int:
        noted.append(f"plain {number} {ctx.attempt}")
        return number

    @queue.task(name="waits", max_attempts=1)
    async def waits(number: int) -> None:
        noted.append(f"waits {number}")
        raise ValueError

    jobs = [plain.enqueue(1), waits.enqueue(2)]
    async with running(queue, concurrency=1):
        found = await ended(queue, *jobs)
    around = ["outer in {0}", "inner in {0}", "{0} {1}", "inner out", "outer out"]
    assert noted == [
        *(line.format("plain", "1 1") for line in around),
        *(line.format("waits", "2") for line in around),
    ]
    assert [job.result for job in found] == [1, None]
    assert [job.state for job in found] == [JobState.SUCCEEDED, JobState.DEAD]
    queue.close()


async def test_middleware_can_change_the_value_and_raise_in_the_tasks_place(
    dsn: str, running: Running
) -> None:
    class Doubling(Middleware):
        def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ARG002 - as it is called
            return 2 * call()

        async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002 - as it is called
            raise PermissionError("not today")

    queue = PgQueue(dsn, middleware=[Doubling()])

    @queue.task
    def number() -> int:
        return 21

    @queue.task(max_attempts=1)
    async def never() -> None:
        raise AssertionError("the middleware did not call it")

    jobs = [number.enqueue(), never.enqueue()]
    async with running(queue):
        first, second = await ended(queue, *jobs)
    assert first.result == 42
    assert second.errors[-1].type == "PermissionError"
    queue.close()


async def test_an_error_is_judged_once_so_middleware_knows_what_the_worker_records(
    dsn: str, running: Running
) -> None:
    said: list[bool] = []

    class Telling(Middleware):
        async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await call()
            except LookupError as error:
                said.append(ctx.is_final(error))
                raise

    judged: list[int] = []

    class Counting(wait_random):
        def __call__(self, retry_state: Any) -> float:
            judged.append(retry_state.attempt_number)
            return 0.0

    queue = PgQueue(dsn, middleware=[Telling()])

    @queue.task(retry=Retry(wait=Counting(), stop=stop_after_attempt(2)))
    async def fails() -> None:
        raise LookupError

    job = fails.enqueue()
    async with running(queue):
        (found,) = await ended(queue, job)
    assert found.state is JobState.DEAD
    assert said == [False, True]
    assert judged == [1]
    queue.close()


def test_middleware_of_one_kind_leaves_functions_of_the_other_kind_alone() -> None:
    class Plain(Middleware):
        def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ARG002 - as it is called
            return call()

    queue = PgQueue("postgresql://nowhere", middleware=[Plain()])

    @queue.task
    async def waits() -> None: ...

    @queue.task
    def plain() -> None: ...

    assert waits.around is None
    assert plain.around is not None


@pytest.mark.parametrize(
    ("given", "words"),
    [(Middleware, "Middleware is a class; give an object"), (print, "is no pgqueue.Middleware")],
    ids=["class", "function"],
)
def test_what_is_no_middleware_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        PgQueue("postgresql://nowhere", middleware=[given])


def test_a_task_without_middleware_is_called_directly() -> None:
    queue = PgQueue("postgresql://nowhere")

    @queue.task(retry=Retry(wait=wait_fixed(1)))
    def plain() -> None: ...

    assert plain.around is None


FORKS = """
import os
from pgqueue import Middleware
from pgqueue.app.middleware import wrap_in_middleware

class Noting(Middleware):
    def around(self, ctx, call):
        try:
            return call()
        finally:
            print("left", flush=True)

def fork():
    child = os.fork()
    if not child:
        raise LookupError
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(wrap_in_middleware(fork, [Noting()], is_async=False)(None, (), {}))
"""


def test_a_child_that_a_task_forks_leaves_no_middleware() -> None:
    """What it closes on its way out, such as connections, is the worker's."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    assert done.stdout.split() == ["left", "1"]
    assert "LookupError" in done.stderr

"""What a framework puts around a task's function: workers call it so, and nobody else does."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from running import Running
from worker.helping import ended

from pgqueue import Context, PgQueue


class Surrounding(PgQueue):
    """A queue that notes when a task's function is entered and left."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.noted: list[str] = []

    def surround(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awork(*args: Any, **kwargs: Any) -> Any:
                self.noted.append("in")
                try:
                    return await function(*args, **kwargs)
                finally:
                    self.noted.append("out")

            return awork

        @functools.wraps(function)
        def work(*args: Any, **kwargs: Any) -> Any:
            self.noted.append("in")
            try:
                return function(*args, **kwargs)
            finally:
                self.noted.append("out")

        return work


async def test_a_worker_calls_the_function_in_its_surroundings(dsn: str, running: Running) -> None:
    queue = Surrounding(dsn)

    @queue.task(max_attempts=1)
    def plain(ctx: Context, number: int) -> int:
        queue.noted.append(f"plain {number} {ctx.attempt}")
        return number

    @queue.task(max_attempts=1)
    async def waits(number: int) -> None:
        queue.noted.append(f"async {number}")
        raise ValueError

    jobs = [plain.enqueue(1), waits.enqueue(2)]
    async with running(queue, concurrency=1):
        found = await ended(queue, *jobs)
    assert queue.noted == ["in", "plain 1 1", "out", "in", "async 2", "out"]
    assert [job.result for job in found] == [1, None]
    queue.close()


def test_a_call_by_hand_is_the_function_itself(dsn: str) -> None:
    queue = Surrounding(dsn)

    @queue.task
    def double(number: int) -> int:
        return 2 * number

    assert double(2) == 4
    assert queue.noted == []

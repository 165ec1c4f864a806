"""Which parameters are filled in with the context, and which of its methods a task of each kind may call.

A task that would do nothing, or without what it asks for, is refused with a sentence that names the right way.
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Optional

import pytest
from running import Running
from worker.helping import ended

from pgqueue import Batch, Context, JobState, PgQueue
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.testing import drain, in_memory


@dataclass
class Item:
    """Of a batch."""

    number: int


class Richer(Context):
    """A context as no worker makes it."""


def given(annotation: Any, default: Any = inspect.Parameter.empty) -> Callable[..., Any]:
    """A function that returns the job's id, by a parameter with this annotation."""

    def function(ctx: Any) -> int:
        return int(ctx.job.id)

    function.__annotations__["ctx"] = annotation
    if default is not inspect.Parameter.empty:
        function.__defaults__ = (default,)
    return function


FILLED_IN = [
    Context, Context | None, Optional[Context], Annotated[Context, "the job's"],  # noqa: UP045 - as people write it
    Annotated[Context | None, "the job's"], Annotated[Context, "the job's"] | None, "Context", "Context | None",
    "Optional[Context]",
]  # fmt: skip


@pytest.mark.parametrize("annotation", FILLED_IN, ids=str)
@pytest.mark.parametrize("default", [inspect.Parameter.empty, None], ids=["required", "optional"])
def test_a_context_is_filled_in_by_whatever_annotation_means_it(annotation: Any, default: Any) -> None:
    queue = PgQueue("")
    with in_memory(queue):
        task = queue.task(name="shows")(given(annotation, default))
        assert not task.signature.encode((), {}).strip(b"{}")
        job = task.enqueue()
        drain(queue)
        assert job.result(timeout=0) == job.id


@pytest.mark.parametrize("annotation", [Context | None, Annotated[Context, 1], "Context | None"], ids=str)
def test_a_limit_by_the_context_is_refused_whatever_annotation_means_it(annotation: Any) -> None:
    with pytest.raises(InvalidOption, match="'ctx' of task shows is filled in by the worker"):
        PgQueue("").task(name="shows", fair_by="ctx")(given(annotation))


@pytest.mark.parametrize(
    "annotation",
    [Richer, Richer | None, Context | int, list[Context], Annotated[Richer, 1], dict[str, Context | None]],
    ids=str,
)
def test_a_context_that_no_worker_can_fill_in_is_refused_at_the_decorator(annotation: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"task shows: parameter 'ctx' .* annotate the parameter Context"
    ):
        PgQueue("").task(name="shows")(given(annotation))


def test_one_whose_annotation_is_text_is_refused_when_it_is_read() -> None:
    task = PgQueue("").task(name="shows")(given("Richer"))
    with pytest.raises(ConfigurationError, match="annotate the parameter Context"):
        task.enqueue()


def pairs() -> list[tuple[str, str]]:
    """Each method of a context that blocks, and its awaited twin."""
    names = [name for name in dir(Context) if not name.startswith("_")]
    return [(name, f"a{name}") for name in names if f"a{name}" in names]


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "callback": ("paid",), "checkpoint": (1,), "last_checkpoint": (), "pause": ("night", 60), "step": ("charge", list),
    "wait_for": ("paid",),
}  # fmt: skip


def test_the_pairs_are_known() -> None:
    assert [name for name, _ in pairs()] == sorted(ARGUMENTS)


@pytest.mark.parametrize(("name", "twin"), pairs())
async def test_a_method_that_blocks_is_refused_in_an_async_task_and_its_twin_in_a_plain_one(
    queue: PgQueue, running: Running, name: str, twin: str
) -> None:
    @queue.task(max_attempts=1)
    def plain(ctx: Context) -> None:
        getattr(ctx, twin)(*ARGUMENTS[name])

    @queue.task(max_attempts=1)
    async def awaited(ctx: Context) -> None:
        getattr(ctx, name)(*ARGUMENTS[name])

    async with running(queue, concurrency=1):
        blocking, awaiting = await ended(queue, awaited.enqueue(), plain.enqueue())
    for job, wrong, right in (
        (blocking, name, f"await ctx.{twin}(...)"),
        (awaiting, twin, f"ctx.{name}(...)"),
    ):
        assert (job.state, job.errors[-1].type) == (JobState.DEAD, "pgqueue.errors.InvalidOption")
        message = job.errors[-1].message
        assert message.startswith(f"ctx.{wrong}(")
        assert message.endswith(f"; write {right}")


async def test_a_transaction_that_blocks_is_refused_in_an_async_task(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(max_attempts=1)
    async def alone(ctx: Context) -> None:
        with ctx.transaction():
            pass

    @queue.batch_task(Item, size=1, wait=0, max_attempts=1)
    async def together(batch: Batch[Item]) -> None:
        with batch.transaction():
            pass

    async with running(queue):
        jobs = await ended(queue, alone.enqueue(), together.enqueue(1))
    assert {job.errors[-1].message for job in jobs} == {
        "`with` a transaction() blocks, and an async def task runs in an event loop; write `async with`"
    }


async def test_a_thread_of_an_async_task_may_block_and_a_coroutine_of_a_plain_task_may_await(
    queue: PgQueue, running: Running
) -> None:
    async def notes(ctx: Context) -> Any:
        await ctx.acheckpoint(1)
        return await ctx.alast_checkpoint()

    @queue.task
    def plain(ctx: Context) -> Any:
        return notes(ctx)

    def commit(ctx: Context) -> None:
        with ctx.transaction():
            pass

    @queue.task
    async def commits(ctx: Context) -> None:
        await asyncio.to_thread(commit, ctx)

    @queue.task
    async def awaited(ctx: Context) -> Any:
        await asyncio.to_thread(ctx.checkpoint, 2)
        return await asyncio.to_thread(ctx.last_checkpoint)

    async with running(queue):
        jobs = await ended(queue, plain.enqueue(), awaited.enqueue(), commits.enqueue())
    assert [(job.state, job.result) for job in jobs] == [
        (JobState.SUCCEEDED, value) for value in (1, 2, None)
    ]


async def test_a_coroutine_that_an_async_task_returns_is_a_failure_for_its_body_never_ran(
    queue: PgQueue, running: Running
) -> None:
    ran: list[int] = []

    async def charge() -> None:
        ran.append(1)

    @queue.task(max_attempts=1)
    async def forgets() -> Any:
        return charge()

    @queue.task(max_attempts=1)
    def returns() -> Any:
        return forgets.function()

    async with running(queue):
        jobs = await ended(queue, forgets.enqueue(), returns.enqueue())
    assert [job.state for job in jobs] == [JobState.DEAD, JobState.DEAD]
    assert {job.errors[-1].message for job in jobs} == {
        "the task returned a coroutine, whose body never runs; let the task itself await it"
    }
    assert not ran

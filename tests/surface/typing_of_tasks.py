"""What a type checker makes of tasks. Checked by mypy, never run.

Every ignored line is wrong on purpose: should it stop being an error, mypy reports an unused ignore.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

from pgqueue import Batch, BatchJob, Call, Context, JobHandle, PgQueue, Task

queue = PgQueue()


@queue.task
def plain(order_id: int, note: str = "") -> str:
    return f"{order_id} {note}"


@queue.task
async def awaited(order_id: int, *, note: str) -> float:
    return float(f"{order_id}{note}")


@queue.task
def with_context(ctx: Context, order_id: int) -> bool:
    return ctx.attempt == order_id


@queue.task
def with_context_or_none(ctx: Context | None, order_id: int) -> bool:
    return ctx is None or ctx.attempt == order_id


@queue.task(queue="mail", timeout=30)
async def with_options(ctx: Context, order_id: int) -> list[int]:
    return [ctx.attempt, order_id]


@queue.task(name="nothing", aliases=("none", "void"))
def nothing() -> None: ...


@queue.task(aliases=(1,))  # type: ignore[arg-type]
def numbered() -> None: ...


@dataclass
class Document:
    number: int
    tenant: str = "one"


@queue.batch_task(Document, size=10, by=("tenant",))
def index(jobs: Batch[Document]) -> None:
    for job in jobs:
        assert_type(job.args.number, int)
        print(job.args.nubmer)  # type: ignore[attr-defined]  # noqa: T201
        job.fail("no")  # type: ignore[arg-type]
    with jobs.transaction() as connection:
        connection.execute("select 1")


@queue.batch_task(Document, aliases=["sum"])
async def counted(jobs: Batch[Document]) -> list[int]:
    assert_type(jobs[0], BatchJob[Document])
    return [job.args.number for job in jobs]


@queue.batch_task(Document)  # type: ignore[arg-type]
def of_another_item(jobs: Batch[int]) -> None: ...


@queue.batch_task(Document)  # type: ignore[arg-type]
def without_a_list(jobs: Batch[Document]) -> int:
    return len(jobs)


def enqueue_for_batches() -> None:
    assert_type(index.enqueue(1), JobHandle[Any])
    assert_type(counted.enqueue(number=1, tenant="two"), JobHandle[int])
    index.enqueue("1")  # type: ignore[arg-type]
    index.enqueue(1, 2)  # type: ignore[arg-type]
    index.enqueue(1, nubmer=2)  # type: ignore[call-arg]
    queue.batch_task(Document, siez=2)  # type: ignore[call-arg]


@queue.task
def with_context_last(order_id: int, ctx: Context | None = None) -> bool:
    return ctx is None or ctx.attempt == order_id


@queue.schedule("0 3 * * *")
@queue.task(queue="mail")
def nightly(order_id: int = 1) -> str:
    return f"{order_id}"


@queue.schedule("0 4 * * *")
async def later(ctx: Context) -> int:
    return ctx.attempt


async def called_directly(ctx: Context) -> None:
    assert_type(plain(1), str)
    assert_type(plain(1, note="soon"), str)
    assert_type(await awaited(1, note="soon"), float)
    assert_type(with_context(ctx, 1), bool)
    assert_type(await with_options(ctx, order_id=1), list[int])
    assert_type(with_context_or_none(None, 1), bool)
    assert_type(with_context_or_none(ctx, 1), bool)
    assert_type(with_context_last(1), bool)
    assert_type(plain.using(priority=5)(1), str)
    assert_type(nightly(), str)
    assert_type(await later(ctx), int)
    assert_type(list(map(plain, [1, 2])), list[str])
    assert_type(await asyncio.create_task(awaited(1, note="soon")), float)

    plain("x", 3, 4)  # type: ignore[call-arg,arg-type]
    plain()  # type: ignore[call-arg]
    await awaited(1, "soon")  # type: ignore[call-arg]
    with_context(1)  # type: ignore[call-arg,arg-type]
    await with_options(1)  # type: ignore[call-arg,arg-type]
    plain.using(priority=5)("1")  # type: ignore[arg-type]
    nightly("1")  # type: ignore[arg-type]
    number: int = plain(1)  # type: ignore[assignment]
    assert number


def batches_called_directly(jobs: Batch[Document]) -> None:
    assert_type(index(jobs), None)
    index(1)  # type: ignore[arg-type]


async def counted_directly(jobs: Batch[Document]) -> None:
    assert_type(await counted(jobs), list[int])


def named_by_two_types(task: Task[[int], str]) -> None:
    assert_type(task.enqueue(1), JobHandle[str])
    task(1, 2)  # not checked: of these types, the direct call's are unknown


def enqueue() -> None:
    assert_type(plain.enqueue(1), JobHandle[str])
    assert_type(plain.enqueue(1, note="soon"), JobHandle[str])
    assert_type(awaited.enqueue(1, note="soon"), JobHandle[float])
    assert_type(with_context.enqueue(1), JobHandle[bool])
    assert_type(with_options.enqueue(order_id=1), JobHandle[list[int]])
    assert_type(nothing.enqueue(), JobHandle[None])

    plain.enqueue("1")  # type: ignore[arg-type]
    plain.enqueue()  # type: ignore[call-arg]
    plain.enqueue(1, "soon", 3)  # type: ignore[call-arg]
    plain.enqueue(1, nota="soon")  # type: ignore[call-arg]
    awaited.enqueue(1, "soon")  # type: ignore[call-arg]
    awaited.enqueue(1, note=2)  # type: ignore[arg-type]
    with_context.enqueue("1")  # type: ignore[arg-type]
    with_options.enqueue(1, 2)  # type: ignore[call-arg]
    nothing.enqueue(1)  # type: ignore[call-arg]


async def aenqueue(ctx: Context) -> None:
    assert_type(await plain.aenqueue(1), JobHandle[str])
    assert_type(await awaited.aenqueue(1, note="soon"), JobHandle[float])
    assert_type(await with_options.aenqueue(1), JobHandle[list[int]])

    await plain.aenqueue("1")  # type: ignore[arg-type]
    await awaited.aenqueue(1)  # type: ignore[call-arg]
    assert_type(await with_context_or_none.aenqueue(1), JobHandle[bool])
    await with_context.aenqueue(ctx, 1)  # type: ignore[call-arg,arg-type]
    await with_options.aenqueue("1")  # type: ignore[arg-type]


def using() -> None:
    assert_type(plain.using(priority=1).enqueue(1), JobHandle[str])
    assert_type(awaited.using(queue="mail").enqueue(1, note="soon"), JobHandle[float])

    plain.using(priority="1")  # type: ignore[arg-type]
    plain.using(priorty=1)  # type: ignore[call-arg]
    plain.using(5)  # type: ignore[call-arg]
    plain.using(priority=1).enqueue("1")  # type: ignore[arg-type]
    with_context.using(queue="mail").enqueue()  # type: ignore[call-arg]


def call() -> None:
    assert_type(plain.call(1), Call[str])
    assert_type(with_options.using(priority=1).call(1), Call[list[int]])
    assert_type(queue.enqueue_many(plain.call(n) for n in range(3)), list[JobHandle[str]])
    assert_type(queue.enqueue_many([awaited.call(1, note="soon")]), list[JobHandle[float]])

    plain.call("1")  # type: ignore[arg-type]
    awaited.call(1)  # type: ignore[call-arg]
    queue.enqueue_many(plain.call(n) for n in "abc")  # type: ignore[arg-type]
    queue.enqueue_many([plain])  # type: ignore[arg-type]
    queue.enqueue_many([1])  # type: ignore[arg-type]


def results() -> None:
    assert_type(plain.enqueue(1).result(), str)
    assert_type(awaited.enqueue(1, note="soon").result(timeout=5), float)
    assert_type(with_context.enqueue(1).result(), bool)
    assert_type([handle.result() for handle in queue.enqueue_many([with_options.call(1)])], list[list[int]])

    assert_type(queue.enqueue(plain, 1), JobHandle[str])
    queue.enqueue(plain, "1")  # type: ignore[arg-type]
    queue.enqueue(plain.using(delay=5), 1)
    plain.delay(1)  # type: ignore[attr-defined]

    wrong: int = plain.enqueue(1).result()  # type: ignore[assignment]
    assert wrong


async def awaited_results() -> None:
    assert_type(await plain.enqueue(1).aresult(), str)
    assert_type(await (await awaited.aenqueue(1, note="soon")).aresult(timeout=5), float)
    assert_type(await queue.aenqueue_many([with_context.call(1)]), list[JobHandle[bool]])
    await queue.aenqueue_many([plain.call("1")])  # type: ignore[arg-type]


def options() -> None:
    @queue.task(priorty=1)  # type: ignore[call-overload,untyped-decorator]
    def misspelt() -> None: ...

    @queue.task(retry=3)
    def thrice() -> None: ...

    @queue.task(retry="3")  # type: ignore[call-overload,untyped-decorator]
    def no_policy() -> None: ...

    queue.task(5)  # type: ignore[call-overload]


@queue.remote
async def square(number: int) -> int:
    return number * number


@queue.remote(queue="slow", timeout=30)
def described(ctx: Context, number: int, *, note: str = "") -> str:
    return f"{ctx.attempt} {number} {note}"


async def calls() -> None:
    assert_type(await square(2), int)
    assert_type(await described(2, note="x"), str)
    assert_type(await queue.remote(plain)(1), str)
    assert_type(await queue.remote(awaited.using(priority=5))(1, note="soon"), float)
    assert_type(square.task.enqueue(2), JobHandle[int])

    await square("2")  # type: ignore[arg-type]
    await described()  # type: ignore[call-arg]
    await described(1, nota="x")  # type: ignore[call-arg]
    queue.remote(priorty=1)  # type: ignore[call-overload]

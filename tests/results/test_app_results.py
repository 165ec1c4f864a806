"""What a task returned, as its enqueuer gets it: in the annotated type, or with the reason why not."""

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pydantic
import pytest
from looking import ask
from running import Running
from tenacity import stop_after_attempt, wait_none

from pgqueue import Context, JobHandle, PgQueue, Retry
from pgqueue.errors import JobError, JobNotFound, PayloadNotDecodable, PgQueueError, ResultNotKept
from pgqueue.values.jobs.job import EnqueueAnswer


@dataclass
class Line:
    name: str
    price: Decimal


class Bill(pydantic.BaseModel):
    number: UUID
    at: datetime


NUMBER, AT = UUID(int=7), datetime(2026, 11, 22, 6, 30, tzinfo=UTC)


async def returned(running: Running, queue: PgQueue, *jobs: JobHandle[Any]) -> list[Any]:
    """Run jobs, and return their results, or what was raised in place of them."""
    async with running(queue):
        for job in jobs:
            while not (await queue.ajob(job.id)).state.ended:
                await queue.insight.acounts()
    found: list[Any] = []
    for job in jobs:
        try:
            found.append(job.result(timeout=0))
        except PgQueueError as error:
            found.append(error)
    return found


async def test_a_result_has_the_annotated_type(queue: PgQueue, running: Running) -> None:
    @queue.task
    def line() -> Line:
        return Line("tea", Decimal("1.10"))

    @queue.task
    async def bill() -> Bill:
        return Bill(number=NUMBER, at=AT)

    @queue.task
    async def many() -> dict[int, set[UUID]]:
        return {3: {NUMBER}}

    @queue.task
    def handed_out() -> Awaitable[datetime]:
        async def later() -> datetime:
            return AT

        return later()

    @queue.task
    def perhaps() -> "Line | None":
        return None

    jobs = [one.enqueue() for one in (line, bill, many, handed_out, perhaps)]
    expected = [Line("tea", Decimal("1.10")), Bill(number=NUMBER, at=AT), {3: {NUMBER}}, AT, None]
    assert await returned(running, queue, *jobs) == expected
    assert [await job.aresult() for job in jobs] == expected
    assert [type(job.result()) for job in jobs] == [type(one) for one in expected]
    assert queue.result(jobs[0].id) == queue.job(jobs[0].id).result == {"name": "tea", "price": "1.10"}
    await queue.aclose()


async def test_a_handle_gives_no_result_of_the_job_that_got_the_id_after_a_failover(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(name="price")
    def price() -> int:
        return 1

    @queue.task(name="weight")
    def weight() -> int:
        return 2

    lost = price.enqueue()
    ask(queue, "delete from pgqueue.jobs")  # what a standby that is promoted had not received
    ask(queue, "select setval('pgqueue.jobs_id_seq', %s, false)", lost.id)
    other = weight.enqueue()
    found, known = await returned(running, queue, lost, other)
    assert (lost.id, known) == (other.id, 2)
    assert isinstance(found, JobNotFound)
    assert str(found) == (
        f"job {lost.id} of price is lost: its id is now that of a job of weight, as after a failover to a standby that lacked "
        "the last commits"
    )
    with pytest.raises(JobNotFound, match="of price is lost"):
        await lost.aresult()
    await queue.aclose()


async def test_a_result_without_an_annotation_is_plain_json(queue: PgQueue, running: Running) -> None:
    @queue.task
    async def line():  # type: ignore[no-untyped-def]  # noqa: ANN202 - that is the point
        return Line("tea", Decimal("1.10"))

    @queue.task
    async def says_nothing() -> Any:
        return Line("tea", Decimal("1.10"))

    plain = {"name": "tea", "price": "1.10"}
    assert await returned(running, queue, line.enqueue(), says_nothing.enqueue()) == [plain, plain]


async def test_a_result_that_does_not_fit_its_annotation_says_so(queue: PgQueue, running: Running) -> None:
    @queue.task
    async def wrong() -> list[int]:
        return ["tea"]  # type: ignore[list-item]  # that is the point

    class Odd:
        """A type that JSON says nothing of."""

    @queue.task
    async def odd() -> Odd:
        return {"a": 1}  # type: ignore[return-value]  # the wrong type is the case

    jobs = [wrong.enqueue(), odd.enqueue()]
    errors = await returned(running, queue, *jobs)
    assert [type(error) for error in errors] == [PayloadNotDecodable] * 2
    assert str(errors[0]).startswith(
        f"the result of job {jobs[0].id} of {wrong.name} does not fit its annotation: "
    )
    assert "Expected `int`, got `str`" in str(errors[0])
    assert [queue.result(job.id) for job in jobs] == [["tea"], {"a": 1}]


async def test_a_result_that_no_python_reads_is_an_error_that_says_so(
    queue: PgQueue, running: Running
) -> None:
    @queue.task
    async def unsaid():  # type: ignore[no-untyped-def]  # noqa: ANN202 - one that returns anything
        return 1

    job = unsaid.enqueue()
    assert await returned(running, queue, job) == [1]
    ask(queue, "update pgqueue.job_history set result = %s", r'"\ud800"')  # half of a character
    with pytest.raises(PayloadNotDecodable, match="does not fit its annotation"):
        job.result()
    await queue.aclose()


async def test_a_handle_of_a_task_that_is_not_known_here_gives_plain_json(
    dsn: str, queue: PgQueue, running: Running
) -> None:
    @queue.task
    async def line() -> Line:
        return Line("tea", Decimal(1))

    job = line.enqueue()
    await returned(running, queue, job)
    elsewhere = PgQueue(dsn)
    handle: JobHandle[Any] = JobHandle(EnqueueAnswer(job.id), elsewhere)
    assert handle.result() == {"name": "tea", "price": "1"}
    elsewhere.close()


async def test_a_result_that_cannot_be_kept_is_an_error_for_the_one_who_asks(
    dsn: str, running: Running
) -> None:
    queue = PgQueue(dsn, max_payload=1_000)

    @queue.task
    async def large() -> str:
        return "x" * 2_000

    @queue.task
    async def formless() -> object:
        return object()

    @queue.task
    async def not_a_number() -> float:
        return float("nan")

    @queue.task
    def infinite() -> list[float]:
        return [1.0, float("inf")]

    @queue.task
    async def holds_nul() -> str:
        return "a\0b"

    jobs = [one.enqueue() for one in (large, formless, not_a_number, infinite, holds_nul)]
    errors = await returned(running, queue, *jobs)
    assert [type(error) for error in errors] == [ResultNotKept] * 5
    for job, error, words in zip(
        jobs,
        errors,
        ["2,002 bytes as JSON, over the limit of 1,000", "no JSON form", "NaN", "NaN", "NUL"],
        strict=True,
    ):
        said = str(error)
        assert said.startswith(f"job {job.id} of ")
        assert "has succeeded, and its result was not kept: " in said
        assert words in said
        with pytest.raises(ResultNotKept):
            queue.result(job.id)
        with pytest.raises(ResultNotKept):
            await job.aresult()
        recorded = queue.job(job.id)
        assert (recorded.state, recorded.result, len(recorded.errors)) == ("succeeded", None, 1)
        assert recorded.errors[0].at is not None
    await queue.aclose()
    queue.close()


async def test_a_result_that_the_database_refuses_is_an_error_for_the_one_who_asks(
    queue: PgQueue, running: Running
) -> None:
    ask(queue, "alter table pgqueue.job_history add check (result::text <> '\"refuse me\"')")

    @queue.task
    async def give(value: str) -> str:
        return value

    errors = await returned(running, queue, give.enqueue("refuse me"), give.enqueue("keep me"))
    assert isinstance(errors[0], ResultNotKept)
    assert "its result was not kept: the database refused it: " in str(errors[0])
    assert errors[1] == "keep me"


async def test_a_job_that_failed_before_keeps_those_errors_beside_the_reason(
    queue: PgQueue, running: Running
) -> None:
    @queue.task
    async def second_time(ctx: Context) -> float:
        if ctx.attempt == 1:
            raise ValueError("first")
        return float("nan")

    job = second_time.using(max_attempts=3).enqueue()
    async with running(queue):
        while queue.job(job.id).attempts == 0 or not queue.job(job.id).errors:
            await queue.insight.acounts()
        queue.control.run_now(job.id)
        with pytest.raises(ResultNotKept):
            await job.aresult(timeout=20)
    assert [error.type for error in queue.job(job.id).errors] == [
        "ValueError",
        "pgqueue.errors.ResultNotKept",
    ]


async def test_an_earlier_attempt_that_failed_for_want_of_another_jobs_result_costs_no_result(
    queue: PgQueue, running: Running
) -> None:
    """A task may ask for another job's result; that error is of the same type as the note on a result of its own."""

    @queue.task(retry=Retry(wait=wait_none(), stop=stop_after_attempt(2)))
    async def asks_another(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ResultNotKept("that of another job")
        return ctx.attempt

    assert await returned(running, queue, asks_another.enqueue()) == [2]


@pytest.mark.parametrize("history", [timedelta(days=7), timedelta(0)])
async def test_a_job_that_its_own_transaction_completed_has_no_result_and_says_so_where_one_is_announced(
    dsn: str, running: Running, history: timedelta
) -> None:
    queue = PgQueue(dsn, history=history)

    @queue.task
    def nothing(ctx: Context) -> None:
        with ctx.transaction():
            pass

    @queue.task
    async def unsaid(ctx: Context):  # type: ignore[no-untyped-def]  # noqa: ANN202 - that is the point
        async with ctx.transaction():
            pass
        return "too late"

    @queue.task
    def announced(ctx: Context) -> str:
        with ctx.transaction():
            pass
        return "too late"

    @queue.task
    async def perhaps(ctx: Context) -> str | None:
        async with ctx.transaction():
            pass
        return "too late"

    jobs = [one.enqueue() for one in (nothing, unsaid, announced, perhaps)]
    if not history:
        async with running(queue):
            while queue.insight.counts()[0]:
                await queue.insight.acounts()
        for job in jobs:
            with pytest.raises(
                JobNotFound, match=r"this queue keeps no history \(history=0\), so it may have succeeded"
            ):
                job.result(timeout=1)
        queue.close()
        return
    found = await returned(running, queue, *jobs)
    assert found[:2] == [None, None]
    assert [type(error) for error in found[2:]] == [ResultNotKept] * 2
    assert all(
        "ctx.transaction() completed the job before its task returned" in str(error) for error in found[2:]
    )
    assert [queue.job(job.id).result for job in jobs] == [None] * 4
    queue.close()


async def test_a_job_that_ends_while_it_is_waited_for_and_leaves_no_history_says_so(
    dsn: str, running: Running
) -> None:
    queue = PgQueue(dsn, history=timedelta(0))

    @queue.task
    async def give() -> str:
        return "given"

    job = give.using(delay=timedelta(seconds=0.5)).enqueue()
    async with running(queue):
        with pytest.raises(ResultNotKept, match=r"has ended, .* its queue keeps no history"):
            await job.aresult(timeout=20)
    queue.close()


async def test_a_value_whose_json_is_null_is_none(queue: PgQueue, running: Running) -> None:
    class Empty(pydantic.RootModel[None]):
        """A model that is written as null."""

    @queue.task
    async def give() -> Empty:
        return Empty(None)

    assert await returned(running, queue, give.enqueue()) == [None]


def test_a_result_that_is_not_kept_is_an_error_of_the_job() -> None:
    assert issubclass(ResultNotKept, JobError)

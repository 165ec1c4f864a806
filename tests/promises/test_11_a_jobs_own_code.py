"""Promise 11, what a task's own code does: to the session of its transaction, to the program's logging, to itself."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import psycopg
import pytest
from looking import ask, until
from psycopg.rows import dict_row
from running import Running
from tenacity import retry_if_exception
from worker.helping import ended

from pgqueue import Batch, Context, JobState, PgQueue
from pgqueue.values.jobs.retry import Retry

SESSION = (
    "set search_path = tenant_a",
    "set default_transaction_read_only = on",
    "create temp table notes (text text)",
)

EVERY_CONNECTION = 12
"""More jobs than the pool has connections, which it gives in turn."""


@pytest.fixture
def notes(queue: PgQueue) -> PgQueue:
    """A queue in whose database two schemas have a table of one name."""
    ask(queue, "create table public.notes (text text)")
    ask(queue, "create schema tenant_a")
    ask(queue, "create table tenant_a.notes (text text)")
    return queue


def _write(connection: psycopg.Connection[object]) -> None:
    connection.execute("insert into notes values ('x')")


@pytest.mark.parametrize("statement", SESSION)
async def test_what_a_task_sets_for_its_session_ends_with_its_transaction(
    statement: str, notes: PgQueue, running: Running
) -> None:
    @notes.task(max_attempts=1)
    def sets(ctx: Context) -> None:
        with ctx.transaction() as connection:
            connection.row_factory = dict_row
            connection.execute(statement.encode())

    @notes.task(max_attempts=1)
    def writes(ctx: Context) -> None:
        with ctx.transaction() as connection:
            _write(connection)
            assert connection.execute("select 1").fetchone() == (1,)

    async with running(notes, concurrency=1):
        await ended(notes, sets.enqueue())
        jobs = await ended(notes, *[writes.enqueue() for _ in range(EVERY_CONNECTION)])

    assert {(job.state, job.errors) for job in jobs} == {(JobState.SUCCEEDED, ())}
    assert ask(notes, "select count(*) from public.notes") == [(EVERY_CONNECTION,)]


@pytest.mark.parametrize("statement", SESSION)
async def test_what_an_async_task_sets_for_its_session_ends_with_its_transaction(
    statement: str, notes: PgQueue, running: Running
) -> None:
    @notes.task(max_attempts=1)
    async def sets(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(statement.encode())

    @notes.task(max_attempts=1)
    async def writes(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into notes values ('x')")

    async with running(notes, concurrency=1):
        await ended(notes, sets.enqueue())
        jobs = await ended(notes, *[writes.enqueue() for _ in range(EVERY_CONNECTION)])

    assert {(job.state, job.errors) for job in jobs} == {(JobState.SUCCEEDED, ())}
    assert ask(notes, "select count(*) from public.notes") == [(EVERY_CONNECTION,)]


async def test_a_connection_that_a_task_has_closed_or_left_in_a_transaction_is_not_used_again(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(max_attempts=1)
    def closes(ctx: Context) -> None:
        with ctx.transaction() as connection:
            pass
        connection.close()

    @queue.task(max_attempts=1)
    def other(ctx: Context) -> None:
        with ctx.transaction():
            pass

    async with running(queue, concurrency=1):
        await ended(queue, closes.enqueue())
        jobs = await ended(queue, *[other.enqueue() for _ in range(EVERY_CONNECTION)])
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}


@pytest.fixture
def broken_log() -> Iterator[None]:
    """A program whose logging raises for records without a field of its own."""

    def needs_a_field(record: logging.LogRecord) -> bool:
        return bool(record.request_id)  # type: ignore[attr-defined]  # that is the mistake

    loggers = [logging.getLogger(name) for name in ("pgqueue.jobs", "pgqueue.worker")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addFilter(needs_a_field)
        logger.setLevel(logging.INFO)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeFilter(needs_a_field)
        logger.setLevel(level)


@pytest.mark.usefixtures("broken_log")
async def test_a_filter_of_the_programs_logging_that_raises_ends_no_worker(
    queue: PgQueue, running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    @queue.task
    def succeeds() -> None: ...

    @queue.task(max_attempts=1)
    def fails() -> None:
        raise ValueError("no")

    async with running(queue, concurrency=1):
        jobs = await ended(queue, succeeds.enqueue(), fails.enqueue(), succeeds.enqueue())

    assert [job.state for job in jobs] == [JobState.SUCCEEDED, JobState.DEAD, JobState.SUCCEEDED]
    assert "request_id" in capsys.readouterr().err


class Odd(ValueError):
    """An error that Python cannot format, cannot ask for its class, and cannot ask for its cause."""

    def __getattribute__(self, name: str) -> object:
        raise OSError(name)


@dataclass
class Item:
    number: int


def _odd() -> Odd:
    return Odd("no")


def _odd_column() -> SyntaxError:
    place: Any = ("query", 1, 2.5, "a b c")
    return SyntaxError("no", place)


@pytest.mark.parametrize("make", [_odd, _odd_column], ids=["attributes", "syntax error"])
@pytest.mark.parametrize("kind", ["plain", "async", "batch"])
@pytest.mark.parametrize("last", [True, False], ids=["last", "again"])
async def test_an_error_that_cannot_be_formatted_is_recorded_and_takes_no_slot(
    queue: PgQueue,
    running: Running,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[], Exception],
    kind: str,
    *,
    last: bool,
) -> None:
    def fail() -> None:
        raise make()

    async def afail() -> None:
        raise make()

    def fail_all(items: Batch[Item]) -> None:
        items[0].fail(make())

    if kind == "batch":
        job = queue.batch_task(Item, name="fail", max_attempts=1 if last else 2)(fail_all).enqueue(1)
    else:
        job = queue.task(name="fail", max_attempts=1 if last else 2)(
            fail if kind == "plain" else afail
        ).enqueue()

    @queue.task
    def other() -> None: ...

    async with running(queue, concurrency=1):
        await until(lambda: queue.job(job.id).errors)
        await ended(queue, other.enqueue())
    found = queue.job(job.id)
    assert found.state is (JobState.DEAD if last else JobState.SCHEDULED)
    assert found.errors[0].type.endswith(type(make()).__name__)
    assert "no" in found.errors[0].message
    assert kind == "batch" or "fail" in (found.errors[0].traceback or "")
    assert "Traceback" not in capsys.readouterr().err  # it is logged, too


@pytest.mark.parametrize("make", [_odd, _odd_column], ids=["attributes", "syntax error"])
def test_an_error_that_cannot_be_formatted_fails_the_jobs_of_a_take(
    queue: PgQueue, make: Callable[[], Exception]
) -> None:
    @queue.task(max_attempts=1)
    def job() -> None: ...

    one = job.enqueue()
    with pytest.raises(Exception) as caught, queue.take(1):  # noqa: PT011 - it cannot be asked what it is
        raise make()
    assert type(caught.value) is type(make())
    assert queue.job(one.id).state is JobState.DEAD


async def test_a_generator_that_a_task_returns_is_a_failure_for_its_body_never_ran(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(retry=Retry(), max_attempts=1)
    def returns() -> object:
        return (number for number in range(3))

    @queue.task(max_attempts=1)
    async def areturns() -> object:
        async def numbers() -> object:
            yield 1

        return numbers()

    async with running(queue, concurrency=1):
        jobs = await ended(queue, returns.enqueue(), areturns.enqueue())

    assert [job.state for job in jobs] == [JobState.DEAD, JobState.DEAD]
    assert "whose body never runs" in jobs[0].errors[0].message


class Picky:
    """Read and written as pydantic's models are; a value of this type refuses both, with the error of this name."""

    def __init__(self, error: str) -> None:
        self.error = error

    @classmethod
    def model_validate_json(cls, data: bytes) -> Self:
        value = json.loads(data)
        return cls(value) if value.startswith("later ") else _leave(value)

    def model_dump(self, *, mode: str, by_alias: bool, round_trip: bool) -> str:
        assert (by_alias, round_trip) == (True, True), "it can be read by its aliases alone"
        return _leave(self.error.removeprefix("later ")) if mode == "json" else ""


def _leave(name: str) -> Any:
    raise {"CancelledError": asyncio.CancelledError, "SystemExit": SystemExit}[name](name)


@pytest.mark.parametrize("error", ["CancelledError", "SystemExit"])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_policy_a_validator_or_a_result_that_ends_its_thread_or_task_ends_no_slot(
    queue: PgQueue, running: Running, error: str, *, plain: bool
) -> None:
    def fail() -> None:
        raise LookupError

    async def afail() -> None:
        raise LookupError

    def give(given: Picky) -> Picky:
        return given

    async def agive(given: Picky) -> Picky:
        return given

    policy = Retry(retry=retry_if_exception(lambda _: _leave(error)))
    failing = queue.task(name="fail", retry=policy)(fail if plain else afail)
    queue.task(name="give")(give if plain else agive)

    async with running(queue, concurrency=1):
        judged = failing.enqueue()
        unread, unkept = (
            ask(queue, "select pgqueue.enqueue('give', jsonb_build_object('given', %s::text))", given)[0][0]
            for given in (error, f"later {error}")
        )
        await until(lambda: not ask(queue, "select id from pgqueue.jobs where status <> 'scheduled'"))
    assert queue.job(judged.id).state is JobState.SCHEDULED
    assert queue.job(unread).reason == "undecodable"
    assert queue.job(unkept).state is JobState.SUCCEEDED

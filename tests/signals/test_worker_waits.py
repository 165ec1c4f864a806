"""Jobs that wait in the middle: with a worker, through restarts, for signals, times and callbacks."""

import asyncio
import logging
from base64 import b64decode, b64encode
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, until
from running import Running
from worker.helping import ended

from pgqueue import Codec, Context, JobHandle, JobPart, JobState, PgQueue, WaitTimedOut
from pgqueue.errors import InvalidCallback, InvalidOption, PayloadNotEncodable, PayloadTooLarge, SignalRefused

SECOND = timedelta(seconds=1)


def _is_blocked(job: JobHandle[Any]) -> bool:
    return job.status() is JobState.BLOCKED


@pytest.fixture
def asking(queue: PgQueue) -> Any:
    """A plain task, and one of asyncio, that wait for the signal ``approved`` and return its payload."""

    @queue.task(name="plain", max_attempts=1)
    def plain(ctx: Context, timeout: float | None = None, key: str | None = None) -> Any:
        return ctx.wait_for("approved", timeout=timeout, key=key)

    @queue.task(name="awaiting", max_attempts=1)
    async def awaiting(ctx: Context, timeout: float | None = None, key: str | None = None) -> Any:  # noqa: ASYNC109 - an argument of the job
        return await ctx.await_for("approved", timeout=timeout, key=key)

    return {"plain": plain, "awaiting": awaiting}


@pytest.mark.parametrize("kind", ["plain", "awaiting"])
async def test_a_job_waits_through_a_restart_of_its_worker_and_gets_the_payload(
    queue: PgQueue, running: Running, asking: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = asking[kind].enqueue()
    with caplog.at_level(logging.INFO, "pgqueue"):
        async with running(queue):
            await until(lambda: _is_blocked(job))
            assert queue.job(job.id).attempts == 0
    assert queue.signal(job, "approved", {"by": "ann", "at": [1, None]})
    assert not queue.signal(job.id, "approved", "again")
    async with running(queue):
        (record,) = await ended(queue, job)
    assert (record.state, record.result) == (JobState.SUCCEEDED, {"by": "ann", "at": [1, None]})
    assert (record.attempts, record.errors) == (1, ())
    (logged,) = [one for one in caplog.records if one.message == "job waits"]
    assert vars(logged)["waits_for"] == "signal 'approved'"


async def test_a_signal_wakes_an_idle_worker(queue: PgQueue, running: Running, asking: Any) -> None:
    async with running(queue, poll=3600):
        job = asking["plain"].enqueue()
        await until(lambda: _is_blocked(job))
        queue.signal(job, "approved")
        assert await job.aresult(timeout=10) is None


@pytest.mark.parametrize("kind", ["plain", "awaiting"])
async def test_a_wait_that_times_out_ends_the_job_with_a_clear_error(
    queue: PgQueue, running: Running, asking: Any, kind: str
) -> None:
    async with running(queue):
        (record,) = await ended(queue, asking[kind].enqueue(timeout=0.2))
    assert (record.state, record.reason) == (JobState.DEAD, "exhausted")
    error = record.errors[-1]
    assert error.type == "pgqueue.errors.WaitTimedOut"
    assert error.message == f"job {record.id}: signal 'approved' did not come before its deadline"


async def test_a_task_may_go_another_way_after_the_deadline(queue: PgQueue, running: Running) -> None:
    seen: list[int] = []

    @queue.task(name="escalate", max_attempts=3)
    def escalate(ctx: Context) -> str:
        try:
            ctx.wait_for("approved", timeout=0.1)
        except WaitTimedOut:
            seen.append(ctx.attempt)
            if ctx.attempt == 1:
                raise
            return "escalated"
        return "approved"

    @queue.task(name="undecided")
    def undecided(ctx: Context) -> None:
        ctx.wait_for("approved", timeout=0.1)

    async with running(queue):
        (record,) = await ended(queue, undecided.enqueue())
        assert (record.state, record.reason, record.attempts) == (
            JobState.DEAD,
            "deadline",
            1,
        )  # it cannot get better
        (record,) = await ended(queue, escalate.enqueue())
        assert record.reason == "deadline"
        assert seen == [1]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_task_that_catches_every_exception_around_its_wait_waits_all_the_same(
    queue: PgQueue, running: Running, *, plain: bool
) -> None:
    def careless(ctx: Context) -> Any:
        try:
            return ctx.wait_for("approved")
        except Exception:  # noqa: BLE001 - the carelessness itself
            return "not approved"

    async def acareless(ctx: Context) -> Any:
        with suppress(Exception):
            return (await asyncio.gather(ctx.await_for("approved"), asyncio.sleep(0)))[0]

    job = queue.task(name="careless")(careless if plain else acareless).enqueue()
    async with running(queue):
        await until(lambda: _is_blocked(job))
        assert queue.signal(job, "approved", "yes")
        assert await job.aresult(timeout=10) == "yes"


async def test_a_pause_ends_the_attempt_and_is_over_in_later_ones(queue: PgQueue, running: Running) -> None:
    steps: list[str] = []

    @queue.task(name="cooling")
    async def cooling(ctx: Context) -> None:
        steps.append("begin")
        await ctx.apause("first", 0.1)
        await asyncio.to_thread(ctx.pause, "second", 0.1)
        steps.append("end")

    async with running(queue):
        (record,) = await ended(queue, cooling.enqueue())
    assert (record.state, record.attempts) == (JobState.SUCCEEDED, 1)
    assert steps == ["begin", "begin", "begin", "end"]


async def test_jobs_that_wait_take_no_slot(queue: PgQueue, running: Running, asking: Any) -> None:
    waiting = [asking["plain"].enqueue(key="k") for _ in range(5)]
    async with running(queue, concurrency=1):
        await until(lambda: all(map(_is_blocked, waiting)))
        last = asking["awaiting"].enqueue(key="early")
        queue.signal("early", "approved", "early")
        assert await last.aresult(timeout=10) == "early"
        assert await queue.asignal("k", "approved", 7)
        assert [await job.aresult(timeout=10) for job in waiting] == [7] * 5


async def test_a_job_that_waits_says_why_and_until_when(
    queue: PgQueue, running: Running, asking: Any
) -> None:
    jobs = [asking["plain"].enqueue(), asking["plain"].enqueue(timeout=86_400 * 3, key="order:42")]
    async with running(queue):
        await until(lambda: all(map(_is_blocked, jobs)))
    assert queue.why(jobs[0].id).sentence == "it is blocked, and waits for signal 'approved'"
    sentence, _, until_when = queue.why(jobs[1].id).sentence.partition(" at most, until ")
    assert sentence == "it is blocked, and waits for signal 'approved' to key 'order:42', for 3 days"
    ends = datetime.strptime(until_when, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    assert timedelta(days=2, hours=23) < ends - datetime.now(UTC) <= timedelta(days=3)


async def test_a_signal_joins_the_transaction_of_its_sender(
    queue: PgQueue, running: Running, asking: Any, dsn: str
) -> None:
    job = asking["plain"].enqueue()
    async with running(queue):
        await until(lambda: _is_blocked(job))
        with psycopg.connect(dsn) as connection:
            assert queue.signal(job, "approved", 1, connection=connection)
            connection.rollback()
            assert _is_blocked(job)
            assert queue.signal(job, "approved", 2, connection=connection)
        assert await job.aresult(timeout=10) == 2


async def test_a_job_signals_another_within_its_own_transaction(
    queue: PgQueue, running: Running, asking: Any
) -> None:
    job = asking["plain"].enqueue()

    @queue.task(name="approve")
    def approve(ctx: Context) -> None:
        with ctx.transaction():
            queue.signal(job, "approved", "by a job")

    async with running(queue):
        await until(lambda: _is_blocked(job))
        approve.enqueue()
        assert await job.aresult(timeout=10) == "by a job"


async def test_a_wait_inside_a_transaction_rolls_it_back(queue: PgQueue, running: Running, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table public.seen (attempt int)")

    @queue.task(name="careful")
    def careful(ctx: Context) -> None:
        with ctx.transaction() as own:
            own.execute("insert into public.seen values (1)")
            ctx.wait_for("approved")

    job = careful.enqueue()
    async with running(queue):
        await until(lambda: _is_blocked(job))
        assert ask(queue, "select count(*) from public.seen") == [(0,)]
        queue.signal(job, "approved")
        await ended(queue, job)
    assert ask(queue, "select count(*) from public.seen") == [(1,)]


# -- callbacks


async def test_a_callback_is_resolved_once_by_its_token(queue: PgQueue, running: Running) -> None:
    tokens: list[str] = []

    @queue.task(name="pay")
    async def pay(ctx: Context) -> Any:
        tokens.append(await ctx.acallback("payment", timeout=3600))
        tokens.append(await asyncio.to_thread(ctx.callback, "payment", timeout=60))
        return await ctx.await_for("payment")

    job = pay.enqueue()
    async with running(queue):
        await until(lambda: _is_blocked(job))
        assert ask(queue, "select until is not null from pgqueue.waits") == [(True,)]
        assert queue.resolve(tokens[0], {"paid": True})
        assert not await queue.aresolve(tokens[0], {"paid": False})
        assert await job.aresult(timeout=10) == {"paid": True}
    assert len(tokens) == 4
    assert len(set(tokens)) == 1
    ask(queue, "delete from pgqueue.signals")
    with pytest.raises(SignalRefused, match="job has ended"):
        queue.resolve(tokens[0])


async def test_a_token_that_is_forged_cut_off_or_of_another_schema_does_nothing(
    queue: PgQueue, running: Running
) -> None:
    tokens: list[str] = []

    @queue.task(name="pay")
    def pay(ctx: Context) -> None:
        tokens.append(ctx.callback("payment"))
        ctx.wait_for("payment")

    job = pay.enqueue()
    async with running(queue):
        await until(lambda: _is_blocked(job))
    (token,) = tokens
    body, mac = token.split(".")
    other = body[:-2] + ("AA" if body[-2:] != "AA" else "BB")
    hostile = [
        "", ".", body, f"{body}.", f"{body}.{mac[:-1]}", f"{body}.{mac[:-1]}{'A' if mac[-1] != 'A' else 'B'}",
        f"{other}.{mac}", f"{mac}.{body}", token + "=", token.upper(), f" {token}", "x" * 100_000, "a\0b", "\ud800", "é.é",
    ]  # fmt: skip
    for bad in hostile:
        with pytest.raises(InvalidCallback):
            queue.resolve(bad)
    ask(queue, "select pgqueue.renew_callback_key()")  # as another database or schema has another key
    with pytest.raises(InvalidCallback):
        queue.resolve(token)
    assert _is_blocked(job)


async def test_a_token_expires_with_its_timeout(queue: PgQueue, running: Running) -> None:
    tokens: list[str] = []

    @queue.task(name="pay", max_attempts=1)
    def pay(ctx: Context) -> None:
        tokens.append(ctx.callback("payment", timeout=3600))
        ctx.wait_for("payment")

    job = pay.enqueue()
    async with running(queue):
        await until(lambda: _is_blocked(job))
    with psycopg.connect(queue.database.dsn, autocommit=True) as connection:
        later = "select pgqueue.resolve_callback(%s, null, now() + interval '1 hour 2 seconds')"
        assert connection.execute(later, tokens).fetchone() == ("expired",)
        assert connection.execute("select pgqueue.resolve(%s, '{}')", tokens).fetchone() == (True,)
        assert connection.execute(later, tokens).fetchone() == ("repeated",)


# -- bad input


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a,b", "x" * 201, "a\0", "\ud800", None, 7])
def test_a_name_that_cannot_be_one_is_refused(queue: PgQueue, name: Any) -> None:
    with pytest.raises(InvalidOption, match="name="):
        queue.signal("key", name)


@pytest.mark.parametrize("target", ["", "k" * 297, "a\0", "\ud800", None, 0, -1, 1 << 63, True, 1.5, b"k"])
def test_a_target_that_cannot_be_one_is_refused(queue: PgQueue, target: Any) -> None:
    with pytest.raises(InvalidOption):
        queue.signal(target, "approved")


def test_a_payload_that_cannot_be_stored_is_refused(queue: PgQueue) -> None:
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    for payload in ("a\0b", "\ud800", object(), deep, float("nan")):
        with pytest.raises(PayloadNotEncodable):
            queue.signal("key", "approved", payload)
    with pytest.raises(PayloadTooLarge, match="over the limit of 1,048,576"):
        queue.signal("key", "approved", "x" * 10_000_000)
    assert ask(queue, "select count(*) from pgqueue.signals") == [(0,)]


@pytest.mark.parametrize(
    "key", ["a:b", "x" * 296, "'; drop table jobs --", "é\n\t", "job:7", "%", '"{}\\', "🐘" * 296]
)
async def test_any_text_is_a_key(queue: PgQueue, running: Running, asking: Any, key: str) -> None:
    job = asking["plain"].enqueue(key=key, timeout=3600)
    async with running(queue):
        await until(lambda: _is_blocked(job))
        assert queue.signal(key, "approved", key)
        assert await job.aresult(timeout=10) == key


# -- SQL


def test_the_sql_function_sends_with_the_same_rules(queue: PgQueue, dsn: str) -> None:
    @queue.task(name="plain")
    def plain() -> None: ...

    job = plain.enqueue()
    with psycopg.connect(dsn, autocommit=True) as connection:
        sending = "select pgqueue.signal(%s, %s, %s::jsonb)"
        assert connection.execute(sending, [f"job:{job.id}", "approved", "[1]"]).fetchone() == (True,)
        assert connection.execute(sending, [f"job:{job.id}", "approved", "[2]"]).fetchone() == (False,)
        assert connection.execute("select pgqueue.signal('key:a:b', 'approved')").fetchone() == (True,)
        for bad in (
            "job:0",
            "job:x",
            "job:1234567890123456789",
            "jobs:7",
            "7",
            "",
            "key:",
            "flow:-1",
            None,
            "key:" + "x" * 297,
        ):
            with pytest.raises(
                psycopg.errors.CheckViolation, match=r"target => .*use job:ID, flow:ID, or key:TEXT"
            ):
                connection.execute(sending, [bad, "approved", None])
        for bad in ("", "a b", "a:b", "x" * 201):
            with pytest.raises(psycopg.errors.CheckViolation, match="name => "):
                connection.execute(sending, ["key:k", bad, None])
        with pytest.raises(psycopg.errors.CheckViolation, match="at most 200 levels"):
            connection.execute(sending, ["key:k", "deep", "[" * 201 + "]" * 201])
        with pytest.raises(psycopg.errors.CheckViolation, match="over the limit of 1048576"):
            connection.execute(sending, ["key:k", "long", f'"{"x" * 2_000_000}"'])
        with pytest.raises(
            psycopg.errors.NoDataFound, match="job:77777 has ended, or never was: signal 'approved'"
        ):
            connection.execute(sending, ["job:77777", "approved", None])
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="no token"):
            connection.execute("select pgqueue.resolve('x.y')")


# -- with the other features


async def test_a_take_that_is_left_by_a_wait_returns_its_own_jobs(
    queue: PgQueue, running: Running, asking: Any
) -> None:
    theirs = asking["plain"].using(queue="taken").enqueue()

    @queue.task(name="taker")
    def taker(ctx: Context) -> None:
        with queue.take(queues=["taken"], timeout=0):
            ctx.wait_for("approved")

    job = taker.enqueue()
    async with running(queue, queues=["default"]):
        await until(lambda: _is_blocked(job))
    record = queue.job(theirs.id)
    assert (record.state, record.attempts, record.errors) == (JobState.READY, 0, ())


async def test_payloads_are_encoded_by_the_codec_and_those_from_sql_are_read_in_clear(
    dsn: str, running: Running
) -> None:
    queue = PgQueue(dsn, codec=Hiding())

    @queue.task(name="both")
    async def both(ctx: Context) -> list[Any]:
        return [await ctx.await_for("one"), await ctx.await_for("two")]

    job = both.enqueue()
    queue.signal(job, "one", {"secret": 42})
    ask(queue, "select pgqueue.signal(%s, 'two', '[true]')", f"job:{job.id}")
    ((stored,),) = ask(queue, "select payload::text from pgqueue.signals where name = 'one'")
    assert "secret" not in stored
    async with running(queue):
        assert await job.aresult(timeout=10) == [{"secret": 42}, [True]]
    await queue.aclose()
    queue.close()


class Hiding(Codec):
    def encode(self, data: bytes, part: JobPart) -> str:
        return f"{part.kind}:{b64encode(data).decode()}"

    def decode(self, text: str, part: JobPart) -> bytes:
        kind, _, data = text.partition(":")
        assert kind == part.kind
        return b64decode(data)


async def test_a_worker_fires_schedules_while_signals_keep_coming(queue: PgQueue, running: Running) -> None:
    """What is settled at each poll does not keep the poll from what else is due."""

    @queue.schedule(every=SECOND)
    @queue.task(name="tick")
    def tick() -> None: ...

    number = 0
    async with running(queue, poll=0.05):
        while not queue.insight.search(task="tick").jobs:
            number += 1
            queue.signal(f"k{number}", "x")
            await asyncio.sleep(0)
    assert number


async def test_deadlines_are_found_within_about_a_second_by_an_idle_worker(
    queue: PgQueue, running: Running, asking: Any
) -> None:
    """The poll says when the next deadline is; without that the worker would look again after its sweep."""
    async with running(queue, poll=3600, sweep=3600):
        job = asking["awaiting"].enqueue(timeout=1.5)
        await until(lambda: _is_blocked(job), guard=30)
        await until(lambda: job.status().ended, guard=30)
    record = queue.job(job.id)
    assert (record.state, record.errors[-1].type) == (JobState.DEAD, "pgqueue.errors.WaitTimedOut")

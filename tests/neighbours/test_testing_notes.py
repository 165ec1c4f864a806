"""Conformance of steps, checkpoints and progress: in memory, on PostgreSQL, and in a test's own transaction."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from ciphers import Secret
from neighbours.places import HOUR, MINUTE, NOON, a_clock, a_database, every_place, one_database
from tenacity import wait_none

from pgqueue import Context, JobState, PgQueue, Progress, Retry, Superseded
from pgqueue.errors import (
    ConfigurationError,
    InvalidOption,
    PayloadNotDecodable,
    PayloadNotEncodable,
    PayloadTooLarge,
)
from pgqueue.testing import adrain, drain, dying, in_memory

queue, clock, emptied, database = every_place, a_clock, a_database, one_database
AT_ONCE = Retry(wait=wait_none())
HALF = "\ud800"
ODD_NAMES = ['it\'s "quoted"; drop table x', "page 3", "ü" * 200, "%(name)s", "\n", "{}", "\\", " "]


@dataclass
class Receipt:
    id: UUID
    paid_at: datetime
    lines: tuple[str, ...]


def later(queue: PgQueue) -> list[Any]:
    """Run everything until nothing is left, without errors; the attempts."""
    ran = drain(queue, raises=False)
    return [(one.attempt, one.outcome) for one in ran]


# Steps


def test_a_later_attempt_gets_the_recorded_result_of_a_step_and_does_not_run_it(queue: PgQueue) -> None:
    calls: list[int] = []
    seen: list[Receipt] = []

    def charge(order_id: int, *, currency: str) -> Receipt:
        calls.append(order_id)
        return Receipt(uuid4(), datetime(2031, 1, 1, tzinfo=NOON.tzinfo), (currency, "book"))

    @queue.task(retry=AT_ONCE)
    def bill(ctx: Context, order_id: int) -> None:
        seen.append(ctx.step("charge", charge, order_id, currency="EUR"))
        if ctx.attempt < 3:
            raise ConnectionError("no mail server")

    bill.enqueue(42)
    assert later(queue) == [(1, JobState.READY), (2, JobState.READY), (3, JobState.SUCCEEDED)]
    assert calls == [42]
    assert seen[0] == seen[1] == seen[2]
    assert isinstance(seen[0], Receipt)


def test_steps_belong_to_their_job(queue: PgQueue) -> None:
    calls: list[int] = []

    def charge(order_id: int) -> int:
        calls.append(order_id)
        return order_id

    @queue.task
    def bill(ctx: Context, order_id: int) -> int:
        return ctx.step("charge", charge, order_id)

    first, second = bill.enqueue(1), bill.enqueue(2)
    drain(queue)
    assert (first.result(timeout=0), second.result(timeout=0)) == (1, 2)
    assert calls == [1, 2]


@pytest.mark.parametrize(
    "value", [None, 0, "", [], {}, False, {"b": 1, "a": [1.5, None]}, "x" * 5_000, 2**63]
)
def test_a_step_returns_in_later_attempts_what_it_returned_in_the_first(queue: PgQueue, value: Any) -> None:
    got: list[Any] = []
    values = iter([value])

    @queue.task(retry=AT_ONCE)
    def again(ctx: Context) -> None:
        got.append(ctx.step("value", lambda: next(values)))
        if ctx.attempt == 1:
            raise ValueError

    again.enqueue()
    assert later(queue)[-1] == (2, JobState.SUCCEEDED)
    assert got == [value, value]
    assert [*map(repr, got)] == [repr(value)] * 2, "the order of keys is kept, too"


def test_a_step_that_raises_records_nothing_and_fails_its_attempt(queue: PgQueue) -> None:
    calls: list[int] = []

    def charge() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("declined")
        return "paid"

    @queue.task(retry=AT_ONCE)
    def bill(ctx: Context) -> str:
        return ctx.step("charge", charge)

    handle = bill.enqueue()
    assert later(queue) == [(1, JobState.READY), (2, JobState.SUCCEEDED)]
    assert handle.result(timeout=0) == "paid"
    assert [error.message for error in queue.job(handle.id).errors] == ["declined"]


def test_a_step_that_raised_can_be_tried_again_in_the_same_attempt(queue: PgQueue) -> None:
    outcomes = iter([ConnectionError("busy"), None])

    def charge() -> str:
        if error := next(outcomes):
            raise error
        return "paid"

    @queue.task
    def bill(ctx: Context) -> str:
        try:
            return ctx.step("charge", charge)
        except ConnectionError:
            return ctx.step("charge", charge)

    handle = bill.enqueue()
    drain(queue)
    assert handle.result(timeout=0) == "paid"


def test_two_steps_of_one_name_are_refused_before_the_second_runs(queue: PgQueue) -> None:
    calls: list[int] = []

    @queue.task
    def twice(ctx: Context) -> None:
        for page in (1, 2):
            ctx.step("page", calls.append, page)

    twice.enqueue()
    with pytest.raises(InvalidOption, match=r"step 'page' is run twice .* f\"page \{number\}\""):
        drain(queue)
    assert calls == [1]


@pytest.mark.parametrize("name", ["", "\0", HALF, "x" * 10_000, 7, None])
def test_a_name_that_cannot_be_stored_is_refused_before_the_step_runs(queue: PgQueue, name: Any) -> None:
    calls: list[int] = []

    @queue.task
    def named(ctx: Context) -> None:
        ctx.step(name, calls.append, 1)

    named.enqueue()
    with pytest.raises(InvalidOption, match=r"step"):
        drain(queue)
    assert calls == []


def test_any_other_text_is_a_name(queue: PgQueue) -> None:
    calls: list[str] = []

    @queue.task(retry=AT_ONCE)
    def named(ctx: Context) -> None:
        for name in ODD_NAMES:
            ctx.step(name, calls.append, name)
        if ctx.attempt == 1:
            raise ValueError

    named.enqueue()
    assert later(queue)[-1] == (2, JobState.SUCCEEDED)
    assert calls == ODD_NAMES


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (object(), PayloadNotEncodable, "has no JSON form"),
        ("\0", PayloadNotEncodable, "NUL"),
        (HALF, PayloadNotEncodable, "surrogate"),
        (float("nan"), PayloadNotEncodable, "NaN"),
        ((one for one in [1]), PayloadNotEncodable, "generator"),
        ("x" * 200, PayloadTooLarge, "202 bytes as JSON, over the limit of 100"),
    ],
    ids=["object", "nul", "half", "nan", "generator", "long"],
)
def test_a_result_that_cannot_be_recorded_is_an_error_of_its_step(
    queue: PgQueue, value: object, error: type[Exception], words: str
) -> None:
    queue.max_payload = 100

    @queue.task
    def odd(ctx: Context) -> None:
        ctx.step("look up", lambda: value)

    odd.enqueue()
    with pytest.raises(error, match=rf"the result of step 'look up' cannot be recorded: .*{words}"):
        drain(queue)


def test_a_result_that_could_not_be_read_back_is_an_error_of_its_step(queue: PgQueue) -> None:
    def count() -> int:
        return "three"  # type: ignore[return-value]  # the mistake

    @queue.task
    def odd(ctx: Context) -> None:
        ctx.step("count", count)

    odd.enqueue()
    with pytest.raises(
        PayloadNotEncodable, match=r"step 'count' .* could not be read back: Expected `int`, got `str`"
    ):
        drain(queue)


def test_a_function_whose_annotation_json_cannot_carry_is_not_called(queue: PgQueue) -> None:
    calls: list[int] = []

    class Client:
        pass

    def connect() -> Client:
        calls.append(1)
        return Client()

    @queue.task
    def odd(ctx: Context) -> None:
        ctx.step("connect", connect)

    odd.enqueue()
    with pytest.raises(
        ConfigurationError, match=r"step 'connect' was not run: .*Client cannot be read from JSON"
    ):
        drain(queue)
    assert calls == []


def test_a_recorded_result_that_no_longer_fits_its_function_is_an_error_of_its_step(queue: PgQueue) -> None:
    def words() -> str:
        return "three"

    def number() -> int:
        return 3

    @queue.task(retry=AT_ONCE)
    def changed(ctx: Context) -> None:
        ctx.step("count", words if ctx.attempt == 1 else number)
        raise ValueError

    changed.using(max_attempts=2).enqueue()
    errors = [one.error for one in drain(queue, raises=False)]
    assert isinstance(errors[1], PayloadNotDecodable)
    assert "step 'count': the stored result does not fit the function" in str(errors[1])


def test_an_async_function_in_a_plain_task_is_refused(queue: PgQueue) -> None:
    async def charge() -> int:
        return 1

    @queue.task
    def bill(ctx: Context) -> None:
        ctx.step("charge", charge)  # type: ignore[unused-coroutine]  # the mistake

    bill.enqueue()
    with pytest.raises(InvalidOption, match=r"await ctx\.astep"):
        drain(queue)


def test_an_awaited_step_in_a_plain_task_names_the_blocking_one(queue: PgQueue) -> None:
    @queue.task
    def bill(ctx: Context) -> None:
        ctx.astep("charge", lambda: 1)  # type: ignore[unused-coroutine]  # the mistake

    job = bill.enqueue()
    with pytest.raises(InvalidOption, match=r"ctx\.astep\('charge'\) .* write ctx\.step\(\.\.\.\)"):
        drain(queue)
    assert queue.job(job.id).state is not JobState.SUCCEEDED


def test_a_blocking_step_in_an_async_task_names_the_awaited_one(queue: PgQueue) -> None:
    calls: list[int] = []

    @queue.task
    async def bill(ctx: Context) -> None:
        ctx.step("charge", calls.append, 1)

    job = bill.enqueue()
    with pytest.raises(InvalidOption, match=r"ctx\.step\('charge'\) .* write await ctx\.astep\(\.\.\.\)"):
        drain(queue)
    assert queue.job(job.id).state is not JobState.SUCCEEDED
    assert calls == []


def test_a_step_finds_the_right_world_where_the_task_itself_does_not_say_it(queue: PgQueue) -> None:
    """A plain function may return a coroutine, and an async def task may call a thread."""

    async def awaited(ctx: Context) -> int:
        return await ctx.astep("number", lambda: 1)

    @queue.task(name="returns")
    def returns(ctx: Context) -> Any:
        return awaited(ctx)

    @queue.task(name="threads")
    async def threads(ctx: Context) -> int:
        return await asyncio.to_thread(ctx.step, "number", lambda: 2)

    jobs = [returns.enqueue(), threads.enqueue()]
    drain(queue)
    assert [job.result(timeout=0) for job in jobs] == [1, 2]


def test_what_is_no_function_is_refused(queue: PgQueue) -> None:
    @queue.task
    def bill(ctx: Context) -> None:
        ctx.step("charge", 42)  # type: ignore[arg-type]  # the mistake

    bill.enqueue()
    with pytest.raises(InvalidOption, match=r"step 'charge': 42 is no function"):
        drain(queue)


def test_an_attempt_whose_worker_died_leaves_its_steps_to_the_next(queue: PgQueue) -> None:
    calls: list[int] = []

    @queue.task
    def bill(ctx: Context) -> None:
        ctx.step("charge", calls.append, ctx.attempt)

    bill.enqueue()
    with dying(bill):
        drain(queue, now=NOON)
    drain(queue, now=NOON + HOUR)
    assert calls == [1]


def test_a_dead_job_that_is_retried_keeps_its_steps_and_its_checkpoint(queue: PgQueue) -> None:
    calls: list[int] = []
    found: list[Any] = []

    @queue.task(max_attempts=1)
    def bill(ctx: Context) -> None:
        found.append(ctx.last_checkpoint())
        ctx.step("charge", calls.append, 1)
        ctx.checkpoint({"page": 7})
        if len(found) == 1:
            raise ValueError("no mail server")

    handle = bill.enqueue()
    assert later(queue) == [(1, JobState.DEAD)]
    assert queue.retry(handle.id)
    assert later(queue) == [(1, JobState.SUCCEEDED)]
    assert calls == [1]
    assert found == [None, {"page": 7}]


def test_a_superseded_attempt_records_nothing_and_is_told_so(queue: PgQueue) -> None:
    @queue.task
    def bill(ctx: Context) -> int:
        if ctx.attempt == 1:
            ctx.progress(1)
            drain(queue, now=NOON + HOUR)
        return ctx.step(f"charge {ctx.attempt}", lambda: ctx.attempt)

    handle = bill.enqueue()
    with pytest.raises(Superseded, match=r"attempt 1 no longer holds it; step 'charge 1' was not recorded"):
        drain(queue, now=NOON)
    assert handle.result(timeout=0) == 2
    assert handle.progress() is None


# Checkpoints


def test_the_last_checkpoint_is_what_later_attempts_and_this_one_get(queue: PgQueue) -> None:
    found: list[Any] = []

    @queue.task(retry=AT_ONCE)
    def walk(ctx: Context) -> None:
        found.append(ctx.last_checkpoint())
        for page in range(2):
            ctx.checkpoint([ctx.attempt, page])
            found.append(ctx.last_checkpoint())
        if ctx.attempt == 1:
            raise ValueError

    walk.enqueue()
    assert later(queue)[-1] == (2, JobState.SUCCEEDED)
    assert found == [None, [1, 0], [1, 1], [1, 1], [2, 0], [2, 1]]


@pytest.mark.parametrize("value", [object(), "\0", HALF, float("inf"), "x" * 200])
def test_a_checkpoint_that_cannot_be_recorded_is_refused(queue: PgQueue, value: object) -> None:
    queue.max_payload = 100

    @queue.task
    def walk(ctx: Context) -> None:
        ctx.checkpoint(value)

    walk.enqueue()
    with pytest.raises((PayloadNotEncodable, PayloadTooLarge), match=r"^checkpoint cannot be recorded: "):
        drain(queue)


# Progress


def test_progress_is_the_last_report_and_is_there_when_the_job_has_ended(queue: PgQueue) -> None:
    @queue.task
    def count(ctx: Context) -> None:
        for done in range(1, 4):
            ctx.progress(done, 3, f"file {done}")

    handle = count.enqueue()
    assert handle.progress() is None
    drain(queue, now=NOON)
    progress = handle.progress()
    assert progress == queue.progress(handle.id) == Progress(3, 3, "file 3", NOON)
    assert progress.share == 1.0


def test_progress_needs_neither_a_total_nor_words(queue: PgQueue) -> None:
    @queue.task
    def count(ctx: Context) -> None:
        ctx.progress(0.5)

    handle = count.enqueue()
    drain(queue, now=NOON)
    progress = handle.progress()
    assert progress == Progress(0.5, None, None, NOON)
    assert progress.share is None


def test_the_next_attempt_reports_from_the_start(queue: PgQueue) -> None:
    @queue.task(retry=Retry(wait=lambda _: MINUTE.total_seconds()))
    def count(ctx: Context) -> None:
        ctx.progress(10 - ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError

    handle = count.enqueue()
    drain(queue, now=NOON, raises=False)
    assert handle.progress() == Progress(9, None, None, NOON)
    drain(queue, now=NOON + MINUTE)
    assert handle.progress() == Progress(8, None, None, NOON + MINUTE)


def test_a_job_that_was_never_enqueued_has_no_progress(queue: PgQueue) -> None:
    assert queue.progress(10**9) is None


@pytest.mark.parametrize(
    "given",
    [
        (-1,),
        (float("nan"),),
        (float("inf"),),
        ("1",),
        (True,),
        (None,),
        (10**5_000,),
        (1, -1),
        (1, "2"),
        (1, 2, 3),
    ],
    ids=lambda given: f"{given!s:.20}" if 10**5_000 not in given else "long",
)
def test_progress_that_makes_no_sense_is_refused(queue: PgQueue, given: Any) -> None:
    @queue.task
    def count(ctx: Context) -> None:
        ctx.progress(*given)

    count.enqueue()
    with pytest.raises(InvalidOption, match=r"^progress\("):
        drain(queue)


def test_words_that_cannot_be_stored_are_replaced_and_long_ones_cut(queue: PgQueue) -> None:
    said = f'it\'s "{HALF}" \0 {{}}\\' + "x" * 10_000

    @queue.task
    def count(ctx: Context) -> None:
        ctx.progress(1, message=said)

    handle = count.enqueue()
    drain(queue)
    progress = handle.progress()
    assert progress is not None
    assert progress.message == said.replace(HALF, "?").replace("\0", "␀")[:500]


# Codec


def test_a_codec_encodes_what_is_noted(queue: PgQueue) -> None:
    queue.codec = Secret("key")
    found: list[Any] = []

    @queue.task(retry=AT_ONCE)
    def bill(ctx: Context) -> None:
        found.append([ctx.step("charge", lambda: {"card": 4242}), ctx.last_checkpoint()])
        ctx.checkpoint({"card": 4343})
        ctx.progress(1, 2, "card 4444")
        if ctx.attempt == 1:
            raise ValueError

    handle = bill.enqueue()
    drain(queue, raises=False)
    assert found == [[{"card": 4242}, None], [{"card": 4242}, {"card": 4343}]]
    assert handle.progress().message == "card 4444"  # type: ignore[union-attr]  # there is one
    queue.codec = None
    assert handle.progress().message == "(encoded)"  # type: ignore[union-attr]  # there is one


def test_a_codec_that_fails_costs_a_progress_its_words_alone(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Secret):
        def encode(self, data: bytes, part: Any) -> str | bytes:
            if part.kind == "note":
                raise KeyError("vault")
            return super().encode(data, part)

    queue.codec = Failing("key")

    @queue.task
    def bill(ctx: Context, *, step: bool) -> None:
        ctx.progress(1, 2, "card 4444")
        if step:
            ctx.step("charge", lambda: 1)

    handle = bill.enqueue(step=False)
    drain(queue, now=NOON)
    assert handle.progress() == Progress(1, 2, None, NOON)
    assert "the codec failed to encode: KeyError: 'vault'" in caplog.text
    bill.enqueue(step=True)
    with pytest.raises(PayloadNotEncodable, match=r"the result of step 'charge' cannot be recorded: .*vault"):
        drain(queue)


# Awaited


async def test_an_async_task_awaits_its_steps_of_both_kinds_and_its_checkpoints() -> None:
    queue = PgQueue("")
    calls: list[str] = []

    async def charge(order_id: int) -> Receipt:
        calls.append(f"charge {order_id}")
        return Receipt(uuid4(), NOON, ())

    def token() -> str:
        calls.append("token")
        return "abc"

    @queue.task(retry=AT_ONCE)
    async def bill(ctx: Context, order_id: int) -> None:
        before = await ctx.alast_checkpoint()
        receipt = await ctx.astep("charge", charge, order_id)
        assert isinstance(receipt, Receipt)
        assert await ctx.astep("token", token) == "abc"
        await ctx.acheckpoint({"order": order_id})
        assert await ctx.alast_checkpoint() == {"order": order_id}
        ctx.progress(ctx.attempt)
        if before is None:
            raise ValueError

    with in_memory(queue):
        handle = await bill.aenqueue(7)
        assert [one.attempt for one in await adrain(queue, raises=False)] == [1, 2]
        progress = await handle.aprogress()
    assert progress is not None
    assert progress.done == 2
    assert calls == ["charge 7", "token"]

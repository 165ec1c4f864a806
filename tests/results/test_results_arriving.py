"""Results, steps, checkpoints and signals arrive as they were sent, or are refused: the types of ``payloads.arriving``."""

# mypy: disable-error-code="call-arg,arg-type"
# (it does not know pydantic's aliases and conversions)

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from payloads.arriving import ARRIVING, REFUSED, WORD, Animal, Dog, Login, Required
from running import Running

from pgqueue import Context, PgQueue
from pgqueue.errors import PayloadNotEncodable, PgQueueWarning, ResultNotKept
from pgqueue.values.payloads.arrival import is_same

LOST = [
    row for row in REFUSED if "would" in row[2] and "value[" not in row[2] and row[0] is not dict[str, Any]
]


def giving(value: object, kind: Any) -> Callable[[], Any]:
    def give() -> Any:
        return value

    give.__annotations__["return"] = kind
    return give


async def test_a_result_and_that_of_a_step_arrive_as_they_were_returned(
    queue: PgQueue, running: Running
) -> None:
    @queue.task
    def steps(ctx: Context) -> None:
        for place, (kind, value) in enumerate(ARRIVING):
            assert is_same(ctx.step(f"step {place}", giving(value, kind)), value), value

    tasks = [
        queue.task(name=f"give{place}")(giving(value, kind)) for place, (kind, value) in enumerate(ARRIVING)
    ]
    handles = [task.enqueue() for task in tasks]
    stepped = steps.enqueue()
    async with running(queue):
        for handle, (_, value) in zip(handles, ARRIVING, strict=True):
            assert is_same(await handle.aresult(timeout=20), value)
        await stepped.aresult(timeout=20)


async def test_a_result_of_which_a_part_would_be_lost_is_not_kept(queue: PgQueue, running: Running) -> None:
    rows = [(Animal, Dog(name="rex", breed="pug")), *((kind, value) for kind, value, _ in LOST)]
    rows += [(Any, Login(token=WORD)), (Any, [Login(token=WORD)])]
    handles = [
        queue.task(name=f"give{place}")(giving(value, kind)).enqueue()
        for place, (kind, value) in enumerate(rows)
    ]
    async with running(queue):
        for handle in handles:
            with pytest.raises(
                ResultNotKept, match=r"was not kept: `result.* would (not )?arrive"
            ) as refused:
                await handle.aresult(timeout=20)
            assert WORD not in str(refused.value)
    assert "`result.breed` is a str, and would not arrive" in queue.job(handles[0].id).errors[-1].message


async def test_a_step_of_which_a_part_would_be_lost_is_not_recorded(queue: PgQueue, running: Running) -> None:
    @queue.task(max_attempts=1)
    def task(ctx: Context) -> list[str]:
        said = []
        for place, (kind, value, _) in enumerate(LOST):
            with pytest.raises(PayloadNotEncodable, match=r"cannot be recorded: `result.* would") as refused:
                ctx.step(f"step {place}", giving(value, kind))
            said.append(str(refused.value))
        return said

    handle = task.enqueue()
    async with running(queue):
        assert len(await handle.aresult(timeout=20)) == len(LOST)


async def test_a_checkpoint_and_a_signal_are_plain_values_and_others_are_warned_of_or_refused(
    queue: PgQueue, running: Running
) -> None:
    @queue.task(max_attempts=1)
    def task(ctx: Context) -> object:
        with pytest.warns(PgQueueWarning, match="`checkpoint` is a datetime, .* arrives as a str"):
            ctx.checkpoint(datetime(2031, 5, 4, tzinfo=UTC))
        with pytest.raises(
            PayloadNotEncodable, match=r"checkpoint cannot be recorded: `checkpoint.token` is a SecretStr"
        ):
            ctx.checkpoint(Login(token=WORD))
        ctx.checkpoint({"a": [1, None]})
        return ctx.wait_for("paid")

    handle = task.enqueue()
    with pytest.raises(PayloadNotEncodable, match=r"`payload\[0\].token` is a SecretStr"):
        queue.signal(handle, "paid", [Login(token=WORD)])
    with pytest.warns(PgQueueWarning, match="`payload` is a Required, .* arrives as a dict"):
        queue.signal(handle, "paid", Required(userId=3))
    async with running(queue):
        assert await handle.aresult(timeout=20) == {"user_id": 3}

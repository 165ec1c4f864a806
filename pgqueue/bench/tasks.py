"""The tasks that the bench enqueues and runs, registered alike by those who enqueue and those who work."""

import asyncio
import threading
from datetime import timedelta
from typing import Any, NamedTuple

from pgqueue.app.context import Context
from pgqueue.app.pgqueue import PgQueue
from pgqueue.app.task import Task
from pgqueue.bench.contract import ContenderSettings, Meter
from pgqueue.errors import RetryLater

TIMEOUT = 60.0
"""Seconds; every job has a timeout, as jobs of an app have."""


class Tasks(NamedTuple):
    """One of each.

    Attributes:
        noop: does nothing, and counts. It takes a number, when it was sent (epoch seconds, or 0), and a payload.
        late: does nothing, and does not count.
        flaky: fails at its first attempt and is put back at once; does not count.
        hold: waits until all jobs there are room for have started.
    """

    noop: Task[..., None]
    late: Task[..., None]
    flaky: Task[..., None]
    hold: Task[..., None]


def register(queue: PgQueue, settings: ContenderSettings, meter: Meter, *, latency: bool = False) -> Tasks:
    """Register the tasks with a queue.

    Args:
        queue: whose tasks they are.
        settings: say whether the no-op is a plain function, and for how long it waits.
        meter: counts.
        latency: whether to measure how long jobs were under way.
    """

    async def late() -> None:
        meter.touch()

    async def flaky(ctx: Context) -> None:
        meter.touch()
        if ctx.attempt == 1:
            raise RetryLater(timedelta(0))

    return Tasks(
        queue.task(name="noop", timeout=TIMEOUT)(_noop(settings, meter, latency=latency)),
        queue.task(name="late", timeout=TIMEOUT)(late),
        queue.task(name="flaky", timeout=TIMEOUT)(flaky),
        queue.task(name="hold", timeout=TIMEOUT)(_hold(settings, meter)),
    )


def _noop(settings: ContenderSettings, meter: Meter, *, latency: bool) -> Any:  # noqa: ANN401 - a function of either colour
    one_at_a_time = threading.Lock()

    def sync_noop(number: int, sent: float, pad: str = "") -> None:  # noqa: ARG001 - payload
        with one_at_a_time:
            meter.hit(sent if latency else 0.0)

    async def noop(number: int, sent: float, pad: str = "") -> None:  # noqa: ARG001 - payload
        meter.hit(sent if latency else 0.0)

    async def waiting_noop(number: int, sent: float, pad: str = "") -> None:  # noqa: ARG001 - payload
        meter.hit(sent if latency else 0.0)
        await asyncio.sleep(settings.wait)

    if settings.sync:
        return sync_noop
    return waiting_noop if settings.wait else noop


def _hold(settings: ContenderSettings, meter: Meter) -> Any:  # noqa: ANN401 - a coroutine function or a plain one
    all_in = asyncio.Event()

    async def hold() -> None:
        meter.hit(0.0)
        if meter.count == settings.concurrency:
            meter.print_report()
            all_in.set()
        await all_in.wait()

    return hold

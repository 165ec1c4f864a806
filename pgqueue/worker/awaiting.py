"""Awaiting several coroutines: the first of them, one within a time, and the end of those that are cancelled."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


async def first_of(*work: "Coroutine[Any, Any, Any] | asyncio.Task[None]") -> None:
    """Wait until one has ended. The first given is cancelled then, and the others go on.

    Raises:
        BaseException: what one of those that have ended raised.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await cancel(tasks[0])
    for task in done:
        if not task.cancelled():
            task.result()


async def within(seconds: float, work: Coroutine[Any, Any, object]) -> None:
    """Await this for as many seconds; then it is cancelled."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


async def cancel(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel these, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

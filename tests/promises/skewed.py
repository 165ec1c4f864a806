"""A process whose clock is wrong: what it does, and how its clock is put wrong.

The clock is put wrong after the drivers are imported (they look into the real class) and before pgqueue is, so
that all code in it that asks Python for the time is misled: ``datetime.now``, ``utcnow`` and ``today``, ``time.time``
and ``time.time_ns``. The monotonic clock is left alone, for no clock skew touches it.
"""

import asyncio
import datetime as dt
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from programs import Program

TESTS = Path(__file__).parents[1]
DRIVERS = ("msgspec", "psycopg", "psycopg_pool")
START = """
import sys
import msgspec, psycopg, psycopg_pool
from promises import skewed
skewed.put_clock_wrong(float(sys.argv[1]))
from promises import asking
asking.main(sys.argv[2], sys.argv[3])
"""


@contextmanager
def process(skew: float, verb: str, dsn: str) -> Iterator[Program]:
    """A process that does ``verb`` with a clock ``skew`` seconds ahead; told to stop at the end of the block."""
    started = Program(["-W", "error", "-c", START, str(skew), verb, dsn], first=DRIVERS, cwd=TESTS)
    try:
        yield started
        started.send_signal(signal.SIGTERM)
        assert started.wait(timeout=30) == 0
    finally:
        started.kill()
        started.wait()


def put_clock_wrong(skew: float) -> None:
    """Mislead all code that asks this process for the time from now on."""
    ahead = dt.timedelta(seconds=skew)
    real, real_time, real_time_ns = dt.datetime, time.time, time.time_ns

    class LooksLike(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

    class Misled(real, metaclass=LooksLike):  # type: ignore[misc, valid-type]  # stands in for the real class
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return real(*args, **kwargs)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return real.now(tz) + ahead

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(dt.UTC).replace(tzinfo=None) + ahead

        @classmethod
        def today(cls) -> Any:
            return real.now() + ahead

    dt.datetime = Misled  # type: ignore[misc]  # the point of it
    time.time = lambda: real_time() + skew
    time.time_ns = lambda: real_time_ns() + int(skew * 1e9)


def run_until_told(work: Any, stop: Any) -> None:
    """Run a coroutine, and call ``stop`` in its loop when this process is told to stop."""

    async def main() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        await work

    asyncio.run(main())

"""One rule for lengths of time, wherever one is taken: a number is seconds, or it is a timedelta."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pgqueue import PgQueue, RetryLater, Snooze, Unique
from pgqueue.errors import InvalidOption, as_duration
from pgqueue.values.jobs.options import JobOptions
from pgqueue.worker.worker import Worker

queue = PgQueue("")


@queue.task
def send() -> None: ...


Take = Callable[[Any], object]

# Each takes a length of time, and says what it is called in messages.
TAKERS: dict[str, tuple[str, Take]] = {
    "history": ("history", lambda value: PgQueue("", history=value)),
    "dead": ("dead", lambda value: PgQueue("", dead=value)),
    "timeout": ("timeout", lambda value: queue.task(timeout=value)),
    "delay": ("delay", lambda value: send.using(delay=value)),
    "options": ("delay", lambda value: JobOptions(delay=value)),
    "period": ("Unique: period", lambda value: Unique(period=value)),
    "snooze": ("delay", Snooze),
    "retry later": ("delay", RetryLater),
    "take's timeout": ("timeout", lambda value: queue.take(timeout=value)),
    "take's lease": ("lease", lambda value: queue.take(lease=value)),
    "atake's lease": ("lease", lambda value: queue.atake(lease=value)),
    "worker's lease": ("lease", lambda value: Worker(queue, lease=value)),
    "worker's poll": ("poll", lambda value: Worker(queue, poll=value)),
    "worker's sweep": ("sweep", lambda value: Worker(queue, sweep=value)),
    "worker's grace": ("grace", lambda value: Worker(queue, grace=value)),
}
every_taker = pytest.mark.parametrize(("name", "taker"), TAKERS.values(), ids=TAKERS)


@every_taker
@pytest.mark.parametrize("value", [86_400, 86_400.0, timedelta(days=1)])
def test_seconds_and_timedeltas_are_taken(name: str, taker: Take, value: object) -> None:  # noqa: ARG001
    assert taker(value) is not None  # nothing was raised


@every_taker
@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), 1e300, "5", [5]], ids=repr)
def test_what_is_no_length_of_time_is_refused_with_its_name_and_value(
    name: str, taker: Take, value: object
) -> None:
    with pytest.raises(InvalidOption) as refused:
        taker(value)
    assert str(refused.value) == f"{name}={value!r}: use a number of seconds, or a timedelta"


@every_taker
@pytest.mark.parametrize("value", [-1, timedelta(microseconds=-1), timedelta.max])
def test_what_is_below_zero_or_endless_is_refused(name: str, taker: Take, value: object) -> None:
    if name in ("history", "dead") and value == timedelta.max:
        taker(value)  # jobs may be kept for ever
        return
    with pytest.raises(InvalidOption) as refused:
        taker(value)
    assert str(refused.value).startswith(f"{name}={value!r}: use ")


def test_a_number_is_seconds() -> None:
    assert as_duration("it", 1.5) == timedelta(seconds=1.5)
    assert send.using(delay=90).options.delay == timedelta(seconds=90)
    assert Snooze(90).delay == RetryLater(90).delay == Unique(period=90).period == timedelta(seconds=90)
    assert str(Snooze(90)) == "snoozed for 0:01:30"


@pytest.mark.parametrize("value", [7, 0.5, timedelta(hours=23)])
def test_a_history_shorter_than_a_day_is_refused_since_days_were_meant(value: float) -> None:
    with pytest.raises(InvalidOption, match=r"kept by whole days: use timedelta\(days=\.\.\.\), or 0"):
        PgQueue("", history=value)


def test_no_history_is_kept_with_zero() -> None:
    assert not PgQueue("", history=0).keeps_history

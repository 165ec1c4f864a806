"""What an enqueue may ask for, and how it is refused: with the value and what is allowed.

One rule for lengths of time, wherever one is taken: a number is seconds, or it is a timedelta.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pgqueue import PgQueue, RetryLater, Snooze, Unique
from pgqueue.errors import InvalidOption, as_duration
from pgqueue.values.jobs.options import LONGEST_KEY, LONGEST_NAME, JobOptions
from pgqueue.worker.worker import Worker

NAIVE = datetime(2031, 5, 4, 12)  # noqa: DTZ001 - what is refused
AWARE = datetime(2031, 5, 4, 12, tzinfo=UTC)
EAST, WEST = (timezone(timedelta(hours=hours)) for hours in (14, -12))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": 101}, "priority=101: use a whole number from -100 to 100"),
        ({"priority": -101}, "priority=-101: use a whole number from -100 to 100"),
        ({"priority": 1.5}, "priority=1.5: use a whole number"),
        ({"priority": True}, "priority=True: use a whole number"),
        ({"priority": "1"}, "priority='1': use a whole number"),
        ({"max_attempts": 0}, "max_attempts=0: use a whole number from 1 to 32767"),
        ({"max_attempts": 32_768}, "max_attempts=32768: use a whole number from 1 to 32767"),
        ({"run_at": NAIVE}, "has no time zone, so it names no instant; use datetime.now"),
        ({"run_at": "tomorrow"}, "run_at='tomorrow': use a datetime with a time zone, not a str"),
        ({"delay": timedelta(seconds=-1)}, "use seconds or a timedelta, from zero to ten years"),
        ({"delay": -5}, "delay=-5: use seconds or a timedelta, from zero to ten years"),
        ({"delay": "5"}, "delay='5': use a number of seconds, or a timedelta"),
        ({"delay": timedelta(0), "run_at": AWARE}, "contradict each other; give one of them"),
        ({"unique_key": ""}, "unique_key='': use a string of 1 to 1000 characters"),
        ({"unique_key": 5}, "unique_key=5: use a string of 1 to 1000 characters"),
        ({"unique_key": "x" * (LONGEST_KEY + 1)}, "hash what is longer"),
        ({"unique_key": "a\0b"}, "use a string without NUL (\\x00) and half surrogate pairs"),
        ({"unique_key": "a\ud800"}, "use a string without NUL (\\x00) and half surrogate pairs"),
        ({"unique_key": "\U0001f511" * 651}, "at most 2600 bytes; hash what is longer"),
        ({"run_at": datetime.min.replace(tzinfo=UTC)}, "use a time in the years 1900 to 8999"),
        ({"run_at": datetime.min.replace(tzinfo=EAST)}, "use a time in the years 1900 to 8999"),
        ({"run_at": datetime.max.replace(tzinfo=WEST)}, "use a time in the years 1900 to 8999"),
        ({"run_at": datetime(1900, 1, 1, 13, tzinfo=EAST)}, "use a time in the years 1900 to 8999"),
        ({"run_at": datetime(9000, 1, 1, tzinfo=UTC)}, "use a time in the years 1900 to 8999"),
        ({"queue": ""}, "queue='': a name has 1 to 200 characters"),
        ({"queue": "x" * (LONGEST_NAME + 1)}, "a name has 1 to 200 characters"),
        ({"queue": "two words"}, "queue='two words': a name has no white space, comma or colon in it"),
        ({"queue": "a,b"}, "no white space, comma or colon"),
        ({"queue": "mail:3"}, "no white space, comma or colon"),
        ({"queue": "a\0b"}, "no white space, comma or colon"),
        ({"queue": 5}, "queue=5: a name has 1 to 200 characters"),
        ({"queue": "列" * 84}, "a name has 1 to 200 characters and at most 249 bytes"),
        ({"queue": "a\ud800"}, "use a string without NUL (\\x00) and half surrogate pairs"),
        ({"queue": "mail-*"}, "queue='mail-*': name one queue"),
        ({"queue": "!mail"}, "queue='!mail': name one queue"),
        ({"queue": "__HIVE_DEFAULT_PARTITION__"}, "this name stands for no name in a lake"),
    ],
)
def test_what_is_out_of_range_is_refused_with_the_value_and_the_remedy(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        JobOptions(**options)
    assert words in str(refused.value)
    with pytest.raises(InvalidOption):
        JobOptions().but(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"priority": -100},
        {"priority": 100},
        {"max_attempts": 1},
        {"max_attempts": 32_767},
        {"delay": timedelta(0)},
        {"run_at": AWARE},
        {"run_at": AWARE - timedelta(days=9_999)},
        {"run_at": datetime(1900, 1, 1, 14, tzinfo=EAST)},
        {"run_at": datetime(8999, 12, 31, 23, tzinfo=UTC)},
        {"unique_key": "\U0001f511" * 650},
        {"queue": "列" * 83},
        {"unique_key": "x" * LONGEST_KEY},
        {"queue": "x" * LONGEST_NAME},
        {"queue": "E-Mail_2/é.日本!"},
    ],
)
def test_the_bounds_themselves_are_allowed(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()

    assert getattr(JobOptions(**options), name) == value


def test_changes_leave_the_rest_and_the_original_as_they_were() -> None:
    options = JobOptions(queue="mail", priority=5)

    changed = options.but(priority=-1, queue=None, unique=Unique("replace"))

    assert (changed.queue, changed.priority, changed.unique.collision) == ("mail", -1, "replace")
    assert (options.priority, options.unique) == (5, Unique())
    assert options.but(priority=None) is options


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(InvalidOption, match="unknown option colour, priorty"):
        JobOptions().but(priorty=1, colour="red", queue="mail")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"collision": "ignore"}, "Unique(collision='ignore'): use one of 'reject', 'replace', 'reschedule'"),
        ({"until": "never"}, "Unique(until='never'): use one of 'ended', 'started'"),
        ({"period": timedelta(0)}, "use seconds or a timedelta above zero"),
        ({"period": timedelta(seconds=-1)}, "use seconds or a timedelta above zero"),
    ],
)
def test_a_unique_policy_that_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Unique(**options)
    assert words in str(refused.value)


def test_by_default_a_taken_key_is_rejected_until_its_job_has_ended() -> None:
    assert (Unique().collision, Unique().until, Unique().period) == ("reject", "ended", None)


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
    with pytest.raises(
        InvalidOption, match=r"kept by whole days: give a day or more \(30d, timedelta\(days=30\)\), or 0"
    ):
        PgQueue("", history=value)


def test_no_history_is_kept_with_zero() -> None:
    assert not PgQueue("", history=0).keeps_history

"""The options of an enqueue: checked where they are written, never in the worker."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Self

from pgqueue.errors import InvalidOption, as_delay
from pgqueue.values.unique import Unique

PRIORITIES = range(-100, 101)
ATTEMPTS = range(1, 32_768)
DEFAULT_UNIQUE = Unique()
LONGEST_NAME = 200
LONGEST_KEY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How a job is to be queued.

    Attributes:
        queue: the queue's name; no white space or commas.
        priority: -100…100, higher runs sooner.
        max_attempts: after how many attempts the job is dead.
        run_at: the earliest time to run; with a time zone.
        delay: the same, counted from the database's now: seconds, or a timedelta, and a timedelta once it is
            here; not negative. Give one of the two.
        unique_key: what no two live jobs may share.
        unique: what happens when they would.

    Raises:
        InvalidOption: a value is out of its range; the message says which and what is allowed.
    """

    queue: str = "default"
    priority: int = 0
    max_attempts: int = 25
    run_at: datetime | None = None
    delay: timedelta | None = None
    unique_key: str | None = None
    unique: Unique = DEFAULT_UNIQUE

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        check_name("queue", self.queue)
        _check_number("priority", self.priority, PRIORITIES)
        _check_number("max_attempts", self.max_attempts, ATTEMPTS)
        _check_time(self.run_at, self.delay)
        object.__setattr__(self, "delay", as_delay("delay", self.delay))
        _check_key(self.unique_key)
        _check_unique(self.unique)

    def but(self, **changes: Any) -> Self:  # noqa: ANN401 - the fields' own types, checked below
        """These options with the given ones in their place; None leaves an option as it is."""
        given = {name: value for name, value in changes.items() if value is not None}
        unknown = given.keys() - {field.name for field in fields(self)}
        if unknown:
            raise InvalidOption(f"unknown option {', '.join(sorted(unknown))}")
        return replace(self, **given) if given else self


def check_name(what: str, name: str) -> str:
    """A queue's or task's name, if it can be one.

    Raises:
        InvalidOption: it is empty, too long, or has white space, a comma or a colon in it.
    """
    if not isinstance(name, str) or not name or len(name) > LONGEST_NAME:
        raise InvalidOption(f"{what}={name!r}: a name has 1 to {LONGEST_NAME} characters")
    if any(char.isspace() or char in ",:\0" for char in name):
        raise InvalidOption(f"{what}={name!r}: a name has no white space, comma or colon in it")
    return name


def check_queues(names: Iterable[str]) -> list[str]:
    """Queue names, each once, in their order.

    Raises:
        InvalidOption: there is none, one cannot be a name, or a single string was given.
    """
    if isinstance(names, str):
        raise InvalidOption(f"queues={names!r}: give a list of names, [{names!r}]")
    checked = [check_name("queue", name) for name in dict.fromkeys(names)]
    if not checked:
        raise InvalidOption("queues=[]: name at least one queue, or None for all")
    return checked


def _check_number(what: str, value: int, allowed: range) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise InvalidOption(f"{what}={value!r}: use a whole number from {allowed[0]} to {allowed[-1]}")


def _check_time(run_at: datetime | None, delay: timedelta | None) -> None:
    if run_at is not None and delay is not None:
        raise InvalidOption(f"run_at={run_at!r} and delay={delay!r} contradict each other; give one of them")
    if run_at is not None and not isinstance(run_at, datetime):
        raise InvalidOption(
            f"run_at={run_at!r}: use a datetime with a time zone, not a {type(run_at).__name__}"
        )
    if run_at is not None and run_at.utcoffset() is None:
        raise InvalidOption(
            f"run_at={run_at!r} has no time zone, so it names no instant; "
            "use datetime.now(timezone.utc) or .replace(tzinfo=ZoneInfo(...))"
        )


def _check_key(key: str | None) -> None:
    if key is not None and (not isinstance(key, str) or not key or len(key) > LONGEST_KEY or "\0" in key):
        raise InvalidOption(
            f"unique_key={key!r}: use a string of 1 to {LONGEST_KEY} characters; hash what is longer"
        )


def _check_unique(unique: object) -> None:
    if not isinstance(unique, Unique):
        raise InvalidOption(
            f"unique={unique!r}: use pgqueue.Unique, for example Unique(by=('customer_id',)) for one live job of "
            "each customer; or give unique_key= alone"
        )

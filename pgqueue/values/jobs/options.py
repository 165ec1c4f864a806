"""The options of an enqueue, and of a batch task: checked where they are written, never in the worker.

The one rule for patterns of queues' names is here, too: workers, operators and tests use it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, Self, TypeAlias

from pgqueue.errors import Duration, InvalidOption, as_delay, as_duration, as_limit
from pgqueue.values.jobs.unique import Debounce, Throttle, Unique

PRIORITIES = range(-100, 101)
ATTEMPTS = range(1, 32_768)
SLOTS = range(1, 10_001)
DEFAULT_UNIQUE = Unique()
AfterTimeout: TypeAlias = Literal["wait", "retry"]
"""What becomes of a job while its function goes on after its timeout."""
# sql/schema/0001_09_enqueue.up.sql has the same bounds, for jobs that are enqueued by SQL.
LONGEST_NAME, LONGEST_NAME_BYTES = 200, 249
"""In a lake a queue is a folder, ``queue=...``, and a folder's name has at most 255 bytes."""
LONGEST_KEY, LONGEST_KEY_BYTES = 1_000, 2_600
"""An entry of an index has at most 2,704 bytes."""
LONGEST_PAGE = 10_000
"""Rows of one answer."""
NO_NAMES = {"__HIVE_DEFAULT_PARTITION__"}
"""Spark's folder for an empty name, in a lake."""
FIRST_TIME, LAST_TIME = datetime(1900, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""Times that every program and every time zone can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How a job is queued.

    Attributes:
        queue: the queue's name: 1 to 200 characters, at most 249 bytes; no white space, comma or colon.
        priority: -100…100, higher runs sooner; None: what the queue says, or 0.
        max_attempts: the number of attempts after which the job is dead; None: what the queue says, or 25.
        run_at: the earliest time to run; with a time zone, in the years 1900 to 8999.
        delay: the same, counted from the database's now: given as seconds or a timedelta, stored as a timedelta; not
            negative. Give one of the two.
        unique_key: the key that no two live jobs may share: 1 to 1,000 characters, at most 2,600 bytes.
        unique: what happens when the key is taken.
        meta: JSON for other programs, as :func:`pgqueue.values.payloads.storable.encode_meta` makes it.
        expires_at: no attempt starts at this instant or later; with a time zone, in the years 1900 to 8999.
        expires_in: the same, counted from the earliest time to run: given as seconds or a timedelta, stored as a timedelta;
            more than zero. Give one of the two.

    Raises:
        InvalidOption: a value is out of its range; the message names it and the range.
    """

    queue: str = "default"
    priority: int | None = None
    max_attempts: int | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    unique_key: str | None = None
    unique: Unique = DEFAULT_UNIQUE
    meta: bytes | None = None
    expires_at: datetime | None = None
    expires_in: timedelta | None = None

    def __post_init__(self) -> None:
        check_one_queue("queue", self.queue)
        if self.priority is not None:
            check_number("priority", self.priority, PRIORITIES)
        if self.max_attempts is not None:
            check_number("max_attempts", self.max_attempts, ATTEMPTS)
        _check_times(self.run_at, self.delay, self.unique)
        object.__setattr__(self, "delay", as_delay("delay", self.delay))
        object.__setattr__(self, "expires_in", as_limit("expires_in", self.expires_in))
        _check_expiry(self)
        check_key(self.unique_key)
        _check_unique(self.unique)

    def but(self, **changes: Any) -> Self:  # noqa: ANN401 - the fields' own types, checked below
        """A copy of these options with the given changes; None leaves an option unchanged."""
        given = {name: value for name, value in changes.items() if value is not None}
        unknown = given.keys() - {field.name for field in fields(self)}
        if unknown:
            raise InvalidOption(f"unknown option {', '.join(sorted(unknown))}")
        for one, other in (("expires_at", "expires_in"), ("expires_in", "expires_at")):
            if one in given:  # what a call says of its expiry holds, and not what its task says
                given.setdefault(other, None)
        return replace(self, **given) if given else self


def check_name(what: str, name: str) -> str:
    """Check a queue's or task's name, and return it.

    Raises:
        InvalidOption: it is empty, too long, or has white space, a comma, a colon or half a surrogate pair in it.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or _bytes(name) > LONGEST_NAME_BYTES:
        raise InvalidOption(
            f"{what}={name!r:.200}: a name has 1 to {LONGEST_NAME} characters and at most {LONGEST_NAME_BYTES} bytes"
        )
    if any(char.isspace() or char in ",:\0" for char in name):
        raise InvalidOption(f"{what}={name!r}: a name has no white space, comma or colon in it")
    if name in NO_NAMES:
        raise InvalidOption(f"{what}={name!r}: this name stands for no name in a lake; use another")
    return check_text(what, name)


def check_one_queue(what: str, name: str) -> str:
    """Check a queue's name where one queue is meant, and return it.

    Raises:
        InvalidOption: it is no valid name, a pattern, or begins with ``!``: workers and operators could name no such queue.
    """
    if is_pattern(check_name(what, name)) or name.startswith(EXCLUDES):
        raise InvalidOption(
            f"{what}={name!r}: name one queue. * and a leading ! say which of several queues workers serve and operators change"
        )
    return name


LONGEST_REASON = 1_000
"""Characters of the name of an operator, and of a reason: people read them in tables."""


def check_text(what: str, text: str, *, longest: int | None = None) -> str:
    """Check that PostgreSQL can hold a text, and return it. It need not be a valid name: older jobs have other names.

    Raises:
        InvalidOption: it is not a string, has NUL or half a surrogate pair in it, or has more than ``longest`` characters.
    """
    if not isinstance(text, str) or "\0" in text or not _is_whole(text):
        raise InvalidOption(
            f"{what}={text!r:.200}: use a string without NUL (\\x00) and half surrogate pairs"
        )
    if longest is not None and len(text) > longest:
        raise InvalidOption(f"{what} has {len(text):,} characters: use {longest:,} at most")
    return text


def check_queues(names: Iterable[str]) -> list[str]:
    """Queue names, each once, in their order.

    Raises:
        InvalidOption: there is no name, one is not valid, or a single string was given.
    """
    if isinstance(names, str):
        raise InvalidOption(f"queues={names!r}: give a list of names, [{names!r}]")
    checked = [check_one_queue("queue", name) for name in dict.fromkeys(names)]
    if not checked:
        raise InvalidOption("queues=[]: name at least one queue, or None for all")
    return checked


def as_after_timeout(given: AfterTimeout | None) -> AfterTimeout | None:
    """A task's ``after_timeout=``.

    Raises:
        InvalidOption: it is none of the two.
    """
    if given is not None:
        one_of("after_timeout", given, ("wait", "retry"), listed=repr)
    return given


def one_of(what: str, value: str, choices: Iterable[str], *, listed: Callable[[str], str] = str) -> str:
    """Check that a value is one of several, and return it.

    Args:
        what: the option's name.
        value: what was given.
        choices: what is allowed.
        listed: how the message writes a choice; ``repr`` for an option that is written in Python only.

    Raises:
        InvalidOption: it is none of them; the message lists them.
    """
    if value not in (known := [*choices]):
        raise InvalidOption(f"{what}={value!r:.80}: use one of {', '.join(map(listed, known))}")
    return value


def check_number(what: str, value: int, allowed: range) -> None:
    """Refuse what is no whole number of this range.

    Raises:
        InvalidOption: it is none; the message names the range.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise InvalidOption(f"{what}={value!r}: use a whole number from {allowed[0]} to {allowed[-1]}")


def _check_times(run_at: datetime | None, delay: timedelta | None, unique: Unique) -> None:
    if isinstance(unique, Debounce | Throttle) and (run_at is not None or delay is not None):
        given = "delay" if run_at is None else "run_at"
        raise InvalidOption(
            f"{given}= and {unique} contradict each other: that says when the job runs; give one of them"
        )
    if run_at is not None and delay is not None:
        raise InvalidOption(f"run_at={run_at!r} and delay={delay!r} contradict each other; give one of them")
    check_instant("run_at", run_at)


def _check_expiry(options: JobOptions) -> None:
    expires_at, run_at = options.expires_at, options.run_at
    if expires_at is None:
        return
    if options.expires_in is not None:
        raise InvalidOption(
            f"expires_at={expires_at!r} and expires_in={options.expires_in!r} contradict each other; give one of them"
        )
    check_instant("expires_at", expires_at)
    if run_at is not None and expires_at <= run_at:
        raise InvalidOption(
            f"expires_at={expires_at!r} is not after run_at={run_at!r}, so the job would never run; give a later one"
        )


def check_instant(what: str, value: datetime | None) -> None:
    """Refuse what names no instant, or none that a job can have; None is accepted.

    Raises:
        InvalidOption: it has no time zone, or is outside the years 1900 to 8999.
    """
    if value is None:
        return
    if not isinstance(value, datetime):
        raise InvalidOption(
            f"{what}={value!r}: use a datetime with a time zone, not a {type(value).__name__}"
        )
    if value.utcoffset() is None:
        raise InvalidOption(
            f"{what}={value!r} has no time zone, so it names no instant; "
            "use datetime.now(timezone.utc) or .replace(tzinfo=ZoneInfo(...))"
        )
    if not FIRST_TIME <= value < LAST_TIME:
        raise InvalidOption(f"{what}={value!r}: use a time in the years 1900 to 8999")


def check_page(limit: int) -> int:
    """Refuse a number of rows that is too large for one answer, and return it.

    Raises:
        InvalidOption: it is no whole number from 1 to :data:`LONGEST_PAGE`.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LONGEST_PAGE:
        raise InvalidOption(f"limit={limit!r}: use a number from 1 to {LONGEST_PAGE:,}")
    return limit


def check_position(what: str, position: int) -> int:
    """Refuse what cannot be where a page begins, and return it.

    Raises:
        InvalidOption: it is no whole number.
    """
    if isinstance(position, bool) or not isinstance(position, int):
        raise InvalidOption(
            f"{what}={position!r:.80}: use a whole number, from the last row of the page before"
        )
    return position


def check_before(before: int | None) -> int | None:
    """As :func:`check_position`, of the id before which a page begins; None is accepted."""
    return None if before is None else check_position("before", before)


def check_key(key: str | None) -> None:
    """Refuse a text that cannot be a unique key; None is accepted.

    Raises:
        InvalidOption: it is empty or too long, or PostgreSQL cannot hold it.
    """
    if key is None:
        return
    if not isinstance(key, str) or not 1 <= len(key) <= LONGEST_KEY or _bytes(key) > LONGEST_KEY_BYTES:
        raise InvalidOption(
            f"unique_key={key!r:.200}: use a string of 1 to {LONGEST_KEY} characters and at most {LONGEST_KEY_BYTES} "
            "bytes; hash what is longer"
        )
    check_text("unique_key", key)


def _check_unique(unique: object) -> None:
    if not isinstance(unique, Unique):
        raise InvalidOption(
            f"unique={unique!r}: use pgqueue.Unique, for example Unique(by=('customer_id',)) for one live job of "
            "each customer; or give unique_key= alone"
        )


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _is_whole(text: str) -> bool:
    """Whether the text has no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


EXCLUDES = "!"
"""What an entry begins with whose queues a worker does not serve."""


def is_pattern(text: str) -> bool:
    """Whether it names queues by a pattern."""
    return "*" in text


def matching_names(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern stands for, in their order; a name without ``*`` stands for itself."""
    if not is_pattern(pattern):
        return [pattern]
    return [name for name in names if stands_for(pattern, name)]


@lru_cache(maxsize=4096)
def stands_for(pattern: str, name: str) -> bool:
    """Whether a pattern stands for a name. A regular expression with six ``*`` takes 24 s to refuse 100 characters."""
    begins, *parts = pattern.split("*")
    if not parts:
        return pattern == name
    *middle, ends = parts
    at, end = len(begins), len(name) - len(ends)
    if at > end or not (name.startswith(begins) and name.endswith(ends)):
        return False
    for part in middle:  # each at the first place where it stands: a later one leaves less for the next
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


SIZES = range(1, 1_001)
"""One statement records at most as many verdicts."""
LONGEST_WAIT = 60.0
"""Seconds. Jobs that wait for others are claimed: no other worker can run them."""


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The policy of a batch task, checked.

    Attributes:
        size: the most jobs of a call.
        wait: for how many seconds the first job of a call waits for others.
        by: the arguments of which all jobs of a call have the same values.
    """

    size: int
    wait: float
    by: tuple[str, ...]


def batch_policy(size: int, wait: Duration, by: str | Sequence[str]) -> BatchPolicy:
    """The policy that options of ``batch_task`` describe.

    Raises:
        InvalidOption: a value is out of its range.
    """
    check_number("size", size, SIZES)
    seconds = as_duration("wait", wait)
    if seconds is None or not 0 <= seconds.total_seconds() <= LONGEST_WAIT:
        raise InvalidOption(
            f"wait={wait!r}: use seconds or a timedelta, from zero to {LONGEST_WAIT:.0f} seconds"
        )
    return BatchPolicy(size, seconds.total_seconds(), _names(by))


def _names(by: str | Sequence[str]) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, list | tuple) else ("",)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(f"by={by!r}: use the names of arguments, for example by=('tenant',)")
    return names

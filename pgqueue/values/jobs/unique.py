"""The policy for a taken unique key, debounce and throttle among them, and the key that is made from a job's arguments.

A derived key is the task's name and the canonical JSON of the named arguments, which is hashed if it is long. SQL's
``pgqueue.unique_key`` makes the same key; a test compares the two. Canonical JSON has its keys in the order of their code
points, no white space, and numbers in plain decimal notation, without zeros at the end of a fraction.
"""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, get_args

import msgspec

from pgqueue.errors import LONGEST_DELAY, Duration, InvalidOption, as_limit

Collision = Literal["reject", "replace", "reschedule"]
Until = Literal["ended", "started"]
LONGEST_READABLE = 200
"""Canonical JSON of more bytes than this is hashed."""
LONGEST_EXPONENT = 131_072
"""PostgreSQL's numeric has no more digits before the point."""
_ARGUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Unique:
    """The policy behind a ``unique_key``.

    Attributes:
        collision: what an enqueue does when the key is taken. ``reject``: nothing. ``replace``: a waiting job gets the
            new arguments, queue, priority and time. ``reschedule``: a waiting job gets only the new time. A running
            job is never changed; the enqueue is then rejected.
        until: how long a job holds its key: until it has ``ended``, or until its first attempt ``started``.
        period: keep the key taken for this long after the enqueue, even if the job ends sooner; given as seconds or a
            timedelta, stored as a timedelta.

        by: make the key of each job from the arguments of these names, and the task's name; ``()``: from the
            task's name alone. An argument that is left at its default adds nothing. A given ``unique_key`` is used instead.
        delay: of :class:`Debounce`: how long after its last enqueue the job runs; else None.
        most: of :class:`Debounce`: how long after its first enqueue the job runs at the latest; else None.
        trailing: of :class:`Throttle`: whether an enqueue within the period adds a job that runs at its end.

    Raises:
        InvalidOption: a value is not valid.
    """

    collision: Collision = "reject"
    until: Until = "ended"
    period: Duration | None = None
    by: tuple[str, ...] | str | None = None

    delay: timedelta | None = field(default=None, init=False, repr=False)
    most: timedelta | None = field(default=None, init=False, repr=False)
    trailing: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, value, known in (
            ("collision", self.collision, get_args(Collision)),
            ("until", self.until, get_args(Until)),
        ):
            if value not in known:
                raise InvalidOption(f"Unique({name}={value!r}): use one of {', '.join(map(repr, known))}")
        object.__setattr__(self, "period", as_limit("Unique: period", self.period))
        object.__setattr__(self, "by", as_names(self.by))


class Debounce(Unique):
    """Many enqueues of a key become one job: it runs ``wait`` after the last one, with the arguments of the last one.

    An enqueue while the job runs makes another job. It is passed as ``unique=``.
    """

    __slots__ = ()

    def __init__(
        self, wait: Duration, *, most: Duration | None = None, by: tuple[str, ...] | str | None = None
    ) -> None:
        """Check the lengths of time.

        Args:
            wait: how long no other enqueue may follow; seconds, or a timedelta.
            most: how long after the first enqueue the job runs at the latest; by default ten times ``wait``.
            by: the arguments that make the key; as for :class:`Unique`.

        Raises:
            InvalidOption: a value is not valid, or ``most`` is shorter than ``wait``.
        """
        Unique.__init__(self, collision="replace", until="started", by=by)
        delay = as_limit("Debounce: wait", wait)
        longest = min(10 * delay, LONGEST_DELAY) if most is None else as_limit("Debounce: most", most)
        if longest < delay:
            raise InvalidOption(
                f"Debounce: most={most!r} is shorter than wait={wait!r}, so the job could not wait; give a longer one"
            )
        object.__setattr__(self, "delay", delay)
        object.__setattr__(self, "most", longest)

    def __repr__(self) -> str:
        return f"Debounce({self.delay}, most={self.most}, by={self.by!r})"


class Throttle(Unique):
    """Of the enqueues of a key at most one adds a job in each ``period``: the first one, at once. The others are rejected.

    A job that has not started holds its key for longer. It is passed as ``unique=``.
    """

    __slots__ = ()

    def __init__(
        self, period: Duration, *, trailing: bool = False, by: tuple[str, ...] | str | None = None
    ) -> None:
        """Check the length of time.

        Args:
            period: seconds, or a timedelta.
            trailing: do not reject the others: they become one job, which runs at the end of the period with the arguments of
                the last one. From its time on, another period begins.
            by: the arguments that make the key; as for :class:`Unique`.

        Raises:
            InvalidOption: a value is not valid.
        """
        if not isinstance(trailing, bool):
            raise InvalidOption(f"Throttle: trailing={trailing!r}: use True or False")
        collision: Collision = "replace" if trailing else "reject"
        Unique.__init__(
            self, collision=collision, until="started", period=as_limit("Throttle: period", period), by=by
        )
        object.__setattr__(self, "trailing", trailing)

    def __repr__(self) -> str:
        return f"Throttle({self.period}, trailing={self.trailing}, by={self.by!r})"


def as_names(by: Any) -> tuple[str, ...] | None:  # noqa: ANN401 - what users type
    """The names of the arguments that make a key; None: no derived key. One name may be given as a string.

    Raises:
        InvalidOption: a value is not a name.
    """
    if by is None:
        return None
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, list | tuple) else None
    if names is None or not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(
            f"Unique(by={by!r}): use the names of parameters, for example by=('customer_id',)"
        )
    return names


def derived_key(task: str, args: bytes, names: tuple[str, ...]) -> str:
    """The unique key of a job.

    Args:
        task: the task's name.
        args: the job's arguments, as a JSON object.
        names: the arguments that make the key; a missing one adds nothing.

    Raises:
        ValueError: a number is too large for PostgreSQL.
    """
    given = _ARGUMENTS.decode(args)
    members = (
        f"{_name(name)}:{_canonical_raw(bytes(given[name]))}" for name in sorted({*names} & given.keys())
    )
    text = f"{{{','.join(members)}}}"
    encoded = text.encode()
    return (
        f"{task}{text}"
        if len(encoded) <= LONGEST_READABLE
        else f"{task}#{hashlib.sha256(encoded).hexdigest()}"
    )


def _canonical_raw(value: bytes) -> str:
    """The canonical form of a JSON text; most texts have it already, which saves 20 µs."""
    if value.isdigit() or (value.startswith(b'"') and b"\\" not in value):
        return value.decode()
    return _canonical(json.loads(value, parse_int=Decimal, parse_float=Decimal))


def _canonical(value: Any) -> str:  # noqa: ANN401 - any JSON
    match value:
        case dict():
            members = (f"{_text(key)}:{_canonical(value[key])}" for key in sorted(value))
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(map(_canonical, value))}]"
        case Decimal():
            return _number(value)
        case str():
            return _text(value)
        case _:
            return json.dumps(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


_name = lru_cache(maxsize=1_024)(_text)  # of a parameter


def _number(value: Decimal) -> str:
    if not value:
        return "0"
    if value.adjusted() > LONGEST_EXPONENT:
        raise ValueError(f"a number of {value.adjusted():,} digits cannot be part of a unique key")
    plain = f"{value:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain

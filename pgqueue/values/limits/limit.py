"""What users say of limits: how many jobs of a key run at once (:class:`Limit`), how often jobs of a key start (:class:`Rate`).

A limit has a name, under which the database and operators know it: ``task:shop.send:customer_id`` for one of a task by an
argument, ``task:shop.send:per-minute`` for a rate, ``name:api`` for one with a name, ``queue:mail`` for a queue as a whole.
How a job's arguments become keys is decided in :mod:`pgqueue.values.limits.task_limits`.
"""

import re
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from pgqueue.errors import Duration, InvalidOption, as_duration
from pgqueue.values.jobs.options import check_name, check_number, one_of

WhenFull = Literal["wait", "refuse", "newest", "oldest"]
QUEUE: Final = "queue:"
"""The name of the limit of a queue as a whole begins with this."""
MOST: Final = range(1, 1_000_001)
COSTS: Final = range(1, 1_000_001)
LONGEST_EVERY: Final = 365 * 86_400 * 1_000_000
_SECONDS: Final = {
    "second": 1,
    "minute": 60,
    "hour": 3_600,
    "day": 86_400,
    "s": 1,
    "m": 60,
    "h": 3_600,
    "d": 86_400,
}
BY: Final = " by "
"""Between the numbers of a limit and the arguments that make its key, in what the code says."""
_PLACES: Final = re.compile(r" \*([1-9][0-9]{0,6})$", re.ASCII)
"""At the end of a key: how many places each job takes. Values are JSON or a hash, which cannot end so."""
_RATE: Final = re.compile(r"([0-9]{1,12})/(second|minute|hour|day|([0-9]{1,9})([smhd]))", re.ASCII)


class LimitNumbers(NamedTuple):
    """What a limit says; either ``most``, or ``every`` and ``burst``.

    Attributes:
        most: how many jobs of a key run at once.
        every: microseconds between two starts of a key that cost 1 each.
        burst: how much may start at once after a pause.
        declared: what the code says, as text.
    """

    most: int | None
    every: int | None
    burst: int | None
    declared: str = ""

    @property
    def rate(self) -> tuple[int, int]:
        """``every`` and ``burst``, of a rate."""
        assert self.every is not None and self.burst is not None  # noqa: S101, PT018 - for the type checker
        return self.every, self.burst

    @property
    def said(self) -> str:
        """What the limit says, in words."""
        per = f" per {' and '.join(self.by)}" if self.by else ""
        if self.every is None:
            return f"{self.most:,} at once{per}"
        burst = "" if self.burst == 1 else f", burst {self.burst:,}"
        return f"one each {self.every / 1_000_000:g} s{per}{burst}"

    @property
    def by(self) -> tuple[str, ...]:
        """The arguments that make the key, as the code says them; none: there is one key for all jobs."""
        arguments = self.declared.partition(BY)[2]
        return tuple(arguments.split(", ")) if arguments else ()


class LimitKey(msgspec.Struct, frozen=True, gc=False):
    """A key of a lane: the name of a limit, and the values of the arguments that it is by, if it is by any.

    Attributes:
        text: both.
        limit: the name of the limit; "": the key is a share.
        places: how many places of the key each job of the lane takes.
    """

    text: str
    limit: str
    places: int = 1

    @classmethod
    def read(cls, line: str) -> "LimitKey":
        """A key as it stands in the name of a lane."""
        found = _PLACES.search(line)
        text = line if found is None else line[: found.start()]
        return cls(text, text.partition(" ")[0], 1 if found is None else int(found[1]))

    @property
    def line(self) -> str:
        """The key as it stands in the name of a lane: jobs that take other numbers of places wait in other lanes."""
        return self.text if self.places == 1 else f"{self.text} *{self.places}"


class LaneKeys(msgspec.Struct, frozen=True, gc=False):
    """The keys of a lane. A worker keeps those of 50,000 lanes; the garbage collector does not go through them.

    Attributes:
        all: in their order.
        limiting: those of limits.
        texts: of those that limit.
        places: of those that limit, how many places each job takes; (): one of each.
        share: the text of the one that is a share; "": there is none.
    """

    all: tuple[LimitKey, ...]
    limiting: tuple[LimitKey, ...]
    texts: tuple[str, ...]
    places: tuple[int, ...]
    share: str


@lru_cache(maxsize=50_000)
def lane_keys(lane: str) -> LaneKeys:
    """What the name of a lane says. The limit of a queue as a whole is in no lane: a role may write any into a row."""
    texts = [text for text in lane.split("\n") if not text.startswith(QUEUE)] if lane else []
    found = tuple(map(LimitKey.read, texts))
    limiting = tuple([key for key in found if key.limit])
    places = tuple([key.places for key in limiting])
    share = next((key.text for key in found if not key.limit), "")
    return LaneKeys(
        found,
        limiting,
        tuple([key.text for key in limiting]),
        places if max(places, default=1) > 1 else (),
        share,
    )


def keys_of(lane: str) -> tuple[LimitKey, ...]:
    """The keys of a lane."""
    return lane_keys(lane).all


def share_of(lane: str) -> str:
    """The share of a lane; "": it has none."""
    return lane_keys(lane).share


def key_of_queue(queue: str) -> LimitKey:
    """The key of the limit of a queue as a whole."""
    return LimitKey(f"{QUEUE}{queue}", f"{QUEUE}{queue}")


@dataclass(frozen=True, slots=True)
class Limit:
    """At most this many jobs of a key run at once, over all workers. Further jobs wait, in their order.

    ``Limit(1, by=...)`` is no overlap: the jobs of each key run one at a time. ``ordered=True`` adds that a job which waits for
    its retry keeps its place: no later job of the key starts before it has ended.

    Attributes:
        most: how many, 1 to 1,000,000.
        by: the arguments whose values make the key; ``()``: one key for all jobs. One name may be given as a string.
        name: tasks with a limit of the same name share it.
        ordered: whether a job keeps its place until it has ended, also while it waits for its retry; with ``most=1`` only.
        when_full: what an enqueue does while no place of the job's key is free. ``wait``: the job waits. ``refuse``: the enqueue
            raises ``LimitReached``. ``newest``: the job waits in place of those that wait, which are cancelled. ``oldest``: if a job
            waits already, the new one is not added.
        cost: how many of the places a job takes: a number, or the name of an argument which is a whole number; at most ``most``.

    Raises:
        InvalidOption: a value is not valid.
    """

    most: int
    _: KW_ONLY
    by: tuple[str, ...] | str = ()
    name: str | None = None
    when_full: WhenFull = "wait"
    ordered: bool = False
    cost: int | str = 1

    def __post_init__(self) -> None:
        check_number("Limit: most", self.most, MOST)
        _check_key(self)
        one_of("Limit: when_full", self.when_full, get_args(WhenFull), listed=repr)
        if self.ordered and (self.most, self.when_full) != (1, "wait"):
            raise InvalidOption(
                f"Limit({self.most}, when_full={self.when_full!r}, ordered={self.ordered!r}): only jobs that wait, and run one at a "
                "time, have an order; use Limit(1, ordered=True)"
            )
        _check_cost(self)
        if self.cost != 1 and self.when_full != "wait":
            raise InvalidOption(
                f"Limit(when_full={self.when_full!r}, cost={self.cost!r}): only jobs that wait may take several places; "
                "use when_full='wait'"
            )

    @property
    def numbers(self) -> LimitNumbers:
        """What the database stores of it."""
        order = ", in order" if self.ordered else ""
        return LimitNumbers(self.most, None, None, f"{self.most:,} at once{order}{_by(self.by)}")

    @property
    def kind(self) -> str:
        """What tells it from other limits of the same task by the same arguments."""
        return ""

    def check_fits(self, cost: int) -> None:
        """Refuse a cost that could never start.

        Raises:
            InvalidOption: it is more than there are places.
        """
        if cost > self.most:
            raise InvalidOption(
                f"cost={cost:,} is more than the {self.most:,} places of {self!r}, so such a job could never start; use a lower cost"
            )


@dataclass(frozen=True, slots=True)
class Rate:
    """Jobs of a key start this often, over all workers: a number per time, or exactly so far apart.

    Attributes:
        rate: such as ``"100/minute"``: a number per ``second``, ``minute``, ``hour`` or ``day``, or per ``30s``, ``15m``,
            ``2h``, ``7d``.
        every: in place of it, the exact time between two starts; given as seconds or a timedelta, stored as a timedelta.
        burst: how many may start at once after a pause, 1 to 1,000,000; 1: starts are evenly apart.
        by: as for :class:`Limit`.
        name: as for :class:`Limit`.
        cost: how much of the rate a start takes: a number, or the name of an argument which is a whole number. At most
            ``burst``.

    Raises:
        InvalidOption: a value is not valid.
    """

    rate: str | None = None
    _: KW_ONLY
    every: Duration | None = None
    burst: int = 1
    by: tuple[str, ...] | str = ()
    name: str | None = None
    cost: int | str = 1

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.every is None):
            raise InvalidOption(
                f"Rate(rate={self.rate!r}, every={self.every!r}): give one of the two, "
                "for example Rate('100/minute') or Rate(every=2)"
            )
        object.__setattr__(self, "every", as_duration("Rate: every", self.every))
        self._interval()
        check_number("Rate: burst", self.burst, MOST)
        if self.every is not None and self.burst != 1:
            raise InvalidOption(
                f"Rate(every=..., burst={self.burst}): starts that are exactly apart have no burst; "
                "leave it out, or give a rate such as '100/minute'"
            )
        _check_key(self)
        _check_cost(self)

    @property
    def numbers(self) -> LimitNumbers:
        """What the database stores of it."""
        rate = self.rate if self.every is None else f"every {self.every}"
        burst = "" if self.burst == 1 else f", burst {self.burst:,}"
        return LimitNumbers(None, self._interval(), self.burst, f"{rate}{burst}{_by(self.by)}")

    @property
    def kind(self) -> str:
        """As of :class:`Limit`: a task may have a rate per minute and one per day."""
        return "interval" if self.rate is None else self.rate.partition("/")[2]

    def _interval(self) -> int:
        """Microseconds between starts, rounded up: never more starts than the rate says."""
        if isinstance(self.rate, str):
            number, seconds = _read(self.rate)
            every = -(-seconds * 1_000_000 // number)
            given = f"Rate({self.rate!r})"
            too_fast = seconds * 1_000_000 < number
        elif self.every is not None:
            every = as_duration("Rate: every", self.every) // timedelta(microseconds=1)
            given, too_fast = f"Rate(every={self.every!r})", every < 1
        else:
            raise _no_rate(self.rate)
        if too_fast or every > LONGEST_EVERY:
            raise InvalidOption(f"{given}: use a time between two starts from 1 microsecond to 365 days")
        return every

    def check_fits(self, cost: int) -> None:
        """Refuse a cost that could never start.

        Raises:
            InvalidOption: it is more than the burst.
        """
        if cost > self.burst:
            raise InvalidOption(
                f"cost={cost:,} is more than burst={self.burst:,}, so such a job could never start; "
                f"use a lower cost, or Rate(burst={cost})"
            )


AnyLimit: TypeAlias = Limit | Rate
"""What a task may have: a limit of any kind."""


def _read(rate: str) -> tuple[int, int]:
    """Return the number and the seconds of a rate."""
    found = _RATE.fullmatch(rate.replace(" ", ""))
    if found is None:
        raise _no_rate(rate)
    number = int(found[1])
    seconds = _SECONDS[found[4]] * int(found[3]) if found[3] else _SECONDS[found[2]]
    if not number or not seconds:
        raise _no_rate(rate)
    return number, seconds


def _no_rate(rate: object) -> InvalidOption:
    return InvalidOption(
        f"Rate({rate!r:.80}): use a positive number per time, such as '100/minute', '5/second', '1/30s', '2/15m'"
    )


def _check_key(limit: AnyLimit) -> None:
    what = type(limit).__name__
    object.__setattr__(limit, "by", as_arguments(f"{what}: by", limit.by))
    if limit.name is not None:
        check_name(f"{what}: name", limit.name)


def _check_cost(limit: AnyLimit) -> None:
    what = type(limit).__name__
    if isinstance(limit.cost, str):
        if not limit.cost:
            raise InvalidOption(f"{what}(cost=''): use a whole number, or the name of an argument")
        return
    check_number(f"{what}: cost", limit.cost, COSTS)
    limit.check_fits(limit.cost)


def as_arguments(what: str, by: object) -> tuple[str, ...]:
    """The names of arguments, sorted. One name may be given as a string.

    Raises:
        InvalidOption: a value is no name, or a name is there twice.
    """
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, list | tuple) else ("",)
    if not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise InvalidOption(f"{what}={by!r:.80}: use the names of arguments, for example by=('customer_id',)")
    return tuple(sorted(names))


def _by(by: tuple[str, ...] | str) -> str:
    return f"{BY}{', '.join((by,) if isinstance(by, str) else by)}" if by else ""

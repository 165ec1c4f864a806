"""The kinds of work: how often each is enqueued, and which jobs an order of it has.

An *order* is a row that the enqueuer commits together with its jobs, as an app commits a purchase with the job that sends
the receipt. Each job carries its name, which is made of its order's number: names are never used again, whatever ids the jobs
have.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pgqueue.chaos.history.events import Enqueued, JobName

KEYS = 8
"""How many keys of the limit, and how many unique keys there are."""
LIMIT = "limited"
MOST_AT_ONCE = 2
"""How many jobs of a key of the limit may run at once."""
LAST = "join"
"""The part that runs after the members of a group."""


class OrderKind(NamedTuple):
    """A kind of work.

    Attributes:
        weight: how many of a thousand orders are of this kind.
        parts: of an order; each is a job.
        transactional: whether each job that succeeds leaves one row, written in ``ctx.transaction()``.
    """

    weight: int
    parts: tuple[str, ...] = ("only",)
    transactional: bool = True


KINDS: Mapping[str, OrderKind] = MappingProxyType(
    {
        "plain": OrderKind(680, transactional=False),
        "written": OrderKind(120),
        "flaky": OrderKind(30),
        "doomed": OrderKind(10, transactional=False),
        "chained": OrderKind(40, ("a", "b", "c")),
        "grouped": OrderKind(20, ("1", "2", "3", LAST)),
        LIMIT: OrderKind(50, transactional=False),
        "keyed": OrderKind(30),
        "stepped": OrderKind(20),
    }
)
STEPS = ("first", "second")
"""Of a stepped job, in their order."""
STEP = "step"
TICK = "tick"
"""A job of the schedule."""


def name_of(kind: str, number: int, part: str = "only") -> str:
    """What a job is called."""
    return f"{kind}/{number}/{part}"


def step_of(name: str, part: str) -> str:
    """What a step of a job is called."""
    return f"{STEP}/{name}/{part}"


def is_step(name: JobName) -> bool:
    """Whether this is the name of a step, and not of a job."""
    return isinstance(name, str) and name.startswith(f"{STEP}/")


def parts_of(step: JobName) -> tuple[str, str]:
    """The job of a step, and which part it is."""
    job, _, part = str(step).removeprefix(f"{STEP}/").rpartition("/")
    return job, part


def key_of(number: int) -> int:
    """The key of an order's jobs in the limit, and its unique key."""
    return number // len(KINDS) % KEYS


def enqueued(kind: str, number: int) -> list[Enqueued]:
    """What the history says of the jobs of an order; ``at`` and ``commit`` are not known yet."""
    limits = (f"{LIMIT}={key_of(number)}",) if kind == LIMIT else ()
    key = f"key {key_of(number)}" if kind == "keyed" else None
    return [
        Enqueued(
            at=0.0,
            job=name_of(kind, number, part),
            key=key,
            limits=limits,
            after=tuple(name_of(kind, number, one) for one in _before(kind, part)),
            transactional=KINDS[kind].transactional,
        )
        for part in KINDS[kind].parts
    ]


def _before(kind: str, part: str) -> tuple[str, ...]:
    parts = KINDS[kind].parts
    place = parts.index(part)
    if kind == "chained":
        return parts[place - 1 : place] if place else ()
    return parts[:place] if part == LAST else ()

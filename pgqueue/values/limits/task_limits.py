"""How a job's limits and its share become the lane in which it waits.

A *key* is the name of a limit, and the values of the arguments that it is by: ``task:shop.send:customer_id {"customer_id":7}``,
or ``name:api`` for a limit by nothing. The values are the canonical JSON of :mod:`pgqueue.values.jobs.unique`, hashed if it is long;
an argument that has its default value adds nothing. A *lane* is the keys of a job, one a line; jobs with the same lane wait for
the same limits. A share is a key without the name of a limit: `` {"tenant":3}``.

Hostile values cannot make another value's key: a limit's name has no white space, and JSON has neither line ends nor other
control characters in it. SQL makes the same key with
``pgqueue.unique_key(limit_name || ' ', args, array['customer_id'])``; a test compares the two.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import msgspec

from pgqueue.errors import InvalidOption, LimitReached
from pgqueue.values.jobs.unique import derived_key
from pgqueue.values.limits.limit import (
    COSTS,
    AnyLimit,
    Limit,
    LimitKey,
    LimitNumbers,
    Rate,
    WhenFull,
    as_arguments,
    keys_of,
)

MOST_LIMITS: Final = 8
"""Of one task: each start counts under all of them."""
LONGEST_LANE: Final = 1_600
"""Bytes. An entry of an index has at most 2,704 bytes, and a queue's name has up to 249 of them."""
LONGEST_PLACES: Final = 9
LONGEST_VALUES: Final = 202
"""Bytes of a key behind the limit's name; longer values are hashed."""
_ARGUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits and the share of one task's jobs.

    Attributes:
        limits: by name, in the order of the names.
        fair_by: the arguments whose values make the share; (): the jobs have no share.
        cost: what a start costs of each rate: a number, or the name of an argument.
        defaults: of those of its arguments that have one.
        when_full: what an enqueue does while no place of the job's key is free, and how many places there are; None: the job waits.
    """

    limits: Mapping[str, AnyLimit]
    fair_by: tuple[str, ...] = ()
    cost: int | str = 1
    defaults: Mapping[str, Any] = field(default_factory=dict)
    when_full: tuple[WhenFull, int] | None = field(init=False)
    _by: tuple[tuple[str, tuple[str, ...], int | str], ...] = field(init=False)

    def __post_init__(self) -> None:
        limits = (one for one in self.limits.values() if isinstance(one, Limit) and one.when_full != "wait")
        object.__setattr__(self, "when_full", next(((one.when_full, one.most) for one in limits), None))
        keys = [(name, as_arguments("by", limit.by), _places(limit)) for name, limit in self.limits.items()]
        object.__setattr__(self, "_by", (*keys, *([("", self.fair_by, 1)] if self.fair_by else ())))

    @property
    def arguments(self) -> tuple[str, ...]:
        """All arguments that make keys."""
        return tuple(sorted({name for _, by, _ in self._by for name in by}))

    @property
    def costs(self) -> tuple[str, ...]:
        """All arguments that say what a job costs."""
        return tuple({one.cost: None for one in self.limits.values() if isinstance(one.cost, str)})

    @property
    def ordered(self) -> bool:
        """Whether a job that waits for its retry keeps its place."""
        return any(isinstance(one, Limit) and one.ordered for one in self.limits.values())

    @property
    def stored_defaults(self) -> str:
        """The defaults that JSON holds, as the database keeps them."""
        found = {}
        for name, value in self.defaults.items():
            with suppress(TypeError, ValueError):
                said = msgspec.json.encode(value)
                if (said == b"null") is (value is None):  # there is no NaN in JSON
                    found[name] = msgspec.Raw(said)
        return msgspec.json.encode(found).decode()

    @property
    def keys(self) -> list[dict[str, object]]:
        """What its keys are made of, as the database keeps it."""
        return [
            {"limit": name, "by": by} | ({} if places == 1 else {"places": places})
            for name, by, places in self._by
        ]

    @property
    def numbers(self) -> dict[str, LimitNumbers]:
        """What the database stores of the limits, by name."""
        return {name: limit.numbers for name, limit in self.limits.items()}

    def lane(self, args: bytes) -> str:
        """The lane of a job.

        Args:
            args: its arguments, as a JSON object; those of :attr:`arguments` that have their default value are left out.

        Raises:
            ValueError: a number is too large for PostgreSQL.
            InvalidOption: the job would take more places than there are.
        """
        return "\n".join(
            LimitKey(
                derived_key(f"{name} ", args, by) if by else name,
                name,
                places if type(places) is int else self._number(str(places), args),
            ).line
            for name, by, places in self._by
        )

    def cost_of(self, args: bytes) -> int | None:
        """What the start of a job costs; None: 1.

        Raises:
            InvalidOption: the argument is no whole number, or so large that the job could never start.
        """
        cost = self.cost if isinstance(self.cost, int) else self._number(self.cost, args)
        return None if cost == 1 else cost

    def _number(self, argument: str, args: bytes) -> int:
        """What a job costs by one of its arguments."""
        given = _ARGUMENTS.decode(args).get(argument)
        cost: Any = self.defaults.get(argument) if given is None else msgspec.json.decode(given)
        if isinstance(cost, bool) or not isinstance(cost, int) or cost not in COSTS:
            raise InvalidOption(
                f"{argument}={cost!r:.80} is what the start costs: use a whole number from {COSTS[0]} to {COSTS[-1]:,}"
            )
        for limit in self.limits.values():
            if limit.cost == argument:
                limit.check_fits(cost)
        return cost


def share_key(values: Mapping[str, object], encode: Callable[[str], str] | None = None) -> str:
    """The key of the share of jobs with these values of their task's ``fair_by`` arguments.

    Args:
        values: of each of these arguments.
        encode: what a codec makes of keys.

    Raises:
        InvalidOption: there is no value, or one has no JSON form.
    """
    if not isinstance(values, Mapping) or not values or not all(isinstance(name, str) for name in values):
        raise InvalidOption(
            f"share={values!r:.80}: give the values of the fair_by arguments, for example {{'tenant': 'acme'}}"
        )
    try:
        key = derived_key(" ", msgspec.json.encode(values), tuple(values))
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"share={values!r:.80}: {error}") from error
    return key if encode is None else encoded_lane(key, encode)


def encoded_lane(lane: str, key: Callable[[str], str]) -> str:
    """A lane as it is to be stored, where a codec encodes keys: what they tell of arguments is encoded.

    Args:
        lane: the lane.
        key: encodes a text; equal texts must stay equal.
    """
    return "\n".join(
        LimitKey(_encode_key(one.text, key), one.limit, one.places).line for one in keys_of(lane)
    )


def _encode_key(text: str, key: Callable[[str], str]) -> str:
    name, _, values = text.partition(" ")
    if not values:
        return name
    stored = key(values)
    if (
        len(stored) < LONGEST_VALUES
        and stored.isascii()
        and stored.isprintable()
        and stored
        and " *" not in stored
    ):
        return f"{name} {stored}"
    return f"{name} #{sha256(stored.encode('utf-8', 'surrogatepass')).hexdigest()}"


def limits_of_task(
    task: str, limit: object, fair_by: object, *, named: str | None = None
) -> TaskLimits | None:
    """What the options ``limit=`` and ``fair_by=`` of a task say; None: nothing.

    Args:
        task: its name.
        limit: as given.
        fair_by: as given.
        named: after which name limits are called that have none of their own; by default the task's.

    Raises:
        InvalidOption: a value is none, or two limits contradict each other.
    """
    fair = () if fair_by is None else as_arguments("fair_by", fair_by)
    if fair_by is not None and not fair:
        raise InvalidOption(
            f"fair_by={fair_by!r}: name the arguments that make a share, for example ('tenant',)"
        )
    given = _as_limits(limit)
    if not given and not fair:
        return None
    limits: dict[str, AnyLimit] = {}
    for one in given:
        name = _name(one, named or task)
        if name in limits:
            raise InvalidOption(
                f"task {task}: {limits[name]} and {one} limit the same jobs; give one of the two, or give one a name="
            )
        limits[name] = one
    found = TaskLimits(dict(sorted(limits.items())), fair, _cost(task, limits.values()))
    if found.ordered and any(_places(one) != 1 for one in limits.values()):
        raise InvalidOption(
            f"task {task}: a job of an ordered limit keeps its place while it waits for its retry, and may take one place of "
            "each limit only; leave out ordered=True, or the cost"
        )
    _check_length(task, found)
    if len(found.limits) + bool(fair) > 1 and any(
        getattr(one, "when_full", "wait") != "wait" for one in given
    ):
        raise InvalidOption(
            f"task {task}: a limit that does not let jobs wait (when_full=) must be the only one, without fair_by; "
            f"it has {', '.join(map(repr, found.limits))}{' and fair_by' if fair else ''}"
        )
    return found


def require_agreement(task: str, one: TaskLimits, other_task: str, other: TaskLimits) -> None:
    """Refuse limits that two tasks share, and on which they do not agree.

    Raises:
        InvalidOption: they have other numbers or other arguments, or arguments with other defaults, which keys leave out.
    """
    for name in one.limits.keys() & other.limits.keys():
        mine, others = one.limits[name].numbers, other.limits[name].numbers
        if mine != others:
            raise InvalidOption(
                f"limit {name!r} is declared twice: {mine.declared!r} at task {task} and {others.declared!r} at task "
                f"{other_task}; give both tasks the same limit, or another name="
            )
        for argument in one.limits[name].by:
            if repr(one.defaults.get(argument, ...)) != repr(other.defaults.get(argument, ...)):
                raise InvalidOption(
                    f"limit {name!r}: the argument {argument!r} has another default at task {task} than at task {other_task}, "
                    "and a key leaves defaults out; give it the same default at both tasks, or none"
                )


def _as_limits(limit: object) -> list[AnyLimit]:
    if limit is None:
        return []
    found: list[AnyLimit] = []
    for one in limit if isinstance(limit, list | tuple) else [limit]:
        if not isinstance(one, AnyLimit):
            raise InvalidOption(
                f"limit={one!r:.80}: use pgqueue.Limit or pgqueue.Rate, for example Limit(3, by=('customer_id',)), "
                "or a list of them"
            )
        found.append(one)
    if not 1 <= len(found) <= MOST_LIMITS:
        raise InvalidOption(f"limit=: {len(found)} limits; give 1 to {MOST_LIMITS}")
    return found


def _name(limit: AnyLimit, task: str) -> str:
    if limit.name is not None:
        return f"name:{limit.name}"
    parts = [
        "task",
        task,
        *([",".join(limit.by)] if limit.by else []),
        *([f"per-{limit.kind}"] if limit.kind else []),
    ]
    # Names have no colon, and arguments no hyphen.
    return ":".join(parts)


def task_of(limit: str) -> str | None:
    """The task that a limit is of; None: it has a name of its own, and several tasks may share it."""
    kind, name, *_ = *limit.split(":"), ""
    return name if kind == "task" else None


def _cost(task: str, limits: Iterable[AnyLimit]) -> int | str:
    costs = {limit.cost for limit in limits if isinstance(limit, Rate)}
    if len(costs) > 1:
        raise InvalidOption(
            f"task {task}: its rates have the costs {', '.join(sorted(map(repr, costs)))}; a job has one cost, give all the same"
        )
    return costs.pop() if costs else 1


def _places(limit: AnyLimit) -> int | str:
    return limit.cost if isinstance(limit, Limit) else 1


def _check_length(task: str, found: TaskLimits) -> None:
    longest = sum(
        len(name.encode()) + bool(limit.by) * LONGEST_VALUES + (_places(limit) != 1) * LONGEST_PLACES
        for name, limit in found.limits.items()
    )
    if longest + bool(found.fair_by) * LONGEST_VALUES > LONGEST_LANE:
        raise InvalidOption(
            f"task {task}: its limits may make keys of {longest:,} bytes in all, over {LONGEST_LANE:,}; "
            "use fewer limits, or give them short names with name="
        )


def limit_reached(limit: str, most: int) -> LimitReached:
    """The error of an enqueue that its limit refuses."""
    return LimitReached(
        f"limit {limit!r} is full: all {most:,} places are taken; enqueue again when a job has ended, or have jobs wait: "
        "Limit(when_full='wait')",
        limit=limit,
        most=most,
    )

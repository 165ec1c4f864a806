"""Plans: what to ask the database and what to make of the answers, without asking.

A plan is a value. It knows its name, its arguments and whether it needs a transaction, and it can be run any number of
times. The decorator :func:`plan` makes a function that returns plans of a generator function, which yields
:class:`Statement` and :class:`Copy` steps, is sent the rows of each, and returns the result. A plan decides on rows,
never on a driver's exceptions.

:func:`run` drives a plan over a blocking connection, :func:`arun` over an awaitable one, in a transaction if the plan
needs one. Nothing above this floor knows which. Plans compose with ``yield from``. A plan that needs a transaction can
only be composed into another one that says so, too: any other is refused when it is run.

A plan that is never run does nothing, and no error says so: plans stay private to the package, and every public
method runs its own.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache, partial, wraps
from inspect import signature
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, final, overload

from pgqueue.store.drive import adrive, drive

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Row: TypeAlias = tuple[Any, ...]


class Statement(NamedTuple):
    """One statement to run.

    Attributes:
        name: its file in ``sql/``.
        params: a value for each placeholder.
        returns: whether rows come back. Asking the driver instead costs 5 µs a statement.
    """

    name: str
    params: Mapping[str, object]
    returns: bool = True


class Copy(NamedTuple):
    """Rows to send with COPY.

    Attributes:
        name: the COPY statement's file in ``sql/``.
        chunks: rows in COPY's text format, many to a chunk.
    """

    name: str
    chunks: Iterable[bytes]


@final
class NeedsTransaction(NamedTuple):
    """A composed plan needs a transaction. The driver of plans answers this step; no connection is given it.

    Attributes:
        name: which plan.
    """

    name: str


Step: TypeAlias = Statement | Copy
Steps: TypeAlias = Generator[Step | NeedsTransaction, Sequence[Row], T]
"""What a plan's function returns: the steps of one run."""


class PlanKind(NamedTuple):
    """What all plans of one function have in common.

    Attributes:
        make: the generator function.
        name: its module's last name and its own, as in ``control.retry``.
        transaction: whether its steps belong together: all are done, or none.
        reads: whether it only looks, at what a replica may answer a moment late.
        adds: whether it adds jobs or a signal: a framework's database runs it in the app's own transaction.
    """

    make: Callable[..., Steps[Any]]
    name: str
    transaction: bool = False
    reads: bool = False
    adds: bool = False


class Plan(Generic[T_co]):
    """What to ask the database, with which arguments; made by a function that :func:`plan` decorates.

    An argument that is an iterator is drawn by the first run, and a second run finds it empty.

    Attributes:
        kind: what it has in common with other plans of the same function.
    """

    __slots__ = ("_args", "_kwargs", "kind")

    def __init__(self, kind: PlanKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.kind = kind
        self._args = args
        self._kwargs = kwargs

    @property
    def name(self) -> str:
        """Which plan it is, as in ``control.retry``."""
        return self.kind.name

    @property
    def arguments(self) -> dict[str, Any]:
        """Its arguments by the names of the parameters, defaults included."""
        names, defaults = _parameters(self.kind.make)  # Signature.bind() takes 14 µs, this 2 µs
        return {**defaults, **dict(zip(names, self._args, strict=False)), **self._kwargs}

    def but(self, **changes: object) -> "Plan[T_co]":
        """The same plan with other values for some of its arguments."""
        return Plan(self.kind, (), self.arguments | changes)

    def in_transaction(self) -> "Plan[T_co]":
        """The same plan, run in a transaction, or in a savepoint, though it does not need one."""
        return Plan(self.kind._replace(transaction=True), self._args, self._kwargs)

    def on_primary(self) -> "Plan[T_co]":
        """The same plan, for a caller that must see what it has just committed: no replica answers it."""
        return Plan(self.kind._replace(reads=False), self._args, self._kwargs)

    def steps(self) -> Steps[T_co]:
        """The steps of one run, from the first one on."""
        return self.kind.make(*self._args, **self._kwargs)

    def __iter__(self) -> Steps[T_co]:
        """Return the plan's steps as a part of another plan, for ``yield from``."""
        return (
            self._steps_in_transaction()
            if self.kind.transaction
            else self.kind.make(*self._args, **self._kwargs)
        )

    def __repr__(self) -> str:
        given = [*map(repr, self._args), *(f"{name}={value!r}" for name, value in self._kwargs.items())]
        return f"{self.name}({', '.join(given)})"

    def _steps_in_transaction(self) -> Steps[T_co]:
        yield NeedsTransaction(self.name)
        return (yield from self.steps())


@overload
def plan(make: Callable[P, Steps[T]], /) -> Callable[P, Plan[T]]: ...
@overload
def plan(
    *, transaction: bool = False, reads: bool = False, adds: bool = False
) -> Callable[[Callable[P, Steps[T]]], Callable[P, Plan[T]]]: ...
def plan(make: Callable[..., Steps[Any]] | None = None, /, **options: bool) -> Callable[..., Any]:
    """Make a generator function return plans: ``@plan``, ``@plan(transaction=True)``, ``@plan(reads=True)``, ``@plan(adds=True)``.

    Args:
        make: the generator function.
        options: ``transaction``: whether the steps belong together. Then a run of the plan is a transaction, or a savepoint
            where the caller has begun a transaction. ``reads``: whether the steps only look. Then a replica may answer, if
            the app has one: the answer may be a moment old. ``adds``: whether the steps add jobs or a signal.
    """
    if make is None:
        return lambda function: _plan_factory(function, **options)
    return _plan_factory(make, **options)


def _plan_factory(make: Callable[P, Steps[T]], **options: bool) -> Callable[P, Plan[T]]:
    kind = PlanKind(make, f"{make.__module__.rpartition('.')[2]}.{make.__qualname__}", **options)

    @wraps(make)
    def planned(*args: P.args, **kwargs: P.kwargs) -> Plan[T]:
        return Plan(kind, args, kwargs)

    return planned


class Runs(Protocol):
    """A connection that can run steps."""

    def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""

    def transaction(self) -> AbstractContextManager[object]:
        """The steps within are done all or none: in a transaction, or in a savepoint of the caller's."""


class RunsAsync(Protocol):
    """A connection that can run steps, awaited."""

    async def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """The steps within are done all or none: in a transaction, or in a savepoint of the caller's."""


def run(plan: Plan[T], connection: Runs) -> T:
    """Drive a plan over a blocking connection, in a transaction if it needs one; return its result."""
    if not plan.kind.transaction:
        return drive(plan.steps(), partial(_execute, plan, connection))
    with connection.transaction():
        return drive(plan.steps(), partial(_execute, plan, connection))


async def arun(plan: Plan[T], connection: RunsAsync) -> T:
    """Drive a plan over an awaitable connection, in a transaction if it needs one; return its result."""
    if not plan.kind.transaction:
        return await adrive(plan.steps(), partial(_aexecute, plan, connection))
    async with connection.transaction():
        return await adrive(plan.steps(), partial(_aexecute, plan, connection))


def _execute(plan: Plan[Any], connection: Runs, step: Step | NeedsTransaction) -> Sequence[Row]:
    if type(step) is NeedsTransaction:
        return _require_transaction(plan, step)
    return connection.execute(step)


async def _aexecute(plan: Plan[Any], connection: RunsAsync, step: Step | NeedsTransaction) -> Sequence[Row]:
    if type(step) is NeedsTransaction:
        return _require_transaction(plan, step)
    return await connection.execute(step)


def _require_transaction(plan: Plan[Any], part: NeedsTransaction) -> Sequence[Row]:
    if not plan.kind.transaction:
        raise TypeError(
            f"{plan.name} runs {part.name}, which needs a transaction: decorate it with @plan(transaction=True)"
        )
    return ()


@cache
def _parameters(make: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, object]]:
    """Return the names of a function's parameters, and the defaults of those that have one."""
    found = signature(make).parameters
    return (*found,), {name: one.default for name, one in found.items() if one.default is not one.empty}

"""Plans: what to ask the database and what to make of the answers, without asking.

A plan is a generator. It yields :class:`Statement` and :class:`Copy` steps, is sent the rows of each, and
returns its result. :func:`run` drives one over a blocking connection, :func:`arun` over an awaitable one,
and nothing above this floor knows which. Plans compose with ``yield from``; they decide on rows, never on
a driver's exceptions; and they are used once, so whoever retries takes a function that makes them.

A plan that is never run does nothing, which is easy to overlook: plans stay private to the package, and
every public method runs its own.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
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


Step: TypeAlias = Statement | Copy
Plan: TypeAlias = Generator[Step, Sequence[Row], T]


class Runs(Protocol):
    """A connection that can run a step."""

    def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""


class RunsAsync(Protocol):
    """A connection that can run a step, awaited."""

    async def execute(self, step: Step, /) -> Sequence[Row]:
        """Run one step and return its rows."""


def run(plan: Plan[T], connection: Runs) -> T:
    """Drive a plan over a blocking connection, and return its result."""
    try:
        step = next(plan)
        while True:
            step = plan.send(connection.execute(step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # a plan's return value, which StopIteration types as Any


async def arun(plan: Plan[T], connection: RunsAsync) -> T:
    """Drive a plan over an awaitable connection, and return its result."""
    try:
        step = next(plan)
        while True:
            step = plan.send(await connection.execute(step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # as above

"""What a process knows of the shards of a queue, and how what is asked of one is driven.

A :data:`Route` is a generator, as a plan is: it yields which plan to run on which database, and is sent the answer or thrown
the error. So there is one copy of it for blocking and awaited calls.
"""

import time
from collections.abc import Generator, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pgqueue.errors import ConfigurationError, ConnectionFailed, SchemaError, ShardDown
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.dsn import without_secrets
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.plan import Plan
from pgqueue.store.shards import shards
from pgqueue.values.shards import MOST_SHARDS, ShardState

T = TypeVar("T")

ASK_AGAIN_AFTER = 60.0
"""Seconds after which the databases are asked again, if one did not answer: jobs without keys go there, too, when it does."""
AGAIN_AFTER = 5.0
"""Seconds for which a database that did not answer is not asked."""


class ShardPlan(NamedTuple):
    """A plan to run.

    Attributes:
        database: where.
        plan: which.
        connection: the caller's connection; None: one of the database's own.
    """

    database: Database
    plan: Plan[Any]
    connection: object = None

    def run(self) -> Any:  # noqa: ANN401 - the plan's own
        """Run it."""
        return self.database.run(self.plan, self.connection)

    async def arun(self) -> Any:  # noqa: ANN401 - the plan's own
        """As :meth:`run`, awaited."""
        return await self.database.arun(self.plan, self.connection)


Route: TypeAlias = Generator[ShardPlan, Any, T]


class Shard(NamedTuple):
    """What is known of a shard.

    Attributes:
        database: where it is.
        state: what it says of itself; None: it is no shard, or it does not answer.
        error: why it does not answer; None: it does.
    """

    database: Database
    state: ShardState | None
    error: str | None = None

    @property
    def dsn(self) -> str:
        """Where it is, without secrets."""
        return without_secrets(self.database.dsn)


class ShardDatabases:
    """The databases of one queue, and what they said of themselves when this process asked."""

    def __init__(self, databases: Sequence[Database]) -> None:
        self.databases = databases
        self._shards: list[Shard] | None = None
        self._ask_again_at = float("inf")
        self._away: dict[int, tuple[float, str]] = {}
        self._turn = count()

    def forget(self) -> None:
        """Ask the databases again what they are, when it is next needed."""
        self._shards = None

    def known(self) -> "Route[list[Shard]]":
        """What the databases say of themselves, as this process last heard it."""
        held = self._shards
        if held is None or time.monotonic() >= self._ask_again_at:
            held = []
            for one in self.databases:
                held.append((yield from self._ask_shard(one)))
            _require_shards(held)
            self._shards = held
            some_away = any(one.error for one in held)
            self._ask_again_at = time.monotonic() + (ASK_AGAIN_AFTER if some_away else float("inf"))
        return held

    def map(self) -> "Route[ShardState]":
        """On which shards keys live. Of a move, the last member has the word: it hears of the end last."""
        known = [one.state for one in (yield from self.known()) if one.state is not None]
        longest = max(known, key=lambda one: len(one.members))
        last = next((one for one in known if one.number == longest.members[-1]), None)
        return ShardState(longest.number, longest.members, last is None or last.moving)

    def at(self, number: int) -> "Route[Database]":
        """The database of a shard, also of one that has begun to answer."""
        for again in (False, True):
            if again:
                yield from self._ask_those_away()
            for one in (yield from self.known()):
                if one.state is not None and one.state.number == number:
                    return one.database
        away = "; ".join(f"{one.dsn}: {one.error}" for one in (yield from self.known()) if one.error)
        if number >= MOST_SHARDS:
            raise ShardDown(f"there is no shard {number}: this id is of no job")
        raise ShardDown(
            f"shard {number} does not answer ({away}); jobs of other shards go on"
            if away
            else f"shard {number} is not among PgQueue(shards=...): it was added, so give this program its DSN"
        )

    def on_shard(self, number: int, plan: Plan[T]) -> Route[T]:
        """Run a plan on a shard.

        Raises:
            ShardDown: it does not answer, or is not in the list.
        """
        database = yield from self.at(number)
        if (said := self._is_away(database)) is not None:
            raise ShardDown(f"shard {number} did not answer a moment ago; jobs of other shards go on: {said}")
        try:
            return (yield ShardPlan(database, plan, OWN_CONNECTION))  # type: ignore[no-any-return]  # the plan's result
        except ConnectionFailed as error:
            self.note_away(database, error)
            raise _down(number, error) from error

    def in_turn(self) -> "Route[list[Shard]]":
        """The members that answered, another one first each time; those that did not answer of late are last."""
        known = yield from self.known()
        members = (yield from self.map()).members
        ready = [one for one in known if one.state is not None and one.state.number in members]
        first = next(self._turn)
        turns = [ready[(first + at) % len(ready)] for at in range(len(ready))]
        return sorted(turns, key=lambda one: self._is_away(one.database) is not None)

    def note_away(self, database: Database, error: ConnectionFailed) -> None:
        """Remember that a database did not answer, so that other callers do not wait for it, too."""
        if not error.maybe_done:
            self._away[id(database)] = time.monotonic() + AGAIN_AFTER, str(error)

    def _is_away(self, database: Database) -> str | None:
        """Return why a database did not answer a moment ago; None: it did, or may be asked again."""
        until, said = self._away.get(id(database), (0.0, ""))
        return said if time.monotonic() < until else None

    def _ask_shard(self, database: Database) -> Route[Shard]:
        if (said := self._is_away(database)) is not None:
            return Shard(database, None, said)
        try:
            return Shard(database, (yield ShardPlan(database, shards.state(), OWN_CONNECTION)))
        except ConnectionFailed as error:
            self.note_away(database, error)
            return Shard(database, None, str(error))
        except SchemaError as error:
            raise type(error)(f"{without_secrets(database.dsn)}: {error}") from error

    def _ask_those_away(self) -> Route[None]:
        """Ask again those that did not answer; the others stay as they are known."""
        asked = [*(yield from self.known())]
        for place, one in enumerate(asked):
            if one.error is not None:
                asked[place] = yield from self._ask_shard(one.database)
        _require_shards(asked)
        self._shards = asked


def _require_shards(found: Sequence[Shard]) -> None:
    answer = [one for one in found if one.error is None]
    if not answer:
        raise ShardDown(f"no shard answers: {found[0].error}")
    if all(one.state is None for one in answer):
        raise ConfigurationError(
            f"{answer[0].dsn} is no shard yet: declare the databases of the list with `pgqueue shards init`"
        )
    _require_different(found)


def _require_different(found: Sequence[Shard]) -> None:
    """Refuse a list in which one database is named twice: by a name and an alias, or through a pooler."""
    seen: dict[int, Shard] = {}
    for one in found:
        if one.state is not None and (other := seen.setdefault(one.state.number, one)) is not one:
            raise ConfigurationError(
                f"{other.dsn} and {one.dsn} are both shard {one.state.number}: give each database once, and those of one queue only"
            )


def _down(number: int, error: ConnectionFailed) -> ShardDown:
    down = ShardDown(f"shard {number} does not answer; jobs of other shards go on: {error}")
    down.maybe_done = error.maybe_done
    return down

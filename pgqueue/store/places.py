"""What a process knows of the shards of a queue, and how what is asked of one is driven.

A :data:`Route` is a generator, as a plan is: it yields which plan to run on which database, and is sent the answer or thrown
the error. So there is one copy of it for blocking and awaited calls.
"""

import time
from collections.abc import Generator, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeAlias, TypeVar

import psycopg

from pgqueue.errors import ConfigurationError, ConnectionFailed, ShardDown, WrongShard
from pgqueue.store import shards
from pgqueue.store.database import Database
from pgqueue.store.dsn import without_secrets
from pgqueue.store.joining import OWN_CONNECTION
from pgqueue.store.plan import Plan
from pgqueue.values.sharding import ShardState

T = TypeVar("T")

GUARDED = "PQ001"
"""The SQLSTATE with which a shard's guard refuses a transaction that has added a job with a key of another shard."""
ASK_AGAIN_AFTER = 60.0
"""Seconds after which the databases are asked again, if one did not answer: jobs without keys go there, too, when it does."""
AGAIN_AFTER = 5.0
"""Seconds for which a shard that did not answer is not asked for what others can do."""


class Ask(NamedTuple):
    """A plan to run.

    Attributes:
        database: where.
        plan: which.
        connection: the caller's connection; None: one of the database's own.
    """

    database: Database
    plan: Plan[Any]
    connection: object = None


Route: TypeAlias = Generator[Ask, Any, T]


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


class Places:
    """The databases of one queue, and what they said of themselves when this process asked."""

    def __init__(self, databases: Sequence[Database]) -> None:
        """Ask them when it is first needed."""
        self.databases = databases
        self._shards: list[Shard] | None = None
        self._ask_again_at = float("inf")
        self._away: dict[int, float] = {}
        self._turn = count()

    def forget(self) -> None:
        """Ask the databases again what they are, when it is next needed."""
        self._shards = None

    def known(self) -> "Route[list[Shard]]":
        """What the databases say of themselves, as this process last heard it."""
        now = time.monotonic()
        if self._shards is None or now >= self._ask_again_at:
            found = []
            for one in self.databases:
                try:
                    found.append(Shard(one, (yield Ask(one, shards.state(), OWN_CONNECTION))))
                except ConnectionFailed as error:
                    found.append(Shard(one, None, str(error)))
            if all(one.error for one in found):
                raise ShardDown(f"no shard answers: {found[0].error}")
            undeclared = [one.dsn for one in found if one.state is None and one.error is None]
            if len(undeclared) == sum(one.error is None for one in found):
                raise ConfigurationError(
                    f"{undeclared[0]} is no shard yet: declare the databases of the list with `pgqueue shards init`"
                )
            _require_different(found)
            self._shards = found
            self._ask_again_at = now + (ASK_AGAIN_AFTER if any(one.error for one in found) else float("inf"))
        return self._shards

    def map(self) -> "Route[ShardState]":
        """On which shards keys live. Of a move, the last member has the word: it hears of the end last."""
        known = [one.state for one in (yield from self.known()) if one.state is not None]
        longest = max(known, key=lambda one: len(one.members))
        last = next((one for one in known if one.number == longest.members[-1]), None)
        return ShardState(longest.number, longest.members, last is None or last.moving)

    def at(self, number: int) -> "Route[Database]":
        """The database of a shard, also of one that has begun to answer."""
        for again in (False, True):
            for one in (yield from self.known()):
                if one.state is not None and one.state.number == number:
                    return one.database
            if not again:
                self._shards = None
        away = "; ".join(f"{one.dsn}: {one.error}" for one in (yield from self.known()) if one.error)
        self._shards = None  # asked again by the next call
        raise ShardDown(
            f"shard {number} does not answer ({away}); jobs of other shards go on"
            if away
            else f"shard {number} is not among PgQueue(shards=...): it was added, so give this program its DSN"
        )

    def on_shard(self, number: int, plan: Plan[T]) -> Route[T]:
        """Run a plan on a shard.

        Raises:
            ShardDown: it does not answer, or is not in the list.
            WrongShard: its guard has refused a job whose key lives on another one.
        """
        database = yield from self.at(number)
        try:
            return (yield Ask(database, plan, OWN_CONNECTION))  # type: ignore[no-any-return]  # the plan's result
        except ConnectionFailed as error:
            raise _down(number, error) from error
        except psycopg.Error as error:
            if error.sqlstate == GUARDED:
                raise WrongShard(f"{error.diag.message_primary}. {error.diag.message_hint}") from error
            raise

    def in_turn(self) -> "Route[list[Shard]]":
        """The members that answered, another one first each time; those that did not answer of late are last."""
        known = yield from self.known()
        members = (yield from self.map()).members
        ready = [one for one in known if one.state is not None and one.state.number in members]
        first, now = next(self._turn), time.monotonic()
        turns = [ready[(first + at) % len(ready)] for at in range(len(ready))]
        return sorted(turns, key=lambda one: self._away.get(id(one.database), 0.0) > now)

    def note_away(self, shard: Shard) -> None:
        """Remember that a shard did not answer."""
        self._away[id(shard.database)] = time.monotonic() + AGAIN_AFTER


def _require_different(found: Sequence[Shard]) -> None:
    """Refuse a list in which one database is named twice: by a name and an alias, or through a pooler.

    Raises:
        ConfigurationError: it is.
    """
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

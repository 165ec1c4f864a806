"""What operators do to the shards of a queue: declare them, add one, end the move of its keys.

Each step can be repeated: one that was interrupted is done again, and changes nothing of what was done before.
docs/explain/shards.md says what holds between the steps.
"""

from collections.abc import Sequence

from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database
from pgqueue.store.plan import run
from pgqueue.store.schema.schema import statements
from pgqueue.store.shards import shards
from pgqueue.store.shards.sharded import ShardedDatabase
from pgqueue.values.shards import MOST_SHARDS, ShardState

GUARD = "shard_guard"


def declare(queue: ShardedDatabase) -> list[ShardState]:
    """Make the databases the shards 0, 1, … of a new queue, in the order of the list.

    Raises:
        ConfigurationError: one is another shard already, or holds jobs, with which only the first may begin, alone.
    """
    members = range(len(queue.databases))
    for number, one in enumerate(queue.databases):
        found = one.run(shards.state())
        if found is not None and (found.number != number or found.members != tuple(members)):
            raise ConfigurationError(
                f"database {number} of the list is shard {found.number} of {len(found.members)} already: add one with "
                "`pgqueue shards add`"
            )
        _, keys = one.run(shards.content())
        if keys and found is None and len(members) > 1:
            raise ConfigurationError(
                f"database {number} of the list has live jobs with keys, which may have to live elsewhere: declare it alone, "
                "shards=[it], and add the others with `pgqueue shards add`"
            )
    for number, one in enumerate(queue.databases):
        _install(one)
        # Later it has settings of its own. They are copied before it is a shard: an interrupted try copies them again.
        if number and one.run(shards.state()) is None:
            one.run(shards.put_settings(queue.databases[0].run(shards.settings())))
        one.run(shards.declare(number, members))
    return _states(queue)


def add(queue: ShardedDatabase) -> list[ShardState]:
    """Add the one database of the list that is no shard yet, and let keys move to it.

    Raises:
        ConfigurationError: there is no such database, or several; another move has not ended.
        ConnectionFailed: a shard does not answer. Nothing is undone: add it again when it does.
    """
    known = [(one, one.run(shards.state())) for one in queue.databases]
    states = [state for _, state in known if state is not None]
    if not states:
        raise ConfigurationError(
            "no database of the list is a shard: declare the first ones with `pgqueue shards init`"
        )
    longest = max((state.members for state in states), key=len)
    new = [one for one, state in known if state is None or state.number not in longest]
    if len(new) > 1:
        raise ConfigurationError(f"{len(new)} databases of the list are no shards: add one at a time")
    if not new and all(state.members == longest for state in states):
        raise ConfigurationError("every database of the list is a shard already")
    if new and any(state.moving for state in states):
        raise ConfigurationError(
            "keys are still moving to the shard that was added last: end that with `pgqueue shards finish`"
        )
    if new:  # else the last try was interrupted, and the others are told again
        number = max(longest) + 1
        if number >= MOST_SHARDS:
            raise ConfigurationError(f"{MOST_SHARDS:,} shards are the most")
        _install(new[0])
        new[0].run(shards.declare(number, longest))
        member = next(one for one, state in known if state is not None and state.number in longest)
        new[0].run(shards.put_settings(member.run(shards.settings())))
        longest = (*longest, number)
    _tell(queue, longest)
    return _states(queue)


def finish(queue: ShardedDatabase) -> dict[int, int]:
    """End the move where no key is left to move.

    Returns:
        By the number of each shard that keys move from, how many keys still live there; all 0: the move has ended.
    """
    states = {state.number: one for one in queue.databases if (state := one.run(shards.state())) is not None}
    members = _states(queue)[0].members
    missing = [number for number in members if number not in states]
    if missing:
        raise ConfigurationError(f"shard {missing[0]} is not in the list: name all shards to end a move")
    newest = members[-1]
    left = {number: states[number].run(shards.settle()) for number in members if number != newest}
    if not any(left.values()):
        states[newest].run(shards.settle(newest=True))
    queue.forget()
    return left


def _tell(queue: ShardedDatabase, members: Sequence[int]) -> None:
    known = [(one, one.run(shards.state())) for one in queue.databases]
    # The new shard first, so that what has left another is taken there.
    known.sort(key=lambda pair: pair[1] is None or pair[1].number != members[-1])
    for one, _ in known:
        one.run(shards.begin(members))
    queue.forget()


def _states(queue: ShardedDatabase) -> list[ShardState]:
    queue.forget()
    found = [one.run(shards.state()) for one in queue.databases]
    return [one for one in found if one is not None]


def _install(database: Database) -> None:
    with database.connect() as connection, connection.transaction():
        # Two at once would make the same table, and one would fail.
        run(shards.alone(), connection.steps(database.catalogue))
        connection.execute(statements(GUARD, database.catalogue.schema).encode())

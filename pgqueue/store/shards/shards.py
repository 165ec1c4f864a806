"""Plans about the shards of a queue: what each says of itself, and how one is added. docs/explain/shards.md has the protocol."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pgqueue.errors import ConfigurationError
from pgqueue.store.plan import Plan, Statement, Steps, plan
from pgqueue.values.shards import ShardState, first_id

T = TypeVar("T")


class KeyedEnqueue(NamedTuple):
    """What came of adding a job with a key.

    Attributes:
        verdict: ``here``: it was added; ``gone``: the key has moved to the last member; ``elsewhere``: its home is another
            shard; ``isolation``: the transaction cannot see whether the key has moved; ``undeclared``: this is no shard.
        answer: what the enqueue answered; None: it was not asked.
    """

    verdict: str
    answer: Any


@plan(transaction=True)
def enter(key: str, part: Plan[Any], *, arrives: bool = False) -> Steps[KeyedEnqueue]:
    """Add what lives by a key, if it may be added here.

    Args:
        key: what it lives by.
        part: adds it.
        arrives: the former home has said that the key is gone.
    """
    ((verdict,),) = yield Statement("shards/enter", {"key": key, "arrives": arrives})
    if verdict != "here":
        return KeyedEnqueue(str(verdict), None)
    return KeyedEnqueue("here", (yield from part))


@plan
def state() -> Steps[ShardState | None]:
    """What this database says of itself; None: it is no shard."""
    if not (yield Statement("shards/there", {}))[0][0]:
        return None
    return _state((yield Statement("shards/state", {})))


@plan
def content() -> Steps[tuple[bool, bool]]:
    """Whether the database has jobs, and whether live ones have keys."""
    ((jobs, keys),) = yield Statement("shards/content", {})
    return jobs, keys


@plan
def settings() -> Steps[dict[str, str]]:
    """What operators have said of queues and limits here."""
    ((queues, limits),) = yield Statement("shards/settings", {})
    return {"queues": queues, "limits": limits}


@plan
def put_settings(said: Mapping[str, str]) -> Steps[None]:
    """Store what :func:`settings` returned on another shard."""
    yield Statement("shards/put_settings", said, returns=False)


@plan
def remaining() -> Steps[int]:
    """How many keys live here whose home is another shard."""
    return int((yield Statement("shards/remaining", {}))[0][0])


@plan
def alone() -> Steps[None]:
    """Wait until no other operator changes this shard; none does until the transaction ends."""
    yield Statement("shards/alone", {}, returns=False)


@plan(transaction=True)
def declare(number: int, members: Sequence[int]) -> Steps[None]:
    """Say which shard this is. The guard must be installed.

    Raises:
        ConfigurationError: it is another shard already, or its jobs have ids of another one.
    """
    yield from alone()
    found = _state((yield Statement("shards/state", {})))
    if found is not None:
        if found.number != number:
            raise ConfigurationError(
                f"this database is shard {found.number} already; it cannot become shard {number}"
            )
        return
    jobs, _ = yield from content()
    if jobs and number != 0:
        raise ConfigurationError(
            f"this database has jobs, whose ids say that they are of shard 0; only an empty one can become shard {number}"
        )
    yield Statement("shards/number_ids", {"first": first_id(number)})
    yield Statement("shards/set", _params(number, members, moving=False), returns=False)


@plan(transaction=True)
def begin(members: Sequence[int]) -> Steps[None]:
    """From now on keys move from or to this shard: the last of the members is new."""
    found = yield from _locked_state()
    if found.members != tuple(members):
        yield Statement("shards/set", _params(found.number, members, moving=True), returns=False)


@plan(transaction=True)
def settle(*, newest: bool = False) -> Steps[int]:
    """End the move on this shard, if no key is left to move.

    Args:
        newest: this is the shard that was added: all others have ended the move.

    Returns:
        How many keys still live here; 0: the move has ended.
    """
    found = yield from _locked_state()
    left = 0 if newest or not found.moving else (yield from remaining())
    if not left:
        yield Statement("shards/set", _params(found.number, found.members, moving=False), returns=False)
    return left


def _locked_state() -> Steps[ShardState]:
    yield from alone()
    found = _state((yield Statement("shards/lock", {})))
    if found is None:
        raise ConfigurationError(
            "this database is no shard: declare it with `pgqueue shards init` or `pgqueue shards add`"
        )
    return found


def _state(rows: Sequence[Any]) -> ShardState | None:
    if not rows:
        return None
    number, members, moving = rows[0]
    return ShardState(number, tuple(members), moving)


def _params(number: int, members: Sequence[int], *, moving: bool) -> dict[str, object]:
    return {"number": number, "members": list(members), "moving": moving}

"""Promise 4, over several servers: while a shard is added under load, no unique key is live on two shards.

Three real servers, and programs of every kind at once: with the old list, with the new one, one that loaded what it knows before
the move, and one that knows nothing of shards. A job is certainly live from the return of its enqueue until just before it is
cancelled; all clocks are this process's. Two such times of one key must not overlap.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import psycopg
import pytest
from servers import on_the_oldest

from pgqueue import JobHandle, Limit, PgQueue, Unique
from pgqueue.app.shards import sharded_database
from pgqueue.embedded import embedded_binaries, throwaway_server
from pgqueue.errors import ShardDown, WrongShard
from pgqueue.store.schema import schema
from pgqueue.store.shards import resharding
from pgqueue.testing.databases import hasten
from pgqueue.values.shards import home_of, shard_of_id

pytestmark = pytest.mark.skipif(on_the_oldest(), reason="three servers are made of the embedded binaries")
KEYS = 24
ENQUEUES = 40
"""Of each program, in each phase."""
REFUSED = (WrongShard, ShardDown)


class Live(NamedTuple):
    """A time in which a job was certainly live."""

    key: int
    shard: int
    since: float
    until: float


class Load:
    """Programs that enqueue and cancel jobs of the same keys, all the time."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.live: list[Live] = []
        self.refused = 0
        self.done: dict[str, int] = {}
        self._lock = threading.Lock()

    def program(self, name: str, queue: PgQueue, keys: range, task: str) -> None:
        """Enqueue and cancel until told to stop."""
        rng = random.Random(name)  # noqa: S311 - no secret
        while not self.stop.is_set():
            key = rng.choice(keys)
            try:
                handle = queue.find_task(task).enqueue(key)
            except (*REFUSED, psycopg.DatabaseError) as error:
                if isinstance(error, psycopg.DatabaseError) and error.sqlstate != "PQ001":
                    raise
                self._note(name, None)
                continue
            since = time.monotonic()
            if not handle.accepted:
                self._note(name, None)
                continue
            time.sleep(rng.random() / 200)  # the job is live: other programs meet it
            until = time.monotonic()
            assert handle.cancel() == "cancelled"
            self._note(name, Live(key, shard_of_id(handle.id), since, until))

    def _note(self, name: str, live: Live | None) -> None:
        with self._lock:
            self.done[name] = self.done.get(name, 0) + 1
            if live is None:
                self.refused += 1
            else:
                self.live.append(live)

    def hold(self, queue: PgQueue, keys: range, task: str) -> dict[int, tuple[JobHandle[Any], float]]:
        """A live job of each key, from now until :meth:`release`."""
        held: dict[int, tuple[JobHandle[Any], float]] = {}
        while len(held) < len(keys):
            for key in keys:
                if key not in held and (handle := queue.find_task(task).enqueue(key)).accepted:
                    held[key] = handle, time.monotonic()
        return held

    def release(self, held: dict[int, tuple[JobHandle[Any], float]]) -> None:
        """Cancel them."""
        for key, (handle, since) in held.items():
            until = time.monotonic()
            assert handle.cancel() == "cancelled"
            self._note("held", Live(key, shard_of_id(handle.id), since, until))

    def goes_on(self) -> None:
        """Wait until every program has done its part of a phase."""
        before = {name: done for name, done in self.done.items() if name != "held"}
        while any(self.done.get(name, 0) < before.get(name, 0) + ENQUEUES for name in before):
            time.sleep(0.01)

    def overlaps(self) -> list[tuple[Live, Live]]:
        """Pairs of one key that were live at the same time."""
        found = []
        for key in {one.key for one in self.live}:
            ordered = sorted((one for one in self.live if one.key == key), key=lambda one: one.since)
            found += [(one, other) for one, other in itertools.pairwise(ordered) if other.since < one.until]
        return found


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    """The DSNs of three servers with the tables."""
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        binaries = embedded_binaries()
        made = [*pool.map(lambda _: stack.enter_context(throwaway_server(binaries)).dsn, range(3))]
        for dsn in made:
            hasten(dsn)
            schema.migrate(dsn)
        yield made


@pytest.fixture
def program() -> Iterator[Callable[..., PgQueue]]:
    """``program(shards=[...])`` or ``program(dsn)``: a queue with the tasks, closed at the end."""
    made: list[PgQueue] = []

    def make(*args: str, **options: list[str]) -> PgQueue:
        queue = PgQueue(*args, **options)  # type: ignore[arg-type]  # a DSN, or shards
        queue.task(name="keyed", unique=Unique(by="n"))(_echo)
        queue.task(name="limited", unique=Unique(by="n"), limit=Limit(1, by="n"))(_echo)
        made.append(queue)
        return queue

    yield make
    for queue in made:
        queue.close()


@pytest.mark.parametrize("task", ["keyed", "limited"])
def test_no_key_is_live_on_two_shards_while_a_shard_is_added_under_load(
    servers: list[str], program: Callable[..., PgQueue], task: str
) -> None:
    _anew(servers)
    old, new = program(shards=servers[:2]), program(shards=servers)
    resharding.declare(sharded_database(old))
    knowing = program(shards=servers)
    assert sharded_database(knowing).members() == (0, 1)
    load, threads = Load(), []
    on_first = program(servers[0])
    programs = {"old": old, "new": new, "knowing": knowing, "unsharded": on_first}
    for name, queue in programs.items():
        load.done[name] = 0
        threads.append(threading.Thread(target=load.program, args=(name, queue, range(KEYS), task)))
    for thread in threads:
        thread.start()
    try:
        load.goes_on()
        held = load.hold(old, range(KEYS), task)
        operator = sharded_database(program(shards=servers))
        resharding.add(operator)
        load.goes_on()
        assert any(resharding.finish(operator).values()), "keys that are held do not move"
        load.release(held)
        load.goes_on()
        while any(resharding.finish(operator).values()):
            time.sleep(0.01)
        load.goes_on()
    finally:
        load.stop.set()
        for thread in threads:
            thread.join()

    assert load.overlaps() == []
    assert {one.shard for one in load.live} == {0, 1, 2}, "keys have moved"
    assert load.refused
    for key in range(KEYS):
        stored = _key(task, key)
        if home_of(stored, (0, 1, 2)) == 2:
            with pytest.raises(ShardDown, match="is not among PgQueue"):
                old.find_task(task).enqueue(key)
        else:
            assert (
                shard_of_id(old.find_task(task).enqueue(key).id)
                == home_of(stored, (0, 1))
                == home_of(stored, (0, 1, 2))
            )


def _key(task: str, n: int) -> str:
    return f'keyed{{"n":{n}}}' if task == "keyed" else f'task:limited:n {{"n":{n}}}'


def _anew(dsns: list[str]) -> None:
    for dsn in dsns:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("drop schema pgqueue cascade")
        schema.migrate(dsn)


def _echo(n: int) -> int:
    return n

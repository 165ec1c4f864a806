"""The enqueuer: a process that adds orders with their jobs at a steady rate, as an app does while faults happen.

Each batch is one transaction on the enqueuer's own connection: rows of ``orders`` and the jobs of these orders. After the commit
the batch is logged as acknowledged. Where the connection is lost while the commit is under way, only the database knows
whether it happened: such a batch is logged as unknown. An order's number is never used again.

Started as ``python -m pgqueue.chaos.load``; it ends when it gets SIGTERM or has added all orders.
"""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import psycopg

from pgqueue.app.flows.chains import chain, group
from pgqueue.app.task import Call, Task
from pgqueue.chaos import tasks
from pgqueue.chaos.kinds import KINDS, LIMIT, enqueued, key_of, name_of
from pgqueue.chaos.log import FOLDER, HistoryLog, log_of_process
from pgqueue.chaos.tasks import SCHEMA
from pgqueue.errors import PgQueueError

ROLL_BACK_EVERY = 20
"""After this number of batches the caller rolls one back."""
MOST_BEHIND = 10.0
"""Seconds of the load that are made good after an outage."""
PAUSE = 0.1
"""Seconds between two tries while the database is away."""
Commit: TypeAlias = Literal["acknowledged", "unknown", "rolled_back"]
ORDERS = f"insert into {SCHEMA}.orders (number, kind) select * from unnest(%s::bigint[], %s::text[])"


class OrderLoad(msgspec.Struct, frozen=True):
    """What one enqueuer does.

    Attributes:
        first: its first order's number; it uses each ``step``-th number from there on.
        step: how many enqueuers there are.
        orders: how many to add; 0: until it is told to stop.
        rate: orders a second.
        batch: orders of a transaction.
        seed: of the choice of kinds.
        only: the one kind to add; None: all of them.
    """

    first: int = 1
    step: int = 1
    orders: int = 0
    rate: float = 100.0
    batch: int = 10
    seed: int = 0
    only: str | None = None


class Enqueuer:
    """Adds orders until it is told to stop."""

    def __init__(self, load: OrderLoad, dsn: str, log: HistoryLog) -> None:
        self._load = load
        self._dsn = dsn
        self._log = log
        self._random = random.Random(load.seed * 1_000 + load.first)  # noqa: S311 - a choice that can be repeated
        self._numbers = iter(range(load.first, sys.maxsize, load.step))
        self._connection: psycopg.Connection[Any] | None = None
        self.told_to_stop = threading.Event()

    def run(self) -> None:
        """Add all, at the rate; after an outage it catches up at most ten seconds."""
        load = self._load
        began, added, batches = time.monotonic(), 0, 0
        while not self.told_to_stop.is_set() and (not load.orders or added < load.orders):
            behind = (time.monotonic() - began) * load.rate - added
            if behind > load.rate * MOST_BEHIND:
                began += behind / load.rate - MOST_BEHIND
            if behind < load.batch:
                self.told_to_stop.wait((load.batch - behind) / load.rate)
                continue
            batches += 1
            if self._add(load.batch, rolls_back=batches % ROLL_BACK_EVERY == 0):
                added += load.batch
            else:
                self.told_to_stop.wait(PAUSE)

    def _add(self, count: int, *, rolls_back: bool) -> bool:
        """Add a batch in one transaction; return whether the server answered."""
        batch = OrderBatch(self._choice(next(self._numbers)) for _ in range(count))
        commit: Commit = "rolled_back"  # unless it comes to a commit
        try:
            connection = self._connected()
            with connection.transaction():
                batch.enqueue(connection)
                if rolls_back:
                    raise psycopg.Rollback
                commit = "unknown"
            commit = "rolled_back" if rolls_back else "acknowledged"
        except (psycopg.Error, PgQueueError):
            self._disconnect()
            return False
        finally:
            self._write(batch.accepted, commit)
        if commit == "acknowledged":
            self._add_alone(next(self._numbers))
        return True

    def _add_alone(self, number: int) -> None:
        commit: Commit = "unknown"
        try:
            tasks.plain.enqueue(name_of("plain", number))
            commit = "acknowledged"
        except (psycopg.Error, PgQueueError):
            pass
        finally:
            self._write([OrderRow(number, "plain")], commit)

    def _write(self, orders: Iterable["OrderRow"], commit: "Commit") -> None:
        at = time.monotonic()
        jobs = (job for order in orders for job in enqueued(order.kind, order.number))
        self._log.write(*(msgspec.structs.replace(job, at=at, commit=commit) for job in jobs))

    def _choice(self, number: int) -> "OrderRow":
        if self._load.only:
            return OrderRow(number, self._load.only)
        (kind,) = self._random.choices([*KINDS], [kind.weight for kind in KINDS.values()])
        return OrderRow(number, kind)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = tasks.queue.database.connect(self._dsn)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class OrderRow(NamedTuple):
    """One row of ``orders``."""

    number: int
    kind: str


class OrderBatch:
    """Orders that are added together.

    Attributes:
        accepted: those whose jobs were added: not those whose unique key is taken.
    """

    def __init__(self, orders: Iterable[OrderRow]) -> None:
        self._orders = list(orders)
        self.accepted = self._orders

    def enqueue(self, connection: psycopg.Connection[Any]) -> None:
        """Add the orders and their jobs, in the connection's transaction."""
        calls = [_call(order) for order in self._orders if order.kind in SIMPLE]
        tasks.queue.enqueue_many(calls, connection=connection)
        self.accepted = [order for order in self._orders if _is_added(order, connection)]
        numbers = [order.number for order in self.accepted]
        connection.execute(ORDERS.encode(), [numbers, [order.kind for order in self.accepted]])


SIMPLE = frozenset(KINDS) - {"chained", "grouped", "keyed"}


def _call(order: OrderRow) -> Call[None]:
    name = name_of(order.kind, order.number)
    if order.kind == LIMIT:
        return tasks.limited.call(name, key_of(order.number))
    task: Task[[str], None] = getattr(tasks, order.kind)
    return task.call(name)


def _is_added(order: OrderRow, connection: psycopg.Connection[Any]) -> bool:
    """Add the jobs of an order that is not simple; return whether they were added."""
    names = [name_of(order.kind, order.number, part) for part in KINDS[order.kind].parts]
    match order.kind:
        case "chained":
            chain(*map(tasks.chained.call, names)).enqueue(connection=connection)
        case "grouped":
            members = map(tasks.grouped.call, names[:-1])
            group(members, on_success=tasks.grouped.call(names[-1])).enqueue(connection=connection)
        case "keyed":
            keyed = tasks.keyed.using(connection=connection, unique_key=f"key {key_of(order.number)}")
            return keyed.enqueue(names[0]).accepted
    return True


def main() -> None:
    """Read what to do from the command line, and do it."""
    load = msgspec.json.decode(sys.argv[1], type=OrderLoad)
    log = log_of_process(Path(os.environ[FOLDER]), "enqueuer")
    enqueuer = Enqueuer(load, tasks.queue.database.dsn, log)
    signal.signal(signal.SIGTERM, lambda *_: enqueuer.told_to_stop.set())
    threading.Thread(target=_stop_with_parent, args=[os.getppid(), enqueuer], daemon=True).start()
    enqueuer.run()


def _stop_with_parent(parent: int, enqueuer: Enqueuer) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    enqueuer.told_to_stop.set()


if __name__ == "__main__":
    main()

"""What the tests of promises 7 to 9 share: the tasks of a process with a wrong clock, and small questions."""

import signal
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
from promises.skewed import run_until_told
from psycopg import ClientCursor
from tenacity import wait_fixed

from pgqueue import OWN_CONNECTION, PgQueue, Retry, Snooze
from pgqueue.store.connections.connection import StepRunner
from pgqueue.store.connections.session import PLANNER
from pgqueue.store.plan import Plan, run
from pgqueue.store.workers import leases
from pgqueue.worker.worker import Worker

HOUR = timedelta(hours=1)
SET_PLANNER: LiteralString = "; ".join(f"set {name} = {value}" for name, value in PLANNER.items())
LEASE = timedelta(seconds=30)


def main(verb: str, dsn: str) -> None:
    """What the process with the wrong clock does."""
    queue = PgQueue(dsn)
    note, *_ = register_tasks(queue)
    if verb == "enqueue":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note.enqueue("now")
        note.using(delay=HOUR).enqueue("later")
        keyed = note.using(delay=HOUR, unique_key="key")
        queue.enqueue_many([note.call("now"), note.using(delay=HOUR).call("later"), keyed.call("later")])
        queue.close()
    else:
        worker = Worker(
            queue, lease=LEASE, poll=timedelta(seconds=0.1), sweep=timedelta(seconds=0.1), grace=timedelta(0)
        )
        run_until_told(worker.run(), worker.stop)


def register_tasks(queue: PgQueue) -> Sequence[Any]:
    """The tasks that both sides know: one that ends, one that fails, one that snoozes."""

    @queue.task(name="note")
    async def note(_text: str) -> None: ...

    @queue.task(name="fail", retry=Retry(wait=wait_fixed(3600)))
    async def fail() -> None:
        raise ValueError("as asked")

    @queue.task(name="snooze")
    async def snooze() -> None:
        raise Snooze(HOUR)

    return note, fail, snooze


def do(queue: PgQueue, plan: Plan[Any]) -> Any:
    """Run a plan of the store, committed at once."""
    return queue.database.run(plan, OWN_CONNECTION)


def registered(queue: PgQueue, lease: timedelta = LEASE) -> UUID:
    """A worker that is on the list and does nothing by itself."""
    worker = leases.WorkerInfo(uuid4(), "test", 1, 1, "0", None)
    do(queue, leases.register(worker, lease))
    return worker.id


def explain(connection: psycopg.Connection[Any], plan: Plan[Any]) -> list[dict[str, Any]]:
    """Execute a plan's one statement, and return the nodes of how PostgreSQL did it."""
    catalogue = PgQueue("").database.catalogue
    statement = next(plan.steps())
    with connection.transaction(force_rollback=True), ClientCursor(connection) as cursor:
        text = f"explain (analyze, format json) {catalogue[statement.name].decode()}"
        found = cursor.execute(text.encode(), getattr(statement, "params", None)).fetchone()
    assert found is not None
    return list(_nodes(found[0][0]["Plan"]))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def run_on(connection: psycopg.Connection[Any], plan: Plan[Any]) -> Any:
    """Run a plan of the store on this connection, in its transaction."""
    return run(plan, StepRunner(connection, PgQueue("").database.catalogue))

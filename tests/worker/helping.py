"""What the worker's tests share: waiting for a condition, asking the database, and the parts inside a worker."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, LiteralString

from pgqueue import Job, JobHandle, PgQueue
from pgqueue.store import claim
from pgqueue.values.job import Claim
from pgqueue.values.verdict import Verdict
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.fetcher import Fetcher
from pgqueue.worker.heartbeat import Heartbeat
from pgqueue.worker.queues import Queues
from pgqueue.worker.reconcile import Reconciler
from pgqueue.worker.runners import Runners
from pgqueue.worker.threads import Threads
from pgqueue.worker.watch import Watch
from pgqueue.worker.worker import Worker

FOR_EVER = timedelta(hours=10)
"""A poll that no test lives to see."""


async def until(holds: Callable[[], object], *, guard: float = 20) -> None:
    """Wait until a condition holds; the guard only keeps a failing test from hanging."""
    async with asyncio.timeout(guard):
        while not holds():  # noqa: ASYNC110 - the database raises no events
            await asyncio.sleep(0.01)


async def ended(queue: PgQueue, *jobs: JobHandle[Any]) -> list[Job]:
    """Wait until jobs have ended, and return what is recorded of them."""
    await until(lambda: all(job.status().ended for job in jobs))
    return [queue.job(job.id) for job in jobs]


def ask(queue: PgQueue, statement: LiteralString, *params: object) -> list[tuple[Any, ...]]:
    """Run a statement, committed at once, and return its rows, if it has any."""
    with queue.database.pooled() as connection:
        cursor = connection.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def member(worker: Worker) -> Heartbeat:
    """Being a worker: tests of one that does not run call its parts."""
    return worker._member  # noqa: SLF001 - see above


async def beat(worker: Worker) -> None:
    """Renew a worker's lease, and hear what there is to hear, instead of waiting for that."""
    await member(worker).do(member(worker).beat)


def watch(worker: Worker) -> Watch:
    """What knows whether the event loop turns."""
    return worker._watch  # noqa: SLF001 - see above


def reconciler(worker: Worker) -> Reconciler:
    """What compares what the worker knows with what the database holds."""
    return worker._reconciler  # noqa: SLF001 - see above


def slots(worker: Worker) -> Runners:
    """Who runs and who waits."""
    return worker._slots  # noqa: SLF001 - tests look, and hand over claims themselves


def threads(worker: Worker) -> Threads:
    """Where plain functions run."""
    return slots(worker)._threads  # noqa: SLF001 - see above


def fetcher(worker: Worker) -> Fetcher:
    """What claims: tests call a single round of it."""
    return worker._fetcher  # noqa: SLF001 - see above


def lines(worker: Worker) -> Queues:
    """What it serves, and where it starts to look."""
    return worker._lines  # noqa: SLF001 - see above


def completer(worker: Worker) -> Completer:
    """What records verdicts: tests call a single round of it."""
    return worker._completer  # noqa: SLF001 - see above


def links(worker: Worker) -> tuple[WorkerConnection, WorkerConnection, WorkerConnection]:
    """The worker's own connections."""
    return worker._claims, worker._finishes, worker._upkeep  # noqa: SLF001 - tests close what they opened


def sleeps(worker: Worker) -> bool:
    """Whether the worker waits to be told, has recorded everything, and has heard nothing."""
    look = worker._look  # noqa: SLF001 - from outside it could only be guessed
    return bool(look._waiters) and not look.is_set() and not completer(worker).backlog  # noqa: SLF001 - asyncio does not say it otherwise


async def dismantle(worker: Worker) -> None:
    """Close what a worker opened that was never run, only taken apart."""
    await slots(worker).emptied()
    for link in (*links(worker), member(worker)._link):  # noqa: SLF001 - see above
        await link.close()
    await worker.queue.aclose()


def verdicts(worker: Worker) -> list[Verdict]:
    """What waits to be recorded."""
    return list(completer(worker)._waiting)  # noqa: SLF001 - tests look


def claims_of(queue: PgQueue, worker: Worker) -> list[int]:
    """The jobs that the database has in this worker's name."""
    statement = "select id from pgqueue.jobs where worker_id = %s order by id"
    return [job_id for (job_id,) in ask(queue, statement, worker.id)]


def claimed(queue: PgQueue, worker: Worker) -> list[Claim]:
    """Claim everything that is ready, in a worker's name, without telling it."""
    return queue.database.run(claim.claim(worker.id, {"default": 1_000}))

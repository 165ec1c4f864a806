"""What the worker's tests share: waiting for a condition, asking the database, and the steps of a worker that does not run.

A test looks at a worker through ``worker.inspect()``. The steps of a worker that does not run are taken by the functions here:
they alone know which part takes each.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from looking import GUARD, PAUSE, ask

from pgqueue import Job, JobHandle, PgQueue
from pgqueue.store.jobs import claim
from pgqueue.values.jobs.job import Claim
from pgqueue.worker.worker import Worker

FOR_EVER = timedelta(hours=10)
"""A poll that no test lives to see."""


async def ended(queue: PgQueue, *jobs: JobHandle[Any]) -> list[Job]:
    """Wait until jobs have ended, and return what is recorded of them.

    It never blocks the loop: through a pool of few connections, a blocking look waits for one that the blocked worker holds.
    """
    async with asyncio.timeout(GUARD):
        for job in jobs:
            while not (await job.astatus()).ended:  # noqa: ASYNC110 - the database raises no events
                await asyncio.sleep(PAUSE)
    return [await queue.ajob(job.id) for job in jobs]


async def beat(worker: Worker) -> None:
    """Renew a worker's lease, and learn what there is to learn, instead of waiting for that."""
    await worker.parts.heartbeat.do(worker.parts.heartbeat.beat)


async def register(worker: Worker) -> None:
    """Make a worker known that is never run."""
    await worker.parts.heartbeat.register()


async def fetch(worker: Worker) -> None:
    """Claim once what there is room for."""
    await worker.parts.fetcher.run_once()


def hand_over(worker: Worker, claims: Sequence[Claim]) -> None:
    """Give a worker claims, which it starts."""
    worker.parts.runners.add(claims)


async def all_ended(worker: Worker) -> None:
    """Wait until nothing runs."""
    await worker.parts.runners.emptied()


async def record_ends(worker: Worker) -> None:
    """Write how attempts have ended."""
    await worker.parts.completer.run_once()


async def compare_held(worker: Worker) -> None:
    """Compare what the database has in the worker's name with what the worker knows."""
    await worker.parts.reconciler.compare()


async def choose_slots(worker: Worker) -> None:
    """Have a worker choose its number of slots."""
    await worker.parts.slots.run_once()


async def return_stale(worker: Worker) -> None:
    """Do what the worker does once a second with claims that wait."""
    worker.parts.runners._added_at = 0.0  # noqa: SLF001 - a moment ago, or long ago: the test waits for neither
    await worker.parts.upkeep.return_stale()


def return_waiting(worker: Worker, *, older_than: float = 0.0) -> int:
    """Requeue the claims that have not started; how many."""
    runners = worker.parts.runners
    return runners.return_stale(older_than) if older_than else runners.return_waiting()


def known(worker: Worker) -> list[int]:
    """The jobs that a worker knows to be in its name."""
    return worker.parts.completer.known()


def room(worker: Worker) -> int:
    """How many claims fill every slot."""
    return worker.parts.claims.room(0)


def last_look(worker: Worker) -> float:
    """When a worker last looked for jobs, in seconds of the monotonic clock."""
    return worker.parts.signals.looked_at


async def dismantle(worker: Worker) -> None:
    """Close what a worker opened that was never run, only taken apart."""
    await all_ended(worker)
    await worker.parts.close()
    await worker.queue.aclose()


def claims_of(queue: PgQueue, worker: Worker) -> list[int]:
    """The jobs that the database has in this worker's name."""
    statement = "select id from pgqueue.jobs where worker_id = %s order by id"
    return [job_id for (job_id,) in ask(queue, statement, worker.id)]


def claimed(queue: PgQueue, worker: Worker) -> list[Claim]:
    """Claim everything that is ready, in a worker's name, without telling it."""
    return queue.database.run(claim.claim(worker.id, {"default": 1_000}))

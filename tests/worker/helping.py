"""What the worker's tests share: waiting for a condition, and asking the database.

A test looks at a worker through ``worker.inspect()``. A test of a worker that does not run calls its ``parts``.
"""

import asyncio
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


async def dismantle(worker: Worker) -> None:
    """Close what a worker opened that was never run, only taken apart."""
    await worker.parts.runners.emptied()
    await worker.parts.close()
    await worker.queue.aclose()


def claims_of(queue: PgQueue, worker: Worker) -> list[int]:
    """The jobs that the database has in this worker's name."""
    statement = "select id from pgqueue.jobs where worker_id = %s order by id"
    return [job_id for (job_id,) in ask(queue, statement, worker.id)]


def claimed(queue: PgQueue, worker: Worker) -> list[Claim]:
    """Claim everything that is ready, in a worker's name, without telling it."""
    return queue.database.run(claim.claim(worker.id, {"default": 1_000}))

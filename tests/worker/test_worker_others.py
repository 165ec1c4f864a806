"""What a worker logs of other workers that start no jobs."""

import logging
import os
import socket

import pytest
from looking import ask
from worker.helping import dismantle

from pgqueue import PgQueue
from pgqueue.worker.other_workers import OtherWorkers
from pgqueue.worker.worker import Worker

STALLED = """
insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, idle, looked_at, look_within)
values (gen_random_uuid(), now() + '1 h'::interval, %s, %s, 1, '0', true, now() - '26 s'::interval, 25)
"""


async def test_each_is_logged_once_and_once_that_it_is_over_and_the_worker_itself_is_not(
    queue: PgQueue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgqueue.worker")
    worker = Worker(queue)
    others = OtherWorkers(worker.parts.connections)
    ask(queue, STALLED, socket.gethostname(), os.getpid())
    ask(queue, STALLED, "far", 1)
    await others.run_once()
    await others.run_once()
    assert others.logged == {"far:1"}
    ask(queue, STALLED, "near", 2)
    ask(queue, "delete from pgqueue.workers where host = 'far'")
    await others.run_once()
    assert [(one.message, one.__dict__["worker"]) for one in caplog.records] == [
        ("another worker starts no jobs", "far:1"),
        ("another worker starts no jobs", "near:2"),
        ("another worker starts jobs again, or is gone", "far:1"),
    ]
    assert "it has claimed no job" in caplog.records[0].__dict__["problem"]
    await dismantle(worker)

"""Promise 11, the part about rows: with any content of a job's row, others are promoted and run, and the worker stays."""

from datetime import timedelta

import psycopg
import pytest
from looking import ask
from running import Running
from store.hostile import HOSTILE, lift_bounds, put
from worker.helping import ended

from pgqueue import JobState, PgQueue

LONG_NAME = "(select string_agg(md5(n::text), '') from generate_series(1, 300) as n)"


@pytest.mark.parametrize("status", ["ready", "scheduled"])
async def test_a_worker_runs_or_buries_hostile_rows_and_runs_all_others(
    dsn: str, queue: PgQueue, running: Running, status: str
) -> None:
    ran: list[int] = []

    @queue.task(name="bill")
    async def bill(order_id: int = 0) -> None:
        ran.append(order_id)

    with psycopg.connect(dsn, autocommit=True) as connection:
        lift_bounds(connection)
        before = bill.enqueue(1)
        for columns in HOSTILE.values():
            due = {"run_at": "now() + interval '0.2 s'"} if status == "scheduled" else {}
            put(connection, **{"status": f"'{status}'", **due, **columns})
        put(connection, queue=LONG_NAME, status="'scheduled'", run_at="now()")
        after = bill.using(delay=timedelta(seconds=0.2)).enqueue(2)
        async with running(queue, concurrency=2) as worker:
            await ended(queue, before, after)
            last = bill.enqueue(3)
            await ended(queue, last)
            assert ask(dsn, "select count(*) from pgqueue.workers where id = %s", worker.id) == [(1,)]
    assert {one.status() for one in (before, after, last)} == {JobState.SUCCEEDED}
    assert {1, 2, 3} <= set(ran)

"""Promise 12: a worker that does not look for jobs, or cannot listen, says so; others find it; and it serves again."""

import asyncio
import logging
import math
import os
import socket
import subprocess
from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest
from looking import ask, until
from programs import Program
from running import Running
from worker.helping import FOR_EVER, beat, ended, last_look
from worker.proxy import Proxy

from pgqueue import PgQueue
from pgqueue.store.connections import listener
from pgqueue.store.jobs import control
from pgqueue.values.workers.health import WorkerProblem, not_live, not_ready
from pgqueue.worker.worker import Worker

SOON = timedelta(seconds=0.2)
LISTENER = "select pid from pg_stat_activity where query like 'listen %' and datname = current_database()"


def problems(queue: PgQueue) -> list[WorkerProblem]:
    """What another program finds."""
    return queue.database.run(control.worker_problems())


async def test_a_worker_that_looks_is_live_and_ready_with_and_without_jobs(
    queue: PgQueue, running: Running
) -> None:
    @queue.task
    async def note() -> None: ...

    async with running(queue, poll=SOON, sweep=SOON) as worker:
        await until(lambda: worker.inspect().can_listen and worker.inspect().waits)
        first = last_look(worker)
        await until(lambda: last_look(worker) > first)  # no job came: it asked, and there was none
        await ended(queue, note.enqueue())
        vitals = worker.vitals()
        assert (not_live(vitals), not_ready(vitals)) == ((), ())
        assert vitals.claims > vitals.empty_claims > 0
        await beat(worker)
        ((looked_at, within, since),) = ask(
            queue, "select looked_at is not null, look_within, cannot_listen_since from pgqueue.workers"
        )
        assert (looked_at, within > vitals.look_within, since) == (True, True, None)
        assert problems(queue) == []
    assert not_ready(worker.vitals()) == ("it stops",)


async def test_a_worker_whose_slots_are_taken_for_long_is_ready(queue: PgQueue, running: Running) -> None:
    release = asyncio.Event()

    @queue.task
    async def linger() -> None:
        await release.wait()

    jobs = [linger.enqueue() for _ in range(3)]
    async with running(queue, concurrency=1, poll=SOON, sweep=SOON) as worker:
        await until(lambda: len(worker.inspect().running) == 1)
        before = last_look(worker)
        await until(lambda: last_look(worker) > before)
        assert not_ready(worker.vitals()) == ()
        assert problems(queue) == []
        release.set()
        assert [job.state for job in await ended(queue, *jobs)] == ["succeeded"] * 3


async def test_a_listener_that_is_cut_is_found_and_listens_again(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = asyncio.Event()
    monkeypatch.setattr("pgqueue.worker.signals.listen_again", again.wait)

    @queue.task
    async def note() -> None: ...

    async with running(queue, poll=FOR_EVER, sweep=FOR_EVER) as worker:
        await until(lambda: worker.inspect().can_listen)
        ask(queue, f"select pg_terminate_backend(pid) from ({LISTENER}) as listening")
        await until(lambda: not worker.inspect().can_listen)
        await beat(worker)
        (found,) = problems(queue)
        assert found.not_listening is not None
        assert found.serves
        assert "notifications have not arrived for" in str(found)
        again.set()
        await until(lambda: worker.inspect().can_listen)
        await beat(worker)
        assert problems(queue) == []
        await until(lambda: worker.inspect().waits)
        await ended(queue, note.enqueue())


async def test_a_listener_behind_a_silent_connection_is_found_and_listens_again(
    dsn: str, queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PROBE_EVERY", 0.1)
    monkeypatch.setattr(listener, "ANSWER_WITHIN", 0.2)
    again = asyncio.Event()
    monkeypatch.setattr("pgqueue.worker.signals.listen_again", again.wait)
    async with Proxy(dsn).running() as proxy:
        served = PgQueue(dsn, behind_pooler=True, direct_dsn=proxy.dsn)

        @served.task(name="note")
        async def note() -> None: ...

        async with running(served, poll=FOR_EVER, sweep=FOR_EVER) as worker:
            await until(lambda: worker.inspect().can_listen)
            proxy.silence_those_open()
            await until(lambda: not worker.inspect().can_listen)
            await beat(worker)
            assert [one.not_listening is not None for one in problems(queue)] == [True]
            again.set()
            await until(lambda: worker.inspect().can_listen and worker.inspect().waits)
            await ended(served, note.enqueue())
        await served.aclose()
        served.close()


async def test_notifications_that_come_while_the_server_is_asked_are_heard(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PROBE_EVERY", 0.001)

    @queue.task
    async def note() -> None: ...

    async with running(queue, poll=FOR_EVER, sweep=FOR_EVER) as worker:
        for _ in range(20):
            await until(lambda: worker.inspect().can_listen and worker.inspect().waits)
            (job,) = await ended(queue, note.enqueue())
            assert job.state == "succeeded"


async def test_a_worker_whose_claim_hangs_is_found_by_itself_and_by_others_and_claims_again(
    queue: PgQueue, running: Running, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task
    async def note() -> None: ...

    async with running(queue, poll=SOON, sweep=SOON, lease=timedelta(seconds=2)) as worker:
        await until(lambda: worker.inspect().can_listen and worker.inspect().waits)
        before = worker.parts.connections.claiming.losses
        with psycopg.connect(dsn) as locking:
            # in a thread: what the worker has open ends only while its event loop turns
            await asyncio.to_thread(locking.execute, "lock table pgqueue.jobs in access exclusive mode")
            worker.parts.signals.look.set()
            await until(lambda: not_ready(worker.vitals()))
            assert "it has claimed no job, and asked for none, for" in not_ready(worker.vitals())[0]
            await until(lambda: problems(queue))
            (found,) = problems(queue)
            assert found.not_looked is not None
            assert not found.serves
            await until(lambda: "the worker opens its connection again" in caplog.text)
            await until(lambda: not_live(worker.vitals()))
            assert worker.parts.connections.claiming.losses > before
        await ended(queue, note.enqueue())
        await until(lambda: not not_ready(worker.vitals()) and not problems(queue))


async def test_a_worker_on_a_silent_connection_is_found_and_claims_again(
    dsn: str, queue: PgQueue, running: Running
) -> None:
    async with Proxy(dsn).running() as proxy:
        served = PgQueue(proxy.dsn)

        @served.task(name="note")
        async def note() -> None: ...

        async with running(served, poll=SOON, sweep=SOON, lease=timedelta(seconds=3)) as worker:
            await until(lambda: worker.inspect().can_listen and worker.inspect().waits)
            worker.parts.signals.look_within = 0.3
            proxy.silence_those_open()
            ask(queue, "select pgqueue.enqueue('note')")
            await until(lambda: not_ready(worker.vitals()))
            await until(lambda: ask(queue, "select id from pgqueue.job_history"))
            await until(lambda: not not_ready(worker.vitals()))
        await served.aclose()
        served.close()


async def test_one_late_look_after_a_blocked_loop_cuts_no_connection(queue: PgQueue) -> None:
    fetcher = (worker := Worker(queue)).parts.fetcher
    worker.parts.signals.look_within = -1.0
    cut: list[None] = []
    worker.parts.connections.claiming.cut = lambda: cut.append(None)  # type: ignore[method-assign]
    await fetcher.look_again()
    worker.parts.signals.looked()
    await fetcher.look_again()
    assert not cut
    await fetcher.look_again()
    assert len(cut) == 1


def test_a_stopping_worker_does_not_say_when_it_looked(queue: PgQueue) -> None:
    worker = Worker(queue)
    worker.parts.signals.stopping.set()
    assert worker.parts.heartbeat._health().looked is None  # noqa: SLF001 - what a heartbeat says


async def test_health_of_a_worker_behind_a_pooler_asks_for_no_notifications(queue: PgQueue, dsn: str) -> None:
    pooled = PgQueue(dsn, behind_pooler=True)
    assert Worker(pooled).vitals().not_listening is None
    assert Worker(queue).vitals().not_listening is not None


def test_a_row_that_was_changed_by_hand_is_no_obstacle(queue: PgQueue) -> None:
    ask(
        queue,
        "insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, idle, look_within)"
        " values (gen_random_uuid(), 'infinity', 'h', 1, 1, '0', true, 5)",
    )
    for odd in ("infinity", "-infinity"):
        for within in (5.0, -5.0, math.nan, math.inf):
            ask(
                queue,
                "update pgqueue.workers set looked_at = %s, look_within = %s, cannot_listen_since = %s",
                odd,
                within,
                odd,
            )
            assert len(problems(queue)) == 1


STUCK = """
import asyncio
from pgqueue import PgQueue
from pgqueue.worker.fetcher import Fetcher

queue = PgQueue()


@queue.task(name="note")
def note() -> None: ...


async def hang(fetcher: Fetcher) -> None:
    await asyncio.Event().wait()


Fetcher.run = hang
"""


def _has_looked_since(worker: Worker, before: float) -> bool:
    return last_look(worker) > before


async def test_the_other_workers_log_one_that_looks_for_no_jobs_once_and_that_it_is_gone(
    queue: PgQueue,
    running: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("pgqueue.worker.upkeep.SELDOM_EVERY", 0.0)
    caplog.set_level(logging.INFO, "pgqueue.worker")
    (tmp_path / "stuck.py").write_text(STUCK)
    words = [
        "-m",
        "pgqueue",
        "--app",
        "stuck:queue",
        "worker",
        "--lease",
        "2",
        "--poll",
        "0.2",
        "--sweep",
        "0.2",
    ]
    env = {**os.environ, "PGQUEUE_DSN": queue.database.dsn, "PYTHONPATH": str(tmp_path)}
    out = subprocess.DEVNULL

    def said(words: str) -> list[str]:
        return [one.__dict__["worker"] for one in caplog.records if one.message == words]

    with Program(words, env=env, cwd=tmp_path, stdout=out, stderr=out) as other:
        try:
            async with running(queue, poll=SOON, sweep=SOON, lease=timedelta(seconds=2)) as worker:
                await until(lambda: said("another worker starts no jobs"))
                for _ in range(3):
                    before = last_look(worker)
                    await until(partial(_has_looked_since, worker, before))
                other.kill()
                await until(lambda: said("another worker starts jobs again, or is gone"))
        finally:
            other.kill()
    name = f"{socket.gethostname()}:{other.pid}"
    assert said("another worker starts no jobs") == [name]
    assert said("another worker starts jobs again, or is gone") == [name]

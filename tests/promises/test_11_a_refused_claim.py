"""Promise 11, the part about claims: what the database refuses to have claimed stops no other job, and the worker stays."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from looking import ask, until
from running import Running
from worker.helping import ended

from pgqueue import JobState, Limit, PgQueue, Task
from pgqueue.store.jobs import refusals

REFUSING = """
create function public.refuse() returns trigger language plpgsql as $$ begin
    if new.status = 'running' and new.args->>'number' = '13' then raise exception 'number 13 is not allowed'; end if;
    return new;
end $$;
create trigger refuse before update on pgqueue.jobs for each row execute function public.refuse()
"""
ALLOWING = "drop trigger refuse on pgqueue.jobs"
SOON = timedelta(seconds=0.1)


@pytest.fixture
def owner(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(params=["ready", "limited"])
def note(
    request: pytest.FixtureRequest, queue: PgQueue, monkeypatch: pytest.MonkeyPatch
) -> Task[[int], None]:
    """A task whose jobs are ready, or wait in lanes of four numbers each."""
    monkeypatch.setattr(refusals, "PASSED_FOR", 0.5)
    limit = Limit(3, by="of") if request.param == "limited" else None

    @queue.task(name="note", limit=limit)
    async def note(number: int, of: int = 0) -> None: ...

    return note


@pytest.mark.parametrize("weights", [None, {"default": 3, "other": 1}], ids=["known", "weighted"])
async def test_one_refused_job_costs_no_other_job_and_runs_when_it_is_allowed(
    queue: PgQueue,
    owner: psycopg.Connection[Any],
    running: Running,
    note: Any,
    weights: dict[str, int] | None,
) -> None:
    owner.execute(REFUSING)
    jobs = queue.enqueue_many(note.call(number, number % 4) for number in range(30))
    refused = jobs[13]
    async with running(queue, concurrency=4, queues=weights, poll=SOON) as worker:
        await ended(queue, *(one for one in jobs if one.id != refused.id))
        later = note.enqueue(31, 1)
        await ended(queue, later)
        assert refused.status() in {JobState.READY, JobState.BLOCKED}
        assert ask(queue, "select attempts from pgqueue.jobs") == [(0,)]
        owner.execute(ALLOWING)
        await ended(queue, refused)
        assert ask(queue, "select id from pgqueue.workers") == [(worker.id,)]
    assert {one.status() for one in (*jobs, later)} == {JobState.SUCCEEDED}


async def test_a_worker_whose_claims_are_all_refused_waits_and_goes_on_when_they_are_allowed(
    queue: PgQueue,
    owner: psycopg.Connection[Any],
    running: Running,
    note: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where its role has lost the right to update jobs for a while."""
    owner.execute("create function public.deny() returns trigger language plpgsql as $$ begin "
                  "raise insufficient_privilege using message = 'permission denied'; end $$")  # fmt: skip
    async with running(queue, concurrency=2, poll=SOON) as worker:
        await until(lambda: worker.inspect().waits)
        owner.execute("create trigger deny before update on pgqueue.jobs for each row "
                      "when (new.status = 'running') execute function public.deny()")  # fmt: skip
        job = note.enqueue(1)
        await until(lambda: "the database refuses claims" in caplog.text)
        owner.execute("drop trigger deny on pgqueue.jobs")
        await ended(queue, job)
        assert ask(queue, "select id from pgqueue.workers") == [(worker.id,)]
    assert job.status() is JobState.SUCCEEDED

"""Promise 9, the part about snapshots: a long-open snapshot elsewhere does not slow claiming."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from promises.asking import SET_PLANNER
from psycopg import ClientCursor

from pgqueue import PgQueue
from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.jobs import claim, finish
from pgqueue.store.plan import Statement
from pgqueue.store.workers import leases
from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import HEAD, Claim, Mark
from pgqueue.values.jobs.verdict import Died, Returned, Succeeded, Verdict

CHURNED, BATCH = 6_000, 500


def test_under_a_held_snapshot_a_claim_from_its_mark_reads_a_fraction_of_one_from_the_head(
    dsn: str, queue: PgQueue
) -> None:
    @queue.task(name="noop")
    def noop() -> None: ...

    with psycopg.connect(dsn) as report:
        report.execute("set transaction isolation level repeatable read")
        report.execute("select count(*) from pgqueue.jobs")
        queue.enqueue_many(noop.call() for _ in range(CHURNED + BATCH))
        worker = _registered(queue)
        last = _churn(queue, worker)

        from_head = _pages_read(dsn, worker, {"default": HEAD})
        from_mark = _pages_read(dsn, worker, {"default": Mark(-last.priority, last.run_at, last.id)})

    assert from_mark * 5 < from_head, (from_mark, from_head)


def _succeeded(taken: Claim) -> Verdict:
    return Succeeded(taken, 0.0)


def _dead(taken: Claim) -> Verdict:
    return Died(taken, 0.0, "asked", describe(ValueError("no"), taken.attempt))


@pytest.mark.parametrize("verdict", [_succeeded, _dead, Returned], ids=["complete", "end", "requeue"])
def test_finishing_reads_nothing_that_is_gone_even_if_the_statistics_say_that_there_are_no_jobs(
    dsn: str, queue: PgQueue, verdict: Callable[[Claim], Verdict]
) -> None:
    """As after a vacuum that found no living job; the planner then takes reading all of an index for a trifle."""

    @queue.task(name="noop")
    def noop() -> None: ...

    with psycopg.connect(dsn) as report, psycopg.connect(dsn, autocommit=True) as own:
        report.execute("set transaction isolation level repeatable read")
        report.execute("select count(*) from pgqueue.jobs")
        queue.enqueue_many(noop.call() for _ in range(CHURNED))
        worker = _registered(queue)
        _churn(queue, worker)
        own.execute("vacuum analyze pgqueue.jobs")
        queue.enqueue_many(noop.call() for _ in range(50))
        claims = queue.database.run(claim.claim(worker, {"default": 50}))
        own.execute(SET_PLANNER.encode())
        own.execute("set plan_cache_mode = force_generic_plan")
        statement = next(finish.finish(worker, [verdict(one) for one in claims], keep=True).steps())
        assert isinstance(statement, Statement)
        pages = _pages(own, statement, "jobs_pkey")
    assert pages < CHURNED / 2, pages  # every entry of a job that is gone would cost a look into the table


def test_under_a_held_snapshot_a_worker_that_goes_around_many_queues_reads_nothing_behind_it(
    dsn: str, queue: PgQueue
) -> None:
    """The next queues are looked for from where the last look ended, past the entries of jobs that are gone."""
    names = [f"tenant-{number:06}" for number in range(CHURNED)]
    with psycopg.connect(dsn) as report, psycopg.connect(dsn, autocommit=True) as own:
        report.execute("set transaction isolation level repeatable read")
        report.execute("select count(*) from pgqueue.jobs")
        own.execute("insert into pgqueue.jobs (queue, task) select unnest(%s::text[]), 'noop'", [names])
        worker = _registered(queue)
        half = names[: CHURNED // 2]
        for first in range(0, len(half), BATCH):
            quotas = dict.fromkeys(half[first : first + BATCH], 1)
            claims = queue.database.run(claim.claim(worker, quotas))
            queue.database.run(finish.finish(worker, [Succeeded(one, 0.0) for one in claims], keep=True))
        own.execute(SET_PLANNER.encode())
        own.execute("set plan_cache_mode = force_generic_plan")
        pages = {}
        for after in (None, half[-1]):
            statement = next(claim.next_queues(after, 2).steps())
            assert isinstance(statement, Statement)
            pages[after] = _pages(own, statement, "jobs_ready")
            own.execute("deallocate planned")
            assert queue.database.run(claim.next_queues(after, 2)) == names[len(half) : len(half) + 2]
    assert pages[half[-1]] * 5 < pages[None], pages


def _pages(connection: psycopg.Connection[Any], statement: Statement, index: str) -> int:
    """How many pages a statement reads through an index, planned for any parameters."""
    text = catalogue_of("pgqueue")[statement.name].decode()
    for number, name in enumerate(statement.params, start=1):
        text = text.replace(f"%({name})s", f"${number}")
    connection.execute(f"prepare planned as {text}".encode())
    values = ", ".join("%s" for _ in statement.params)
    asked = f"explain (analyze, buffers, format json) execute planned({values})".encode()
    rows = ClientCursor(connection).execute(asked, list(statement.params.values())).fetchone()
    assert rows is not None
    scans = [node for node in _nodes(rows[0][0]["Plan"]) if node.get("Index Name") == index]
    return sum(int(scan["Shared Hit Blocks"]) + int(scan["Shared Read Blocks"]) for scan in scans)


def _churn(queue: PgQueue, worker: UUID) -> Claim:
    """Claim and complete most jobs; returns the last claim."""
    last: list[Claim] = []
    for _ in range(CHURNED // BATCH):
        last = queue.database.run(claim.claim(worker, {"default": BATCH}))
        done = [Succeeded(one, 0.0) for one in last]
        assert len(queue.database.run(finish.finish(worker, done, keep=True))) == BATCH
    return last[-1]


def _registered(queue: PgQueue) -> UUID:
    info = leases.WorkerInfo(uuid4(), "host", 1, BATCH, "0", None)
    queue.database.run(leases.register(info, timedelta(hours=1)))
    return info.id


def _pages_read(dsn: str, worker: UUID, marks: Mapping[str, Mark]) -> int:
    """How many pages a claim of a few jobs reads to find them; it is rolled back."""
    statement = next(claim.claim(worker, {"default": 5}, marks=marks).steps())
    assert isinstance(statement, Statement)
    sql = catalogue_of("pgqueue")[statement.name].decode()
    with psycopg.connect(dsn, cursor_factory=ClientCursor[Any]) as connection:
        connection.execute(SET_PLANNER.encode())
        rows = connection.execute(
            f"explain (analyze, buffers, format json) {sql}".encode(), statement.params
        ).fetchone()
        connection.rollback()
    assert rows is not None
    (scan,) = [node for node in _nodes(rows[0][0]["Plan"]) if node.get("Index Name") == "jobs_ready"]
    return int(scan["Shared Hit Blocks"]) + int(scan["Shared Read Blocks"])


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)

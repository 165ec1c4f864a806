"""A lost worker's job that cannot be ended keeps no other from it: it is set aside."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.hostile import HOSTILE, lift_bounds, put
from store.samples import LEASE, MINUTE, NOON, SECOND, adding, new_job, shown, taking, worker_info

from pgqueue.store.drive import drive
from pgqueue.store.jobs.sweep import PAUSE, reclaim
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import JobState

LATE = NOON + LEASE + SECOND

REFUSE_DEAD = """
create function pgqueue.refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
create trigger refuse before insert on pgqueue.dead_jobs for each row when (new.task = 'refused')
    execute function pgqueue.refuse();
"""
REFUSE_WORDS = """
create function pgqueue.refuse() returns trigger language plpgsql as $$ begin raise exception 'no such word'; end $$;
create trigger refuse before update on pgqueue.jobs for each row
    when (new.task = 'refused' and new.errors::text like '%WorkerLost%') execute function pgqueue.refuse();
"""


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        lift_bounds(connection)
        yield connection


def _swept(own: psycopg.Connection[Any], **options: Any) -> dict[int, JobState]:
    return drive(reclaim(**{"now": LATE} | options), partial(ask, own)).states


def _running(own: psycopg.Connection[Any], *ids: int) -> None:
    """Have a worker hold these jobs, and be gone."""
    info = worker_info()
    ask(own, leases.register(info, LEASE, now=NOON))
    own.execute(
        "update pgqueue.jobs set status = 'running', worker_id = %s, fence = 7, "
        "attempts = greatest(attempts, 1) where id = any(%s)",
        [info.id, [*ids]],
    )


def _rows(own: psycopg.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    return own.execute(query.encode()).fetchall()


@pytest.mark.parametrize("left", [24, 0], ids=["attempts left", "no attempt left"])
@pytest.mark.parametrize("columns", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_job_of_a_lost_worker_is_ended_as_is_its_neighbour(
    own: psycopg.Connection[Any], columns: dict[str, str], left: int
) -> None:
    (good,) = ask(own, adding(new_job()))
    hostile = put(own, **columns, max_attempts=str(int(columns.get("attempts", "0")) % 32767 + max(left, 1)))
    _running(own, good, hostile)

    states = _swept(own)

    assert states.keys() == {good, hostile}
    assert states[good] is JobState.READY
    assert _rows(own, "select from pgqueue.jobs where status = 'running'") == []
    assert _rows(own, "select from pgqueue.lost_workers") == []
    kept = "select errors->-1->>'type' from {} where id = {}"
    where = "pgqueue.jobs" if states[hostile] is JobState.READY else "pgqueue.dead_jobs"
    assert _rows(own, kept.format(where, hostile)) == [("WorkerLost",)]


def test_a_job_whose_id_a_dead_job_has_is_kept_beside_it(own: psycopg.Connection[Any]) -> None:
    first, second = ask(own, adding(new_job(), new_job(max_attempts=1)))
    own.execute(
        "insert into pgqueue.dead_jobs (id, run_at, created_at, died_at, collisions, priority, attempts, max_attempts, "
        "reason, queue, task, args) select id, now(), now(), now(), 0, 0, 1, 1, 'asked', 'default', 'of old', '{}' "
        "from generate_series(%s::bigint, %s::bigint + 1000) as id",
        [second, second],
    )
    _running(own, first, second)

    assert _swept(own) == {first: JobState.READY, second: JobState.DEAD}

    assert _rows(own, f"select task from pgqueue.dead_jobs where id = {second}") == [("of old",)]
    ((free, *said),) = _rows(
        own, "select id, errors->-1->>'former_id', reason from pgqueue.dead_jobs where task <> 'of old'"
    )
    assert free > second + 1000
    assert said == [str(second), "exhausted"]
    assert ask(own, adding(new_job())) == [free + 1]


def test_no_row_uses_up_the_ids_of_jobs(own: psycopg.Connection[Any]) -> None:
    (first,) = ask(own, adding(new_job()))
    for _ in range(2):
        last = put(own, id=str(2**63 - 1), max_attempts="1")
        _running(own, last)
        assert _swept(own) == {last: JobState.DEAD}

    (free,) = _rows(own, "select min(id) from pgqueue.dead_jobs")
    assert first < free[0] < first + 10
    assert ask(own, adding(new_job())) == [free[0] + 1]


def test_a_job_that_the_database_refuses_to_end_stays_and_all_others_are_ended(
    own: psycopg.Connection[Any],
) -> None:
    jobs = ask(own, adding(*(new_job(max_attempts=1, task="refused" if n == 3 else "t") for n in range(8))))
    _running(own, *jobs)
    own.execute(REFUSE_DEAD.encode())

    assert _swept(own) == {job: JobState.DEAD for job in jobs if job != jobs[3]}

    assert ask(own, shown(jobs[3])).state is JobState.RUNNING
    assert _swept(own) == {}, "it is not looked for at once"
    own.execute("drop trigger refuse on pgqueue.dead_jobs")
    assert _swept(own, now=LATE + PAUSE - SECOND) == {}
    assert _swept(own, now=LATE + PAUSE) == {jobs[3]: JobState.DEAD}
    assert _rows(own, "select from pgqueue.lost_workers") == []


def test_a_job_whose_error_is_refused_is_ended_with_the_refusal(own: psycopg.Connection[Any]) -> None:
    good, bad = ask(own, adding(new_job(), new_job(task="refused")))
    _running(own, good, bad)
    own.execute(REFUSE_WORDS.encode())

    assert _swept(own) == {good: JobState.READY, bad: JobState.SCHEDULED}

    assert [(one.attempt, one.message.splitlines()[0]) for one in ask(own, shown(bad)).errors] == [
        (1, "no such word")
    ]


def test_a_lost_connection_is_no_refusal(own: psycopg.Connection[Any]) -> None:
    """Else every batch would be halved down to each job, in vain."""
    (job,) = ask(own, adding(new_job()))
    _running(own, job)
    asked: list[Any] = []

    def cut_off(plan: Any) -> Any:
        asked.append(plan)
        raise psycopg.OperationalError("the connection is lost")

    with pytest.raises(psycopg.OperationalError, match="is lost"):
        drive(reclaim(now=LATE), cut_off)
    assert len(asked) == 1


def test_while_a_lost_job_is_taken_over_its_former_attempt_is_not_heard(own: psycopg.Connection[Any]) -> None:
    ask(own, adding(new_job()))
    (taken,) = ask(own, taking())

    with own.transaction():
        assert ask(own, upkeep.reclaim(now=LATE)) == {taken.id: JobState.READY}

    assert (job := ask(own, shown(taken.id))).errors[0].type == "WorkerLost"
    assert job.run_at == NOON, "it goes back to its place"
    assert ask(own, upkeep.poll(now=NOON + MINUTE)).count == 0

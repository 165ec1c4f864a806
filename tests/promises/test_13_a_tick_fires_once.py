"""Promise 13: a schedule's tick fires once: after crashes, with any number of workers, and when the clock steps back."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
from looking import ask, wait_until
from promises.processes import at_the_gate, closed_gate, gate_inserts, processes, run_on
from promises.workshop import Workshop

from pgqueue import PgQueue
from pgqueue.store.schedules import schedules, ticks
from pgqueue.values.schedules.schedule import NewSchedule, Timing

SECOND = timedelta(seconds=1)


def store(dsn: str, **timing: Any) -> None:
    """Store a schedule of jobs that leave a mark."""
    workshop = Workshop(PgQueue(dsn))
    workshop.queue.schedules.add("marks", workshop.succeed.call(), **timing)
    workshop.queue.close()


def fired(dsn: str) -> list[tuple[datetime, int]]:
    """The ticks that fired, and their jobs."""
    return ask(dsn, "select at, job_id from pgqueue.schedule_ticks where state = 'fired' order by at")


def has_fired(dsn: str, count: int) -> bool:
    """Whether at least this many ticks have fired."""
    return len(fired(dsn)) >= count


def jobs_of_ticks(dsn: str) -> list[datetime]:
    """The ticks that jobs name, one for each job there is a record of."""
    rows = ask(dsn, "select (meta ->> 'pgqueue_scheduled_for')::timestamptz from pgqueue.all_jobs order by 1")
    return [row[0] for row in rows]


def test_each_tick_has_one_job_while_workers_are_killed(dsn: str) -> None:
    with processes(dsn) as start:
        store(dsn, every=SECOND, missed="all")
        workers = [start(lease=2.0) for _ in range(3)]
        for number in range(1, 7):
            wait_until(partial(has_fired, dsn, number))
            workers.pop(0).kill()
            workers.append(start(lease=2.0))
    ticks_fired = [at for at, _ in fired(dsn)]
    assert jobs_of_ticks(dsn) == ticks_fired
    assert ticks_fired == [ticks_fired[0] + number * SECOND for number in range(len(ticks_fired))]


def test_a_worker_that_is_killed_between_tick_and_job_leaves_neither_and_another_fires_it(dsn: str) -> None:
    with processes(dsn) as start, closed_gate(dsn) as open_gate:
        store(dsn, at=ask(dsn, "select clock_timestamp() + interval '2 seconds'")[0][0])
        gate_inserts(dsn, "before", "pgqueue.jobs")  # the tick is noted, and its job not added yet
        first = start(lease=2.0)
        wait_until(lambda: len(at_the_gate(dsn)) == 1)
        first.kill()
        assert fired(dsn) == []
        open_gate()
        wait_until(lambda: not at_the_gate(dsn))
        assert (fired(dsn), jobs_of_ticks(dsn)) == ([], [])
        start(lease=2.0)
        wait_until(lambda: ask(dsn, "select count(*) from marks")[0][0] == 1)
    assert jobs_of_ticks(dsn) == [at for at, _ in fired(dsn)]
    assert len(fired(dsn)) == 1


def test_a_tick_stays_fired_though_the_schedule_forgets_its_place_and_its_jobs_are_deleted(dsn: str) -> None:
    """A clock that steps back, a restored row, a schedule that is removed and added: only the tick's row decides."""
    queue = PgQueue(dsn)
    workshop = Workshop(queue)
    job = workshop.succeed.call().job
    noon = datetime.fromisoformat("2031-05-04T12:00:00+00:00")
    every_second = NewSchedule(name="marks", job=job, timing=Timing(every=SECOND, missed="all"))
    queue.database.run(schedules.put(every_second, replace=False, now=noon))
    assert len(queue.database.run(ticks.fire_due(now=noon + 10 * SECOND)).jobs) == 10
    ask(dsn, "delete from pgqueue.jobs")
    for harm in (
        "update pgqueue.schedules set settled = '2031-05-04 12:00+00', next_at = '2031-05-04 12:00+00'",
        "delete from pgqueue.schedules",
    ):
        ask(dsn, harm)
        queue.database.run(schedules.put(every_second, replace=True, now=noon))
        for moment in (3, 10, 7, 10):
            assert queue.database.run(ticks.fire_due(now=noon + moment * SECOND)).jobs == []
    assert len(queue.database.run(ticks.fire_due(now=noon + 12 * SECOND)).jobs) == 2
    queue.close()


def test_two_looks_at_once_fire_it_once(dsn: str) -> None:
    """The second look comes while the first holds the schedule, and again right after it: rows are locked and unique."""
    queue = PgQueue(dsn)
    workshop = Workshop(queue)
    noon = datetime.fromisoformat("2031-05-04T12:00:00+00:00")
    one = NewSchedule(name="marks", job=workshop.succeed.call().job, timing=Timing(every=SECOND))
    queue.database.run(schedules.put(one, replace=False, now=noon))
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second:
        assert len(run_on(first, ticks.fire_due(now=noon + SECOND)).jobs) == 1
        assert run_on(second, ticks.fire_due(now=noon + SECOND)).jobs == []
        first.commit()
        assert run_on(second, ticks.fire_due(now=noon + SECOND)).jobs == []
    queue.close()

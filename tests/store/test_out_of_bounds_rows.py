"""Rows out of bounds, which an insert into the tables may add: each is shown, without harm to others."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from store.crowd import ask
from store.samples import adding, new_job

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import searching
from pgqueue.store.jobs import control
from pgqueue.store.queues import queues
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.retry_result import Retried
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.payloads.readable import UNREADABLE

if TYPE_CHECKING:
    from pgqueue.store.plan import Plan

DEPTH = 11_000  # of arrays in arrays: PostgreSQL stores them, and no Python reads them
LEVELS = f'{{"a":{"[" * DEPTH}{"]" * DEPTH}}}'
DIGITS = '{"n": ' + "7" * 5000 + "}"
JOBS: list[tuple[str, str, str]] = [
    ("default", "infinity", "{}"),
    ("default", "-infinity", "{}"),
    ("default", "4000-01-01 BC", "{}"),
    ("default", "290000-01-01", "{}"),
    ("default", "now", LEVELS),
    ("default", "now", DIGITS),
    ("default", "now", '{"n": 1e400000}'),
    ("default", "now", '{"n": 1e-20000, "text": "1e99999"}'),
    ("default", "now", '{"n": 1e5000}'),
    ("", "now", "{}"),
    ("two words", "now", "{}"),
    ("q" * 2000, "now", "{}"),
    ("列" * 200, "now", "{}"),
]
TEXT = 201
"""A dead job whose arguments ``jsonb`` could not hold, and that has their text in place of them."""
LIVE = "insert into pgqueue.jobs (id, task, queue, run_at, args) values (%s, 'bill', %s, %s, %s)"
ENDED = """
select setval('pgqueue.jobs_id_seq', 1000);
insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, collisions, priority, attempts,
                                 max_attempts, outcome, queue, task, args, errors)
select id + 100, run_at, run_at, run_at, now(), 0, 0, 1, 1, 'succeeded', queue, task, args, '{"no": "list"}' from pgqueue.jobs;
insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, collisions, priority, attempts, max_attempts,
                               reason, queue, task, args)
select id + 200, run_at, run_at, run_at, now(), 0, 0, 1, 1, 'asked', queue, task, args::jsonb
from pgqueue.jobs where args::text !~ 'e400000|e-20000';
update pgqueue.dead_jobs set args = '"not an object"' where id = 201;
"""


@pytest.fixture
def filled(dsn: str) -> str:
    """A database with such rows in every table."""
    with psycopg.connect(dsn) as connection:
        for number, (queue, run_at, args) in enumerate(JOBS, start=1):
            connection.execute(LIVE.encode(), [number, queue, run_at, args])
        connection.execute(ENDED.encode())
    return dsn


@pytest.fixture
def own(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to it, far to the east: a time of the year 9999 here is later there."""
    with psycopg.connect(filled, autocommit=True, options="-c timezone=Pacific/Kiritimati") as connection:
        yield connection


def listed(
    connection: psycopg.Connection[Any], queue: str | None = None, *, states: list[JobState] | None = None
) -> dict[int, Job]:
    """The jobs that a search finds, by their ids."""
    found = ask(connection, searching.search(JobFilter(queue=queue), states=states, limit=1000))
    return {job.id: job for job in found.jobs}


def test_every_row_is_listed_and_shown_with_what_can_be_shown(own: psycopg.Connection[Any]) -> None:
    (today,) = ask(own, adding(new_job(args=b'{"n": 1}'), now=datetime.now().astimezone()))
    everything = {job.id: job for job in ask(own, control.newest(limit=1000))}

    assert {*everything} == {*listed(own)}
    assert len(everything) == 3 * len(JOBS) - 2 + 1
    assert everything[today].args == {"n": 1}
    assert [everything[number].run_at.year for number in (1, 2, 3, 4)] == [9999, 1, 1, 9999]
    assert everything[101].started_at == everything[1].run_at
    assert everything[1].started_at is None
    for number in (5, 105, 205):
        assert everything[number].args == {UNREADABLE: everything[number].args[UNREADABLE]}
        assert everything[number].args[UNREADABLE].startswith('{"a": [[[')
    assert everything[6].args[UNREADABLE].startswith('{"n": 7777')
    assert everything[7].args == everything[107].args == {UNREADABLE: '{"n": 1e400000}'}
    assert everything[8].args == {UNREADABLE: '{"n": 1e-20000, "text": "1e99999"}'}
    assert everything[9].args[UNREADABLE].startswith('{"n": 10000')
    assert everything[101].errors[0].type == UNREADABLE
    assert [everything[number].queue for number in (10, 11, 12)] == ["", "two words", "q" * 2000]
    for job_id, job in everything.items():
        assert ask(own, control.show(job_id)) == job


def test_the_rows_are_found_by_their_names_and_counted(own: psycopg.Connection[Any]) -> None:
    for queue in ("", "two words", "q" * 2000):
        assert len(listed(own, queue)) == 3
    counts, _ = ask(own, control.counts())
    assert {"", "two words", "q" * 2000, "列" * 200} <= {count.queue for count in counts}


def test_a_queue_that_only_sql_could_name_is_paused_and_resumed(filled: str) -> None:
    queue = PgQueue(filled)
    for name in ("", "two words", "q" * 2000):
        queue.control.pause(name)
        assert name in queue.insight.counts()[1]
        assert queue.control.resume(name)
    queue.close()


def test_live_rows_are_cancelled_and_dead_ones_retried_or_left_dead(own: psycopg.Connection[Any]) -> None:
    for number in range(1, len(JOBS) + 1):
        assert ask(own, control.cancel(number)) is JobState.CANCELLED
    dead = sorted(listed(own, states=[JobState.DEAD]))

    revived = ask(own, control.retry_dead(dead))

    assert set(revived) == set(dead) - {TEXT}
    assert (revived.held, revived.unreadable) == ((), (TEXT,))
    assert listed(own, states=[JobState.DEAD]).keys() == {TEXT}
    assert ask(own, control.purge_dead(dead)) == 1


def test_a_statement_over_all_of_them_reads_their_arguments_as_jsonb(own: psycopg.Connection[Any]) -> None:
    row = own.execute(
        "select count(*), count(args -> 'n'), count(*) filter (where jsonb_typeof(args) = 'string') from pgqueue.all_jobs"
    ).fetchone()
    assert row == (3 * len(JOBS) - 2, 6, 5)


@pytest.mark.parametrize(
    "args", ['{"text": "1e99999 [[["}', '{"sha": "a1e123456\\"2e99999"}', '{"n": 1e100}']
)
def test_what_looks_like_such_a_number_within_a_string_is_none(
    own: psycopg.Connection[Any], args: str
) -> None:
    row = own.execute("select pgqueue.as_jsonb(%s) = %s::jsonb", [args, args]).fetchone()
    assert row == (True,)


UNKNOWN = (1 << 63, -1, 1 << 80)
HALF = ("a\0b", "\ud800")


def test_an_id_that_no_job_can_have_is_the_id_of_none(connection: psycopg.Connection[Any]) -> None:
    for job_id in UNKNOWN:
        assert ask(connection, control.show(job_id)) is None
        assert ask(connection, control.cancel(job_id)) is None
        assert not ask(connection, control.retry(job_id))
    assert ask(connection, control.retry_dead(UNKNOWN)) == Retried(not_dead=UNKNOWN)
    assert ask(connection, control.purge_dead(UNKNOWN)) == 0
    assert ask(connection, searching.search(JobFilter(), before=1 << 80)).jobs == ()


@pytest.mark.parametrize("text", HALF)
def test_text_that_postgresql_cannot_hold_is_refused_before_anything_is_sent(text: str) -> None:
    plans: list[Plan[Any]] = [
        queues.pause(text),
        queues.resume(text),
    ]
    for plan in plans:
        with pytest.raises(InvalidOption, match=r"use a string without NUL .* and half surrogate pairs"):
            next(plan.steps())


def test_times_that_are_out_of_bounds_are_shown_in_every_zone(
    own: psycopg.Connection[Any],
) -> None:
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12"):
        own.execute(f"set timezone = '{zone}'")
        times = [job.run_at for job in listed(own).values()]
        assert max(times) - min(times) > timedelta(days=365 * 9990)

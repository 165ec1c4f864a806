"""A row that the database or Python cannot digest holds up no other: neither claims nor promotions.

Rows out of bounds, which an insert into the tables may add: each is shown, without harm to others.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from store.crowd import ask
from store.hostile import HOSTILE, lift_bounds, put
from store.samples import LEASE, MINUTE, NOON, SECOND, adding, new_job, worker_info

from pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.insight import searching
from pgqueue.store.jobs import claim, control
from pgqueue.store.queues import queues
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.bulk.filter import JobFilter
from pgqueue.values.bulk.operation import Retried
from pgqueue.values.jobs.job import Claim, Job, JobState, Mark
from pgqueue.values.payloads.storable import UNREADABLE

if TYPE_CHECKING:
    from pgqueue.store.plan import Plan


SCHEDULED = {"status": "'scheduled'", "run_at": "'2031-05-04 12:00+00'"}
LONG_NAME = {"queue": "(select string_agg(md5(n::text), '') from generate_series(1, 300) as n)"}
"""A queue's name that no index takes, however well it is compressed."""
REFUSE = """
create function pgqueue.refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
create trigger refuse before update on pgqueue.jobs for each row when (old.task = 'refused') execute function pgqueue.refuse()
"""


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        lift_bounds(connection)
        yield connection


def _claimed(own: psycopg.Connection[Any], **options: Any) -> list[Claim]:
    info = worker_info()
    ask(own, leases.register(info, LEASE))
    names = ask(own, claim.new_queues())
    return ask(own, claim.fill(info.id, names, 9, **options))


@pytest.mark.parametrize("columns", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_row_is_claimed_as_any_other_and_so_is_its_neighbour(
    own: psycopg.Connection[Any], columns: dict[str, str]
) -> None:
    (good,) = ask(own, adding(new_job()))
    hostile = put(own, **columns)

    taken = {one.id: one for one in _claimed(own)}

    assert taken.keys() == {good, hostile}
    assert 1 <= taken[hostile].attempt <= 32767
    assert taken[hostile].failing_seconds == 0
    for moment in (taken[hostile].run_at, taken[hostile].created_at):
        assert datetime(1900, 1, 1, tzinfo=UTC) <= moment <= datetime(9000, 1, 1, tzinfo=UTC)
        moment.astimezone()  # Python can do sums with it, in any zone
    state = own.execute("select status, attempts > 0 from pgqueue.jobs where id = %s", [hostile]).fetchone()
    assert state == ("running", True)


def test_a_row_before_all_times_stands_first_and_behind_no_mark(own: psycopg.Connection[Any]) -> None:
    (good,) = ask(own, adding(new_job()))
    hostile = put(own, run_at="'-infinity'")

    behind = _claimed(own, marks={"default": Mark(0, datetime(1900, 1, 1, tzinfo=UTC), 0)})
    assert [one.id for one in behind] == [good]
    assert [one.id for one in _claimed(own)] == [hostile]


def test_one_job_that_cannot_be_put_in_line_is_dead_and_the_others_are_ready(
    own: psycopg.Connection[Any],
) -> None:
    before, after = ask(own, adding(new_job(delay=SECOND), new_job(delay=MINUTE)))
    hostile = put(own, **SCHEDULED, **LONG_NAME, args="'{\"n\": 1e400000}'")

    polled = ask(own, upkeep.poll(now=NOON + MINUTE))

    assert (polled.count, polled.refused, polled.next_in) == (2, [hostile], None)
    assert _states(own) == {before: "ready", after: "ready"}
    dead = own.execute("select id, reason, errors->0->>'message' from pgqueue.dead_jobs").fetchall()
    assert [(job_id, reason) for job_id, reason, _ in dead] == [(hostile, "undecodable")]
    assert "index row" in dead[0][2]
    assert not ask(own, upkeep.poll(now=NOON + MINUTE)).refused


@pytest.mark.parametrize("kind", ["a check of the dead table", "a dead job of its id"])
def test_one_that_can_not_even_be_buried_is_tried_again_an_hour_later(
    own: psycopg.Connection[Any], kind: str
) -> None:
    (good,) = ask(own, adding(new_job(delay=SECOND)))
    hostile = put(own, **SCHEDULED, **LONG_NAME)
    if kind.startswith("a check"):
        own.execute("alter table pgqueue.dead_jobs add check (reason <> 'undecodable')")
    if kind.startswith("a dead"):
        own.execute(
            "insert into pgqueue.dead_jobs select %s, now(), now(), null, now(), null, 0, 0, 1, 1, 'asked', 'q', 't', null, '{}'",
            [hostile],
        )

    polled = ask(own, upkeep.poll(now=NOON + MINUTE))

    assert (polled.count, polled.refused) == (1, [hostile])
    assert _states(own) == {good: "ready", hostile: "scheduled"}
    later = own.execute("select run_at from pgqueue.jobs where id = %s", [hostile]).fetchone()
    assert later == (NOON + MINUTE + timedelta(hours=1),)


def test_a_row_that_refuses_every_change_holds_up_no_other(own: psycopg.Connection[Any]) -> None:
    (good,) = ask(own, adding(new_job(delay=SECOND)))
    own.execute(REFUSE)
    hostile = put(own, task="'refused'", **SCHEDULED)

    polled = ask(own, upkeep.poll(now=NOON + MINUTE))

    assert (polled.count, polled.refused) == (1, [hostile])
    assert _states(own) == {good: "ready"}


def test_a_job_that_is_due_at_infinity_hides_nothing(own: psycopg.Connection[Any]) -> None:
    put(own, status="'scheduled'", run_at="'infinity'")
    put(own, status="'scheduled'", run_at="'-infinity'")

    first = ask(own, upkeep.poll(now=NOON))
    assert (first.count, first.next_in) == (1, 86_400.0)
    ask(own, adding(new_job(delay=MINUTE)))
    assert ask(own, upkeep.poll(now=NOON)).next_in == 60.0


@pytest.mark.parametrize("known", [(), ("default",), ("",)], ids=str)
def test_the_queue_that_the_empty_string_names_is_found(
    own: psycopg.Connection[Any], known: tuple[str, ...]
) -> None:
    assert "" not in ask(own, claim.new_queues())
    put(own, queue="''")
    ask(own, adding(new_job(queue="mail")))

    assert ask(own, claim.new_queues(known)) == [name for name in ("", "mail") if name not in known]
    assert ask(own, claim.next_queues(None, 9)) == ["", "mail"]
    assert ask(own, claim.next_queues("", 9)) == ["mail"]
    own.execute("delete from pgqueue.jobs where queue = 'mail'")
    marks = {name: Mark(-101, NOON, 0) for name in known}
    assert ask(own, upkeep.poll(marks, elsewhere=True, now=NOON)).ready


def _states(own: psycopg.Connection[Any]) -> dict[int, str]:
    return dict(own.execute("select id, status from pgqueue.jobs").fetchall())


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
LIVE = "insert into pgqueue.jobs (id, task, queue, run_at, args) values (%s, 'bill', %s, %s, %s)"
ENDED = """
select setval('pgqueue.jobs_id_seq', 1000);
insert into pgqueue.job_history (id, run_at, created_at, started_at, finished_at, collisions, priority, attempts,
                                 max_attempts, outcome, queue, task, args, errors)
select id + 100, run_at, run_at, run_at, now(), 0, 0, 1, 1, 'succeeded', queue, task, args, '{"no": "list"}' from pgqueue.jobs;
insert into pgqueue.dead_jobs (id, run_at, created_at, started_at, died_at, collisions, priority, attempts, max_attempts,
                               reason, queue, task, args)
select id + 200, run_at, run_at, run_at, now(), 0, 0, 1, 1, 'asked', queue, task, args from pgqueue.jobs;
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
def unbounded(filled: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to it, far to the east: a time of the year 9999 here is later there."""
    with psycopg.connect(filled, autocommit=True, options="-c timezone=Pacific/Kiritimati") as connection:
        yield connection


def listed(
    connection: psycopg.Connection[Any], queue: str | None = None, *, states: list[JobState] | None = None
) -> dict[int, Job]:
    """The jobs that a search finds, by their ids."""
    found = ask(connection, searching.search(JobFilter(queue=queue), states=states, limit=1000))
    return {job.id: job for job in found.jobs}


def test_every_row_is_listed_and_shown_with_what_can_be_shown(unbounded: psycopg.Connection[Any]) -> None:
    (today,) = ask(unbounded, adding(new_job(args=b'{"n": 1}'), now=datetime.now().astimezone()))
    everything = {job.id: job for job in ask(unbounded, control.newest(limit=1000))}

    assert {*everything} == {*listed(unbounded)}
    assert len(everything) == 3 * len(JOBS) + 1
    assert everything[today].args == {"n": 1}
    assert [everything[number].run_at.year for number in (1, 2, 3, 4)] == [9999, 1, 1, 9999]
    assert everything[101].started_at == everything[1].run_at
    assert everything[1].started_at is None
    for number in (5, 105, 205):
        assert everything[number].args == {UNREADABLE: everything[number].args[UNREADABLE]}
        assert everything[number].args[UNREADABLE].startswith('{"a":[[[')
    assert everything[6].args[UNREADABLE].startswith('{"n": 7777')
    assert everything[7].args == everything[107].args == {UNREADABLE: '{"n": 1e400000}'}
    assert everything[8].args == {"n": 0.0, "text": "1e99999"}
    assert everything[9].args == {UNREADABLE: '{"n": 1e5000}'}
    assert everything[101].errors[0].type == UNREADABLE
    assert [everything[number].queue for number in (10, 11, 12)] == ["", "two words", "q" * 2000]
    for job_id, job in everything.items():
        assert ask(unbounded, control.show(job_id)) == job


def test_the_rows_are_found_by_their_names_and_counted(unbounded: psycopg.Connection[Any]) -> None:
    for queue in ("", "two words", "q" * 2000):
        assert len(listed(unbounded, queue)) == 3
    counts, _ = ask(unbounded, control.counts())
    assert {"", "two words", "q" * 2000, "列" * 200} <= {count.queue for count in counts}


def test_a_queue_that_only_sql_could_name_is_paused_and_resumed(filled: str) -> None:
    queue = PgQueue(filled)
    for name in ("", "two words", "q" * 2000):
        queue.control.pause(name)
        assert name in queue.insight.counts()[1]
        assert queue.control.resume(name)
    queue.close()


def test_live_rows_are_cancelled_and_dead_ones_retried_or_left_dead(
    unbounded: psycopg.Connection[Any],
) -> None:
    for number in range(1, len(JOBS) + 1):
        assert ask(unbounded, control.cancel(number)) is JobState.CANCELLED
    dead = sorted(listed(unbounded, states=[JobState.DEAD]))

    revived = ask(unbounded, control.retry_dead(dead))

    assert (set(revived), revived.held) == (set(dead), ())
    assert not listed(unbounded, states=[JobState.DEAD])
    assert ask(unbounded, control.purge_dead(dead)) == 0


def test_a_statement_over_all_of_them_reads_their_arguments_as_json_and_as_jsonb(
    unbounded: psycopg.Connection[Any],
) -> None:
    row = unbounded.execute(
        "select count(*), count(args -> 'n'), count(*) filter (where jsonb_typeof(pgqueue.as_jsonb(args)) = 'string') from pgqueue.all_jobs"
    ).fetchone()
    assert row == (3 * len(JOBS), 12, 6)


@pytest.mark.parametrize(
    "args", ['{"text": "1e99999 [[["}', '{"sha": "a1e123456\\"2e99999"}', '{"n": 1e100}']
)
def test_what_looks_like_such_a_number_within_a_string_is_none(
    unbounded: psycopg.Connection[Any], args: str
) -> None:
    row = unbounded.execute("select pgqueue.as_jsonb(%s) = %s::jsonb", [args, args]).fetchone()
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
    plans: list[Plan[Any]] = [queues.pause(text), queues.resume(text)]
    for plan in plans:
        with pytest.raises(InvalidOption, match=r"use a string without NUL .* and half surrogate pairs"):
            next(plan.steps())


def test_times_that_are_out_of_bounds_are_shown_in_every_zone(unbounded: psycopg.Connection[Any]) -> None:
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12"):
        unbounded.execute(f"set timezone = '{zone}'")
        times = [job.run_at for job in listed(unbounded).values()]
        assert max(times) - min(times) > timedelta(days=365 * 9990)

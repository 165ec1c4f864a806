"""A row that the database or Python cannot digest holds up no other: neither claims nor promotions."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.hostile import HOSTILE, lift_bounds, put
from store.samples import LEASE, MINUTE, NOON, SECOND, adding, new_job, worker_info

from pgqueue.store.jobs import claim
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import Claim, Mark

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

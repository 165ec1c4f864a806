"""Signals and waits: a job that waits for one is blocked, and is admitted once, also if both happen at the same instant."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import IsolationLevel
from store.crowd import ask, asking, at_once, until_statements_wait
from store.samples import LEASE, MINUTE, NOON, SECOND, adding, new_job, running, shown, taking, worker_info

from pgqueue.store import signals
from pgqueue.store.insight import why
from pgqueue.store.jobs import admission, claim, control, enqueue, finish
from pgqueue.store.jobs.ending import States
from pgqueue.store.plan import Plan
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import Claim, JobState
from pgqueue.values.jobs.verdict import Succeeded, Verdict, Waits
from pgqueue.values.signals import SignalWait, job_target

Connection = psycopg.Connection[Any]
WAITS = "select waits_for, job_id from pgqueue.waits order by job_id, waits_for"
DAY = timedelta(days=1)


def _awaited(job_id: int, *, key: str | None = None, timeout: timedelta | None = None) -> SignalWait:
    return SignalWait(job_id, "approved", job_target(job_id) if key is None else f"key:{key}", timeout)


def _waiting(taken: Claim, **options: Any) -> Plan[States]:
    verdict = Waits(taken, _awaited(taken.id, **options))
    return finish.finish(taken.worker_id, [verdict], keep=True, now=NOON)


def _blocked(connection: Connection, **options: Any) -> int:
    taken = ask(connection, running())
    assert ask(connection, _waiting(taken, **options)) == {taken.id: JobState.BLOCKED}
    return taken.id


def test_a_job_that_waits_holds_no_worker_and_no_attempt_until_its_signal_admits_it(
    connection: Connection,
) -> None:
    job_id = _blocked(connection)
    job = ask(connection, shown(job_id))
    assert (job.state, job.attempts, job.worker_id, job.errors) == (JobState.BLOCKED, 0, None, ())
    ask(connection, upkeep.poll(now=NOON + DAY))
    assert ask(connection, taking()) == []

    assert ask(connection, signals.send(f"job:{job_id}", "other", now=NOON)) == "first"
    assert ask(connection, shown(job_id)).state is JobState.BLOCKED
    assert ask(connection, signals.send(f"job:{job_id}", "approved", '{"by": "ann"}', now=NOON)) == "first"
    assert ask(connection, shown(job_id)).state is JobState.READY
    assert connection.execute(WAITS.encode()).fetchall() == []
    (again,) = ask(connection, taking())
    assert (again.id, again.attempt) == (job_id, 1)
    for _ in range(2):  # every attempt gets it
        assert ask(connection, signals.look(_awaited(job_id), now=NOON)) == (False, True, '{"by": "ann"}')


def test_a_signal_that_is_there_before_the_job_waits_is_kept_and_the_first_payload_wins(
    connection: Connection,
) -> None:
    taken = ask(connection, running())
    assert ask(connection, signals.send(f"job:{taken.id}", "approved", "1", now=NOON)) == "first"
    assert ask(connection, signals.send(f"job:{taken.id}", "approved", "2", now=NOON)) == "repeated"
    assert ask(connection, _waiting(taken)) == {taken.id: JobState.READY}
    assert ask(connection, signals.look(_awaited(taken.id))) == (False, True, "1")
    assert ask(connection, shown(taken.id)).attempts == 0
    assert connection.execute(WAITS.encode()).fetchall() == []


def test_a_signal_to_a_job_that_has_ended_or_never_was_is_refused_and_one_to_a_key_is_kept(
    connection: Connection,
) -> None:
    (job_id,) = ask(connection, adding(new_job()))
    ask(connection, control.cancel(job_id))
    for target in (f"job:{job_id}", "job:999999999999", "flow:7"):
        assert ask(connection, signals.send(target, "approved", now=NOON)) == "gone"
    assert ask(connection, signals.send("key:order:42", "approved", now=NOON)) == "first"
    assert ask(connection, signals.look(SignalWait(0, "approved", "key:order:42", None))).arrived
    job_id = ask(connection, running()).id
    assert ask(connection, signals.look(_awaited(job_id, key="order:42"))).arrived


def test_all_jobs_that_wait_for_a_key_are_admitted_by_one_signal(connection: Connection) -> None:
    ask(connection, adding(*[new_job()] * 300))
    taken = ask(connection, taking(count=300))
    verdicts = [Waits(one, _awaited(one.id, key="k", timeout=DAY)) for one in taken]
    states = ask(connection, finish.finish(taken[0].worker_id, verdicts, keep=True, now=NOON))
    assert list(states.values()) == [JobState.BLOCKED] * 300
    assert ask(connection, signals.send("key:k", "approved", now=NOON)) == "first"
    assert len(ask(connection, taking(count=300))) == 300


def test_a_batch_with_jobs_that_wait_records_every_verdict(connection: Connection) -> None:
    ask(connection, adding(*[new_job()] * 4))
    one, two, three, four = ask(connection, taking(count=4))
    ask(connection, signals.send(f"job:{two.id}", "approved"))
    ask(connection, control.cancel(three.id))
    verdicts: list[Verdict] = [
        Waits(one, _awaited(one.id)),
        Waits(two, _awaited(two.id)),
        Waits(three, _awaited(three.id)),
        Succeeded(four, 1.0),
    ]
    assert ask(connection, finish.finish(one.worker_id, verdicts, keep=True)) == {
        one.id: JobState.BLOCKED,
        two.id: JobState.READY,
        three.id: JobState.CANCELLED,
        four.id: JobState.SUCCEEDED,
    }


def test_an_attempt_that_was_superseded_blocks_nothing(connection: Connection) -> None:
    taken = ask(connection, running())
    ask(connection, leases.leave(taken.worker_id))
    ask(connection, upkeep.reclaim())
    assert ask(connection, _waiting(taken)) == {}
    assert ask(connection, shown(taken.id)).state is JobState.READY
    assert connection.execute(WAITS.encode()).fetchall() == []


# -- deadlines


def test_a_job_is_admitted_at_its_deadline_and_every_later_attempt_is_told_that_the_wait_is_over(
    connection: Connection,
) -> None:
    job_id = _blocked(connection, timeout=DAY)
    assert ask(connection, upkeep.poll(now=NOON + DAY - SECOND)).wait_in == 1.0
    assert ask(connection, signals.admit_due(now=NOON + DAY - SECOND)).handled == 0
    assert ask(connection, upkeep.poll(now=NOON + DAY)).wait_in == 0
    assert ask(connection, signals.admit_due(now=NOON + DAY)).handled == 1
    assert ask(connection, shown(job_id)).state is JobState.READY
    assert ask(connection, upkeep.poll(now=NOON + DAY)).wait_in is None

    assert ask(connection, signals.send(f"job:{job_id}", "approved", "1", now=NOON + DAY)) == "first"
    for now in (NOON, NOON + DAY):  # also where the clock is set back: it was decided
        assert ask(connection, signals.look(_awaited(job_id), now=now)).over


def test_the_deadline_is_that_of_the_first_wait(connection: Connection) -> None:
    job_id = _blocked(connection, timeout=DAY)
    connection.execute("delete from pgqueue.waits")
    connection.execute("update pgqueue.jobs set status = 'ready'")
    (again,) = ask(connection, taking())
    verdict = Waits(again, _awaited(job_id, timeout=DAY))
    ask(connection, finish.finish(again.worker_id, [verdict], keep=True, now=NOON + DAY / 2))
    for table in ("waits", "deadlines"):
        assert connection.execute(f"select until from pgqueue.{table}".encode()).fetchall() == [(NOON + DAY,)]


def test_a_deadline_that_passes_while_no_worker_looks_is_found_by_the_attempt_itself(
    connection: Connection,
) -> None:
    taken = ask(connection, running())
    token = ask(connection, signals.callback(_awaited(taken.id, timeout=DAY), now=NOON))
    assert token == ask(connection, signals.callback(_awaited(taken.id, timeout=DAY), now=NOON + SECOND))
    assert ask(connection, signals.look(_awaited(taken.id), now=NOON + DAY - SECOND)) == (False, False, None)
    assert ask(connection, signals.look(_awaited(taken.id), now=NOON + DAY)) == (True, False, None)


def test_a_signal_that_came_before_the_deadline_is_there_although_the_attempt_looks_later(
    connection: Connection,
) -> None:
    job_id = _blocked(connection, timeout=DAY)
    ask(connection, signals.send(f"job:{job_id}", "approved", "1", now=NOON + DAY - SECOND))
    assert (
        ask(connection, signals.admit_due(now=NOON + DAY)).handled == 1
    )  # the signal is settled, no wait lapsed
    assert ask(connection, signals.look(_awaited(job_id), now=NOON + DAY)) == (False, True, "1")


def test_deadlines_of_many_jobs_pass_in_portions(connection: Connection) -> None:
    count = signals.ADMITTED_AT_ONCE + 7
    ask(connection, adding(*[new_job()] * count))
    taken = ask(connection, taking(count=count))
    verdicts = [Waits(one, SignalWait(one.id, "cooling", None, MINUTE)) for one in taken]
    ask(connection, finish.finish(taken[0].worker_id, verdicts, keep=True, now=NOON))
    assert ask(connection, signals.admit_due(now=NOON + MINUTE)).handled == signals.ADMITTED_AT_ONCE
    assert ask(connection, signals.admit_due(now=NOON + MINUTE)).handled == 7
    assert ask(connection, signals.admit_due(now=NOON + MINUTE)).handled == 0
    assert len(ask(connection, taking(count=count, now=NOON + MINUTE))) == count


def test_a_job_that_another_transaction_has_locked_does_not_delay_the_others(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own, psycopg.connect(dsn) as other:
        first, second = (_blocked(own, timeout=MINUTE) for _ in range(2))
        other.execute("select from pgqueue.jobs where id = %s for update", [first])
        assert ask(own, signals.admit_due(now=NOON + MINUTE)).handled == 1
        assert ask(own, shown(second)).state is JobState.READY
        other.rollback()
        assert ask(own, signals.admit_due(now=NOON + MINUTE)).handled == 1


REFUSING = """
create function public.refuse() returns trigger language plpgsql as $$
begin
    if new.id = {job} and new.status = 'ready' then raise exception 'not this one'; end if;
    return new;
end $$;
create trigger refusing before update on pgqueue.jobs for each row execute function public.refuse()
"""


def test_a_job_that_the_database_refuses_to_admit_is_set_aside_and_the_others_are_admitted(
    connection: Connection,
) -> None:
    jobs = [_blocked(connection, timeout=MINUTE) for _ in range(3)]
    connection.execute(REFUSING.format(job=jobs[1]).encode())
    assert ask(connection, signals.admit_due(now=NOON + MINUTE)) == (3, [jobs[1]])
    states = [ask(connection, shown(job)).state for job in jobs]
    assert states == [JobState.READY, JobState.DEAD, JobState.READY]
    assert "not this one" in ask(connection, shown(jobs[1])).errors[-1].message


def test_waits_of_jobs_that_are_gone_are_removed_at_their_deadline(connection: Connection) -> None:
    connection.execute("insert into pgqueue.waits values ('timer:x', 77, %s)", [NOON])
    ask(connection, signals.admit_due(now=NOON))
    assert connection.execute(WAITS.encode()).fetchall() == []


@pytest.mark.parametrize("until", ["infinity", "-infinity", "4000-01-01 BC"])
def test_a_deadline_out_of_all_bounds_disturbs_no_poll(connection: Connection, until: str) -> None:
    job_id = _blocked(connection)
    connection.execute("update pgqueue.waits set until = %s::timestamptz", [until])
    found = ask(connection, upkeep.poll(now=NOON)).wait_in
    assert found == (86_400 if until == "infinity" else 0)
    assert ask(connection, why.why(job_id)).reason == "blocked"


# -- at the same instant


def _in_between(
    dsn: str, first: Callable[[Connection], object], then: Callable[[Connection], object]
) -> None:
    """What one transaction does, what another does and commits, and then the commit of the first."""
    with psycopg.connect(dsn) as one, psycopg.connect(dsn, autocommit=True) as other:
        first(one)
        then(other)
        one.commit()


def test_a_signal_that_is_uncommitted_while_its_job_begins_to_wait_is_not_lost(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own:
        taken = ask(own, running())
        _in_between(
            dsn,
            lambda sender: ask(sender, signals.send(f"job:{taken.id}", "approved", now=NOON)),
            lambda worker: ask(worker, _waiting(taken)),
        )
        assert ask(own, shown(taken.id)).state is JobState.BLOCKED  # neither saw the other
        assert ask(own, upkeep.poll(now=NOON)).wait_in == 0
        assert ask(own, signals.admit_due(now=NOON)).handled == 1
        assert ask(own, shown(taken.id)).state is JobState.READY
        assert ask(own, upkeep.poll(now=NOON)).wait_in is None


def test_a_signal_from_an_old_snapshot_is_not_lost(dsn: str) -> None:
    """A sender under REPEATABLE READ does not see that the job has begun to wait."""
    with psycopg.connect(dsn, autocommit=True) as own, psycopg.connect(dsn) as sender:
        taken = ask(own, running())
        sender.isolation_level = IsolationLevel.REPEATABLE_READ
        sender.execute("select from pgqueue.jobs")
        ask(own, _waiting(taken, key="k"))
        assert ask(sender, signals.send("key:k", "approved", now=NOON)) == "first"
        sender.commit()
        assert ask(own, shown(taken.id)).state is JobState.BLOCKED
        ask(own, signals.admit_due(now=NOON))
        assert ask(own, shown(taken.id)).state is JobState.READY


def test_settling_waits_for_a_worker_that_is_blocking_jobs(dsn: str) -> None:
    """Else settling would not see the wait, which is not committed, and the wait would not have seen the signal."""
    with (
        psycopg.connect(dsn, autocommit=True) as own,
        psycopg.connect(dsn) as worker,
        psycopg.connect(dsn, autocommit=True) as upkeeper,
        ThreadPoolExecutor(1) as threads,
    ):
        taken = ask(own, running())
        assert ask(worker, _waiting(taken)) == {taken.id: JobState.BLOCKED}
        assert ask(own, signals.send(f"job:{taken.id}", "approved", now=NOON)) == "first"
        settling = threads.submit(ask, upkeeper, signals.admit_due(now=NOON))
        until_statements_wait(dsn, unless=settling.done)
        worker.commit()
        assert settling.result(timeout=30).handled == 1
        assert ask(own, shown(taken.id)).state is JobState.READY


def test_of_many_senders_at_once_one_is_the_first(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own:
        for _ in range(5):
            job_id = _blocked(own)
            sends = [asking(signals.send(f"job:{job_id}", "approved", str(n), now=NOON)) for n in range(4)]
            assert sorted(at_once(dsn, *sends)) == ["first", "repeated", "repeated", "repeated"]
            (again,) = ask(own, taking())
            assert again.id == job_id
            own.execute("delete from pgqueue.jobs")


def test_waits_and_signals_at_the_same_instant_leave_no_job_behind(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own:
        for _ in range(20):
            taken = ask(own, running())
            at_once(
                dsn,
                asking(_waiting(taken, key=f"k{taken.id}")),
                asking(signals.send(f"key:k{taken.id}", "approved", now=NOON)),
                asking(signals.admit_due(now=NOON)),
            )
            ask(own, signals.admit_due(now=NOON))
            assert ask(own, shown(taken.id)).state is JobState.READY
            own.execute("delete from pgqueue.jobs")


def test_a_long_open_sender_keeps_no_other_job_from_waiting(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own, psycopg.connect(dsn) as sender:
        ask(own, adding(new_job(), new_job()))
        one, two = ask(own, taking(count=2))
        ask(sender, signals.send("key:k", "approved"))
        own.execute("set lock_timeout = '100ms'")
        ask(own, _waiting(one, key="k"))
        ask(own, _waiting(two, key="other"))
        assert ask(own, signals.admit_due()).handled == 0
        sender.commit()
        assert ask(own, signals.admit_due()).handled == 1


# -- when signals are deleted that no job needs


def test_signals_and_deadlines_go_when_their_job_is_gone_and_those_to_keys_after_30_days(
    connection: Connection,
) -> None:
    live = _blocked(connection, timeout=DAY)
    ended = _blocked(connection, timeout=DAY)
    dead = ask(connection, running()).id
    for job_id in (live, ended, dead):
        ask(connection, signals.send(f"job:{job_id}", "other", now=NOON))
    ask(connection, signals.send("key:old", "approved", now=NOON))
    ask(connection, signals.send("key:new", "approved", now=NOON + DAY))
    ask(connection, control.cancel(ended))
    (taken,) = [one for one in [ask(connection, shown(dead))] if one.worker_id]
    connection.execute("insert into pgqueue.signals (target, name) values ('job:what', 'hostile')")
    _bury(connection, dead, taken.worker_id)

    ask(connection, upkeep.drop_signals(now=NOON + 30 * DAY + SECOND))

    found = connection.execute("select target from pgqueue.signals order by target").fetchall()
    assert {row[0] for row in found} == {f"job:{live}", f"job:{dead}", "key:new"}
    assert connection.execute("select job_id from pgqueue.deadlines").fetchall() == [(live,)]


def _bury(connection: Connection, job_id: int, worker: Any) -> None:
    connection.execute(
        "with gone as (delete from pgqueue.jobs where id = %s returning *) insert into pgqueue.dead_jobs (id, run_at, "
        "created_at, died_at, collisions, priority, attempts, max_attempts, reason, queue, task, args) "
        "select id, run_at, created_at, now(), 0, 0, 1, 1, 'asked', queue, task, args from gone",
        [job_id],
    )
    assert worker is not None


def test_other_workers_do_not_touch_jobs_that_wait(connection: Connection) -> None:
    job_id = _blocked(connection)
    info = worker_info()
    ask(connection, leases.register(info, LEASE))
    assert ask(connection, claim.claim(info.id, {"default": 10}, now=NOON + DAY)) == []
    assert ask(connection, upkeep.reclaim(now=NOON + DAY)) == {}
    assert not ask(connection, control.retry(job_id))
    assert ask(connection, claim.unknown_claims(uuid4(), [])) == []


def test_a_row_that_an_earlier_wait_has_left_behind_does_not_keep_the_job_from_waiting_again(
    connection: Connection,
) -> None:
    taken = ask(connection, running())
    wait = _awaited(taken.id)
    connection.execute("insert into pgqueue.waits values (%s, %s)", [wait.reason, taken.id])
    assert ask(connection, _waiting(taken, timeout=DAY)) == {taken.id: JobState.BLOCKED}
    assert connection.execute("select until from pgqueue.waits").fetchall() == [(NOON + DAY,)]


def test_a_job_that_waits_for_a_limit_as_well_stays_blocked_after_its_signal(connection: Connection) -> None:
    job_id = _blocked(connection, timeout=DAY)
    connection.execute("insert into pgqueue.waits values ('limit mail', %s)", [job_id])
    ask(connection, signals.send(f"job:{job_id}", "approved", now=NOON))
    ask(connection, signals.admit_due(now=NOON + DAY))
    assert ask(connection, shown(job_id)).state is JobState.BLOCKED
    assert connection.execute(WAITS.encode()).fetchall() == [("limit mail", job_id)]
    assert ask(connection, admission.admit(["limit mail"], now=NOON)) == {job_id: JobState.READY}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "midnight",
    [
        "2031-01-01T00:00:00+00:00",
        "2031-03-09T05:00:00+00:00",
        "2031-11-02T04:00:00+00:00",
        "2031-04-05T15:00:00+00:00",
    ],
)
def test_a_deadline_at_midnight_or_at_a_clock_change_is_an_instant_like_any_other(
    connection: Connection, zone: str, midnight: str
) -> None:
    at = datetime.fromisoformat(midnight)
    connection.execute("select set_config('timezone', %s, false)", [zone])
    taken = ask(connection, running())
    verdict = Waits(taken, _awaited(taken.id, timeout=DAY))
    ask(connection, finish.finish(taken.worker_id, [verdict], keep=True, now=at - DAY))
    assert ask(connection, signals.admit_due(now=at - SECOND / 1000)).handled == 0
    assert ask(connection, signals.admit_due(now=at)).handled == 1


def test_ten_thousand_jobs_wait_for_one_key_and_one_signal_admits_them(connection: Connection) -> None:
    count = 10_000
    ask(connection, enqueue.enqueue_many([new_job()] * count, now=NOON))
    taken = ask(connection, taking(count=count))
    verdicts = [Waits(one, _awaited(one.id, key="k", timeout=DAY)) for one in taken]
    states = ask(connection, finish.finish(taken[0].worker_id, verdicts, keep=True, now=NOON))
    assert set(states.values()) == {JobState.BLOCKED}
    assert ask(connection, signals.send("key:k", "approved", now=NOON)) == "first"
    assert len(ask(connection, taking(count=count))) == count
    assert connection.execute(WAITS.encode()).fetchall() == []

"""``pgqueue adopt``, on the tables that Procrastinate and PgQueuer themselves install and fill."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cli.commands import SHOP, pgqueue, printed
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment
from pgqueuer.db import SyncPsycopgDriver
from pgqueuer.queries import SyncQueries
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from procrastinate.schema import SchemaManager
from programs import Program
from running import Running

from pgqueue import Job, JobState, PgQueue
from pgqueue.store import adopt as plans

FUTURE = datetime(2040, 1, 1, tzinfo=UTC)
ATTEMPT_LIMIT = 25


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def theirs(own: psycopg.Connection[Any], dsn: str) -> Iterator[App]:
    """Procrastinate, on its own schema in the same database."""
    own.execute(SchemaManager.get_schema())
    with App(connector=SyncPsycopgConnector(conninfo=dsn)).open() as app:
        yield app


@pytest.fixture
def pgq(own: psycopg.Connection[Any]) -> SyncQueries:
    """PgQueuer, on its own schema in the same database."""
    own.execute(QueryBuilderEnvironment().build_install_query().encode())
    return SyncQueries(SyncPsycopgDriver(own))


def waiting(own: psycopg.Connection[Any]) -> list[int]:
    rows = own.execute("select id from procrastinate_jobs where status = 'todo' order by id").fetchall()
    return [row[0] for row in rows]


def queued(own: psycopg.Connection[Any]) -> list[str]:
    """The entrypoints of the jobs that wait in PgQueuer."""
    rows = own.execute("select entrypoint from pgqueuer where status = 'queued' order by id").fetchall()
    return [row[0] for row in rows]


def ours(queue: PgQueue) -> list[Job]:
    return [*reversed(queue.insight.search().jobs)]


def left(report: dict[str, Any]) -> list[str]:
    return [line["why"] for line in report["left"]]


def adopted(*words: str, dsn: str, app: str | None = None, code: int = 0) -> dict[str, Any]:
    before = () if app is None else ("--app", app)
    result = pgqueue(*before, "adopt", *words, "--json", dsn=dsn)
    assert result.exit_code == code, result.stderr
    result.exit_code = 0
    return printed(result)  # type: ignore[no-any-return]  # the command's JSON


def test_a_waiting_job_becomes_ours_with_all_that_it_had(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    theirs.configure_task(
        "shop.send", queue="mail", priority=7, queueing_lock="send:1", schedule_at=FUTURE
    ).defer(order_id=1, note='tab\t, "quotes", \\ and ☃', big=12345678901234567890123)

    result = pgqueue("adopt", "procrastinate", dsn=dsn)

    assert result.exit_code == 0
    assert "copied to task shop.send in queue mail" in result.stdout
    assert result.stdout.endswith("1 copied, 0 left\n")
    (job,) = ours(queue)
    assert (job.task, job.queue, job.priority, job.unique_key) == ("shop.send", "mail", 7, "send:1")
    assert (job.state, job.run_at) == (JobState.SCHEDULED, FUTURE)
    assert job.args == {"order_id": 1, "note": 'tab\t, "quotes", \\ and ☃', "big": 12345678901234567890123}
    assert (job.attempts, job.max_attempts) == (0, ATTEMPT_LIMIT)
    assert waiting(own) == []
    assert own.execute("select count(*) from procrastinate_events").fetchone() == (0,)


def test_jobs_that_run_or_have_ended_over_there_stay_untouched(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    for number in range(3):
        theirs.configure_task("send").defer(n=number)
    own.execute("select procrastinate_fetch_job_v2(null, (select procrastinate_register_worker_v1()))")
    own.execute("select procrastinate_cancel_job_v1(2, false, false)")
    before = own.execute(
        "select id, status::text from procrastinate_jobs where id < 3 order by id"
    ).fetchall()
    assert before == [(1, "doing"), (2, "cancelled")]

    adopted("procrastinate", dsn=dsn)

    assert own.execute("select id, status::text from procrastinate_jobs order by id").fetchall() == before
    assert [job.args for job in ours(queue)] == [{"n": 2}]


def test_a_job_that_their_worker_is_just_fetching_is_left_to_it_and_not_waited_for(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    for number in range(2):
        theirs.configure_task("send").defer(n=number)
    with psycopg.connect(dsn) as worker:
        worker.execute("select procrastinate_fetch_job_v2(null, (select procrastinate_register_worker_v1()))")
        report = adopted("procrastinate", dsn=dsn)
        worker.commit()

    assert [line["jobs"] for line in report["copied"]] == [1]
    assert [job.args for job in ours(queue)] == [{"n": 1}]
    assert own.execute("select status::text from procrastinate_jobs").fetchall() == [("doing",)]


def test_what_is_due_runs_in_the_order_in_which_it_would_have_run_there(
    theirs: App, queue: PgQueue, dsn: str
) -> None:
    long_due = datetime(2001, 1, 1, tzinfo=UTC)
    theirs.configure_task("send").defer(n=2)
    theirs.configure_task("send", schedule_at=long_due).defer(n=3)
    theirs.configure_task("send", priority=5).defer(n=1)
    theirs.configure_task("send", priority=-5).defer(n=4)

    adopted("procrastinate", dsn=dsn)

    with queue.take(4) as jobs:
        assert [job.args["n"] for job in jobs] == [1, 2, 3, 4]


def test_priorities_out_of_range_become_the_nearest_and_retried_jobs_start_afresh_and_both_are_told(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    for priority in (1000, -1000, 100):
        theirs.configure_task("send", priority=priority).defer()
    own.execute("update procrastinate_jobs set attempts = 30 where id = 3")

    report = adopted("procrastinate", dsn=dsn)

    assert [job.priority for job in ours(queue)] == [100, -100, 100]
    assert [job.attempts for job in ours(queue)] == [0, 0, 0]
    assert (report["clamped"], report["tried"]) == (2, 1)


def test_a_job_with_a_lock_stays_unless_told_otherwise(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    theirs.configure_task("send", lock="customer 1").defer()

    report = adopted("procrastinate", dsn=dsn, code=1)

    assert "pgqueue does not adopt locks" in left(report)[0]
    assert (waiting(own), ours(queue)) == ([1], [])
    adopted("procrastinate", "--without-locks", dsn=dsn)
    assert (waiting(own), len(ours(queue))) == ([], 1)


def test_a_job_whose_key_is_taken_here_stays_there_and_the_collision_is_counted(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    holder = queue.task(name="send")(lambda: None).using(unique_key="send:1").enqueue()
    for lock in ("send:1", "send:2"):
        theirs.configure_task("send", queueing_lock=lock).defer()

    report = adopted("procrastinate", dsn=dsn, code=1)

    assert left(report) == [plans.COLLISION]
    assert [job.unique_key for job in ours(queue)] == ["send:1", "send:2"]
    assert waiting(own) == [1]
    assert queue.job(holder.id).collisions == 1


def test_a_queueing_lock_keeps_its_meaning_and_is_free_when_the_job_starts(
    theirs: App, queue: PgQueue, dsn: str
) -> None:
    theirs.configure_task("send", queueing_lock="send:1").defer()
    adopted("procrastinate", dsn=dsn)
    task = queue.task(name="send")(lambda: None).using(unique_key="send:1")

    assert not task.enqueue().accepted
    with queue.take(1):
        assert task.enqueue().accepted


@pytest.mark.usefixtures("shop")
def test_with_an_app_only_its_tasks_are_taken_unless_they_are_renamed_or_any_will_do(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    theirs.configure_task("shop.sent").defer(order_id=1)

    report = adopted("procrastinate", dsn=dsn, app="shop:queue", code=1)

    assert left(report) == ["no task 'shop.sent' is registered (--rename shop.sent=shop.send, or --any-task)"]
    assert waiting(own) == [1]
    adopted("procrastinate", "--rename", "shop.sent=shop.send", dsn=dsn, app="shop:queue")
    theirs.configure_task("nobody's").defer()
    adopted("procrastinate", "--any-task", dsn=dsn, app="shop:queue")
    assert [job.task for job in ours(queue)] == ["shop.send", "nobody's"]


@pytest.mark.usefixtures("shop")
def test_with_an_app_arguments_that_do_not_fit_the_task_stay(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    theirs.configure_task("shop.send").defer(order_id="forty-two")
    theirs.configure_task("shop.send").defer(order_id=42)

    report = adopted("procrastinate", dsn=dsn, app="shop:queue", code=1)

    assert left(report)[0].startswith(
        "its arguments do not fit the task: shop.send: Expected `int`, got `str`"
    )
    assert waiting(own) == [1]
    assert [job.args for job in ours(queue)] == [{"order_id": 42}]


@pytest.mark.usefixtures("shop")
def test_a_queue_that_the_app_has_not_declared_is_refused_and_into_leads_elsewhere(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    theirs.configure_task("send", queue="post").defer()

    report = adopted("procrastinate", "--any-task", dsn=dsn, app="shop:declared", code=1)

    assert "queue 'post' is not one of those declared" in left(report)[0]
    adopted("procrastinate", "--any-task", "--into", "mail", dsn=dsn, app="shop:declared")
    assert [job.queue for job in ours(queue)] == ["mail"]
    assert waiting(own) == []


@pytest.mark.parametrize("what", [{"queue": "a b"}, {"queueing_lock": "k" * 1001}])
def test_what_cannot_be_a_name_or_key_here_stays(
    what: dict[str, str], theirs: App, own: psycopg.Connection[Any], dsn: str
) -> None:
    theirs.configure_task("send", **what).defer()  # type: ignore[arg-type]  # strings, all of them

    assert len(left(adopted("procrastinate", dsn=dsn, code=1))) == 1
    assert waiting(own) == [1]


def test_a_task_whose_name_has_a_colon_needs_a_new_one(theirs: App, queue: PgQueue, dsn: str) -> None:
    theirs.configure_task("shop:send").defer()

    assert "no white space, comma or colon" in left(adopted("procrastinate", dsn=dsn, code=1))[0]
    adopted("procrastinate", "--rename", "shop:send=shop.send", dsn=dsn)
    assert [job.task for job in ours(queue)] == ["shop.send"]


@pytest.mark.parametrize("words", [["--task", "send"], ["--queue", "mail"]])
def test_filters_choose_and_what_they_do_not_choose_is_not_spoken_of(
    words: list[str], theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    theirs.configure_task("send", queue="mail").defer()
    theirs.configure_task("bill", queue="default").defer()

    report = adopted("procrastinate", *words, dsn=dsn)

    assert [job.task for job in ours(queue)] == ["send"]
    assert (report["left"], waiting(own)) == ([], [2])


def test_a_dry_run_says_the_same_and_changes_nothing(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    theirs.configure_task("send").defer()
    theirs.configure_task("send", lock="x").defer()
    everything = "select to_jsonb(job) from procrastinate_jobs as job order by id"
    before = own.execute(everything).fetchall()

    would = adopted("procrastinate", "--dry-run", dsn=dsn, code=1)

    assert (ours(queue), own.execute(everything).fetchall()) == ([], before)
    assert adopted("procrastinate", dsn=dsn, code=1) == {**would, "dry_run": False}


def test_a_dry_run_says_so_to_people_too(theirs: App, dsn: str) -> None:
    theirs.configure_task("send").defer()
    result = pgqueue("adopt", "procrastinate", "--dry-run", dsn=dsn)
    assert result.stdout.endswith("1 copied, 0 left; a dry run: nothing was changed\n")


def test_where_nothing_waits_that_is_no_failure(theirs: App, dsn: str) -> None:
    assert theirs is not None
    result = pgqueue("adopt", "procrastinate", dsn=dsn)
    assert (result.exit_code, result.stderr) == (0, "no job waits there\n")


def test_killed_between_copy_and_removal_all_is_as_it_was(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    for number in range(3):
        theirs.configure_task("send").defer(n=number)
    command = ["-m", "pgqueue", "adopt", "procrastinate"]
    env = os.environ | {"PGQUEUE_DSN": dsn}
    with psycopg.connect(dsn) as blocker, Program(command, env=env) as process:
        blocker.execute(
            "lock table procrastinate_events in access exclusive mode"
        )  # the removal will wait for it
        _until_waiting(own, "delete from procrastinate_jobs")
        process.send_signal(signal.SIGKILL)
        process.wait()
    _until_gone(own)

    assert waiting(own) == [1, 2, 3]
    assert ours(queue) == []
    adopted("procrastinate", dsn=dsn)
    assert (waiting(own), len(ours(queue))) == ([], 3)


def _until_waiting(own: psycopg.Connection[Any], words: str) -> None:
    """Until a session waits for a lock in a statement with these words, that is, has done what is before it."""
    _until(
        own,
        f"select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query ~ '{words}' "
        "and datname = current_database())",
    )


def _until_gone(own: psycopg.Connection[Any]) -> None:
    """Until the server has noticed that the process is dead, and rolled back."""
    _until(
        own,
        "select not exists (select from pg_stat_activity where application_name = 'pgqueue' "
        "and query ~ 'adopt|procrastinate_jobs' and datname = current_database())",
    )


def _until(own: psycopg.Connection[Any], query: str) -> None:
    deadline = time.monotonic() + 30
    while own.execute(query.encode()).fetchone() != (True,):
        assert time.monotonic() < deadline, query
        time.sleep(0.02)


def test_a_source_that_keeps_a_copied_job_undoes_it_all(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    for number in range(2):
        theirs.configure_task("send").defer(n=number)
    own.execute(
        "create function keep() returns trigger language plpgsql as $$ begin return null; end $$;"
        "create trigger keep before delete on procrastinate_jobs for each row when (old.id = 2) execute function keep()"
    )

    result = pgqueue("adopt", "procrastinate", dsn=dsn)

    assert result.exit_code == 2
    assert "1 of 2 copied jobs could not be deleted" in result.stderr
    assert (waiting(own), ours(queue)) == ([1, 2], [])


def test_more_jobs_than_one_batch_all_go_and_those_that_stay_do_not_stop_it(
    theirs: App, own: psycopg.Connection[Any], queue: PgQueue, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert theirs is not None
    monkeypatch.setattr(plans, "BATCH", 10)
    own.execute(
        "insert into procrastinate_jobs (queue_name, task_name, lock, args) select 'default', 'send', "
        "case when n between 20 and 45 then 'lock' end, jsonb_build_object('n', n) from generate_series(1, 99) as n"
    )

    report = adopted("procrastinate", dsn=dsn, code=1)

    assert [line["jobs"] for line in (*report["copied"], *report["left"])] == [73, 26]
    stayed = set(range(20, 46))
    assert set(waiting(own)) == stayed
    assert [job.args["n"] for job in ours(queue)] == [n for n in range(1, 100) if n not in stayed]


def test_their_tables_are_found_in_another_schema(
    own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    own.execute('create schema "Old one"; set search_path to "Old one"')
    own.execute(SchemaManager.get_schema())
    own.execute("insert into procrastinate_jobs (queue_name, task_name) values ('default', 'send')")

    missing = pgqueue("adopt", "procrastinate", dsn=dsn)
    adopted("procrastinate", "--from-schema", "Old one", dsn=dsn)

    assert missing.exit_code == 2
    assert "there is no table 'procrastinate_jobs' on the search path" in missing.stderr
    assert "--from-schema" in missing.stderr
    assert [job.task for job in ours(queue)] == ["send"]
    assert waiting(own) == []


def test_a_table_of_another_release_is_refused_by_what_it_lacks(
    theirs: App, own: psycopg.Connection[Any], dsn: str
) -> None:
    assert theirs is not None
    own.execute("alter table procrastinate_jobs rename column queueing_lock to enqueueing_lock")
    result = pgqueue("adopt", "procrastinate", dsn=dsn)
    assert result.exit_code == 2
    assert "'procrastinate_jobs' has no column queueing_lock" in result.stderr


def test_a_rename_needs_both_names(dsn: str) -> None:
    result = pgqueue("adopt", "procrastinate", "--rename", "send", dsn=dsn)
    assert result.exit_code == 2
    assert "OLD=NEW" in result.stderr


async def test_while_their_worker_runs_every_job_is_run_once_by_one_of_the_two(
    own: psycopg.Connection[Any], queue: PgQueue, dsn: str, running: Running
) -> None:
    own.execute(SchemaManager.get_schema())
    own.execute("create table effects (n integer, whose text)")
    app = App(connector=PsycopgConnector(conninfo=dsn))
    go_on = asyncio.Event()

    async def effect(n: int, whose: str) -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute("insert into effects values (%s, %s)", [n, whose])

    @app.task(name="mark")
    async def mark_there(n: int) -> None:
        if n >= 10:
            await go_on.wait()
        await effect(n, "theirs")

    @queue.task(name="mark")
    async def mark_here(n: int) -> None:
        await effect(n, "ours")

    async with app.open_async():
        for n in range(60):
            await mark_there.defer_async(n=n)
        worker = asyncio.create_task(app.run_worker_async(concurrency=3, install_signal_handlers=False))
        await asyncio.to_thread(
            _until,
            own,
            "select count(*) = 3 from procrastinate_jobs where status = 'doing'"
            " and (select count(*) from effects) = 10",
        )
        report = await asyncio.to_thread(adopted, "procrastinate", dsn=dsn)
        go_on.set()
        async with running(queue):
            await asyncio.to_thread(_until, own, "select count(*) = 60 from effects")
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker

    assert [line["jobs"] for line in report["copied"]] == [47]
    assert own.execute("select n from effects order by n").fetchall() == [(n,) for n in range(60)]
    assert own.execute("select count(*) from effects where whose = 'theirs'").fetchone() == (13,)


def test_pgqueuers_jobs_become_ours_with_all_that_they_had(
    pgq: SyncQueries, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    pgq.enqueue("shop.send", b'{"order_id": 42,\n "note": "\\u00e9"}', priority=3, dedupe_key="send:42")
    pgq.enqueue("sweep", None, execute_after=timedelta(days=1))

    report = adopted("pgqueuer", dsn=dsn)

    sent, swept = ours(queue)
    assert (sent.task, sent.queue, sent.args) == ("shop.send", "default", {"order_id": 42, "note": "é"})
    assert (sent.priority, sent.unique_key, sent.state) == (3, "send:42", JobState.READY)
    assert (swept.args, swept.state) == ({}, JobState.SCHEDULED)
    assert timedelta(hours=23) < swept.run_at - datetime.now(UTC) < timedelta(hours=25)
    assert (report["left"], queued(own)) == ([], [])


def test_pgqueuers_own_log_says_that_the_job_went(
    pgq: SyncQueries, own: psycopg.Connection[Any], dsn: str
) -> None:
    (job_id,) = pgq.enqueue("send", None)
    adopted("pgqueuer", dsn=dsn)
    rows = own.execute("select status::text from pgqueuer_log where job_id = %s order by id", [job_id])
    assert rows.fetchall() == [("queued",), ("deleted",)]


def test_a_dedupe_key_keeps_its_meaning_and_is_held_until_the_job_has_ended(
    pgq: SyncQueries, queue: PgQueue, dsn: str
) -> None:
    pgq.enqueue("send", None, dedupe_key="send:1")
    adopted("pgqueuer", dsn=dsn)
    task = queue.task(name="send")(lambda: None).using(unique_key="send:1")

    with queue.take(1):
        assert not task.enqueue().accepted
    assert task.enqueue().accepted


def test_a_picked_job_stays_with_pgqueuer(
    pgq: SyncQueries, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    pgq.enqueue(["send", "bill"], [None, None], [0, 0])
    own.execute("update pgqueuer set status = 'picked' where entrypoint = 'send'")

    adopted("pgqueuer", dsn=dsn)

    assert [job.task for job in ours(queue)] == ["bill"]
    assert own.execute("select entrypoint, status::text from pgqueuer").fetchall() == [("send", "picked")]


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        ("json", b"[1, 2]", [1, 2]),
        ("json", b'"text"', "text"),
        ("json", b"12345678901234567890123", 12345678901234567890123),
        ("text", b"12", "12"),
        ("base64", b"\xff\x00", "/wA="),
        ("json", None, None),
        ("base64", None, None),
    ],
)
def test_a_payload_can_be_handed_to_one_parameter(  # noqa: PLR0917 - fixtures
    kind: str, payload: bytes | None, value: object, pgq: SyncQueries, queue: PgQueue, dsn: str
) -> None:
    pgq.enqueue("send", payload)
    adopted("pgqueuer", "--payload-as", "data", "--payload-is", kind, dsn=dsn)
    assert [job.args for job in ours(queue)] == [{"data": value}]


async def test_base64_gives_a_parameter_of_bytes_just_the_bytes(
    pgq: SyncQueries, queue: PgQueue, dsn: str, running: Running
) -> None:
    seen = []

    @queue.task(name="send")
    async def send(data: bytes) -> None:
        seen.append(data)

    pgq.enqueue("send", b"\x00\xff any")
    adopted("pgqueuer", "--payload-as", "data", "--payload-is", "base64", dsn=dsn)
    async with running(queue):
        await queue.aresult(ours(queue)[0].id, timeout=10)
    assert seen == [b"\x00\xff any"]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"[1]", "its payload is no JSON object"),
        (b"plain text", "its payload cannot be read as json"),
        (b"\xff", "its payload cannot be read as json"),
        (b'{"n": NaN}', "its payload cannot be read as json"),
        (b'{"s": "\\ud800"}', "its payload cannot be read as json"),
        (b'{"s": "\\u0000"}', "its payload cannot be stored: a string holds NUL"),
    ],
)
def test_a_payload_that_cannot_be_arguments_stays_and_the_others_go(  # noqa: PLR0917 - fixtures
    payload: bytes, why: str, pgq: SyncQueries, own: psycopg.Connection[Any], queue: PgQueue, dsn: str
) -> None:
    pgq.enqueue(["bad", "good"], [payload, b'{"s": "\\\\u0000"}'], [0, 0])

    report = adopted("pgqueuer", dsn=dsn, code=1)

    assert left(report)[0].startswith(why)
    assert [job.args for job in ours(queue)] == [{"s": "\\u0000"}]
    assert queued(own) == ["bad"]


def test_headers_do_not_travel_and_that_is_told(pgq: SyncQueries, dsn: str) -> None:
    pgq.enqueue("send", None, headers={"trace": "1"})
    pgq.enqueue("send", None)
    assert adopted("pgqueuer", dsn=dsn)["without_headers"] == 1


def test_a_payload_that_is_text_needs_a_parameter_to_go_to(pgq: SyncQueries, dsn: str) -> None:
    assert pgq is not None
    result = pgqueue("adopt", "pgqueuer", "--payload-is", "text", dsn=dsn)
    assert result.exit_code == 2
    assert "needs --payload-as" in result.stderr


def test_with_an_app_a_task_brings_its_own_queue_and_attempts(
    pgq: SyncQueries, queue: PgQueue, dsn: str, shop: Path
) -> None:
    (shop / "shop.py").write_text(SHOP.replace('(queue="mail")', '(queue="mail", max_attempts=3)'))
    pgq.enqueue("shop.send", b'{"order_id": 1}')

    adopted("pgqueuer", dsn=dsn, app="shop:queue")

    (job,) = ours(queue)
    assert (job.queue, job.max_attempts) == ("mail", 3)

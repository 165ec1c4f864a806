"""Roles with few rights: what each may do, and that planted functions are not run."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from cli.commands import pgqueue
from docs.pages import DOCS, blocks
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege
from store.crowd import ask
from store.samples import LEASE, MINUTE, NOON, adding, error_of, new_job, running, shown, taking, worker_info

from pgqueue import Limit, PgQueue, Workflow, chain, group
from pgqueue.errors import InvalidOption, QueueClosed
from pgqueue.store import retention, signals
from pgqueue.store.jobs import claim, control, enqueue, finish, notes
from pgqueue.store.queues import queues
from pgqueue.store.schema import schema
from pgqueue.store.schema.grants import EXTRAS, RIGHTS, Role, grant_statements, revoke_statements
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.note import StoredReport
from pgqueue.values.jobs.verdict import Again, Cancelled, Died, Succeeded, Verdict, Waits
from pgqueue.values.queues.settings import QueueSettings
from pgqueue.values.queues.shares import Shares
from pgqueue.values.signals import SignalWait

ROLES = ("app_events", "app_web", "app_worker", "app_report", "app_operator", "app_nobody")
GRANTED: tuple[tuple[Role, str, dict[str, Any]], ...] = (
    ("producer", "app_events", {"sql_alone": True}),
    ("producer", "app_web", {"also": ["signals"]}),
    ("worker", "app_worker", {}),
    ("operator", "app_operator", {}),
    ("reader", "app_report", {}),
)
CALLS_OF_OTHERS = (
    "pgqueue.enqueue('t')",
    "pgqueue.drop_history_days('2100-01-01')",
    "pgqueue.drop_old_history(now())",
    "pgqueue.drop_old_strays(now(), 1)",
    "pgqueue.drop_old_dead(now(), 1)",
    "pgqueue.make_history_day('2100-01-01')",
    "pgqueue.ensure_history_days('2100-01-01', '2100-01-01')",
    "pgqueue.keep_for('0', '0', 0, 'them')",
    "pgqueue.put_in_lanes('{1}')",
    "pgqueue.free_id()",
)


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection, with the grants of the guide made."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for role in ROLES:
            if not connection.execute("select from pg_roles where rolname = %s", [role]).fetchall():
                connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        for role, to, options in GRANTED:
            granted(connection, *grant_statements(role, to, **options))
        connection.execute("grant usage on schema pgqueue to app_nobody")
        yield connection


def granted(connection: psycopg.Connection[Any], *statements: str) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def _become(connection: psycopg.Connection[Any], role: str) -> None:
    connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))


def test_a_role_that_enqueues_by_sql_reads_nothing(own: psycopg.Connection[Any]) -> None:
    _become(own, "app_events")

    assert (
        own.execute("select pgqueue.enqueue('bill', '{\"order_id\": 42}', unique_key => 'k')").fetchone()
        is not None
    )
    assert own.execute("select pgqueue.enqueue('bill', unique_key => 'k')").fetchone() is not None

    for table in ("jobs", "all_jobs", "job_history", "dead_jobs"):
        with pytest.raises(InsufficientPrivilege):
            own.execute(f"select from pgqueue.{table}".encode())
    with pytest.raises(InsufficientPrivilege):
        own.execute("insert into pgqueue.jobs (task) values ('t')")


def test_a_role_that_enqueues_by_python_reads_only_ids(own: psycopg.Connection[Any]) -> None:
    _become(own, "app_web")

    (job,) = ask(own, adding(new_job()))

    assert own.execute("select id from pgqueue.jobs").fetchall() == [(job,)]
    with pytest.raises(InsufficientPrivilege):
        own.execute("select args from pgqueue.jobs")
    with pytest.raises(InsufficientPrivilege):
        own.execute("delete from pgqueue.jobs")


def test_a_worker_that_does_not_own_the_tables_runs_jobs_and_tidies(own: psycopg.Connection[Any]) -> None:
    own.execute("select pgqueue.ensure_history_days('2020-01-01', '2020-01-03')")
    _become(own, "app_worker")

    for verdict in (Succeeded, _again, _died):
        taken = ask(own, running())
        assert ask(own, finish.finish(taken.worker_id, [_of(verdict, taken)], keep=True)).keys() == {taken.id}
        own.execute("delete from pgqueue.jobs")
    noting = ask(own, running())
    assert ask(own, notes.keep(noting, ("step", "charge"), "1"))
    assert ask(own, notes.recall(noting.id)) == {("step", "charge"): "1"}
    ask(own, notes.report([StoredReport(noting, '{"done": 1}')]))
    assert ask(own, notes.progress(noting.id)) is not None
    own.execute("delete from pgqueue.jobs")
    lost = ask(own, running())
    ask(own, leases.leave(lost.worker_id))
    assert ask(own, upkeep.reclaim()) == {lost.id: JobState.READY}
    ask(own, upkeep.poll(elsewhere=True))
    assert ask(own, retention.keep_for(timedelta(days=3), timedelta(days=3), said_by="test")).changed
    assert ask(own, retention.ensure_history_days(now=NOON)) == retention.DAYS_AHEAD + 1
    dropped = 0
    while dropped < 3:
        dropped += ask(own, retention.drop_history())
    for step in (retention.drop_strays, retention.drop_dead, upkeep.release_holds, upkeep.drop_notes):
        ask(own, step())


def test_roles_that_enqueue_have_what_queues_say_and_change_no_queue(own: psycopg.Connection[Any]) -> None:
    ask(own, queues.declare("mail", QueueSettings(priority=7, max_attempts=3), existing="fail"))
    said = new_job(queue="mail", priority=None, max_attempts=None)
    _become(own, "app_web")
    ids = [
        ask(own, enqueue.enqueue(said)).id,
        *(one.id for one in ask(own, enqueue.enqueue_many([said] * 2))),
    ]
    _become(own, "app_events")
    ids.append(own.execute("select pgqueue.enqueue('bill', queue => 'mail')").fetchone()[0])  # type: ignore[index]  # a row
    own.execute("reset role")
    rows = own.execute("select distinct priority, max_attempts from pgqueue.jobs where id = any(%s)", [ids])
    assert rows.fetchall() == [(7, 3)]
    ask(own, queues.close("mail"))
    _become(own, "app_web")
    for refused in (enqueue.enqueue(said), enqueue.enqueue_many([said])):
        with pytest.raises(QueueClosed):
            ask(own, refused)
    for role in ("app_web", "app_events", "app_report"):
        own.execute("reset role")
        _become(own, role)
        for change in (
            queues.pause("mail"),
            queues.close("x"),
            queues.resume("mail"),
            queues.declare("mail", QueueSettings(), existing="replace"),
        ):
            with pytest.raises(InsufficientPrivilege):
                ask(own, change)
        for call in ("pause_queue('mail')", "resume_queue('mail')"):
            with pytest.raises(InsufficientPrivilege):
                own.execute(f"select pgqueue.{call}".encode())
        with pytest.raises(InsufficientPrivilege):
            own.execute("update pgqueue.workers set ask_quiet = true")


def test_a_role_that_enqueues_adds_flows_with_the_rights_that_the_guide_names(
    own: psycopg.Connection[Any], dsn: str
) -> None:
    queue = PgQueue(dsn)
    work = queue.task(name="work")(lambda: None)
    flow = Workflow(key="k", in_turn=True)
    flow.add("one", work.call())
    flow.add("two", work.call(), after=["one"])

    def enqueued() -> int:
        with own.transaction():
            own.execute("set local role app_web")
            chain(work.call(), group([work.call(), work.call()]), work.call()).enqueue(connection=own)
            return flow.enqueue(connection=own).id

    with pytest.raises(InsufficientPrivilege):
        enqueued()
    granted(own, *grant_statements("producer", "app_web", also=["flows"]))
    assert enqueued() != enqueued()
    assert own.execute(
        "select state, count(*) from pgqueue.flows group by state order by state"
    ).fetchall() == [("running", 3), ("waiting", 1)]
    _become(own, "app_web")
    with pytest.raises(InsufficientPrivilege):
        own.execute("delete from pgqueue.flows")
    queue.close()


def test_a_role_that_runs_jobs_steers_queues_and_workers(own: psycopg.Connection[Any]) -> None:
    _become(own, "app_worker")
    assert ask(own, queues.pause("mail", why="w", by="b")) == ["mail"]
    assert ask(own, queues.close("mail", by="b")) == ["mail"]
    own.execute("select pgqueue.resume_queue('mail'), pgqueue.pause_queue('mail', why => 'x')")
    assert ask(own, queues.resume("*", by="b")) == ["mail"]
    settings = QueueSettings(timeout=MINUTE, keep_history=timedelta(0))
    assert ask(own, queues.declare("mail", settings, existing="fail")) == settings
    ask(own, enqueue.enqueue(new_job(queue="mail", priority=None)))
    info = worker_info()
    ask(own, leases.register(info, LEASE))
    (found,) = ask(
        own, claim.fill(info.id, ["mail", "other"], 5, split=Shares({"mail": 5, "other": 1}.__getitem__))
    )
    assert ask(own, upkeep.poll(elsewhere=True)).timeouts == {"mail": 60.0}
    assert ask(own, finish.finish(info.id, [Succeeded(found, 0.0)], keep=True)).keys() == {found.id}
    assert own.execute("select count(*) from pgqueue.job_history").fetchone() == (0,)
    assert own.execute("select action from pgqueue.audit order by id").fetchall() == [
        (one,) for one in ("pause", "close", "resume", "pause", "resume", "set")
    ]


def test_a_role_that_enqueues_gives_its_jobs_lanes(own: psycopg.Connection[Any], dsn: str) -> None:
    queue = PgQueue(dsn)

    @queue.task(name="send", limit=Limit(1, by="customer"))
    def send(customer: int) -> None: ...

    @queue.task(name="render", limit=Limit(1, when_full="newest"))
    def render() -> None: ...

    call = send.call(7)
    _become(own, "app_web")
    for enqueued in (send.using(connection=own).enqueue(7), *queue.enqueue_many([call], connection=own)):
        assert enqueued.id
    with pytest.raises(InsufficientPrivilege):
        render.using(connection=own).enqueue()
    own.execute("reset role")
    granted(own, *grant_statements("producer", "app_web", also=["when_full"]))
    _become(own, "app_web")
    render.using(connection=own).enqueue()
    own.execute("reset role")
    lanes = own.execute("select in_lane, count(*) from pgqueue.jobs group by 1").fetchall()
    assert lanes == [(True, 3)]
    queue.close()


def test_an_operator_does_to_many_jobs_what_the_audit_shows(own: psycopg.Connection[Any], dsn: str) -> None:
    ask(own, enqueue.enqueue(new_job()))
    operating = PgQueue(f"{dsn}&options=-c%20role%3Dapp_operator")
    assert operating.control.jobs(queue="default").reprioritise(5).done == 1
    assert operating.control.jobs(queue="default").cancel().done == 1
    operating.control.limits.set("queue:mail", Limit(3))
    operating.control.pause("mail")
    assert [one.action for one in operating.insight.audit()] == [
        "pause",
        "limit set",
        "cancel",
        "reprioritise",
    ]
    operating.close()
    _become(own, "app_operator")
    for tampered in ("delete from pgqueue.audit", "update pgqueue.audit set said_by = 'another'"):
        with pytest.raises(InsufficientPrivilege):
            own.execute(tampered)


HOSTILE = 'shop\'s "events" \\ $limit$ ž'
"""A role's name that would end a quote."""
MUST_NOT: dict[str, tuple[str, ...]] = {
    "app_events": (
        "select from pgqueue.queues",
        "insert into pgqueue.jobs (task) values ('t')",
        "select pgqueue.signal('key:k', 'x')",
    ),
    "app_web": (
        "select args from pgqueue.jobs",
        "update pgqueue.jobs set args = '{}'",
        "update pgqueue.jobs set queue = 'other'",
        "delete from pgqueue.jobs",
        "select from pgqueue.workers",
        "select from pgqueue.dead_jobs",
        "insert into pgqueue.queues (name) values ('x')",
        "insert into pgqueue.schedules (name) values ('x')",
    ),
    "app_report": (
        "insert into pgqueue.jobs (task) values ('t')",
        "update pgqueue.jobs set priority = 1",
        "delete from pgqueue.dead_jobs",
        "select from pgqueue.callback_key",
        "select from pgqueue.signals",
    ),
    "app_worker": ("drop table pgqueue.jobs", "truncate pgqueue.jobs", "create table pgqueue.mine (n int)"),
    "app_operator": (
        "delete from pgqueue.audit",
        "update pgqueue.audit set said_by = 'x'",
        "drop table pgqueue.jobs",
        "alter table pgqueue.jobs disable trigger all",
    ),
}


@pytest.mark.parametrize("role", MUST_NOT)
def test_a_role_may_not_do_more_than_its_program_needs(own: psycopg.Connection[Any], role: str) -> None:
    _become(own, role)
    for statement in MUST_NOT[role]:
        with pytest.raises(InsufficientPrivilege):
            own.execute(statement.encode())


@pytest.mark.parametrize(("role", "to"), [(role, to) for role, to, _ in GRANTED])
def test_what_is_revoked_is_gone(own: psycopg.Connection[Any], role: Role, to: str) -> None:
    granted(
        own,
        *grant_statements(role, to, also=EXTRAS if role == "producer" else ()),
        *revoke_statements(role, to),
    )
    for kind in ("pg_class where relnamespace", "pg_proc where pronamespace"):
        column = "relacl" if "rel" in kind else "proacl"
        found = own.execute(
            f"select {column}::text from {kind} = 'pgqueue'::regnamespace and {column}::text ~ '{to}='".encode()
        )
        assert found.fetchall() == []
    assert own.execute("select from pg_attribute where attacl::text ~ %s", [f"{to}="]).fetchall() == []
    assert own.execute("select has_schema_privilege(%s, 'pgqueue', 'usage')", [to]).fetchone() == (False,)


@pytest.fixture
def limited(own: psycopg.Connection[Any], dsn: str) -> Iterator[str]:
    """The DSN of a role that may enqueue to the queues ``mail`` and ``it's`` alone."""
    if not own.execute("select from pg_roles where rolname = %s", [HOSTILE]).fetchall():
        own.execute(sql.SQL("create role {}").format(sql.Identifier(HOSTILE)))
    granted(own, *grant_statements("producer", HOSTILE, queues=["mail", "it's"], also=["signals"]))
    own.execute(sql.SQL("set role {}").format(sql.Identifier(HOSTILE)))
    yield dsn
    own.execute("reset role")


def test_a_producer_enqueues_to_its_own_queues_alone_at_every_door(
    own: psycopg.Connection[Any], limited: str
) -> None:
    queue = PgQueue(limited)
    send = queue.task(name="send", limit=Limit(1, by="to"))(_send)
    doors = (
        lambda name: send.using(connection=own, queue=name).enqueue(1),
        lambda name: queue.enqueue_many([send.using(queue=name).call(2)] * 3, connection=own),
        lambda name: own.execute("select pgqueue.enqueue('send', '{}', queue => %s)", [name]),
        lambda name: own.execute(
            "select pgqueue.enqueue('send', '{}', queue => %s, unique_key => gen_random_uuid()::text)", [name]
        ),
        lambda name: own.execute("insert into pgqueue.jobs (task, queue) values ('send', %s)", [name]),
    )
    for enqueue_to in doors:
        for name in ("mail", "it's"):
            enqueue_to(name)
        for other in ("default", "mai", "MAIL"):
            with pytest.raises(InsufficientPrivilege, match=f"may not enqueue to queue '{other}'"):
                enqueue_to(other)
    own.execute("reset role")
    assert own.execute("select distinct queue from pgqueue.jobs order by 1").fetchall() == [
        ("it's",),
        ("mail",),
    ]
    send.using(connection=own, queue="default").enqueue(3)
    _become(own, "app_web")
    send.using(connection=own, queue="default").enqueue(4)
    queue.enqueue_many([send.call(5)], connection=own)
    own.execute("reset role")
    jobs = "select count(*) from pgqueue.jobs where queue = 'default'"
    assert own.execute(jobs.encode()).fetchone() == (3,)
    own.execute(sql.SQL("set role {}").format(sql.Identifier(HOSTILE)))
    with pytest.raises(InsufficientPrivilege):
        own.execute("update pgqueue.jobs set lane = null where queue = 'mail'")
    queue.close()


@pytest.mark.usefixtures("limited")
def test_a_member_of_a_limited_role_is_limited_until_the_limit_is_revoked(
    own: psycopg.Connection[Any],
) -> None:
    own.execute("reset role")
    own.execute(sql.SQL("grant {} to app_nobody").format(sql.Identifier(HOSTILE)))
    try:
        _become(own, "app_nobody")
        with pytest.raises(InsufficientPrivilege, match="role app_nobody may not enqueue to queue 'x'"):
            own.execute("select pgqueue.enqueue('t', queue => 'x')")
        own.execute("reset role")
        granted(
            own,
            *revoke_statements("producer", HOSTILE),
            *grant_statements("producer", HOSTILE, sql_alone=True),
        )
        _become(own, "app_nobody")
        own.execute("select pgqueue.enqueue('t', queue => 'x')")
    finally:
        own.execute("reset role")
        own.execute(sql.SQL("revoke {} from app_nobody").format(sql.Identifier(HOSTILE)))


def test_an_owner_that_is_no_superuser_installs_the_tables_runs_jobs_and_limits_a_producer(
    empty_dsn: str,
) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as own:
        if not own.execute("select from pg_roles where rolname = 'app_owner'").fetchall():
            own.execute("create role app_owner login")
        if not own.execute("select from pg_roles where rolname = 'app_login'").fetchall():
            own.execute("create role app_login login")
        granted(own, *grant_statements("owner", "app_owner"))
    theirs = make_conninfo(empty_dsn, user="app_owner")
    schema.migrate(theirs)
    queue = PgQueue(theirs)
    queue.task(name="send")(_send).enqueue(1)
    with queue.take(1) as (job,):
        assert job.args == {"to": 1}
    with psycopg.connect(theirs, autocommit=True) as own:
        with pytest.raises(InsufficientPrivilege):
            own.execute("create schema other")
        granted(own, *grant_statements("producer", "app_login", queues=["mail"]))
        own.execute("select pgqueue.enqueue('t', queue => 'other')")
    with psycopg.connect(make_conninfo(empty_dsn, user="app_login"), autocommit=True) as limited:
        limited.execute("select pgqueue.enqueue('t', queue => 'mail')")
        with pytest.raises(InsufficientPrivilege, match="role app_login may not enqueue to queue 'other'"):
            limited.execute("select pgqueue.enqueue('t', queue => 'other')")
    queue.close()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"role": "produser"}, "did you mean 'producer'"),
        ({"to": ""}, "1 to 63 bytes"),
        ({"to": "a\0b"}, "without NUL"),
        ({"to": "\ud800"}, "half surrogate"),
        ({"role": "worker", "queues": ["mail"]}, "about a producer"),
        ({"queues": []}, "name a queue"),
        ({"queues": ["a b"]}, "no white space"),
        ({"also": ["flow"]}, "did you mean 'flows'"),
        ({"also": ["unique"], "queues": ["mail"]}, "cannot go with --queues"),
    ],
)
def test_grants_that_make_no_sense_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        grant_statements(**{"role": "producer", "to": "shop"} | options)


def test_the_command_prints_the_grants_of_the_guide_and_runs_them_if_asked(dsn: str) -> None:
    command = ("grants", "producer", "--to", "shop_web", "--queues", "mail,reports", "--also", "signals")
    printed = pgqueue(*command, dsn=dsn)
    (shown,) = [
        one.code
        for one in blocks(DOCS / "guides" / "roles.md")
        if "shop_web" in one.code and one.language == "sql"
    ]
    assert printed.stdout == shown
    assert set(RIGHTS) == {"worker", "producer", "monitor", "reader", "operator"}
    with psycopg.connect(dsn, autocommit=True) as own:
        if not own.execute("select from pg_roles where rolname = 'shop_web'").fetchall():
            own.execute("create role shop_web")
        asked = "select has_column_privilege('shop_web', 'pgqueue.jobs', 'id', 'select')"
        assert own.execute(asked.encode()).fetchone() == (False,)
        assert pgqueue(*command, "--apply", dsn=dsn).exit_code == 0
        assert own.execute(asked.encode()).fetchone() == (True,)
        assert (
            pgqueue("grants", "producer", "--to", "shop_web", "--revoke", "--apply", dsn=dsn).exit_code == 0
        )
        assert own.execute(asked.encode()).fetchone() == (False,)
        assert own.execute("select from pg_trigger where tgname ~ '^producer_'").fetchall() == []
    refused = pgqueue("queues", "pause", "mail", dsn=make_conninfo(dsn, options="-c role=shop_web"))
    assert refused.exit_code == 2
    assert (
        "permission denied for schema pgqueue: each role of `pgqueue grants` but `producer --sql-only` gives this right"
        in refused.stderr
    )


def _send(to: int) -> None: ...


def _of(verdict: Any, taken: Any) -> Any:
    return verdict(taken, 0.0) if verdict is Succeeded else verdict(taken)


def _again(taken: Any) -> Again:
    return Again(taken, timedelta(0), error_of(taken))


def _died(taken: Any) -> Died:
    return Died(taken, 0.0, "asked", error_of(taken))


def test_a_role_that_reads_results_changes_nothing(own: psycopg.Connection[Any]) -> None:
    (job,) = ask(own, adding(new_job()))
    own.execute(
        "insert into pgqueue.notes (job_id, kind, value) values (%s, 'progress', '{\"done\": 1}')", [job]
    )
    _become(own, "app_report")

    assert ask(own, shown(job)).state is JobState.READY
    assert ask(own, notes.progress(job)) is not None
    with pytest.raises(InsufficientPrivilege):
        ask(own, control.cancel(job))


@pytest.mark.parametrize("call", CALLS_OF_OTHERS)
@pytest.mark.parametrize("role", ["app_nobody", "app_report"])
def test_what_runs_with_the_owners_rights_is_not_for_everyone(
    own: psycopg.Connection[Any], role: str, call: str
) -> None:
    _become(own, role)

    with pytest.raises(InsufficientPrivilege, match="permission denied for function"):
        own.execute(f"select {call}".encode())


PLANTED = """
create function public.hijacked() returns void language plpgsql as $$ begin raise exception 'hijacked'; end $$;
create function public.width_bucket(bigint, bigint[]) returns integer language sql as $$ select public.hijacked(); select 1 $$;
create function public.make_interval(secs float8) returns interval language sql as $$ select public.hijacked(); select null::interval $$;
create function public.jsonb_build_object(text, timestamptz) returns jsonb language sql as $$ select public.hijacked(); select null::jsonb $$;
create function public.jsonb_build_object(text, bigint) returns jsonb language sql as $$ select public.hijacked(); select null::jsonb $$;
create function public.to_char(date, text) returns text language sql as $$ select public.hijacked(); select null::text $$;
create function public.to_regclass(text, text) returns regclass language sql as $$ select public.hijacked(); select null::regclass $$;
create function public.format(text, text) returns text language sql as $$ select public.hijacked(); select null::text $$;
create function public.format(text, regclass) returns text language sql as $$ select public.hijacked(); select null::text $$;
create function public.format(text, text, text) returns text language sql as $$ select public.hijacked(); select null::text $$;
set search_path = public
"""


def test_functions_planted_where_a_caller_looks_for_names_are_not_run(own: psycopg.Connection[Any]) -> None:
    own.execute(PLANTED.encode())
    with pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
        own.execute("select width_bucket(1::bigint, array[1]::bigint[])")

    ask(own, adding(*(new_job(max_attempts=2) for _ in range(4))))
    one, two, three, four = ask(own, taking(now=NOON))
    verdicts: list[Verdict] = [Succeeded(one, 0.0), _again(two), _died(three), Cancelled(four)]
    assert len(ask(own, finish.finish(one.worker_id, verdicts, keep=True, now=NOON))) == 4
    (again,) = ask(own, taking(now=NOON + MINUTE))
    ask(own, upkeep.poll(now=NOON + MINUTE, elsewhere=True))
    ask(own, leases.leave(again.worker_id))
    assert ask(own, upkeep.reclaim(now=NOON)) == {two.id: JobState.DEAD}
    assert (
        own.execute("select pgqueue.enqueue('t', run_at => now() + interval '1 day')").fetchone() is not None
    )
    ask(own, retention.ensure_history_days(now=NOON + timedelta(days=30)))
    ask(own, retention.drop_history(now=NOON + timedelta(days=300)))
    info = worker_info()
    ask(own, leases.register(info, LEASE))
    ask(own, claim.return_unknown(info.id, []))
    own.execute("truncate pgqueue.workers")


def test_every_function_looks_names_up_in_the_catalogue_alone(own: psycopg.Connection[Any]) -> None:
    found = own.execute(
        "select proname from pg_proc where pronamespace = 'pgqueue'::regnamespace and prokind <> 'a' "
        "and 'search_path=pg_catalog, pg_temp' <> all(coalesce(proconfig, '{}'))"
    ).fetchall()
    assert found == []


def test_a_role_that_signals_reads_nothing_and_one_that_looks_makes_no_tokens(
    own: psycopg.Connection[Any],
) -> None:
    taken = ask(own, running())
    ((token,),) = own.execute("select pgqueue.callback_token(%s, 'paid', null)", [taken.id]).fetchall()
    wait = Waits(taken, SignalWait(taken.id, "approved", f"job:{taken.id}", MINUTE))
    _become(own, "app_worker")
    assert ask(own, finish.finish(taken.worker_id, [wait], keep=True)) == {taken.id: JobState.BLOCKED}
    assert ask(own, signals.callback(wait.awaited)) != token
    ask(own, signals.look(wait.awaited))
    ask(own, signals.admit_due())
    ask(own, upkeep.drop_signals())

    _become(own, "app_web")
    assert own.execute(f"select pgqueue.signal('job:{taken.id}', 'approved')".encode()).fetchone() == (True,)
    assert ask(own, signals.send(f"job:{taken.id}", "other")) == "first"
    assert ask(own, signals.resolve(token)) == "first"
    assert own.execute("select pgqueue.resolve(%s)", [token]).fetchone() == (False,)
    for role in ("app_web", "app_report", "app_events", "app_nobody"):
        _become(own, role)
        for statement in (
            "select from pgqueue.signals",
            "select from pgqueue.callback_key",
            f"select pgqueue.callback_token({taken.id}, 'paid', null)",
            "select pgqueue.callback_mac('x')",
            "select pgqueue.renew_callback_key()",
        ):
            with pytest.raises(InsufficientPrivilege):
                own.execute(statement.encode())
    for call in ("signal('key:k', 'x')", "resolve('x')"):
        with pytest.raises(InsufficientPrivilege, match="permission denied for function"):
            own.execute(f"select pgqueue.{call}".encode())


def test_default_privileges_give_nobody_the_secret_of_callbacks(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as own:
        if not own.execute("select from pg_roles where rolname = 'app_report'").fetchall():
            own.execute("create role app_report")
        own.execute("alter default privileges grant select on tables to app_report")
        try:
            schema.migrate(empty_dsn)
            own.execute("grant usage on schema pgqueue to app_report")
            _become(own, "app_report")
            own.execute("select from pgqueue.signals")
            with pytest.raises(InsufficientPrivilege):
                own.execute("select from pgqueue.callback_key")
        finally:
            own.execute("reset role")
            own.execute("alter default privileges revoke select on tables from app_report")

"""What pgqueue keeps of an erased job elsewhere goes with it: no table, no index and no file of the lake has a trace of it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from looking import ask
from spark.lake_history import DAY, no_session
from spark.test_spark_erase import everything

from pgqueue import Context, PgQueue, Unique, Workflow, group
from pgqueue.spark.config import Config
from pgqueue.spark.erasing import EraseCondition, erase, erase_everywhere, of_key, of_tenant
from pgqueue.spark.lake.export import export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.lake.verify import verify
from pgqueue.spark.rollup.rollup import rollup
from pgqueue.testing import Clock, drain, in_database

WHO = "ada-4711.example"
CONFIG = Config(tenant="$.customer")
NOON = datetime.combine(DAY, datetime.min.time(), UTC) + timedelta(hours=12)
LATER = timedelta(days=2)
"""The day is over, and may be exported."""
PLANTED = {
    "audit", "deadlines", "dead_jobs", "flows", "job_history", "nodes", "notes", "signals", "sink_refused", "sink_rejected", "stacks",
    "unique_holds", "waits", "rollup_failures", "rollup_tenants",
}  # fmt: skip
ONLY_IDS = {"schedule_ticks", "alerts"}
"""They name a job by its id, and hold no text of it."""
ERASE = "select pgqueue.erase_ended(current_date, '{}', '{}', %(texts)s)"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def used(queue: PgQueue, dsn: str) -> Iterator[PgQueue]:
    """A queue on whose jobs of one customer a trace is left in each place where a job can leave one; the day is over."""
    clock = Clock(NOON)
    with in_database(queue, dsn, clock=clock):
        _use(queue)
        clock.travel(LATER)
        yield queue


def _use(queue: PgQueue) -> None:
    @queue.task(max_attempts=1)
    def work(ctx: Context, customer: str) -> str:
        ctx.step("look up", lambda: f"the address of {customer}")
        ctx.checkpoint({"at": customer})
        ctx.wait_for(f"reviewed-{customer}", timeout=timedelta(hours=1))
        return customer

    @queue.task(max_attempts=1)
    def fail(customer: str) -> None:
        raise LookupError(f"no account of {customer}")

    @queue.task
    def bill(customer: str) -> str:
        return customer

    for who in (WHO, "bob"):
        waits = work.enqueue(who)
        fail.enqueue(who)
        bill.using(unique_key=f"bill {who}", unique=Unique(period=timedelta(days=3000))).enqueue(who)
        flow = Workflow(f"import of {who}", key=f"shop {who}")
        flow.add("first", bill.call(who))
        flow.add("second", fail.call(who), after="first")
        ended = flow.enqueue()
        drain(queue, raises=False)
        ask(
            queue,
            "insert into pgqueue.signals values (%(flow)s, 'paid', %(who)s)",
            flow=f"flow:{ended.id}",
            who=f'"{who}"',
        )
        queue.signal(waits, f"reviewed-{who}", {"by": who})
        drain(queue, raises=False)
        _leave_by_hand(queue, waits.id, who)


def _leave_by_hand(queue: PgQueue, job_id: int, who: str) -> None:
    """What stays in these tables for a short time only, or needs Spark or an operator to get there."""
    for statement in (
        "insert into pgqueue.stacks (job_id, worker_id, stack) values (%(id)s, gen_random_uuid(), %(who)s)",
        "insert into pgqueue.waits (job_id, waits_for) values (%(id)s, 'signal:key:' || %(who)s || ':paid')",
        "insert into pgqueue.deadlines (job_id, waits_for, until) values (%(id)s, 'signal:key:' || %(who)s, now())",
        "insert into pgqueue.sink_rejected values (gen_random_uuid(), %(id)s, 0, 0, %(who)s)",
        "insert into pgqueue.sink_rejected values (gen_random_uuid(), 0, 0, 0, 'key', json_build_object('name', %(who)s::text))",
        "insert into pgqueue.sink_refused values (gen_random_uuid(), 0, 0, 'no number', 'name=' || quote_literal(%(who)s))",
        "insert into pgqueue.notes (job_id, kind, value) values (%(id)s, 'progress', to_json(%(who)s::text))",
        "insert into pgqueue.audit (action, target, details) values ('cancel', '*', jsonb_build_object('key', %(who)s::text))",
    ):
        ask(queue, statement, id=job_id, who=who)


def tables_with(queue: PgQueue, text: str) -> set[str]:
    """The tables whose rows have a text in any column."""
    found = ask(
        queue,
        "select relname from pg_class where relnamespace = 'pgqueue'::regnamespace and relkind in ('r', 'p')"
        " and not relispartition",
    )
    return {
        name
        for (name,) in found
        if ask(
            queue,
            f"select 1 from pgqueue.{name} as one where one::text like %(text)s limit 1",
            text=f"%{text}%",
        )
    }


def files_with(queue: PgQueue, text: str) -> list[str]:
    """The tables and indices whose files have a text in them, once what was deleted is vacuumed."""
    with psycopg.connect(queue.database.dsn, autocommit=True) as own:
        own.execute("vacuum full")
        own.execute("checkpoint")
        found = own.execute(
            "select oid::regclass::text from pg_class"
            " where (relnamespace = 'pgqueue'::regnamespace or relnamespace = 'pg_toast'::regnamespace)"
            " and relkind in ('r', 'i', 't') and relpersistence = 'p'"
            " and position(%s::bytea in pg_read_binary_file(pg_relation_filepath(oid))) > 0",
            [text.encode()],
        )
        return [name for (name,) in found]


def test_no_table_no_index_and_no_file_has_a_trace_of_an_erased_customer(used: PgQueue, lake: Lake) -> None:
    export(no_session, used.database, lake)
    verify(no_session, used.database, lake)
    rollup(no_session, used.database, lake, CONFIG)
    assert tables_with(used, WHO) == PLANTED, "each place where a job can leave a trace has one"
    assert files_with(used, WHO)
    before = {one: tables_with(used, one) for one in ("bob",)}

    erase_everywhere(no_session, used.database, lake, CONFIG, of_tenant(WHO, CONFIG))

    assert tables_with(used, WHO) == set()
    assert files_with(used, WHO) == []
    assert WHO not in everything(lake)
    assert {one: tables_with(used, one) for one in before} == before, "another customer keeps all"


def test_each_table_that_names_a_job_is_one_of_those_that_are_looked_at(queue: PgQueue) -> None:
    named = ask(
        queue,
        "select distinct relname from pg_class join pg_attribute on attrelid = pg_class.oid"
        " where relnamespace = 'pgqueue'::regnamespace and relkind in ('r', 'p') and not relispartition and attname = 'job_id'",
    )
    assert {name for (name,) in named} <= PLANTED | ONLY_IDS


def test_a_job_of_a_flow_that_goes_on_stays_until_the_flow_has_ended(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    clock = Clock(NOON)
    with in_database(queue, dsn, clock=clock):

        @queue.task
        def first(customer: str) -> str:
            return customer

        @queue.task
        def second(ctx: Context) -> str:
            return str(ctx.results.previous)

        flow = Workflow("import")
        flow.add("first", first.call(WHO))
        flow.add("second", second.using(delay=timedelta(days=30)).call(), after="first")
        handle = flow.enqueue()
        drain(queue, raises=False)
        alone = first.using(unique_key="alone").enqueue(WHO)
        drain(queue, raises=False)
        clock.travel(LATER)
        export(no_session, queue.database, lake)
        condition = of_tenant(WHO, CONFIG)

        (found,) = erase(queue.database, lake, condition)
        assert (found.rows, found.database, found.in_flows) == (1, 1, 1)
        assert not ask(queue, "select from pgqueue.job_history where id = %(id)s", id=alone.id)
        (again,) = erase(queue.database, lake, condition)
        assert (again.rows, again.in_flows) == (0, 1)
        assert len(lake.days()[0].erased) == 1, "a day of which nothing was erased is not written again"

        clock.travel(timedelta(days=31))
        drain(queue, raises=False)
        assert handle.results()["second"] == WHO
        (ended,) = erase(queue.database, lake, condition)
        assert (ended.rows, ended.in_flows) == (1, 0)


def test_a_text_counts_as_a_word_and_any_text_may_be_a_key(queue: PgQueue, dsn: str, lake: Lake) -> None:
    key, clock = "a+b (4) \\ [x", Clock(NOON)
    with in_database(queue, dsn, clock=clock):

        @queue.task
        def work() -> None: ...

        work.using(unique_key=key).enqueue()
        drain(queue, raises=False)
        for target, said in (("own", key), ("other", f"{key}{key[-1]}"), ("part", "b 4")):
            ask(
                queue,
                "insert into pgqueue.audit (action, target, details, ended_at)"
                " values ('cancel', %(target)s, jsonb_build_object('why', %(said)s::text), now())",
                target=target,
                said=said,
            )
        clock.travel(LATER)
        export(no_session, queue.database, lake)
        erase(queue.database, lake, of_key(key))
    erased = ask(queue, "select target from pgqueue.audit where details ? 'erased'")
    assert erased == [("own",)]


def test_a_text_that_is_the_name_of_a_field_erases_only_what_says_it(queue: PgQueue) -> None:
    entries = {
        "why": {"why": "the disk is full"},
        "filter": {"filter": {"task": "work", "args": {"customer": 4}}},
        "names in arguments": {"filter": {"args": {"open": {"Why": 1}}}},
        "said": {"why": "she asked WHY"},
        "in JSON": {"why": 'a "why"\nin quotes'},
    }
    for target, said in entries.items():
        ask(
            queue,
            "insert into pgqueue.audit (action, target, details) values ('cancel', %(target)s, %(said)s::text::jsonb)",
            target=target,
            said=json.dumps(said),
        )
    ask(queue, ERASE, texts=["why", "filter", "task", "args", 'a "Why"\nin'])
    erased = ask(queue, "select target from pgqueue.audit where details ? 'erased' order by id")
    assert erased == [("names in arguments",), ("said",), ("in JSON",)]


def test_a_long_text_is_looked_for_in_much_of_the_audit(queue: PgQueue, dsn: str) -> None:
    ask(
        queue,
        "insert into pgqueue.audit (action, target, details) select 'cancel', '*', jsonb_build_object('why', 'reason ' || n,"
        " 'filter', jsonb_build_object('task', 'shop.mail', 'args', jsonb_build_object('customer', n)))"
        " from generate_series(1, 250000) as n",
    )
    with psycopg.connect(dsn, options="-c statement_timeout=4s") as connection:
        connection.execute(ERASE, {"texts": ["no such word " * 75]})
    assert ask(queue, "select from pgqueue.audit where details ? 'erased'") == []


@pytest.mark.parametrize(("length", "erased"), [(1000, 1), (1001, 0)])
def test_a_text_of_over_a_thousand_characters_is_not_looked_for(
    queue: PgQueue, length: int, erased: int
) -> None:
    said = "x" * length
    ask(
        queue,
        "insert into pgqueue.audit (action, target, details) values ('cancel', '*', jsonb_build_object('why', %(said)s::text))",
        said=said,
    )
    ask(queue, ERASE, texts=[said])
    assert ask(queue, "select count(*) from pgqueue.audit where details ? 'erased'") == [(erased,)]


def test_a_job_that_was_revived_keeps_its_notes(queue: PgQueue, dsn: str, lake: Lake) -> None:
    clock = Clock(NOON)
    with in_database(queue, dsn, clock=clock):

        @queue.task(max_attempts=1)
        def work(ctx: Context) -> None:
            ctx.checkpoint("half")
            raise LookupError

        job = work.enqueue()
        drain(queue, raises=False)
        clock.travel(LATER)
        export(no_session, queue.database, lake)
        queue.retry(job.id)
        erase(queue.database, lake, EraseCondition("task is not null"))
        assert ask(queue, "select job_id from pgqueue.notes") == [(job.id,)]


def test_a_flow_of_several_customers_loses_its_name_only_where_it_names_the_erased_one(
    queue: PgQueue, dsn: str, lake: Lake
) -> None:
    clock = Clock(NOON)
    with in_database(queue, dsn, clock=clock):

        @queue.task
        def work(customer: str) -> str:
            return customer

        for name in (f"for {WHO}", "nightly"):
            group([work.call(WHO), work.call("bob")], name=name, on_success=work.call("bob")).enqueue()
        drain(queue)
        clock.travel(LATER)
        export(no_session, queue.database, lake)
        erase(queue.database, lake, of_tenant(WHO, CONFIG))
        assert ask(queue, "select name from pgqueue.flows order by id") == [("erased",), ("nightly",)]
        results = ask(queue, "select result #>> '{}' from pgqueue.nodes where result is not null")
        assert {one for (one,) in results} == {"bob"}

"""The way in for triggers and other languages: ``pgqueue.enqueue(...)``; and who is told of new jobs."""

from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.samples import LEASE, MINUTE, NOON, adding, new_job, running, shown, taking, worker_info

from pgqueue.store.catalogue import catalogue_of
from pgqueue.store.jobs import control, enqueue, finish
from pgqueue.store.plan import Steps, plan
from pgqueue.store.queues import queues
from pgqueue.store.workers import leases, upkeep
from pgqueue.values.jobs.job import JobState
from pgqueue.values.jobs.verdict import Succeeded

Connection = psycopg.Connection[Any]


def _call(connection: Connection, arguments: str, *params: object) -> int:
    row = connection.execute(f"select pgqueue.enqueue({arguments})", params).fetchone()
    assert row is not None
    return int(row[0])


def _insert(connection: Connection, args: str) -> None:
    connection.execute("insert into pgqueue.jobs (task, args) values ('bill', %s)", [args])


def test_plain_sql_enqueues_with_the_same_defaults_as_python(connection: Connection) -> None:
    (python,) = ask(connection, adding(new_job("bill")))
    sql = _call(connection, "'bill'")

    one, other = ask(connection, shown(python)), ask(connection, shown(sql))

    for field in ("state", "queue", "task", "args", "priority", "max_attempts", "unique_key"):
        assert getattr(one, field) == getattr(other, field)


def test_plain_sql_takes_every_option(connection: Connection) -> None:
    arguments = "'bill', '{\"n\": 1}', queue => 'mail', priority => 5, run_at => %s, max_attempts => 2, unique_key => 'key'"

    job = ask(connection, shown(_call(connection, arguments, NOON)))

    assert (job.task, job.args, job.queue, job.priority) == ("bill", {"n": 1}, "mail", 5)
    assert (job.run_at, job.max_attempts, job.unique_key) == (NOON, 2, "key")
    assert job.state is JobState.SCHEDULED


def test_a_taken_key_returns_the_holder_and_counts(connection: Connection) -> None:
    holder = _call(connection, "'bill', unique_key => 'key'")

    assert _call(connection, "'send', unique_key => 'key'") == holder
    job = ask(connection, shown(holder))
    assert (job.task, job.collisions) == ("bill", 1)


def test_python_and_sql_share_their_keys(connection: Connection) -> None:
    holder = _call(connection, "'bill', unique_key => 'key'")

    assert ask(connection, enqueue.enqueue(new_job(unique_key="key"))).id == holder


@pytest.mark.parametrize(
    "arguments",
    [
        "'bill', '[1]'",
        "'bill', priority => 101",
        "'bill', priority => 32767",
        "'bill', max_attempts => 0",
        "null",
    ],
)
def test_bad_input_is_refused_by_the_table_itself(connection: Connection, arguments: str) -> None:
    with pytest.raises(psycopg.errors.IntegrityError):
        _call(connection, arguments)


@pytest.mark.parametrize("text", [r"\u0000", r"\ud800", r"\udc00\ud800", r"\\\u0000"])
def test_the_table_holds_no_arguments_that_could_not_be_made_jsonb(connection: Connection, text: str) -> None:
    with pytest.raises(psycopg.DataError):
        _insert(connection, f'{{"text": "{text}"}}')


@pytest.mark.parametrize("text", [r"\\u0000", r"\u0001", r"\ud83d\udc18", "\U0001f418"])
def test_arguments_are_kept_as_they_are_written(connection: Connection, text: str) -> None:
    args = f'{{"z":"{text}","a" : 1.0}}'
    _insert(connection, args)
    row = connection.execute("select args::text, args::jsonb is not null from pgqueue.jobs").fetchone()
    assert row == (args, True)


def test_a_trigger_enqueues_in_the_transaction_that_fired_it(connection: Connection) -> None:
    connection.execute("create table orders (id bigint primary key)")
    connection.execute("""
        create function bill_order() returns trigger language plpgsql as $$
        begin
            perform pgqueue.enqueue('bill', jsonb_build_object('order_id', new.id), unique_key => 'order ' || new.id);
            return new;
        end $$""")
    connection.execute(
        "create trigger bill after insert on orders for each row execute function bill_order()"
    )
    connection.commit()

    connection.execute("insert into orders values (1)")
    connection.rollback()
    connection.execute("insert into orders values (2)")
    connection.commit()

    assert [(job.task, job.args) for job in ask(connection, control.newest())] == [("bill", {"order_id": 2})]


class Ear:
    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.connection.execute(f'listen "{catalogue_of("pgqueue").wake_channel}"')

    def heard(self) -> int:
        """How many notifications came since the last look: all that were sent, for the server sends them with an answer."""
        self.connection.execute("select")
        return len(list(self.connection.notifies(timeout=0)))


@pytest.fixture
def ear(dsn: str) -> Any:
    opened = Ear(dsn)
    yield opened
    opened.connection.close()


@plan
def _worker(*, idle: bool) -> Steps[None]:
    info = worker_info()
    yield from leases.register(info, LEASE, now=NOON)
    yield from leases.set_idle(info.id, idle=idle)


WAYS_IN: dict[str, Any] = {
    "enqueue": lambda: enqueue.enqueue(new_job(), now=NOON),
    "enqueue with a key": lambda: enqueue.enqueue(new_job(unique_key="key"), now=NOON),
    "enqueue_many by COPY": lambda: enqueue.enqueue_many([new_job()] * 3, now=NOON),
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_an_enqueue_notifies_once_while_a_worker_is_asleep_and_only_then(
    connection: Connection, ear: Ear, way: str
) -> None:
    connection.autocommit = True
    ask(connection, _worker(idle=False))
    ask(connection, WAYS_IN[way]())
    assert ear.heard() == 0

    connection.execute("delete from pgqueue.jobs")
    ask(connection, _worker(idle=True))
    with connection.transaction():
        ask(connection, WAYS_IN[way]())
        assert ear.heard() == 0
    assert ear.heard() == 1


def test_the_sql_function_notifies_while_a_worker_is_asleep(connection: Connection, ear: Ear) -> None:
    connection.autocommit = True
    _call(connection, "'bill'")
    assert ear.heard() == 0

    ask(connection, _worker(idle=True))
    _call(connection, "'bill'")
    assert ear.heard() == 1


@pytest.mark.parametrize("idle", [True, False])
def test_what_becomes_ready_by_time_loss_or_hand_wakes_sleepers_and_only_them(
    connection: Connection, ear: Ear, *, idle: bool
) -> None:
    connection.autocommit = True
    taken = ask(connection, running())
    scheduled, other = ask(connection, adding(new_job(delay=MINUTE), new_job(delay=2 * MINUTE)))
    ask(connection, queues.pause("default", now=NOON))
    ask(connection, leases.leave(taken.worker_id))
    connection.execute("delete from pgqueue.workers")
    deeds = (
        upkeep.poll(now=NOON + MINUTE),
        upkeep.reclaim(now=NOON),
        control.run_now(other),
        queues.resume("default"),
    )
    ask(connection, _worker(idle=idle))
    ear.heard()

    for deed in deeds:
        ask(connection, deed)
        assert ear.heard() == int(idle)
    assert {one.id for one in ask(connection, taking())} == {taken.id, scheduled, other}


def test_one_sleeper_among_the_busy_is_enough(connection: Connection, ear: Ear) -> None:
    connection.autocommit = True
    ask(connection, _worker(idle=True))
    ask(connection, _worker(idle=False))
    ask(connection, adding(new_job()))

    assert ear.heard() == 1


def test_a_worker_that_registers_counts_as_asleep(connection: Connection, ear: Ear) -> None:
    connection.autocommit = True
    ask(connection, leases.register(worker_info(), LEASE, now=NOON))
    ask(connection, adding(new_job()))

    assert ear.heard() == 1


def test_nobody_is_woken_in_vain(connection: Connection, ear: Ear) -> None:
    """Claims, beats and ends are no reason to look again."""
    connection.autocommit = True
    ask(connection, adding(new_job()))
    ask(connection, _worker(idle=True))
    ear.heard()
    (taken,) = ask(connection, taking())
    ask(connection, leases.beat(taken.worker_id, LEASE, now=NOON))
    ask(connection, upkeep.poll(now=NOON))
    ask(connection, upkeep.reclaim(now=NOON))
    ask(connection, finish.finish(taken.worker_id, [Succeeded(taken, 0.0)], keep=True, now=NOON))

    assert ear.heard() == 0

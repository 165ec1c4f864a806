"""The way in for triggers and other languages: ``pgqueue.enqueue(...)``; and who is told of new jobs.

Arrays that are written by hand arrive as they were.
What ``pgqueue.enqueue(...)`` and the table itself refuse, in words that name the value and the remedy.
"""

import json
from typing import Any

import psycopg
import pytest
from store.crowd import ask
from store.samples import LEASE, MINUTE, NOON, adding, new_job, running, shown, taking, worker_info

from pgqueue.store.arrays import texts, truths
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


MEBIBYTE = 1 << 20


def test_arguments_over_a_mebibyte_are_refused_where_sql_enqueues(connection: Connection) -> None:
    fits = "'bill', jsonb_build_object('a', repeat('x', %s))"
    assert _call(connection, fits, MEBIBYTE - len('{"a": ""}'))
    with pytest.raises(psycopg.errors.CheckViolation, match="they take 1048577 bytes, over the limit"):
        _call(connection, fits, MEBIBYTE - len('{"a": ""}') + 1)
    connection.rollback()
    with pytest.raises(psycopg.errors.CheckViolation, match="they take 1048577 bytes, over the limit"):
        connection.execute(
            "select pgqueue.schedule('bills', 'bill', jsonb_build_object('a', repeat('x', %s)), every => '1 day')",
            [MEBIBYTE - len('{"a": ""}') + 1],
        )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("args", f"""('{{"a": "' || repeat('x', {16 * MEBIBYTE}) || '"}}')::json"""),
        ("task", "repeat('x', 10001)"),
        ("queue", "repeat('x', 10001)"),
        ("lane", "repeat('x', 10001)"),
        ("unique_key", "repeat('x', 10001)"),
        ("meta", "jsonb_build_object('a', repeat('x', 1000000))"),
        ("errors", "jsonb_build_array(repeat('x', 1000000))"),
    ],
)
def test_no_column_of_a_job_takes_a_text_that_would_stop_a_worker(
    connection: Connection, column: str, value: str
) -> None:
    given = {"task": "'bill'"} | {column: value}
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            f"insert into pgqueue.jobs ({', '.join(given)}) values ({', '.join(given.values())})".encode()
        )


def test_every_text_of_a_job_has_a_bound(connection: Connection) -> None:
    free = connection.execute(
        "select attname from pg_attribute where attrelid = 'pgqueue.jobs'::regclass and attnum > 0 "
        "and atttypid in ('text'::regtype, 'json'::regtype, 'jsonb'::regtype, 'bytea'::regtype)"
    ).fetchall()
    assert free == []


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


HOSTILE = [
    "",
    "a",
    "NULL",
    'say "no"',
    "back\\slash",
    '\\"',
    "{1,2}",
    ",",
    " ",
    "\n",
    "\x01",
    "ü",
    '{"n":"5"}',
    "\\",
]


@pytest.mark.parametrize("values", [[], ["a"], [""], HOSTILE, [None], ["a", None, *HOSTILE]])
def test_texts_arrive_as_they_are(dsn: str, values: list[str | None]) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select %s::text[]", (texts(values),)).fetchone() == (values,)


@pytest.mark.parametrize("values", [["a\0b"], ["a", "\0"], ["\0", None]])
def test_a_text_that_postgresql_cannot_hold_is_refused_and_does_not_become_two(
    dsn: str, values: list[str | None]
) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.DataError, match="NUL"):
        connection.execute("select %s::text[]", (texts(values),))


@pytest.mark.parametrize("values", [[], [True], [True, False, True]])
def test_truths_arrive_as_they_are(dsn: str, values: list[bool]) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select %s::boolean[]", (truths(values),)).fetchone() == (values,)


def _enqueue(connection: Connection, **arguments: Any) -> int:
    given = {"task": "bill"} | arguments
    listed = ", ".join(f"{name} => %({name})s" for name in given)
    row = connection.execute(f"select pgqueue.enqueue({listed})".encode(), given).fetchone()
    assert row is not None
    return int(row[0])


def levels(count: int) -> str:
    """Arguments with this number of levels, the object itself among them."""
    return '{"a":' + "[" * (count - 1) + "]" * (count - 1) + "}"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"task": ""}, "task => '': a name has 1 to 200 characters and at most 249 bytes"),
    ({"queue": ""}, "queue => '': a name has 1 to 200 characters"),
    ({"queue": None}, "queue => NULL: a name has 1 to 200 characters"),
    ({"queue": "q" * 201}, "queue => 'qqq"),
    ({"queue": "列" * 84}, "at most 249 bytes"),
    ({"queue": "q" * 3000, "run_at": "2999-01-01"}, "at most 249 bytes"),
    ({"queue": "two words"}, "queue => 'two words': a name has no white space, comma or colon in it"),
    ({"queue": "two\u2003words"}, "no white space"),
    ({"queue": "mail,bulk"}, "no white space, comma or colon"),
    ({"task": "shop:bill"}, "task => 'shop:bill': a name has no white space, comma or colon"),
    ({"queue": "__HIVE_DEFAULT_PARTITION__"}, "stands for no name in a lake"),
    ({"run_at": "infinity"}, "run_at => 'infinity': use a time in the years 1900 to 8999"),
    ({"run_at": "-infinity"}, "run_at => '-infinity'"),
    ({"run_at": "0044-03-15 BC"}, "use a time in the years 1900 to 8999"),
    ({"run_at": "1899-12-31 23:59:59.999999+00"}, "use a time in the years"),
    ({"run_at": "9000-01-01 00:00+00"}, "use a time in the years"),
    ({"priority": 101}, "priority => 101: use a whole number from -100 to 100"),
    ({"priority": 40_000}, "priority => 40000"),
    ({"max_attempts": 0}, "max_attempts => 0: use a whole number from 1 to 32767"),
    ({"unique_key": ""}, "unique_key => '': use 1 to 1000 characters and at most 2600 bytes"),
    ({"unique_key": "k" * 1001}, "use 1 to 1000 characters"),
    ({"unique_key": "\U0001f511" * 651}, "at most 2600 bytes"),
    ({"args": "[1]"}, "args => '\\[1\\]': use one JSON object"),
    ({"args": None}, "args => NULL: use one JSON object"),
    ({"args": levels(201)}, "args: use at most 200 levels"),
    ({"args": '{"n": ' + "1" * 4301 + "}"}, "whole numbers of at most 4300 digits"),
    ({"args": '{"n": 1e5000}'}, "whole numbers of at most 4300 digits"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_the_function_refuses_what_is_out_of_bounds(
    connection: Connection, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=words) as refused:
        _enqueue(connection, **arguments)
    assert len(str(refused.value).splitlines()[0]) < 200


TAKEN: list[dict[str, Any]] = [
    {"task": "t" * 200, "queue": "q" * 200},
    {"queue": "列" * 83},
    {"queue": "mail/2-a.b_c"},
    {"run_at": "1900-01-01 00:00+00"},
    {"run_at": "8999-12-31 23:59:59+00"},
    {"run_at": None},
    {"unique_key": "k" * 1000},
    {"unique_key": "\U0001f511" * 650},
    {"args": levels(200)},
    {"args": json.dumps({"rows": [{"at": [n]} for n in range(500)]})},
    {"args": json.dumps({"text": "[" * 500, "quoted": '"[' * 500})},
    {"args": '{"n": ' + "1" * 4300 + ', "digits": "' + "1" * 9000 + '"}'},
]


@pytest.mark.parametrize("arguments", TAKEN)
def test_what_is_just_within_bounds_is_taken_and_listed(
    connection: Connection, arguments: dict[str, Any]
) -> None:
    job_id = _enqueue(connection, **arguments)

    (job,) = ask(connection, control.newest())
    assert job.id == job_id
    assert (job.task, job.queue) == (arguments.get("task", "bill"), arguments.get("queue", "default"))
    assert job.args == json.loads(arguments.get("args", "{}"))

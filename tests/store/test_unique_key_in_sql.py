"""Python and SQL make the same key from the same arguments: ``Unique(by=...)`` and ``pgqueue.unique_key``."""

import itertools
import json
import random
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pytest

from pgqueue import Limit, PgQueue, Unique
from pgqueue.errors import InvalidOption, PayloadNotEncodable
from pgqueue.testing import in_memory
from pgqueue.values.jobs.unique import LONGEST_READABLE, derived_key
from pgqueue.values.limits.task_limits import limits_of_task

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = (
    "0", "-0", "0.0", "-0.0", "0e5", "0E-5", "1", "-1", "1.0", "1.50", "1e2", "1E+2", "1.5e3", "1.0e1", "1.00e1", "1e-3",
    "12345678901234567890123456789.000100", "1e22", "1.7976931348623157e308", "5e-324", "100", "1e130000", "-2.5E-7",
)  # fmt: skip
TEXTS = (
    "", "a", "Ä", "é", "\U0001f600", '"', "\\", "/", "\b\f\n\r\t", "\x01\x1f\x7f\x80", "\u2028", "a b", "{}", "aa", "B",
    "ｱ", "\ufffd", "\ue000",
)  # fmt: skip


def sql_key(connection: psycopg.Connection[Any], task: str, args: str, by: list[str]) -> str:
    row = connection.execute("select pgqueue.unique_key(%s, %s::jsonb, %s)", [task, args, by]).fetchone()
    assert row is not None
    return str(row[0])


def some_json(chance: random.Random, depth: int) -> str:
    """A random JSON text, with white space, escapes and notations that neither side would write."""
    space = chance.choice(["", "", " ", "\n\t"])
    kinds: list[Callable[[], str]] = [
        lambda: chance.choice(NUMBERS),
        lambda: repr(chance.uniform(-1e6, 1e6)),
        lambda: str(chance.randint(-(10**20), 10**20)),
        lambda: chance.choice(["true", "false", "null"]),
        lambda: some_text(chance),
    ]
    if depth:
        kinds += [
            lambda: f"[{space}{f',{space}'.join(some_json(chance, depth - 1) for _ in range(chance.randint(0, 4)))}]",
            lambda: "{" + space + f"{space},".join(
                f"{some_text(chance)}{space}:{some_json(chance, depth - 1)}" for _ in range(chance.randint(0, 4))) + "}",
        ]  # fmt: skip
    return chance.choice(kinds)()


def some_text(chance: random.Random) -> str:
    anything = chr(chance.choice([chance.randint(1, 0xD7FF), chance.randint(0xE000, sys.maxunicode)]))
    return json.dumps("".join(chance.choices([*TEXTS, anything], k=3)), ensure_ascii=chance.random() < 0.5)


def test_both_make_the_same_key_of_random_arguments(connection: psycopg.Connection[Any]) -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    for _ in range(1_000):
        names = [f"name{number}" for number in range(chance.randint(0, 4))]
        args = "{" + ",".join(f'"{name}": {some_json(chance, 3)}' for name in names) + "}"
        by = chance.sample([*names, "elsewhere"], k=chance.randint(0, len(names)))
        assert derived_key("shop.bill", args.encode(), tuple(by)) == sql_key(
            connection, "shop.bill", args, by
        ), args


def test_sql_makes_the_key_of_a_limit(connection: psycopg.Connection[Any]) -> None:
    chance = random.Random(8)  # noqa: S311 - no secret
    found = limits_of_task("shop.bill", Limit(3, by=("name0", "name1")), None)
    assert found is not None
    for _ in range(300):
        args = "{" + ",".join(f'"name{number}": {some_json(chance, 3)}' for number in range(3)) + "}"
        made = sql_key(connection, "task:shop.bill:name0,name1 ", args, ["name0", "name1"])
        assert found.lane(args.encode()) == made, args


def test_equal_numbers_make_one_key(connection: psycopg.Connection[Any]) -> None:
    def key(number: str) -> str:
        return derived_key("t", f'{{"n": {number}}}'.encode(), ("n",))

    for one, other in itertools.product(NUMBERS, repeat=2):
        assert (key(one) == key(other)) == (Decimal(one) == Decimal(other)), (one, other)
    for number in NUMBERS:
        assert sql_key(connection, "t", f'{{"n": {number}}}', ["n"]) == key(number)


def test_what_is_long_is_hashed_by_both_at_the_same_length(connection: psycopg.Connection[Any]) -> None:
    for letter, length in itertools.product("aé", [90, 95, 96, 180, 189, 190, 191, 192, 2_000]):
        args = json.dumps({"name": letter * length})
        key = derived_key("t", args.encode(), ("name",))
        assert key == sql_key(connection, "t", args, ["name"])
        assert ("#" in key) == (len(f'{{"name":"{letter * length}"}}'.encode()) > LONGEST_READABLE)


def test_a_number_that_postgresql_cannot_hold_makes_no_key() -> None:
    with pytest.raises(ValueError, match="digits cannot be part of a unique key"):
        derived_key("t", b'{"n": 1e400000}', ("n",))


# As a user meets it


@pytest.fixture
def memory_queue() -> Any:
    queue = PgQueue("")
    with in_memory(queue):
        yield queue


def key_of(queue: PgQueue, job_id: int) -> str | None:
    return queue.job(job_id).unique_key


def test_a_key_is_made_of_the_task_and_the_arguments_named(memory_queue: PgQueue) -> None:
    @memory_queue.task(name="bill", unique=Unique(by=("customer_id", "kind")))
    def bill(customer_id: int, amount: float, kind: str = "normal") -> None: ...

    first = bill.enqueue(7, 1.5)
    assert key_of(memory_queue, first.id) == 'bill{"customer_id":7}'
    assert not bill.enqueue(7, 99.0).accepted
    assert not bill.enqueue(amount=0.0, customer_id=7, kind="normal").accepted
    assert bill.enqueue(7, 1.5, kind="rush").accepted
    assert bill.enqueue(8, 1.5).accepted
    assert bill.using(unique_key="mine").enqueue(7, 1.5).accepted


@pytest.mark.parametrize("by", ["number", ["number"], ("number",)])
def test_one_name_may_stand_alone(memory_queue: PgQueue, by: Any) -> None:
    @memory_queue.task(name="send")
    def send(number: int) -> None: ...

    assert key_of(memory_queue, send.using(unique=Unique(by=by)).enqueue(7).id) == 'send{"number":7}'


def test_no_name_makes_one_key_for_the_task(memory_queue: PgQueue) -> None:
    @memory_queue.task(name="refresh", unique=Unique(by=()))
    def refresh(number: int) -> None: ...

    assert key_of(memory_queue, refresh.enqueue(1).id) == "refresh{}"
    assert not refresh.enqueue(2).accepted


def test_a_default_adds_nothing_even_as_another_object(memory_queue: PgQueue) -> None:
    @memory_queue.task(name="send", unique=Unique(by=("number", "note", "flag")))
    def send(number: int = 1_000_000, note: str = "a longer note", flag: int = 1) -> None: ...

    first = send.enqueue()
    assert key_of(memory_queue, first.id) == "send{}"
    assert not send.enqueue(int("1000000"), "a longer note!"[:-1]).accepted
    assert memory_queue.job(first.id).args == {}


def test_true_is_not_the_default_of_one(memory_queue: PgQueue) -> None:
    @memory_queue.task(name="send", unique=Unique(by=("flag",)))
    def send(flag: Any = 1) -> None: ...

    assert key_of(memory_queue, send.enqueue(flag=True).id) == 'send{"flag":true}'


def test_python_and_sql_take_the_key_from_each_other(queue: PgQueue, dsn: str) -> None:
    @queue.task(name="bill", unique=Unique(by=("customer_id",)))
    def bill(customer_id: int, amount: Decimal) -> None: ...

    handle = bill.enqueue(7, Decimal("1.50"))
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select pgqueue.enqueue('bill', args, unique_key => pgqueue.unique_key('bill', args, '{customer_id}')) "
            """from (values ('{"customer_id": 7.0, "amount": "2"}'::jsonb)) as given (args)"""
        ).fetchone()
    assert row == (handle.id,)
    assert queue.job(handle.id).collisions == 1


def test_calls_in_bulk_have_their_keys(queue: PgQueue) -> None:
    @queue.task(name="bill", unique=Unique(by="customer_id"))
    def bill(customer_id: int) -> None: ...

    handles = queue.enqueue_many(bill.call(number % 2) for number in range(4))
    assert [handle.accepted for handle in handles] == [True, True, False, False]


def test_a_name_that_is_no_parameter_is_refused_where_it_is_written() -> None:
    queue = PgQueue("")

    def bill(customer_id: int) -> None: ...

    with pytest.raises(InvalidOption, match="no parameter 'customer'; did you mean 'customer_id'"):
        queue.task(unique=Unique(by=("customer",)))(bill)
    task = queue.task(bill)
    with pytest.raises(InvalidOption, match="no parameter 'id'"):
        task.using(unique=Unique(by=("id",)))


@pytest.mark.parametrize("by", [5, True, (5,), [""], {"a": 1}], ids=repr)
def test_what_is_no_list_of_names_is_refused(by: Any) -> None:
    with pytest.raises(InvalidOption, match=r"Unique\(by=.*use the names of parameters"):
        Unique(by=by)


def test_what_cannot_be_part_of_a_key_is_refused_at_enqueue(memory_queue: PgQueue) -> None:
    @memory_queue.task(name="send", unique=Unique(by=("raw",)))
    def send(raw: msgspec.Raw) -> None: ...

    with pytest.raises(PayloadNotEncodable, match="send"):
        send.enqueue(msgspec.Raw(b"1e400000"))

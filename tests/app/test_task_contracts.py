"""Contracts of tasks: what a worker publishes of its tasks' types, and when it writes."""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import psycopg
import pytest
from looking import ask, until
from pydantic import BaseModel, Field
from running import Running

from pgqueue import Context, PgQueue
from pgqueue.app.named import contracts_of, known_tasks_of
from pgqueue.store.jobs import known_tasks
from pgqueue.store.pipeline import contracts as plans
from pgqueue.values.payloads.contract import LONGEST, TaskContract, contract_of
from pgqueue.values.payloads.result import ReturnType
from pgqueue.values.payloads.schema import misfit
from pgqueue.values.payloads.signature import Signature

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
T = TypeVar("T")
NOTHING = object()


class Branch(msgspec.Struct):
    leaves: list["Branch"] = []


class Box(msgspec.Struct, Generic[T]):
    item: T


@dataclass
class Line:
    sku: str
    sent: datetime | None = None
    tags: dict[str, list[datetime]] = field(default_factory=dict)


class Sub(BaseModel):
    n: int = 1


class Model(BaseModel):
    price: Decimal = Field(max_digits=9, decimal_places=2)
    sub: Sub | None = None
    number: int = Field(alias="No")


class Broken:
    """A type whose hook fails."""

    @classmethod
    def model_json_schema(cls, **_: Any) -> Mapping[str, Any]:
        raise OSError("not today")

    @classmethod
    def model_validate_json(cls, data: bytes) -> "Broken":
        raise OSError(data)


def schema(function: Any) -> dict[str, Any]:
    found = Signature(function, Context).schema
    assert found is not None
    return found


def said(task: str, **arguments: str) -> TaskContract:
    properties = {name: {"type": kind} for name, kind in arguments.items()}
    found = contract_of(task, {"type": "object", "properties": properties}, None)
    assert found is not None
    return found


def stored(queue: PgQueue, task: str | None = None) -> list[TaskContract]:
    return queue.database.run(plans.listed(task))


def say(queue: PgQueue, *found: TaskContract, now: datetime = AT) -> int:
    return queue.database.run(plans.say(found, now=now))


# What a contract has.


def test_times_have_a_format_wherever_they_are() -> None:
    def task(
        at: datetime,
        maybe: datetime | int | None,
        lines: list[Line],
        pair: tuple[int, datetime],
        wall: Annotated[datetime, msgspec.Meta(tz=False)],
    ) -> None: ...

    found = schema(task)
    parts, line = found["properties"], found["$defs"]["Line"]["properties"]
    time = {"type": "string", "format": "date-time"}
    assert parts["at"] == time
    assert parts["wall"] == {"type": "string"}  # of no zone, so it is no instant
    assert parts["maybe"]["anyOf"][0] == time
    assert parts["pair"]["prefixItems"][1] == time
    assert line["sent"]["anyOf"][0] == time
    assert line["tags"]["additionalProperties"]["items"] == time


def test_a_model_of_pydantic_has_its_own_schema_by_the_names_that_are_written() -> None:
    def task(one: Model, many: list[Model]) -> None: ...

    found = schema(task)
    one = found["properties"]["one"]
    assert one["properties"]["price"]["type"] == "string"  # as it is written
    assert "number" in one["properties"]
    assert sorted(one["required"]) == ["number", "price"]
    (option, _) = one["properties"]["sub"]["anyOf"]
    assert found["$defs"][option["$ref"].removeprefix("#/$defs/")]["properties"]["n"]["default"] == 1


def test_types_and_defaults_without_a_schema_allow_any_value() -> None:
    def task(
        n: int,
        broken: Broken,
        of: Any = NOTHING,
        *rest: int,
        path: Any = Path("/x"),
        **more: str,
    ) -> None: ...

    found = schema(task)
    assert found["properties"]["n"] == {"type": "integer"}
    assert "type" not in found["properties"]["broken"]
    assert {one: found["properties"][one].get("default", 7) for one in ("of", "path")} == {
        "of": None,
        "path": None,
    }
    assert found["properties"]["rest"]["items"] == {"type": "integer"}
    assert found["properties"]["more"]["additionalProperties"] == {"type": "string"}
    assert found["required"] == ["n", "broken"]
    assert misfit(found, {"n": 1, "broken": [7]}) is None


def test_a_result_says_its_times_and_keeps_what_is_beside_a_type_without_a_schema() -> None:
    def task() -> dict[str, datetime]:
        raise NotImplementedError

    def other() -> tuple[int, Broken]:
        raise NotImplementedError

    returned, beside = ReturnType(task).schema, ReturnType(other).schema
    assert returned is not None
    assert returned["additionalProperties"] == {"type": "string", "format": "date-time"}
    assert beside is not None
    assert beside["prefixItems"] == [{"type": "integer"}, {"title": "Broken"}]


def test_the_context_is_no_argument_and_recursive_and_generic_types_have_a_schema() -> None:
    def task(ctx: Context, tree: Branch, box: Box[date]) -> Branch:
        raise NotImplementedError

    found = schema(task)
    assert [*found["properties"]] == ["tree", "box"]
    assert found["$defs"]["Branch"]["properties"]["leaves"]["items"] == {"$ref": "#/$defs/Branch"}
    returned = ReturnType(task).schema
    assert returned is not None
    assert returned["$defs"]["Branch"]["properties"]["leaves"]["items"] == {"$ref": "#/$defs/Branch"}


def test_the_same_types_have_one_hash_and_other_types_another() -> None:
    one = contract_of("a", {"properties": {"n": {}, "m": {}}}, None)
    same = contract_of("b", {"properties": {"m": {}, "n": {}}}, None)
    other = contract_of("a", {"properties": {"n": {}, "m": {}}}, {"type": "string"})
    assert one is not None
    assert same is not None
    assert other is not None
    assert one.hash == same.hash != other.hash


@pytest.mark.parametrize(
    "arguments",
    [{"a": "x" * LONGEST}, {"a": "\0"}, {"a": "\ud800"}, {"a": {1: object()}}],
    ids=["long", "nul", "surrogate", "object"],
)
def test_schemas_that_are_long_or_cannot_be_stored_make_no_contract(arguments: Any) -> None:
    assert contract_of("a", arguments, None) is None


# When it is stored.


async def test_a_worker_publishes_its_tasks_in_the_order_of_their_parameters(
    queue: PgQueue, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(name="mail.send", aliases=["mail.old"])
    def send(zulu: int, a: str = "é", ctx: Context | None = None) -> list[Line]:
        raise NotImplementedError

    @queue.task
    def huge(words: str = "x" * (1 << 20)) -> None: ...

    ask(queue, "insert into pgqueue.deploys (version) values ('7.1') returning 1")
    with caplog.at_level(logging.WARNING):
        async with running(queue):
            await until(lambda: stored(queue, "mail.send"))
    new, old = stored(queue, "mail.send")[0], stored(queue, "mail.old")[0]
    assert new.hash == old.hash
    assert [*json.loads(new.arguments)["properties"]] == ["zulu", "a"]
    assert new.result is not None
    assert json.loads(new.result)["items"] == {"$ref": "#/$defs/Line"}
    assert new.version == "7.1"
    assert stored(queue, huge.name) == []
    (warned,) = [one for one in caplog.records if "types of some tasks" in one.message]
    assert warned.__dict__["tasks"] == [huge.name]
    queue.enqueue_named(huge.name, {"words": "y"})


async def test_a_start_with_nothing_new_writes_nothing_and_waits_for_no_lock(
    queue: PgQueue, running: Running, dsn: str
) -> None:
    @queue.task
    def send(n: int) -> None: ...

    look = "select task, xmin::text, ctid::text from pgqueue.task_contracts"
    other = "select task, xmin::text, ctid::text from pgqueue.known_tasks"
    async with running(queue):
        await until(lambda: ask(queue, look))
    before = ask(queue, look), ask(queue, other)
    with psycopg.connect(dsn) as holder:
        holder.execute("select from pgqueue.task_contracts for update")
        holder.execute("select from pgqueue.known_tasks for update")
        with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=1") as impatient:
            found = contracts_of(queue.tasks)
            queue.database.run(plans.say([one for one in found.values() if one]), impatient)
            queue.database.run(known_tasks.say(known_tasks_of(queue.tasks, found)), impatient)
    assert (ask(queue, look), ask(queue, other)) == before


def test_of_two_releases_both_are_kept_and_the_one_that_was_said_last_counts(queue: PgQueue) -> None:
    old, new = said("a", n="integer"), said("a", n="integer", m="string")
    assert say(queue, old, now=AT) == 1
    assert say(queue, new, now=AT + timedelta(seconds=5)) == 1
    assert [one.hash for one in stored(queue)] == [new.hash, old.hash]
    # a worker of the old release starts again, before its hour is over
    assert say(queue, old, now=AT + timedelta(seconds=9)) == 1
    assert [one.hash for one in stored(queue)] == [old.hash, new.hash]
    assert say(queue, old, now=AT + timedelta(seconds=10)) == 0
    assert stored(queue)[0].first_seen == AT


def test_what_is_said_again_is_noted_once_an_hour(queue: PgQueue) -> None:
    one = said("a", n="integer")
    assert [say(queue, one, now=AT + HOUR * hours) for hours in (0, 0.9, 1.1, 1.2)] == [1, 0, 1, 0]
    assert stored(queue)[0].last_seen == AT + HOUR * 1.1


def test_of_each_task_the_last_twenty_are_kept(queue: PgQueue) -> None:
    other = said("b", n="integer")
    say(queue, other)
    forms = [said("a", **{f"n{number}": "integer"}) for number in range(25)]
    for number, form in enumerate(forms):
        say(queue, form, now=AT + number * HOUR)
    assert [one.hash for one in stored(queue, "a")] == [one.hash for one in reversed(forms[5:])]
    assert len(stored(queue, "b")) == 1


async def test_many_workers_that_start_at_once_store_each_contract_once(queue: PgQueue, dsn: str) -> None:
    found = [said(f"t{number}", n="integer") for number in range(1_200)]

    def start(number: int) -> int:
        own = found if number % 2 else found[::-1]
        with psycopg.connect(dsn, autocommit=True) as connection:
            return queue.database.run(plans.say(own), connection)

    told = await asyncio.gather(*(asyncio.to_thread(start, number) for number in range(8)))
    assert sum(told) >= 1_200
    assert ask(queue, "select count(*), count(distinct task) from pgqueue.task_contracts") == [(1_200, 1_200)]

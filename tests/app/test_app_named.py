"""Jobs of tasks that this program does not have: enqueued by name, checked by what workers have said of the task."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import psycopg
import pytest
from cli.commands import pgqueue
from looking import ask, until
from running import Running
from worker.helping import ended

from pgqueue import Context, Limit, PgQueue, Rate
from pgqueue.errors import InvalidOption, PayloadNotEncodable, PayloadTooLarge, UnknownTask
from pgqueue.testing import drain, in_memory
from pgqueue.values.payloads.schema import misfit
from pgqueue.values.payloads.signature import Signature


@dataclass
class Address:
    street: str
    number: int | None = None


@pytest.fixture
async def elsewhere(queue: PgQueue) -> AsyncIterator[PgQueue]:
    """The queue of another program, which has no code of the tasks."""
    other = PgQueue(queue.database.dsn)
    yield other
    other.close()
    await other.aclose()


@pytest.fixture
async def known(queue: PgQueue, running: Running) -> PgQueue:
    """The queue of a program whose worker has started once."""

    @queue.task(name="mail.send", queue="mail", priority=5, max_attempts=3, limit=Limit(2, by="tenant"))
    async def send(tenant: str, to: Address, retries: int = 0, kind: Literal["a", 1] = "a") -> str:
        return f"{tenant} {to.street} {retries} {kind}"

    @queue.task(name="mail.slow", limit=Rate("50/second", burst=10, cost="weight"), aliases=["mail.old"])
    async def slow(weight: int = 2, **more: Any) -> None: ...

    async with running(queue):
        await until(lambda: ask(queue, "select count(*) from pgqueue.limited_tasks") == [(3,)])
    return queue


async def test_a_named_job_runs_with_what_its_task_says(
    known: PgQueue, elsewhere: PgQueue, running: Running
) -> None:
    blocking = elsewhere.enqueue_named("mail.send", {"tenant": "a", "to": {"street": "Elm"}})
    awaited = await elsewhere.aenqueue_named(
        "mail.send", {"tenant": "b", "to": {"street": "Oak"}, "retries": 1}, queue="other", priority=7
    )
    assert ask(
        known, "select queue, priority, max_attempts, lane is not null from pgqueue.jobs order by id"
    ) == [
        ("mail", 5, 3, True),
        ("other", 7, 3, True),
    ]
    async with running(known):
        found = await ended(known, blocking, awaited)
    assert [job.result for job in found] == ["a Elm 0 a", "b Oak 1 a"]


async def test_a_named_job_is_in_the_lane_of_one_that_the_task_enqueues(
    known: PgQueue, elsewhere: PgQueue
) -> None:
    known.tasks["mail.slow"].enqueue()
    known.tasks["mail.slow"].enqueue(weight=4)
    known.tasks["mail.send"].enqueue(tenant="a", to=Address("Elm"))
    elsewhere.enqueue_named("mail.slow")
    elsewhere.enqueue_named("mail.slow", {"weight": 4})
    elsewhere.enqueue_named("mail.send", {"tenant": "a", "to": {"street": "Elm"}})
    found = ask(known, "select lane, coalesce(cost, 1) from pgqueue.jobs order by id")
    assert found[:3] == found[3:]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "missing arguments 'tenant', 'to'"),
        (
            {"tenant": "a", "to": {"street": "Elm"}, "retry": 1},
            "no parameter 'retry'; did you mean 'retries'",
        ),
        ({"tenant": 1, "to": {"street": "Elm"}}, "'tenant' is of the JSON type integer; it takes string"),
        ({"tenant": "a", "to": ["Elm"]}, "'to' is of the JSON type array; it takes object"),
        (
            {"tenant": "a", "to": {}, "kind": 1.5},
            "'kind' is of the JSON type number; it takes integer or string",
        ),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(
    known: PgQueue, elsewhere: PgQueue, arguments: Mapping[str, Any], why: str
) -> None:
    with pytest.raises(PayloadNotEncodable, match=why):
        elsewhere.enqueue_named("mail.send", arguments)
    assert not ask(known, "select from pgqueue.jobs")


async def test_a_former_name_is_known_too(known: PgQueue, elsewhere: PgQueue, running: Running) -> None:
    job = elsewhere.enqueue_named("mail.old", known=True)
    async with running(known):
        await ended(known, job)


async def test_what_is_not_known_is_enqueued_unchecked_or_refused_as_asked(
    queue: PgQueue, elsewhere: PgQueue
) -> None:
    job = elsewhere.enqueue_named("mail.new", {"anything": [1, 2]}, delay=60)
    assert (job.status().value, queue.job(job.id).args) == ("scheduled", {"anything": [1, 2]})
    with pytest.raises(UnknownTask, match=r"no task 'mail\.new' is registered here, and no worker"):
        elsewhere.enqueue_named("mail.new", known=True)


def test_a_registered_task_checks_all_of_its_arguments(queue: PgQueue) -> None:
    @queue.task(name="mail.send")
    def send(to: Address) -> None: ...

    assert queue.enqueue_named("mail.send", {"to": {"street": "Elm"}}).accepted
    with pytest.raises(PayloadNotEncodable, match="street"):
        queue.enqueue_named("mail.send", {"to": {"avenue": "Elm"}})


async def test_bad_input_is_refused_with_words(elsewhere: PgQueue) -> None:
    with pytest.raises(InvalidOption, match="a name has"):
        elsewhere.enqueue_named("")
    with pytest.raises(PayloadNotEncodable, match="as a mapping, by the names"):
        elsewhere.enqueue_named("mail.send", ["a"])  # type: ignore[arg-type]  # what is tested
    with pytest.raises(PayloadNotEncodable, match="as a mapping, by the names"):
        await elsewhere.aenqueue_named("mail.send", {1: "a"})  # type: ignore[dict-item]  # what is tested
    with pytest.raises(InvalidOption, match="a name has"):
        elsewhere.enqueue_named(["mail.send"])  # type: ignore[arg-type]  # what is tested
    with pytest.raises(PayloadNotEncodable):
        elsewhere.enqueue_named("mail.send", {"to": object()})
    with pytest.raises(PayloadTooLarge, match="over the limit"):
        elsewhere.enqueue_named("mail.send", {"to": "x" * 2_000_000})
    with pytest.raises(InvalidOption, match="priority"):
        elsewhere.enqueue_named("mail.send", priority=500)
    with pytest.raises(InvalidOption, match="unknown option"):
        elsewhere.enqueue_named("mail.send", prio=5)  # type: ignore[call-arg]  # what is tested


async def test_a_named_job_commits_with_the_callers_transaction(
    queue: PgQueue, elsewhere: PgQueue, dsn: str
) -> None:
    with psycopg.connect(dsn) as own:
        elsewhere.enqueue_named("mail.send", {}, connection=own)
        own.rollback()
        elsewhere.enqueue_named("mail.new", {}, connection=own)
    assert [job.task for job in queue.insight.search().jobs] == ["mail.new"]


def test_in_memory_a_named_job_is_one_like_any_other(queue: PgQueue) -> None:
    @queue.task(name="mail.send")
    def send(to: str) -> str:
        return to

    with in_memory(queue):
        other = queue.enqueue_named("mail.new")
        assert (other.status().value, queue.job(other.id).task) == ("ready", "mail.new")
        other.cancel()
        job = queue.enqueue_named("mail.send", {"to": "Ada"})
        drain(queue)
        assert queue.job(job.id).result == "Ada"


async def test_the_shell_enqueues_what_a_worker_runs_without_the_app(known: PgQueue, dsn: str) -> None:
    words = '{"tenant": "a", "to": {"street": "Elm"}}'
    assert pgqueue("enqueue", "mail.send", words, dsn=dsn).stdout == "job 1 added\n"
    refused = pgqueue("enqueue", "mail.sned", words, dsn=dsn)
    assert refused.exit_code == 2
    assert "no task 'mail.sned' is registered here" in refused.stderr
    assert pgqueue("enqueue", "mail.sned", "{}", "--unknown", dsn=dsn).stdout == "job 2 added\n"
    assert known.job(1).queue == "mail"


async def test_only_what_differs_is_stored_again(known: PgQueue, running: Running) -> None:
    before = ask(known, "select task, xmin::text, said_at from pgqueue.known_tasks order by task")
    async with running(known):
        pass
    assert ask(known, "select task, xmin::text, said_at from pgqueue.known_tasks order by task") == before
    assert [row[0] for row in before] == ["mail.old", "mail.send", "mail.slow"]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        7,
        {"properties": 7},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"properties": {"a": {"anyOf": [{"type": ["string"]}, 7]}}, "required": "a"},
        {"properties": {"a": {"anyOf": []}}, "required": [{}, 7]},
        {"properties": {"a": {"enum": []}}},
        {"properties": {"a": {"type": "quux"}}},
        {
            "properties": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50}},
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50}},
        },
    ],
)
def test_a_stored_schema_that_makes_no_sense_refuses_nothing(schema: object) -> None:
    assert misfit(schema, {"a": 1}) is None


def test_a_whole_number_fits_where_it_is_written_with_a_point() -> None:
    assert misfit({"properties": {"a": {"type": "integer"}}}, {"a": 1.0}) is None


def test_a_decimal_may_be_a_number() -> None:
    assert misfit(Signature(_priced, Context).schema, {"price": 1.5}) is None
    assert misfit(Signature(_priced, Context).schema, {"price": "1.5"}) is None


def _priced(price: Decimal) -> None: ...


async def test_hostile_rows_make_no_job_that_the_database_refuses(queue: PgQueue, elsewhere: PgQueue) -> None:
    deep = "[" * 3000 + "]" * 3000
    ask(
        queue,
        "insert into pgqueue.known_tasks (task, queue, priority, max_attempts, arguments) "
        "values ('a', 'bad queue!', 30000, 0, %s) returning 1",
        deep,
    )
    elsewhere.enqueue_named("a", {"anything": 1})
    assert ask(queue, "select queue, priority, max_attempts from pgqueue.jobs") == [("default", 0, 25)]


@pytest.mark.parametrize("registered", [True, False])
async def test_the_names_of_arguments_are_those_that_are_stored(
    queue: PgQueue, elsewhere: PgQueue, running: Running, *, registered: bool
) -> None:
    @queue.task(name="all")
    async def every(_: Context, first: int, /, *rest: int, last: int = 0, **more: int) -> list[int]:
        return [first, *rest, last, *more.values()]

    async with running(queue):
        by = queue if registered else elsewhere
        given = {"first": 1, "rest": [2, 3], "more": {"x": 4}, "last": 5}
        (found,) = await ended(queue, await by.aenqueue_named("all", given))
        with pytest.raises(PayloadNotEncodable):
            by.enqueue_named("all", {"first": 1, "x": 4})
    assert found.result == [1, 2, 3, 5, 4]

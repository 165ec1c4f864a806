"""Declaring a batch task: what it may be, and what its jobs are enqueued with."""

import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from pgqueue import Batch, Context, PgQueue, Unique
from pgqueue.errors import DuplicateTask, InvalidOption, PayloadNotEncodable


@dataclass
class Document:
    number: int
    tenant: str = "one"
    words: list[str] = field(default_factory=list)


class Tuple(NamedTuple):
    number: int
    tenant: str = "one"


class Struct(msgspec.Struct):
    number: int
    words: list[str] = msgspec.field(default_factory=list)


class Model(pydantic.BaseModel):
    number: int
    words: list[str] = []


class Dict(TypedDict):
    number: int


class Plain:
    def __init__(self, number: int) -> None:
        self.number = number


def document(number: int, tenant: str = "two") -> Document:
    return Document(number, tenant)


def nothing(_: Batch[Any]) -> None: ...


@pytest.fixture
def queue() -> PgQueue:
    return PgQueue("postgresql://nowhere")


@pytest.mark.parametrize("item", [Document, Tuple, Struct, Model, Plain, document])
def test_a_jobs_arguments_are_those_of_its_item(item: Any, queue: PgQueue) -> None:
    task = queue.batch_task(item)(nothing)
    data = task.call(number=7).job.args
    assert msgspec.json.decode(data) in ({"number": 7}, {"number": 7, "words": []})
    args, kwargs = task.signature.decode(data, None)
    made = item(*args, **kwargs)
    assert made.number == 7
    assert getattr(made, "words", []) == []
    with pytest.raises(PayloadNotEncodable):
        task.call(number="seven")
    with pytest.raises(PayloadNotEncodable):
        task.call(7, nubmer=8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size=0: use a whole number from 1 to 1000"),
        ({"size": -1}, "size=-1"),
        ({"size": 1_001}, "size=1001"),
        ({"size": True}, "size=True"),
        ({"size": 2.5}, "size=2.5"),
        ({"size": None}, "size=None"),
        ({"wait": -1}, "wait=-1: use seconds or a timedelta, from zero to 60 seconds"),
        ({"wait": 61}, "wait=61"),
        ({"wait": timedelta(hours=1)}, "wait=datetime"),
        ({"wait": float("nan")}, "wait=nan"),
        ({"wait": "1"}, "wait='1'"),
        ({"wait": None}, "wait=None"),
        ({"by": ("tennant",)}, "by: task .* has no parameter 'tennant'; did you mean 'tenant'"),
        ({"by": "tennant"}, "has no parameter 'tennant'"),
        ({"by": 7}, "by=7: use the names of arguments"),
        ({"by": ("",)}, "by="),
        ({"by": (7,)}, "by="),
        ({"unique": Unique(by=("tennant",))}, r"Unique\(by=...\): task .* has no parameter 'tennant'"),
        ({"priority": 1_000}, "priority=1000"),
        ({"timeout": 0}, "timeout=0"),
    ],
)
def test_options_out_of_their_range_are_refused(options: dict[str, Any], words: str, queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match=words):
        queue.batch_task(Document, **options)(nothing)
    assert not queue.tasks
    assert not queue.batch_tasks


def generator(jobs: Batch[Any]) -> Iterator[int]:
    yield from range(len(jobs))


async def async_generator(jobs: Batch[Any]) -> AsyncIterator[int]:
    for number in range(len(jobs)):
        yield number


def with_context(ctx: Context, jobs: Batch[Any]) -> None: ...


def without_a_batch() -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (generator, "a generator function would never run"),
        (async_generator, "a generator function would never run"),
        (with_context, "it is called with one argument, the Batch"),
        (without_a_batch, "it is called with one argument, the Batch"),
        (lambda _: None, "a lambda has no name"),
        (7, "it cannot be called"),
    ],
)
def test_a_function_that_cannot_take_a_batch_is_refused(function: Any, words: str, queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match=words):
        queue.batch_task(Document)(function)
    assert not queue.tasks


def bare(jobs: Batch[Document]) -> None: ...


async def made_later(number: int) -> None: ...


@pytest.mark.parametrize("item", [bare, Dict, 7, "Document", made_later, generator, dict])
def test_an_item_that_cannot_be_made_of_arguments_is_refused(item: Any, queue: PgQueue) -> None:
    with pytest.raises(InvalidOption, match=r"write @queue.batch_task\(Item, size=100\)"):
        queue.batch_task(item)


def test_a_task_is_no_item(queue: PgQueue) -> None:
    task = queue.batch_task(Document)(nothing)
    with pytest.raises(InvalidOption, match=r"write @queue\.batch_task"):
        queue.batch_task(task)


def test_a_name_is_taken_once(queue: PgQueue) -> None:
    queue.batch_task(Document)(nothing)
    with pytest.raises(DuplicateTask):
        queue.batch_task(Document)(nothing)


def test_the_other_options_are_those_of_a_task(queue: PgQueue) -> None:
    ours = inspect.signature(PgQueue.batch_task).parameters
    theirs = inspect.signature(PgQueue.task).parameters
    assert theirs.keys() - ours.keys() == {"function", "process", "slots"}
    assert ours.keys() - theirs.keys() == {"item", "size", "wait", "by"}
    task = queue.batch_task(
        Document, queue="index", priority=5, max_attempts=3, unique=Unique(by=("number",))
    )(nothing)
    job = task.call(7).job
    assert (job.queue, job.priority, job.max_attempts) == ("index", 5, 3)
    assert job.unique_key == f'{__name__}.nothing{{"number":7}}'

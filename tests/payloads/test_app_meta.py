"""What is sent along with a job: it arrives with the attempt, and stays with the job wherever that goes."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from looking import ask
from running import Running
from tenacity import wait_none

from pgqueue import Context, Dead, JobState, PgQueue, Retry, Unique
from pgqueue.errors import InvalidOption
from pgqueue.values.payloads.storable import LARGEST

META = {"trace": "00-4bf9-00", "tags": ["vip", 'a\\b "c"\n'], "parent": 41, "deep": {"é": None}}


async def test_it_reaches_the_task_and_the_history(queue: PgQueue, running: Running) -> None:
    @queue.task
    async def note(ctx: Context) -> dict[str, Any]:
        return ctx.meta

    with_meta, without = note.using(meta=META).enqueue(), note.enqueue()
    async with running(queue):
        assert await with_meta.aresult(timeout=20) == META
        assert await without.aresult(timeout=20) == {}
    assert [queue.job(one.id).meta for one in (with_meta, without)] == [META, None]


async def test_it_survives_retries_death_and_revival(queue: PgQueue, running: Running) -> None:
    seen = []

    @queue.task(retry=Retry(wait=wait_none()), max_attempts=3)
    async def fail(ctx: Context) -> None:
        seen.append(ctx.meta)
        if ctx.attempt == 2:
            raise Dead("no")
        raise ValueError("again")

    job = fail.using(meta=META).enqueue()
    async with running(queue):
        with pytest.raises(Exception, match="no"):
            await job.aresult(timeout=20)
    assert (queue.job(job.id).state, queue.job(job.id).meta) == (JobState.DEAD, META)
    assert queue.retry(job.id)
    assert queue.job(job.id).meta == META
    assert seen == [META, META]


def test_it_travels_on_every_way_in(queue: PgQueue) -> None:
    @queue.task(name="note")
    def note(number: int) -> None: ...

    tagged = note.using(meta=META)
    later, keyed = timedelta(hours=1), Unique(period=timedelta(hours=1))
    many = queue.enqueue_many([
        tagged.call(1),
        note.call(2),
        tagged.using(unique_key="many").call(3),
        note.using(unique_key="other").call(4),
    ])  # fmt: skip
    jobs = [
        tagged.enqueue(1),
        tagged.using(delay=later).enqueue(1),
        tagged.using(unique_key="one").enqueue(1),
        tagged.using(unique_key="period", unique=keyed).enqueue(1),
        many[0],
        many[2],
    ]
    assert [queue.job(one.id).meta for one in jobs] == [META] * len(jobs)
    assert [queue.job(one.id).meta for one in (many[1], many[3])] == [None, None]


def test_json_that_was_encoded_with_line_ends_is_taken_on_every_way_in(queue: PgQueue) -> None:
    @queue.task
    def note() -> None: ...

    tagged = note.using(meta={"a": msgspec.Raw(b'{\n\t"b": "c\\n"\r\n}')})
    for job in (tagged.enqueue(), *queue.enqueue_many([tagged.call()])):
        assert queue.job(job.id).meta == {"a": {"b": "c\n"}}


def test_a_replaced_job_has_that_of_the_replacement(queue: PgQueue) -> None:
    @queue.task(unique=Unique(collision="replace"))
    def note() -> None: ...

    job = note.using(unique_key="one", meta=META).enqueue()
    note.using(unique_key="one").enqueue()
    assert queue.job(job.id).meta is None
    note.using(unique_key="one", meta={"second": True}).enqueue()
    assert queue.job(job.id).meta == {"second": True}


def test_a_cancelled_job_keeps_it(queue: PgQueue) -> None:
    @queue.task
    def note() -> None: ...

    job = note.using(meta=META).enqueue()
    job.cancel()
    assert (queue.job(job.id).state, queue.job(job.id).meta) == (JobState.CANCELLED, META)


def test_a_take_hands_it_out(queue: PgQueue) -> None:
    @queue.task
    def note() -> None: ...

    note.using(meta=META).enqueue()
    note.enqueue()
    with queue.take(2, timeout=5) as jobs:
        assert [one.meta for one in jobs] == [META, {}]


def test_what_sql_wrote_past_the_bounds_is_shown_as_text(queue: PgQueue) -> None:
    @queue.task
    def note() -> None: ...

    job = note.enqueue()
    ask(queue, "update pgqueue.jobs set meta = '[1]' returning id")
    assert queue.job(job.id).meta == {"(unreadable)": "[1]"}
    with queue.take(1, timeout=5) as (taken,):
        assert taken.meta == {"(unreadable)": "[1]"}


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ([], "dict with strings as keys"),
        ({1: 2}, "dict with strings as keys"),
        ({"a": object()}, "object"),
        ({"a": "\0"}, "NUL"),
        ({"a": "\ud800"}, "surrogates"),
        ({"a": float("nan")}, "NaN"),
        ({"a": 10**5000}, "integer"),
        ({"a": "x" * LARGEST}, "8,200 bytes as JSON, more than 8,192"),
    ],
)
def test_what_cannot_be_sent_along_is_refused_where_it_is_written(
    queue: PgQueue, meta: Any, said: str
) -> None:
    @queue.task
    def note() -> None: ...

    with pytest.raises(InvalidOption, match=rf"^meta=.*{said}"):
        note.using(meta=meta)


def test_the_largest_is_taken_by_both_doors_and_more_is_refused(queue: PgQueue) -> None:
    @queue.task(name="note")
    def note() -> None: ...

    largest = {"a": "x" * (LARGEST - 9)}
    job = note.using(meta={"a": "x" * (LARGEST - 8)}).enqueue()
    assert len(queue.job(job.id).meta["a"]) == LARGEST - 8  # type: ignore[index]  # it has one
    statement = "select pgqueue.enqueue('note', meta => jsonb_build_object('a', repeat('x', %s)))"
    ((by_sql,),) = ask(queue, statement, LARGEST - 9)
    assert queue.job(by_sql).meta == largest
    for refused in ("jsonb_build_object('a', repeat('x', 8184))", "'[]'", "'1'"):
        with pytest.raises(Exception, match="at most 8192 bytes"):
            ask(queue, f"select pgqueue.enqueue('note', meta => {refused})")

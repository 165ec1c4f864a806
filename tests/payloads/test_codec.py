"""Arguments, results and errors are encoded on their way into every table, and decoded at every door."""

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from secrets import token_hex
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import psycopg
import pytest
from ciphers import Secret
from hypothesis import given
from hypothesis import strategies as st
from looking import ask, until
from psycopg import sql
from running import Running
from tenacity import stop_after_attempt, wait_fixed
from worker.helping import ended

import pgqueue as package
from pgqueue import Codec, Context, Job, JobPart, JobState, PgQueue, Retry, Unique, Workflow, group
from pgqueue.app.adding import checked_job
from pgqueue.errors import InvalidOption, JobFailed, PayloadNotDecodable, PayloadNotEncodable, ResultNotKept
from pgqueue.moving.adoption import Judge
from pgqueue.store.adopt import WaitingJob
from pgqueue.store.plan import Plan
from pgqueue.testing import adrain, assert_enqueued, drain, in_memory
from pgqueue.values.jobs.job import AttemptError, Claim, NewJob
from pgqueue.values.jobs.verdict import Died
from pgqueue.values.payloads import codec as codecs
from pgqueue.values.payloads.storable import NUL
from pgqueue.values.schedules.schedule import Applied, ScheduleChange
from pgqueue.worker.claims import Claims
from pgqueue.worker.completer import Completer
from pgqueue.worker.connection import WorkerConnection
from pgqueue.worker.executor import Executor
from pgqueue.worker.recorder import LOCKED_FOR, Recorder

WORD = "topsecret"
PLAIN = re.compile(WORD)
ONCE = Retry(stop=stop_after_attempt(1))


class Failing(Codec):
    """Fails to encode what is of one kind, and quotes the data in its error."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def encode(self, data: bytes, part: JobPart) -> str | bytes:
        if part.kind == self.kind:
            raise RuntimeError(data.decode())
        return data


@pytest.fixture
def secret(dsn: str) -> Iterator[PgQueue]:
    """A queue with the test codec, and its tasks."""
    opened = with_tasks(PgQueue(dsn, codec=Secret("k1")))
    yield opened
    opened.close()


def with_tasks(queue: PgQueue) -> PgQueue:
    @queue.task(name="echo")
    def echo(word: str) -> dict[str, str]:
        return {"said": word}

    @queue.task(name="wait")
    async def wait(word: str) -> list[str]:
        return [word]

    @queue.task(name="fail", retry=ONCE)
    def fail(word: str) -> None:
        raise ValueError(f"not {word}")

    @queue.task(name="again", retry=Retry(wait=wait_fixed(3600)))
    async def again(word: str) -> None:
        raise ValueError(word)

    @queue.task(name="object")
    def returns_object(word: str) -> object:
        return type(word, (), {})()

    return queue


def rows(queue: PgQueue) -> dict[str, list[str]]:
    tables = [name for (name,) in ask(queue, "select tablename from pg_tables where schemaname = 'pgqueue'")]
    with queue.database.pooled() as connection:
        return {table: [text for (text,) in connection.execute(_whole(table)).fetchall()] for table in tables}


def _whole(table: str) -> sql.Composed:
    return sql.SQL("select whole::text from {} as whole").format(sql.Identifier("pgqueue", table))


def in_clear(queue: PgQueue) -> list[str]:
    """The rows of all tables in which the secret can be read."""
    return [row for found in rows(queue).values() for row in found if PLAIN.search(row)]


async def test_no_table_has_clear_text_of_arguments_keys_results_or_errors(
    secret: PgQueue, running: Running
) -> None:
    echo, wait = secret.tasks["echo"], secret.tasks["wait"]
    by = Unique(by="word")
    fine = [
        echo.enqueue(WORD),
        await wait.aenqueue(WORD),
        echo.using(unique=by).enqueue(WORD),
        echo.using(unique_key=WORD, unique=Unique(period=3600)).enqueue(WORD),
        *secret.enqueue_many(echo.call(f"{WORD}{number}") for number in range(3)),
        *secret.enqueue_many(echo.using(unique_key=f"{WORD}{number}").call(WORD) for number in range(3)),
        secret.tasks["object"].enqueue(WORD),
    ]
    echo.using(delay=3600, unique_key="later").enqueue("first")
    replaced = echo.using(unique_key="later", unique=Unique(collision="replace")).enqueue(WORD)
    later = echo.using(delay=3600).enqueue(WORD)
    cancelled = echo.using(delay=3600).enqueue(WORD)
    assert cancelled.cancel() is JobState.CANCELLED
    dead, again = secret.tasks["fail"].enqueue(WORD), secret.tasks["again"].enqueue(WORD)
    with secret.take() as (taken,):
        taken.fail(WORD, delay=3600)
    assert in_clear(secret) == []
    async with running(secret):
        await ended(secret, *fine[1:], replaced, dead)
        await until(lambda: secret.job(again.id).errors)
    found = rows(secret)
    assert len(found["jobs"]) == 3
    assert len(found["dead_jobs"]) == 1
    assert in_clear(secret) == []
    assert secret.job(later.id).args == {"word": WORD}
    assert secret.job(dead.id).errors[-1].message == f"not {WORD}"


async def test_every_reader_of_the_queue_decodes(secret: PgQueue, running: Running) -> None:
    plain, waited = secret.tasks["echo"].enqueue(WORD), secret.tasks["wait"].enqueue(WORD)
    dead, lost = secret.tasks["fail"].enqueue(WORD), secret.tasks["object"].enqueue(WORD)
    async with running(secret):
        await ended(secret, plain, waited, dead, lost)
    assert plain.result(timeout=0) == {"said": WORD}
    assert await waited.aresult(timeout=0) == [WORD]
    assert secret.result(plain.id) == {"said": WORD}
    assert await secret.aresult(waited.id) == [WORD]
    shown = secret.job(dead.id)
    assert (await secret.ajob(dead.id)) == shown
    assert shown.args == {"word": WORD}
    assert [(error.type, error.message, error.encoded) for error in shown.errors] == [
        ("ValueError", f"not {WORD}", None)
    ]
    assert f"ValueError: not {WORD}" in str(shown.errors[0].traceback)
    assert shown.errors[0].at is not None
    assert [job.args for job in secret.insight.search().jobs] == [{"word": WORD}] * 4
    (found,) = (await secret.insight.asearch(task="echo")).jobs
    assert (found.id, found.args) == (plain.id, {"word": WORD})
    with pytest.raises(JobFailed, match=f"not {WORD}"):
        dead.result(timeout=0)
    with pytest.raises(ResultNotKept, match=f"a .*{WORD}"):
        lost.result(timeout=0)


def test_a_take_gets_decoded_arguments(secret: PgQueue) -> None:
    secret.tasks["echo"].enqueue(WORD)
    with secret.take() as (job,):
        assert job.args == {"word": WORD}


def test_a_revived_job_is_decoded_from_what_the_dead_table_kept(secret: PgQueue) -> None:
    dead = secret.tasks["fail"].enqueue(WORD)
    drain(secret, raises=False, allow_real=True)
    assert in_clear(secret) == []
    assert secret.retry(dead.id)
    with secret.take() as (job,):
        assert job.args == {"word": WORD}


def test_unique_keys_stay_unique_and_are_found_by_what_was_given(secret: PgQueue) -> None:
    echo = secret.tasks["echo"]
    first = echo.using(unique_key=WORD).enqueue("one")
    assert not echo.using(unique_key=WORD).enqueue("two").accepted
    derived = echo.using(unique=Unique(by="word")).enqueue(WORD)
    assert not echo.using(unique=Unique(by="word")).enqueue(WORD).accepted
    rejected = secret.enqueue_many(echo.using(unique_key=key).call("three") for key in (WORD, "other"))
    assert [one.accepted for one in rejected] == [False, True]
    assert rejected[0].id == first.id
    assert [job.id for job in secret.insight.search(unique_key=WORD).jobs] == [first.id]
    assert first.id != derived.id
    with in_memory(secret):
        echo.using(unique_key=WORD).enqueue("four")
        assert_enqueued(echo, unique_key=WORD, args=["four"])


@pytest.mark.parametrize("awaited", [False, True])
async def test_drains_and_assertions_in_memory_see_plain_values(*, awaited: bool) -> None:
    queue = with_tasks(PgQueue("", codec=Secret("k1")))
    with in_memory(queue):
        handle, dead = queue.tasks["echo"].enqueue(WORD), queue.tasks["fail"].enqueue(WORD)
        assert_enqueued(queue.tasks["echo"], args=[WORD])
        ran = await adrain(queue, raises=False) if awaited else drain(queue, raises=False)
        assert [one.args for one in ran] == [{"word": WORD}] * 2
        assert handle.result() == {"said": WORD}
        assert queue.job(dead.id).errors[0].message == f"not {WORD}"


async def test_encoded_and_plain_jobs_mix(secret: PgQueue, dsn: str, running: Running) -> None:
    before = with_tasks(PgQueue(dsn))
    handles = [before.tasks["echo"].enqueue("plain"), secret.tasks["echo"].enqueue(WORD)]
    ask(secret, "select pgqueue.enqueue('echo', '{\"word\": \"by SQL\"}')")
    async with running(secret):
        await until(lambda: len(secret.insight.search(state="succeeded").jobs) == len(handles) + 1)
    results = [secret.job(job.id).result for job in reversed(secret.insight.search().jobs)]
    assert results == [{"said": "plain"}, {"said": WORD}, {"said": "by SQL"}]
    before.close()


def test_the_arguments_of_schedules_are_encoded_and_those_of_their_jobs_decoded(secret: PgQueue) -> None:
    secret.schedules.add("each", secret.tasks["echo"].call(WORD), every=3600)
    assert in_clear(secret) == []
    assert secret.schedules.get("each").args == {"word": WORD}
    secret.schedules.fire("each")
    assert in_clear(secret) == []
    assert [job.args for job in secret.insight.search().jobs] == [{"word": WORD}]


class Salted(Secret):
    """Encodes the same data as another text each time, as encryption does."""

    def encode(self, data: bytes, part: JobPart) -> str | bytes:
        return f"{token_hex(8)}.{super().encode(data, part)!s}"

    def decode(self, text: str, part: JobPart) -> bytes:
        return super().decode(text.partition(".")[2], part)


def _declaring(queue: PgQueue, word: str = WORD) -> PgQueue:
    echo = with_tasks(queue).tasks["echo"]
    queue.schedule("@daily", name="each", arguments={"word": word})(echo)
    return queue


@pytest.mark.parametrize("memory", [False, True])
def test_a_codec_with_random_output_changes_no_schedule(dsn: str, *, memory: bool) -> None:
    one = _declaring(PgQueue(dsn, codec=Salted("k1")))
    with in_memory(one) if memory else nullcontext():
        echo = one.tasks["echo"]
        assert one.schedules.apply().added == ("each",)
        assert one.schedules.apply() == Applied()
        assert one.schedules.put("made", echo.call(WORD), every=60) is ScheduleChange.ADDED
        assert one.schedules.put("made", echo.call(WORD), every=60) is ScheduleChange.UNCHANGED
        assert one.schedules.put("made", echo.call("other"), every=60) is ScheduleChange.CHANGED
        assert one.schedules.get("made").args == {"word": "other"}
        assert one.schedules.put("made", echo.call("other"), every=90) is ScheduleChange.CHANGED
    one.close()


def test_a_schedule_is_stored_again_where_its_arguments_are_others_in_clear_or_of_a_lost_key(
    dsn: str,
) -> None:
    def applied(*keys: str, word: str = WORD) -> Applied:
        app = _declaring(PgQueue(dsn, codec=Salted(*keys) if keys else None), word)
        try:
            return app.schedules.apply()
        finally:
            app.close()

    assert applied() == Applied(added=("each",))
    changed = Applied(changed=("each",))
    assert applied("k1") == changed  # it was in clear
    assert applied("k1", word="other") == changed
    assert applied("k1", word="other") == Applied()
    assert applied("k2", "k1", word="other") == Applied()
    assert applied("k2", word="other") == changed
    assert applied("k2", word="other") == Applied()


async def test_keys_rotate_without_draining(dsn: str, running: Running) -> None:
    old, new = (with_tasks(PgQueue(dsn, codec=Secret(*keys))) for keys in (("k1",), ("k2", "k1")))
    jobs = [old.tasks["echo"].enqueue(WORD), new.tasks["echo"].enqueue(WORD)]
    async with running(new):
        await ended(new, *jobs)
    stored = ask(new, "select args->>'$encoded', result->>'$encoded' from pgqueue.job_history order by id")
    assert [(args[:3], result[:3]) for args, result in stored] == [("k1:", "k2:"), ("k2:", "k2:")]
    assert [job.result(timeout=0) for job in jobs[1:]] == [{"said": WORD}]
    old.close()
    new.close()


async def test_a_wrong_key_ends_only_that_job(dsn: str, running: Running) -> None:
    strange, queue = (with_tasks(PgQueue(dsn, codec=Secret(key))) for key in ("lost", "k1"))
    wrong = [strange.tasks["echo"].enqueue(WORD), strange.tasks["wait"].enqueue(WORD)]
    right = [queue.tasks["echo"].enqueue("one"), queue.tasks["wait"].enqueue("two")]
    async with running(queue):
        await ended(queue, *wrong, *right)
    assert [job.result(timeout=0) for job in right] == [{"said": "one"}, ["two"]]
    shown = queue.job(wrong[0].id)
    assert (shown.state, shown.reason) == (JobState.DEAD, "undecodable")
    assert shown.errors[0].message == "echo: the codec failed to decode: KeyError: 'lost'"
    assert shown.args == {"(unreadable)": "echo: the codec failed to decode: KeyError: 'lost'"}
    assert strange.job(wrong[0].id).args == {"word": WORD}
    assert (
        strange.job(wrong[0].id).errors[0].message
        == "(encoded: echo: the codec failed to decode: KeyError: 'k1')"
    )
    assert strange.retry(wrong[0].id)
    assert drain(strange, allow_real=True)[0].outcome is JobState.SUCCEEDED
    assert queue.job(wrong[0].id).result == {
        "(unreadable)": "echo: the codec failed to decode: KeyError: 'lost'"
    }
    plain = PgQueue(dsn, codec=Codec())
    for read in (queue.result, plain.result):
        with pytest.raises(PayloadNotDecodable, match="failed to decode"):
            read(wrong[0].id)
    for one in (strange, queue, plain):
        one.close()


def test_a_take_ends_only_the_job_that_it_cannot_decode(dsn: str) -> None:
    strange, queue = (with_tasks(PgQueue(dsn, codec=Secret(key))) for key in ("lost", "k1"))
    wrong, right = strange.tasks["echo"].enqueue(WORD), queue.tasks["echo"].enqueue("fine")
    with queue.take(2) as jobs:
        assert [(job.id, job.args) for job in jobs] == [(right.id, {"word": "fine"})]
    assert queue.job(wrong.id).reason == "undecodable"
    strange.close()
    queue.close()


async def test_a_worker_without_the_codec_says_what_it_needs(
    secret: PgQueue, dsn: str, running: Running
) -> None:
    plain = with_tasks(PgQueue(dsn))
    job = secret.tasks["echo"].enqueue(WORD)
    async with running(plain):
        await ended(plain, job)
    (error,) = plain.job(job.id).errors
    assert error.message.endswith("they are encoded: give this program's PgQueue their codec")
    assert list(plain.job(job.id).args) == ["$encoded"]
    plain.close()


async def test_a_codec_that_fails_costs_what_it_failed_on_and_nothing_else(
    dsn: str, running: Running
) -> None:
    for kind in ("result", "error"):
        queue = with_tasks(PgQueue(dsn, codec=Failing(kind)))
        result, error = queue.tasks["echo"].enqueue(WORD), queue.tasks["fail"].enqueue(WORD)
        async with running(queue):
            shown, dead = await ended(queue, result, error)
        assert (shown.state, dead.state) == (JobState.SUCCEEDED, JobState.DEAD)
        if kind == "result":
            with pytest.raises(ResultNotKept, match="the codec failed to encode: RuntimeError"):
                result.result(timeout=0)
        else:
            assert result.result(timeout=0) == {"said": WORD}
            (kept,) = dead.errors
            said = (kept.attempt, kept.type, kept.message, kept.traceback)
            assert said == (1, "ValueError", "(not kept: the codec raised RuntimeError)", None)
        queue.close()


@pytest.mark.parametrize("refusal", [psycopg.errors.LockNotAvailable, psycopg.errors.DataException])
async def test_errors_are_encoded_as_well_where_a_row_is_locked_or_a_verdict_refused(
    refusal: type[psycopg.Error],
) -> None:
    plans: list[Plan[Any]] = []

    async def run(plan: Plan[Any]) -> Any:
        plans.append(plan)
        if len(plans) == 1:
            raise refusal(WORD)
        return ({}, {1}) if plan.name == "finish.finish_unlocked" else {}

    verdict = Died(_claim("{}"), 0.0, "asked", AttemptError(1, "ValueError", WORD))
    written = await Recorder(
        run,
        AsyncMock(spec=WorkerConnection, losses=0),
        PgQueue("", codec=Secret("k1")),
        claims=lambda: False,
    ).write([verdict])
    assert len(plans) == 2
    for plan in plans:
        (recorded,) = plan.arguments["verdicts"]
        assert recorded.error.encoded
        assert not PLAIN.search(str(recorded))
    assert written.later == ([(LOCKED_FOR, verdict)] if refusal is psycopg.errors.LockNotAvailable else [])


async def test_errors_are_encoded_as_well_while_the_event_loop_is_blocked() -> None:
    connection = AsyncMock(spec=WorkerConnection, losses=0)
    connection.once.return_value = {1: JobState.DEAD}
    verdict = Died(_claim("{}"), 0.0, "asked", AttemptError(1, "ValueError", WORD))
    queue = PgQueue("", codec=Secret("k1"))
    claims = Claims(1, tasks={}, host=Executor(queue))
    claims.verdicts.append(verdict)
    completer = Completer(connection, claims, queue)
    await completer.stand_in(connection)
    ((plan,), _), *_ = connection.once.call_args_list
    assert plan.arguments["verdicts"]
    assert not PLAIN.search(str(plan.arguments["verdicts"]))


def test_what_is_said_of_a_job_that_the_worker_does_not_know_stays_in_clear() -> None:
    unknown = msgspec.structs.replace(_claim("{}"), task="")
    verdict = Died(unknown, 0.0, "exhausted", AttemptError(1, "WorkerLost", "worker 1 stopped"))
    assert codecs.with_encoded_errors(Secret("k1"), [verdict]) == [verdict]


def test_jobs_of_other_packages_are_encoded_when_they_come_over() -> None:
    queue = with_tasks(PgQueue("", codec=Secret("k1")))
    judge = Judge(queue=queue, unique=Unique(), tasks=queue.tasks)
    theirs = WaitingJob(
        1, "echo", None, 0, None, "isbn", None, b'{"word": "topsecret"}', 0, has_headers=False
    )
    job = judge(theirs)
    assert isinstance(job, NewJob)
    assert not PLAIN.search(str(job))
    assert codecs.args_of(queue.codec, _claim(job.args.decode())) == {"word": WORD}
    assert job.unique_key == Secret("k1").key("isbn")


def test_an_enqueue_that_cannot_be_encoded_is_refused(dsn: str) -> None:
    queue = with_tasks(PgQueue(dsn, codec=Failing("args")))
    with pytest.raises(PayloadNotEncodable, match="echo: the codec failed to encode: RuntimeError"):
        queue.tasks["echo"].enqueue("one")
    with pytest.raises(PayloadNotEncodable, match="echo: the codec failed to encode"):
        queue.enqueue_many(queue.tasks["echo"].call(word) for word in "abc")
    assert queue.insight.search().jobs == ()
    queue.close()


@pytest.mark.parametrize(
    "stored",
    [
        b"[]",
        b'"text"',
        b"not JSON",
        b'{"a": "\\u0000"}',
        b'{"a": 1e99999}',
        "half \ud800",
        "NUL \0",
        None,
        7,
        b"",
    ],
    ids=repr,
)
def test_what_a_codec_returns_must_be_storable(stored: Any) -> None:
    class Returning(Codec):
        def encode(self, data: bytes, part: JobPart) -> str | bytes:  # noqa: ARG002 - as it is called
            return stored  # type: ignore[no-any-return]  # anything

    job = NewJob("echo", b'{"word":"w"}', "default", 0, 1)
    with pytest.raises(PayloadNotEncodable, match="echo: "):
        codecs.encoded_job(Returning(), job)


async def test_redaction_stays_readable_without_the_codec(dsn: str, running: Running) -> None:
    class Redacting(Codec):
        def encode(self, data: bytes, part: JobPart) -> str | bytes:
            return data.replace(WORD.encode(), b"***") if part.kind != "args" else data

    queue, plain = with_tasks(PgQueue(dsn, codec=Redacting())), PgQueue(dsn)
    fine, dead = queue.tasks["echo"].enqueue(WORD), queue.tasks["fail"].enqueue(WORD)
    async with running(queue):
        await ended(queue, fine, dead)
    assert plain.result(fine.id) == {"said": "***"}
    assert plain.job(dead.id).errors[0].message == "not ***"
    assert "not ***" in str(plain.job(dead.id).errors[0].traceback)
    queue.close()
    plain.close()


def test_the_codec_reads_what_was_sent_along(dsn: str) -> None:
    class Tenants(Codec):
        def encode(self, data: bytes, part: JobPart) -> str | bytes:
            return base64.b85encode(part.meta["tenant"].encode() + b"|" + data).decode()

        def decode(self, text: str, part: JobPart) -> bytes:
            tenant, _, data = base64.b85decode(text).partition(b"|")
            assert tenant.decode() == part.meta["tenant"]
            return data

    queue = with_tasks(PgQueue(dsn, codec=Tenants()))
    handles = queue.enqueue_many(
        queue.tasks[name].using(meta={"tenant": "blue"}).call("w") for name in ("echo", "fail")
    )
    drain(queue, raises=False, allow_real=True)
    assert handles[0].result() == {"said": "w"}
    assert queue.job(handles[1].id).errors[0].message == "not w"
    assert queue.job(handles[1].id).args == {"word": "w"}
    queue.close()


def test_a_codec_is_an_object_of_a_subclass() -> None:
    with pytest.raises(InvalidOption, match=r"give an object, Secret\(\)"):
        PgQueue("", codec=Secret)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(InvalidOption, match=r"it is no pgqueue\.Codec"):
        PgQueue("", codec=json)  # type: ignore[arg-type]  # the mistake


HOSTILE = [
    '{"$encoded": 5}',
    '{"$encoded": "k1:zzz", "word": "w"}',
    '{"$encoded": "a", "$encoded": "b"}',
    '{"\\u0024encoded": "k1:"}',
    '{"$encoded": "k1:"}',
    '{"$encoded": "k1:%%%"}',
    '{"$encoded": ' + "[" * 150 + "]" * 150 + "}",
    '{"$encoded": {"$encoded": "k1:"}}',
    '{"$encoded": "' + "k1:" * 1_000_000 + '"}',
]  # fmt: skip


async def test_a_false_envelope_ends_only_its_own_job(secret: PgQueue, running: Running) -> None:
    insert = "insert into pgqueue.jobs (queue, task, args, status) values ('default', 'echo', %s::text::json, 'ready')"
    for args in HOSTILE:
        ask(secret, insert, args)
    good = secret.tasks["echo"].enqueue(WORD)
    async with running(secret):
        await ended(secret, good)
        await until(lambda: len(secret.insight.search(state="dead").jobs) == len(HOSTILE))
    assert good.result(timeout=0) == {"said": WORD}
    assert {job.reason for job in secret.insight.search(state="dead").jobs} == {"undecodable"}


@pytest.mark.parametrize(
    "raised", [SystemExit, asyncio.CancelledError, GeneratorExit, RecursionError, MemoryError]
)
async def test_whatever_a_codec_raises_the_worker_stays(
    raised: type[BaseException], dsn: str, running: Running
) -> None:
    class Silent(BaseException):
        def __str__(self) -> str:
            raise raised

    class Bad(Codec):
        def encode(self, data: bytes, part: JobPart) -> str | bytes:
            if b"fine" in data:
                return data
            if part.kind == "args":
                return "a text"
            raise Silent

        def decode(self, text: str, part: JobPart) -> bytes:  # noqa: ARG002 - as it is called
            raise raised

    queue = with_tasks(PgQueue(dsn, codec=Bad()))
    bad = [queue.tasks[name].enqueue(WORD) for name in ("echo", "wait")]
    good = queue.tasks["wait"].enqueue("fine")
    async with running(queue):
        await ended(queue, *bad, good)
    assert [queue.job(job.id).reason for job in bad] == ["undecodable"] * 2
    assert good.result(timeout=0) == ["fine"]
    queue.close()


@pytest.mark.parametrize(
    "decoded",
    [None, "text", 7, b"", b"[]", b"not JSON", b"\xff", b'{"word": 5}', b'{"other": "w"}'],
    ids=repr,
)
def test_what_a_codec_decodes_must_fit(decoded: Any) -> None:
    class Returning(Codec):
        def encode(self, data: bytes, part: JobPart) -> str | bytes:
            return "a text" if part.kind == "args" else data

        def decode(self, text: str, part: JobPart) -> bytes:  # noqa: ARG002 - as it is called
            return decoded  # type: ignore[no-any-return]  # anything

    queue = with_tasks(PgQueue("", codec=Returning()))
    with in_memory(queue):
        job = queue.tasks["echo"].enqueue("w")
        (ran,) = drain(queue, raises=False)
        assert (ran.outcome, queue.job(job.id).reason) == (JobState.DEAD, "undecodable")
        assert isinstance(queue.job(job.id).args, dict)


def test_an_error_that_gets_too_long_is_not_kept() -> None:
    class Long(Codec):
        def encode(self, data: bytes, part: JobPart) -> str | bytes:  # noqa: ARG002 - as it is called
            return "x" * 100_000

    verdict = Died(_claim("{}"), 0.0, "asked", AttemptError(1, "ValueError", WORD))
    (recorded,) = codecs.with_encoded_errors(Long(), [verdict])
    assert isinstance(recorded, Died)
    assert recorded.error.message == "(not kept: encoded, it takes 100,000 characters)"
    assert recorded.error.encoded is None


def test_without_a_codec_nothing_is_looked_at_twice() -> None:
    claim, job = _claim('{"word": "w"}'), NewJob("echo", b"{}", "default", 0, 1)
    queue = PgQueue("")
    assert checked_job(queue, job) is job
    assert codecs.args_text(None, claim) is claim.args
    verdicts: list[Any] = []
    assert codecs.with_encoded_errors(None, verdicts) is verdicts


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.deferred(
    lambda: (
        st.none()
        | st.booleans()
        | numbers
        | texts
        | st.lists(values, max_size=3)
        | st.dictionaries(texts, values, max_size=3)
    )
)
objects = st.dictionaries(st.sampled_from(["a", "$encoded", "(unreadable)", "é"]), values)
both = st.sampled_from([Secret("k1"), Codec()])


@given(objects, both)
def test_arguments_come_back_as_they_were(args: dict[str, Any], codec: Codec) -> None:
    if not isinstance(codec, Secret) and args.keys() == {"$encoded"}:
        return
    data = json.dumps(args).encode()
    stored = codecs.encoded_job(codec, NewJob("echo", data, "default", 0, 1))
    assert isinstance(json.loads(stored.args), dict)
    assert codecs.args_of(codec, _claim(stored.args.decode())) == args
    spaced = json.dumps(json.loads(stored.args), indent=1)  # as jsonb or SQL may write it
    assert codecs.args_of(codec, _claim(spaced)) == args


@given(values, st.text(), st.none() | st.text())
def test_results_and_errors_come_back_as_they_were(value: Any, message: str, traceback: str | None) -> None:
    codec, claim = Secret("k1"), _claim("{}")
    stored = codecs.encoded_result(codec, claim, json.dumps(value).encode())
    job = _job(result=json.loads(stored))
    assert json.loads(codecs.result_text(codec, job, stored.decode())) == value
    assert NUL not in stored
    storable = [text and text.encode(errors="replace").decode() for text in (message, traceback)]
    error = AttemptError(1, "ValueError", str(storable[0]), storable[1])
    (verdict,) = codecs.with_encoded_errors(codec, [Died(claim, 0.0, "asked", error)])
    assert codecs.decode_job(codec, _job(errors=(verdict.error,))).errors == (error,)  # type: ignore[union-attr]  # it has one


def _claim(args: str) -> Claim:
    return Claim(1, None, 1, 1, 1, 0, "default", "echo", args, None, None, 0.0)  # type: ignore[arg-type]  # not looked at


def _job(**fields: Any) -> Job:
    empty = dict.fromkeys(Job.__struct_fields__)
    return Job(**{**empty, "task": "echo", "args": {}, "errors": (), **fields})


def test_one_module_reads_and_writes_the_json_of_jobs() -> None:
    """Types become JSON in modules of values; no other module between the user and the tables encodes or decodes."""
    root = Path(package.__file__).parent
    folders = ("values", "app", "store", "worker", "testing")
    calls = re.compile(r"\b(?:msgspec\.)?json\.(?:decode|encode|loads|dumps|Decoder|Encoder)\b")
    found = {
        str(file.relative_to(root))
        for folder in folders
        for file in (root / folder).rglob("*.py")
        if calls.search(file.read_text())
    }
    assert found == {
        "app/alerts.py",  # the argument that an alert is given as
        "app/named.py",  # what workers say of their tasks
        "worker/attempt_process.py",  # where a process looks for modules
        "store/alerts/alerts.py",  # the job that tells of an alert
        "store/arrays.py",
        "store/insight/series.py",  # how deep queues are
        "store/pipeline/sink.py",  # the key columns of a write
        "testing/draining.py",  # what is recorded of a job
        "testing/schedules.py",  # what a tick adds to meta
        "values/alerts/alert.py",  # what an alert's condition is
        "values/bulk/operation.py",  # what the audit keeps of an operation
        "values/payloads/codec.py",
        "values/payloads/contract.py",  # the schemas of a task
        "values/payloads/contract_changes.py",  # parts of schemas, to be compared
        "values/jobs/attempt_log.py",  # the lines that attempts log
        "values/flows/condition.py",  # how long a condition is
        "values/flows/flow.py",  # the arguments of pgqueue's own tasks, and what is stored with a node
        "store/limits/lanes.py",  # what a task's keys are made of
        "values/bulk/filter.py",  # what arguments must contain
        "values/limits/task_limits.py",  # the argument that says what a start costs
        "values/jobs/reproduction.py",  # arguments as the source of a test
        "values/payloads/storable.py",
        "values/secret_forms.py",  # how JSON spells a secret
        "values/jobs/note.py",
        "values/payloads/signature.py",
        "values/payloads/other_types.py",  # models read JSON themselves
        "values/payloads/result.py",
        "values/jobs/unique.py",
    }


class Tenants(Secret):
    """A key for each tenant, which ``meta`` names."""

    def __init__(self) -> None:
        super().__init__("no tenant")

    def encode(self, data: bytes, part: JobPart) -> str | bytes:
        return Secret(part.meta["tenant"]).encode(data, part)

    def decode(self, text: str, part: JobPart) -> bytes:
        return Secret(part.meta["tenant"]).decode(text, part)


@pytest.mark.parametrize("memory", [True, False])
def test_results_in_a_flow_are_read_with_the_meta_of_their_own_jobs(dsn: str, *, memory: bool) -> None:
    queue = PgQueue("" if memory else dsn, codec=Tenants())
    read = list[Any]()

    @queue.task(name="give")
    def give(what: Any) -> Any:
        return what

    @queue.task(name="sum")
    def total(ctx: Context) -> int:
        read.append(dict(ctx.results))
        read.append(ctx.results.of(give, "first"))
        return 0

    def of(tenant: str) -> Any:
        return {"meta": {"tenant": tenant}}

    flow = Workflow()
    flow.add("first", give.using(**of("ann")).call(1))
    flow.add("many", group([give.using(**of("bob")).call(2), give.using(**of("cy")).call(3)]), after="first")
    flow.add("listed", give.using(**of("fay")).call([4]))
    if memory:  # which has no maps
        flow.add("mapped", group([give.using(**of("eve")).call(4)]), after="listed")
    else:
        flow.map("mapped", give.using(**of("eve")), over="listed")
    flow.add("last", total.using(**of("dee")).call(), after=["many", "mapped"])
    with ExitStack() as stack:
        if memory:
            stack.enter_context(in_memory(queue))
        handle = flow.enqueue()
        if not memory:
            with psycopg.connect(dsn, autocommit=True) as connection:
                while drain(queue):
                    connection.execute("delete from pgqueue.job_history")
        else:
            drain(queue)
        assert read == [{"first": 1, "many": [2, 3], "listed": [4], "mapped": [4]}, 1]
        assert handle.results() == {"first": 1, "listed": [4], "last": 0}
    queue.close()

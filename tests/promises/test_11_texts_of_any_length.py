"""Promise 11, length: whatever text a job says, in whatever way, costs its worker and those who look at it little.

Work is counted, not timed: the calls of Python in the thread of the event loop. A text of 20 MB that is read letter by letter,
or of which a part is copied for each part, costs more than the bounds here. What a single call does inside is counted where it
was found to matter: bytes that the log copies (``tests/cli/test_cli_logs.py``), characters that the dashboard's redaction takes
(``tests/dashboard/test_redaction.py``), patterns that go back (``tests/surface/test_regular_expressions.py``).
"""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
import pytest
from cli.commands import pgqueue as command
from looking import ask, wait_until
from running import Running
from werkzeug.test import Client

from pgqueue import Context, Dead, Job, JobHandle, JobState, PgQueue, PgQueueError
from pgqueue.cli.logs import LineFormatter, LogWriter
from pgqueue.dashboard import Dashboard, Right, User

SIZES = (1_000, 64_000, 1_000_000, 20_000_000)
LOOKED_AFTER = SIZES[1::2]
"""What came in until then is looked at on all pages."""
LISTS = ("/jobs", "/dead", "/", "/queues", "/schedules", "/audit", "/alerts")
TEXTS: dict[str, str] = {
    "hex": "0123456789abcdef",
    "lines": "\n",
    "assignments": 'token="',
    "controls": "\x1b[31m\u202e",
    "quotes": '\\"',
    "digits": "9",
    "brackets": "[{",
    "surrogates": "\ud800",
}
MOST_CALLS = 400_000
"""In the loop's thread, for a job of any text, and for a page of it. A letter of 20 MB each would be 50 times as many."""
LONGEST_RECORD = 600_000
"""Bytes of the log, for a job."""


WORST = ("lines", "controls", "hex")
"""Of which 20 MB are tried, too."""


def kinds(size: int) -> Iterable[str]:
    return TEXTS if size < SIZES[-1] else WORST


def text_of(kind: str, size: int) -> str:
    return TEXTS[kind] * (size // len(TEXTS[kind]))


async def _message(_: Context, text: str) -> None:
    raise ValueError(text)


async def _key(_: Context, text: str) -> None:
    raise KeyError(text)


async def _dead(_: Context, text: str) -> None:
    raise Dead(text)


async def _notes(_: Context, text: str) -> None:
    error = ValueError("no")
    error.add_note(text)
    error.add_note(text)
    raise error


async def _class(_: Context, text: str) -> None:
    kind = type(text.replace("\ud800", "?"), (ValueError,), {})
    raise kind("no")


async def _chain(_: Context, text: str) -> None:
    error: BaseException = ValueError(text)
    for _number in range(min(8_000, len(text) // 100)):
        other = LookupError(text[:1_000])
        other.__context__ = error
        error = other
    raise error


async def _group(_: Context, text: str) -> None:
    raise ExceptionGroup(text, [ValueError(text) for _ in range(1_000)])


async def _syntax(_: Context, text: str) -> None:
    raise SyntaxError(text, (text, 1, len(text), text))


async def _result(_: Context, text: str) -> str:
    return text


async def _log(ctx: Context, text: str) -> None:
    ctx.logger.warning(text.replace("%", ""), extra={"said": text, "many": [text]})
    ctx.logger.warning("%s", text)


async def _logged_error(ctx: Context, text: str) -> None:
    try:
        raise ValueError(text)  # noqa: TRY301 - it is what is logged
    except ValueError:
        ctx.logger.exception("no")


async def _progress(ctx: Context, text: str) -> None:
    ctx.progress(1, 2, text)


async def _checkpoint(ctx: Context, text: str) -> None:
    await ctx.acheckpoint(text)


async def _step(ctx: Context, text: str) -> None:
    await ctx.astep("one", _give, text)


async def _name_of_a_step(ctx: Context, text: str) -> None:
    await ctx.astep(text, _give, "")


async def _give(text: str) -> str:
    return text


async def _signal(ctx: Context, text: str) -> None:
    await ctx.await_for(text, timeout=1)


SAID: dict[str, Callable[[Context, str], Any]] = {
    "message": _message,
    "key": _key,
    "dead": _dead,
    "notes": _notes,
    "class": _class,
    "chain": _chain,
    "group": _group,
    "syntax": _syntax,
    "result": _result,
    "log": _log,
    "logged error": _logged_error,
    "progress": _progress,
    "checkpoint": _checkpoint,
    "step": _step,
    "name of a step": _name_of_a_step,
    "name of a signal": _signal,
}
"""What a task can say, by the way in which it does."""


class Calls:
    """Counts the calls of Python and of C in this thread, but for those of the test's own waiting."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.count = 0
        sys.setprofile(self._call)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _call(self, frame: Any, event: str, _: object) -> None:
        self.count += event in {"call", "c_call"} and "/asyncio/" not in frame.f_code.co_filename


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def written() -> Iterator[list[int]]:
    """The log of a worker's process, into a pipe that is read; how many bytes came."""
    reads, writes = os.pipe()
    handler = LogWriter(writes)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("pgqueue")
    counts = [0]

    def read() -> None:
        while data := os.read(reads, 1 << 16):
            counts[0] += len(data)

    reader = threading.Thread(target=read)
    reader.start()
    logger.addHandler(handler)
    logger.propagate = False
    yield counts
    logger.propagate = True
    logger.removeHandler(handler)
    handler.flush()
    os.close(writes)
    reader.join()
    os.close(reads)


@pytest.mark.parametrize("way", SAID)
async def test_what_a_task_says_costs_its_worker_little_and_others_end_beside_it(
    queue: PgQueue, running: Running, calls: Calls, written: list[int], way: str
) -> None:
    @queue.task(max_attempts=1)
    async def say(ctx: Context, kind: str, size: int) -> Any:
        return await SAID[way](ctx, text_of(kind, size))

    @queue.task
    async def other() -> None: ...

    async with running(queue, concurrency=2):
        for size in SIZES:
            for kind in kinds(size):
                before = written[0]
                with calls.counted():
                    jobs = [say.enqueue(kind, size), *(other.enqueue() for _ in range(3))]
                    said, *others = await asyncio.to_thread(_ended, queue, jobs)
                assert calls.count < MOST_CALLS, (kind, size)
                assert written[0] - before < LONGEST_RECORD, (kind, size)
                assert {job.state for job in others} == {JobState.SUCCEEDED}
                assert all(len(repr(error)) < 40_000 for error in said.errors)


def _ended(queue: PgQueue, jobs: Sequence[JobHandle[Any]]) -> list[Job]:
    """Wait until they have, in another thread: how often that looks depends on the machine."""
    wait_until(lambda: all(job.status().ended for job in jobs))
    return [queue.job(job.id) for job in jobs]


def _sql(queue: PgQueue, statement: LiteralString, text: str) -> None:
    ask(queue, statement, text.encode(errors="replace").decode())  # psycopg sends no half of a surrogate pair


WAYS_IN: dict[str, Callable[[PgQueue, Any, str], object]] = {
    "argument": lambda _, task, text: task.enqueue(text),
    "arguments": lambda _, task, text: task.enqueue([text, text]),
    "name of an argument": lambda _, task, text: task.enqueue({text: text}),
    "unique key": lambda _, task, text: task.using(unique_key=text).enqueue(1),
    "meta": lambda _, task, text: task.using(meta={text: text}).enqueue(1),
    "queue": lambda _, task, text: task.using(queue=text).enqueue(1),
    "signal": lambda queue, _, text: queue.signal("key:k", "n", text),
    "name of a signal": lambda queue, _, text: queue.signal("key:k", text, 1),
    "key of a signal": lambda queue, _, text: queue.signal(f"key:{text}", "n", 1),
    "why": lambda queue, _, text: queue.control.pause("other", why=text, by=text),
    "schedule": lambda queue, task, text: queue.schedules.put(text, task.call(text), every=1e6),
    "sql": lambda queue, _, text: _sql(queue, "select pgqueue.enqueue('take', jsonb_build_object('text', %s::text))", text),
    "sql task": lambda queue, _, text: _sql(queue, "select pgqueue.enqueue(%s)", text),
    "sql key": lambda queue, _, text: _sql(queue, "select pgqueue.enqueue('take', unique_key => %s)", text),
    "row": lambda queue, _, text: _sql(queue, "insert into pgqueue.jobs (task, args) values ('take', json_build_object('text', %s::text))", text),
    "task of a row": lambda queue, _, text: _sql(queue, "insert into pgqueue.jobs (task) values (%s)", text),
    "key of a row": lambda queue, _, text: _sql(queue, "insert into pgqueue.jobs (task, unique_key) values ('take', %s)", text),
    "lane of a row": lambda queue, _, text: _sql(queue, "insert into pgqueue.jobs (task, lane) values ('take', %s)", text),
    "meta of a row": lambda queue, _, text: _sql(queue, "insert into pgqueue.jobs (task, meta) values ('take', jsonb_build_object('a', %s::text))", text),
    "errors of a row": lambda queue, _, text: _sql(queue, "insert into pgqueue.jobs (task, errors) values ('take', jsonb_build_array(jsonb_build_object('attempt', 1, 'type', 'E', 'message', %s::text)))", text),
    "alert of a row": lambda queue, _, text: _sql(queue, "insert into pgqueue.alerts (name, module, created_at, rule, after, clear_for, resolved, task, argument, queue, next_at, summary, error) select left(said, 200), said, now(), said, '0', '0', false, said, said, said, now(), said, said from (select %s::text as said) as one on conflict do nothing", text),
}  # fmt: skip
"""How a text comes in, by the way; each takes it, or refuses it."""


@pytest.mark.parametrize("way", WAYS_IN)
async def test_a_text_that_comes_in_is_refused_or_costs_worker_pages_and_shell_no_more_than_its_length(
    queue: PgQueue, running: Running, dsn: str, calls: Calls, way: str
) -> None:
    @queue.task(name="take", max_attempts=1)
    async def take(text: Any = "") -> None:
        raise ValueError(text)

    @queue.task
    async def other() -> None: ...

    user = User.with_rights("ann", Right)
    pages = Client(Dashboard(queue, login=lambda _: user, actions=True))
    for path in (*LISTS, f"/jobs/{other.enqueue().id}"):
        pages.get(path, follow_redirects=True)  # a template is compiled for its first page
    for size in SIZES:
        for kind in kinds(size):
            text = text_of(kind, size)
            with calls.counted():
                refusal = _refusal(WAYS_IN[way], queue, take, text)
            assert len(refusal) < 3_000, (kind, size)
            assert calls.count < MOST_CALLS, (kind, size)
        if size not in LOOKED_AFTER:
            continue
        most = MOST_CALLS + 20 * min(size, 2_000_000)
        async with running(queue, concurrency=2):
            with calls.counted():
                await asyncio.to_thread(_ended, queue, [other.enqueue() for _ in range(3)])
            assert calls.count < most, size
        for path in (*LISTS, *_pages_of(queue)):
            with calls.counted():
                answer = pages.get(path, follow_redirects=True)
            assert answer.status_code == 200, path
            assert calls.count < most, (path, size)
            assert len(answer.text) < 2_000_000, path
    for words in (
        ["jobs", "list"],
        ["jobs", "list", "--json"],
        ["dead", "list", "--json"],
        ["queues", "list"],
        ["alerts", "list", "--json"],
        ["metrics"],
    ):
        found = command(*words, dsn=dsn)
        assert found.exit_code == 0
        assert words[-1] != "--json" or isinstance(json.loads(found.stdout), list)


def _refusal(way: Callable[..., object], *given: object) -> str:
    try:
        way(*given)
    except (PgQueueError, psycopg.Error) as error:
        return str(error)
    return ""


def _pages_of(queue: PgQueue) -> list[str]:
    return [f"/jobs/{job.id}" for job in queue.insight.search(limit=3).jobs]

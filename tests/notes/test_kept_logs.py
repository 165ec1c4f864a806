"""The last log lines of attempts: what is kept of them, within which bounds, while they run and after they ended; attacks."""

import asyncio
import contextvars
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ciphers import Secret
from crashes.killing import worker_process
from looking import ask, until
from notes import keeping_logs
from running import Running
from store.crowd import ask as asked
from store.samples import NOON, adding, error_of, new_job, taking
from tenacity import wait_fixed
from worker.helping import ended

from pgqueue import AttemptLog, Context, JobHandle, JobPart, PgQueue, Retry, Snooze
from pgqueue.app import attempt_logs
from pgqueue.app.attempt_logs import LogBuffer, WaitingLogs
from pgqueue.errors import InvalidOption
from pgqueue.middleware import KeepLogs
from pgqueue.store.jobs import finish, notes
from pgqueue.store.workers import upkeep
from pgqueue.testing import drain, in_memory
from pgqueue.values.jobs.attempt_log import KEPT_ATTEMPTS, MOST_BYTES, MOST_LINES, StoredLog
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Died, Succeeded, Verdict
from pgqueue.values.redaction import Redaction

log = logging.getLogger("shop.mail")
AT_ONCE = Retry(wait=wait_fixed(0))


@pytest.fixture(autouse=True)
def at_info() -> Iterator[None]:
    log.setLevel(logging.INFO)
    yield
    log.setLevel(logging.NOTSET)


@pytest.fixture
def keeping(dsn: str) -> Iterator[PgQueue]:
    """A queue that keeps the log of attempts."""
    queue = PgQueue(dsn, middleware=[KeepLogs()])
    yield queue
    queue.close()


def texts(logs: list[AttemptLog]) -> list[list[str]]:
    return [[line.text for line in one.lines] for one in logs]


async def logged(queue: PgQueue, job: JobHandle[Any], attempts: int = 1) -> list[AttemptLog]:
    """The log of a job, as soon as the worker has written this many attempts."""
    await until(lambda: len(queue.logs(job.id)) >= attempts)
    return await queue.alogs(job.id)


async def test_each_attempt_of_each_kind_of_task_has_its_own_lines(
    keeping: PgQueue, running: Running
) -> None:
    both = asyncio.Barrier(2)

    @keeping.task(name="waits")
    async def waits(word: str) -> None:
        log.info("%s begins", word)
        await both.wait()
        await asyncio.to_thread(log.warning, "%s in a thread", word)
        await asyncio.create_task(_say(word))

    @keeping.task(name="plain", retry=AT_ONCE, max_attempts=2)
    def plain(ctx: Context) -> None:
        ctx.logger.warning("attempt %d", ctx.attempt)
        log.debug("below the level of its logger")
        if ctx.attempt == 1:
            raise ValueError

    log.info("outside")
    jobs = [await waits.aenqueue(word) for word in ("a", "b")]
    twice = await plain.aenqueue()
    async with running(keeping):
        await ended(keeping, *jobs, twice)
        found = [await logged(keeping, one) for one in jobs]
        tried = await logged(keeping, twice, attempts=2)

    assert [texts(one) for one in found] == [
        [[f"{word} begins", f"{word} in a thread", f"{word} in a task"]] for word in ("a", "b")
    ]
    assert [(one.level, one.logger) for one in found[0][0].lines] == [
        ("INFO", "shop.mail"),
        ("WARNING", "shop.mail"),
        ("INFO", "shop.mail"),
    ]
    assert [(one.attempt, one.lines[0].text, one.left_out) for one in tried] == [
        (1, "attempt 1", 0),
        (2, "attempt 2", 0),
    ]
    assert abs((tried[0].lines[0].at - tried[0].written_at).total_seconds()) < 60


async def _say(word: str) -> None:
    log.info("%s in a task", word)


async def test_lines_are_read_while_the_job_runs_and_written_when_the_worker_stops(
    keeping: PgQueue, running: Running
) -> None:
    release = asyncio.Event()

    @keeping.task
    async def long() -> None:
        log.info("begins")
        await release.wait()
        log.info("ends")

    job = await long.aenqueue()
    async with running(keeping):
        assert texts(await logged(keeping, job)) == [["begins"]]
        assert await job.astatus() == "running"
        release.set()
    assert texts(keeping.logs(job.id)) == [["begins", "ends"]]


async def test_without_the_middleware_nothing_is_kept_or_written(queue: PgQueue, running: Running) -> None:
    @queue.task
    def work() -> None:
        log.warning("said")

    job = await work.aenqueue()
    async with running(queue) as worker:
        await ended(queue, job)
        await worker.parts.upkeep.write_progress()
    assert queue.logs(job.id) == []
    assert ask(queue, "select from pgqueue.notes") == []


def test_a_level_leaves_out_what_is_below_it_and_a_wrong_one_is_refused() -> None:
    queue = PgQueue("", middleware=[KeepLogs(level="WARNING")])

    @queue.task
    def work() -> None:
        log.info("no")
        log.warning("yes")

    with in_memory(queue):
        job = work.enqueue()
        drain(queue)
        assert texts(queue.logs(job.id)) == [["yes"]]
        assert queue.logs(4711) == []
    for level in ("LOUD", None, 1.5):
        with pytest.raises(InvalidOption, match="use a level of logging"):
            KeepLogs(level=level)  # type: ignore[arg-type]  # that is the test


def run_in_memory(function: Callable[..., Any], *args: Any, **options: Any) -> list[AttemptLog]:
    """What is kept of the one job that calls this function."""
    queue = PgQueue("", middleware=[KeepLogs()], **options)
    task = queue.task(name="work", max_attempts=1)(function)
    with in_memory(queue):
        job = task.enqueue(*args)
        drain(queue, raises=False)
        return queue.logs(job.id)


def test_of_many_lines_the_last_are_kept_and_the_others_counted() -> None:
    def many() -> None:
        for number in range(10_000):
            log.info("line %d", number)

    (kept,) = run_in_memory(many)
    assert [one.text for one in kept.lines] == [f"line {n}" for n in range(10_000 - MOST_LINES, 10_000)]
    assert kept.left_out == 10_000 - MOST_LINES


def test_long_lines_are_cut_and_long_logs_hold_fewer_lines() -> None:
    def long() -> None:
        log.info("x" * 20_000_000)
        for _ in range(MOST_LINES):
            log.info("ä" * 3_000)

    (kept,) = run_in_memory(long)
    assert {one.text for one in kept.lines} == {f"{'ä' * 2_000}… (1,000 more characters)"}
    size = sum(len(one.text.encode()) for one in kept.lines)
    assert MOST_BYTES / 2 < size < MOST_BYTES
    assert kept.left_out == MOST_LINES + 1 - len(kept.lines)
    (kept,) = run_in_memory(lambda: log.info("%s", "x" * 20_000_000))
    assert kept.lines[0].text.endswith("… (19,998,000 more characters)")


def test_a_traceback_stands_on_the_lines_after_the_message_its_end_is_kept() -> None:
    def fails() -> None:
        try:
            int("x" * 100)
        except ValueError:
            log.exception("it failed")
            log.exception("m" * 1_990)

    (kept,) = run_in_memory(fails)
    message, _, trace = kept.lines[0].text.partition("\n")
    assert message == "it failed"
    assert trace.startswith("Traceback")
    assert trace.endswith("x" * 100 + "'")
    message, _, trace = kept.lines[1].text.partition("\n")
    assert message == "m" * 1_400 + "… (590 more characters)"
    assert trace.endswith("x" * 100 + "'")


class Talks:
    """Logs while it is shown."""

    def __str__(self) -> str:
        log.warning("inside of a line")
        return "shown"


class Fails:
    def __str__(self) -> str:
        raise RuntimeError("no")


class Endless:
    """Logs itself while it is shown."""

    def __str__(self) -> str:
        logging.getLogger("shop.quiet").warning("again %s", self)
        return "the end"


def test_what_is_logged_while_a_line_is_made_is_no_line() -> None:
    quiet = logging.getLogger("shop.quiet")  # without a handler that shows the line, too
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    (kept,) = run_in_memory(lambda: quiet.warning("%s", Endless()))
    assert [one.text for one in kept.lines] == ["the end"]


def test_what_postgresql_cannot_hold_and_arguments_that_fail_are_lines_all_the_same() -> None:
    def hostile() -> None:
        log.info("nul \0 surrogate \ud800 <script>")
        log.info("%d", "no number")
        log.info("%s", Talks())
        log.info("%s", Fails())
        logging.makeLogRecord({"msg": "made by hand"})
        logging.getLogger("x" * 500 + "\0").warning("of a long name")

    logging.raiseExceptions, before = False, logging.raiseExceptions
    try:
        (kept,) = run_in_memory(hostile)
    finally:
        logging.raiseExceptions = before
    lines = [
        one.text for one in kept.lines if one.text != "inside of a line"
    ]  # of other handlers, which show it again
    assert lines == [
        "nul ␀ surrogate ? <script>",
        "%d (the arguments of this line cannot be shown: TypeError)",
        "shown",
        "%s (the arguments of this line cannot be shown: RuntimeError)",
        "of a long name",
    ]
    assert kept.lines[-1].logger == "x" * 200


def test_a_secret_of_the_arguments_is_hidden_before_it_is_written() -> None:
    def pay(order: int, password: str, pin: str) -> None:
        log.info("order %d with %s and %r", order, password, pin)
        log.info("api_key=abcdef and password: %s", password[:3])
        log.info("%s%s", "x" * 1_995, password)

    (kept,) = run_in_memory(pay, 7, "hunter22-secret", "4711-x")
    assert [one.text for one in kept.lines[:2]] == [
        "order 7 with ••• and '4711-x'",
        "api_key=••• and password: •••",
    ]
    assert "hunt" not in kept.lines[2].text, "a part of it at the cut"
    (kept,) = run_in_memory(pay, 7, "hunter22-secret", "4711-x", redact=["^pin$"])
    assert kept.lines[0].text == "order 7 with hunter22-secret and '•••'"


def test_a_logger_that_does_not_propagate_is_heard() -> None:
    quiet = logging.getLogger("shop.quiet")
    quiet.propagate, quiet.disabled = False, False
    (kept,) = run_in_memory(lambda: quiet.warning("heard"))
    assert kept.lines[0].text == "heard"


def test_a_thread_that_outlives_the_attempt_adds_nothing_to_it_or_to_the_next() -> None:
    queue = PgQueue("", middleware=[KeepLogs()])
    goes_on, said = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def late() -> None:
        log.info("in time")
        said.set()
        goes_on.wait(60)
        log.info("too late")

    @queue.task
    def work() -> None:
        if not threads:
            threads.append(threading.Thread(target=contextvars.copy_context().run, args=(late,)))
            threads[0].start()
            said.wait(60)
        else:
            goes_on.set()
            threads[0].join()
            log.info("the second")

    with in_memory(queue):
        jobs = [work.enqueue(), work.enqueue()]
        drain(queue)
        assert [texts(queue.logs(one.id)) for one in jobs] == [[["in time"]], [["the second"]]]


@dataclass
class Item:
    number: int


def test_each_job_of_a_batch_has_the_lines_of_the_batch_and_many_share_their_room() -> None:
    queue = PgQueue("", middleware=[KeepLogs()])

    @queue.batch_task(Item, size=100)
    def many(jobs: Any) -> None:
        log.info("%d jobs", len(jobs))
        for _ in range(100):
            log.info("x" * 1_000)

    with in_memory(queue):
        jobs = [many.enqueue(number) for number in range(3)]
        drain(queue)
        found = [queue.logs(one.id)[0] for one in jobs]
    assert len({tuple(one.lines) for one in found}) == 1
    assert 10 < len(found[0].lines) < MOST_BYTES / 3 / 1_000


def test_an_attempt_that_is_not_counted_and_runs_again_has_the_lines_of_its_last_run() -> None:
    queue = PgQueue("", middleware=[KeepLogs()])
    runs: list[int] = []

    @queue.task
    def work() -> None:
        runs.append(1)
        log.info("run %d", len(runs))
        if len(runs) < 3:
            raise Snooze(0)

    with in_memory(queue):
        job = work.enqueue()
        drain(queue)
        assert texts(queue.logs(job.id)) == [["run 3"]]


@pytest.fixture
def own(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def stored(claim: Claim, attempt: int = 1, text: str = "said") -> StoredLog:
    lines = [[0.0, "INFO", "shop", text]]
    value = json.dumps({"attempt": attempt, "left_out": 0, "lines": lines})
    claim = Claim(claim.id, claim.worker_id, claim.fence, attempt, *claim_rest(claim))
    return StoredLog(claim, value)


def claim_rest(claim: Claim) -> list[Any]:
    return [getattr(claim, name) for name in claim.__struct_fields__[4:]]


def test_logs_stay_with_the_history_and_the_dead_and_go_with_them(own: psycopg.Connection[Any]) -> None:
    asked(own, adding(*(new_job() for _ in range(4)), now=NOON))
    kept, forgotten, dead, live = asked(own, taking(now=NOON))
    asked(own, notes.keep_logs([stored(one) for one in (kept, forgotten, dead, live)]))
    for keep, verdicts in (
        (True, [Succeeded(kept, 0.0), Died(dead, 0.0, "asked", error_of(dead))]),
        (False, [Succeeded(forgotten, 0.0)]),
    ):
        several: list[Verdict] = [*verdicts]
        asked(own, finish.finish(live.worker_id, several, keep=keep))
    assert asked(own, upkeep.drop_notes()) == 1
    assert {job for (job,) in own.execute("select job_id from pgqueue.notes")} == {kept.id, dead.id, live.id}
    assert [len(asked(own, notes.logs(one.id))) for one in (kept, forgotten, dead, live)] == [1, 0, 1, 1]
    own.execute("delete from pgqueue.job_history where id = %s", [kept.id])
    assert asked(own, notes.logs(kept.id)) == [], "nobody reads it between the two"
    assert asked(own, upkeep.drop_notes()) == 1


def test_of_a_job_with_many_attempts_the_last_logs_are_kept(own: psycopg.Connection[Any]) -> None:
    asked(own, adding(new_job(), now=NOON))
    (one,) = asked(own, taking(now=NOON))
    for attempt in range(1, 51):
        asked(own, notes.keep_logs([stored(one, attempt, "early"), stored(one, attempt)]))
    found = [json.loads(noted.value) for noted in asked(own, notes.logs(one.id))]
    assert [noted["attempt"] for noted in found] == [*range(51 - KEPT_ATTEMPTS, 51)]
    assert {noted["lines"][0][3] for noted in found} == {"said"}


def test_many_and_large_logs_are_written_in_portions(own: psycopg.Connection[Any]) -> None:
    asked(own, adding(*(new_job() for _ in range(100)), now=NOON))
    claims = asked(own, taking(now=NOON))
    asked(own, notes.keep_logs([stored(one, text="x" * 60_000) for one in claims]))
    steps = notes.keep_logs([stored(one, text="x" * 60_000) for one in claims]).steps()
    assert len(list(steps)) == 2
    assert own.execute("select count(*) from pgqueue.notes").fetchone() == (len(claims),)


def buffer(claims: int = 1, codec: Any = None) -> tuple[WaitingLogs, list[LogBuffer]]:
    waiting = WaitingLogs(codec, Redaction)
    made = [
        waiting.begin([Claim(number + 1, *([None] * 2), 1, 1, 0, "", "", "{}", 0.0, 0.0, 0.0)])  # type: ignore[arg-type,call-arg]
        for number in range(claims)
    ]
    return waiting, made


def take(waiting: WaitingLogs) -> list[StoredLog]:
    with waiting.writing() as portion:
        return portion.stored()


def said(text: str) -> logging.LogRecord:
    return logging.LogRecord("shop", logging.INFO, __file__, 1, text, (), None)


def test_a_write_that_fails_is_tried_again_with_what_came_meanwhile_and_given_up_in_the_end() -> None:
    waiting, (one, other) = buffer(2)
    one.add(said("first"))
    other.add(said("other"))
    other.close()
    for attempt in range(attempt_logs.TRIES):
        with pytest.raises(OSError, match="away"), waiting.writing() as portion:  # noqa: PT012 - that is the block
            logs = portion.stored()
            assert len(logs) == 2
            assert "first" in logs[0].value
            if not attempt:
                one.add(said("second"))
            raise OSError("away")
    assert take(waiting) == []
    one.add(said("third"))
    (written,) = take(waiting)
    assert [line[3] for line in json.loads(written.value)["lines"]] == ["first", "second", "third"]
    one.close()
    one.add(said("after its end"))
    assert take(waiting) == []


def test_what_waits_is_bounded_and_what_is_dropped_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attempt_logs, "MOST_WAITING", 2_500)
    waiting, several = buffer(5)
    for one in several:
        one.add(said("x"))
        one.close()
    assert len(take(waiting)) == 2
    (record,) = [one for one in caplog.records if one.name == "pgqueue.task"]
    assert vars(record)["attempts"] == 3
    several[0].add(said("x"))
    assert take(waiting) == []


class Refusing(Secret):
    def encode(self, data: bytes, part: JobPart) -> str | bytes:
        if b"refused" in data:
            raise RuntimeError("no key")
        return super().encode(data, part)


async def test_a_codec_encodes_the_lines_and_what_it_refuses_is_left_out(
    dsn: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    queue = PgQueue(dsn, middleware=[KeepLogs()], codec=Refusing("key"))

    @queue.task(name="work")
    def work(*, well: bool) -> None:
        log.info("fine" if well else "refused")

    fine, refused = await work.aenqueue(well=True), await work.aenqueue(well=False)
    async with running(queue):
        await ended(queue, fine, refused)
        assert texts(await logged(queue, fine)) == [["fine"]]
    assert queue.logs(refused.id) == []
    assert "log lines not kept" in caplog.text
    statement = "select value->>'attempt', value::text like '%%fine%%' from pgqueue.notes where kind = 'log'"
    assert ask(dsn, statement) == [("1", False)]
    other = PgQueue(dsn, codec=Secret("another"))
    (unreadable,) = other.logs(fine.id)[0].lines
    assert "cannot be read" in unreadable.text
    other.close()
    queue.close()
    await queue.aclose()


async def test_tasks_in_processes_keep_their_lines_while_they_run_and_at_their_end(
    queue: PgQueue, running: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(keeping_logs.queue, "database", queue.database)
    file = tmp_path / "go on"
    job = keeping_logs.alone.enqueue(str(file))
    async with running(keeping_logs.queue):
        assert texts(await logged(queue, job)) == [["in a process"]]
        file.touch()
        await ended(queue, job)
        assert texts(queue.logs(job.id)) == [["in a process", "at its end"]]


async def test_what_was_written_before_a_worker_is_killed_stays(queue: PgQueue, dsn: str) -> None:
    job = queue.enqueue_named(keeping_logs.logs_and_waits.name)
    with worker_process(dsn, "notes.keeping_logs") as process:
        assert texts(await logged(queue, job)) == [["before the kill"]]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert texts(queue.logs(job.id)) == [["before the kill"]]


def test_logs_that_another_program_wrote_are_shown_as_unreadable(queue: PgQueue) -> None:
    @queue.task
    def work() -> None: ...

    job = work.enqueue()
    for number, value in enumerate(
        ['{"attempt": 1}', "[]", '{"attempt":1,"left_out":0,"lines":[[1e300,"","",""]]}']
    ):
        ask(
            queue,
            "insert into pgqueue.notes (job_id, kind, name, value) values (%s, 'log', %s, %s)",
            job.id,
            str(number),
            value,
        )
    assert all("the log cannot be read" in one.lines[0].text for one in queue.logs(job.id))

"""The middleware that comes with pgqueue: what it adds to log records, what it warns of, what it sends to Sentry."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sentry_sdk
from looking import until
from running import Running
from sentry_sdk.transport import Transport
from tenacity import wait_fixed
from worker.helping import ended

from pgqueue import Context, Dead, JobState, PgQueue, Retry, Snooze
from pgqueue import middleware as middleware_module
from pgqueue.cli.logs import LineFormatter
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.middleware import LoggingContext, Sentry, SlowJobs, add_fields
from pgqueue.testing import drain, in_memory

log = logging.getLogger("shop")


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(vars(record))


@pytest.fixture
def kept() -> Iterator[Kept]:
    """What the logger of the app writes, with the fields of the job."""
    handler = Kept()
    handler.addFilter(LoggingContext())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)


def fields(record: dict[str, Any]) -> tuple[Any, ...]:
    """Those of the job."""
    return tuple(record[name] for name in ("job", "task", "queue", "attempt"))


async def test_every_record_of_an_attempt_names_its_job(dsn: str, running: Running, kept: Kept) -> None:
    queue = PgQueue(dsn, middleware=[LoggingContext()])
    both = asyncio.Barrier(2)

    @queue.task(name="waits", queue="mail")
    async def waits() -> None:
        log.info("begins")
        await both.wait()
        await asyncio.to_thread(log.info, "in a thread")

    @queue.task(name="plain", retry=Retry(wait=wait_fixed(0)), max_attempts=2)
    def plain(ctx: Context) -> None:
        log.info("plain")
        if ctx.attempt == 1:
            raise ValueError

    log.info("outside")
    jobs = [await waits.aenqueue(), await waits.aenqueue(), await plain.aenqueue()]
    async with running(queue):
        await ended(queue, *jobs)
    log.info("outside")
    assert fields(kept.records[0]) == fields(kept.records[-1]) == (None, None, None, None)
    written = sorted((record["msg"], *fields(record)) for record in kept.records[1:-1])
    assert written == sorted(
        [
            *((words, job.id, "waits", "mail", 1) for job in jobs[:2] for words in ("begins", "in a thread")),
            *(("plain", jobs[2].id, "plain", "default", attempt) for attempt in (1, 2)),
        ]
    )
    await queue.aclose()


def test_a_record_keeps_fields_of_its_own(kept: Kept) -> None:
    queue = PgQueue("", middleware=[LoggingContext()])

    @queue.task
    def work() -> None:
        log.info("about another", extra={"job": 7})

    with in_memory(queue):
        work.enqueue()
        drain(queue)
    assert [(one["job"], one["attempt"]) for one in kept.records] == [(7, 1)]


def test_the_log_of_the_command_shows_the_fields_of_attempts_only() -> None:
    queue = PgQueue("", middleware=[LoggingContext()])
    lines: list[str] = []

    def write() -> None:
        record = log.makeRecord("shop", logging.INFO, __file__, 1, "said", (), None)
        assert add_fields(record)
        lines.append(LineFormatter().format(record).partition("shop ")[2])

    @queue.task(name="work")
    def work() -> None:
        write()

    with in_memory(queue):
        write()
        work.enqueue()
        drain(queue)
    assert lines == ["said", "said job=1 task=work queue=default attempt=1"]


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_slow_job_is_warned_of_once_while_it_runs(
    dsn: str,
    running: Running,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    plain: bool,
) -> None:
    monkeypatch.setattr(middleware_module, "LOOK_EVERY", 0.01)
    queue = PgQueue(dsn, middleware=[SlowJobs(after=0.05)])
    release, looked = threading.Event(), threading.Event()

    def run() -> None:
        release.wait(60)

    async def arun() -> None:
        await until(release.is_set)

    task = queue.task(name="slow")(run if plain else arun)
    slow = await task.aenqueue()

    def warned() -> list[dict[str, Any]]:
        return [vars(one) for one in caplog.records if one.name == "pgqueue.slow_jobs"]

    async with running(queue):
        await until(warned)
        assert await slow.astatus() is JobState.RUNNING
        looked.wait(0.1)  # some more looks
        (record,) = warned()
        release.set()
        await ended(queue, slow)
    assert (record["job"], record["task"], record["attempt"]) == (slow.id, "slow", 1)
    assert record["message"] == "job is slow: it still runs after 0.05 s"
    await queue.aclose()


def test_what_is_slow_is_the_time_given_or_nearly_the_timeout(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowJobs(after=100)
    only_timeouts = SlowJobs()
    queue = PgQueue("", middleware=[slow, only_timeouts])

    def warned(seconds: float) -> list[str]:
        """What is said when the attempt has run for so long."""
        monkeypatch.setattr(Context, "seconds", seconds)
        caplog.clear()
        slow.look()
        only_timeouts.look()
        return [one.message.rpartition("after ")[2] for one in caplog.records]

    @queue.task
    def unlimited(ctx: Context) -> None:
        assert ctx.timeout is None
        assert warned(99) == []
        assert warned(101) == ["100 s"]
        assert warned(10_000) == []

    @queue.task(timeout=20)
    def limited(ctx: Context) -> None:
        assert ctx.timeout == timedelta(seconds=20)
        assert warned(17) == []
        assert warned(19) == ["18 s"] * 2
        assert warned(19.5) == []

    @queue.task(timeout=1_000)
    def long() -> None:
        assert warned(101) == ["100 s"]
        assert warned(901) == ["900 s"]

    with in_memory(queue):
        for task in (unlimited, limited, long):
            task.enqueue()
        drain(queue)


def test_what_has_ended_is_not_warned_of_and_the_thread_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(middleware_module, "LOOK_EVERY", 0.01)
    slow = SlowJobs(after=0.0001)
    queue = PgQueue("", middleware=[slow])
    earlier = set(threading.enumerate())
    threads: list[threading.Thread] = []

    @queue.task(max_attempts=1)
    def work() -> None:
        started = set(threading.enumerate()) - earlier
        threads.extend(one for one in started if one.name == "pgqueue slow jobs")
        raise ValueError

    with in_memory(queue):
        for _ in range(2):
            threads.clear()
            work.enqueue()
            drain(queue, raises=False)
            (thread,) = threads
            thread.join(20)
            assert not thread.is_alive()
    caplog.clear()
    slow.look()
    assert caplog.records == []


def test_slow_jobs_refuses_what_is_no_time() -> None:
    with pytest.raises(InvalidOption, match="after=0"):
        SlowJobs(after=0)


class Keeping:
    """Keeps what would be sent to Sentry, and sends nothing."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def keep(self, envelope: Any) -> None:
        for item in envelope.items:
            event = item.get_event() or item.get_transaction_event()
            if event is not None:
                self.events.append(dict(event))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one.get("type", "error") == kind]


@pytest.fixture
def sentry() -> Iterator[Keeping]:
    """What the app sends to Sentry, with Sentry's own integrations."""
    keeping = Keeping()

    def capture(_: object, envelope: object) -> None:
        keeping.keep(envelope)

    transport = type("Transport", (Transport,), {"capture_envelope": capture})
    sentry_sdk.init(dsn="https://key@example.invalid/1", transport=transport(), traces_sample_rate=1.0)
    yield keeping
    sentry_sdk.get_client().close()
    sentry_sdk.Scope.get_global_scope().set_client(None)


def tags(event: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in event["tags"].items() if name.startswith("pgqueue.")}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_the_error_that_ends_a_job_is_captured_once_with_its_tags(
    dsn: str, running: Running, sentry: Keeping, *, plain: bool
) -> None:
    queue = PgQueue(dsn, middleware=[Sentry()])

    def run() -> None:
        raise LookupError("no such page")

    async def arun() -> None:
        await asyncio.sleep(0)
        raise LookupError("no such page")

    options: dict[str, Any] = {"retry": Retry(wait=wait_fixed(0)), "max_attempts": 3, "queue": "mail"}
    task = queue.task(name="fail", **options)(run if plain else arun)
    job = await task.aenqueue()
    async with running(queue):
        await ended(queue, job)
    (event,) = sentry.of("error")
    assert event["exception"]["values"][-1]["type"] == "LookupError"
    assert tags(event) == {
        "pgqueue.job": str(job.id),
        "pgqueue.task": "fail",
        "pgqueue.queue": "mail",
        "pgqueue.attempt": "3",
    }
    assert event["transaction"] == "fail"
    assert sentry.of("transaction") == []
    await queue.aclose()


def test_each_failed_attempt_is_captured_if_asked_for(sentry: Keeping) -> None:
    queue = PgQueue("", middleware=[Sentry(capture="failed", transactions=True)])

    @queue.task(retry=Retry(wait=wait_fixed(0)), max_attempts=2)
    def fail() -> None:
        raise LookupError

    @queue.task
    def snooze() -> None:
        raise Snooze(60)

    @queue.task
    def give_up() -> None:
        raise Dead("never")

    with in_memory(queue):
        for task in (fail, snooze, give_up):
            task.enqueue()
        drain(queue, raises=False)
    captured = [
        (one["exception"]["values"][-1]["type"], tags(one)["pgqueue.attempt"]) for one in sentry.of("error")
    ]
    assert sorted(captured) == [("Dead", "1"), ("LookupError", "1"), ("LookupError", "2")]
    timed = [
        (one["transaction"].rpartition(".")[2], one["contexts"]["trace"]["op"])
        for one in sentry.of("transaction")
    ]
    assert sorted(timed) == [
        ("fail", "queue.process"),
        ("fail", "queue.process"),
        ("give_up", "queue.process"),
        ("snooze", "queue.process"),
    ]


async def test_jobs_that_run_at_once_have_scopes_of_their_own(
    dsn: str, running: Running, sentry: Keeping
) -> None:
    queue = PgQueue(dsn, middleware=[Sentry()])
    all_run = asyncio.Barrier(5)

    @queue.task(max_attempts=1)
    async def fail(number: int) -> None:
        sentry_sdk.set_tag("number", str(number))
        await all_run.wait()
        raise LookupError(str(number))

    jobs = {number: await fail.aenqueue(number) for number in range(5)}
    async with running(queue):
        await ended(queue, *jobs.values())
    seen = {
        (event["tags"]["number"], event["tags"]["pgqueue.job"], event["exception"]["values"][-1]["value"])
        for event in sentry.of("error")
    }
    assert seen == {(str(number), str(job.id), str(number)) for number, job in jobs.items()}
    await queue.aclose()


async def test_a_cancelled_attempt_is_no_error(dsn: str, running: Running, sentry: Keeping) -> None:
    queue = PgQueue(dsn, middleware=[Sentry(capture="failed")])
    begun = asyncio.Event()

    @queue.task
    async def stay() -> None:
        begun.set()
        await asyncio.sleep(3600)

    job = await stay.aenqueue()
    async with running(queue):
        await begun.wait()
        await job.acancel()
        await ended(queue, job)
    assert sentry.of("error") == []
    await queue.aclose()


def test_an_error_of_sentry_is_none_of_the_job(sentry: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    middleware = Sentry()
    queue = PgQueue("", middleware=[middleware])

    def refuse(_: BaseException) -> None:
        raise RuntimeError("Sentry is away")

    monkeypatch.setattr(sentry_sdk, "capture_exception", refuse)

    @queue.task(max_attempts=1)
    def fail() -> None:
        raise LookupError("the job's own")

    with in_memory(queue):
        job = fail.enqueue()
        drain(queue, raises=False)
        assert [one.type for one in queue.job(job.id).errors] == ["LookupError"]
    assert sentry.events is not None


def test_without_sentrys_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pgqueue-jobs\[sentry\]'"):
        Sentry()


def test_sentry_refuses_an_unknown_capture() -> None:
    with pytest.raises(InvalidOption, match="capture='all': use 'dead' or 'failed'"):
        Sentry(capture="all")  # type: ignore[arg-type]


def test_middleware_does_not_load_sentrys_package_before_it_is_used() -> None:
    shown = "import pgqueue.middleware, sys; print('sentry_sdk' in sys.modules)"
    ran = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "False\n"

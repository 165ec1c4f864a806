"""Traces: one from the enqueue to every attempt, over retries; nothing without the package; sampling that keeps failures."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanKind, StatusCode
from running import Running
from worker.helping import ended

from pgqueue import Batch, Context, Job, PgQueue, Snooze, chain
from pgqueue.telemetry import tracing
from pgqueue.telemetry.sampling import FailedAttempts, KeepFailures
from pgqueue.telemetry.tracing import Tracing, add_trace


class Traced:
    """A queue with traces, and the spans that were exported."""

    def __init__(self, dsn: str, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.queue = PgQueue(dsn, middleware=[Tracing(provider=provider)])
        self.tracer = provider.get_tracer("tests")
        self._exporter = exporter

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [one for one in self._exporter.get_finished_spans() if one.kind is kind]


def context_of(span: ReadableSpan) -> trace.SpanContext:
    """Its context, for the type checker."""
    assert span.context is not None
    found: trace.SpanContext = span.context
    return found


@pytest.fixture
async def traced(dsn: str) -> Any:
    """A queue of which every trace is kept."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=ParentBased(ALWAYS_ON))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    made = Traced(dsn, provider, exporter)
    yield made
    await made.queue.aclose()
    made.queue.close()
    provider.shutdown()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    tracing._attempts.clear()  # noqa: SLF001 - a process has one


async def test_every_attempt_is_in_the_trace_of_its_enqueue_and_links_to_the_one_before(
    traced: Traced, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    queue = traced.queue

    @queue.task(retry=3, name="flaky")
    async def flaky(ctx: Context) -> None:
        ctx.logger.warning("here")
        if ctx.attempt == 1:
            raise ValueError("no")

    with traced.tracer.start_as_current_span("request") as request:
        job = await flaky.aenqueue()
    caplog.handler.addFilter(add_trace)
    caplog.set_level(logging.INFO)
    async with running(queue):
        done = (await ended(queue, job))[0]
    (sent,) = traced.spans(SpanKind.PRODUCER)
    first, second = traced.spans(SpanKind.CONSUMER)
    assert done.attempts == 2
    assert {context_of(one).trace_id for one in (sent, first, second)} == {
        request.get_span_context().trace_id
    }
    assert [one.parent and one.parent.span_id for one in (first, second)] == [context_of(sent).span_id] * 2
    assert (first.links, [link.context for link in second.links]) == ((), [first.context])
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert (first.name, sent.name) == ("process default", "create default")
    assert dict(first.attributes or {}) == {
        "messaging.system": "pgqueue",
        "messaging.destination.name": "default",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": str(job.id),
        "messaging.message.delivery_attempt": 1,
        "pgqueue.task": "flaky",
        "pgqueue.max_attempts": done.max_attempts,
        "error.type": "ValueError",
        "pgqueue.final": False,
    }
    of_attempts = [vars(one).get("span_id") for one in caplog.records if one.message == "here"]
    assert of_attempts == [trace.format_span_id(context_of(one).span_id) for one in (first, second)]
    (ending,) = [one for one in caplog.records if one.message == "job succeeded"]
    assert vars(ending)["trace_id"] == trace.format_trace_id(context_of(first).trace_id)


@dataclass
class Item:
    """The arguments of a job in a batch."""

    number: int


def meta_of(job: Job) -> dict[str, Any]:
    return job.meta or {}


async def test_the_context_goes_along_with_every_way_to_enqueue(traced: Traced, running: Running) -> None:
    queue = traced.queue

    @queue.task
    def plain() -> None: ...

    many = await queue.aenqueue_many(plain.call() for _ in range(3))
    own = await plain.using(meta={"tag": "x"}).aenqueue()
    kept = await plain.using(meta={"traceparent": f"00-{1:032x}-{2:016x}-01"}).aenqueue()
    full = await plain.using(meta={"long": "x" * 8_170}).aenqueue()
    flow = await chain(plain.call(), plain.call()).aenqueue()
    async with running(queue):
        await ended(queue, *many, own, kept, full)
        await flow.ajoin(timeout=20)
    found = [await queue.ajob(job.id) for job in many]
    assert len({meta_of(job)["traceparent"] for job in found}) == 3
    assert meta_of(await queue.ajob(own.id)).keys() == {"tag", "traceparent"}
    assert meta_of(await queue.ajob(full.id)).keys() == {"long"}
    parents = [one.parent.span_id for one in traced.spans(SpanKind.CONSUMER) if one.parent is not None]
    assert len(parents) == 3 + 1 + 1 + 2
    assert 2 in parents
    assert len(traced.spans(SpanKind.PRODUCER)) == 3 + 1 + 1 + 2


async def test_a_job_with_hostile_meta_or_none_begins_a_trace(
    traced: Traced, running: Running, dsn: str
) -> None:
    plainly = PgQueue(dsn)
    bare = plainly.task(name="bare")(lambda: None)
    traced.queue.task(name="bare")(lambda: None)
    metas: list[dict[str, Any] | None] = [
        None,
        {"traceparent": 7},
        {"traceparent": "00-zz-1-01", "tracestate": [1]},
        {"deep": {"traceparent": "00"}},
    ]
    jobs = [await bare.using(meta=meta).aenqueue() for meta in metas]
    async with running(traced.queue):
        await ended(plainly, *jobs)
    await plainly.aclose()
    assert [one.parent for one in traced.spans(SpanKind.CONSUMER)] == [None] * 4


async def test_a_job_that_snoozes_has_not_failed(traced: Traced, running: Running) -> None:
    @traced.queue.task(name="nap")
    async def nap() -> None:
        if len(traced.spans(SpanKind.CONSUMER)) == 0:
            raise Snooze(0)

    async with running(traced.queue):
        await ended(traced.queue, await nap.aenqueue())
    assert [one.status.status_code for one in traced.spans(SpanKind.CONSUMER)] == [StatusCode.UNSET] * 2


async def test_failures_are_exported_though_the_sampler_takes_nothing(dsn: str, running: Running) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=KeepFailures(ParentBased(ALWAYS_OFF)))
    provider.add_span_processor(FailedAttempts(SimpleSpanProcessor(exporter)))
    traced = Traced(dsn, provider, exporter)
    queue = traced.queue

    @queue.task(name="fail", max_attempts=1)
    async def fail(*, really: bool) -> None:
        with traced.tracer.start_as_current_span("inside", kind=SpanKind.INTERNAL):
            pass
        if really:
            raise ValueError("no")

    jobs = [await fail.aenqueue(really=False), await fail.aenqueue(really=True)]
    async with running(queue):
        await ended(queue, *jobs)
    await queue.aclose()
    (found,) = exporter.get_finished_spans()
    assert (found.attributes or {})["messaging.message.id"] == str(jobs[1].id)
    assert context_of(found).trace_flags.sampled
    assert [event.name for event in found.events] == ["exception"]
    assert provider.force_flush()
    provider.shutdown()


async def test_a_batch_is_one_span_that_links_to_each_job(traced: Traced, running: Running) -> None:
    @traced.queue.batch_task(Item, size=3, name="several")
    async def several(jobs: Batch[Item]) -> None:
        assert len(jobs) == 3

    jobs = await traced.queue.aenqueue_many(several.call(1) for _ in range(3))
    async with running(traced.queue):
        await ended(traced.queue, *jobs)
    (found,) = traced.spans(SpanKind.CONSUMER)
    sent = {context_of(one).span_id for one in traced.spans(SpanKind.PRODUCER)}
    assert {link.context.span_id for link in found.links} == sent
    assert (found.attributes or {})["messaging.batch.message_count"] == 3


def test_only_so_many_attempts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "KEPT", 2)
    span = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))

    class One:
        id = 0

    for number in range(5):
        one = One()
        one.id = number
        tracing._remember([one], span)  # type: ignore[list-item] # noqa: SLF001 - what it looks at
    assert list(tracing._attempts) == [3, 4]  # noqa: SLF001 - a process has one


def test_a_record_outside_of_attempts_has_no_trace() -> None:
    record = logging.makeLogRecord({"job": None})
    assert add_trace(record)
    assert "trace_id" not in vars(record)


@pytest.mark.parametrize(
    "program",
    ["import pgqueue", "import pgqueue.worker.worker", "import pgqueue.cli.worker, pgqueue.cli.metrics"],
)
def test_neither_library_is_loaded_by_those_who_do_not_ask(program: str) -> None:
    shown = program + "\nimport sys, json; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = json.loads(done.stdout)
    assert [
        one for one in loaded if one.startswith(("opentelemetry", "prometheus_client", "pgqueue.telemetry"))
    ] == []


@pytest.mark.parametrize(
    ("program", "missing"),
    [
        ("from pgqueue.telemetry.tracing import Tracing; Tracing()", "opentelemetry"),
        ("from pgqueue.cli.metrics import require; require()", "prometheus_client"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(program: str, missing: str) -> None:
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None\n{program}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "ConfigurationError" in done.stderr
    assert "pip install 'pgqueue-jobs[" in done.stderr

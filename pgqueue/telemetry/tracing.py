"""Traces of OpenTelemetry, from the enqueue to every attempt: ``PgQueue(middleware=[Tracing()])``.

Each enqueued job has a span of its own, and goes with its context in ``meta``, as W3C ``traceparent``. Each attempt is a span of
the same trace, and has a link to the attempt before it, where that ran in this process. A job without a context, such as that
of a schedule, begins a trace. Names and attributes follow OpenTelemetry's conventions for messaging.

Which traces are kept is decided by the program's sampler (:mod:`pgqueue.telemetry.sampling`).
"""

import logging
from asyncio import CancelledError
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pgqueue.app.context import Context
from pgqueue.app.middleware import Middleware
from pgqueue.errors import NO_FAILURES, ConfigurationError, InvalidOption
from pgqueue.values.hints import missing_extra
from pgqueue.values.jobs.job import Claim, NewJob
from pgqueue.values.payloads.storable import encode_meta, object_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, TracerProvider

SYSTEM: Final = "pgqueue"
KEPT: Final = 10_000
"""The last attempts of a process whose spans are remembered: for links of retries, and for log records of their ends."""

_attempts: "OrderedDict[int, SpanContext]" = OrderedDict()
_lock = Lock()


class Tracing(Middleware):
    """Makes a span of each enqueue and of each attempt. Around a batch there is one span, with a link to each of its jobs."""

    def __init__(self, *, provider: "TracerProvider | None" = None) -> None:
        """Describe whose spans they are.

        Args:
            provider: of the tracer; None: the program's.

        Raises:
            ConfigurationError: the package opentelemetry-api is not installed.
        """
        try:
            from opentelemetry import trace  # noqa: PLC0415 - programs without it do not load it
            from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415 - it belongs to the same package
        except ImportError as error:
            raise ConfigurationError(
                missing_extra("otel", "Tracing() needs the package opentelemetry-api")
            ) from error
        self._api = trace
        self._carrier = tracecontext.TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("pgqueue", tracer_provider=provider)

    def enqueuing(self, job: NewJob) -> NewJob:
        """Give a job the context of a span for its enqueue. A job that has a ``traceparent`` keeps it."""
        meta = {} if job.meta is None else msgspec.json.decode(job.meta, type=dict[str, Any])
        if "traceparent" in meta:
            return job
        span = self._tracer.start_span(
            f"create {job.queue}",
            kind=self._api.SpanKind.PRODUCER,
            attributes=_attributes(job, "create", "create"),
        )
        carried: dict[str, str] = {}
        self._carrier.inject(carried, self._api.set_span_in_context(span))
        span.end()
        try:
            return msgspec.structs.replace(job, meta=encode_meta({**meta, **carried})) if carried else job
        except InvalidOption:  # with it, meta would be longer than it may be
            return job

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - the task's own value
        """Run a plain function."""
        with self._attempt(ctx):
            return call()

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - the task's own value
        """Run an ``async def`` function."""
        with self._attempt(ctx):
            return await call()

    @contextmanager
    def _attempt(self, ctx: Context) -> Iterator[None]:
        jobs, job = ctx.jobs, ctx.job
        before = [self._api.Link(found) for one in jobs if (found := _attempts.get(one.id)) is not None]
        single = len(jobs) == 1
        sent = (
            []
            if single
            else [self._api.Link(parent) for one in jobs if (parent := self._sent_context(one)) is not None]
        )
        attributes = _attributes(job, "process", "process") | {
            "messaging.message.delivery_attempt": job.attempt,
            "pgqueue.max_attempts": job.max_attempts,
        }
        if single:
            attributes["messaging.message.id"] = str(job.id)
        else:
            attributes["messaging.batch.message_count"] = len(jobs)
        context = self._carrier.extract(_carried_headers(job), context=_nothing()) if single else None
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=context,
            kind=self._api.SpanKind.CONSUMER,
            attributes=attributes,
            links=[*sent, *before],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            _remember(jobs, span)
            try:
                yield
            except BaseException as error:
                self._record_failure(ctx, span, error)
                raise

    def _record_failure(self, ctx: Context, span: "Span", error: BaseException) -> None:
        if ctx.completed or isinstance(error, (*NO_FAILURES, CancelledError)):
            span.set_attribute("pgqueue.outcome", type(error).__name__)
            return
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_attribute("pgqueue.final", ctx.is_final(error))
        span.set_status(self._api.StatusCode.ERROR, type(error).__name__)

    def _sent_context(self, claim: Claim) -> "SpanContext | None":
        context = self._carrier.extract(_carried_headers(claim), context=_nothing())
        found = self._api.get_current_span(context).get_span_context()
        return found if found.is_valid else None


def add_trace(record: logging.LogRecord) -> bool:
    """Put ``trace_id`` and ``span_id`` on a record: of the span in which it is written, else of the attempt of its ``job``."""
    from opentelemetry import trace  # noqa: PLC0415 - loaded by then

    span = trace.get_current_span().get_span_context()
    found = span if span.is_valid else _attempts.get(vars(record).get("job", 0))
    if found is not None:
        vars(record).setdefault("trace_id", trace.format_trace_id(found.trace_id))
        vars(record).setdefault("span_id", trace.format_span_id(found.span_id))
    return True


def _attributes(job: NewJob | Claim, name: str, kind: str) -> dict[str, str | int]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": job.queue,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "pgqueue.task": job.task,
    }


def _carried_headers(claim: Claim) -> dict[str, str]:
    if claim.meta is None or "traceparent" not in claim.meta:
        return {}
    meta = object_of(claim.meta)  # a program may have put anything there
    return {name: meta[name] for name in ("traceparent", "tracestate") if isinstance(meta.get(name), str)}


def _nothing() -> Any:  # noqa: ANN401 - the library's own
    from opentelemetry.context import Context as Empty  # noqa: PLC0415 - loaded by then

    # An attempt does not belong to what its worker does.
    return Empty()


def _remember(jobs: Sequence[Claim], span: "Span") -> None:
    context = span.get_span_context()
    if not context.is_valid:
        return
    with _lock:
        for one in jobs:
            _attempts[one.id] = context
            _attempts.move_to_end(one.id)
        while len(_attempts) > KEPT:
            _attempts.popitem(last=False)

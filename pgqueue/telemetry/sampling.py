"""Sampling that keeps failures: a share of all traces, and each failed attempt.

A sampler decides before an attempt runs, so what it does not take would be lost with its failure. :class:`KeepFailures` has the
attempts of other traces recorded, and not exported; :class:`FailedAttempts` exports those that failed. Of such a trace nothing but
the failed attempts is there. To record an attempt costs some microseconds.
"""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from opentelemetry.util.types import Attributes

from pgqueue.telemetry.tracing import SYSTEM


class KeepFailures(Sampler):
    """Takes what another sampler takes, and has all other attempts recorded."""

    def __init__(self, sampler: Sampler) -> None:
        """Ask this sampler."""
        self._sampler = sampler

    def should_sample(  # noqa: PLR0917 - the library's signature
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """The sampler's answer; of an attempt that it drops: record it."""
        found = self._sampler.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )
        ours = kind is SpanKind.CONSUMER and (attributes or {}).get("messaging.system") == SYSTEM
        if found.decision is Decision.DROP and ours:
            return SamplingResult(Decision.RECORD_ONLY, attributes, found.trace_state)
        return found

    def get_description(self) -> str:
        """What it is, for people."""
        return f"KeepFailures({self._sampler.get_description()})"


class FailedAttempts(SpanProcessor):
    """Passes spans on to another processor: those that were sampled, and attempts that failed."""

    def __init__(self, processor: SpanProcessor) -> None:
        """Pass them on to this one, such as a ``BatchSpanProcessor``."""
        self._processor = processor

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Pass it on."""
        self._processor.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Pass it on; a failed attempt as one that was sampled."""
        context = span.context
        if context is not None and not context.trace_flags.sampled:
            if (
                span.status.status_code is not StatusCode.ERROR
                or (span.attributes or {}).get("messaging.system") != SYSTEM
            ):
                return
            span = _as_sampled(span, context)
        self._processor.on_end(span)

    def shutdown(self) -> None:
        """Pass it on."""
        self._processor.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Pass it on."""
        return self._processor.force_flush(timeout_millis)


def _as_sampled(span: ReadableSpan, context: SpanContext) -> ReadableSpan:
    sampled = SpanContext(
        context.trace_id,
        context.span_id,
        context.is_remote,
        TraceFlags(context.trace_flags | TraceFlags.SAMPLED),
        context.trace_state,
    )
    return ReadableSpan(
        name=span.name,
        context=sampled,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )

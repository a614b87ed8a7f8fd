"""Traces: exports an OpenTelemetry span for each call of a client's trace, with a batch's times as child spans.

A call names its trace by W3C's traceparent, as metadata or in each batch of a stream. Calls without one get no span.
Spans are built when the call is done, from the times in the worker's answer. Workers know nothing of traces.
"""

import time
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gradwire_server import __version__
from gradwire_server.common.errors import Refusal
from gradwire_server.common.timings import read_timings

_PROPAGATOR = TraceContextTextMapPropagator()
_NANO = 1_000_000_000
_EXPORT_SECONDS = 3.0  # timeout of an export; may delay the server's end by as much


class Traces:
    """Builds spans and exports them from a separate thread."""

    def __init__(self, exporter: SpanExporter, node: str = "") -> None:
        """`node` is the server's address in its cluster."""
        about = {SERVICE_NAME: "gradwire", SERVICE_VERSION: __version__}
        resource = Resource.create({**about, **({SERVICE_INSTANCE_ID: node} if node else {})})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("gradwire_server", __version__)

    @staticmethod
    def to(endpoint: str, node: str = "") -> "Traces":
        """Traces of a node that go to the URL of an OTLP collector."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return Traces(OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS), node)

    def begin(self, parent: str, method: str, session: str, principal: str) -> "TracedCall":
        """Begin a call that belongs to a trace."""
        return TracedCall(parent, method, session, principal)

    def flush(self) -> None:
        """Export the finished spans. Blocks."""
        self._provider.force_flush()

    def close(self) -> None:
        """Export the rest and end. Blocks, for the exporter's timeout at most."""
        self._provider.shutdown()

    def record(self, call: "TracedCall", answer: bytes, refusal: Refusal | None = None) -> None:
        """Record an answered or refused call."""
        context = _PROPAGATOR.extract({"traceparent": call.parent})
        if not trace.get_current_span(context).get_span_context().is_valid:
            return  # not a valid traceparent
        ended = call.began + int((time.monotonic() - call.since) * _NANO)
        about = {
            "rpc.system": "grpc",
            "rpc.service": "gradwire.v1.AutogradService",
            "rpc.method": call.method,
            "gradwire.session": call.session,
            "gradwire.principal": call.principal,
        }
        span = self._tracer.start_span(
            f"gradwire {call.method}", context, SpanKind.SERVER, about, start_time=call.began
        )
        if refusal is not None:
            span.set_attribute("gradwire.reason", refusal.reason)
            span.set_status(Status(StatusCode.ERROR, refusal.message))
        timings = read_timings(answer)
        if timings is not None:
            self._divide(span, call.began, ended, *timings)
        span.end(ended)

    def _divide(self, span: Any, began: int, ended: int, queued: float, computed: float, serialized: float) -> None:
        """Add a batch's child spans. Other sessions' turns come between them, so they may not fill the parent."""
        inside = trace.set_span_in_context(span)
        start = began
        for name, seconds in (("queue", queued), ("compute", computed), ("serialize", serialized)):
            part = self._tracer.start_span(name, inside, start_time=start)
            start = min(ended, start + int(seconds * _NANO))
            part.end(start)


class TracedCall:
    """A call of a trace: its parent and when it began."""

    __slots__ = ("began", "method", "parent", "principal", "session", "since")

    def __init__(self, parent: str, method: str, session: str, principal: str) -> None:
        self.parent = parent
        self.method = method
        self.session = session
        self.principal = principal
        self.began = time.time_ns()
        self.since = time.monotonic()

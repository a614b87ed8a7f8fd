"""Tracing: sends the program's OpenTelemetry span to the server, as W3C traceparent.

The module imports nothing: a program with a trace has loaded opentelemetry.
"""

from __future__ import annotations

import sys


def traceparent() -> str:
    """The current span's context as traceparent; "" without a recorded span."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return ""
    context = api.get_current_span().get_span_context()
    if not context.is_valid or not context.trace_flags & 1:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

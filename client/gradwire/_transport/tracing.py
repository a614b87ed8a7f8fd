"""The trace that a call belongs to, where the program uses OpenTelemetry: as W3C's traceparent, for the server.

Nothing is imported: a program that has a trace has loaded opentelemetry itself.
"""

from __future__ import annotations

import sys


def traceparent() -> str:
    """The current span's context; empty where there is none, or where it is not recorded."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return ""
    context = api.get_current_span().get_span_context()
    if not context.is_valid or not context.trace_flags & 1:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

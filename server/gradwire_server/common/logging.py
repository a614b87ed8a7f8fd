"""Logging: formats log lines as plain text or as JSON. No line has a session's whole id."""

import json
import logging
import sys
import time
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _on_one_line(value: Any) -> str:
    """A value on one line, so a client's text cannot forge a log line."""
    text = str(value)
    return text if text.isprintable() else repr(text)


class PlainFormatter(logging.Formatter):
    """Time, level, message and details as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line, and its stack if there is one."""
        line = super().format(record)
        details = " ".join(f"{key}={_on_one_line(value)}" for key, value in _extras(record).items())
        head, newline, stack = line.partition("\n")
        return f"{head} {details}{newline}{stack}" if details else line


class JsonFormatter(logging.Formatter):
    """An object with time, level, message, the details, and the stack if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{when}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(style: str, level: str) -> None:
    """Send the server's log to stderr. `style` is "plain" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter() if style == "json" else PlainFormatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def announce(style: str, address: str) -> None:
    """Print to stdout that the server is ready, and its address."""
    if style == "json":
        record = logging.makeLogRecord({"levelname": "INFO", "msg": "listening", "address": address})
        print(JsonFormatter().format(record), flush=True)
    else:
        print(f"listening on {address}", flush=True)

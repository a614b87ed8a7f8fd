"""Protocols: uvicorn's HTTP and WebSocket connections, with bounds that uvicorn lacks.

A request's head must arrive in time, a client must read what is sent to it in time, and connections are limited. A
WebSocket's message may not have endless fragments, and pings are no way to fill the buffer of unread pongs.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from gradwire_server.web.counters import ACCEPTED, CONNECTIONS, OVER_LIMIT, WebCounters
from gradwire_server.web.options import GatewayOptions

_MOST_FRAGMENTS = 1024
_POLICY_VIOLATION = 1008


class _Timer:
    """Calls a function after a time, unless it is stopped."""

    def __init__(self, seconds: float, act: Any) -> None:
        self._seconds = seconds
        self._act = act
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, if it does not run."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(self._seconds, self._act)

    def stop(self) -> None:
        """Stop, if it runs."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def protocols(options: GatewayOptions, counters: WebCounters) -> tuple[type[asyncio.Protocol], type[asyncio.Protocol]]:
    """The classes of HTTP's and WebSocket's connections."""

    class Http(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            self._head = _Timer(options.header_seconds, transport.abort)
            self._unread = _Timer(options.write_seconds, transport.abort)
            super().connection_made(transport)
            counters.add(CONNECTIONS)
            counters.add(ACCEPTED)
            if len(self.connections) > options.max_connections:
                counters.add(OVER_LIMIT)
                transport.abort()
                return
            self._head.start()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head.stop()
            self._unread.stop()
            counters.add(CONNECTIONS, -1)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # IDLE: the next request's head has begun, and is not there yet.
            if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
                self._head.start()
            else:
                self._head.stop()

        def handle_websocket_upgrade(self, event: h11.Request) -> None:
            self._head.stop()
            super().handle_websocket_upgrade(event)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread.start()

        def resume_writing(self) -> None:
            self._unread.stop()
            super().resume_writing()

    class WebSocket(WebSocketsSansIOProtocol):
        def connection_made(self, transport: Any) -> None:
            self._unread = _Timer(options.write_seconds, transport.abort)
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            self._unread.stop()
            counters.add(CONNECTIONS, -1)
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread.start()

        def resume_writing(self) -> None:
            self._unread.stop()
            super().resume_writing()

        def handle_cont(self, event: Frame) -> None:
            if len(self.frames) >= _MOST_FRAGMENTS:
                self.conn.fail(_POLICY_VIOLATION, "a message has too many fragments")
                self.handle_parser_exception()
                return
            super().handle_cont(event)

        def handle_ping(self) -> None:
            super().handle_ping()
            if not self.writable.is_set():  # it reads no pongs
                self.transport.abort()

    return Http, WebSocket

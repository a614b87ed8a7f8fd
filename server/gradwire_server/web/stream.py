"""Stream by WebSocket: each binary message is one StreamRequest or, from the server, one StreamResponse.

Flow control. The next message is read from the socket when gRPC has taken the last one. The next answer is read from
gRPC when the socket has taken the last one. So at most one message waits in each direction, besides the connections'
own buffers. The contract's credit holds as on any stream.

The end. A refusal comes as one text message: the JSON of a Connect error. Then the socket closes with 4000 plus the
gRPC status code. A stream that ends well closes with 1000.
"""

import asyncio
from contextlib import suppress

import grpc
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from gradwire_server.common.errors import Refusal
from gradwire_server.web.access import SUBPROTOCOL, Caller
from gradwire_server.web.counters import STREAMS
from gradwire_server.web.gateway import Gateway
from gradwire_server.web.status import OK, CallStatus
from gradwire_server.web.upstream import SERVICE, User

PATH = f"{SERVICE}/Stream"
_CLOSE_CODES = 4000  # plus the gRPC status code
_NORMAL = 1000
_SHOWN = 40  # characters of a close frame's reason: at most 123 bytes

_Call = grpc.aio.StreamStreamCall


class StreamEndpoint:
    """The WebSocket that carries Stream's messages."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket."""
        gateway = self._gateway
        socket = WebSocket(scope, receive, send)
        accepted = False
        gateway.counters.add_request("stream")
        try:
            caller = gateway.access.caller(socket, scope["subprotocols"])
            async with gateway.upstream.user(caller.token) as user:
                self._check_streams(user)
                user.streams += 1
                gateway.counters.add(STREAMS)
                try:
                    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in scope["subprotocols"] else None)
                    accepted = True
                    await self._carry(socket, user, caller)
                finally:
                    user.streams -= 1
                    gateway.counters.add(STREAMS, -1)
            status = OK
        except WebSocketDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
            status = gateway.status_of(error, PATH)
        with suppress(WebSocketDisconnect):  # the client went meanwhile
            await (_end(socket, status) if accepted else _deny(socket, status))

    def _check_streams(self, user: User) -> None:
        most = self._gateway.options.max_user_streams
        if user.streams >= most:
            raise Refusal("UNAVAILABLE", f"a user has at most {most} streams through this gateway")

    async def _carry(self, socket: WebSocket, user: User, caller: Caller) -> None:
        """Carry messages until one side ends, or the login does. Raises AioRpcError, Refusal, WebSocketDisconnect."""
        call: _Call[bytes, bytes] = user.channel.stream_stream(PATH)(metadata=user.metadata)
        tasks = [
            asyncio.create_task(_answers(socket, call)),
            asyncio.create_task(_requests(socket, call, user.limits.max_message_bytes)),
        ]
        if caller.login is not None:
            tasks.append(asyncio.create_task(self._login_ends(caller)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=tasks.index):
                task.result()
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _login_ends(self, caller: Caller) -> None:
        login, logins = caller.login, self._gateway.logins
        assert login is not None
        while not login.ended.is_set() and (left := logins.left(login)):  # it may be renewed meanwhile
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(login.ended.wait(), left)
        raise Refusal("UNAUTHENTICATED", "the login has ended; log in again by POST /login")


async def _requests(socket: WebSocket, call: "_Call[bytes, bytes]", most: int) -> None:
    """Pass the client's messages on, one after the other."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"])
        data = message.get("bytes")
        if data is None:
            raise Refusal("MALFORMED", "a stream's messages are binary: each is one StreamRequest")
        if len(data) > most:
            raise Refusal("MESSAGE_TOO_LARGE", f"a message has at most {most} bytes, not {len(data)}", limit=most)
        try:
            await call.write(data)
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await asyncio.Event().wait()  # the call has ended: its status ends the answers


async def _answers(socket: WebSocket, call: "_Call[bytes, bytes]") -> None:
    """Pass the server's answers on, one after the other. A client that does not read is cut off by its connection."""
    async for message in call:
        await socket.send_bytes(message)


async def _end(socket: WebSocket, status: CallStatus) -> None:
    if status is OK:
        await socket.close(_NORMAL)
        return
    await socket.send_json(status.body())
    await socket.close(_CLOSE_CODES + status.code.value[0], status.code.name[:_SHOWN])


async def _deny(socket: WebSocket, status: CallStatus) -> None:
    """Answer the handshake with an HTTP status."""
    await socket.receive()  # websocket.connect
    await socket.send_denial_response(status.response())

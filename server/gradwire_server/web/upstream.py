"""Upstream: one gRPC channel per user's credential, so the server's limits per principal and connection hold.

A credential is tried by ServerInfo before it gets a channel. So a caller with unknown tokens makes neither channels nor
buffers. Channels without calls are closed after a time, and the least recently used one if there are too many.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.web.options import GatewayOptions

SERVICE = f"/{service_pb2.DESCRIPTOR.services_by_name['AutogradService'].full_name}"
_TRY_SECONDS = 10.0
# A well-formed token: a server that accepts it accepts every caller.
_UNKNOWN_TOKEN = "gradwire_0000000000000000_" + "0" * 43
_SERVING = b"\x08\x01"  # a HealthCheckResponse
_MOST_TRIES = 32  # credentials tried at once
_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # the server's own limits hold; it is trusted
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection each
    ("grpc.http2.bdp_probe", 0),
    ("grpc.primary_user_agent", "gradwire-web"),
]


class User:
    """A credential's channel, and the server's limits for it. `calls` counts calls under way, `streams` WebSockets."""

    def __init__(self, key: bytes, channel: grpc.aio.Channel, token: str | None, limits: service_pb2.Limits) -> None:
        self.key = key
        self.channel = channel
        self.limits = limits
        self.metadata = metadata_of(token)
        self.calls = 0
        self.streams = 0
        self.last_used = time.monotonic()

    @contextmanager
    def calling(self) -> Iterator[None]:
        """While this lasts, the channel stays open."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            self.last_used = time.monotonic()


class Upstream:
    """The server, and the channels to it. Use it on one event loop; `close` at the end."""

    def __init__(self, options: GatewayOptions) -> None:
        """Raises OSError for unreadable certificates."""
        self._options = options
        self._credentials = _credentials(options)
        self._users: dict[bytes, User] = {}
        self._trying: dict[bytes, asyncio.Task[User]] = {}
        self._probe = self._channel()
        self._tries = asyncio.Semaphore(_MOST_TRIES)

    def _channel(self) -> grpc.aio.Channel:
        options: list[Any] = list(_CHANNEL_OPTIONS)
        if self._options.server_name:
            options.append(("grpc.ssl_target_name_override", self._options.server_name))
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._options.server, options)
        return grpc.aio.secure_channel(self._options.server, self._credentials, options)

    async def limits(self, token: str | None) -> service_pb2.Limits:
        """Ask the server with a credential; its limits. Raises AioRpcError, UNAUTHENTICATED among them."""
        ask = self._probe.unary_unary(
            f"{SERVICE}/ServerInfo",
            service_pb2.ServerInfoRequest.SerializeToString,
            service_pb2.ServerInfoResponse.FromString,
        )
        async with self._tries:
            info = await ask(service_pb2.ServerInfoRequest(), timeout=_TRY_SECONDS, metadata=metadata_of(token))
        return info.limits

    async def authenticates(self) -> bool:
        """Whether the server refuses a token that no server has made. Raises AioRpcError if it does not answer."""
        try:
            await self.limits(_UNKNOWN_TOKEN)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                return True
            raise
        return False

    async def check(self, token: str | None) -> service_pb2.Limits:
        """Check that the server accepts a credential; its limits. Raises AioRpcError, Refusal: UNAVAILABLE."""
        if self._options.tokens_checked and not await self.authenticates():
            raise Refusal("UNAVAILABLE", "the server admits every caller, so only its own machine may be served")
        return await self.limits(token)

    @asynccontextmanager
    async def user(self, token: str | None) -> AsyncIterator[User]:
        """The channel of a credential, or of callers without one. It stays open inside the block.

        Raises Refusal: UNAVAILABLE; AioRpcError if the server refuses the credential, now or in a call of the block.
        """
        found = await self._find(token)
        try:
            with found.calling():
                yield found
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:  # revoked or expired: it must be tried again
                self._users.pop(found.key, None)
            raise
        finally:
            if self._users.get(found.key) is not found and not found.calls:
                await found.channel.close()

    async def _find(self, token: str | None) -> User:
        key = hashlib.sha256((token or "").encode()).digest()
        found = self._users.get(key)
        if found is None:
            trying = self._trying.get(key)
            if trying is None:
                trying = self._trying[key] = asyncio.create_task(self._try(key, token))
                trying.add_done_callback(lambda done: self._tried(key, done))
            found = await asyncio.shield(trying)
        return found

    def _tried(self, key: bytes, done: "asyncio.Task[User]") -> None:
        self._trying.pop(key, None)
        if not done.cancelled():
            done.exception()  # the caller may have gone; then no other reads it

    async def _try(self, key: bytes, token: str | None) -> User:
        limits = await self.check(token)
        while len(self._users) >= self._options.max_channels:
            idle = [each for each in self._users.values() if not each.calls]
            if not idle:
                raise Refusal("UNAVAILABLE", "the gateway has too many users at once; try again")
            await self._drop(min(idle, key=lambda each: each.last_used))
        made = self._users[key] = User(key, self._channel(), token, limits)
        return made

    async def _drop(self, user: User) -> None:
        self._users.pop(user.key, None)
        await user.channel.close()

    async def sweep(self) -> None:
        """Close the channels that were idle for a time."""
        oldest = time.monotonic() - self._options.idle_channel_seconds
        for user in list(self._users.values()):
            if not user.calls and user.last_used < oldest:
                await self._drop(user)

    @property
    def open_channels(self) -> int:
        """The number of users' channels."""
        return len(self._users)

    async def serving(self) -> bool:
        """Whether the server answers a health check, which needs no credential."""
        check: Any = self._probe.unary_unary("/grpc.health.v1.Health/Check")
        with suppress(grpc.aio.AioRpcError):
            return bool(await check(b"", timeout=_TRY_SECONDS) == _SERVING)
        return False

    async def close(self) -> None:
        """Close all channels; calls under way are cancelled."""
        for trying in list(self._trying.values()):
            trying.cancel()
        for channel in [self._probe, *(user.channel for user in self._users.values())]:
            await channel.close()


def metadata_of(token: str | None) -> tuple[tuple[str, str], ...]:
    """A call's metadata with a token."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def _credentials(options: GatewayOptions) -> grpc.ChannelCredentials | None:
    files = options.server_ca, options.client_key, options.client_cert
    if not options.server_tls and not any(files):
        return None
    ca, key, cert = (Path(path).read_bytes() if path else None for path in files)
    return grpc.ssl_channel_credentials(ca, key, cert)

"""Bodies: reads requests' bodies within bounds of size, time and, for all requests together, memory."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import Request

from gradwire_server.common.errors import Refusal
from gradwire_server.web.status import http_refusal

T = TypeVar("T")
_LENGTH = re.compile(r"[0-9]{1,18}")


class Buffered:
    """The bytes of bodies that are held, over all requests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Count bytes as held inside the block. Raises Refusal: UNAVAILABLE."""
        if self.held + size > self._most:
            raise Refusal("UNAVAILABLE", "too many large requests wait to be answered; try again")
        self.held += size
        try:
            yield
        finally:
            self.held -= size


def declared_length(request: Request) -> int | None:
    """The Content-Length; None if there is none. Raises Refusal: MALFORMED."""
    given = request.headers.get("content-length")
    if given is None:
        return None
    if not _LENGTH.fullmatch(given):
        raise Refusal("MALFORMED", "the Content-Length is not a number of bytes")
    return int(given)


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """The whole body. Raises Refusal: MESSAGE_TOO_LARGE, MALFORMED, DEADLINE_EXCEEDED for a slow client."""
    length = declared_length(request)
    if length is not None and length > most:
        raise _too_large(most)
    body = bytearray()

    async def read() -> None:
        async for piece in request.stream():
            body.extend(piece)
            if len(body) > most:
                raise _too_large(most)

    await in_time(read(), seconds)
    return bytes(body)


async def chunks(request: Request, size: int, seconds: float) -> AsyncIterator[bytes]:
    """The body in chunks of `size` bytes, the last one shorter. Each must arrive within some seconds.

    Raises Refusal: DEADLINE_EXCEEDED.
    """
    pieces, waiting, whole = request.stream(), bytearray(), False

    async def fill() -> bool:
        """Read until a chunk is there; whether the body is over."""
        while len(waiting) < size:
            piece = await anext(pieces, None)
            if piece is None:
                return True
            waiting.extend(piece)
        return False

    while not whole:
        whole = await in_time(fill(), seconds)
        while len(waiting) >= size or (whole and waiting):
            yield bytes(waiting[:size])
            del waiting[:size]


async def in_time(reading: Awaitable[T], seconds: float) -> T:
    """Await reading from a client. Raises Refusal: DEADLINE_EXCEEDED."""
    try:
        return await asyncio.wait_for(reading, seconds)
    except asyncio.TimeoutError:
        raise http_refusal(408, "DEADLINE_EXCEEDED", f"the body did not arrive within {seconds:g} s") from None


def _too_large(most: int) -> Refusal:
    return http_refusal(413, "MESSAGE_TOO_LARGE", f"the body has more than {most} bytes", limit=most)

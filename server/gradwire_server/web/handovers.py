"""Handovers: a program gives a session to its user's browser, without a secret in an address.

The program posts the session's id, a tensor, and what only it knows: names and lines. It gets a code for the address.
The page exchanges the code once, within two minutes, and with the program's own token. Then the code is worth nothing.
"""

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.responses import JSONResponse, Response

from gradwire_server.common.errors import Refusal
from gradwire_server.web.bodies import read_body
from gradwire_server.web.gateway import Gateway, HttpRequest
from gradwire_server.web.status import http_refusal

MOST_BYTES = 1 << 20
_MOST = 64
_SECONDS = 120.0
_MOST_CODE_BYTES = 1 << 10


class Handovers:
    """The handovers that wait, by code, oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: OrderedDict[str, tuple[str | None, bytes, float]] = OrderedDict()

    def put(self, token: str | None, body: bytes) -> str:
        """Keep a handover of a caller; its code. The oldest gives way if there are too many."""
        while len(self._waiting) >= _MOST:
            self._waiting.popitem(last=False)
        code = secrets.token_urlsafe(16)
        self._waiting[code] = (token, body, self._clock() + _SECONDS)
        return code

    def take(self, token: str | None, code: str) -> bytes | None:
        """Take a handover of the same caller; None if there is none, or no longer."""
        found = self._waiting.get(code)
        if found is None or found[0] != token:
            return None
        del self._waiting[code]
        return found[1] if self._clock() < found[2] else None


class HandoverEndpoints:
    """The two endpoints of a gateway's handovers."""

    def __init__(self) -> None:
        self._handovers = Handovers()

    async def put(self, gateway: Gateway, request: HttpRequest) -> None:
        """Keep a program's handover. Raises Refusal, AioRpcError for an unknown token."""
        token, body = await _body(gateway, request, MOST_BYTES)
        await request.answer(JSONResponse({"code": self._handovers.put(token, body)}))

    async def take(self, gateway: Gateway, request: HttpRequest) -> None:
        """Answer a handover to the page, once. Raises Refusal, AioRpcError for an unknown token."""
        token, body = await _body(gateway, request, _MOST_CODE_BYTES)
        code = json.loads(body).get("code")
        found = self._handovers.take(token, code) if isinstance(code, str) else None
        if found is None:
            raise http_refusal(
                404, "SESSION_NOT_FOUND", "the link was used, is too old, or is another user's: make a new one"
            )
        await request.answer(Response(found, media_type="application/json"))


async def _body(gateway: Gateway, request: HttpRequest, most: int) -> tuple[str | None, bytes]:
    """The caller's token, which the server accepts, and its body: a JSON object."""
    caller = gateway.access.caller(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise http_refusal(415, "MALFORMED", "a handover is a JSON object")
    async with gateway.upstream.user(caller.token):
        body = await read_body(request, most, gateway.options.body_seconds)
    try:
        is_object = isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise Refusal("MALFORMED", "a handover is a JSON object")
    # A server without tokens makes no difference between callers, so the page may have another login, or none.
    return caller.token if gateway.options.credentials_required else None, body

"""Application: the routes of the gateway, and its login."""

import json
import re
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradwire_server.common.errors import Refusal
from gradwire_server.web.access import AccessMiddleware
from gradwire_server.web.bodies import read_body
from gradwire_server.web.counters import RECEIVED, SENT, WebCounters
from gradwire_server.web.gateway import Endpoint, Gateway, HttpRequest
from gradwire_server.web.handovers import HandoverEndpoints
from gradwire_server.web.pages import Pages
from gradwire_server.web.status import http_refusal
from gradwire_server.web.stream import PATH as STREAM_PATH
from gradwire_server.web.stream import StreamEndpoint
from gradwire_server.web.training.endpoints import TrainingEndpoints
from gradwire_server.web.transfers import download, upload
from gradwire_server.web.unary import unary

_TOKEN = re.compile(r"[!-~]{1,4096}")
_MOST_LOGIN_BYTES = 8 << 10


def application(gateway: Gateway) -> Starlette:
    """The ASGI application of a gateway."""

    def at(path: str, method: str, handler: Any, kind: str) -> Route:
        return Route(path, Endpoint(gateway, handler, kind), methods=[method])

    async def http_error(request: Request, error: Exception) -> Response:
        """The answer to an unknown path or method."""
        assert isinstance(error, HTTPException)
        message = "there is nothing at this path" if error.status_code == 404 else "the path has no such method"
        refusal = http_refusal(error.status_code, "NOT_SUPPORTED", message)
        response = gateway.status_of(refusal, request.scope["path"]).response()
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    pages, handovers, training = Pages(), HandoverEndpoints(), TrainingEndpoints(gateway.options.logdir)
    routes: list[BaseRoute] = [
        at("/", "GET", pages, "page"),
        at("/studio/{name}", "GET", pages, "page"),
        at("/healthz", "GET", _health, "health"),
        at("/login", "POST", _login, "login"),
        at("/logout", "POST", _logout, "login"),
        at("/handovers", "POST", handovers.put, "handover"),
        at("/handovers/take", "POST", handovers.take, "handover"),
        at("/training/list", "POST", training.list, "training"),
        at("/training/read", "POST", training.read, "training"),
        at("/training/image", "POST", training.image, "training"),
        at("/uploads/{name}", "PUT", upload, "upload"),
        at("/downloads/{transfer_id}", "GET", download, "download"),
        WebSocketRoute(STREAM_PATH, StreamEndpoint(gateway)),
        at("/{service}/{method}", "POST", unary, "call"),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(CountingMiddleware, counters=gateway.counters),
            Middleware(AccessMiddleware, access=gateway.access, counters=gateway.counters),
        ],
        exception_handlers={HTTPException: http_error},
    )


class CountingMiddleware:
    """Counts the bytes of bodies and of WebSockets' messages."""

    def __init__(self, app: ASGIApp, counters: WebCounters) -> None:
        self._app = app
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket."""
        add = self._counters.add

        async def receive_counted() -> Message:
            message = await receive()
            add(RECEIVED, _size(message))
            return message

        async def send_counted(message: Message) -> None:
            add(SENT, _size(message))
            await send(message)

        await self._app(scope, receive_counted, send_counted)


def _size(message: Message) -> int:
    """Bytes of a body's part, or of a WebSocket's message; a text counts its characters."""
    return len(message.get("body") or message.get("bytes") or message.get("text") or b"")


async def _health(gateway: Gateway, request: HttpRequest) -> None:
    """Whether the server answers; needs no credential, and tells nothing else."""
    serving = await gateway.upstream.serving()
    await request.answer(JSONResponse({"status": "SERVING" if serving else "NOT_SERVING"}, 200 if serving else 503))


async def _login(gateway: Gateway, request: HttpRequest) -> None:
    """Exchange a token for a cookie and a CSRF token."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise http_refusal(415, "MALFORMED", 'a login is {"token": "..."} as application/json')
    if request.scope["state"]["origin"]:
        raise Refusal("PERMISSION_DENIED", "only the gateway's own pages log in; others send the token with each call")
    body = await read_body(request, _MOST_LOGIN_BYTES, gateway.options.body_seconds)
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    token = given.get("token") if isinstance(given, dict) else None
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise Refusal("MALFORMED", 'a login is {"token": "..."} as application/json')
    await gateway.upstream.check(token)  # raises if the server does not know it
    cookie, login = gateway.logins.begin(token, request.cookies.get(gateway.access.cookie, ""))
    response = JSONResponse({"csrfToken": login.csrf, "expiresInSeconds": int(gateway.logins.seconds)})
    gateway.access.set_cookie(response, cookie, gateway.logins.seconds)
    await request.answer(response)


async def _logout(gateway: Gateway, request: HttpRequest) -> None:
    """End the cookie's login, and the streams that came by it."""
    caller = gateway.access.caller(request)
    if caller.login is None:
        raise Refusal("UNAUTHENTICATED", "the request has no cookie of a login")
    gateway.logins.end(caller.login)
    response = JSONResponse({})
    gateway.access.clear_cookie(response)
    await request.answer(response)

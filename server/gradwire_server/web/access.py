"""Access: which hosts and origins are served, whose credential a request has, and the security headers of answers.

Host. A page of another site could name itself like this machine (DNS rebinding). So the Host header must be an IP
address, localhost, or the host of a configured origin.

Origin. A browser names the page's origin. It must be the gateway's own, or a configured one; the latter gets CORS
headers. Requests without an origin come from other programs, or from the gateway's own pages.

Credential. A token in the Authorization header, or a cookie of `logins` with its CSRF token. A WebSocket cannot set
headers in a browser, so it may have both secrets as subprotocols. No secret is read from a URL.
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradwire_server.common.errors import Refusal
from gradwire_server.web.counters import WebCounters
from gradwire_server.web.logins import Login, Logins
from gradwire_server.web.options import GatewayOptions
from gradwire_server.web.status import CallStatus, http_refusal, status_of

CSRF_HEADER = "x-csrf-token"
#: The subprotocol of WebSockets, and the prefixes of subprotocols with a secret.
SUBPROTOCOL = "gradwire.v1"
BEARER_SUBPROTOCOL, CSRF_SUBPROTOCOL = "gradwire.bearer.", "gradwire.csrf."
_TOKEN = re.compile(r"[!-~]{1,4096}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]{1,253})(?::([0-9]{1,5}))?")
_SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# What a page of a configured origin may send and read.
_CORS_REQUEST_HEADERS = (
    "authorization, content-type, content-range, range, connect-protocol-version, connect-timeout-ms, grpc-timeout, "
    "x-grpc-web, x-user-agent, traceparent, gradwire-session"
)
_CORS_RESPONSE_HEADERS = "content-range"
_CORS_SECONDS = "600"


@dataclass(frozen=True)
class Caller:
    """A request's token, and the login that it came by; both None without a credential."""

    token: str | None
    login: Login | None = None


class Access:
    """Says who may call, and as whom."""

    def __init__(self, options: GatewayOptions, logins: Logins) -> None:
        self._options = options
        self._logins = logins
        self._secure = bool(options.tls_cert)
        self._hosts = {urlsplit(origin).hostname or "" for origin in options.origins}
        # Under TLS the browser itself checks with the prefix that no other host or path has set the cookie.
        self.cookie = "__Host-gradwire" if self._secure else "gradwire"

    def check_host(self, headers: Headers) -> None:
        """Check the Host header. Raises Refusal: PERMISSION_DENIED."""
        given = headers.getlist("host")
        found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if found is None or not self._is_own(found[1]):
            raise http_refusal(
                421,
                "PERMISSION_DENIED",
                "the host is not this gateway's: it is an IP address, localhost, or of an origin that --web-origins "
                "or --origin names",
            )

    def _is_own(self, host: str) -> bool:
        name = host.lower()
        if name == "localhost" or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def check_origin(self, headers: Headers) -> str:
        """Check the page's origin; it, if it is another one that is configured. Raises Refusal: PERMISSION_DENIED."""
        given = headers.getlist("origin")
        if not given:
            # Without an origin, a browser's request is of the same origin, or a user's own, or it says cross-site.
            if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                raise _other_origin()
            return ""
        own = f"{'https' if self._secure else 'http'}://{headers['host']}".lower()
        if len(given) == 1 and given[0].lower() == own:
            return ""
        if len(given) == 1 and given[0] in self._options.origins:
            # A proxy that terminates TLS forwards its own name: then it is the same origin.
            return "" if urlsplit(given[0]).netloc.lower() == headers["host"].lower() else given[0]
        raise _other_origin()

    def caller(self, connection: HTTPConnection, protocols: list[str] | None = None) -> Caller:
        """The caller of a request, or of a WebSocket with these subprotocols.

        Raises Refusal: UNAUTHENTICATED, also for a cookie with another login's CSRF token; PERMISSION_DENIED for a
        cookie without one.
        """
        given = connection.headers.getlist("authorization")
        bearer = _secret(protocols, BEARER_SUBPROTOCOL)
        if given or bearer is not None:
            return Caller(_bearer(given) if given else bearer)
        cookie = connection.cookies.get(self.cookie)
        if cookie is not None:
            return self._logged_in(connection, cookie, protocols)
        if self._options.credentials_required:
            raise Refusal(
                "UNAUTHENTICATED",
                "the caller is not authenticated: send 'Authorization: Bearer <token>', or log in by POST /login",
            )
        return Caller(None)

    def _logged_in(self, connection: HTTPConnection, cookie: str, protocols: list[str] | None) -> Caller:
        if connection.scope["state"]["origin"]:
            raise _other_origin()  # a cookie is for the gateway's own pages, whatever the browser sends
        login = self._logins.find(cookie)
        if login is None:
            raise Refusal("UNAUTHENTICATED", "the login has ended; log in again by POST /login")
        shown = connection.headers.get(CSRF_HEADER) or _secret(protocols, CSRF_SUBPROTOCOL) or ""
        if shown and not login.knows(shown):  # another tab logged in with another token: it replaced the cookie
            raise Refusal("UNAUTHENTICATED", "another login has replaced this one; log in again by POST /login")
        if not shown:
            raise Refusal(
                "PERMISSION_DENIED", f"a request with the login's cookie needs its CSRF token, as header {CSRF_HEADER}"
            )
        return Caller(login.token, login)

    def set_cookie(self, response: Response, cookie: str, seconds: float) -> None:
        """Give the browser a login's cookie."""
        response.set_cookie(
            self.cookie, cookie, int(seconds), path="/", secure=self._secure, httponly=True, samesite="strict"
        )

    def clear_cookie(self, response: Response) -> None:
        """Make the browser forget the cookie."""
        response.delete_cookie(self.cookie, path="/", secure=self._secure, httponly=True, samesite="strict")


class AccessMiddleware:
    """Checks host and origin before anything else of a request is looked at, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access, counters: WebCounters) -> None:
        self._app = app
        self._access = access
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers, origin = Headers(scope=scope), ""

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                _add_headers(MutableHeaders(raw=message.setdefault("headers", [])), origin)
            await send(message)

        try:
            self._access.check_host(headers)
            origin = self._access.check_origin(headers)
        except Refusal as refusal:
            self._counters.add_refusal(refusal.reason)
            await refuse(scope, receive, send_with_headers, status_of(refusal))
            return
        scope.setdefault("state", {})["origin"] = origin
        if scope["type"] == "http" and scope["method"] == "OPTIONS" and origin:
            await _preflight()(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


async def refuse(scope: Scope, receive: Receive, send: Send, status: CallStatus) -> None:
    """Answer a request, or a WebSocket before it was accepted, with a status."""
    response = status.response()
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
    await response(scope, receive, send)


def _add_headers(headers: MutableHeaders, origin: str) -> None:
    for name, value in _SECURITY_HEADERS.items():
        headers.setdefault(name, value)
    headers["vary"] = "Origin"
    if origin:
        headers["access-control-allow-origin"] = origin
        headers["access-control-expose-headers"] = _CORS_RESPONSE_HEADERS
        headers["cross-origin-resource-policy"] = "cross-origin"


def _preflight() -> Response:
    allowed = {
        "access-control-allow-methods": "GET, POST, PUT",
        "access-control-allow-headers": _CORS_REQUEST_HEADERS,
        "access-control-max-age": _CORS_SECONDS,
    }
    return Response(status_code=204, headers=allowed)


def _other_origin() -> Refusal:
    return Refusal("PERMISSION_DENIED", "pages of this origin may not call this gateway")


def _bearer(given: list[str]) -> str:
    scheme, _, token = given[0].partition(" ")
    if len(given) != 1 or scheme.lower() != "bearer" or not _TOKEN.fullmatch(token.strip()):
        raise Refusal("UNAUTHENTICATED", "the authorization header is not 'Bearer <token>'")
    return token.strip()


def _secret(protocols: list[str] | None, prefix: str) -> str | None:
    """The secret in a WebSocket's subprotocols; None without one."""
    return next((each.removeprefix(prefix) for each in protocols or () if each.startswith(prefix)), None)

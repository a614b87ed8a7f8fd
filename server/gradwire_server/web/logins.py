"""Logins: exchange a token for a cookie. The cookie is random and means nothing outside this process.

Two secrets belong to a login: the cookie, which scripts cannot read, and the CSRF token, which only scripts of the
gateway's own pages know. A request with the cookie needs both. So neither another origin, whose requests the browser
would send with the cookie, nor another server on the same host, which sees the cookie, can use the login.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_OF_A_TOKEN = 64  # logins of one token at once; the oldest ends


class Login:
    """A login. `ended` is set when it was ended; `expires` is monotonic time in seconds."""

    def __init__(self, key: bytes, token: str, expires: float) -> None:
        self.key = key
        self.token = token
        self.csrf = secrets.token_urlsafe(32)
        self.expires = expires
        self.ended = asyncio.Event()

    def __repr__(self) -> str:
        return "<Login>"

    def knows(self, csrf: str) -> bool:
        """Whether a CSRF token is this login's."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode("utf-8", "replace"))


class Logins:
    """The logins by the hash of their cookies, in order of age."""

    def __init__(self, seconds: float, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._most = most
        self._clock = clock
        self._held: OrderedDict[bytes, Login] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, token: str, given: str = "") -> tuple[str, Login]:
        """Begin a login with a token that the server accepts; the cookie and the login.

        `given` is the browser's cookie. If it is of a login with the same token, that one is renewed: all tabs share
        the cookie, so with a new one the other tabs' CSRF tokens would fit no more.
        """
        self.sweep()
        known = self.find(given)
        if known is not None and hmac.compare_digest(known.token.encode(), token.encode()):
            known.expires = self._clock() + self.seconds
            self._held.move_to_end(known.key)
            return given, known
        same = [login for login in self._held.values() if login.token == token]
        for login in same[: max(0, len(same) - _MOST_OF_A_TOKEN + 1)]:
            self.end(login)
        while len(self._held) >= self._most:
            self.end(next(iter(self._held.values())))
        cookie = secrets.token_urlsafe(32)
        login = Login(_hash(cookie), token, self._clock() + self.seconds)
        self._held[login.key] = login
        return cookie, login

    def find(self, cookie: str) -> Login | None:
        """The login of a cookie; None if it has ended or expired."""
        login = self._held.get(_hash(cookie))
        if login is not None and self._clock() >= login.expires:
            self.end(login)
            return None
        return login

    def left(self, login: Login) -> float:
        """Seconds until a login expires."""
        return max(0.0, login.expires - self._clock())

    def end(self, login: Login) -> None:
        """End a login; its streams end, too."""
        self._held.pop(login.key, None)
        login.ended.set()

    def sweep(self) -> None:
        """End the expired logins."""
        now = self._clock()
        for login in [each for each in self._held.values() if now >= each.expires]:
            self.end(login)


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).digest()

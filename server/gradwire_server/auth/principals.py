"""Principals: identify callers. Every call runs as one, `CALLER`; a session belongs to the principal that opened it.

Without authentication there is one principal, `ANONYMOUS`. Access to its sessions needs only their ids.
"""

import re
import time
from contextvars import ContextVar
from datetime import datetime, timezone

from gradwire_server.common.errors import Refusal

ADMIN = "admin"
SCOPES = frozenset((ADMIN,))
NAME = re.compile(r"[A-Za-z0-9._@:/+-]{1,128}")
# One message for all errors of a credential, so it reveals nothing about valid ones.
UNKNOWN = "the caller is not authenticated: a call needs a valid token, as metadata 'authorization: Bearer <token>'"


class Principal:
    """An authenticated caller. `over` once its credential expired or was revoked, also during a call."""

    __slots__ = ("__weakref__", "expires", "name", "revoked", "scopes")

    def __init__(self, name: str, scopes: frozenset[str] = frozenset(), expires: datetime | None = None) -> None:
        self.name = name
        self.revoked = False
        self.allow(scopes, expires)

    def __repr__(self) -> str:
        return f"<Principal {self.name or 'anonymous'}>"

    def allow(self, scopes: frozenset[str], expires: datetime | None) -> None:
        """Set the credential's scopes and expiry; `expires` of None means never."""
        self.scopes = scopes
        self.expires = None if expires is None else expires.timestamp()

    @property
    def over(self) -> bool:
        """Whether the credential expired or was revoked."""
        return self.revoked or (self.expires is not None and time.time() >= self.expires)

    def check(self) -> None:
        """Check that the credential still holds. Raises Refusal: UNAUTHENTICATED."""
        if not self.over:
            return
        if self.revoked or self.expires is None:
            raise Refusal("UNAUTHENTICATED", "the token that the call came with was revoked")
        expired = datetime.fromtimestamp(self.expires, timezone.utc).isoformat()
        raise Refusal("UNAUTHENTICATED", f"the token has expired at {expired}")

    def require(self, scope: str) -> None:
        """Check that the principal has a scope. Raises Refusal: PERMISSION_DENIED."""
        if scope not in self.scopes:
            raise Refusal(
                "PERMISSION_DENIED", f"this needs the scope {scope!r}, which the caller does not have", scope=scope
            )


ANONYMOUS = Principal("")
CALLER: ContextVar[Principal] = ContextVar("gradwire_caller", default=ANONYMOUS)

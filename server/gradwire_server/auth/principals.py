"""Principals: who calls. Every call runs as one, `CALLER`; a session belongs to the one that opened it.

Without authentication there is one principal, `ANONYMOUS`, whose sessions are as secret as their ids.
"""

import re
import time
from contextvars import ContextVar
from datetime import datetime, timezone

from gradwire_server.common.errors import Refusal

ADMIN = "admin"
SCOPES = frozenset((ADMIN,))
NAME = re.compile(r"[A-Za-z0-9._@:/+-]{1,128}")
# One sentence for whatever is wrong with a credential, so that a stranger learns nothing of those there are.
UNKNOWN = "who is calling is not known: a call needs a valid token, as metadata 'authorization: Bearer <token>'"


class Principal:
    """Somebody who may call. `over` once the credential has expired or was taken away, also while a call lasts."""

    __slots__ = ("__weakref__", "expires", "name", "revoked", "scopes")

    def __init__(self, name: str, scopes: frozenset[str] = frozenset(), expires: datetime | None = None) -> None:
        self.name = name
        self.revoked = False
        self.allow(scopes, expires)

    def __repr__(self) -> str:
        return f"<Principal {self.name or 'anonymous'}>"

    def allow(self, scopes: frozenset[str], expires: datetime | None) -> None:
        """What the credential allows, and until when."""
        self.scopes = scopes
        self.expires = None if expires is None else expires.timestamp()

    @property
    def over(self) -> bool:
        """Whether the credential no longer holds."""
        return self.revoked or (self.expires is not None and time.time() >= self.expires)

    def check(self) -> None:
        """Raises Refusal, UNAUTHENTICATED, if the credential no longer holds."""
        if not self.over:
            return
        if self.revoked or self.expires is None:
            raise Refusal("UNAUTHENTICATED", "the token that the call came with was revoked")
        told = datetime.fromtimestamp(self.expires, timezone.utc).isoformat()
        raise Refusal("UNAUTHENTICATED", f"the token has expired at {told}")

    def require(self, scope: str) -> None:
        """Raises Refusal, PERMISSION_DENIED, unless it has the scope."""
        if scope not in self.scopes:
            raise Refusal("PERMISSION_DENIED", f"this needs the scope {scope!r}, which the caller has not", scope=scope)


ANONYMOUS = Principal("")
CALLER: ContextVar[Principal] = ContextVar("gradwire_caller", default=ANONYMOUS)

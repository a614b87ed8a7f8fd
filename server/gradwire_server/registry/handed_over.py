"""Sessions that a server has given to others as it ends: their clients are sent there."""

from gradwire_server.common.errors import Refusal
from gradwire_server.storage import ownership


class HandedOver:
    """Where each session went, by its id. Empty until the server ends; then it takes no session back."""

    def __init__(self) -> None:
        self._endpoints: dict[str, str | None] = {}  # None while no other server can have the session
        self._begun = False

    def begin(self) -> None:
        """From now on no session is restored or taken over here."""
        self._begun = True

    def leaving(self, session_id: str) -> None:
        """Note that a session is being given up; no other server can have it yet."""
        self._endpoints[session_id] = None

    def left(self, session_id: str, endpoint: str) -> None:
        """Note that another server may have the session; `endpoint` is "" if none was named."""
        self._endpoints[session_id] = endpoint

    def refusal(self, session_id: str | None) -> Refusal:
        """Why calls of a session are refused: SESSION_MOVED, or UNAVAILABLE."""
        endpoint = self._endpoints.get(session_id or "")
        if endpoint is not None:
            return ownership.moved_to(endpoint)
        return Refusal("UNAVAILABLE", "the server is shutting down")

    def check(self, session_id: str) -> None:
        """Check that a session may be restored here. Raises Refusal: SESSION_MOVED, UNAVAILABLE."""
        if self._begun:
            raise self.refusal(session_id)

"""Sessions that a server has given to others as it ends: their clients are sent there."""

from gradwire_server.common.errors import Refusal
from gradwire_server.storage import ownership


class HandedOver:
    """By session id, the refusal of calls. Empty until the server ends; then it takes no session back."""

    def __init__(self) -> None:
        self._refusals: dict[str, Refusal] = {}
        self._begun = False

    def begin(self) -> None:
        """From now on no session is restored or taken over here."""
        self._begun = True

    def leaving(self, session_id: str) -> None:
        """Note that a session is being given up; no other server can have it yet."""
        self._refusals[session_id] = Refusal("UNAVAILABLE", "the session is being handed over; try again")

    def left(self, session_id: str, endpoint: str) -> None:
        """Note that another server may have the session; `endpoint` is "" if none was named."""
        self._refusals[session_id] = ownership.moved_to(endpoint)

    def refusal(self, session_id: str | None) -> Refusal | None:
        """Why calls of a session are refused; None if it was not given up."""
        return self._refusals.get(session_id or "")

    def check(self, session_id: str) -> None:
        """Check that a session may be restored here. Raises Refusal: SESSION_MOVED, UNAVAILABLE."""
        if self._begun:
            raise self.refusal(session_id) or Refusal("UNAVAILABLE", "the server is shutting down")

"""Group channel: carries a worker's messages about groups of sessions to the front and back (registry/groups.py).

A request has a token, by which its answer finds the future. Answers come as calls of the method "Group", on the compute
thread. So a session that waits for other ranks continues without a change of threads.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.session.session import Session

#: Sends the bytes to the front, for a session.
Send = Callable[[int, bytes], None]


class GroupChannel:
    """The channel of one worker. Only the compute thread uses it."""

    def __init__(self, send: Send, sessions: Mapping[int, Session]) -> None:
        self._send = send
        self._sessions = sessions
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._tokens = 0

    def ask(self, session: int, do: str, **fields: Any) -> Future[dict[str, Any]]:
        """Send a request; a future of its answer, which may raise Refusal."""
        self._tokens = token = self._tokens + 1
        future: Future[dict[str, Any]] = Future()
        self._asked[token] = future
        self._send(session, json.dumps({"do": do, "token": token, **fields}).encode())
        return future

    def tell(self, session: int, do: str, **fields: Any) -> None:
        """Send a message without an answer."""
        self._send(session, json.dumps({"do": do, **fields}).encode())

    def receive(self, raw: bytes) -> None:
        """Take a message of the front: an answer, the news that a group broke, or another rank's values."""
        message = json.loads(raw)
        refusal = None if "refusal" not in message else refusal_from(message["refusal"])
        if "token" in message:
            future = self._asked.pop(message["token"], None)
            if future is None or future.done():
                return
            if refusal is None:
                future.set_result(message["answer"])
            else:
                future.set_exception(refusal)
            return
        session = self._sessions.get(message["session"])
        if refusal is not None:
            if session is not None:
                session.groups.mark_broken(message["group"], refusal)
            return
        if session is None:
            refused: Refusal | None = Refusal("GROUP_BROKEN", "the receiver's session has ended")
        else:
            refused = session.groups.take(message["group"], message["message"])
        fields = {} if refused is None else {"refusal": [refused.reason, refused.message, refused.metadata]}
        self.tell(message["session"], "took", message=message["number"], **fields)


def refusal_from(fields: Any) -> Refusal:
    """The refusal of a message: reason, text, metadata."""
    refusal = Refusal(fields[0], fields[1])
    refusal.metadata = dict(fields[2])
    return refusal

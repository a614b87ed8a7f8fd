"""Timings: measures the server's time per phase (gradwire.timings)."""

from __future__ import annotations

from gradwire._session.sessions import current_session
from gradwire.v1 import service_pb2


class timings:
    """Sum the server's times of the block's batches, in seconds.

    `queue` is the time before batches began. `compute` is their computing time, without the turns of other sessions.
    `serialize` is the time to write their answers. `batches` counts them. The sums cover all threads of the current
    session. The block begins and ends with a `sync`, so earlier commands do not count and the sums are complete. Raises
    GradwireError as `sync` does.
    """

    wants_ops = False

    def __init__(self) -> None:
        self.queue = self.compute = self.serialize = 0.0
        self.batches = 0

    def __repr__(self) -> str:
        parts = (f"{name}={getattr(self, name) * 1e3:.3f} ms" for name in ("queue", "compute", "serialize"))
        return f"<gradwire.timings {', '.join(parts)}, batches={self.batches}>"

    def add(self, response: service_pb2.RunResponse) -> None:
        """Add the timings of an answered batch."""
        timings = response.timings
        self.queue += timings.queue_seconds
        self.compute += timings.compute_seconds
        self.serialize += timings.serialize_seconds
        self.batches += 1

    def __enter__(self) -> timings:
        self._session = current_session()
        self._session.sync()
        self._session.timed = (*self._session.timed, self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        session = self._session
        try:
            if kind is None:
                session.sync()
        finally:
            session.timed = tuple(each for each in session.timed if each is not self)

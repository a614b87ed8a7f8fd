"""The response cache: answers a repeated request without applying it again.

`ResponseCache` keeps unary responses by request_id, the newest up to a cap. `BatchResponses` keeps a writer's results
by seq until the client acknowledges them.
"""

import hashlib
from collections import OrderedDict, deque

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal

_QUOTED = 100  # characters of an id in a message


class ResponseCache:
    """Responses by request_id, the oldest forgotten first. Bounded in bytes and in number."""

    def __init__(self, max_bytes: int, max_count: int) -> None:
        self.max_bytes = max_bytes
        self.max_count = max_count
        self.bytes = 0
        self.held: OrderedDict[str, tuple[str, bytes, bytes]] = OrderedDict()

    def find(self, request_id: str, method: str, request: bytes) -> bytes | None:
        """Find the response to a repeated request. Raises Refusal: ARGUMENT_VALUE if another request had the id."""
        found = self.held.get(request_id)
        if found is None:
            return None
        if found[:2] != (method, _digest(request)):
            other = "another" if found[0] == method else "a"
            raise Refusal(
                "ARGUMENT_VALUE",
                f"request_id {request_id[:_QUOTED]!r} was used for {other} {found[0]} already",
                argument="request_id",
            )
        return found[2]

    def keep(self, request_id: str, method: str, request: bytes, response: bytes) -> None:
        """Remember a response."""
        self.put(request_id, method, _digest(request), response)

    def put(self, request_id: str, method: str, digest: bytes, response: bytes) -> None:
        """Remember the response to a request, given the request's digest."""
        self.held[request_id] = (method, digest, response)
        self.bytes += len(response) + len(request_id)
        while self.bytes > self.max_bytes or len(self.held) > self.max_count:
            old, (_, _, forgotten) = self.held.popitem(last=False)
            self.bytes -= len(forgotten) + len(old)

    def clear(self) -> None:
        """Forget all."""
        self.held.clear()
        self.bytes = 0


class CachedBytes:
    """Bytes of cached results of all writers of a session."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class BatchResponses:
    """One writer's responses, one per batch, from seq `start`. Bounded in number, and in bytes over all writers."""

    def __init__(self, max_bytes: int, max_count: int, all_writers: CachedBytes | None = None) -> None:
        self.max_bytes = max_bytes
        self.max_count = max_count
        self.all_writers = all_writers or CachedBytes()
        self.start = 1
        self.held: deque[tuple[int, bytes]] = deque()  # the batch's last seq, its serialized results

    def keep(self, last: int, response: bytes) -> None:
        """Remember the response to the batch that ends with seq `last`."""
        self.held.append((last, response))
        self.all_writers.bytes += len(response)
        while self.held and (self.all_writers.bytes > self.max_bytes or len(self.held) > self.max_count):
            self._forget()

    def acknowledge(self, seq: int) -> None:
        """Forget batches that end with `seq` or before."""
        while self.held and self.held[0][0] <= seq:
            self._forget()

    def results(self, first: int, last: int) -> list[service_pb2.Result]:
        """Results of the commands from `first` to `last`. Raises Refusal: RESULT_FORGOTTEN."""
        if first < self.start:
            raise Refusal(
                "RESULT_FORGOTTEN",
                f"commands from {first} on were applied, but answers before {self.start} are no longer held",
                first_seq=first,
                oldest_seq=self.start,
            )
        found: list[service_pb2.Result] = []
        for end, response in self.held:
            if end >= first:
                results = service_pb2.RunResponse.FromString(response).results
                found.extend(result for result in results if first <= result.seq <= last)
        return found

    def _forget(self) -> None:
        last, response = self.held.popleft()
        self.all_writers.bytes -= len(response)
        self.start = last + 1


def _digest(request: bytes) -> bytes:
    return hashlib.blake2b(request, digest_size=16).digest()

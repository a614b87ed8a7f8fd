"""Sizes of a download's messages: they shrink while calls break before one has arrived.

A message arrives as a whole or not at all. On connections that break before a whole chunk, there would be no progress.
"""

from collections import OrderedDict
from collections.abc import Iterator

from gradwire.v1 import service_pb2

_LEAST = 4 << 10  # bytes; smaller messages cost more than they save
_MOST_TRANSFERS = 1024  # remembered downloads, the oldest is forgotten first


class DownloadParts:
    """Remembers where the last call of each download began, and how large its messages were.

    A call that ended well is remembered, too: its last bytes may have been lost on their way.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._begun: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def begin(self, session_id: str, transfer_id: str, offset: int) -> int:
        """Note a call. Returns the most payload bytes of its messages: half of the last call's without progress."""
        size = self._chunk_bytes
        if (last := self._begun.pop((session_id, transfer_id), None)) is not None:
            least = min(_LEAST, self._chunk_bytes)
            size = min(2 * last[1], size) if offset > last[0] else max(last[1] // 2, least)
        self._begun[session_id, transfer_id] = offset, size
        if len(self._begun) > _MOST_TRANSFERS:
            self._begun.popitem(last=False)
        return size


def split(message: bytes, most: int) -> Iterator[bytes]:
    """A DownloadResponse as messages of at most `most` payload bytes; as it is if it has no more."""
    if len(message) <= most:
        yield message
        return
    whole = service_pb2.DownloadResponse.FromString(message)
    for begin in range(0, len(whole.data), most):
        part = service_pb2.DownloadResponse(offset=whole.offset + begin, data=whole.data[begin : begin + most])
        yield part.SerializeToString()

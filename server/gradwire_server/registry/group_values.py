"""Group values: copies ranges of ranks' memory from server to server.

A transfer is a connection on which one server asks and the other one answers with bytes. It sends them from the memory
of its rank, and the asking server writes them to its own file. At most a few pieces are in either process's memory.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_files import REGION, location, opened
from gradwire_server.registry.group_homes import Address
from gradwire_server.registry.peer_links import TRANSFER, Peers, encoded, read_message

_PIECE = 1 << 20  # bytes
_MOST_TRANSFERS = 4  # connections to one server at once
_WAIT_SECONDS = 10.0  # for a transfer, and a second more for each of _LEAST_RATE bytes
_LEAST_RATE = 1 << 20


class Spread:
    """A group of several servers. `places` and `files` are those of the ranks; `own` is this server's address."""

    def __init__(self, places: Sequence[Address], own: Address, files: Sequence[Sequence[int]]) -> None:
        """Raises OSError if no file can be opened."""
        self.places = places
        self.own = own
        self.files = files
        self.tasks: dict[tuple[int, ...], asyncio.Task[None]] = {}  # fetches, by collective and range
        self.opened: dict[int, int] = {}  # memory of this server's ranks
        self.copy = os.memfd_create("gradwire-ranks", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.copy, len(places) * 2 * REGION)  # a file with holes
            for rank, place in enumerate(places):
                if place == own:
                    self.opened[rank] = opened(files[rank])
        except OSError:
            self.close()
            raise

    def local_files(self) -> list[list[int]]:
        """Where this server's workers find the ranks' memory."""
        copy = location(self.copy)
        return [
            list(self.files[rank]) if place == self.own else [*copy, rank * 2 * REGION]
            for rank, place in enumerate(self.places)
        ]

    def nodes(self) -> list[int]:
        """The number of each rank's server."""
        numbers: dict[Address, int] = {}
        return [numbers.setdefault(place, len(numbers)) for place in self.places]

    def close(self) -> None:
        """Close the files, and stop what is fetched."""
        for task in self.tasks.values():
            task.cancel()
        self.tasks.clear()
        for fd in (self.copy, *self.opened.values()):
            os.close(fd)
        self.copy, self.opened = -1, {}


class Transfers:
    """The transfers of one server."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.spreads: dict[int, Spread] = {}  # by group
        self._idle: dict[Address, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {}
        self._open: dict[Address, asyncio.Semaphore] = {}
        self._offered: dict[tuple[object, int], list[int]] = {}  # files of messages, by session and token

    def close(self) -> None:
        """Close the connections that no transfer uses."""
        for idle in self._idle.values():
            for _, writer in idle:
                writer.transport.abort()
        self._idle.clear()

    # What this server gives.

    def offer(self, session: object, token: int, file: list[int]) -> None:
        """Let other servers fetch a message that a session sends."""
        self._offered[session, token] = file

    def forget(self, session: object, token: int) -> None:
        """Note that a session's request was answered."""
        self._offered.pop((session, token), None)

    def withdraw(self, session: object) -> None:
        """Note that a session ended."""
        for key in [key for key in self._offered if key[0] is session]:
            del self._offered[key]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer another server's requests. Raises OSError when the connection ends; ValueError, KeyError."""
        while True:
            asked = await read_message(reader)
            begin, count = int(asked["begin"]), int(asked["count"])
            try:
                fd = os.dup(self._held(asked)) if "group" in asked else self._message(asked["file"])
            except (Refusal, OSError) as error:
                writer.write(encoded({"refusal": str(error)}))
                continue
            try:
                writer.write(encoded({"count": count}))
                await writer.drain()
                await _send(writer, fd, begin, count)
            finally:
                os.close(fd)

    def _held(self, asked: dict[str, Any]) -> int:
        spread = self.spreads.get(asked["group"])
        fd = None if spread is None else spread.opened.get(asked["rank"])
        if fd is None:
            raise Refusal("GROUP_BROKEN", f"rank {asked['rank']} has left the group")
        return fd

    def _message(self, file: list[int]) -> int:
        if file not in self._offered.values():
            raise Refusal("GROUP_BROKEN", "the message's sender is gone")
        return opened(file)

    # What this server takes.

    async def fetch(
        self, group: int, spread: Spread, meeting: int, turn: int, parts: Sequence[tuple[int, int, int]]
    ) -> None:
        """Copy bytes of ranks for one collective. Ranks of this server that need the same share them.

        Raises OSError, Refusal.
        """
        for key in [key for key in spread.tasks if key[0] < meeting - 1]:
            del spread.tasks[key]
        wanted = []
        for rank, begin, end in parts:
            key = meeting, rank, begin, end
            if key not in spread.tasks:
                asked = {"group": group, "rank": rank, "begin": turn * REGION + begin, "count": end - begin}
                target = rank * 2 * REGION + turn * REGION + begin
                copying = self._copy(spread.places[rank], asked, spread.copy, target)
                spread.tasks[key] = asyncio.create_task(copying)
            wanted.append(asyncio.shield(spread.tasks[key]))
        done = await asyncio.gather(*wanted, return_exceptions=True)
        for failed in done:
            if failed is not None:
                raise failed if isinstance(failed, Exception) else ConnectionError("the group has ended")

    async def pull(self, place: Address, file: list[int], size: int) -> int:
        """Copy a message; its file's descriptor. Raises OSError, Refusal."""
        fd = os.memfd_create("gradwire-message", os.MFD_CLOEXEC)
        try:
            await self._copy(place, {"file": file, "begin": 0, "count": size}, fd, 0)
        except BaseException:
            os.close(fd)
            raise
        return fd

    async def _copy(self, place: Address, asked: dict[str, Any], fd: int, target: int) -> None:
        slots = self._open.setdefault(place, asyncio.Semaphore(_MOST_TRANSFERS))
        limit = _WAIT_SECONDS + asked["count"] / _LEAST_RATE
        async with slots:
            try:
                await asyncio.wait_for(self._receive(place, asked, fd, target), limit)
            except asyncio.TimeoutError:
                raise ConnectionError(f"server {place.endpoint} sent too little within {limit:.0f} s") from None

    async def _receive(self, place: Address, asked: dict[str, Any], fd: int, target: int) -> None:
        idle = self._idle.setdefault(place, [])
        reader, writer = idle.pop() if idle else await self._peers.connect(place, TRANSFER)
        try:
            writer.write(encoded(asked))
            answer = await read_message(reader)
            if "refusal" in answer:
                raise Refusal("GROUP_BROKEN", answer["refusal"])
            left = asked["count"]
            while left:
                piece = await reader.read(min(left, _PIECE))
                if not piece:
                    raise ConnectionResetError(f"server {place.endpoint} ended the connection")
                os.pwrite(fd, piece, target)
                target += len(piece)
                left -= len(piece)
        except BaseException:
            writer.transport.abort()
            raise
        idle.append((reader, writer))


async def _send(writer: asyncio.StreamWriter, fd: int, begin: int, count: int) -> None:
    """Send a file's bytes: by the kernel alone, unless they are encrypted. Raises OSError."""
    if writer.get_extra_info("ssl_object") is None:
        with open(fd, "rb", closefd=False, buffering=0) as file:
            sent = await asyncio.get_running_loop().sendfile(writer.transport, file, begin, count)
        if sent != count:
            raise ConnectionAbortedError("the memory ends before the range")
        return
    while count:
        piece = os.pread(fd, min(count, _PIECE), begin)
        if not piece:
            raise ConnectionAbortedError("the memory ends before the range")
        writer.write(piece)
        await writer.drain()
        begin += len(piece)
        count -= len(piece)

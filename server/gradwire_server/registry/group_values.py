"""Group values: copies ranges of ranks' memory from server to server.

A transfer is a connection on which one server asks by a line, and the other one answers by a number and bytes. It sends
them from the memory of its rank, and the asking server writes them to its own file. A transfer holds one piece of them
in memory. Threads receive, since a large range would wake the event loop hundreds of times.
"""

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_files import REGION, location, opened
from gradwire_server.registry.group_homes import Address
from gradwire_server.registry.peer_links import TRANSFER, Peers, encoded, read_message

_PIECE = 1 << 20  # bytes
_SMALL = 1 << 16  # bytes that are not worth a call of sendfile
_MOST_TRANSFERS = 32  # at once
_MOST_OF_A_PEER = 4  # of them: slow servers do not hold all threads
_SIZE = struct.Struct("!q")  # bytes of values that follow or, if negative, of the reason why there are none


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
        self._threads = ThreadPoolExecutor(_MOST_TRANSFERS, "gradwire-transfers")
        self._idle: dict[Address, list[socket.socket]] = {}
        self._idle_lock = threading.Lock()
        self._turns: dict[Address, asyncio.Semaphore] = {}
        self._open: set[socket.socket] = set()
        self._offered: dict[tuple[object, int], list[int]] = {}  # files of messages, by session and token

    def close(self) -> None:
        """Close all connections; transfers fail."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):  # the other side has closed it
                connection.shutdown(socket.SHUT_RDWR)  # its thread ends; closing would not wake it
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._idle.clear()

    def close_unused(self) -> None:
        """Close the connections to servers that no group has."""
        used = {place for spread in self.spreads.values() for place in spread.places}
        with self._idle_lock:
            unused = [each for place in self._idle.keys() - used for each in self._idle.pop(place)]
        for place in self._turns.keys() - used:
            del self._turns[place]
        for connection in unused:
            self._open.discard(connection)
            connection.close()

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
                why = str(error).encode()
                writer.write(_SIZE.pack(-len(why)) + why)
                continue
            try:
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
        own = os.dup(fd)  # the thread's: the group may end meanwhile
        turns = self._turns.setdefault(place, asyncio.Semaphore(_MOST_OF_A_PEER))
        try:
            await turns.acquire()
        except BaseException:
            os.close(own)
            raise
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:  # by its thread, or cancelled before a thread began
            os.close(own)
            with contextlib.suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(turns.release)

        try:
            receiving = self._threads.submit(self._receive, place, asked, own, target)
        except RuntimeError:
            ended(None)
            raise ConnectionAbortedError("the server ends") from None
        receiving.add_done_callback(ended)
        await asyncio.wrap_future(receiving)

    def _receive(self, place: Address, asked: dict[str, Any], fd: int, target: int) -> None:
        """Ask for a range, and write it to a file at `target`. Raises OSError, Refusal."""
        piece = memoryview(bytearray(min(_PIECE, max(asked["count"], 1 << 10))))
        connection = self._ask_idle(place, asked, piece[: _SIZE.size])
        try:
            if connection is None:
                connection = self._peers.connect_blocking(place, TRANSFER)
                self._open.add(connection)
                connection.sendall(encoded(asked))
                _fill(connection, piece[: _SIZE.size])
            left = _SIZE.unpack(piece[: _SIZE.size])[0]
            if left < 0:
                why = memoryview(bytearray(min(-left, _PIECE)))
                _fill(connection, why)
                raise Refusal("GROUP_BROKEN", bytes(why).decode())
            if left != asked["count"]:
                raise ConnectionError(f"the other server sends {left} bytes, but {asked['count']} were asked for")
            while left:
                part = piece[: min(left, _PIECE)]
                _fill(connection, part)
                os.pwrite(fd, part, target)
                target += len(part)
                left -= len(part)
        except BaseException:
            if connection is not None:
                self._open.discard(connection)
                connection.close()
            raise
        with self._idle_lock:
            self._idle.setdefault(place, []).append(connection)

    def _ask_idle(self, place: Address, asked: dict[str, Any], answer: memoryview) -> socket.socket | None:
        """Ask on an idle connection, and receive the answer's first bytes; None if there is none that still works.

        The other server, or what stands between, may have closed it meanwhile. A range may be asked for again.
        """
        while True:
            with self._idle_lock:
                idle = self._idle.get(place)
                connection = idle.pop() if idle else None
            if connection is None:
                return None
            try:
                connection.sendall(encoded(asked))
                _fill(connection, answer)
                return connection
            except BaseException as error:
                self._open.discard(connection)
                connection.close()
                if not isinstance(error, (ConnectionResetError, BrokenPipeError)):
                    raise


def _fill(connection: socket.socket, room: memoryview) -> None:
    """Receive as many bytes as there is room. Raises OSError."""
    encrypted = hasattr(connection, "cipher")
    while room:
        try:
            count = connection.recv_into(room, 0, 0 if encrypted else socket.MSG_WAITALL)
        except (BlockingIOError, TimeoutError):
            raise ConnectionError("the other server sends nothing") from None
        if not count:
            raise ConnectionResetError("the other server ended the connection")
        room = room[count:]


async def _send(writer: asyncio.StreamWriter, fd: int, begin: int, count: int) -> None:
    """Send a number and so many of a file's bytes: by the kernel alone, if many and not encrypted. Raises OSError."""
    writer.write(_SIZE.pack(count))
    if count > _SMALL and writer.get_extra_info("ssl_object") is None:
        await writer.drain()
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

"""Placement: asks which server of a cluster is to open a new session, and reports this server's load.

The process that started this server answers on a Unix socket (gradwire_server.cluster). Both sides write lines of
JSON. The server writes {"load": {…}, "usage": {…}}, {"place": 7, "device_type": "cuda"} and {"nodes": 8}. The other
side answers {"elsewhere": {…}}, {"place": 7, "endpoint": "host:port"} and {"nodes": 8, "found": {…}}. "usage" and
"elsewhere" are what principals hold (cluster_quotas.py). Without an answer within a second, the session is opened here.
For a session of a gang, "place" comes with "gang" and "size", and the answer may have "refused", the reason.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

#: Between reports. A principal's usage is known elsewhere after two of them, so within a second.
_LOAD_SECONDS = 0.4
_ANSWER_SECONDS = 1.0
_RECONNECT_SECONDS = 0.5
_MOST_UNREAD = 1 << 16  # bytes that the other side has not read, from which on it is not asked

log = logging.getLogger("gradwire.server")


Totals: TypeAlias = Mapping[str, Sequence[Any]]  # by principal


class Quotas(Protocol):
    """What principals hold here and at other servers (cluster_quotas.py)."""

    def here(self) -> Totals:
        """What principals' sessions hold at this server."""

    def take(self, elsewhere: Totals) -> None:
        """Count what they hold at other servers."""


class GangRefused(Exception):
    """The cluster has no room for all sessions of a gang."""


class PlacementClient:
    """The connection to the process that knows the cluster's servers."""

    def __init__(self, path: str, endpoint: str) -> None:
        self.path = path
        self.endpoint = endpoint
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._load: Callable[[], dict[str, Any]]
        self._quotas: Quotas | None = None

    def start(self, load: Callable[[], dict[str, Any]], quotas: Quotas | None = None) -> None:
        """Connect, and report the load and what principals hold from now on."""
        self._load, self._quotas = load, quotas
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def report(self) -> None:
        """Report at once, because something has changed that others must know soon."""
        if self._writer is not None:
            self._writer.write(self._line())

    async def choose(self, device_type: str = "", gang: str = "", size: int = 0) -> str:
        """Endpoint of the server for a new session that needs such a device, or for one of a gang of `size`.

        "" for this one, also if nothing answers, or no server has such a device. Raises GangRefused.
        """
        more: dict[str, Any] = {"gang": gang, "size": size} if gang else {}
        answer = await self._ask("place", device_type=device_type, **more)
        if answer is not None and answer.get("refused"):
            raise GangRefused(answer["refused"])
        endpoint = "" if answer is None else str(answer["endpoint"])
        return "" if endpoint == self.endpoint else endpoint

    async def nodes(self) -> dict[str, dict[str, Any]]:
        """What each node of the cluster last reported, by endpoint; empty if nothing answers."""
        answer = await self._ask("nodes")
        return {} if answer is None else answer["found"]

    async def _ask(self, what: str, **more: Any) -> dict[str, Any] | None:
        """The other side's answer; None without a connection, or without an answer in time."""
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            return None
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            writer.write(_line({what: number, **more}))
            return await asyncio.wait_for(answer, _ANSWER_SECONDS)
        except (asyncio.TimeoutError, OSError) as error:
            log.warning("the cluster does not answer: %r", error)
            return None
        finally:
            del self._waiting[number]

    async def _run(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self.path)
            except OSError:
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            self._writer = writer
            reporting = asyncio.create_task(self._report(writer))
            try:
                while line := await reader.readline():
                    answer = json.loads(line)
                    if "elsewhere" in answer and self._quotas is not None:
                        self._quotas.take(answer["elsewhere"])
                        continue
                    waiting = self._waiting.get(answer["nodes" if "nodes" in answer else "place"])
                    if waiting is not None and not waiting.done():
                        waiting.set_result(answer)
            except (OSError, ValueError, KeyError) as error:
                log.warning("the cluster's answer cannot be read: %r", error)
            finally:
                self._writer = None
                reporting.cancel()
                writer.close()
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _report(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the reading side ends the connection
            while True:
                writer.write(self._line())
                await writer.drain()
                await asyncio.sleep(_LOAD_SECONDS)

    def _line(self) -> bytes:
        usage = self._quotas.here() if self._quotas is not None else {}
        return _line({"load": self._load(), **({"usage": usage} if usage else {})})


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"

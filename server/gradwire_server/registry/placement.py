"""Placement: asks which server of a cluster is to open a new session, and reports this server's load.

The process that started this server answers on a Unix socket (gradwire_server.cluster). Both sides write lines of
JSON: the server {"load": {…}}, {"place": 7} and {"nodes": 8}, the other side {"place": 7, "endpoint": "host:port"} and
{"nodes": 8, "found": {…}}. Without an answer within a second, the session is opened here.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_LOAD_SECONDS = 0.5  # between reports
_ANSWER_SECONDS = 1.0
_RECONNECT_SECONDS = 0.5

log = logging.getLogger("gradwire.server")


class PlacementClient:
    """The connection to the process that knows the cluster's servers."""

    def __init__(self, path: str, endpoint: str) -> None:
        self.path = path
        self.endpoint = endpoint
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, load: Callable[[], dict[str, Any]]) -> None:
        """Connect, and report the load from now on."""
        self._task = asyncio.create_task(self._run(load))

    async def stop(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def choose(self) -> str:
        """Endpoint of the server for a new session; "" for this one, also if nothing answers."""
        answer = await self._ask("place")
        endpoint = "" if answer is None else str(answer["endpoint"])
        return "" if endpoint == self.endpoint else endpoint

    async def nodes(self) -> dict[str, dict[str, Any]]:
        """What each node of the cluster last reported, by endpoint; empty if nothing answers."""
        answer = await self._ask("nodes")
        return {} if answer is None else answer["found"]

    async def _ask(self, what: str) -> dict[str, Any] | None:
        """The other side's answer; None without a connection, or without an answer in time."""
        writer = self._writer
        if writer is None:
            return None
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            writer.write(_line({what: number}))
            return await asyncio.wait_for(answer, _ANSWER_SECONDS)
        except (asyncio.TimeoutError, OSError) as error:
            log.warning("the cluster does not answer: %r", error)
            return None
        finally:
            del self._waiting[number]

    async def _run(self, load: Callable[[], dict[str, Any]]) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self.path)
            except OSError:
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            self._writer = writer
            reporting = asyncio.create_task(_report(writer, load))
            try:
                while line := await reader.readline():
                    answer = json.loads(line)
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


async def _report(writer: asyncio.StreamWriter, load: Callable[[], dict[str, Any]]) -> None:
    with suppress(OSError):  # the reading side ends the connection
        while True:
            writer.write(_line({"load": load()}))
            await writer.drain()
            await asyncio.sleep(_LOAD_SECONDS)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"

"""The web gateway of `gradwire serve --web`: a child process, so browsers' traffic never delays the front.

The server listens for it, so an address in use is an error at the start, and connections wait while a gateway that
crashed is started again. The gateway reaches the server by a Unix socket in a folder of this user alone.
"""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from gradwire_server.web.counters import WebCounters
from gradwire_server.web.options import GatewayOptions

_RESTART_SECONDS = 1.0
_END_SECONDS = 10.0

log = logging.getLogger("gradwire.server")


class GatewayProcess:
    """The child process, from `start` to `stop`."""

    def __init__(self, options: GatewayOptions, listening: socket.socket) -> None:
        """Make the folder of the socket. Raises OSError."""
        self._folder = TemporaryDirectory(prefix="gradwire-web-")  # of this user alone
        #: The Unix socket at which the server is to listen for the gateway.
        self.socket_path = str(Path(self._folder.name, "socket"))
        self._options = replace(options, server=f"unix:{self.socket_path}")
        self._listening = listening
        self._shared = WebCounters.file()
        #: What the gateway counts, over all its starts.
        self.counters = WebCounters(self._shared)
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it, and start it again whenever it ends."""
        self._process = await self._spawn()
        self._supervisor = asyncio.create_task(self._supervise())

    async def _spawn(self) -> asyncio.subprocess.Process:
        number = self._listening.fileno()
        line = [sys.executable, "-m", "gradwire_server.web", self._options.to_json(), str(number), str(self._shared)]
        passed = (number, self._shared)
        return await asyncio.create_subprocess_exec(*line, stdin=subprocess.PIPE, pass_fds=passed)

    async def _supervise(self) -> None:
        while True:
            assert self._process is not None
            status = await self._process.wait()
            log.error("the web gateway has ended and is started again", extra={"status": status})
            await asyncio.sleep(_RESTART_SECONDS)
            try:
                self._process = await self._spawn()
            except OSError:
                log.exception("the web gateway cannot be started; trying again")

    async def stop(self) -> None:
        """End it: open streams are closed, and calls that do not end are cancelled."""
        assert self._process is not None and self._supervisor is not None
        self._supervisor.cancel()
        self._listening.close()
        process = self._process
        if process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS)
            except asyncio.TimeoutError:
                log.error("the web gateway did not end and is killed")
                process.kill()
                await process.wait()
        os.close(self._shared)
        self._folder.cleanup()

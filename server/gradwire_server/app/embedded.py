"""Embedded server: runs as a child of the client's process, on a private socket, and ends with its parent.

The parent holds the other end of the child's stdin. End of file there, or a changed parent id, means that the parent
has ended or was killed. A separate thread checks both, so no computation keeps the child alive.
"""

import asyncio
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from gradwire_server.common import blas

if TYPE_CHECKING:
    from gradwire_server.common.limits import Limits
    from gradwire_server.registry.backend import Backend

_POLL_SECONDS = 0.5
_LAST_SECONDS = 2.0
_GRACE_SECONDS = 1.0
_PREFIX = "gradwire-"
_MAX_SOCKET_PATH = 100  # the kernel's limit is 107 bytes


def main(socket: str | None, workers: int = 0) -> None:
    """Serve at a Unix socket until the parent ends. Without `socket`, create one in a private folder.

    With `workers`, that many processes compute, for several ranks of one program. Else a thread does.
    """
    parent = os.getppid()
    socket_option = [f"--socket={socket}"] if socket else []
    blas.prepare(["--embedded", *socket_option, *([f"--workers={workers}"] if workers else [])])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which shares the terminal
    path = Path(socket) if socket else Path(tempfile.mkdtemp(prefix=_PREFIX)) / "socket"
    if len(str(path)) > _MAX_SOCKET_PATH:
        raise SystemExit(f"the socket's path is too long for a unix socket: {path}")
    try:
        asyncio.run(_serve(path, parent, workers))
    finally:
        _remove(path)


async def _serve(path: Path, parent: int, workers: int) -> None:
    from gradwire_server.common.limits import Limits, memory_bytes
    from gradwire_server.common.logging import configure
    from gradwire_server.rpc.server import Server

    configure("plain", os.environ.get("GRADWIRE_LOG_LEVEL", "warning"))
    sys.setswitchinterval(0.001)
    memory, jit = memory_bytes(), os.environ.get("GRADWIRE_JIT", "on")
    if jit not in ("on", "off", "verify"):
        raise SystemExit(f"GRADWIRE_JIT is {jit!r}; allowed: on, off, verify")
    # The server has one user, so its sessions may use most of the machine's memory.
    limits = Limits(
        max_tensor_bytes=memory,
        max_session_bytes=memory * 4 // 5,
        max_bytes=memory * 4 // 5,
        jit=cast("Literal['on', 'off', 'verify']", jit),
        max_session_tensors=10_000_000,
        lease_seconds=86_400.0,
        max_lease_seconds=31_536_000.0,
    )
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    _watch(parent, lambda: loop.call_soon_threadsafe(ended.set), lambda: _remove(path))
    server = Server(_backend(limits, workers))
    address = await server.start(f"unix:{path}")
    path.chmod(0o600)
    print(json.dumps({"address": address}), flush=True)
    await ended.wait()
    await server.drain(_GRACE_SECONDS)


def _backend(limits: "Limits", workers: int) -> "Backend":
    if workers:
        from gradwire_server.registry.process_backend import WorkersBackend

        return WorkersBackend(limits, workers)
    from gradwire_server.registry.thread_backend import InProcessBackend

    return InProcessBackend(limits, owns_process=True)


def _watch(parent: int, end: Callable[[], object], clean: Callable[[], None]) -> None:
    """Call `end` when the parent has ended; if the process still runs later, call `clean` and exit."""

    def watch() -> None:
        while os.getppid() == parent:
            readable, _, _ = select.select([sys.stdin], [], [], _POLL_SECONDS)
            if readable and not os.read(sys.stdin.fileno(), 4096):
                break
        end()
        time.sleep(_GRACE_SECONDS + _LAST_SECONDS)  # a daemon thread: normally the process ends during the sleep
        clean()
        os._exit(0)

    threading.Thread(target=watch, name="gradwire-parent", daemon=True).start()


def _remove(path: Path) -> None:
    """Remove the socket, and its folder if `main` created it."""
    path.unlink(missing_ok=True)
    if path.parent.name.startswith(_PREFIX):
        shutil.rmtree(path.parent, ignore_errors=True)

"""A server in this process whose sessions form groups with those of other servers."""

from pathlib import Path
from typing import Any

from gradwire_server.common.limits import Limits
from gradwire_server.registry.peer_links import Peers
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.rpc.server import Server
from tests.server.harness import LIMITS, Running


class Node(Running):
    """One of several servers with a folder in common. `endpoint` names it; its sessions are not stored."""

    def __init__(
        self, root: Path, endpoint: str, limits: Limits = LIMITS, certificate: tuple[Path, Path] | None = None
    ) -> None:
        self.root, self.endpoint, self.certificate = root, endpoint, certificate
        super().__init__(limits)

    async def _start(self) -> tuple[Any, Server, str]:
        backend = InProcessBackend(self.limits, self.clock)
        backend.share_groups(Peers(self.endpoint, "127.0.0.1", self.certificate), self.root / "groups")
        server = Server(backend, *self.guards)
        return backend, server, await server.start("127.0.0.1:0")

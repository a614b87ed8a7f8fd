"""What the gateway's tests share: a server's process, and a gateway in a thread with options that a test changes."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from gradwire_server.app.gateway_setup import listen, url_of
from gradwire_server.auth import tokens
from gradwire_server.web.gateway import Gateway
from gradwire_server.web.options import GatewayOptions
from gradwire_server.web.serving import serve
from tests.server.harness import WAIT
from tests.server.test_process import ALONE, process, ready

SERVICE = "/gradwire.v1.AutogradService"
SUBPROTOCOL = "gradwire.v1"


@dataclass
class Running:
    """A gateway that runs: its URL, its server's address, and its inner state."""

    url: str
    server: str
    gateway: Gateway
    loop: asyncio.AbstractEventLoop

    def client(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=headers, timeout=WAIT)

    def call(self, method: str, **fields: Any) -> dict[str, Any]:
        """A unary call by Connect and JSON, without a credential."""
        with self.client() as client:
            answer = client.post(f"{SERVICE}/{method}", json=fields)
            assert answer.status_code == 200, answer.text
            return answer.json()

    def socket(self, *protocols: str, **options: Any) -> ClientConnection:
        """A WebSocket for Stream."""
        url = self.url.replace("http", "ws", 1) + f"{SERVICE}/Stream"
        options = {"compression": None, "max_size": None, **options}
        made = connect(url, subprotocols=[SUBPROTOCOL, *protocols], **options)  # type: ignore[list-item]
        return made.__enter__()  # the tests close it, often rudely

    def do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT)


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """A server's process; its address."""
    with process(*ALONE, "--log-level=error", *arguments) as started:
        yield ready(started)


@contextmanager
def gateway_to(server: str, **options: Any) -> Iterator[Running]:
    """A gateway to a server, at a free port of this machine."""
    loop, ended, made = asyncio.new_event_loop(), asyncio.Event(), []
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    listening = listen("127.0.0.1", 0)
    chosen = GatewayOptions(server, **options)
    url = url_of(listening, bool(chosen.tls_cert))
    serving = asyncio.run_coroutine_threadsafe(serve(chosen, listening, ended, made.append), loop)
    try:
        while not made and not serving.done():
            threading.Event().wait(0.01)
        yield Running(url, server, made[0] if made else serving.result(0), loop)
    finally:
        loop.call_soon_threadsafe(ended.set)
        serving.result(WAIT)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT)
        loop.close()


def token_file(folder: Path, *names: str, **options: Any) -> tuple[Path, list[str]]:
    """A file of tokens, and the tokens."""
    path, made = folder / "tokens", []
    for name in names:
        token, line = tokens.make(name, **options)
        tokens.append(path, line)
        made.append(token)
    return path, made

"""studio(): what a program hands over to its user's browser, and to whom it sends its secrets."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

import gradwire as torch
from gradwire._base.errors import GradwireError

pytestmark = pytest.mark.usefixtures("deferring")


class Gateway(HTTPServer):
    """Keeps what it is given, and answers as told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.given: list[tuple[str, dict[str, Any]]] = []
        self.status, self.answer = 200, b'{"code": "abc"}'

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.given.append((self.path, json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as made:
        thread = Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_names_and_lines_are_handed_over(gateway: Gateway) -> None:
    net = torch.nn.Linear(3, 2)
    loss = net(torch.ones(1, 3)).sum()
    address = torch.studio(loss, gateway.url, show=False)
    assert address == f"{gateway.url}/#/from/abc"
    ((path, given),) = gateway.given
    assert path == "/handovers"
    assert given["session"] == torch.current_session().session_id
    assert given["session"] not in address
    assert sorted(given["names"].values()) == ["bias", "weight"]
    assert any("test_studio.py" in line for line in given["lines"].values())


def test_a_refusal_and_a_missing_gateway_say_so(gateway: Gateway) -> None:
    x = torch.ones(1, requires_grad=True) * 2
    gateway.status, gateway.answer = 401, b'{"message": "log in"}'
    with pytest.raises(GradwireError, match="refuses: log in"):
        torch.studio(x, gateway.url, show=False)
    gateway.status, gateway.answer = 502, b"<html>"
    with pytest.raises(GradwireError, match="Bad Gateway"):
        torch.studio(x, gateway.url, show=False)
    with pytest.raises(GradwireError, match="there is no gateway"):
        torch.studio(x, "http://127.0.0.1:9", show=False)


@pytest.mark.parametrize("url", ["http://example.org", "ftp://127.0.0.1", "127.0.0.1:8080"])
def test_secrets_are_not_sent_where_others_could_read_them(url: str) -> None:
    with pytest.raises(ValueError, match="https or this machine"):
        torch.studio(torch.ones(1), url, show=False)


def test_only_tensors_have_a_graph() -> None:
    with pytest.raises(TypeError, match="takes a tensor"):
        torch.studio(3)  # type: ignore[arg-type]

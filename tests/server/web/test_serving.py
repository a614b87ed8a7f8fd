"""How a gateway starts and ends: the commands, what they refuse, what they import, TLS, slow and many connections."""

import os
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

import httpx
from websockets.sync.client import connect

from gradwire_server.web.counters import KINDS
from tests.certificates import Authority
from tests.server.harness import WAIT, until
from tests.server.test_metrics import samples, value
from tests.server.test_process import ALONE, process, ready
from tests.server.web.harness import SERVICE, Running, gateway_to, served, token_file

INFO = f"{SERVICE}/ServerInfo"
STUDIO = [sys.executable, "-c", "from gradwire_server.app.studio import studio; studio(prog_name='gradwire studio')"]


def web_url(started: "subprocess.Popen[str]") -> str:
    """The URL that `gradwire serve --web` logs."""
    assert started.stderr is not None
    for line in started.stderr:
        found = re.search(r"web gateway address=(\S+)", line)
        if found:
            return found[1]
    raise AssertionError("the server logged no address of its gateway")


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, str, "subprocess.Popen[str]"]]:
    """`gradwire serve --web`: its address, its gateway's URL, its process."""
    with process(*ALONE, *arguments) as started:
        url = web_url(started)
        yield ready(started), url, started


def refusal(line: list[str], *arguments: str) -> str:
    done = subprocess.run([*line, *arguments], capture_output=True, text=True, timeout=WAIT)
    assert done.returncode != 0
    return " ".join(done.stderr.split())


SERVE = [sys.executable, "-m", "gradwire_server", *ALONE]


def test_without_web_nothing_listens_and_nothing_is_imported() -> None:
    code = (
        "import sys, threading, os, signal, psutil\n"
        "def look():\n"
        "    found = [n for n in ('starlette', 'uvicorn', 'websockets', 'gradwire_server.web') if n in sys.modules]\n"
        "    own = psutil.Process()\n"
        "    listening = [c for c in own.net_connections('tcp') if c.status == 'LISTEN']\n"
        "    print('FOUND', found, len(listening), len(own.children()), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "from gradwire_server.app import cli\n"
        "from gradwire_server.common import logging\n"
        "announce = logging.announce\n"
        "logging.announce = lambda *a: (announce(*a), threading.Timer(0.2, look).start())\n"
        "cli.serve(['--port=0', '--workers=0'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT)
    assert "FOUND [] 1 0" in done.stdout, done.stdout + done.stderr


def test_serve_with_web_answers_and_ends_with_open_sockets() -> None:
    with serving("--web=0") as (_, url, started):
        assert httpx.get(f"{url}/healthz", timeout=WAIT).json() == {"status": "SERVING"}
        assert httpx.post(url + INFO, json={}, timeout=WAIT).json()["version"]
        children = psutil.Process(started.pid).children(recursive=True)
        waiting = connect(url.replace("http", "ws") + f"{SERVICE}/Stream").__enter__()
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port)) as idle:
            idle.sendall(b"POST / HTTP/1.1\r\n")
            started.send_signal(signal.SIGTERM)
            assert started.wait(WAIT) == 0
        waiting.close()
        _, alive = psutil.wait_procs(children, WAIT)
        assert children and not alive


def test_the_gateway_ends_with_a_killed_server_and_starts_again_if_it_ends_itself() -> None:
    with serving("--web=0", "--metrics=0") as (_, url, started):
        assert started.stderr is not None
        metrics = next(found[1] for line in started.stderr if (found := re.search(r"metrics.*address=(\S+)", line)))
        (child,) = psutil.Process(started.pid).children()
        stream = connect(url.replace("http", "ws") + f"{SERVICE}/Stream").__enter__()
        assert httpx.get(f"{url}/studio/none", timeout=WAIT).status_code == 404
        assert httpx.post(f"{url}/nothing", timeout=WAIT, content=b"12345").status_code == 404
        assert httpx.get(url, headers={"origin": "https://evil.example"}, timeout=WAIT).status_code == 403
        httpx.post(url + INFO, json={}, timeout=WAIT)
        told = samples(metrics)
        assert {kind: value(told, "web_requests_total", kind=kind) for kind in KINDS if kind != "health"} == {
            **dict.fromkeys(KINDS[:-1], 0),
            "call": 1,
            "stream": 1,
            "page": 1,
        }
        assert value(told, "web_refusals_total", code="PERMISSION_DENIED", reason="PERMISSION_DENIED") == 1
        assert value(told, "web_refusals_total", code="UNIMPLEMENTED", reason="NOT_SUPPORTED") == 2
        assert value(told, "web_streams") == 1 and value(told, "web_connections") >= 1
        accepted = value(told, "web_accepted_connections_total")
        assert accepted >= 5 and value(told, "web_refused_connections_total") == 0
        assert value(told, "web_received_bytes_total") == 2 and value(told, "web_sent_bytes_total") > 100
        child.kill()
        until(lambda: [c for c in psutil.Process(started.pid).children() if c.pid != child.pid])
        assert httpx.get(f"{url}/healthz", timeout=WAIT).status_code == 200
        told = samples(metrics)  # the counts continue, and what was open is not
        assert value(told, "web_accepted_connections_total") == accepted + 1 and value(told, "web_streams") == 0
        assert value(told, "web_requests_total", kind="call") == value(told, "web_requests_total", kind="health") == 1
        stream.close()
        (child,) = psutil.Process(started.pid).children()
        started.kill()
        child.wait(WAIT)


def test_only_loopback_without_tokens(tmp_path: Path) -> None:
    for more in ([], ["--insecure-bind"]):
        told = refusal(SERVE, "--web=0.0.0.0:0", *more)
        assert "admits callers without a token" in told
    path, _ = token_file(tmp_path, "alice")
    assert "there is no --tls-cert" in refusal(SERVE, "--web=0.0.0.0:0", f"--token-file={path}")
    with served() as server:
        assert "admits callers without a token" in refusal(STUDIO, server, "--web=0.0.0.0:0", "--insecure-bind")
    assert "does not say whether it needs tokens" in refusal(
        STUDIO, "127.0.0.1:1", "--web=0.0.0.0:0", "--insecure-bind"
    )


def test_wrong_addresses_origins_and_certificates_are_refused(tmp_path: Path) -> None:
    assert "an address is HOST:PORT" in refusal(SERVE, "--web=here")
    assert "an origin is" in refusal(SERVE, "--web=0", "--web-origins=lab.example")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen for the web" in refusal(SERVE, f"--web={taken.getsockname()[1]}")
    authority = Authority(tmp_path)
    cert, key = authority.issue("localhost")
    told = refusal(SERVE, "--web=0", f"--tls-cert={cert}", f"--tls-key={key}", f"--tls-client-ca={authority.path}")
    assert "needs --token-file" in told


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradwire_server.app import gateway_setup

    monkeypatch.setattr(gateway_setup, "find_spec", lambda name: None)
    with pytest.raises(gateway_setup.GatewayRefused, match=r"pip install 'gradwire\[web\]'"):
        gateway_setup.check_installed("--web")


def test_with_tls_and_tokens_as_the_servers(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("localhost")
    path, (token,) = token_file(tmp_path, "alice")
    trusted = ssl.create_default_context(cafile=authority.path)
    arguments = (f"--tls-cert={cert}", f"--tls-key={key}", f"--token-file={path}")
    with serving("--web=0.0.0.0:0", *arguments) as (server, url, _):
        url = url.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=url, verify=trusted, timeout=WAIT) as client:
            assert client.post(INFO, json={}).status_code == 401
            assert client.post(INFO, json={}, headers={"authorization": f"Bearer {token}"}).status_code == 200
            cookie = client.post("/login", json={"token": token}).headers["set-cookie"]
            assert cookie.startswith("__Host-gradwire=")
            assert "Secure" in cookie
        studio = [*STUDIO, server, "--web=0", f"--ca={authority.path}", "--server-name=localhost"]
        with process(line=studio) as beside:
            own = ready(beside)
            assert httpx.post(own + INFO, json={}, timeout=WAIT).status_code == 401
            headers = {"authorization": f"Bearer {token}"}
            assert httpx.post(own + INFO, json={}, headers=headers, timeout=WAIT).status_code == 200
            beside.send_signal(signal.SIGTERM)
            assert beside.wait(WAIT) == 0


def opened(running: Running) -> socket.socket:
    parts = urlsplit(running.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=WAIT)


def test_slow_heads_end(open_server: str) -> None:
    with gateway_to(open_server, header_seconds=0.5) as running, opened(running) as silent, opened(running) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-More: ")
        assert silent.recv(10) == b""
        assert slow.recv(10) == b""


def test_too_many_connections_end(open_server: str) -> None:
    with gateway_to(open_server, header_seconds=WAIT, max_connections=8) as running, ExitStack() as closing:
        held = [closing.enter_context(opened(running)) for _ in range(20)]

        def ended() -> int:
            return len(select.select(held, [], [], 0)[0])

        until(lambda: ended() >= 12, "the connections above the limit have ended")
        assert ended() == 12


def test_large_heads_are_refused(gateway: Running) -> None:
    with opened(gateway) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * (64 << 10))
        assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_a_client_that_reads_nothing_is_cut_off(open_server: str) -> None:
    with gateway_to(open_server, write_seconds=0.5) as running, opened(running) as raw:
        head = f"POST {SERVICE}/ListOps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: 2\r\n\r\n{{}}".encode()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(WAIT)
        ends, cut = time.monotonic() + WAIT, False
        while not cut and time.monotonic() < ends:
            try:
                raw.sendall(request)
                time.sleep(0.05)
            except OSError:
                cut = True
        assert cut


def test_idle_channels_are_closed(open_server: str) -> None:
    with gateway_to(open_server, idle_channel_seconds=0.0) as running:
        running.call("ServerInfo")
        assert running.gateway.upstream.open_channels == 1
        until(lambda: not running.gateway.upstream.open_channels)
        assert running.call("ServerInfo")["version"]


def test_a_server_that_is_gone_is_unavailable_and_its_address_is_not_told() -> None:
    with gateway_to("unix:/nonexistent/gradwire/socket") as running, running.client() as client:
        answer = client.post(INFO, json={})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "nonexistent" not in answer.text
        assert client.get("/healthz").status_code == 503


def test_the_process_holds_no_descriptor_of_ended_connections(gateway: Running) -> None:
    gateway.call("ServerInfo")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        opened(gateway).close()
        gateway.call("ServerInfo")
    until(lambda: len(os.listdir("/proc/self/fd")) <= before + 3)

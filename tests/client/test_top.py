"""gradwire top: an administrator's view of a server's sessions, with tokens and TLS."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import gradwire
from gradwire._cli import top as _top
from gradwire._cli.admin import credentials_for, owners_secret
from gradwire._cli.cluster_sessions import ClusterSessions, Sessions
from gradwire._transport.transport import Transport
from gradwire.v1 import service_pb2
from gradwire_server.auth import tokens as token_files
from gradwire_server.auth.owner import Owner
from gradwire_server.auth.tls import Tls
from gradwire_server.auth.tokens import Tokens
from tests.certificates import Authority
from tests.ports import free_port
from tests.server.harness import Running, running, until

Secrets = dict[str, str]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    made = {}
    for name, scopes in (("alice", frozenset[str]()), ("bob", frozenset[str]()), ("root", frozenset({"admin"}))):
        made[name], line = token_files.make(name, scopes, None)
        token_files.append(path, line)
    return {**made, "path": str(path)}


@pytest.fixture(scope="module")
def server(secrets: Secrets) -> Iterator[Running]:
    with running(workers=1, tokens=Tokens(Path(secrets["path"]))) as started:
        yield started


def top(*arguments: str, token: str = "", **environment: str) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    return subprocess.run(
        [sys.executable, "-m", "gradwire", "top", "--once", "--interval=0.2", *arguments],
        env={**kept, "COLUMNS": "200", **({"GRADWIRE_TOKEN": token} if token else {}), **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_an_administrator_sees_every_session_with_what_it_holds(server: Running, secrets: Secrets) -> None:
    with gradwire.connect(server.address, token=secrets["alice"]) as one, one:
        held = gradwire.ones(256, 1024, requires_grad=True)
        (held * 2).sum().backward()
        with (
            gradwire.connect(server.address, token=secrets["bob"]) as two,
            gradwire.connect(server.address, token=secrets["bob"]) as three,
        ):
            for session in (one, two, three):
                with session:
                    gradwire.ones(3).tolist()
            shown = top(server.address, token=secrets["root"])
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert server.address in lines[0]
    assert "3 sessions" in lines[1]
    columns = lines[2].split()
    assert columns == ["session", "principal", "client", *_top._NUMBERS]
    (alice,) = [line for line in lines if "alice" in line]
    assert "2.0 MiB" in alice and "gradwire-python/" in alice
    bobs = [line for line in lines if "bob" in line]
    assert len(bobs) == 3 and "2 sessions" in bobs[0]
    assert secrets["root"] not in shown.stdout


def test_callers_without_rights_get_an_error_that_names_them(server: Running, secrets: Secrets) -> None:
    refused = top(server.address, token=secrets["alice"])
    assert refused.returncode == 1
    assert "admin" in refused.stderr
    assert secrets["alice"] not in refused.stderr
    unknown = top(server.address)
    assert unknown.returncode == 1
    assert "Traceback" not in refused.stderr + unknown.stderr


def test_it_speaks_tls(tmp_path: Path, secrets: Secrets) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("localhost")
    with running(tokens=Tokens(Path(secrets["path"])), tls=Tls(cert, key, None)) as server:
        shown = top(server.address.replace("127.0.0.1", "localhost"), f"--ca={authority.path}", token=secrets["root"])
        assert shown.returncode == 0, shown.stderr
        assert "0 sessions" in shown.stdout


@pytest.mark.parametrize("arguments", [["--interval=0"], ["--interval=nan"], ["--ca=/nowhere"], ["--cert=/nowhere"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    ended = top("127.0.0.1:1", *arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def summary(number: int, **fields: Any) -> service_pb2.SessionSummary:
    return service_pb2.SessionSummary(number=number, **fields)


def looks(before: list[service_pb2.SessionSummary], now: list[service_pb2.SessionSummary]) -> tuple[Any, Any]:
    info = service_pb2.ServerInfoResponse(version="1")
    return (
        _top.ServerState(10.0, info, Sessions({("", each.number): each for each in before})),
        _top.ServerState(12.0, info, Sessions({("", each.number): each for each in now})),
    )


def test_rates_are_what_changed_between_two_looks() -> None:
    before, now = looks(
        [summary(1, principal="a", bytes=1, commands=100, compute_us=1_000_000)],
        [
            summary(1, principal="a", bytes=1, commands=300, compute_us=2_000_000),
            summary(2, principal="b", bytes=1, commands=50, compute_us=3_000_000),
            summary(3, principal="b"),
        ],
    )
    found = _top.rows(before, now)
    assert list(found) == ["b", "a"]
    assert [(row.session.number, row.rate, row.share) for row in found["b"]] == [(2, 25.0, 1.5), (3, 0.0, 0.0)]
    assert [(row.rate, row.share) for row in found["a"]] == [(100.0, 0.5)]


def test_what_a_client_calls_itself_is_shown_as_text_and_rows_are_capped() -> None:
    evil = "[red]x[/red]\x1b[2J\n"
    before, now = looks([], [summary(number, principal="p", client=evil, bytes=1) for number in range(50)])
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - ends with the test
    console.print(_top.render("here", before, now, 10))
    shown = console.export_text()
    assert "[red]x[/red]?[2J?" in shown
    assert "\x1b" not in shown
    assert "41 more" in shown
    assert len(shown.splitlines()) == 3 + 10 + 1


def sessions(*arguments: str, token: str = "") -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    return subprocess.run(
        [sys.executable, "-m", "gradwire", "sessions", *arguments],
        env={**kept, **({"GRADWIRE_TOKEN": token} if token else {})},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_an_administrator_lists_and_ends_sessions_also_unused_ones(secrets: Secrets, tmp_path: Path) -> None:
    from tests.server.test_durability import Storing

    tokens = Tokens(Path(secrets["path"]))
    first = Storing(tmp_path, tokens=tokens)
    left = gradwire.connect(first.address, token=secrets["alice"])
    with left:
        held = gradwire.ones(1000)
        gradwire.sync()
    first.stop()
    second = Storing(tmp_path, tokens=tokens)
    here = gradwire.connect(second.address, token=secrets["bob"])
    root = secrets["root"]
    head, stored = sessions(second.address, "--stored", token=root).stdout.splitlines()
    assert head.split() == ["session", "principal", "client", "bytes", "tensors", "kept", "stored"]
    assert stored.split()[1] == "alice" and " 1 " in stored
    head, living = sessions(second.address, "--principal", "bob", token=root).stdout.splitlines()
    assert living.split()[1] == "bob"
    for line, flags in ((stored, ["--stored"]), (living, [])):
        ended = sessions(second.address, *flags, "--end", line.split()[0], token=root)
        assert ended.returncode == 0, ended.stderr
        assert "freed" in ended.stdout
        assert len(sessions(second.address, *flags, token=root).stdout.splitlines()) == 1
    refused = sessions(second.address, "--stored", "--end", "1", token=secrets["alice"])
    assert (refused.returncode, "admin" in refused.stderr) == (1, True)
    second.stop()
    del held, here


def secret_file(address: str) -> Path:
    return Path(f"/tmp/gradwire-{os.geteuid()}/{address}.owner")


@pytest.fixture
def without_callers(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "gradwire_server", "--port=0", "--workers=1", "--log-format=json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        try:
            address = str(json.loads(process.stdout.readline())["address"])
            yield address
        finally:
            process.terminate()
    assert not secret_file(address).exists()


def test_only_the_user_who_runs_a_server_without_callers_may_list_sessions(without_callers: str) -> None:
    with gradwire.connect(without_callers) as session, session:
        held = gradwire.ones(10)
        shown = top(without_callers)
        assert shown.returncode == 0, shown.stderr
        assert "1 sessions" in shown.stdout
        stub = session._transport
        with pytest.raises(gradwire.GradwirePermissionError, match="needs the scope 'admin'"):
            stub.call("ListSessions", service_pb2.ListSessionsRequest(), service_pb2.ListSessionsResponse)
        assert top(without_callers, token="another").returncode == 1
        assert held.tolist() == [1.0] * 10
    secret = secret_file(without_callers)
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.parent.stat().st_mode & 0o777 == 0o700


def test_the_owners_secret_is_shown_at_the_servers_own_address_alone(without_callers: str) -> None:
    port = without_callers.rpartition(":")[2]
    secret = secret_file(without_callers).read_text()
    assert without_callers == f"127.0.0.1:{port}"
    assert owners_secret(without_callers) == (secret, without_callers)
    assert owners_secret(f"localhost:{port}") == (secret, without_callers)  # though ::1 may be another program's
    assert owners_secret(f"127.0.0.2:{port}") is None
    assert owners_secret(f"[::1]:{port}") is None


def test_the_secret_of_a_killed_server_is_never_sent_and_the_next_server_removes_it() -> None:
    address = "127.0.0.1:1"
    program = (
        "import os, signal; from gradwire_server.auth.owner import Owner\n"
        f"owner = Owner('{address}'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert owners_secret(address) is None
    living = Owner("127.0.0.1:2")
    try:
        assert not secret_file(address).exists()
        assert owners_secret("127.0.0.1:2") is not None
        Owner("127.0.0.1:3").stop()
        assert owners_secret("127.0.0.1:2") is not None
    finally:
        living.stop()
    assert not secret_file("127.0.0.1:2").exists()


def test_nodes_of_a_cluster_are_a_line_each() -> None:
    node = service_pb2.ClusterNode(endpoint="b:1\x1b", sessions=3, workers=2, bytes=2048, silent_ms=400)
    assert _top.node_line(node) == "node b:1? · 3 sessions · 2 workers · 2.0 KiB held"
    node.MergeFrom(service_pb2.ClusterNode(gpus=2, max_bytes=4096, draining=True))
    assert _top.node_line(node) == "node b:1? · 3 sessions · 2 workers · 2 GPUs · 2.0 KiB of 4.0 KiB held · draining"
    silent = service_pb2.ClusterNode(endpoint="c:1", silent_ms=5000)
    assert _top.node_line(silent) == "node c:1 · 0 sessions · 0 workers · 0 B held · silent for 5 s"


class _Placement:
    """What a cluster's Director tells a server of its nodes."""

    endpoint = ""

    def __init__(self, **silent: float) -> None:
        self._silent = silent

    async def choose(self, device_type: str = "", gang: str = "", size: int = 0) -> str:
        return ""  # here

    async def nodes(self) -> dict[str, dict[str, Any]]:
        return {
            endpoint: {"sessions": 1, "workers": 1, "bytes": 0, "silent": silent}
            for endpoint, silent in self._silent.items()
        }


@pytest.fixture
def cluster(server: Running, secrets: Secrets, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A second node; the first one, `server`, names both, one that is silent and one at which nothing listens."""
    with running(workers=1, tokens=Tokens(Path(secrets["path"]))) as second:
        told = {server.address: 0.1, second.address: 0.1, "127.0.0.1:1": 9.0, f"127.0.0.1:{free_port()}": 0.1}
        monkeypatch.setattr(server.backend, "placement", _Placement(**told))
        yield second


def test_sessions_of_all_nodes_of_a_cluster_are_listed_with_their_node(
    server: Running, cluster: Running, secrets: Secrets
) -> None:
    with (
        gradwire.connect(server.address, token=secrets["alice"]) as one,
        gradwire.connect(cluster.address, token=secrets["bob"]) as two,
    ):
        for session in (one, two):
            with session:
                gradwire.ones(3).tolist()
        # The process's default session was one of an earlier test. It ends soon after another took its place.
        until(lambda: len(server.backend.registry.entries) == 1, "the end of the earlier tests' sessions")
        shown = top(server.address, token=secrets["root"])
        listed = sessions(server.address, token=secrets["root"])
        refused = sessions(server.address, token=secrets["alice"])
    assert (shown.returncode, listed.returncode, refused.returncode) == (0, 0, 1), shown.stderr + listed.stderr
    lines = shown.stdout.splitlines()
    assert next(line for line in lines if "session " in line).split()[-1] == "node"
    for name, node in (("alice", server), ("bob", cluster)):
        (line,) = [line for line in lines if name in line]
        assert line.split()[-1] == node.address
        (line,) = [line for line in listed.stdout.splitlines() if name in line]
        assert line.split()[0] == node.address
    silent, gone = [line for line in lines if line.startswith("node ")][-2:]
    if "silent" not in silent:
        silent, gone = gone, silent
    assert "silent for 9 s" in silent and "does not answer here" in gone
    missing = [line for line in listed.stdout.splitlines() if "is missing" in line]
    assert len(missing) == 2 and any("127.0.0.1:1 is missing: it is silent" in line for line in missing)


def test_the_owners_secret_of_one_node_is_not_sent_to_another(without_callers: str) -> None:
    options = argparse.Namespace(ca=None, cert=None, key=None, tls=None)
    address, credentials = credentials_for(without_callers, options)
    nodes = ClusterSessions(address, Transport(address, credentials), options)
    try:
        assert credentials.metadata
        assert nodes._reach(address).credentials.metadata == credentials.metadata
        assert not nodes._reach("127.0.0.1:1").credentials.metadata
        assert not nodes._reach("example.org:50051").credentials.metadata
    finally:
        nodes.close()


def test_with_tls_every_node_proves_the_first_ones_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    options = argparse.Namespace(ca=str(authority.path), cert=None, key=None, tls=None)
    address, credentials = credentials_for("gradwire.example.org:50051", options)
    nodes = ClusterSessions(address, Transport(address, credentials), options)
    try:
        servers = nodes._reach("10.0.0.2:50051").servers
        assert servers.address == "10.0.0.2:50051"
        assert ("grpc.ssl_target_name_override", "gradwire.example.org") in servers._options_of("10.0.0.2:50051")
    finally:
        nodes.close()

"""`gradwire cluster` on this machine. The tests with Ray need the extra [cluster] and are skipped without it."""

import errno
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

import gradwire
from gradwire._session.sessions import open_beside
from gradwire._transport.opening import Placing
from gradwire_server.cluster import checks, cli, ray_process
from gradwire_server.cluster.checks import CheckFailed, check_ray, check_storage, check_version, note_ray
from gradwire_server.cluster.cli import cluster
from gradwire_server.cluster.head_record import FileRecord, check_head, claim_head
from gradwire_server.cluster.ray_process import RayError, RayProcess, make_token
from tests.client.sharing import train
from tests.ports import free_port
from tests.server.harness import running, until
from tests.server.machines import processes

RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not RAY, reason="Ray is not installed: pip install 'gradwire[cluster]'")


def gradwire_cluster(*arguments: str, folder: Path) -> str:
    """What the command prints. It must succeed."""
    line = [sys.executable, "-c", "from gradwire_server.cluster.cli import cluster; cluster()", arguments[0]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*line, f"--folder={folder}", *arguments[1:]], capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A cluster of three nodes: its folder and its endpoints."""
    folder = tmp_path_factory.mktemp("cluster")
    told = gradwire_cluster("up", "--nodes=3", "--", "--workers=1", "--log-level=warning", folder=folder)
    try:
        yield folder, told.strip().removeprefix("GRADWIRE_ADDRESS=").split(",")
    finally:
        gradwire_cluster("down", folder=folder)


def rows(folder: Path) -> dict[str, list[str]]:
    """The rows of `status` by endpoint."""
    lines = gradwire_cluster("status", folder=folder).splitlines()[1:-1]  # without the heads and the sums
    return {line.split()[0]: line.split()[1:] for line in lines}


def server_of(endpoint: str) -> int:
    """The process id of a node's server."""
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                words = (each / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"--endpoint={endpoint}".encode() in words:
                return int(each.name)
    raise AssertionError(f"no server has the endpoint {endpoint}")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_top_at_any_node_lists_all_nodes(up: tuple[Path, list[str]]) -> None:
    _, endpoints = up
    opened = [gradwire.connect(endpoints[0]) for _ in range(6)]
    command = [sys.executable, "-m", "gradwire", "top", "--once", "--interval=0.2", endpoints[0]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True).stdout
    nodes = re.findall(r"^node (\S+) · \d+ sessions · 1 workers · .* held *$", shown, re.MULTILINE)
    assert sorted(nodes) == sorted(endpoints)
    rows = re.findall(r"gradwire-python/.* (\S+)$", shown.replace(" \n", "\n"), re.MULTILINE)
    assert sorted(Counter(rows).items()) == sorted(Counter(each.address for each in opened).items())
    for each in opened:
        each.close()
    assert re.search(r"^cluster of 3 nodes · \d+ sessions · 3 workers · .* held *$", shown, re.MULTILINE)


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_gang_is_completed_by_another_director(up: tuple[Path, list[str]]) -> None:
    folder, endpoints = up
    first = gradwire.connect(endpoints[0])
    placing = Placing(gang="a gang of the test", gang_size=4)
    opened = [open_beside(first, 15.0, placing) for _ in range(2)]
    directors = [pid for pid, words in processes() if words[0] == b"ray::Director" and _of_cluster(pid, folder)]
    assert len(directors) == 1
    os.kill(directors[0], signal.SIGKILL)
    until(lambda: [state for *_, state in rows(folder).values()] == ["ready"] * 3, "another Director")
    opened += [open_beside(first, 15.0, placing) for _ in range(2)]
    counts = Counter(each.address for each in opened)
    assert sum(counts.values()) == 4 and len(counts) == 3, counts
    for each in (*opened, first):
        each.close()


def _of_cluster(pid: int, folder: Path) -> bool:
    """Whether a process of Ray belongs to the cluster of a folder."""
    try:
        return f"RAY_AUTH_TOKEN_PATH={folder}/token".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sessions_are_spread_and_survive_a_node(up: tuple[Path, list[str]], server_address: str) -> None:
    folder, endpoints = up
    assert sorted(rows(folder)) == sorted(endpoints)

    opened = [gradwire.connect(endpoints[0]) for _ in range(30)]
    counts = Counter(session.address for session in opened)
    # A session is counted as placed and as reported for a while, so the counts differ by some.
    assert len(counts) == 3 and max(counts.values()) - min(counts.values()) <= 3, counts
    with opened[-1]:
        assert gradwire.ones(2).sum().item() == 2
    for session in opened:
        session.close()

    def disturb(step: int) -> None:
        if step == 15:
            server = server_of(gradwire.current_session().address)
            for pid in (parent_of(server), server):  # the actor and its server; the worker ends with the server
                os.kill(pid, signal.SIGKILL)

    assert train(",".join(endpoints), 40, disturb) == train(server_address, 40)

    ends = time.monotonic() + 120
    while [state for *_, state in rows(folder).values()] != ["ready"] * 3:
        assert time.monotonic() < ends, "Ray has not started the node again"
        time.sleep(0.5)
    assert sorted(starts for *_, starts, _ in rows(folder).values()) == ["1", "1", "1"], "of three actors, one is new"


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_drained_node_s_sessions_continue(up: tuple[Path, list[str]], server_address: str) -> None:
    folder, endpoints = up
    drained = []

    def disturb(step: int) -> None:
        if step == 20:
            drained.append(gradwire.current_session().address)
            gradwire_cluster("drain", drained[0], folder=folder)

    assert train(",".join(endpoints), 40, disturb) == train(server_address, 40)
    left = rows(folder)
    assert drained[0] not in left
    assert len(left) == 2


@pytest.fixture(scope="module")
def server_address() -> Iterator[str]:
    from gradwire._transport.embedded import EmbeddedServer

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OMP_NUM_THREADS", "1")
        server = EmbeddedServer()
    yield server.address
    server.stop()


# Without Ray.


def told(*arguments: str, status: int = 1) -> str:
    """What the command says as it fails."""
    done = CliRunner().invoke(cluster, list(arguments))
    assert done.exit_code == status, done.output
    return re.sub(r"\s+", " ", done.output)


def test_without_ray_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    assert "pip install 'gradwire[cluster]'" in told("up")


@pytest.fixture
def ray_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: object())


@pytest.mark.usefixtures("ray_found")
def test_ray_is_not_opened_to_others_by_oversight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    for command in (("start",), ("join", "10.0.0.1:6379")):
        found = told(*command, "--host=10.0.0.1", f"--state-dir={tmp_path}", f"--folder={tmp_path}", status=2)
        assert "pass --private-network" in found


@pytest.mark.usefixtures("ray_found")
def test_a_missing_token_or_cluster_is_named(tmp_path: Path) -> None:
    joining = told("join", "10.0.0.1:6379", f"--state-dir={tmp_path}", f"--folder={tmp_path}")
    assert f"there is no {tmp_path}/token: copy it" in joining
    for command in (("status",), ("drain", "a:1"), ("down",)):
        assert f"no cluster is up in {tmp_path}" in told(*command, f"--folder={tmp_path}")
    assert f"there is no {tmp_path}/token" in told("status", f"--folder={tmp_path}", "--address=10.0.0.1:6379")


def marked(tmp_path: Path, token: str = "first") -> tuple[Path, Path]:
    """A state directory that a cluster uses, and another cluster's token."""
    for name in ("first", token):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o600)
    check_storage(tmp_path / "state", tmp_path / "first", joins=False)
    return tmp_path / "state", tmp_path / token


def test_two_clusters_on_one_storage_are_refused(tmp_path: Path) -> None:
    folder, second = marked(tmp_path, "second")
    check_storage(folder, tmp_path / "first", joins=True)  # the same cluster, once more
    with pytest.raises(CheckFailed, match=r"is another cluster's: its token differs.*delete .*state/cluster"):
        check_storage(folder, second, joins=False)


def test_a_directory_that_is_not_the_cluster_s_is_refused(tmp_path: Path) -> None:
    _, token = marked(tmp_path)
    with pytest.raises(CheckFailed, match=r"the cluster does not use .*local"):
        check_storage(tmp_path / "local", token, joins=True)
    assert not (tmp_path / "local").exists()
    (tmp_path / "older" / "servers").mkdir(parents=True)  # of a version that made no mark
    check_storage(tmp_path / "older", token, joins=True)


def test_storage_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, token = marked(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CheckFailed, match=r"state directory .*file/state cannot be written: Not a directory"):
        check_storage(tmp_path / "file" / "state", token, joins=False)

    def refuse(path: Path, data: bytes) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(CheckFailed, match="cannot be written: Read-only file system"):
        check_storage(folder, token, joins=True)


def test_a_machine_with_another_ray_or_python_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"ray": "2.60.0"}
    monkeypatch.setattr(checks.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(checks.sys, "version_info", (3, 11, 7, "final", 0))
    check_ray(tmp_path)  # the head's version wrote nothing
    note_ray(tmp_path)
    check_ray(tmp_path)
    versions["ray"] = "2.59.1"
    with pytest.raises(CheckFailed, match=r"has Ray 2\.59\.1 and Python 3\.11\.7, .* head has Ray 2\.60\.0 and Pyth"):
        check_ray(tmp_path)
    note_ray(tmp_path)  # a new head
    check_ray(tmp_path)
    monkeypatch.setattr(checks.sys, "version_info", (3, 11, 8, "final", 0))
    with pytest.raises(CheckFailed, match=r"3\.11\.8"):
        check_ray(tmp_path)
    monkeypatch.setenv("RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL", "minor")
    check_ray(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CheckFailed, match="Not a directory"):
        check_ray(tmp_path / "file")


def test_a_node_of_another_version_is_refused_by_name() -> None:
    nodes = {"a:1": "1.4.2", "b:1": ""}
    for fits in ("1.3.9", "1.4.0", "1.5.0", "unknown"):
        check_version(fits, nodes)
    for other in ("1.2.0", "1.6.0", "2.4.0"):
        with pytest.raises(CheckFailed, match=rf"this is gradwire {other}, and the node a:1 has 1\.4\.2"):
            check_version(other, nodes)


@pytest.mark.usefixtures("ray_found")
def test_what_is_not_safe_or_not_there_is_refused_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, token = marked(tmp_path, "token")
    command = ["join", "127.0.0.1:6379", f"--folder={tmp_path}"]
    assert "is another cluster's" in told(*command, f"--state-dir={state}")
    token.chmod(0o644)
    assert "others can read" in told(*command, f"--state-dir={state}")
    monkeypatch.setenv("RAY_USE_TLS", "1")
    monkeypatch.delenv("RAY_TLS_SERVER_CERT", raising=False)
    assert "needs RAY_TLS_SERVER_CERT" in told(*command, f"--state-dir={state}", status=2)


class Head(grpc.GenericRpcHandler):
    """A Ray's head, or another gRPC server, as far as a machine that joins asks it. Other calls wait."""

    def __init__(self, *known: str, token: str = "") -> None:
        self._known, self._token = known, token
        self._server = grpc.server(ThreadPoolExecutor(4), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> str:
        self._server.start()
        return self.address

    def __exit__(self, *error: object) -> None:
        self._server.stop(None)

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler | None":
        if not details.method.endswith(self._known):
            return None

        def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
            if self._token and ("authorization", f"Bearer {self._token}") not in context.invocation_metadata():
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def shared(tmp_path: Path) -> tuple[str, str]:
    """Arguments of a machine: a token, and a state directory that the cluster uses."""
    make_token(tmp_path / "token")
    check_storage(tmp_path / "state", tmp_path / "token", joins=False)
    return f"--state-dir={tmp_path}/state", f"--folder={tmp_path}"


@pytest.mark.usefixtures("ray_found")
def test_an_address_without_ray_is_told_at_once(shared: tuple[str, str]) -> None:
    port = f"--port={free_port()}"
    assert "at 127.0.0.1:1 cannot be reached: Connection refused" in told("join", "127.0.0.1:1", port, *shared)
    for wrong in ("127.0.0.1", "127.0.0.1:port", ":6379", "127.0.0.1:70000"):
        assert f"'{wrong}' is no address of Ray's head" in told("join", wrong, port, *shared)
    with running() as server:
        assert f"{server.address} is a gradwire server, not Ray's" in told("join", server.address, port, *shared)
        for command in (("status",), ("drain", "a:1"), ("down",), ("scale", "2"), ("targets",)):
            assert "is a gradwire server" in told(*command, f"--address={server.address}", shared[1])
    with Head("/Other") as address:
        assert f"{address} is a gRPC server, but not Ray's head" in told("join", address, port, *shared)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert f"{address} does not answer as Ray's head does" in told("join", address, port, *shared)


@pytest.mark.usefixtures("ray_found")
def test_a_token_that_the_head_does_not_know_is_told(shared: tuple[str, str]) -> None:
    with Head("/CheckAlive", token="of the head") as address:
        assert f"{address} refuses the token" in told("join", address, f"--port={free_port()}", *shared)
        assert f"{address} refuses the token" in told("status", f"--address={address}", shared[1])


@pytest.mark.usefixtures("ray_found")
def test_a_second_head_of_a_cluster_is_refused(tmp_path: Path, shared: tuple[str, str]) -> None:
    token, record = tmp_path / "token", FileRecord(tmp_path / "state")
    with Head("/CheckAlive", token=token.read_text()) as first:
        claim_head(first, token, [record])
        claim_head(first, token, [record])  # started again where it was
        check_head(first, [record])
        starting = ("start", f"--port={free_port()}", f"--ray-port={free_port()}", *shared)
        assert f"this cluster runs already: its Ray's head is at {first}, as the state directory" in told(*starting)
        assert record.read() == first
        address, port = first.rsplit(":", 1)
        for option, other in (("--port", "--ray-port"), ("--ray-port", "--port")):
            found = told("start", f"{option}={port}", f"{other}={free_port()}", *shared)
            assert f"something listens at {address}:{port} already" in found
    claim_head("10.0.0.9:6379", token, [record])  # the first one is gone
    with pytest.raises(CheckFailed, match=r"another head .* was started meanwhile, at 10\.0\.0\.9:6379"):
        check_head(first, [record])


@pytest.mark.usefixtures("ray_found")
def test_wrong_options_of_the_server_are_told_before_ray_starts(tmp_path: Path, shared: tuple[str, str]) -> None:
    (tmp_path / "tokens").write_text("hello")
    for option, why in (
        ("--bogus=3", "No such option '--bogus'"), ("--workers=none", "workers"),
        (f"--token-file={tmp_path}/none", "cannot be read"), (f"--token-file={tmp_path}/tokens", "line 1"),
    ):  # fmt: skip
        for command in (("join", "127.0.0.1:1"), ("start",)):
            done = CliRunner().invoke(cluster, [*command, f"--port={free_port()}", *shared, "--", option])
            assert done.exit_code in (1, 2) and why in done.output, done.output


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_does_not_start_is_told_with_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "servers").touch()  # not a directory
    line = [sys.executable, "-c", "from gradwire_server.cluster.cli import cluster; cluster()", "up", "--nodes=1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*line, f"--folder={tmp_path}"], capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 1 and "does not start" in done.stderr and "servers" in done.stderr, done.stderr
    assert not [pid for pid, _ in processes() if _of_cluster(pid, tmp_path)]


@pytest.mark.usefixtures("ray_found")
def test_a_port_that_ray_gives_to_its_workers_is_refused_for_its_head(tmp_path: Path) -> None:
    for port in (10_002, 19_999, 0, 65_536):
        found = told("start", f"--ray-port={port}", f"--state-dir={tmp_path}", f"--folder={tmp_path}", status=2)
        assert f"Ray's head cannot use the port {port}" in found


@pytest.mark.skipif(not RAY, reason="Ray is not installed")
def test_a_start_of_ray_that_takes_too_long_is_not_called_a_wrong_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_process, "_COMMAND_SECONDS", 0.0)
    with (tmp_path / "log").open("wb") as log, pytest.raises(RayError, match=r"did not end in .* too busy"):
        RayProcess.start("127.0.0.1", [], log, address="127.0.0.1:1")


@pytest.mark.skipif(not RAY, reason="Ray is not installed")
def test_a_signal_while_ray_starts_leaves_nothing_behind(shared: tuple[str, str]) -> None:
    with Head("/CheckAlive") as address:  # `ray start` waits for its other answers
        line = [sys.executable, "-c", "from gradwire_server.cluster.cli import cluster; cluster()", "join", address]
        joining = subprocess.Popen([*line, f"--port={free_port()}", *shared], stderr=subprocess.DEVNULL)

        def starting() -> bool:
            return any(f"--address={address}".encode() in b" ".join(words) for _, words in processes())

        until(starting, "`ray start`")
        time.sleep(1.0)  # until it is waited for
        joining.terminate()
        joining.wait(60)
        until(lambda: not starting(), "its end")


def test_prometheus_finds_the_nodes() -> None:
    loads = {"a:1": {"metrics": "a:9464"}, "b:1": {"metrics": ""}, "c:1": {}}
    assert cli.metrics_targets(loads) == [{"targets": ["a:9464"], "labels": {"node": "a:1"}}]


def test_a_token_is_private_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "new" / "token"
    make_token(path)
    first = path.read_text()
    make_token(path)
    assert path.read_text() == first
    assert len(first) == 64
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_but_the_command_imports_the_cluster_or_ray() -> None:
    code = (
        "import sys, gradwire, gradwire_server.app.cli, gradwire_server.registry.backend\n"
        "assert not {'ray', 'gradwire_server.cluster'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)

"""Each command is applied exactly once, even if connections break.

Training through a faulty proxy ends with the weights of the undisturbed run, bit for bit.

GRADWIRE_LONG_RUNS says how many of the long runs go through each kind of proxy: 20 in `make chaos`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import repeat
from typing import Any

import grpc
import numpy as np
import pytest

import gradwire
from gradwire._transport import local as _local
from gradwire._transport import retransmission
from gradwire._transport.embedded import EmbeddedServer
from gradwire.v1 import commands_pb2, service_pb2_grpc
from tests.client.faulty_proxy import FaultyProxy
from tests.client.proxy import CuttingProxy
from tests.server.harness import until

# Seconds before a session connects again. A run is cut some fifty times, and would do little but wait.
FIRST_WAIT = 0.005
LONG_RUNS = int(os.environ.get("GRADWIRE_LONG_RUNS", "2"))


@contextmanager
def proxy(target: str, seed: int = 0, most_bytes: int = 0) -> Iterator[FaultyProxy]:
    """Before a server's address; streams go there, too."""
    running = FaultyProxy(target, seed, most_bytes)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GRADWIRE_LOCAL_STREAM", "0")
        patched.setattr(retransmission, "_FIRST_BACKOFF", FIRST_WAIT)
        try:
            yield running
        finally:
            running.stop()


@contextmanager
def local_proxy(target: str, seed: int = 0, most_bytes: int = 0) -> Iterator[FaultyProxy]:
    """Before a server's local streams, whatever their name. `address` is that of the server's, which is left alone."""
    running = FaultyProxy("", seed, most_bytes, abstract=True)
    name, running.address = running.address, target
    connected = _local._connected

    def connect(wanted: str) -> socket.socket:
        running.target = f"\0{wanted}"
        return connected(name[1:])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_local, "_connected", connect)
        patched.setattr(retransmission, "_FIRST_BACKOFF", FIRST_WAIT)
        try:
            yield running
        finally:
            running.stop()


WAYS = pytest.mark.parametrize("spoiled", [proxy, local_proxy], ids=["grpc", "local"])


def train(address: str, steps: int) -> "tuple[list[float], list[bytes]]":
    """Losses and weights of a small network with dropout, which shows whether a random draw happened twice."""
    rng = np.random.default_rng(5)
    losses = []
    session = gradwire.connect(address)
    gradwire.manual_seed(7)
    inputs = gradwire.tensor(rng.standard_normal((8, 6), np.float32))
    weights = [
        gradwire.tensor(rng.standard_normal(shape, np.float32), requires_grad=True) for shape in ((6, 10), (10, 3))
    ]
    velocities = [gradwire.zeros_like(weight) for weight in weights]
    for step in range(steps):
        hidden = gradwire.nn.functional.dropout((inputs @ weights[0]).tanh(), 0.2)
        loss = (hidden @ weights[1] - 1.0).pow(2).mean()
        loss.backward()
        with gradwire.no_grad():
            for weight, velocity in zip(weights, velocities, strict=True):
                velocity.mul_(0.9).add_(weight.grad)
                weight -= 0.01 * velocity
                weight.grad = None
        if step % 7 == 0:
            losses.append(loss.item())
    values = [weight.detach().numpy().tobytes() for weight in weights]
    session.close()
    return losses, values


@cache
def undisturbed(address: str, steps: int) -> "tuple[list[float], list[bytes]]":
    return train(address, steps)


def check_seed(spoiled: Any, server_address: str, seed: int, steps: int, most_bytes: int) -> None:
    with spoiled(server_address, seed, most_bytes) as spoiling:
        found = train(spoiling.address, steps)
    assert spoiling.cuts >= 2, "nothing was spoiled"
    assert found == undisturbed(server_address, steps)


@WAYS
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_those_of_the_undisturbed_run(server_address, seed, spoiled):
    check_seed(spoiled, server_address, 100 + seed, steps=150, most_bytes=20_000)


@pytest.mark.parametrize("seed", range(2))
def test_connections_that_reach_the_server_twice_change_nothing(server_address, seed):
    with proxy(server_address, 300 + seed, most_bytes=20_000) as spoiling:
        spoiling.twin_every = 2
        found = train(spoiling.address, 150)
    assert spoiling.doubled >= 2
    assert found == undisturbed(server_address, 150)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "spoiled"), [(seed, spoiled) for seed in range(LONG_RUNS) for spoiled in (proxy, local_proxy)]
)
def test_a_thousand_steps_are_those_of_the_undisturbed_run(server_address, seed, spoiled):
    check_seed(spoiled, server_address, seed, steps=1000, most_bytes=30_000)


@pytest.fixture(scope="module")
def serving() -> Iterator[str]:
    """The address of a server whose sessions live in worker processes."""
    command = [sys.executable, "-m", "gradwire_server", "--port=0", "--workers=1", "--log-format=json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["address"])
        finally:
            process.terminate()


@WAYS
@pytest.mark.parametrize("seed", range(2))
def test_with_worker_processes_the_weights_are_those_too(serving, seed, spoiled):
    check_seed(spoiled, serving, 200 + seed, steps=150, most_bytes=20_000)


@pytest.mark.parametrize(
    ("spoiled", "budgets"), [(proxy, range(1, 900, 11)), (local_proxy, range(1, 170, 2))], ids=["grpc", "local"]
)
def test_any_of_the_first_bytes_may_be_the_last(server_address, spoiled, budgets):
    with spoiled(server_address) as between:
        session = gradwire.connect(between.address)
        x = gradwire.zeros(3)
        for turn, budget in enumerate(budgets):
            between.budget = budget  # of the next connection alone
            between.cut_all()
            x += 1.0
            assert x.tolist() == [turn + 1.0] * 3
        session.close()
    assert between.cuts >= turn / 2  # a connection with bytes to spare was not cut


def test_a_server_that_cannot_be_reached_for_a_while_is_waited_for(server_address):
    with proxy(server_address) as between:
        session = gradwire.connect(between.address)
        x = gradwire.ones(2)
        between.target = "127.0.0.1:1"
        between.cut_all()
        back = threading.Timer(0.7, lambda: setattr(between, "target", server_address))
        back.start()
        assert (x + 1.0).tolist() == [2.0, 2.0]
        back.join()
        session.close()


def test_an_absent_server_gives_an_error_at_this_and_each_later_use(server_address):
    with proxy(server_address) as between:
        session = gradwire.connect(between.address)
        x = gradwire.ones(2)
    session._retransmission.patience = session._transport.patience = 0.3  # to connect may take longer
    for _ in range(2):
        with pytest.raises(
            gradwire.GradwireConnectionError, match=r"gave up after .*GRADWIRE_PATIENCE.* cannot be reached"
        ) as caught:
            x.tolist()
        assert caught.value.reason == "UNAVAILABLE"
    with pytest.raises(gradwire.GradwireConnectionError):
        session.sync()


class Clock:
    """time.monotonic() for the retransmission alone, which a test may put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def test_patience_counts_from_the_last_answer(server_address, monkeypatch):
    """Several outages, each shorter than the patience, may last longer in sum. Time without requests does not count."""
    clock = Clock()
    monkeypatch.setattr(retransmission, "time", clock)
    with proxy(server_address) as between:
        session = gradwire.connect(between.address, patience=100.0)
        x = gradwire.zeros(2)
        clock.ahead += 101.0
        for turn in range(3):
            between.target = "127.0.0.1:1"
            between.cut_all()

            def outlast() -> None:
                until(lambda: session._retransmission._failing_since is not None, "the outage")
                clock.ahead += 60.0
                failures = session._retransmission._failures
                until(lambda: session._retransmission._failures > failures + 2, "another failed attempt")
                between.target = server_address

            back = threading.Thread(target=outlast)
            back.start()
            x += 1.0
            assert x.tolist() == [turn + 1.0] * 2
            back.join()
        monkeypatch.undo()
        session.close()


@pytest.mark.timeout(60)
def test_a_batch_that_no_connection_carries_ends_with_an_error(server_address, monkeypatch):
    """Each connection attaches, so the server answers; but it breaks before the batch has arrived."""
    monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "0")
    monkeypatch.setattr(retransmission, "_LONGEST_BACKOFF", 0.05)
    between = CuttingProxy(server_address, repeat(100_000))
    try:
        gradwire.connect(between.address, patience=0.3)
        with pytest.raises(gradwire.GradwireConnectionError, match=r"\d+ connections broke before a batch of 800,"):
            gradwire.tensor(np.zeros(200_000, np.float32)).tolist()  # within the limit of one message
        assert between.broken > 10
    finally:
        between.close()


def test_a_long_computation_outlasts_broken_links(server_address, monkeypatch):
    """A link that lasted has carried its batches."""
    clock = Clock()
    monkeypatch.setattr(retransmission, "time", clock)
    session = gradwire.connect(server_address, patience=100.0)
    sender = session._retransmission
    cut = gradwire.GradwireConnectionError("cut")
    sender.in_flight.append(retransmission.InFlightBatch(1, [None], b"", 1))

    def break_links(count: int) -> None:
        for _ in range(count):
            sender._attached_at = clock.monotonic()
            sender._count_broken(cut)

    break_links(20)
    clock.ahead += 2_000.0
    sender._count_broken(cut)
    break_links(20)
    clock.ahead += 1_001.0
    with pytest.raises(gradwire.GradwireConnectionError, match="21 connections broke before a batch"):
        break_links(1)
    monkeypatch.undo()
    sender.clear()
    session.close()


def test_the_setting_is_a_variable_too_and_a_positive_number(server_address, monkeypatch):
    monkeypatch.setenv("GRADWIRE_PATIENCE", "77")
    session = gradwire.connect(server_address)
    assert session._retransmission.patience == 77.0
    session.close()
    monkeypatch.setenv("GRADWIRE_PATIENCE", "soon")
    with pytest.raises(ValueError, match="GRADWIRE_PATIENCE is a positive number of seconds, not 'soon'"):
        gradwire.connect(server_address)
    with pytest.raises(ValueError, match="patience is a positive number of seconds, not -1"):
        gradwire.connect(server_address, patience=-1)


def stopped_server() -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "gradwire_server", "--port=0", "--workers=1", "--log-format=json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)


@pytest.mark.parametrize("local", ["0", "1"])
def test_a_server_that_was_stopped_is_given_up_after_the_patience_and_waited_for_until_then(local, monkeypatch):
    monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", local)
    with stopped_server() as server:
        assert server.stdout is not None
        try:
            address = str(json.loads(server.stdout.readline())["address"])
            session = gradwire.connect(address, patience=100.0)
            x = gradwire.zeros(2)
            server.send_signal(signal.SIGSTOP)
            back = threading.Timer(1.0, lambda: server.send_signal(signal.SIGCONT))
            back.start()
            x += 1.0
            assert x.tolist() == [1.0] * 2
            back.join()
            session._retransmission.patience = session._transport.patience = 1.0
            server.send_signal(signal.SIGSTOP)
            with pytest.raises(gradwire.GradwireConnectionError, match=r"gave up after .*without an answer"):
                (x + 1.0).tolist()
        finally:
            server.send_signal(signal.SIGCONT)
            server.terminate()


def test_a_server_that_computes_for_longer_than_the_patience_is_waited_for(server_address):
    session = gradwire.connect(server_address, patience=0.3)
    x = gradwire.full((500, 500), 1e-3)
    y = x
    for _ in range(60):
        y = y @ x
    assert y.isfinite().all().item()
    session.close()


def test_a_server_that_has_forgotten_the_session_is_another_error(server_address):
    other = EmbeddedServer()
    with proxy(server_address) as between:
        session = gradwire.connect(between.address)
        x = gradwire.ones(2)
        between.target = other.address
        between.cut_all()
        with pytest.raises(gradwire.GradwireError, match="no longer has this session") as caught:
            x.tolist()
        assert caught.value.reason == "SESSION_NOT_FOUND"
        assert not isinstance(caught.value, gradwire.GradwireConnectionError)
        assert gradwire.connect(between.address) is not session
        assert gradwire.ones(2).tolist() == [1.0, 1.0]
        gradwire.current_session().close()
    other.stop()


def test_a_unary_call_repeated_with_its_request_id_applies_once(server_address):
    session = gradwire.connect(server_address)
    x = gradwire.zeros(1)
    session.sync()
    with proxy(server_address, seed=3, most_bytes=1500) as spoiling:
        repeats = 0
        for turn in range(100):
            request = commands_pb2.OpRequest(session_id=session.session_id, op="add_", request_id=f"turn {turn}")
            request.args.add(tensor=x._id)
            request.args.add(float=1.0)
            for _ in range(100):
                with grpc.insecure_channel(spoiling.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                    try:
                        service_pb2_grpc.AutogradServiceStub(channel).Op(request)
                        break
                    except grpc.RpcError:
                        repeats += 1
    assert repeats > 10
    assert x.tolist() == [100.0]
    session.close()


def test_a_producer_faster_than_the_server_holds_bounded_memory(server_address):
    """The credit is 16 MiB. Beyond it, the client holds its buffer, one batch, and gRPC's copy of one."""
    code = """
    import resource
    import numpy as np
    import gradwire

    values = np.ones((500, 500), np.float32)
    session = gradwire.current_session()
    def step():
        x = gradwire.from_numpy(values)
        for _ in range(3):
            x = x @ x * 1e-3
    for _ in range(4):
        step()
    session.sync()
    start, most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for _ in range(120):
        step()
        most = max(most, sum(flight.size for flight in session._retransmission.in_flight))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    print(grown // 1024, most >> 20)
    session.sync()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GRADWIRE_ADDRESS": server_address},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    grown, most = map(int, done.stdout.split())
    assert 8 <= most <= 16  # of 114 MiB, and the credit was used
    assert grown <= 64

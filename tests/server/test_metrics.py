"""Metrics: what Prometheus is told is what happened, over all workers, and nobody who does not ask pays for it."""

import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2
from gradwire_engine import REGISTRY
from gradwire_server.app.metrics import Metrics
from gradwire_server.auth import tokens as token_files
from gradwire_server.auth.tokens import Tokens
from tests.server.harness import WAIT, Id, Remote, Running, command, op, payload, refused, running, until
from tests.server.test_process import info, process, ready

import numpy as np  # isort: skip

SERVICE = service_pb2.DESCRIPTOR.services_by_name["AutogradService"]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Page:
    """The metrics of a running server, over HTTP."""

    def __init__(self, server: Running) -> None:
        async def make() -> Metrics:
            return Metrics(server.server, server.backend)

        self.metrics = server.do(make())
        self.address = self.metrics.start("127.0.0.1", 0)

    def samples(self) -> Samples:
        host, port = self.address
        return samples(f"http://{host}:{port}/metrics")


def samples(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=WAIT) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def value(told: Samples, name: str, **labels: str) -> float:
    return told.get((f"gradwire_{name}", frozenset(labels.items())), 0.0)


@contextmanager
def measured(**options: Any) -> Iterator[tuple[Running, Page]]:
    with running(counts=True, **options) as server:
        page = Page(server)
        try:
            yield server, page
        finally:
            page.metrics.close()


def work(session: Remote) -> None:
    """Seven commands: one is refused, and one needs it."""
    session.run(
        command(c.CreateRequest(id=1, requires_grad=True, payload=payload(np.ones(1000, np.float32)))),
        command(op("mul", Id(1), Id(1), outputs=[2])),
        command(op("sum", Id(2), outputs=[3])),
        command(c.BackwardRequest(tensors=[3])),
        command(op("mul", Id(1), Id(999), outputs=[4])),
        command(op("no_such_op", Id(1), outputs=[5])),
        command(op("add_", Id(2), Id(2)), quiet=True),
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_commands_errors_times_and_what_is_held_are_told(workers: int) -> None:
    with measured(workers=workers) as (server, page):
        sessions = [server.open() for _ in range(4)]
        for session in sessions:
            work(session)
        sessions[0].op("exp", Id(1), outputs=[10])
        refused(sessions[0].op, "exp", Id(77))
        told = page.samples()
        assert value(told, "commands_total", command="op", op="mul") == 8
        assert value(told, "commands_total", command="op", op="add_") == 4
        assert value(told, "commands_total", command="op", op="exp") == 2
        assert value(told, "commands_total", command="backward", op="") == 4
        missing = {"code": "NOT_FOUND", "reason": "TENSOR_NOT_FOUND"}
        assert value(told, "errors_total", command="op", op="mul", **missing) == 4
        assert value(told, "errors_total", command="op", op="exp", **missing) == 1
        assert value(told, "errors_total", command="op", op="", code="UNIMPLEMENTED", reason="OP_UNKNOWN") == 4
        assert value(told, "refused_calls_total", method="Op", **missing) == 1
        assert value(told, "batch_commands_count") == 4
        assert value(told, "batch_commands_sum") == 28
        assert value(told, "batch_commands_bucket", le="8.0") == 4
        for name in ("queue_seconds", "compute_seconds"):
            assert value(told, f"{name}_count") == 6
            assert 0 < value(told, f"{name}_sum") < 60
            assert value(told, f"{name}_bucket", le="+Inf") == 6
        assert value(told, "sessions") == value(told, "sessions_opened_total") == 4
        assert value(told, "tensors") == 4 * 3 + 1
        assert value(told, "bytes", device="cpu") == server.held() > 4 * 8000
        for session in sessions:
            session.close()
        told = page.samples()
        assert value(told, "sessions") == value(told, "tensors") == value(told, "bytes", device="cpu") == 0
        assert value(told, "commands_total", command="op", op="mul") == 8  # what has been does not go back


def test_calls_of_prepared_ops_are_counted_by_op() -> None:
    with measured() as (server, page):
        session = server.open()
        session.create(np.ones(3), tensor_id=1)
        words = np.array([0, 1, 10, 0, 1, 11, 0, 999, 12], "<u8").tobytes()
        prepared = c.Prepare(number=0, op=op("exp", Id(0), outputs=[0]))
        session.run(
            service_pb2.Command(prepare=prepared, quiet=True),
            service_pb2.Command(calls=c.Calls(count=3, words=words)),
        )
        told = page.samples()
        assert value(told, "commands_total", command="op", op="exp") == 3
        missing = {"code": "NOT_FOUND", "reason": "TENSOR_NOT_FOUND"}
        assert value(told, "errors_total", command="op", op="exp", **missing) == 1
        assert value(told, "batch_commands_sum") == 4


def test_labels_are_the_contracts_whatever_clients_send() -> None:
    with measured() as (server, page):
        session = server.open(client="evil\n" * 10)
        for name in ("x" * 2000, "mul\n", "__class__", 'a"b'):
            refused(session.op, name)
            session.run(command(op(name, outputs=[100])))
        told = page.samples()
        ops = {dict(labels).get("op") for (name, labels) in told if name.startswith("gradwire_")} - {None, ""}
        assert ops <= set(REGISTRY) | {f"{name}_" for name in REGISTRY}
        assert len(told) < 200


def test_commands_that_were_cancelled_before_they_began_are_counted_too() -> None:
    with measured() as (server, page):
        session = server.open()
        session.op("zeros", [1])
        session.stub.Cancel(service_pb2.CancelRequest(session_id=session.id, writer=1, through_seq=2))
        answer = session.run(*(command(op("zeros", [1], outputs=[10 + n])) for n in range(3)))
        assert [result.HasField("error") for result in answer.results] == [True, True, False]
        told = page.samples()
        assert value(told, "commands_total", command="op", op="zeros") == 4
        cancelled = {"code": "CANCELLED", "reason": "CANCELLED"}
        assert value(told, "errors_total", command="op", op="zeros", **cancelled) == 2


def test_no_stranger_makes_names_or_labels() -> None:
    """Whatever is in a request, its headers or its path: the page's lines are of the contract's names."""
    with measured() as (server, page):
        session = server.open()
        work(session)

        def attack(number: int) -> None:
            name = f"evil{number}"
            strange = server.channel.unary_unary(f"/gradwire.v1.AutogradService/{name}")
            elsewhere = server.channel.unary_unary(f"/{name}/OpenSession")
            described = server.channel.unary_unary("/gradwire.v1.AutogradService/Describe")
            metadata = ((name, name), ("traceparent", name), ("user-agent", name), ("authorization", f"Bearer {name}"))
            for method in (strange, elsewhere, described):
                with pytest.raises(grpc.RpcError):
                    method(name.encode(), metadata=metadata)
            opened = server.open(client=name)
            refused(opened.op, name)
            refused(session.stub.Describe, c.DescribeRequest(session_id=name))
            opened.run(
                command(op(name, outputs=[7])),
                service_pb2.Command(prepare=c.Prepare(number=number, op=op(name, outputs=[0]))),
                command(op("mul", Id(number), Id(number), named={name: 1.0}, outputs=[8])),
            )
            opened.close()

        for number in range(30):
            attack(number)
        told = page.samples()
        methods = {dict(labels)["method"] for _, labels in told if "method" in dict(labels)}
        assert methods <= set(SERVICE.methods_by_name)
        assert not [labels for _, labels in told if "evil" in str(labels)]
        assert len(told) < 200


def test_expired_leases_and_refused_opens_are_told() -> None:
    with measured(max_sessions=2) as (server, page):
        server.open()
        server.open()
        refused(server.open)
        server.clock.now += 1000.0
        server.sweep()
        told = page.samples()
        full = {"method": "OpenSession", "code": "RESOURCE_EXHAUSTED", "reason": "SESSION_LIMIT"}
        assert value(told, "refused_calls_total", **full) == 1
        assert value(told, "lease_expiries_total") == 2
        assert value(told, "sessions") == 0


def test_strangers_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    _, line = token_files.make("alice", frozenset(), None)
    token_files.append(path, line)
    with measured(tokens=Tokens(path)) as (server, page):
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                server.open()
        assert value(page.samples(), "auth_failures_total") == 3


def test_a_worker_that_ends_is_counted_and_its_counts_are_kept() -> None:
    with measured(workers=1) as (server, page):
        work(server.open())
        assert value(page.samples(), "commands_total", command="op", op="mul") == 2
        os.kill(server.backend.workers[0].pid, signal.SIGKILL)
        until(lambda: value(page.samples(), "worker_restarts_total") == 1)
        until(lambda: value(page.samples(), "workers") == 1)
        work(server.open())
        told = page.samples()
        assert value(told, "commands_total", command="op", op="mul") == 4
        assert value(told, "sessions") == 1


def test_bytes_on_a_gpu_are_those_of_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradwire_server.worker import runtime as host

    monkeypatch.setattr(host, "pools", lambda: {"cuda:0": (1000, 4096)})
    with measured() as (server, page):
        server.open().create(np.ones(1000, np.float64), dtype="float64")
        told = page.samples()
        assert value(told, "bytes", device="cuda:0") == 1000
        assert value(told, "bytes", device="cpu") == 7000
        assert value(told, "gpu_pool_bytes", device="cuda:0") == 4096


def test_a_port_for_metrics_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process("--port=0", "--workers=1", f"--metrics={port}") as started:
            _, errors = started.communicate(timeout=WAIT)
    assert started.returncode == 1
    assert f"cannot listen for metrics at {port}" in errors
    assert "Traceback" not in errors


def test_draining_is_told() -> None:
    with measured() as (server, page):
        assert value(page.samples(), "draining") == 0
        server.server.front.draining = True
        assert value(page.samples(), "draining") == 1


def test_serve_answers_at_the_port_that_was_asked_for_and_only_then(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        log.open("w") as written,
        process("--port=0", "--workers=1", "--metrics=0", "--log-format=json", stderr=written) as started,
    ):
        address = ready(started)
        assert info(address).version
        (line,) = [line for line in log.read_text().splitlines() if "metrics" in line]
        url = line.partition('"address": "')[2].partition('"')[0]
        assert url.startswith("http://127.0.0.1:")
        told = samples(url)
        assert value(told, "workers") == 1
        assert ("process_resident_memory_bytes", frozenset()) in told
        started.terminate()
        assert started.wait(60) == 0
    with running() as server:
        assert server.backend.runtime.meter is None


@pytest.mark.parametrize("given", ["localhost", ":80", "1.2.3.4:99999", "host:", "x:y"])
def test_a_wrong_address_for_metrics_is_refused(given: str) -> None:
    with process("--port=0", f"--metrics={given}") as started:
        _, errors = started.communicate(timeout=WAIT)
        assert started.returncode == 2
        assert "--metrics: an address is HOST:PORT" in errors

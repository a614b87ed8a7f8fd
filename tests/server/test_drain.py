"""How a server ends: it says so, takes nothing new, lets what runs finish, and exits with 0."""

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest

from gradwire.v1 import service_pb2
from gradwire_server.app.healthcheck import serving_status
from tests.server.harness import Id, command, op, refused, until
from tests.server.test_metrics import samples, value
from tests.server.test_process import WAIT, connected, opened, process, ready
from tests.server.test_stream import Streaming


class Serving:
    """A server's process, its address, its metrics, and a session on it."""

    def __init__(self, started: "subprocess.Popen[str]", address: str, page: str, channel: grpc.Channel) -> None:
        self.started, self.address, self.page, self.channel = started, address, page, channel
        self.session = opened(channel)
        self.x = self.session.create(np.zeros((300, 300)))

    def batch(self, count: int) -> service_pb2.RunRequest:
        """So many products, and a sum that is answered."""
        products = [command(op("matmul", Id(self.x), Id(self.x), outputs=[100 + n]), quiet=True) for n in range(count)]
        return self.session.batch(*products, command(op("sum", Id(99 + count), outputs=[99_999])))

    def until(self, name: str, wanted: float) -> None:
        """Wait until a metric has a value."""
        until(lambda: value(samples(self.page), name) == wanted, name)

    def drains(self) -> None:
        """Wait until it says that it takes nothing new."""
        until(lambda: serving_status(self.address) == "NOT_SERVING")

    @contextmanager
    def computing_slowly(self) -> Iterator[None]:
        """What is computed is not done before the end of the block, however quick the machine is."""
        (worker,) = psutil.Process(self.started.pid).children()
        worker.suspend()
        try:
            yield
        finally:
            worker.resume()


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Serving]:
    log = folder / "log"
    with log.open("w") as written:
        line = ["--port=0", "--workers=1", "--metrics=0", "--max-session-bytes=8GiB", "--max-bytes=8GiB", *arguments]
        with process(*line, stderr=written) as started:
            address = ready(started)
            (found,) = [line for line in log.read_text().splitlines() if "address=" in line]
            with connected(address) as channel:
                yield Serving(started, address, found.rpartition("address=")[2], channel)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_finished_and_answered_before_the_end(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--grace-seconds=100") as server:
        with server.computing_slowly():
            busy = server.session.stub.Run.future(server.batch(50))
            server.until("active_calls", 1)
            server.started.send_signal(number)
            server.drains()
        answer = busy.result(WAIT)
        assert (answer.applied_seq, [each.WhichOneof("result") for each in answer.results]) == (51, ["op"])
        assert server.started.wait(WAIT) == 0


def test_while_it_drains_it_says_so_and_takes_nothing_new(tmp_path: Path) -> None:
    with serving(tmp_path, "--grace-seconds=100") as server:
        busy = server.session.stub.Run.future(server.batch(9000))
        server.until("active_calls", 1)
        with server.computing_slowly():
            assert serving_status(server.address) == "SERVING"
            server.started.terminate()
            server.drains()
            assert serving_status(server.address) == "NOT_SERVING"
            assert serving_status(server.address, "gradwire.v1.AutogradService") == "NOT_SERVING"
            for call, request in (
                (server.session.stub.OpenSession, service_pb2.OpenSessionRequest()),
                (server.session.stub.Op, op("exp", Id(server.x), session_id=server.session.id)),
            ):
                assert refused(call, request)[:2] == ("UNAVAILABLE", "UNAVAILABLE")
            assert not busy.done()
            # What helps to an end is taken still.
            server.session.stub.Cancel(service_pb2.CancelRequest(session_id=server.session.id))
        answer = busy.result(WAIT)
        assert answer.applied_seq == 9001
        assert answer.results[-1].error.message.startswith("cancelled by the client")
        assert server.started.wait(WAIT) == 0


def test_what_outlasts_the_grace_is_given_up_and_the_end_is_well(tmp_path: Path) -> None:
    with serving(tmp_path, "--grace-seconds=0.2") as server, ThreadPoolExecutor(1) as pool:
        busy = pool.submit(server.session.stub.Run, server.batch(9000))
        server.until("active_calls", 1)
        server.started.terminate()
        assert server.started.wait(WAIT) == 0
        failure = busy.exception(WAIT)
        assert isinstance(failure, grpc.RpcError) or busy.result().results[-1].HasField("error")


def test_a_stream_that_is_open_does_not_hold_the_end_up(tmp_path: Path) -> None:
    with serving(tmp_path, "--grace-seconds=100") as server:
        stream = Streaming(server.session)
        stream.attached()
        server.started.terminate()
        with pytest.raises(grpc.RpcError) as ended:
            next(stream.call)
        stream.close()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert server.started.wait(WAIT) == 0

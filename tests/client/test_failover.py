"""Servers share a state directory with write-ahead logs. A session continues at another one, bit for bit."""

import signal
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import gradwire
from gradwire._transport.credentials import Credentials
from gradwire._transport.transport import Transport
from gradwire.v1 import commands_pb2, service_pb2, service_pb2_grpc
from tests.certificates import Authority
from tests.client.sharing import sharing, train
from tests.server.harness import WAIT, Id, op, refusal, until

STEPS = 40


@pytest.fixture(scope="module")
def undisturbed(server_address: str) -> str:
    return train(server_address, STEPS)


@pytest.mark.slow
def test_training_continues_at_another_server_after_each_kill(undisturbed: str, tmp_path: Path) -> None:
    with sharing(tmp_path, 3, "--durability=log", "--snapshot-every=0.3") as nodes:
        addresses = [node.endpoint for node in nodes]
        used = []

        def disturb(step: int) -> None:
            if step in (12, 27):
                here = gradwire.current_session().address
                used.append(here)
                nodes[addresses.index(here)].kill()

        assert train(",".join(addresses), STEPS, disturb) == undisturbed
    assert len(set(used)) == 2


@pytest.mark.slow
def test_training_continues_at_another_server_while_one_is_frozen(undisturbed: str, tmp_path: Path) -> None:
    """The frozen server continues later, and answers nothing of a session that it no longer owns."""
    with sharing(tmp_path, 2, "--durability=log") as nodes:
        first, second = (node.endpoint for node in nodes)

        def disturb(step: int) -> None:
            if step == 15:
                nodes[0].signal(signal.SIGSTOP)
            elif step == 20:  # the session has continued before the frozen server does
                assert gradwire.current_session().address == second
                nodes[0].signal(signal.SIGCONT)

        assert train(f"{first},{second}", STEPS, disturb) == undisturbed


class Writer:
    """Adds to a tensor at servers in turn, as a client of another language does: each addition has a request id."""

    def __init__(self, name: str, addresses: list[str], session_id: str, tensor: int) -> None:
        self.name, self.session_id, self.tensor = name, session_id, tensor
        self.channels = [grpc.insecure_channel(address) for address in addresses]
        self.reasons: list[str] = []
        self._stub: Any = service_pb2_grpc.AutogradServiceStub(self.channels[0])

    def add(self, number: int) -> None:
        """Add one. Repeats the call at this server until it is answered, or elsewhere if the session has moved."""
        request = op("add_", Id(self.tensor), 1.0, session_id=self.session_id, request_id=f"{self.name}-{number}")
        ends = time.monotonic() + WAIT
        while True:
            try:
                self._stub.Op(request, timeout=WAIT)
                return
            except grpc.RpcError as error:
                if time.monotonic() > ends:
                    raise
                _, reason, _ = refusal(error)
                self.reasons.append(reason)
                if reason == "SESSION_MOVED":
                    self.channels.append(self.channels.pop(0))
                    self._stub = service_pb2_grpc.AutogradServiceStub(self.channels[0])
                elif reason != "UNAVAILABLE":
                    raise
                time.sleep(0.01)


@pytest.mark.slow
def test_two_writers_at_two_servers_during_a_split_are_each_answered_once(tmp_path: Path) -> None:
    """The first server is frozen with calls in it; the second takes the session over; the first continues."""
    with sharing(tmp_path, 2, "--durability=log") as (first, second):
        with gradwire.connect(first.endpoint) as session:
            total = gradwire.zeros(1)
            total.item()
        writers = [
            Writer("a", [first.endpoint, second.endpoint], session.session_id, total._id),
            Writer("b", [second.endpoint, first.endpoint], session.session_id, total._id),
        ]
        done = threading.Event()
        counts = [0, 0]

        def write(index: int) -> None:
            while not done.is_set():
                writers[index].add(counts[index])
                counts[index] += 1

        threads = [threading.Thread(target=write, args=(index,)) for index in (0, 1)]
        threads[0].start()
        until(lambda: counts[0] > 5)
        first.signal(signal.SIGSTOP)
        threads[1].start()  # finds that the first server does not answer
        until(lambda: counts[1], "the second server's answer")
        before = counts[0]
        first.signal(signal.SIGCONT)
        until(lambda: "SESSION_MOVED" in writers[0].reasons, "the first server's refusal of what it had not answered")
        until(lambda: counts[0] > before, "the first writer's next answer")
        done.set()
        for each in threads:
            each.join(WAIT)
        read = commands_pb2.ReadRequest(session_id=session.session_id, tensor=total._id)
        stub: Any = service_pb2_grpc.AutogradServiceStub(writers[1].channels[0])
        assert np.frombuffer(stub.Read(read).payload.data, np.float32).tolist() == [float(sum(counts))]
        for each in writers:
            for channel in each.channels:
                channel.close()


def test_a_server_that_another_one_named_proves_the_first_address_s_name(tmp_path: Path) -> None:
    """Its certificate has the name that the program knows, and not the server's own address."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("localhost")
    with sharing(tmp_path / "state", 1, "--host=127.0.0.2", f"--tls-cert={cert}", f"--tls-key={key}") as (node,):
        there = node.endpoint.replace("127.0.0.1", "127.0.0.2")
        credentials = Credentials(ca=authority.path)
        request, answer = service_pb2.ServerInfoRequest(), service_pb2.ServerInfoResponse
        following, direct = Transport("localhost:1", credentials), Transport(there, credentials)
        try:
            assert following.servers.move("localhost:1", there)
            assert following.call("ServerInfo", request, answer, waits=()).version
            with pytest.raises(gradwire.GradwireConnectionError):
                direct.call("ServerInfo", request, answer, waits=())
        finally:
            following.close()
            direct.close()

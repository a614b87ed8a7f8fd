"""Stream by WebSocket: the same numbers as the Python client's, resume, backpressure, refusals."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

import gradwire
from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2, types_pb2
from tests.server.harness import until
from tests.server.web.harness import Running, gateway_to

WAIT = 60


class Client:
    """A small client of Stream by WebSocket: it sends batches, keeps those that are unanswered, and resumes."""

    def __init__(self, gateway: Running) -> None:
        self.gateway = gateway
        opened = gateway.call("OpenSession")
        self.session, self.writer = opened["sessionId"], int(opened["writer"])
        self.next_id = int(opened["firstId"])
        self.seq, self.attempt, self.acknowledged = 1, 0, 0
        self.unanswered: list[service_pb2.RunRequest] = []
        self.socket: ClientConnection
        self.attach()

    def attach(self) -> None:
        self.attempt += 1
        self.socket = self.gateway.socket()
        attach = service_pb2.StreamAttach(
            session_id=self.session, writer=self.writer, attempt=self.attempt, acknowledged_seq=self.acknowledged
        )
        self.socket.send(service_pb2.StreamRequest(attach=attach).SerializeToString())
        assert self.received().WhichOneof("response") == "attached"
        for batch in self.unanswered:
            self.socket.send(service_pb2.StreamRequest(batch=batch).SerializeToString())

    def received(self) -> service_pb2.StreamResponse:
        message = self.socket.recv(WAIT)
        assert isinstance(message, bytes), message
        return service_pb2.StreamResponse.FromString(message)

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def send(self, *commands: service_pb2.Command) -> None:
        batch = service_pb2.RunRequest(first_seq=self.seq, acknowledged_seq=self.acknowledged, commands=commands)
        self.seq += len(commands)
        self.unanswered.append(batch)
        self.socket.send(service_pb2.StreamRequest(batch=batch).SerializeToString())

    def answer(self) -> service_pb2.RunResponse:
        response = self.received().batch
        batch = self.unanswered.pop(0)
        self.acknowledged = batch.first_seq + len(batch.commands) - 1
        return response

    def create(self, values: Any, requires_grad: bool = False) -> tuple[int, service_pb2.Command]:
        array = np.asarray(values, np.float32)
        payload = types_pb2.Payload(dtype=types_pb2.DTYPE_FLOAT32, shape=array.shape, data=array.tobytes())
        made = self.new_id()
        request = c.CreateRequest(id=made, payload=payload, requires_grad=requires_grad)
        return made, service_pb2.Command(create=request)

    def op(self, name: str, *inputs: int, **named: Any) -> tuple[int, service_pb2.Command]:
        made = self.new_id()
        args = [types_pb2.Argument(tensor=each) for each in inputs]
        args += [types_pb2.Argument(name=key, **value) for key, value in named.items()]
        outputs = [] if name.endswith("_") else [made]
        mode = types_pb2.GRAD_MODE_DISABLED if name.endswith("_") else types_pb2.GRAD_MODE_ENABLED
        return made, service_pb2.Command(op=c.OpRequest(op=name, args=args, outputs=outputs, grad_mode=mode))


def read(tensor: int) -> service_pb2.Command:
    return service_pb2.Command(read=c.ReadRequest(tensor=tensor))


def values_of(result: Any) -> np.ndarray[Any, Any]:
    assert result.WhichOneof("result") == "read", result
    payload = result.read.payload
    return np.frombuffer(payload.data, np.float32).reshape(payload.shape)


X, Y = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), np.arange(4, dtype=np.float32).reshape(4, 1)
W = np.array([[0.1], [-0.2], [0.3]], np.float32)
STEPS, RATE = 5, 0.05


def trained_by_python(address: str) -> np.ndarray[Any, Any]:
    """The same training by the Python client, in a process of its own connection."""
    with gradwire.connect(address):
        x, y = gradwire.tensor(X), gradwire.tensor(Y)
        w = gradwire.tensor(W, requires_grad=True)
        for _ in range(STEPS):
            loss = ((x.matmul(w) - y) * (x.matmul(w) - y)).sum()
            loss.backward()
            with gradwire.no_grad():
                w.add_(w.grad, alpha=-RATE)
            w.grad = None
        return w.detach().numpy()


def test_training_gives_the_python_clients_numbers(gateway: Running) -> None:
    client = Client(gateway)
    x, create_x = client.create(X)
    y, create_y = client.create(Y)
    w, create_w = client.create(W, requires_grad=True)
    client.send(create_x, create_y, create_w)
    client.answer()
    for _ in range(STEPS):
        a, first = client.op("matmul", x, w)
        d, second = client.op("sub", a, y)
        s, third = client.op("mul", d, d)
        loss, fourth = client.op("sum", s)
        backward = service_pb2.Command(backward=c.BackwardRequest(tensors=[loss]))
        gradient = client.new_id()
        grad = service_pb2.Command(grad=c.GradRequest(tensor=w, id=gradient))
        _, step = client.op("add_", w, gradient, alpha={"float": -RATE})
        clear = service_pb2.Command(set_grad=c.SetGradRequest(tensor=w))
        client.send(first, second, third, fourth, backward, grad, step, clear)
        assert all(result.WhichOneof("result") != "error" for result in client.answer().results)
    client.send(read(w))
    trained = values_of(client.answer().results[0])
    client.socket.close()
    np.testing.assert_array_equal(trained, trained_by_python(gateway.server))


def test_a_cut_socket_resumes_exactly_once(gateway: Running) -> None:
    client = Client(gateway)
    total, create = client.create([0.0])
    one, create_one = client.create([1.0])
    client.send(create, create_one)
    client.answer()
    for number in range(200):
        _, add = client.op("add_", total, one)
        client.send(add)
        if number % 20 == 7:  # cut without a goodbye; the batch may or may not have arrived
            client.socket.socket.close()
            client.attach()
        while len(client.unanswered) > 3:
            client.answer()
    while client.unanswered:
        client.answer()
    client.send(read(total))
    assert values_of(client.answer().results[0]).tolist() == [200.0]
    client.socket.close()


def test_a_refusal_ends_the_stream_with_its_details(gateway: Running) -> None:
    socket = gateway.socket()
    attach = service_pb2.StreamAttach(session_id="no<script>such", writer=1, attempt=1)
    socket.send(service_pb2.StreamRequest(attach=attach).SerializeToString())
    told = socket.recv(WAIT)
    assert isinstance(told, str)
    assert '"SESSION_NOT_FOUND"' in told
    with pytest.raises(ConnectionClosed) as closed:
        socket.recv(WAIT)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4000 + grpc.StatusCode.NOT_FOUND.value[0]


@pytest.mark.parametrize("junk", ["text", b"\xff" * 100, b"\xff" * (10 << 20)], ids=["text", "bytes", "large"])
def test_junk_ends_the_stream(gateway: Running, junk: Any) -> None:
    socket = gateway.socket()
    codes = []
    try:
        socket.send(junk)
        while True:
            socket.recv(WAIT)
    except ConnectionClosed as closed:
        codes = [closed.rcvd.code] if closed.rcvd else [1006]
    assert codes[0] in (4003, 4008, 1009, 1006)
    until(lambda: not any(user.streams for user in gateway.gateway.upstream._users.values()))


def test_a_client_that_reads_nothing_is_cut_off(open_server: str) -> None:
    """Answers wait in the server, not in the gateway; then the connection ends."""
    with gateway_to(open_server, write_seconds=1.0) as gateway:
        client = Client(gateway)
        large, create = client.create(np.zeros(1 << 17))
        client.send(create)
        client.answer()
        ended = threading.Event()

        def flood() -> None:
            try:
                for _ in range(400):  # 200 MiB of answers
                    client.send(read(large))
            except (ConnectionClosed, OSError):
                pass
            ended.set()

        client.socket.recv_messages.high = 1  # the library reads no further either
        threading.Thread(target=flood, daemon=True).start()
        user = next(iter(gateway.gateway.upstream._users.values()))
        until(lambda: user.streams == 0, "the stream was ended")
        client.socket.socket.close()
        assert ended.wait(WAIT)


def test_streams_of_a_user_are_limited(open_server: str) -> None:
    with gateway_to(open_server, max_user_streams=2) as gateway:
        opened = [gateway.socket(), gateway.socket()]
        with pytest.raises(InvalidStatus) as denied:
            gateway.socket()
        assert denied.value.response.status_code == 503
        opened.pop().close()
        until(lambda: all(user.streams == 1 for user in gateway.gateway.upstream._users.values()))
        gateway.socket().close()
        opened.pop().close()


def send_and_wait(socket: ClientConnection, fragments: Iterator[bytes]) -> None:
    socket.send(fragments)
    socket.recv(WAIT)


def test_endless_fragments_end_the_connection(gateway: Running) -> None:
    socket = gateway.socket()
    with pytest.raises(ConnectionClosed):
        send_and_wait(socket, (b"x" for _ in range(5000)))
    until(lambda: not any(user.streams for user in gateway.gateway.upstream._users.values()))


def test_many_sockets_that_come_and_go_leave_nothing(gateway: Running) -> None:
    for _ in range(30):
        socket = gateway.socket()
        socket.socket.close()
    users = gateway.gateway.upstream._users
    until(lambda: not any(user.streams or user.calls for user in users.values()))

"""The socket of local streams: who has it, and what a bad client there can do."""

import asyncio
import socket
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from gradwire.v1 import commands_pb2, service_pb2
from gradwire_server.auth.tokens import Tokens
from gradwire_server.rpc import local_streams, stream
from gradwire_server.rpc.local_streams import Connection
from tests.server.by_socket import LENGTH, SocketCall, framed
from tests.server.harness import Remote, Running, command, op, refusal, running, until
from tests.server.test_principals import House

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system has no such sockets")


def attach(session: Remote, **fields: Any) -> service_pb2.StreamRequest:
    return service_pb2.StreamRequest(attach=service_pb2.StreamAttach(session_id=session.id, writer=1, **fields))


def batch(first: int, *ops: Any) -> service_pb2.StreamRequest:
    commands = [command(each) for each in ops]
    return service_pb2.StreamRequest(batch=service_pb2.RunRequest(first_seq=first, commands=commands))


@pytest.fixture
def session(server: Running) -> Remote:
    return server.open()


@pytest.fixture
def call(session: Remote) -> Iterator[SocketCall]:
    made = SocketCall(session.opened.local_stream)
    yield made
    made.cancel()


def test_a_client_that_pads_the_address_has_a_socket_too(session: Remote) -> None:
    padded = f"\0{session.opened.local_stream}".encode().ljust(108, b"\0")  # as Node does
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.connect(padded)
        made.sendall(framed(attach(session).SerializeToString()))
        size = int.from_bytes(made.recv(4), "little")
        answer = service_pb2.StreamResponse.FromString(made.recv(size, socket.MSG_WAITALL))
        assert answer.attached.local_stream == session.opened.local_stream


def test_messages_may_come_in_any_pieces(session: Remote, call: SocketCall) -> None:
    call.send(attach(session))
    next(call)
    batches = [batch(seq, op("zeros", [1], outputs=[seq])) for seq in range(1, 40)]
    sent = b"".join(framed(each.SerializeToString()) for each in batches)
    sizes = [1, 2, 3, 4, 5, 50, 3, 1, 1, 300, 2]
    place = 0
    while place < len(sent):
        size = sizes[place % len(sizes)]
        call.socket.sendall(sent[place : place + size])
        place += size
    answered = 0
    while answered < len(batches):
        answered += next(call).batches or 1
    call.half_close()
    assert list(call) == []


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (LENGTH.pack(1 << 31), "MESSAGE_TOO_LARGE"),
        (LENGTH.pack((1 << 32) - 1) + b"x", "MESSAGE_TOO_LARGE"),
        (framed(b"\xff" * 40), "MALFORMED"),
        (framed(b""), "MALFORMED"),
        (framed(batch(1).SerializeToString()), "MALFORMED"),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", "MESSAGE_TOO_LARGE"),
        (LENGTH.pack(10) + b"short", "MALFORMED"),
        (b"", "MALFORMED"),
        (framed(service_pb2.StreamRequest(attach={"session_id": "x", "writer": 1}).SerializeToString()),
         "SESSION_NOT_FOUND"),
    ],
)  # fmt: skip
def test_what_is_no_stream_is_refused_by_name(session: Remote, call: SocketCall, sent: bytes, reason: str) -> None:
    call.socket.sendall(sent)
    call.half_close()
    with pytest.raises(Exception) as caught:
        next(call)
    assert refusal(caught.value)[1] == reason


def test_after_what_is_refused_nothing_is_applied(server: Running, session: Remote, call: SocketCall) -> None:
    call.send(attach(session))
    next(call)
    too_large = batch(1, op("zeros", [1], outputs=[1], named={"name": "x" * (1 << 20)}))
    call.socket.sendall(b"".join(framed(each.SerializeToString()) for each in (too_large, batch(1, op("zeros", [1])))))
    with pytest.raises(Exception) as caught:
        next(call)
    assert refusal(caught.value)[1] == "MESSAGE_TOO_LARGE"
    call.cancel()
    server.settle()
    again = SocketCall(session.opened.local_stream)
    again.send(attach(session, attempt=2))
    assert next(again).attached.applied_seq == 0
    again.cancel()


def test_answers_come_in_order_though_their_reader_is_slow(
    monkeypatch: pytest.MonkeyPatch, session: Remote, call: SocketCall
) -> None:
    """Each batch comes alone; the first answers are written at once, the others when there is room."""
    tries: list[bool] = []
    at_once = Connection.try_write

    def try_write(connection: Connection, message: bytes) -> bool:
        tries.append(at_once(connection, message))
        return tries[-1]

    def write_from_thread(connection: Connection, message: bytes) -> bool:
        sent = from_thread(connection, message)
        tries.extend([True] * sent)
        return sent

    from_thread = Connection.write_from_thread
    monkeypatch.setattr(Connection, "try_write", try_write)
    monkeypatch.setattr(Connection, "write_from_thread", write_from_thread)
    call.send(attach(session))
    next(call)
    call.send(batch(1, op("zeros", [15_000], outputs=[1])))
    until(lambda: len(tries) == 1)
    last = 1
    while tries[-1]:
        last += 1
        call.send(batch(last, commands_pb2.ReadRequest(tensor=1)))
        until(lambda tried=last: len(tries) == tried)
    for seq in range(last + 1, last + 6):
        call.send(batch(seq, commands_pb2.ReadRequest(tensor=1)))
    assert last > 2
    assert [next(call).batch.applied_seq for _ in range(last + 5)] == list(range(1, last + 6))


def attached(server: Running, session: Remote, call: SocketCall) -> Connection:
    """The server's end of a client's stream."""
    call.send(attach(session))
    next(call)
    (connection,) = server.server.local.connections
    return connection


def test_a_thread_writes_messages_that_the_kernel_takes_as_a_whole(
    server: Running, session: Remote, call: SocketCall
) -> None:
    connection = attached(server, session, call)
    message = service_pb2.StreamResponse(credit_bytes=7).SerializeToString()
    assert connection.write_from_thread(message)
    assert next(call).credit_bytes == 7
    assert not connection.write_from_thread(bytes(1 << 20))
    call.send(batch(1, op("zeros", [1], outputs=[1])))
    assert next(call).batch.applied_seq == 1


def test_a_socket_is_read_in_small_pieces_except_while_a_large_message_arrives(
    server: Running, session: Remote, call: SocketCall
) -> None:
    connection = attached(server, session, call)
    assert connection._transport.max_size < 128 << 10  # what malloc maps, which costs more than the read
    large = commands_pb2.CreateRequest(id=1, payload={"dtype": 1, "shape": [1 << 17], "data": bytes(1 << 19)})
    message = framed(batch(1, large).SerializeToString())
    call.socket.sendall(message[: 1 << 18])
    until(lambda: len(connection._part) == 1 << 18)
    assert connection._transport.max_size > 128 << 10
    call.socket.sendall(message[1 << 18 :])
    assert next(call).batch.applied_seq == 1
    assert connection._transport.max_size < 128 << 10


def test_a_message_that_the_kernel_takes_in_part_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, server: Running, session: Remote, call: SocketCall
) -> None:
    connection = attached(server, session, call)
    monkeypatch.setattr(local_streams, "os", SimpleNamespace(write=lambda descriptor, data: len(data) - 1))
    assert connection.write_from_thread(b"abc")
    assert not connection.write_from_thread(b"abc")
    with pytest.raises((EOFError, ConnectionResetError)):
        next(call)


def test_a_thread_leaves_a_message_to_the_event_loop_if_there_is_no_room(
    server: Running, session: Remote, call: SocketCall
) -> None:
    connection = attached(server, session, call)
    message = service_pb2.StreamResponse(credit_bytes=1, attached={"local_stream": "x" * 10_000}).SerializeToString()
    written = 0
    while connection.write_from_thread(message):
        written += 1
    assert written > 1
    for _ in range(written):
        next(call)
    assert connection.write_from_thread(message)


def test_no_thread_writes_to_a_socket_that_is_closed(server: Running, session: Remote, call: SocketCall) -> None:
    connection = attached(server, session, call)
    call.cancel()
    until(lambda: not server.server.local.connections)
    assert not connection.write_from_thread(b"abc")


def test_a_message_inside_of_which_the_client_goes_is_not_applied(server: Running, session: Remote) -> None:
    call = SocketCall(session.opened.local_stream)
    call.send(attach(session))
    next(call)
    message = framed(batch(1, op("zeros", [1], outputs=[1])).SerializeToString())
    call.socket.sendall(message[:-1])
    call.cancel()
    until(lambda: not server.server.local.connections)
    assert session.op("zeros", [1])
    assert server.server.front.active == 0


def test_an_answer_that_a_lost_connection_has_no_room_for_is_waited_for_no_longer(
    server: Running, session: Remote, call: SocketCall
) -> None:
    def writing() -> list[str]:
        tasks = (str(each.get_coro()) for each in asyncio.all_tasks(server.loop))
        return [each for each in tasks if "Stream._write" in each]

    connection = attached(server, session, call)
    reads = [commands_pb2.ReadRequest(tensor=1)] * 12
    for seq in (1, 14, 27):
        call.send(batch(seq, op("zeros", [15_000], outputs=[1]), *reads))
    until(lambda: connection._room is not None)
    assert writing()
    call.cancel()
    until(lambda: not server.server.local.connections)
    until(lambda: not writing())


def test_who_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch, call: SocketCall) -> None:
    call.cancel()
    monkeypatch.setattr(stream, "_ATTACH_SECONDS", 0.05)
    with running(0) as server:
        silent = SocketCall(server.open().opened.local_stream)
        with pytest.raises(Exception) as caught:
            next(silent)
        assert refusal(caught.value)[1] == "DEADLINE_EXCEEDED"
        silent.cancel()


def test_connections_are_capped_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(0, max_connections=3) as server:
        session = server.open()
        calls = [SocketCall(session.opened.local_stream) for _ in range(3)]
        until(lambda: len(server.server.local.connections) == 3)
        with pytest.raises((EOFError, ConnectionError)):
            next(SocketCall(session.opened.local_stream))
        calls[0].send(attach(session))
        assert next(calls[0]).HasField("attached")
        calls.pop().cancel()
        until(lambda: len(server.server.local.connections) == 2)
        calls.append(SocketCall(session.opened.local_stream))
        until(lambda: len(server.server.local.connections) == 3)
        for each in calls:
            each.cancel()


def test_a_storm_of_connections_leaves_the_event_loop_to_others(server: Running) -> None:
    name = server.open().opened.local_stream

    async def storm() -> list[int]:
        calls = [SocketCall(name) for _ in range(40)]
        counts = [0]
        while counts[-1] < len(calls):
            await asyncio.sleep(0)
            counts.append(len(server.server.local.connections))
        for each in calls:
            each.cancel()
        return counts

    counts = server.do(storm())
    assert (
        max(after - before for before, after in pairwise(counts)) <= 2 * local_streams._AT_ONCE
    )  # some asyncio takes one more


def test_another_users_process_is_not_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(0) as server:
        session = server.open()
        monkeypatch.setattr(local_streams.os, "geteuid", lambda: 1 << 30)
        call = SocketCall(session.opened.local_stream)
        with pytest.raises((EOFError, ConnectionError)):
            next(call)
        call.cancel()


def test_what_is_sent_ahead_waits_in_the_clients_socket(session: Remote, call: SocketCall, server: Running) -> None:
    """A client that ignores its credit, and reads nothing, fills no memory of the server's."""
    call.send(attach(session))
    call.socket.settimeout(2.0)
    with pytest.raises(TimeoutError):
        send_ahead(call, 200)
    held = sum(len(message) for each in server.server.local.connections for message in each._messages)
    assert server.server.front.waiting + held < 32 << 20  # its credit is 16 MiB, and half a megabyte is a batch
    session.close()


def test_a_flood_of_empty_messages_waits_there_too(session: Remote, call: SocketCall, server: Running) -> None:
    call.send(attach(session))
    for seq in range(2, 22):  # they wait for one that does not come; no further one is read
        call.send(batch(seq, op("zeros", [1], outputs=[seq])))
    call.socket.settimeout(2.0)
    with pytest.raises(TimeoutError):
        call.socket.sendall(LENGTH.pack(0) * (8 << 20))
    assert sum(len(each._messages) for each in server.server.local.connections) < 100_000
    session.close()


def test_who_does_not_take_the_end_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_streams, "_CLOSE_SECONDS", 0.05)
    with running(0) as server:
        session = server.open()
        call = SocketCall(session.opened.local_stream)
        call.send(attach(session))
        next(call)
        reads = [commands_pb2.ReadRequest(tensor=1)] * 20
        call.send(batch(1, op("zeros", [15_000], outputs=[1]), *reads))  # answered with more than the socket holds
        call.half_close()
        until(lambda: not server.server.local.connections)
        call.cancel()


def send_ahead(call: SocketCall, count: int) -> None:
    """Batches that wait for one that does not come."""
    for seq in range(2, count + 2):
        late = batch(seq, op("zeros", [1], outputs=[seq], named={"name": "x" * 500_000}))
        call.socket.sendall(framed(late.SerializeToString()))


def test_who_must_say_who_he_is_has_no_local_streams(tmp_path: Any) -> None:
    house = House(tmp_path)
    with running(0, tokens=Tokens(house.path)) as server:
        opened = server.stub.OpenSession(service_pb2.OpenSessionRequest(), metadata=house.metadata("alice"))
        assert opened.local_stream == ""
        assert server.server.local is None


def test_the_end_of_the_server_is_told_and_the_name_is_gone() -> None:
    with running(0) as server:
        session = server.open()
        call = SocketCall(session.opened.local_stream)
        call.send(attach(session))
        next(call)
    with pytest.raises(Exception) as caught:
        next(call)
    assert refusal(caught.value)[1] == "UNAVAILABLE"
    with pytest.raises(ConnectionRefusedError):
        SocketCall(session.opened.local_stream)
    call.cancel()

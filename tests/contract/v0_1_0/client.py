"""A client of version 0.1.0: `python client.py HOST:PORT` uses a server as that version's contract says, and checks
its answers. Frozen with that version: nothing here is changed any more.

It knows descriptors.binpb and no stubs, so that nothing of a later version helps it.
"""

import queue
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

SECONDS = 60
POOL = descriptor_pool.DescriptorPool()
for file in FileDescriptorSet.FromString(Path(__file__).with_name("descriptors.binpb").read_bytes()).file:
    POOL.Add(file)
SERVICE = POOL.FindServiceByName("gradwire.v1.AutogradService")
FLOAT32 = POOL.FindEnumTypeByName("gradwire.v1.Dtype").values_by_name["DTYPE_FLOAT32"].number


def message(kind: str, /, **fields: Any) -> Any:
    """A message of the contract."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"gradwire.v1.{kind}"))(**fields)


class Client:
    """The service's methods on a channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel

    def method(self, name: str) -> Any:
        """An RPC as a callable."""
        described = SERVICE.methods_by_name[name]
        streams = ("unary", "stream")
        kind = f"{streams[described.client_streaming]}_{streams[described.server_streaming]}"
        answer = GetMessageClass(described.output_type)
        return getattr(self.channel, kind)(
            f"/{SERVICE.full_name}/{name}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=answer.FromString,
        )

    def call(self, name: str, **fields: Any) -> Any:
        """A unary RPC."""
        return self.method(name)(message(f"{name}Request", **fields), timeout=SECONDS)


def payload(*values: float) -> Any:
    """A vector of float32."""
    return message("Payload", dtype=FLOAT32, shape=[len(values)], data=struct.pack(f"<{len(values)}f", *values))


def values_of(described: Any) -> tuple[float, ...]:
    """What a payload of float32 holds."""
    return struct.unpack(f"<{len(described.data) // 4}f", described.data)


def tensor(tensor_id: int, name: str = "") -> Any:
    """An argument that is a tensor."""
    return message("Argument", name=name, tensor=tensor_id)


def number(value: float) -> Any:
    """An argument that is a number."""
    return message("Argument", float=value)


def expect(found: Any, wanted: Any) -> None:
    """Raises AssertionError unless they are equal."""
    assert found == wanted, f"{found} instead of {wanted}"


def unary(client: Client, session: str) -> None:
    """Each command as an RPC of its own: create, op, backward, grad, read, describe, release, and what is refused."""
    x = client.call("Create", session_id=session, id=1, requires_grad=True, payload=payload(1, 2, 3)).tensor
    expect((x.id, x.dtype, list(x.shape), x.requires_grad, x.is_leaf), (1, FLOAT32, [3], True, True))
    squared = client.call("Op", session_id=session, op="mul", args=[tensor(1), tensor(1)], outputs=[2]).outputs[0]
    expect((squared.id, squared.requires_grad, squared.is_leaf), (2, True, False))
    client.call("Op", session_id=session, op="sum", args=[tensor(2)], outputs=[3], request_id="once")
    client.call("Op", session_id=session, op="sum", args=[tensor(2)], outputs=[3], request_id="once")
    expect(list(client.call("Backward", session_id=session, tensors=[3]).accumulated), [1])
    expect(client.call("Grad", session_id=session, tensor=1, id=4).grad.id, 4)
    expect(values_of(client.call("Read", session_id=session, tensor=4).payload), (2.0, 4.0, 6.0))
    expect(client.call("Describe", session_id=session, tensors=[1, 2]).tensor_count, 4)
    expect(client.call("Release", session_id=session, tensors=[2, 3, 4]).released, 3)
    try:
        client.call("Op", session_id=session, op="no_such_op")
    except grpc.RpcError as refused:
        expect(refused.code(), grpc.StatusCode.UNIMPLEMENTED)
    else:
        raise AssertionError("an unknown op was not refused")


def batch(client: Client, session: str) -> None:
    """The same as a batch, with a command that fails and one that depends on it; and the batch again."""
    commands = [
        message("Command", create=message("CreateRequest", id=10, requires_grad=True, payload=payload(3))),
        message("Command", op=message("OpRequest", op="mul", args=[tensor(10), number(2.0)], outputs=[11])),
        message("Command", backward=message("BackwardRequest", tensors=[11]), quiet=True),
        message("Command", grad=message("GradRequest", tensor=10, id=12)),
        message("Command", read=message("ReadRequest", tensor=12)),
        message("Command", op=message("OpRequest", op="no_such_op", outputs=[13])),
        message("Command", read=message("ReadRequest", tensor=13)),
    ]
    for _ in range(2):
        answer = client.call("Run", session_id=session, writer=1, first_seq=1, commands=commands)
        results = {each.seq: each for each in answer.results}
        expect(sorted(results), [1, 2, 4, 5, 6, 7])
        expect((answer.applied_seq, values_of(results[5].read.payload)), (7, (2.0,)))
        expect((results[6].WhichOneof("result"), results[7].error.root_seq), ("error", 6))


def stream(client: Client, session: str) -> None:
    """Batches on a stream, with a prepared op and its calls."""
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def requests() -> Iterator[Any]:
        while (request := said.get()) is not None:
            yield request

    answers = client.method("Stream")(requests(), timeout=SECONDS)
    said.put(message("StreamRequest", attach=message("StreamAttach", session_id=session, writer=1)))
    attached = next(answers)
    expect(attached.WhichOneof("response"), "attached")
    assert attached.credit_bytes > 0
    seq = attached.attached.applied_seq + 1
    double = message("OpRequest", op="mul", args=[tensor(0), number(0.0)], outputs=[0])
    words = struct.pack("<QQdQ", 0, 10, 5.0, 20) + struct.pack("<QQdQ", 0, 20, 0.5, 21)
    commands = [
        message("Command", prepare=message("Prepare", number=0, op=double), quiet=True),
        message("Command", calls=message("Calls", count=2, words=words), quiet=True),
        message("Command", read=message("ReadRequest", tensor=21)),
    ]
    said.put(message("StreamRequest", batch=message("RunRequest", first_seq=seq, commands=commands)))
    answer = next(answers).batch
    expect((answer.applied_seq, [each.seq for each in answer.results]), (seq + 3, [seq + 3]))
    expect(values_of(answer.results[0].read.payload), (7.5,))
    said.put(None)
    expect(list(answers), [])


def transfers(client: Client, session: str) -> None:
    """A tensor's bytes in by Upload."""
    data = struct.pack("<4f", 1, 2, 3, 4)
    parts = [
        message("UploadRequest", start=message("UploadStart", session_id=session, total_bytes=len(data))),
        message("UploadRequest", data=data[:8]),
        message("UploadRequest", data=data[8:]),
    ]
    uploaded = client.method("Upload")(iter(parts), timeout=SECONDS)
    expect(uploaded.received_bytes, len(data))
    described = message("Transfer", transfer_id=uploaded.transfer_id, dtype=FLOAT32, shape=[2, 2])
    expect(list(client.call("Create", session_id=session, id=30, transfer=described).tensor.shape), [2, 2])
    expect(values_of(client.call("Read", session_id=session, tensor=30).payload), (1.0, 2.0, 3.0, 4.0))


def main(address: str) -> None:
    """Use the server at the address."""
    with grpc.insecure_channel(address) as channel:
        client = Client(channel)
        info = client.call("ServerInfo")
        assert info.min_protocol <= 1 <= info.max_protocol
        assert any(op.name == "matmul" for op in client.call("ListOps").ops)
        opened = client.call("OpenSession", client="frozen 0.1.0", min_protocol=1, max_protocol=1)
        session = opened.session_id
        expect((opened.writer, opened.protocol), (1, 1))
        for part in (unary, batch, stream, transfers):
            part(client, session)
        assert client.call("KeepAlive", session_id=session).lease_ms > 0
        assert client.call("CloseSession", session_id=session).freed_bytes > 0
    print("the contract of 0.1.0 holds")


if __name__ == "__main__":
    main(sys.argv[1])

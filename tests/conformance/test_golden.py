"""A live server takes the golden vectors: prepared calls compute what the ops compute, and a program registers."""

import json

import grpc
import pytest

from gradwire._transport.embedded import EmbeddedServer
from gradwire.v1 import commands_pb2, programs_pb2, service_pb2, types_pb2
from gradwire.v1.service_pb2_grpc import AutogradServiceStub
from tests.conformance import golden
from tests.conformance.make import GOLDEN

VECTORS = json.loads(GOLDEN.read_text("utf-8"))
VALUES = {1: types_pb2.DTYPE_FLOAT32, 2: types_pb2.DTYPE_FLOAT32, 3: types_pb2.DTYPE_INT64}


@pytest.fixture(scope="module")
def stub():
    server = EmbeddedServer()
    with grpc.insecure_channel(server.address) as channel:
        yield AutogradServiceStub(channel)
    server.stop()


def results(stub: AutogradServiceStub, commands: list[service_pb2.Command], read: list[int]) -> list[bytes]:
    """The values of tensors after the commands, in a session with the tensors 1, 2 and 3."""
    opened = stub.OpenSession(service_pb2.OpenSessionRequest())
    made = [
        service_pb2.Command(
            create=commands_pb2.CreateRequest(
                id=number,
                payload=types_pb2.Payload(
                    dtype=dtype,
                    shape=[2],
                    data=b"\0\0\x80\x3f\0\0\0\x40" if dtype == types_pb2.DTYPE_FLOAT32 else bytes(16),
                ),
            )
        )
        for number, dtype in VALUES.items()
    ]
    reads = [service_pb2.Command(read=commands_pb2.ReadRequest(tensor=each)) for each in read]
    run = service_pb2.RunRequest(
        session_id=opened.session_id, writer=opened.writer, first_seq=1, commands=[*made, *commands, *reads]
    )
    answer = stub.Run(run)
    refused = [each.error for each in answer.results if each.HasField("error")]
    assert not refused, refused
    stub.CloseSession(service_pb2.CloseSessionRequest(session_id=opened.session_id))
    return [each.read.payload.data for each in answer.results if each.HasField("read")]


@pytest.mark.parametrize("vector", VECTORS["prepared_calls"], ids=lambda each: each["op"])
def test_words_of_prepared_calls(stub: AutogradServiceStub, vector) -> None:
    request = golden.request(vector)
    read = vector.get("outputs") or [vector["args"][0]["tensor"]]
    plain = results(stub, [service_pb2.Command(op=request)], read)
    prepare = service_pb2.Command(prepare=commands_pb2.Prepare(number=vector["number"], op=request))
    calls = service_pb2.Command(calls=commands_pb2.Calls(count=1, words=bytes.fromhex(vector["words"])))
    assert results(stub, [prepare, calls], read) == plain


def test_a_program_registers_by_its_hash(stub: AutogradServiceStub) -> None:
    (vector,) = VECTORS["programs"]
    program, name = bytes.fromhex(vector["bytes"]), bytes.fromhex(vector["sha256"])
    assert programs_pb2.Program.FromString(program) == golden.PROGRAM
    session = stub.OpenSession(service_pb2.OpenSessionRequest()).session_id
    ask = programs_pb2.RegisterProgramRequest(session_id=session, hash=name, program=program)
    assert stub.RegisterProgram(ask).programs == 1
    stub.CloseSession(service_pb2.CloseSessionRequest(session_id=session))


def test_vectors_are_current() -> None:
    assert GOLDEN.read_text("utf-8") == golden.text(), "run `python -m tests.conformance.make`"

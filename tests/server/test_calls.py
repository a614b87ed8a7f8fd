"""Prepared ops: a call does what the op's own command does, exactly once, and what cannot be read harms nothing."""

import struct
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2, service_pb2, types_pb2
from gradwire_server.session.prepared.calls import MAX_PREPARED_BYTES
from tests.server.harness import Id, Remote, command, op, refused, running


def prepare(number: int, request: c.OpRequest) -> service_pb2.Command:
    return service_pb2.Command(prepare=c.Prepare(number=number, op=request), quiet=True)


def calls(*told: tuple[Any, ...], count: int = 0, extra: bytes = b"") -> service_pb2.Command:
    words = b"".join(
        struct.pack("<" + "".join("d" if type(value) is float else "Q" for value in call), *call) for call in told
    )
    return service_pb2.Command(calls=c.Calls(count=count or len(told), words=words + extra))


def reason(result: service_pb2.Result) -> str:
    return errors_pb2.Reason.Name(result.error.reason).removeprefix("REASON_")


MUL = prepare(1, op("mul", Id(0), 1.0, outputs=[0]))
ADD_INTO = prepare(2, op("add_", Id(0), Id(0)))


def test_a_call_computes_what_its_op_does_and_is_recorded(session: Remote) -> None:
    x = session.create([1.0, 2.0], requires_grad=True)
    response = session.run(MUL, calls((1, x, 3.0, 100), (1, 100, 2.0, 101)))
    assert (len(response.results), response.applied_seq) == (0, 3)
    assert session.read(101).tolist() == [6.0, 12.0]
    total = session.op("sum", Id(101))
    session.backward(total.id)
    assert np.array_equal(session.grad(x), [6.0, 6.0])


def test_places_are_filled_in_order_whatever_holds_them(session: Remote) -> None:
    x, y, rows = session.create([1.0, 2.0]), session.create([3.0, 4.0]), session.create([1, 0], dtype="int64")
    index = types_pb2.Argument(index=types_pb2.Index(items=[types_pb2.IndexItem(tensor=0)]))
    session.run(
        prepare(1, op("cat", [Id(0), Id(0)], 0, outputs=[0])),
        prepare(2, op("getitem", Id(0), index, outputs=[0])),
        prepare(3, op("unbind", Id(0), outputs=[0, 0])),
        prepare(4, op("sub", Id(0), Id(0), named={"alpha": 0.0}, outputs=[0])),
    )
    response = session.run(calls((1, y, x, 100), (2, 100, rows, 101), (3, 101, 102, 103), (4, x, y, 10.0, 104)))
    assert not response.results
    assert [session.read(tensor).tolist() for tensor in (100, 101, 102, 103, 104)] == [
        [3.0, 4.0, 1.0, 2.0], [4.0, 3.0], 4.0, 3.0, [-29.0, -38.0],
    ]  # fmt: skip


def test_grad_mode_is_the_prepared_ops(session: Remote) -> None:
    x = session.create([1.0], requires_grad=True)
    off = op("mul", Id(0), 1.0, outputs=[0], grad_mode=types_pb2.GRAD_MODE_DISABLED)
    session.run(MUL, prepare(2, off), calls((2, x, 3.0, 100), (1, x, 3.0, 101)))
    assert [spec.requires_grad for spec in session.describe(100, 101).tensors] == [False, True]


def test_a_repeated_batch_applies_its_calls_once(session: Remote) -> None:
    x, one = session.create([0.0]), session.create([1.0])
    batch = session.batch(ADD_INTO, calls(*[(2, x, one)] * 5))
    session.stub.Run(batch)
    session.stub.Run(batch)
    assert session.read(x).tolist() == [5.0]


def test_a_batch_that_overlaps_applied_commands_resumes_within_its_calls(session: Remote) -> None:
    x, one = session.create([0.0]), session.create([1.0])
    session.run(ADD_INTO, calls(*[(2, x, one)] * 3), first=1)
    response = session.run(calls(*[(2, x, one)] * 5), command(c.ReadRequest(tensor=x)), first=2)
    assert response.applied_seq == 7
    assert np.frombuffer(response.results[-1].read.payload.data, np.float32).tolist() == [5.0]


def test_a_refused_call_poisons_what_depends_on_it_and_nothing_else(session: Remote) -> None:
    x = session.create([1.0])
    response = session.run(MUL, calls((1, 999, 3.0, 100), (1, 100, 3.0, 101), (1, x, 3.0, 102)))
    assert [(result.seq, reason(result)) for result in response.results] == [
        (2, "TENSOR_NOT_FOUND"), (3, "DEPENDENCY_FAILED"),
    ]  # fmt: skip
    assert response.results[1].error.root_seq == 2
    assert session.read(102).tolist() == [3.0]


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (calls((9, 1, 3.0, 100)), "no op was prepared as number 9"),
        (calls((2, 1, 1), (1, 1, 3.0, 100), count=3), "there are 2 calls, not 3"),
        (calls((2, 1, 1), (1, 1, 3.0)), "have 7 words, not 6"),
        (calls((2, 1, 1), (1, 1, 3.0, 100, 7)), "have 7 words, not 8"),
        (calls((2, 1, 1), extra=b"123"), "words of 8 bytes"),
    ],
)
def test_calls_that_cannot_be_told_apart_are_refused_together(
    session: Remote, broken: service_pb2.Command, sentence: str
) -> None:
    x = session.create([1.0])
    assert x == 1
    response = session.run(MUL, ADD_INTO, broken, command(c.ReadRequest(tensor=x)))
    count = broken.calls.count
    assert [reason(result) for result in response.results[:-1]] == ["MALFORMED"] * count
    assert sentence in response.results[0].error.message
    assert np.frombuffer(response.results[-1].read.payload.data, np.float32).tolist() == [1.0]
    assert response.applied_seq == 3 + count


def test_an_op_that_cannot_be_prepared_says_why(session: Remote) -> None:
    wide = op("cat", [Id(0)] * 64, outputs=[0])
    assert wide.ByteSize() > MAX_PREPARED_BYTES
    response = session.run(
        *(
            service_pb2.Command(prepare=c.Prepare(number=number, op=request))
            for number, request in (
                (1, op("frobnicate", Id(0))),
                (1, op("mul", Id(0), "two", outputs=[0])),
                (1, op("mul", Id(0))),
                (1, op("add_", Id(0), 1.0, outputs=[0])),
                (1, op("add_", 1.0, 1.0)),
                (1, op("reshape", Id(0), 1.5)),
                (4096, op("exp", Id(0), outputs=[0])),
                (1, wide),
                (1, op("exp", Id(0), outputs=[0])),
            )
        )
    )
    assert [reason(result) for result in response.results[:-1]] == [
        "OP_UNKNOWN", "ARGUMENT_TYPE", "ARGUMENT_TYPE", "ARGUMENT_VALUE", "ARGUMENT_TYPE", "ARGUMENT_TYPE",
        "ARGUMENT_VALUE", "ARGUMENT_VALUE",
    ]  # fmt: skip
    assert response.results[-1].WhichOneof("result") == "prepare"


def test_what_one_writer_prepared_is_not_anothers(session: Remote) -> None:
    x = session.create([1.0])
    session.stub.OpenSession(service_pb2.OpenSessionRequest(session_id=session.id))
    session.run(MUL)
    response = session.run(calls((1, x, 3.0, 100)), first=1, writer=2)
    assert [reason(result) for result in response.results] == ["MALFORMED"]


def test_calls_count_as_commands_of_the_batch() -> None:
    with running(max_batch_commands=10) as server:
        session = server.open()
        x = session.create([1.0])
        many = session.batch(MUL, calls(*((1, x, 1.0, 100 + place) for place in range(10))))
        assert refused(session.stub.Run, many)[1] == "MESSAGE_TOO_LARGE"
        assert refused(session.stub.Run, session.batch(calls(count=1 << 31), first=1))[1] == "MESSAGE_TOO_LARGE"


def test_cancelled_calls_are_not_begun(session: Remote) -> None:
    x, one = session.create([0.0]), session.create([1.0])
    session.run(ADD_INTO)
    session.stub.Cancel(service_pb2.CancelRequest(session_id=session.id, writer=1, through_seq=3))
    response = session.run(calls(*[(2, x, one)] * 3), first=2)
    assert [(result.seq, reason(result)) for result in response.results] == [(2, "CANCELLED"), (3, "CANCELLED")]
    assert session.read(x).tolist() == [1.0]

"""Every RPC with every kind of bad input: the right status with ErrorInfo, and a session as usable as before."""

from typing import Any

import numpy as np
import pytest

from gradwire.v1 import collectives_pb2 as g
from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2, files_pb2, hooks_pb2, programs_pb2, service_pb2, snapshots_pb2, types_pb2
from tests.rpcs import NEEDS_NO_SESSION
from tests.server.harness import Id, Remote, Running, argument, command, op, payload, refused

NOWHERE = 999_999
X, Y, Z = 1, 2, 3
VALUES = {X: [1.0, 2.0, 3.0], Y: [4.0, 5.0, 6.0], Z: [4.0, 10.0, 18.0]}
SMALL = np.zeros(2, np.float32)


@pytest.fixture
def filled(session: Remote) -> Remote:
    """A session of a leaf that requires grad, one that does not, and their product."""
    session.create(VALUES[X], requires_grad=True, tensor_id=X)
    session.create(VALUES[Y], tensor_id=Y)
    session.op("mul", Id(X), Id(Y), outputs=[Z])
    return session


def check_usable(session: Remote) -> None:
    """All tensors read back, nothing was added, and the graph still differentiates."""
    for tensor_id, values in VALUES.items():
        np.testing.assert_array_equal(session.read(tensor_id), values)
    described = session.describe()
    assert (described.tensor_count, described.bytes) == (3, 36)
    total = session.op("sum", Id(Z)).id
    session.backward(total)
    np.testing.assert_array_equal(session.grad(X), VALUES[Y])


def payload_of(shape: Any, data: bytes, dtype: int = types_pb2.DTYPE_FLOAT32) -> types_pb2.Payload:
    return types_pb2.Payload(dtype=dtype, shape=shape, data=data)


REQUESTS: dict[str, Any] = {
    "Create": c.CreateRequest(id=50, payload=payload(SMALL)),
    "Op": op("add", Id(X), Id(Y)),
    "Backward": c.BackwardRequest(tensors=[Z], gradients=[Y]),
    "RetainGrad": c.RetainGradRequest(tensor=Z),
    "Grad": c.GradRequest(tensor=X),
    "Gradients": c.GradientsRequest(outputs=[Z], inputs=[X], grad_outputs=[Y]),
    "SetGrad": c.SetGradRequest(tensor=X, grad=Y),
    "SetRequiresGrad": c.SetRequiresGradRequest(tensor=Y, requires_grad=True),
    "SetData": c.SetDataRequest(tensor=X, data=Y),
    "ManualSeed": c.ManualSeedRequest(seed=1),
    "Describe": c.DescribeRequest(tensors=[X]),
    "Read": c.ReadRequest(tensor=X),
    "Release": c.ReleaseRequest(tensors=[X]),
    "Graph": c.GraphRequest(tensors=[Z]),
    "Run": service_pb2.RunRequest(writer=1, first_seq=1, commands=[command(c.ReadRequest(tensor=X))]),
    "KeepAlive": service_pb2.KeepAliveRequest(),
    "Cancel": service_pb2.CancelRequest(),
    "Download": service_pb2.DownloadRequest(transfer_id="x"),
    "Upload": service_pb2.UploadStart(total_bytes=4),
    "Share": service_pb2.ShareRequest(nonce="12345678", upload=service_pb2.UploadStart(total_bytes=4)),
    "Stream": service_pb2.StreamAttach(writer=1),
    "RegisterProgram": programs_pb2.RegisterProgramRequest(),
    "RunProgram": programs_pb2.RunProgramRequest(),
    "LoadProgram": programs_pb2.LoadProgramRequest(file=X),
    "SaveProgram": programs_pb2.SaveProgramRequest(file=X),
    "RegisterHook": hooks_pb2.RegisterHookRequest(),
    "RemoveHook": hooks_pb2.RemoveHookRequest(),
    "ResumeBackward": hooks_pb2.ResumeBackwardRequest(),
    "RecordFunction": hooks_pb2.RecordFunctionRequest(),
    "Checkpoint": hooks_pb2.CheckpointRequest(),
    "NameEdge": hooks_pb2.NameEdgeRequest(),
    "PackSaved": hooks_pb2.PackSavedRequest(),
    "Collective": g.CollectiveRequest(kind=g.COLLECTIVE_KIND_BARRIER, group="g"),
    "SavedValue": hooks_pb2.SavedValueRequest(),
    "SetCounters": c.SetCountersRequest(),
    "SaveSession": snapshots_pb2.SaveSessionRequest(),
    "SaveFile": files_pb2.SaveFileRequest(name="one"),
    "LoadFile": files_pb2.LoadFileRequest(name="one"),
}


def send(session: Remote, method: str, request: Any, session_id: str) -> tuple[str, str, dict[str, str]]:
    """The refusal that a request meets."""
    sent = type(request).FromString(request.SerializeToString())
    sent.session_id = session_id
    call = getattr(session.stub, method)
    if method == "Upload":
        return refused(call, iter([service_pb2.UploadRequest(start=sent)]))
    if method == "Share":
        return refused(call, iter([sent]))
    if method == "Stream":
        return refused(call, iter([service_pb2.StreamRequest(attach=sent)]))
    return refused(call, sent)


def test_the_table_covers_every_rpc_of_a_session() -> None:
    methods = {method.name for method in service_pb2.DESCRIPTOR.services_by_name["AutogradService"].methods}
    assert methods - set(REQUESTS) == NEEDS_NO_SESSION


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("session_id", ["", "no-such-session", "x" * 500])
def test_unknown_session(filled: Remote, method: str, session_id: str) -> None:
    assert send(filled, method, REQUESTS[method], session_id)[:2] == ("NOT_FOUND", "SESSION_NOT_FOUND")
    check_usable(filled)


def test_attaching_to_an_unknown_session(filled: Remote) -> None:
    request = service_pb2.OpenSessionRequest(session_id="no-such-session")
    assert refused(filled.stub.OpenSession, request)[:2] == ("NOT_FOUND", "SESSION_NOT_FOUND")


def test_closing_an_unknown_session_is_no_error(filled: Remote) -> None:
    request = service_pb2.CloseSessionRequest(session_id="no-such-session")
    assert filled.stub.CloseSession(request).freed_bytes == 0
    check_usable(filled)


@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("method", [*REQUESTS, "OpenSession"])
def test_expired_session(server: Running, method: str, swept: bool) -> None:
    gone = server.open(lease_ms=1000)
    server.clock.now += 2
    if swept:
        server.sweep()
    alive = server.open()
    request = REQUESTS.get(method, service_pb2.OpenSessionRequest())
    assert send(alive, method, request, gone.id)[:2] == ("NOT_FOUND", "SESSION_EXPIRED")
    assert alive.describe().tensor_count == 0
    alive.close()


MISSING: dict[str, Any] = {
    "Op": op("add", Id(X), Id(NOWHERE)),
    "Op, named": op("add", Id(X), named={"other": Id(NOWHERE)}),
    "Op, in a list": op("cat", [Id(X), Id(NOWHERE)]),
    "Op, in place": op("add_", Id(NOWHERE), Id(Y)),
    "Op, in an index": op(
        "getitem",
        Id(X),
        types_pb2.Argument(index=types_pb2.Index(items=[types_pb2.IndexItem(tensor=NOWHERE)])),
    ),
    "Backward": c.BackwardRequest(tensors=[NOWHERE]),
    "Backward, gradient": c.BackwardRequest(tensors=[Z], gradients=[NOWHERE]),
    "Backward, inputs": c.BackwardRequest(tensors=[Z], gradients=[Y], inputs=[NOWHERE]),
    "RetainGrad": c.RetainGradRequest(tensor=NOWHERE),
    "Grad": c.GradRequest(tensor=NOWHERE),
    "Gradients": c.GradientsRequest(outputs=[NOWHERE], inputs=[X]),
    "Gradients, inputs": c.GradientsRequest(outputs=[Z], inputs=[NOWHERE], grad_outputs=[Y]),
    "Gradients, gradient": c.GradientsRequest(outputs=[Z], inputs=[X], grad_outputs=[NOWHERE]),
    "SetGrad": c.SetGradRequest(tensor=NOWHERE, grad=Y),
    "SetGrad, grad": c.SetGradRequest(tensor=X, grad=NOWHERE),
    "SetRequiresGrad": c.SetRequiresGradRequest(tensor=NOWHERE, requires_grad=True),
    "SetData": c.SetDataRequest(tensor=NOWHERE, data=Y),
    "SetData, data": c.SetDataRequest(tensor=X, data=NOWHERE),
    "Describe": c.DescribeRequest(tensors=[X, NOWHERE]),
    "Read": c.ReadRequest(tensor=NOWHERE),
    "Graph": c.GraphRequest(tensors=[NOWHERE]),
}


@pytest.mark.parametrize("elsewhere", [False, True], ids=["unknown", "of another session"])
@pytest.mark.parametrize("case", MISSING)
def test_tensor_that_the_session_has_not(server: Running, filled: Remote, case: str, elsewhere: bool) -> None:
    other = server.open()
    if elsewhere:
        other.create([1.0, 1.0, 1.0], tensor_id=NOWHERE)
    method = case.partition(",")[0]
    code, reason, metadata = send(filled, method, MISSING[case], filled.id)
    assert (code, reason, metadata["tensor"]) == ("NOT_FOUND", "TENSOR_NOT_FOUND", str(NOWHERE))
    check_usable(filled)
    other.close()


def test_releasing_another_sessions_tensor_leaves_it(server: Running, filled: Remote) -> None:
    other = server.open()
    other.create([1.0], tensor_id=NOWHERE)
    assert filled.release(NOWHERE) == 0
    np.testing.assert_array_equal(other.read(NOWHERE), [1.0])
    other.close()


BAD_CREATES: dict[str, tuple[Any, str]] = {
    "no dtype": (payload_of([2], bytes(8), 0), "DTYPE"),
    "unknown dtype": (payload_of([2], bytes(8), 99), "DTYPE"),
    "payload shorter": (payload_of([3], bytes(8)), "PAYLOAD_SIZE"),
    "payload longer": (payload_of([1], bytes(8)), "PAYLOAD_SIZE"),
    "empty payload": (payload_of([1], b""), "PAYLOAD_SIZE"),
    "no multiple of the item size": (payload_of([2], bytes(7)), "PAYLOAD_SIZE"),
    "negative shape": (payload_of([-2], bytes(8)), "SHAPE"),
    "two negative sizes": (payload_of([-2, -1], bytes(8)), "SHAPE"),
    "2^62 elements": (payload_of([1 << 62], bytes(8)), "SHAPE"),
    "2^62 elements in two dimensions": (payload_of([1 << 31, 1 << 31], bytes(8)), "SHAPE"),
    "2^62 elements of a byte": (payload_of([1 << 62], bytes(8), types_pb2.DTYPE_INT8), "PAYLOAD_SIZE"),
    "sizes that overflow to few": (payload_of([1 << 32, 1 << 32, 2], bytes(8)), "SHAPE"),
    "an empty tensor with an absurd size": (payload_of([0, 1 << 62], b""), "SHAPE"),
    "65 dimensions": (payload_of([1] * 65, bytes(4)), "SHAPE"),
    "over the tensor limit": (payload_of([1 << 24], bytes(8)), "PAYLOAD_SIZE"),
    "bools that are neither": (payload_of([2], b"\x01\x02", types_pb2.DTYPE_BOOL), "ARGUMENT_VALUE"),
    "over the inline limit": (payload_of([1 << 17], bytes(1 << 19)), "MESSAGE_TOO_LARGE"),
}


@pytest.mark.parametrize("case", BAD_CREATES)
def test_create_that_does_not_fit_its_description(filled: Remote, case: str) -> None:
    sent, reason = BAD_CREATES[case]
    code = {"MESSAGE_TOO_LARGE": "RESOURCE_EXHAUSTED"}.get(reason, "INVALID_ARGUMENT")
    request = c.CreateRequest(id=50, payload=sent)
    assert send(filled, "Create", request, filled.id)[:2] == (code, reason)
    check_usable(filled)
    assert filled.create([1.0], tensor_id=50) == 50


def test_create_from_nothing_and_on_no_device(filled: Remote) -> None:
    assert send(filled, "Create", c.CreateRequest(id=50), filled.id)[1] == "MALFORMED"
    for device, reason, code in [
        ("tpu", "ARGUMENT_VALUE", "INVALID_ARGUMENT"),
        ("cuda:99", "DEVICE_UNAVAILABLE", "UNIMPLEMENTED"),
    ]:
        request = c.CreateRequest(id=50, device=device, payload=payload(SMALL))
        assert send(filled, "Create", request, filled.id)[:2] == (code, reason)
    integers = c.CreateRequest(id=50, requires_grad=True, payload=payload(np.zeros(2, np.int64)))
    assert send(filled, "Create", integers, filled.id)[:2] == ("FAILED_PRECONDITION", "REQUIRES_GRAD")
    check_usable(filled)


UNKNOWN_DTYPE = types_pb2.Argument(name="dtype", dtype=99)
BAD_OPS: dict[str, tuple[Any, str, str]] = {
    "unknown op": (op("mull", Id(X), Id(Y)), "UNIMPLEMENTED", "OP_UNKNOWN"),
    "no op": (op("", Id(X)), "UNIMPLEMENTED", "OP_UNKNOWN"),
    "unknown in-place op": (op("no_such_op_", Id(X)), "UNIMPLEMENTED", "OP_UNKNOWN"),
    "very long name": (op("m" * 10_000, Id(X)), "UNIMPLEMENTED", "OP_UNKNOWN"),
    "too few arguments": (op("mul", Id(X)), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "no arguments": (op("mul"), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "too many arguments": (op("mul", Id(X), Id(Y), Id(Z)), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "unknown name": (op("mul", Id(X), named={"others": Id(Y)}), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "given twice": (op("mul", Id(X), Id(Y), named={"other": Id(Y)}), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "positional after named": (
        c.OpRequest(op="mul", args=[argument(Id(X), "input"), argument(Id(Y))]),
        "INVALID_ARGUMENT",
        "ARGUMENT_TYPE",
    ),
    "a string for a tensor": (op("exp", "x"), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "a list for a number": (op("mul", Id(X), [1, 2]), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "a bool for an int": (op("transpose", Id(X), True, False), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "a float for an int": (op("transpose", Id(X), 0.0, 1.0), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "a float for dims": (op("sum", Id(X), 0.5), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "an int for a bool": (op("sum", Id(X), [0], 1), "INVALID_ARGUMENT", "ARGUMENT_TYPE"),
    "no value": (c.OpRequest(op="exp", args=[types_pb2.Argument()]), "INVALID_ARGUMENT", "MALFORMED"),
    "unknown dtype": (c.OpRequest(op="to", args=[argument(Id(X)), UNKNOWN_DTYPE]), "INVALID_ARGUMENT", "DTYPE"),
    "no such dimension": (op("sum", Id(X), [5]), "INVALID_ARGUMENT", "DIM_OUT_OF_RANGE"),
    "shapes that do not go together": (op("reshape", Id(X), [2, 2]), "INVALID_ARGUMENT", "SHAPE"),
    "an index beyond": (
        op("getitem", Id(X), types_pb2.Argument(index=types_pb2.Index(items=[types_pb2.IndexItem(integer=9)]))),
        "OUT_OF_RANGE",
        "INDEX_OUT_OF_RANGE",
    ),
    "an index that says nothing": (
        op("getitem", Id(X), types_pb2.Argument(index=types_pb2.Index(items=[types_pb2.IndexItem()]))),
        "INVALID_ARGUMENT",
        "MALFORMED",
    ),
    "an index of absurd length": (
        op(
            "getitem",
            Id(X),
            types_pb2.Argument(index=types_pb2.Index(items=[types_pb2.IndexItem(boolean=True)] * 9999)),
        ),
        "INVALID_ARGUMENT",
        "ARGUMENT_VALUE",
    ),
    "an absurd shape": (op("zeros", [1 << 31, 1 << 31]), "RESOURCE_EXHAUSTED", "MEMORY_LIMIT"),
    "a leaf in place": (op("add_", Id(X), 1.0), "FAILED_PRECONDITION", "LEAF_IN_PLACE"),
}


@pytest.mark.parametrize("case", BAD_OPS)
def test_op_with_bad_arguments(filled: Remote, case: str) -> None:
    request, code, reason = BAD_OPS[case]
    assert send(filled, "Op", request, filled.id)[:2] == (code, reason)
    check_usable(filled)


EVERY_KIND = [
    argument(Id(X)), argument(1.5), argument(1), argument(True), argument("x"), argument([1]), argument([Id(X)]),
    types_pb2.Argument(dtype=types_pb2.DTYPE_INT8), types_pb2.Argument(index=types_pb2.Index()),
    types_pb2.Argument(complex=types_pb2.Complex(real=1.0)), types_pb2.Argument(none=types_pb2.NoneValue()),
    types_pb2.Argument(floats=types_pb2.DoubleList(values=[1.0])),
]  # fmt: skip
TAKEN = {
    "TENSOR": "tensor", "TENSOR_OR_NUMBER": "tensor float integer boolean complex", "TENSORS": "tensors",
    "NUMBER": "float integer boolean complex", "FLOAT": "float integer", "INTEGER": "integer", "BOOLEAN": "boolean",
    "STRING": "string", "DTYPE": "dtype", "DEVICE": "string", "INTEGERS": "integers integer",
    "FLOATS": "floats integers", "INDEX": "index", "NUMBER_OR_STRING": "float integer boolean complex string",
    "INTEGERS_OR_STRING": "integers integer string",
}  # fmt: skip


def test_every_parameter_of_every_op_refuses_every_kind_it_does_not_take(filled: Remote) -> None:
    wrong = []
    for schema in filled.stub.ListOps(service_pb2.ListOpsRequest()).ops:
        for parameter in schema.parameters:
            taken = TAKEN[service_pb2.ParameterKind.Name(parameter.kind).removeprefix("PARAMETER_KIND_")].split()
            without = parameter.optional or parameter.default.WhichOneof("kind") == "none"
            for given in EVERY_KIND:
                kind = given.WhichOneof("kind")
                if kind not in taken and not (kind == "none" and without):
                    sent = types_pb2.Argument.FromString(given.SerializeToString())
                    sent.name = parameter.name
                    wrong.append((c.OpRequest(op=schema.name, args=[sent]), parameter.name))
    assert len(wrong) > 1000
    for start in range(0, len(wrong), 500):
        part = wrong[start : start + 500]
        results = filled.run(*[command(request, quiet=True) for request, _ in part]).results
        told = [(errors_pb2.Reason.Name(each.error.reason), each.error.metadata["argument"]) for each in results]
        assert told == [("REASON_ARGUMENT_TYPE", name) for _, name in part]
    check_usable(filled)


def test_a_wrong_argument_is_named_with_what_is_allowed(filled: Remote) -> None:
    request = op("transpose", Id(X), 0, 1.5, session_id=filled.id)
    _, _, metadata = refused(filled.stub.Op, request)
    assert (metadata["op"], metadata["argument"]) == ("transpose", "dim1")
    with pytest.raises(Exception, match=r"'dim1' \(position \d\) must be int, not float \(1.5\)"):
        filled.stub.Op(request)


def test_an_int_is_taken_for_a_float(filled: Remote) -> None:
    request = op("leaky_relu", Id(Y), 0, session_id=filled.id)
    np.testing.assert_array_equal(filled.read(filled.stub.Op(request).outputs[0].id), VALUES[Y])


BAD_BACKWARDS: dict[str, tuple[str, Any, str, str]] = {
    "no scalar": ("Backward", c.BackwardRequest(tensors=[Z]), "INVALID_ARGUMENT", "GRADIENT_NEEDS_SCALAR"),
    "no graph": ("Backward", c.BackwardRequest(tensors=[Y], gradients=[Y]), "FAILED_PRECONDITION", "NO_GRAD_FN"),
    "unused": (
        "Gradients",
        c.GradientsRequest(outputs=[Z], inputs=[Z, Y], grad_outputs=[Y]),
        "FAILED_PRECONDITION",
        "NO_GRAD_FN",
    ),
    "no inputs": ("Gradients", c.GradientsRequest(outputs=[Z], grad_outputs=[Y]), "INVALID_ARGUMENT", "ARGUMENT_VALUE"),
    "called node with inputs": (
        "Gradients",
        c.GradientsRequest(outputs=[Z], inputs=[X], grad_outputs=[Y], called_node=0),
        "INVALID_ARGUMENT",
        "ARGUMENT_VALUE",
    ),
    "called node elsewhere": (
        "Gradients",
        c.GradientsRequest(outputs=[Z], grad_outputs=[Y], called_node=10**9),
        "INVALID_ARGUMENT",
        "ARGUMENT_VALUE",
    ),
    "called node of two results": (
        "Gradients",
        c.GradientsRequest(outputs=[Z], grad_outputs=[Y, Y], called_node=0),
        "INVALID_ARGUMENT",
        "ARGUMENT_TYPE",
    ),
    "retain without": ("RetainGrad", c.RetainGradRequest(tensor=Y), "FAILED_PRECONDITION", "REQUIRES_GRAD"),
    "negative page": ("Graph", c.GraphRequest(tensors=[Z], page_size=-1), "INVALID_ARGUMENT", "ARGUMENT_VALUE"),
    "page token": ("Graph", c.GraphRequest(tensors=[Z], page_token="9.9"), "INVALID_ARGUMENT", "ARGUMENT_VALUE"),
    "many described": (
        "Describe",
        c.DescribeRequest(tensors=[X] * 20_000),
        "INVALID_ARGUMENT",
        "ARGUMENT_VALUE",
    ),
    "more ids than inputs": (
        "Gradients",
        c.GradientsRequest(outputs=[Z], inputs=[X], grad_outputs=[Y], results=[60, 61]),
        "INVALID_ARGUMENT",
        "ARGUMENT_VALUE",
    ),
    "taken ids": (
        "Gradients",
        c.GradientsRequest(outputs=[Z], inputs=[X], grad_outputs=[Y], results=[Y]),
        "ALREADY_EXISTS",
        "TENSOR_EXISTS",
    ),
    "no such upload": (
        "Create",
        c.CreateRequest(transfer=c.Transfer(transfer_id="x", dtype=types_pb2.DTYPE_FLOAT32, shape=[1])),
        "NOT_FOUND",
        "TRANSFER_NOT_FOUND",
    ),
    "no such download": ("Download", service_pb2.DownloadRequest(transfer_id="x"), "NOT_FOUND", "TRANSFER_NOT_FOUND"),
    "upload over the limit": (
        "Upload",
        service_pb2.UploadStart(total_bytes=1 << 62),
        "INVALID_ARGUMENT",
        "PAYLOAD_SIZE",
    ),
    "no such writer": (
        "Run",
        service_pb2.RunRequest(writer=7, first_seq=1, commands=[command(c.ReadRequest(tensor=X))]),
        "INVALID_ARGUMENT",
        "ARGUMENT_VALUE",
    ),
    "no first_seq": (
        "Run",
        service_pb2.RunRequest(writer=1, commands=[command(c.ReadRequest(tensor=X))]),
        "INVALID_ARGUMENT",
        "MALFORMED",
    ),
    "another epoch": (
        "Run",
        service_pb2.RunRequest(writer=1, first_seq=1, epoch=5, commands=[command(c.ReadRequest(tensor=X))]),
        "FAILED_PRECONDITION",
        "EPOCH_MISMATCH",
    ),
    "many commands": (
        "Run",
        service_pb2.RunRequest(writer=1, first_seq=1, commands=[command(c.ReadRequest(tensor=X))] * 601),
        "RESOURCE_EXHAUSTED",
        "MESSAGE_TOO_LARGE",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_BACKWARDS)
def test_other_commands_with_bad_arguments(filled: Remote, case: str) -> None:
    method, request, code, reason = BAD_BACKWARDS[case]
    assert send(filled, method, request, filled.id)[:2] == (code, reason)
    check_usable(filled)


def test_message_over_the_cap(filled: Remote) -> None:
    for method, request in REQUESTS.items():
        if method in ("Upload", "Download", "Share", "Stream", "KeepAlive", "Cancel"):
            continue
        large = type(request).FromString(request.SerializeToString())
        large.session_id = filled.id
        raw = large.SerializeToString() + b"\xfa\x07" + b"\x80\x80\x60" + bytes(3 << 19)  # field 127, unknown
        call = filled.stub_bytes(method)
        code, reason, metadata = refused(call, raw)
        assert (code, reason) == ("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE"), method
        assert metadata["limit"] == str(1 << 20)
    check_usable(filled)


def test_bytes_that_are_no_message(filled: Remote) -> None:
    head = service_pb2.KeepAliveRequest(session_id=filled.id).SerializeToString()
    for method in REQUESTS:
        if method in ("Upload", "Download"):
            continue
        for raw in (head + b"\xff\xff\xff", b"\xff\xff\xff\xff", b"\x0a\x05\xff\xff\xff\xff\xff"):
            code, reason, _ = refused(filled.stub_bytes(method), raw)
            assert (code, reason) in (("INVALID_ARGUMENT", "MALFORMED"), ("NOT_FOUND", "SESSION_NOT_FOUND"))
    check_usable(filled)


def test_fields_in_another_order_are_understood(filled: Remote) -> None:
    raw = c.ReadRequest(tensor=X).SerializeToString() + c.ReadRequest(session_id=filled.id).SerializeToString()
    response = c.ReadResponse.FromString(filled.stub_bytes("Read")(raw))
    assert list(response.payload.shape) == [3]


@pytest.mark.parametrize("bad", [*MISSING, *BAD_OPS, *BAD_CREATES])
def test_batch_with_one_bad_command_in_the_middle(filled: Remote, bad: str) -> None:
    if bad in BAD_CREATES:
        request = c.CreateRequest(id=50, payload=BAD_CREATES[bad][0])
        reason = BAD_CREATES[bad][1]
    else:
        request, reason = (MISSING[bad], "TENSOR_NOT_FOUND") if bad in MISSING else (BAD_OPS[bad][0], BAD_OPS[bad][2])
    response = filled.run(
        command(op("add", Id(X), Id(Y), outputs=[80]), quiet=True),
        command(request, quiet=True),
        command(op("add", Id(80), Id(Y), outputs=[81])),
        command(c.ReadRequest(tensor=81)),
        command(c.ReleaseRequest(tensors=[80, 81]), quiet=True),
    )
    assert [result.seq for result in response.results] == [2, 3, 4]
    assert response.results[0].error.reason == errors_pb2.Reason.Value(f"REASON_{reason}")
    assert np.frombuffer(response.results[2].read.payload.data, np.float32).tolist() == [9.0, 12.0, 15.0]
    assert response.applied_seq == 5
    check_usable(filled)


def test_no_traceback_leaves_the_server(filled: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradwire_server.session import commands

    def broken(*_: Any) -> None:
        raise KeyError("secret of the implementation")

    monkeypatch.setattr(commands.COMMANDS["grad"], "handler", broken)
    code, reason, metadata = refused(filled.grad, X)
    assert (code, reason) == ("INTERNAL", "INTERNAL")
    assert "secret" not in str(metadata)
    result = filled.run(command(c.GradRequest(tensor=X))).results[0].error
    assert result.reason == errors_pb2.REASON_INTERNAL
    assert "secret" not in result.message
    monkeypatch.undo()
    check_usable(filled)


@pytest.mark.parametrize("error", [MemoryError("x"), RecursionError("deep")])
def test_errors_of_the_interpreter_become_refusals(
    filled: Remote, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    from gradwire_server.session import commands

    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(commands.COMMANDS["grad"], "handler", broken)
    wanted = ("RESOURCE_EXHAUSTED", "MEMORY_LIMIT") if isinstance(error, MemoryError) else ("INTERNAL", "INTERNAL")
    assert refused(filled.grad, X)[:2] == wanted
    monkeypatch.undo()
    check_usable(filled)

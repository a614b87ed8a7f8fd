"""Hand-packed bytes equal the messages of the protobuf API."""

import math
import struct

import pytest

import gradwire
from gradwire._graph import commands as _commands
from gradwire._transport import wire
from gradwire.v1 import commands_pb2, service_pb2, types_pb2


@pytest.fixture
def posted(without_maintenance, deferring, monkeypatch):
    """The framed commands that were posted rather than waited for, parsed."""
    commands = []
    original = deferring.flush

    def flush(until=None):
        commands.extend(
            wire.calls_command([data]) if is_call else data
            for data, record, is_call in deferring.buffer
            if not hasattr(record, "result")
        )
        original(until)

    monkeypatch.setattr(deferring, "flush", flush)
    return commands


def parse(framed):
    request = service_pb2.RunRequest.FromString(framed)
    assert len(request.commands) == 1
    return request.commands[0]


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63])
def test_varint(number):
    message = service_pb2.RunRequest(first_seq=number)
    assert message.SerializeToString() == (b"\x18" + wire.varint(number) if number else b"")


def op_build(values):
    request = commands_pb2.OpRequest(op="addcmul", grad_mode=types_pb2.GRAD_MODE_DISABLED)
    request.args.add(tensor=int(values[0]))
    request.args.add(float=values[1])
    request.args.add(name="other").tensors.ids.extend([int(values[2]), int(values[3])])
    request.args.add().index.items.add(tensor=int(values[4]))
    request.outputs.append(int(values[5]))
    return service_pb2.Command(op=request)


@pytest.mark.parametrize("number", [0, 1, -1, 63, -64, 300, 2**40, 2**63 - 1, -(2**63)])
def test_a_padded_varint_is_read_as_the_integer(number):
    padded = wire.padded_varint(number)
    assert len(padded) == 10
    assert types_pb2.Argument.FromString(b"\x20" + padded).integer == number


def indexed_build(values, integers):
    request = commands_pb2.OpRequest(op="getitem")
    request.args.add(tensor=int(values[0]))
    items = request.args.add().index.items
    items.add(integer=integers[0])
    items.add().slice.start = integers[1]
    request.args.add(float=values[1])
    request.args.add(name="size").integers.values.extend(integers[2:])
    request.outputs.append(int(values[2]))
    return service_pb2.Command(op=request)


@pytest.mark.parametrize("integers", [(0, 0, 0, 0), (1, -2, 2**63 - 1, -(2**63)), (5, 300, 7, 128)])
def test_a_pattern_makes_the_message_with_other_integers(integers):
    pattern = wire.make_pattern(indexed_build, [1, 1.0, 2], 4)
    assert pattern is not None
    values = [(1 << 40) + 1, -0.5, 77]
    expected = indexed_build(values, integers)
    expected.quiet = True
    assert parse(pattern.fill(values, integers)) == expected
    template = pattern.template(integers)
    assert parse(template.fill(values)) == expected
    prepared = commands_pb2.OpRequest.FromString(template.op)
    assert [item.integer for item in prepared.args[1].index.items][:1] == [integers[0]]


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0001, math.inf, -1e-310])
def test_a_template_makes_the_bytes_of_the_message(number):
    template = wire.make_template(op_build, [1, 1.0, 2, 3, 4, 5])
    assert template is not None
    values = [(1 << 40) + 1, number, 2, (1 << 52) - 1, 4, (7 << 40) + 99]
    expected = op_build(values)
    expected.quiet = True
    assert parse(template.fill(values)) == expected


def test_every_kind_of_deferred_command_has_a_template(deferring, monkeypatch):
    made = []
    original = wire.make_template

    def counted(build, values):
        made.append((build(values).WhichOneof("command"), original(build, values)))
        return made[-1][1]

    monkeypatch.setattr(_commands, "make_template", counted)
    monkeypatch.setattr(_commands, "_TEMPLATES", {})
    x = gradwire.ones(2).requires_grad_()
    y = x * x
    y.retain_grad()
    y.sum().backward()
    x.grad.tolist()
    x.grad = gradwire.ones(2)
    x.grad = None
    x.data = gradwire.zeros(2)
    gradwire.autograd.grad((x * x).sum(), x)
    gradwire.autograd.backward([x * x], [gradwire.ones(2)])
    gradwire.manual_seed(1)
    kinds = {kind for kind, _ in made}
    assert kinds == {
        "set_requires_grad", "retain_grad", "backward", "grad", "set_grad", "set_data", "gradients", "manual_seed"
    }  # fmt: skip
    assert all(template is not None for _, template in made)


def test_a_value_that_is_used_twice_has_no_template():
    def build(values):
        return service_pb2.Command(release=commands_pb2.ReleaseRequest(tensors=[int(values[0])] * 2))

    assert wire.make_template(build, [1]) is None


def test_release_command():
    ids = [1, (1 << 40) + 5, (1 << 52) - 1]
    expected = service_pb2.Command(release=commands_pb2.ReleaseRequest(tensors=ids), quiet=True)
    assert parse(wire.release_command(ids)) == expected


def test_a_batch_of_a_stream():
    command = service_pb2.Command(read=commands_pb2.ReadRequest(tensor=7))
    data, size = wire.stream_batch(1000, 999, [wire.framed(command.SerializeToString())] * 2)
    expected = service_pb2.RunRequest(first_seq=1000, acknowledged_seq=999, commands=[command, command])
    assert service_pb2.StreamRequest.FromString(data) == service_pb2.StreamRequest(batch=expected)
    assert size == expected.ByteSize()
    expected.recorded = True
    data, size = wire.stream_batch(1000, 999, [wire.framed(command.SerializeToString())] * 2, recorded=True)
    assert service_pb2.StreamRequest.FromString(data) == service_pb2.StreamRequest(batch=expected)
    assert size == expected.ByteSize()


def test_an_acknowledgement_of_a_stream():
    expected = service_pb2.StreamRequest(acknowledge=service_pb2.StreamAcknowledge(acknowledged_seq=1000))
    assert service_pb2.StreamRequest.FromString(wire.stream_acknowledge(1000)) == expected


def test_an_op_that_repeats_is_prepared_and_then_called(untold, deferring, posted):
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    deferring.sync()
    posted.clear()
    for _ in range(3):
        y = x * 0.5
    deferring.sync()
    prepared, *called = map(parse, posted)
    op = prepared.prepare.op
    assert prepared.quiet
    assert op.op == "mul"
    assert [argument.WhichOneof("kind") for argument in op.args] == ["tensor", "float"]
    assert len(op.outputs) == 1
    assert [command.calls.count for command in called] == [1, 1]
    words = struct.unpack("<QQdQ", called[-1].calls.words)
    assert words == (prepared.prepare.number, x._id, 0.5, y._id)


def test_what_does_not_fit_a_prepared_op_goes_whole(untold, deferring, posted):
    x = gradwire.zeros(2)
    for _ in range(2):
        gradwire.cat([x] * 64)
    deferring.sync()
    assert [parse(each).WhichOneof("command") for each in posted] == ["op"]


def test_error_details_in_trailers_are_read():
    pair = b"\x0a\x02op\x12\x03mul"
    info = b"\x0a\x05SHAPE\x12\x08gradwire\x1a" + bytes([len(pair)]) + pair
    name = b"type.googleapis.com/google.rpc.ErrorInfo"
    detail = b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(info)]) + info
    details = wire.Details(b"\x08\x03\x12\x04nope\x1a" + bytes([len(detail)]) + detail)
    assert (details.code, details.message, details.reason) == (3, "nope", "SHAPE")
    assert details.metadata == {"op": "mul"}


def test_a_message_cut_short_is_refused():
    with pytest.raises(ValueError, match="ends within"):
        wire.Details(b"\x08\x83")


def test_doubles_are_eight_bytes_little_endian():
    template = wire.make_template(op_build, [1, 1.0, 2, 3, 4, 5])
    assert struct.pack("<d", 0.1) in template.fill([1, 0.1, 2, 3, 4, 5])


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8", "bool"])
def test_small_arrays_are_posted_as_their_message(dtype, flag, posted, deferring):
    """From the second at a line on, without a message of protobuf. Zeros and ones are data like others."""
    kind = getattr(gradwire, dtype)
    flag = flag and kind.is_floating_point
    given = [[[value, 1]] for value in (0, 1, 0, 1, 1)]
    kept = [gradwire.tensor(each, dtype=kind, requires_grad=flag) for each in given]
    deferring.sync()
    for made, sent in zip(kept, posted, strict=True):
        payload = types_pb2.Payload(dtype=kind.code, shape=(1, 2), data=parse(sent).create.payload.data)
        create = commands_pb2.CreateRequest(id=made._id, requires_grad=flag, payload=payload)
        assert parse(sent) == service_pb2.Command(create=create, quiet=True)
    assert [made.float().tolist() for made in kept] == given


def test_commands_whose_bytes_have_no_fixed_place_have_no_frame():
    def build(number, data):
        request = commands_pb2.CreateRequest(id=number, payload=types_pb2.Payload(dtype=1, data=data))
        return service_pb2.Command(create=request)

    frame = wire.make_data_frame(build, 8)
    assert parse(frame.fill(7, b"\0\xffabcdef")).create.payload.data == b"\0\xffabcdef"
    assert wire.make_data_frame(build, 0) is None
    assert wire.make_data_frame(lambda number, data: build(number, data * 2), 8) is None
    assert wire.make_data_frame(lambda number, data: build(number, data[:4]), 8) is None
    assert wire.make_data_frame(lambda number, data: build(5, data), 8) is None

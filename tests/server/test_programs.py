"""Programs over the bare contract: registered by hash, run by name, and what is refused changes nothing."""

import hashlib
import random

import grpc
import numpy as np
import pytest

from gradwire.v1 import commands_pb2, programs_pb2, types_pb2
from tests.server.harness import refusal, refused, running

Op, Arg, Step = commands_pb2.OpRequest, types_pb2.Argument, programs_pb2.ProgramStep


def spec(*shape, requires_grad=False):
    return programs_pb2.ProgramInput(dtype=types_pb2.DTYPE_FLOAT32, shape=shape, requires_grad=requires_grad)


def op(name, *slots, outputs=(), disabled=False, **numbers):
    args = [Arg(tensor=slot) if isinstance(slot, int) else Arg(float=slot) for slot in slots]
    args += [Arg(name=name, number=number) for name, number in numbers.items()]
    return Step(op=Op(op=name, args=args, outputs=outputs, grad_mode=2 if disabled else 0))


def descent():
    """w -= rate * d(sum(w * w * x)) / dw; answers the sum. Inputs: w, x."""
    return programs_pb2.Program(
        inputs=[spec(3, requires_grad=True), spec(3)],
        numbers=1,
        steps=[
            op("mul", 1, 1, outputs=[3]),
            op("mul", 3, 2, outputs=[4]),
            op("sum", 4, outputs=[5]),
            Step(backward=commands_pb2.BackwardRequest(tensors=[5])),
            Step(grad=commands_pb2.GradRequest(tensor=1, id=6)),
            op("sub_", 1, 6, disabled=True, alpha=0),
            Step(set_grad=commands_pb2.SetGradRequest(tensor=1)),
        ],
        outputs=[5],
    )


def register(session, program):
    raw = program if isinstance(program, bytes) else program.SerializeToString()
    name = hashlib.sha256(raw).digest()
    session.stub.RegisterProgram(programs_pb2.RegisterProgramRequest(session_id=session.id, hash=name, program=raw))
    return name


def run(session, name, inputs, numbers=(), **fields):
    request = programs_pb2.RunProgramRequest(session_id=session.id, hash=name, inputs=inputs, numbers=numbers, **fields)
    return session.stub.RunProgram(request).outputs


def stepped(w, x, rate):
    return w - np.float32(rate) * 2 * w * x


def test_a_program_runs_by_its_hash(session):
    name = register(session, descent())
    values, x = np.array([1, 2, 3], np.float32), np.array([1, 0.5, 0.25], np.float32)
    w, data = session.create(values, requires_grad=True), session.create(x)
    for rate in (0.1, 0.2, 0.3, 0.4):
        (loss,) = run(session, name, [w, data], [rate])
        np.testing.assert_allclose(session.read(loss.id), (values * values * x).sum(), rtol=1e-6)
        values = stepped(values, x, rate)
        np.testing.assert_allclose(session.read(w), values, rtol=1e-6)
        assert session.grad(w) is None
        assert loss.requires_grad and not loss.is_leaf and loss.grad_fn == "SumBackward0"


def test_repetitions_take_numbers_and_slices_of_their_own(session):
    name = register(session, descent())
    values, x = np.ones(3, np.float32), np.arange(12, dtype=np.float32) / 12
    w, data = session.create(values, requires_grad=True), session.create(x)
    (losses,) = run(session, name, [w, data], [0.1, 0.2, 0.3], repeat=3, sliced=[1], first=1, stacked=True)
    expected = []
    for place, rate in enumerate((0.1, 0.2, 0.3)):
        part = x[3 * place + 3 : 3 * place + 6]
        expected.append((values * values * part).sum())
        values = stepped(values, part, rate)
    np.testing.assert_allclose(session.read(losses.id), expected, rtol=1e-6)
    np.testing.assert_allclose(session.read(w), values, rtol=1e-6)


def test_registering_twice_is_registering_once(session):
    first, second = (
        session.stub.RegisterProgram(
            programs_pb2.RegisterProgramRequest(
                session_id=session.id,
                hash=hashlib.sha256(raw).digest(),
                program=raw,
            )
        ).programs
        for raw in [descent().SerializeToString()] * 2
    )
    assert first == second == 1


def test_an_unknown_hash_is_told_from_other_refusals(session):
    code, reason, *_ = refused(run, session, b"x" * 32, [])
    assert (code, reason) == ("NOT_FOUND", "PROGRAM_UNKNOWN")


def test_a_hash_of_other_bytes_is_refused(session):
    request = programs_pb2.RegisterProgramRequest(
        session_id=session.id, hash=b"0" * 32, program=descent().SerializeToString()
    )
    assert refused(session.stub.RegisterProgram, request)[1] == "ARGUMENT_VALUE"


def test_inputs_of_another_kind_are_refused_and_nothing_has_changed(session):
    name = register(session, descent())
    w, x = session.create([1, 2, 3], requires_grad=True), session.create([1, 1, 1])
    wrong = {
        "SHAPE": session.create([1, 2]),
        "DTYPE": session.create([1, 2, 3], dtype="float64"),
        "REQUIRES_GRAD": w,
        "TENSOR_NOT_FOUND": 12345,
    }
    for reason, given in wrong.items():
        assert refused(run, session, name, [w, given], [0.1])[1] == reason
    for inputs, numbers, fields in (
        ([w], [0.1], {}),
        ([w, x], [], {}),
        ([w, x], [0.1, 0.2], {}),
        ([w, x], [0.1], {"sliced": [2]}),
        ([w, x], [0.1], {"repeat": 1 << 31}),
        ([w, x], [0.1], {"outputs": [901, 902]}),
    ):
        assert refused(run, session, name, inputs, numbers, **fields)[1] == "ARGUMENT_VALUE"
    assert refused(run, session, name, [w, x], [0.1], repeat=2, sliced=[1])[1] == "SHAPE"
    assert refused(run, session, name, [w, x], [0.1], sliced=[0])[1] == "REQUIRES_GRAD"
    assert refused(run, session, name, [w, x], [0.1], outputs=[x])[1] == "TENSOR_EXISTS"
    np.testing.assert_array_equal(session.read(w), [1, 2, 3])
    assert session.grad(w) is None


BAD = {
    "a slot used before it is made": op("neg", 9, outputs=[3]),
    "a slot made twice": op("neg", 1, outputs=[2]),
    "a slot beyond all slots": op("neg", 1, outputs=[1 << 40]),
    "an unknown op": op("no_such_op", 1, outputs=[3]),
    "a wrong number of arguments": op("neg", 1, 2, outputs=[3]),
    "a wrong kind of argument": Step(op=Op(op="neg", args=[Arg(string="x")], outputs=[3])),
    "an in-place op that names results": op("neg_", 1, outputs=[3]),
    "an in-place op on a number": op("add_", 1.0, 2),
    "a number that no run gives": op("mul_", 2, other=7),
    "nothing": Step(),
    "a session": Step(op=Op(session_id="x", op="neg", args=[Arg(tensor=1)], outputs=[3])),
    "a read of the generator": Step(manual_seed=commands_pb2.ManualSeedRequest()),
    "a create without values": Step(create=commands_pb2.CreateRequest(id=3)),
    "a gradient of nothing": Step(backward=commands_pb2.BackwardRequest(tensors=[0])),
    "a flag of nothing": Step(set_requires_grad=commands_pb2.SetRequiresGradRequest(requires_grad=True)),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_step_is_refused_when_it_is_registered(session, what):
    program = programs_pb2.Program(inputs=[spec(3), spec(3)], steps=[op("neg", 1, outputs=[7]), BAD[what]])
    with pytest.raises(grpc.RpcError):
        register(session, program)
    raw = program.SerializeToString()
    request = programs_pb2.RegisterProgramRequest(session_id=session.id, hash=hashlib.sha256(raw).digest(), program=raw)
    _, reason, metadata, *_ = refused(session.stub.RegisterProgram, request)
    assert reason in ("MALFORMED", "OP_UNKNOWN", "ARGUMENT_TYPE", "ARGUMENT_VALUE")
    assert metadata["step"] == "1"


def test_mutated_programs_are_refused_or_run_and_never_break_the_session(session):
    rng = random.Random(7)
    raw = descent().SerializeToString()
    w, x = session.create([1, 2, 3], requires_grad=True), session.create([1, 1, 1])
    reasons = set()
    for _ in range(300):
        mutated = bytearray(raw)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
        try:
            run(session, register(session, bytes(mutated)), [w, x], [0.1])
            reasons.add("ran")
        except grpc.RpcError as error:
            reasons.add(refusal(error)[1])
    assert "ran" in reasons and "MALFORMED" in reasons
    assert "INTERNAL" not in reasons
    name = register(session, descent())
    fresh = session.create([1, 2, 3], requires_grad=True)
    run(session, name, [fresh, session.create([1, 1, 1])], [0.5])
    np.testing.assert_allclose(session.read(fresh), [0, 0, 0], atol=1e-6)


def test_a_step_that_fails_is_named_and_what_came_before_stays_done(session):
    program = programs_pb2.Program(
        inputs=[spec(2), spec(2, 2)],
        steps=[op("add_", 1, 1.0), op("mm", 2, 1, outputs=[3])],
    )
    name = register(session, program)
    x, y = session.create([1, 1]), session.create([[1, 1], [1, 1]])
    _, reason, metadata, *_ = refused(run, session, name, [x, y])
    assert reason == "SHAPE"
    assert (metadata["step"], metadata["repetition"]) == ("1", "0")
    np.testing.assert_array_equal(session.read(x), [2, 2])


def test_of_many_programs_the_one_that_ran_longest_ago_gives_way():
    with running(max_programs=2) as server:
        session = server.open()
        assert session.opened.limits.max_programs == 2
        x = session.create([1, 2])
        first, second, third = (
            programs_pb2.Program(inputs=[spec(2)], steps=[op("mul", 1, factor, outputs=[2])], outputs=[2])
            for factor in (2.0, 3.0, 4.0)
        )
        one, two = register(session, first), register(session, second)
        run(session, one, [x])
        three = register(session, third)
        assert refused(run, session, two, [x])[1] == "PROGRAM_UNKNOWN"
        for name, factor in ((one, 2), (three, 4)):
            (made,) = run(session, name, [x])
            np.testing.assert_array_equal(session.read(made.id), [factor, 2 * factor])
        session.close()
        assert server.held() == 0


def test_programs_are_capped():
    with running(max_program_bytes=4000, max_program_steps=5) as server:
        session = server.open()
        for program in (
            descent(),
            programs_pb2.Program(inputs=[spec(3)] * 2000),
        ):
            raw = program.SerializeToString()
            request = programs_pb2.RegisterProgramRequest(
                session_id=session.id, hash=hashlib.sha256(raw).digest(), program=raw
            )
            assert refused(session.stub.RegisterProgram, request)[1] == "PROGRAM_LIMIT"
        session.close()


def test_what_a_program_held_is_given_back(session):
    name = register(session, descent())
    w, x = session.create(np.ones(3), requires_grad=True), session.create(np.ones(3))
    run(session, name, [w, x], [0.1], outputs=[50])
    held = session.stub.Describe(commands_pb2.DescribeRequest(session_id=session.id)).bytes
    for place in range(20):
        run(session, name, [w, x], [0.1], outputs=[51 + place])
        session.stub.Release(commands_pb2.ReleaseRequest(session_id=session.id, tensors=[51 + place]))
    again = session.stub.Describe(commands_pb2.DescribeRequest(session_id=session.id)).bytes
    assert again - held < 10_000


def keep_plan(session, size):
    """Run a program until it has a plan, with memory of its own, and release what it ran on."""
    program = programs_pb2.Program(
        inputs=[spec(size)],
        steps=[op("mul", 1, 2.0, outputs=[2]), op("exp", 2, outputs=[3]), op("sum", 3, outputs=[4])],
        outputs=[4],
    )
    name = register(session, program)
    x = session.op("zeros", [size]).id
    for _ in range(4):
        (made,) = run(session, name, [x])
        session.release(made.id)
    session.release(x)
    return name


def test_what_programs_are_prepared_with_is_given_back_when_memory_is_short(session):
    size = 1 << 21
    name = keep_plan(session, size)
    assert session.describe().bytes > 4 * size
    kept = [session.op("zeros", [size]).id for _ in range(3)]  # 24 of the session's 32 MiB
    assert session.describe().bytes < 4 * 4 * size
    session.release(*kept)
    (made,) = run(session, name, [session.op("zeros", [size]).id])
    assert session.read(made.id) == size


def test_a_run_whose_answer_finds_no_room_is_not_done_again(session):
    keep_plan(session, 1 << 20)
    program = programs_pb2.Program(inputs=[spec(2)], steps=[op("add_", 1, 1.0)], outputs=[1])
    x = session.create([0, 0])
    name = register(session, program)
    _, reason, *_ = refused(run, session, name, [x], repeat=1 << 23, stacked=True)
    assert reason == "MEMORY_LIMIT"
    np.testing.assert_array_equal(session.read(x), [1, 1])


def test_a_step_may_make_a_tensor_of_values(session):
    values = types_pb2.Payload(dtype=types_pb2.DTYPE_FLOAT32, shape=[2], data=np.float32([3, 4]).tobytes())
    program = programs_pb2.Program(
        inputs=[spec(2)],
        steps=[Step(create=commands_pb2.CreateRequest(id=2, payload=values)), op("mul", 1, 2, outputs=[3])],
        outputs=[3],
    )
    name, x = register(session, program), session.create([1, 2])
    for _ in range(4):
        (made,) = run(session, name, [x])
        np.testing.assert_array_equal(session.read(made.id), [3, 8])

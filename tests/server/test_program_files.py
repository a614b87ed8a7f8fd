"""Program files over the bare contract: loaded, bound by name, run by rules, saved; refused ones change nothing."""

import hashlib
import math

import grpc
import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import snapshots_pb2 as n
from gradwire.v1 import types_pb2 as t
from tests.server.program_files import DESCRIPTION, file_of, file_payload, raw_file
from tests.server.test_programs import op, register, run

FLOAT32, FLOAT64 = t.DTYPE_FLOAT32, t.DTYPE_FLOAT64


def refusal(call):
    """The Error of a call that must be refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    trailers = dict(caught.value.trailing_metadata())
    return errors_pb2.Error.FromString(trailers["gradwire-error-bin"])


def counter(session, value=0.0):
    payload = t.Payload(dtype=FLOAT64, data=np.float64(value).tobytes())
    return session.stub.Create(c.CreateRequest(session_id=session.id, payload=payload)).tensor.id


def created(session, array):
    wire = {"float32": FLOAT32, "float64": FLOAT64, "uint8": t.DTYPE_UINT8}[array.dtype.name]
    payload = t.Payload(dtype=wire, shape=array.shape, data=array.tobytes())
    return session.stub.Create(c.CreateRequest(session_id=session.id, payload=payload)).tensor.id


def term(value):
    """A term: ("input", 0), ("number", 0), the name of an operator, or a constant."""
    if isinstance(value, tuple):
        return p.RuleTerm(**{value[0]: value[1]})
    if isinstance(value, str):
        return p.RuleTerm(operator=p.RuleOperator.Value(f"RULE_OPERATOR_{value}"))
    return p.RuleTerm(constant=value)


def rule(target, *terms):
    return p.NumberRule(**{target[0]: target[1]}, terms=[term(each) for each in terms])


COUNTER = p.ProgramInput(dtype=FLOAT64, name="step", state=True, changed=True)


def shrinking(*rules, numbers=1, dynamic=False):
    """w *= number 0, a number of the rules; answers w + x."""
    return p.Program(
        inputs=[
            p.ProgramInput(dtype=FLOAT32, shape=[2], name="w", state=True, changed=True),
            COUNTER,
            p.ProgramInput(dtype=FLOAT32, shape=[3, 2] if dynamic else [2], name="x", dynamic=dynamic),
        ],
        numbers=numbers,
        rules=rules or RULES,
        steps=[op("mul_", 1, disabled=True, other=0), op("add", 1, 3, outputs=[4])],
        outputs=[4],
        described=[p.ProgramOutput(name="sum", dtype=FLOAT32, shape=[2])],
    )


RULES = (
    rule(("input", 1), ("input", 1), 1.0, "ADD"),
    rule(("number", 0), 1.0, 0.5, ("input", 1), 1.0, "ADD", "POWER", "SUBTRACT"),
)
TENSORS = {"w": np.array([2, 4], np.float32), "step": np.float64(0)}


def load(session, raw, **fields):
    created = session.stub.Create(c.CreateRequest(session_id=session.id, payload=file_payload(raw)))
    request = p.LoadProgramRequest(session_id=session.id, file=created.tensor.id, **fields)
    return created.tensor.id, session.stub.LoadProgram(request)


def run_loaded(session, loaded, named, **fields):
    request = p.RunProgramRequest(session_id=session.id, hash=loaded.hash, inputs=loaded.inputs, **fields)
    for name, tensor in named.items():
        request.named.add(name=name, id=tensor)
    return session.stub.RunProgram(request).outputs


def test_a_loaded_program_counts_and_computes_its_numbers(session):
    _, answer = load(session, file_of(TENSORS, {"step": shrinking()}))
    (loaded,) = answer.programs
    ids = {each.name: each.spec.id for each in answer.tensors}
    assert loaded.name == "step" and list(loaded.inputs) == [ids["w"], ids["step"], 0]
    assert [each.name for each in loaded.outputs] == ["sum"] and loaded.numbers == 0
    x = created(session, np.ones(2, np.float32))
    w = TENSORS["w"].copy()
    for count in range(1, 8):
        (total,) = run_loaded(session, loaded, {"x": x})
        w = w * np.float32(1 - 0.5**count)
        np.testing.assert_array_equal(session.read(total.id), w + 1)
        assert session.read(ids["step"]) == count
    run_loaded(session, loaded, {"x": x}, repeat=3)
    assert session.read(ids["step"]) == 10


def test_counters_are_counted_once_for_each_repetition_of_sliced_rows(session):
    program = shrinking()
    name = register(session, program)
    w, step = created(session, TENSORS["w"]), counter(session)
    x = created(session, np.zeros(6, np.float32))
    (rows,) = run(session, name, [w, step, x], repeat=3, sliced=[2], stacked=True)
    expected = TENSORS["w"] * np.float32(0.5)
    np.testing.assert_array_equal(session.read(rows.id)[0], expected)
    np.testing.assert_array_equal(session.read(rows.id)[1], expected * np.float32(0.75))
    assert session.read(step) == 3


def test_a_saved_file_has_the_present_values_and_loads_again(session):
    file, answer = load(session, file_of(TENSORS, {"step": shrinking()}))
    x = created(session, np.ones(2, np.float32))
    run_loaded(session, answer.programs[0], {"x": x})
    ids = [n.NamedTensor(name=each.name, id=each.spec.id) for each in answer.tensors]
    saved = session.stub.SaveProgram(p.SaveProgramRequest(session_id=session.id, file=file, tensors=ids)).file
    assert saved.dtype == t.DTYPE_UINT8
    _, again = load(session, session.read(saved.id).tobytes())
    assert {each.name: session.read(each.spec.id).tolist() for each in again.tensors} == {"w": [1, 2], "step": 1}
    assert again.programs[0].hash == answer.programs[0].hash
    before = run_loaded(session, answer.programs[0], {"x": x})
    after = run_loaded(session, again.programs[0], {"x": x})
    np.testing.assert_array_equal(session.read(before[0].id), session.read(after[0].id))


def test_dynamic_rows_may_have_any_size(session):
    _, answer = load(session, file_of(TENSORS, {"step": shrinking(dynamic=True)}))
    for rows in (1, 3, 7, 3, 1, 20, 30, 40, 3):
        x = created(session, np.ones((rows, 2), np.float32))
        (total,) = run_loaded(session, answer.programs[0], {"x": x})
        assert list(total.shape) == [rows, 2] and session.read(total.id).shape == (rows, 2)
    for shape in ((0, 2), (3, 1), (2,)):
        detail = refusal(
            lambda shape=shape: run_loaded(
                session, answer.programs[0], {"x": created(session, np.ones(shape, np.float32))}
            )
        )
        assert "input 'x' must have shape [n, 2]" in detail.message


FORMULAS = {
    "POWER": ((0.9, 7.0), 0.9**7), "MODULO": ((-7.0, 3.0), 2.0), "DIVIDE": ((1.0, 3.0), 1 / 3),
    "MINIMUM": ((1.0, 2.0), 1.0), "MAXIMUM": ((1.0, 2.0), 2.0), "COSINE": ((1.0,), math.cos(1)),
    "EXPONENTIAL": ((1.0,), math.e), "FLOOR": ((-1.5,), -2.0), "NEGATE": ((2.0,), -2.0),
    "ROUND_TO_FLOAT32": ((0.1,), float(np.float32(0.1))), "LESS": ((1.0, 1.0), 0.0),
    "LESS_OR_EQUAL": ((1.0, 1.0), 1.0), "EQUAL": ((1.0, 2.0), 0.0), "SELECT": ((0.0, 3.0, 4.0), 4.0),
    "SUBTRACT": ((1.0, 3.0), -2.0), "ADD": ((1.0, 3.0), 4.0), "MULTIPLY": ((2.0, 3.0), 6.0),
}  # fmt: skip


def test_every_operator_has_a_formula_here():
    assert {f"RULE_OPERATOR_{name}" for name in FORMULAS} == set(p.RuleOperator.keys()[1:])


@pytest.mark.parametrize("name", list(FORMULAS))
def test_an_operator_computes_as_python_does(session, name):
    operands, expected = FORMULAS[name]
    program = p.Program(inputs=[COUNTER], rules=[rule(("input", 0), *operands, name)])
    held = counter(session, 5)
    run(session, register(session, program), [held])
    assert session.read(held) == expected


BAD_RULES = {
    "no target": p.NumberRule(terms=[term(1.0)]),
    "no such number": rule(("number", 1), 1.0),
    "no counter": rule(("input", 0), 1.0),
    "no such input": rule(("input", 9), 1.0),
    "too few operands": rule(("number", 0), 1.0, "ADD"),
    "no value": rule(("number", 0)),
    "two values": rule(("number", 0), 1.0, 2.0),
    "an unset number": rule(("number", 0), ("number", 0)),
    "an unknown operator": p.NumberRule(number=0, terms=[term(1.0), p.RuleTerm(operator=99)]),
    "an empty term": p.NumberRule(number=0, terms=[p.RuleTerm()]),
    "too many terms": rule(("number", 0), 1.0, *["NEGATE"] * 256),
}


@pytest.mark.parametrize("what", list(BAD_RULES))
def test_a_bad_rule_is_refused_when_it_is_registered(session, what):
    detail = refusal(lambda: register(session, shrinking(BAD_RULES[what])))
    assert detail.reason == errors_pb2.REASON_MALFORMED and detail.metadata["rule"] == "0"


def test_the_terms_of_all_rules_are_bounded(session):
    longest = [rule(("number", number), 3.0, *["NEGATE"] * 255) for number in range(257)]
    assert "65536 terms in all" in refusal(lambda: register(session, shrinking(*longest, numbers=257))).message


def test_a_program_of_rules_only_is_cancelled(session):
    program = p.Program(inputs=[COUNTER], rules=[rule(("input", 0), ("input", 0), 1.0, "ADD")])
    name, held = register(session, program), counter(session)
    command = s.Command(run_program=p.RunProgramRequest(hash=name, inputs=[held], repeat=1 << 24), timeout_ms=200)
    request = s.RunRequest(session_id=session.id, writer=1, first_seq=1, commands=[command])
    (result,) = session.stub.Run(request).results
    assert result.error.reason == errors_pb2.REASON_DEADLINE_EXCEEDED
    counted, repetition = session.read(held), int(result.error.metadata["repetition"])
    assert counted > 0
    assert counted - repetition in (0, 1)  # cancelled before the repetition, or in it


def test_the_longest_rule_runs(session):
    program = p.Program(inputs=[COUNTER], rules=[rule(("input", 0), 3.0, *["NEGATE"] * 255)])
    held = counter(session, 5)
    run(session, register(session, program), [held])
    assert session.read(held) == -3


@pytest.mark.parametrize(
    "terms", [(1.0, 0.0, "DIVIDE"), (10.0, 400.0, "POWER"), (-1.0, 0.5, "POWER"), (1.0, 0.0, "MODULO")]
)
def test_a_failing_rule_changes_nothing(session, terms):
    program = shrinking(RULES[0], rule(("number", 0), *terms))
    name = register(session, program)
    w, step, x = created(session, TENSORS["w"]), counter(session), created(session, np.zeros(2, np.float32))
    detail = refusal(lambda: run(session, name, [w, step, x]))
    assert detail.reason == errors_pb2.REASON_ARGUMENT_VALUE and detail.metadata["rule"] == "1"
    assert session.read(step) == 0
    np.testing.assert_array_equal(session.read(w), TENSORS["w"])


def test_numbers_without_a_rule_are_given_by_the_run(session):
    program = shrinking(rule(("number", 1), 2.0), numbers=2)
    name = register(session, program)
    w, step, x = created(session, TENSORS["w"]), counter(session), created(session, np.zeros(2, np.float32))
    run(session, name, [w, step, x], [0.25])
    np.testing.assert_array_equal(session.read(w), TENSORS["w"] * 0.25)
    assert "takes 1 numbers" in refusal(lambda: run(session, name, [w, step, x], [1, 2])).message


def test_wrong_names_are_refused_with_the_right_ones(session):
    _, answer = load(session, file_of(TENSORS, {"step": shrinking()}))
    x = created(session, np.ones(2, np.float32))
    detail = refusal(lambda: run_loaded(session, answer.programs[0], {"y": x}))
    assert detail.reason == errors_pb2.REASON_ARGUMENT_VALUE
    assert detail.metadata["given"] == "y" and "x" in detail.metadata["allowed"].split(", ")
    assert "'x' are not given" in refusal(lambda: run_loaded(session, answer.programs[0], {})).message
    assert "given twice" in refusal(lambda: run_loaded(session, answer.programs[0], {"w": x, "x": x})).message


def test_a_counter_cannot_be_sliced(session):
    name = register(session, shrinking())
    w, step, x = (
        created(session, TENSORS["w"]),
        created(session, np.zeros(3)),
        created(session, np.zeros(2, np.float32)),
    )
    assert "no rows" in refusal(lambda: run(session, name, [w, step, x], repeat=3, sliced=[1])).message


GOOD = file_of(TENSORS, {"step": shrinking()})
BAD_FILES = {
    "empty": (b"", "SNAPSHOT_DAMAGED"),
    "cut in its head": (GOOD[:40], "SNAPSHOT_DAMAGED"),
    "cut in its data": (GOOD[:-1], "SNAPSHOT_DAMAGED"),
    "a giant head": (b"\xff" * 8 + GOOD[8:], "SNAPSHOT_DAMAGED"),
    "no programs": (raw_file(TENSORS), "SNAPSHOT_DAMAGED"),
    "no description": (raw_file({DESCRIPTION: np.full(9, 255, np.uint8)}), "SNAPSHOT_DAMAGED"),
    "an empty description": (file_of(TENSORS, {}), "SNAPSHOT_DAMAGED"),
    "another version": (file_of(TENSORS, {"step": shrinking()}, version=2), "NOT_SUPPORTED"),
    "a broken program": (file_of(TENSORS, {"step": b"\xff\xff"}), "MALFORMED"),
    "a missing tensor": (file_of({"w": TENSORS["w"]}, {"step": shrinking()}), "SNAPSHOT_DAMAGED"),
    "another shape": (file_of({**TENSORS, "w": np.ones(3, np.float32)}, {"step": shrinking()}), "SNAPSHOT_DAMAGED"),
    "another dtype": (file_of({**TENSORS, "step": np.float32(0)}, {"step": shrinking()}), "SNAPSHOT_DAMAGED"),
    "an unnamed input": (file_of({}, {"p": p.Program(inputs=[p.ProgramInput(dtype=FLOAT32)])}), "SNAPSHOT_DAMAGED"),
    "an unknown op": (file_of({}, {"p": p.Program(steps=[op("no_such_op", outputs=[1])])}), "OP_UNKNOWN"),
    "a giant tensor": (
        raw_file(TENSORS).replace(b'"shape": [2]', b'"shape": [2000000000000]'), "SNAPSHOT_DAMAGED"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", list(BAD_FILES))
def test_a_bad_file_is_refused_and_leaves_nothing(session, what):
    raw, reason = BAD_FILES[what]
    file = created(session, np.frombuffer(raw, np.uint8))
    held = session.stub.Describe(c.DescribeRequest(session_id=session.id))
    request = p.LoadProgramRequest(session_id=session.id, file=file)
    detail = refusal(lambda: session.stub.LoadProgram(request))
    assert errors_pb2.Reason.Name(detail.reason) == f"REASON_{reason}"
    assert session.stub.Describe(c.DescribeRequest(session_id=session.id)) == held


def test_a_refused_version_names_both(session):
    detail = refusal(lambda: load(session, BAD_FILES["another version"][0]))
    assert (detail.metadata["given"], detail.metadata["allowed"]) == ("2", "1")


def test_a_program_of_other_ops_names_both_schemas(session):
    detail = refusal(lambda: load(session, BAD_FILES["an unknown op"][0]))
    assert detail.metadata["given"] == "x" and len(detail.metadata["allowed"]) == 64
    assert "schema x" in detail.message and detail.metadata["program"] == "p"


def test_a_file_must_be_bytes(session):
    tensor = created(session, np.ones(3, np.float32))
    detail = refusal(lambda: session.stub.LoadProgram(p.LoadProgramRequest(session_id=session.id, file=tensor)))
    assert detail.reason == errors_pb2.REASON_DTYPE


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("nothing", np.ones(2, np.float32), "ARGUMENT_VALUE"),
        ("w", np.ones(3, np.float32), "SHAPE"),
        ("w", np.ones(2), "DTYPE"),
    ],
)
def test_a_save_of_what_the_file_has_not_is_refused(session, name, array, reason):
    file = created(session, np.frombuffer(GOOD, np.uint8))
    named = n.NamedTensor(name=name, id=created(session, array))
    request = p.SaveProgramRequest(session_id=session.id, file=file, tensors=[named])
    detail = refusal(lambda: session.stub.SaveProgram(request))
    assert errors_pb2.Reason.Name(detail.reason) == f"REASON_{reason}"


def test_registering_a_loaded_program_again_finds_it(session):
    _, answer = load(session, GOOD)
    raw = shrinking().SerializeToString()
    assert answer.programs[0].hash == hashlib.sha256(raw).digest()
    load(session, GOOD)
    request = p.RegisterProgramRequest(session_id=session.id, hash=answer.programs[0].hash, program=raw)
    assert session.stub.RegisterProgram(request).programs == 1

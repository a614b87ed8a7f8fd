"""Describe with `activity`: where a session's compute goes, its refusals, and how its programs ran."""

import time
from collections import Counter

import grpc
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2
from gradwire.v1 import service_pb2 as s
from gradwire_server.common.errors import Refusal
from gradwire_server.session.activity_report import MAX_OPS
from gradwire_server.session.arguments import NAMED_OPS
from gradwire_server.session.interpreter import NAME_BYTES
from gradwire_server.session.state.activity import MAX_MESSAGE, MAX_NAMES, MAX_REFUSALS, OTHERS, Activity, OpTimes
from gradwire_server.session.state.op_trace import MAX_ENTRIES, OpTrace
from tests.server.harness import Id, Remote, Running, op, refused, until
from tests.server.test_programs import descent, register, run


def activity(session: Remote) -> c.SessionActivity:
    answer: c.SessionActivity = session.stub.Describe(c.DescribeRequest(session_id=session.id, activity=True)).activity
    return answer


def names(found: c.SessionActivity) -> set[tuple[str, str]]:
    return {(each.kind, each.name) for each in found.op_times}


def test_times_have_ops_and_the_nodes_of_backward(session: Remote) -> None:
    assert not {kind for kind, _ in names(activity(session))} - {"", "describe"}
    x = session.create([1.0, 2.0], requires_grad=True)
    loss = session.op("sum", Id(session.op("mul", Id(x), Id(x)).id)).id
    session.backward(loss)
    found = activity(session)
    nodes = {("backward", "MulBackward0"), ("backward", "AccumulateGrad")}
    assert {("op", "mul"), ("op", "sum"), ("create", "")} | nodes <= names(found)
    calls = {(each.kind, each.name): each.calls for each in found.op_times}
    assert calls["op", "mul"] == calls["backward", "MulBackward0"] == 1
    assert all(0 < each.seconds < 60 for each in found.op_times)


def test_nothing_is_measured_without_a_watch(session: Remote) -> None:
    session.create([1.0])
    answer = session.stub.Describe(c.DescribeRequest(session_id=session.id))
    assert not answer.HasField("activity")
    assert ("create", "") not in names(activity(session))


def test_refusals_are_logged_with_their_sentence(session: Remote) -> None:
    x = session.create([1.0, 2.0])
    y = session.create([1.0, 2.0, 3.0])
    before = time.time()
    with pytest.raises(grpc.RpcError) as caught:
        session.op("add", Id(x), Id(y))
    found = activity(session)
    assert found.refused == 1
    (logged,) = found.refusals
    assert (logged.command, logged.reason) == ("op", errors_pb2.REASON_SHAPE)
    assert logged.message == caught.value.details()
    assert before - 1 < logged.at_unix_ms / 1000 < time.time() + 1


def test_refusals_of_a_batch_name_their_op(session: Remote) -> None:
    x, y = session.create([1.0, 2.0]), session.create([1.0, 2.0, 3.0])
    request = c.OpRequest(op="mul", outputs=[99])
    request.args.add(tensor=x)
    request.args.add(tensor=y)
    answer = session.run(s.Command(op=request))
    assert answer.results[0].error.reason == errors_pb2.REASON_SHAPE
    (logged,) = activity(session).refusals
    assert (logged.command, logged.op) == ("op", "mul")


def test_the_log_is_bounded() -> None:
    log = Activity()
    for number in range(MAX_REFUSALS + 7):
        log.log("op", "", Refusal("SHAPE", f"{number} " + "x" * 10_000))
    assert log.refused == MAX_REFUSALS + 7
    assert len(log.refusals) == MAX_REFUSALS
    assert log.refusals[-1].message.startswith(f"{MAX_REFUSALS + 6} ")
    assert {len(each.message) for each in log.refusals} == {MAX_MESSAGE}


class Turned:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_seconds_are_those_between_the_ops_and_none_while_paused() -> None:
    clock = Turned()
    times = OpTimes(clock)
    assert times.choose()
    for name, seconds in (("add", 1.0), ("mul", 2.0), ("add", 4.0)):
        times.begin("op", name)
        clock.now += seconds
    times.pause()
    clock.now += 100
    times.resume()
    clock.now += 0.5
    times.rest()
    clock.now += 0.25
    assert sorted(times.items()) == [("", "", 0.25, 1), ("op", "add", 5.5, 2), ("op", "mul", 2.0, 1)]


def test_names_are_bounded() -> None:
    clock = Turned()
    times = OpTimes(clock)
    assert times.choose()
    for number in range(MAX_NAMES + 50):
        times.node(f"Custom{number}Backward")
        clock.now += 1
    counts = Counter({name: calls for _, name, _, calls in times.items()})
    assert len(counts) == MAX_NAMES + 1
    assert counts[OTHERS] == 50


def test_short_ops_are_estimated_from_few_calls() -> None:
    clock = Turned()
    times = OpTimes(clock)
    chosen = 0
    for call in range(20_000):  # calls of 20 ops of 10 µs, of which every second call has another op
        counted = times.choose()
        chosen += counted
        for _ in range(20):
            if counted:
                times.begin("op", "add" if call % 2 else "mul")
            clock.now += 1e-5
        if counted:
            times.rest()
        times.pause()
    found = {name: (seconds, calls) for kind, name, seconds, calls in times.items() if kind == "op"}
    assert 500 < chosen < 2500
    for name in ("add", "mul"):
        assert found[name][0] == pytest.approx(2.0, rel=0.2)
        assert found[name][1] == pytest.approx(200_000, rel=0.2)


def test_a_watch_ends(session: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire_server.session.state.activity.WATCH_SECONDS", 0.0)
    activity(session)
    session.create([1.0])  # the watch has ended before it
    monkeypatch.undo()
    until(lambda: ("create", "") not in names(activity(session)))


def test_programs_tell_how_they_ran(session: Remote) -> None:
    activity(session)
    name = register(session, descent())
    w = session.create([1.0, 2.0, 3.0], requires_grad=True)
    x = session.create([1.0, 1.0, 1.0])
    for _ in range(3):
        run(session, name, [w, x], [0.5])
    found = activity(session)
    (program,) = found.programs
    assert (program.hash, program.steps, program.planned_runs, program.stepwise_runs) == (name, 7, 2, 1)
    assert list(program.ops) == ["mul", "sum", "backward", "grad", "sub_", "set_grad"]
    assert len(program.ops) <= MAX_OPS
    calls = {(each.kind, each.name): each.calls for each in found.op_times}
    assert calls["program", name[:NAME_BYTES].hex()] == 4  # each run, and the making of the plan
    assert calls["step", "sub_"] == 1


def test_another_session_sees_nothing_of_it(session: Remote, server: Running) -> None:
    x = session.create([1.0, 2.0])
    refused(session.op, "add", Id(x), Id(12345))
    other = server.open()
    found = activity(other)
    assert (found.refused, list(found.refusals), list(found.programs)) == (0, [], [])
    assert activity(session).refused == 1
    other.close()


def timed(session: Remote, first: int, *commands: s.Command, op_times: bool = True) -> list[c.OpTime]:
    run = s.RunRequest(session_id=session.id, writer=1, first_seq=first, commands=commands, op_times=op_times)
    response = session.stub.Run(run)
    assert not any(each.HasField("error") for each in response.results), response
    return list(response.op_times)


def test_a_batch_tells_the_time_of_each_op_in_order_if_asked(session: Remote) -> None:
    x = session.create([1.0, 2.0], requires_grad=True)
    double = s.Command(op=op("mul", Id(x), Id(x), outputs=[x + 1]))
    total = s.Command(op=op("sum", Id(x + 1), outputs=[x + 2]))
    back = s.Command(backward=c.BackwardRequest(tensors=[x + 2], retain_graph=True))
    assert timed(session, 1, double, total, back, op_times=False) == []
    told = timed(session, 4, back, s.Command(op=op("add", Id(x), Id(x), outputs=[x + 3])))
    assert [(each.kind, each.name) for each in told if each.kind] == [
        ("backward", ""),
        ("backward", "SumBackward0"),
        ("backward", "MulBackward0"),
        ("backward", "AccumulateGrad"),
        ("op", "add"),
    ]
    assert all(0 < each.seconds < 60 and each.calls == 1 for each in told)


def test_a_watch_goes_on_after_a_timed_batch(session: Remote) -> None:
    activity(session)
    x = session.create([1.0, 2.0])
    timed(session, 1, s.Command(op=op("mul", Id(x), Id(x), outputs=[x + 1])))
    session.op("add", Id(x), Id(x))
    assert {("create", ""), ("op", "add")} <= names(activity(session))


def test_a_trace_has_a_limit() -> None:
    clock = iter(range(3 * MAX_ENTRIES))
    trace = OpTrace(clock=lambda: float(next(clock)))
    trace.choose()
    for _ in range(MAX_ENTRIES + 50):
        trace.begin("op", "mul")
    items = trace.items()
    assert len(items) == MAX_ENTRIES + 1
    assert items[-1][:2] == ("", "others")
    assert items[-1][3] == 51


def test_the_first_call_in_place_is_named(session: Remote) -> None:
    x = session.create([1.0, 2.0])
    NAMED_OPS.pop("mul_", None)
    told = timed(session, 1, s.Command(op=op("mul_", Id(x), Id(x))))
    assert ("op", "mul_") in {(each.kind, each.name) for each in told}

"""Batches end with training steps, and release no tensor that a waiting command uses."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

import pytest

import gradwire
from gradwire._session import step_ends
from gradwire._session.step_ends import LONGEST, LongSteps, StepEnds, unused
from gradwire._transport.wire import framed
from gradwire.v1 import commands_pb2, service_pb2


def sent_batches(session: gradwire.Session, monkeypatch: pytest.MonkeyPatch) -> list[service_pb2.RunRequest]:
    """The batches that a session sends from now on; grows."""
    found: list[service_pb2.RunRequest] = []
    send = session._retransmission.send

    def note(batch: Any) -> None:
        found.append(service_pb2.StreamRequest.FromString(batch.request).batch)
        send(batch)

    monkeypatch.setattr(session._retransmission, "send", note)
    return found


def train(steps: int, kept: list[Any] | None = None) -> tuple[list[float], list[float]]:
    """A small network's weights and last loss after so many steps."""
    inputs = gradwire.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
    target = gradwire.tensor([1, 0])
    weight = gradwire.tensor([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]], requires_grad=True)
    bias = gradwire.zeros(2, requires_grad=True)
    for _ in range(steps):
        hidden = gradwire.relu(inputs @ weight + bias)
        loss = gradwire.nn.functional.cross_entropy(hidden, target)
        if kept is not None:
            kept.append(hidden)
        loss.backward()
        with gradwire.no_grad():
            for each in (weight, bias):
                each -= 0.1 * each.grad
                each.grad = None
    return weight.flatten().tolist(), [loss.item()]


def kinds_of(batch: service_pb2.RunRequest) -> list[str]:
    return [each.WhichOneof("command") for each in batch.commands]


def test_no_batch_has_a_part_of_a_step(without_maintenance, deferring, monkeypatch):
    batches = sent_batches(deferring, monkeypatch)
    train(150)
    whole = [kinds_of(each) for each in batches if kinds_of(each).count("backward") > 1]
    assert len(whole) >= 3
    for kinds in whole[:-1]:  # the last one ends with the read that waits
        steps = [kind for kind in kinds if kind != "release"]
        assert steps[0] == "calls", kinds
        assert steps[-1] == "set_grad", kinds
        assert kinds[-1] == "release", kinds


def test_steps_in_whole_batches_compute_what_single_commands_compute(deferring, monkeypatch, server_address):
    found = train(150)
    monkeypatch.setenv("GRADWIRE_SYNC", "1")
    with gradwire.connect(server_address) as waiting:
        expected = train(150)
    waiting.close()
    assert found == expected


def test_tensors_that_stay_hold_their_values(deferring):
    kept: list[Any] = []
    train(80, kept)
    assert all(bool((each >= 0).all()) for each in kept)
    assert kept[-1].grad_fn is not None
    with pytest.raises(RuntimeError, match="second time"):
        kept[-1].sum().backward()


def look_at_results(steps: int) -> list[Any]:
    """What results of a loop tell that stay after a step: a view, a prediction, and one that is not of the loss."""
    found: list[Any] = []

    def attempt(backward: Any) -> None:
        try:
            backward()
            found.append(None)
        except RuntimeError as error:
            found.append(str(error)[:40])

    def note(gradient: Any) -> None:
        found.append(gradient.sum().item())

    weight = gradwire.tensor([[0.3, -0.2], [0.1, 0.4]], requires_grad=True)
    inputs, optimizer = gradwire.ones(3, 2), gradwire.optim.SGD([weight], lr=0.1)
    for step in range(steps):
        hidden = inputs @ weight
        view, active, other = hidden.select(1, 0), gradwire.relu(hidden), gradwire.sigmoid(inputs @ weight)
        loss = (active.sum(1) + view).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
        if step < steps - 5:
            continue
        found += [view.grad_fn.name(), hidden.grad_fn.name(), view._version, hidden.requires_grad, view._is_view()]
        attempt(hidden.sum().backward)
        found.append(weight.grad.tolist())
        attempt(other.sum().backward)
        active.register_hook(note)
        attempt((active * active).sum().backward)
        with gradwire.no_grad():
            hidden.add_(1)
        found += [view.tolist(), view._version, other.tolist()]
    return found


def test_results_of_steps_that_stay_are_those_of_single_commands(deferring, monkeypatch, server_address):
    found = look_at_results(120)
    monkeypatch.setenv("GRADWIRE_SYNC", "1")
    with gradwire.connect(server_address) as waiting:
        expected = look_at_results(120)
    waiting.close()
    assert found == expected


def test_a_batch_with_more_commands_than_allowed_is_cut_between_steps(without_maintenance, deferring, monkeypatch):
    batches = sent_batches(deferring, monkeypatch)
    limits = service_pb2.Limits()
    limits.CopyFrom(deferring.limits)
    limits.max_batch_commands = 40
    monkeypatch.setattr(deferring, "limits", limits)
    train(100)
    several = [kinds_of(each) for each in batches if kinds_of(each).count("backward") > 1]
    assert several
    assert {kinds[0] for kinds in several} == {"calls"}
    assert max(sum(each.calls.count or 1 for each in batch.commands) for batch in batches) <= 40


def call(*words: int) -> tuple[bytes, None, bool]:
    return struct.pack(f"<{len(words)}Q", *words), None, True


def other(**which: Any) -> tuple[bytes, None, bool]:
    return framed(service_pb2.Command(**which).SerializeToString()), None, False


COMMAND = other(backward=commands_pb2.BackwardRequest(tensors=[1]))
CREATE = other(create=commands_pb2.CreateRequest(id=1, payload={"data": bytes(200)}))
DROP = other(set_grad=commands_pb2.SetGradRequest(tensor=1))


def test_the_beginnings_of_steps_are_noted():
    ends, buffer, position = StepEnds(), deque([COMMAND, call(1), call(2), COMMAND]), 4
    assert ends.note(buffer, position) == 3
    buffer += [COMMAND, call(3), COMMAND]
    assert ends.note(buffer, 7) == 2
    assert ends.near(8) == 6
    assert ends.near(13) == 1
    assert ends.near(14) == ends.near(20) == 0
    assert ends.last_start(0, 7) == 5
    assert ends.last_start(0, 4) == 1
    assert ends.last_start(1, 4) == 4  # no step begins there
    assert ends.last_start(1, 7) == 5


def test_a_step_has_created_tensors_and_gradients_that_are_dropped_before_the_backward():
    ends = StepEnds()
    assert ends.note(deque([COMMAND, CREATE, call(1), CREATE, call(2), DROP, DROP, COMMAND]), 8) == 6
    assert ends.note(deque([call(1), DROP, call(2), COMMAND]), 12) == 2  # the step before ends with the drop
    assert ends.note(deque([call(1), DROP, DROP, COMMAND]), 16) == 4


def test_long_steps_are_no_steps():
    ends = StepEnds()
    assert ends.note(deque([call(1), COMMAND]), 2)
    assert not ends.note(deque([call(1), COMMAND]), LONGEST + 3)
    assert not ends.near(LONGEST + 4)
    assert ends.last_start(0, LONGEST + 3) == LONGEST + 3


def test_ids_of_waiting_commands_are_found():
    waiting = [call(7, 1000, 1001), (b"\x32\x0a" + struct.pack("<Q", 1003) + b"\x01", None, False)]
    assert unused([1000, 1001, 1002, 1003], waiting) == ([1002], [1000, 1001, 1003])
    assert unused([5], []) == ([5], [])


def long_chain(steps: int, kept: list[Any] | None = None, calls: int = 150) -> list[list[float]]:
    """The gradients of steps with many calls each; every step has a new leaf."""
    found: list[list[float]] = []
    for step in range(steps):
        x = gradwire.full((4,), 1.0 + step % 3, requires_grad=True)
        y = x
        for _ in range(calls // 2):
            y = y * 1.01
            y = y + 0.1
        y.sum().backward()
        if kept is not None:
            kept.append(y)
        found.append(x.grad[1:].tolist())
    return found


def sizes_of(batches: list[service_pb2.RunRequest]) -> list[int]:
    """The most calls of one command, by batch."""
    return [max((each.calls.count for each in batch.commands), default=0) for batch in batches]


def test_a_long_step_that_the_server_computes_at_once_comes_in_one_batch(without_maintenance, deferring, monkeypatch):
    monkeypatch.setattr(step_ends, "_SLOW", 1.0)
    monkeypatch.setattr(step_ends, "_WORTH", 1.0)  # on a busy machine a step may take long
    first = 2 * step_ends._TRIED
    found = long_chain(first)
    batches = sent_batches(deferring, monkeypatch)
    found += long_chain(20)
    sizes = sizes_of(batches)
    assert sum(size == 151 for size in sizes) >= 19
    assert found[first : first + 3] == found[:3]
    monkeypatch.setattr(deferring, "every_call_waits", True)
    assert long_chain(3) == found[:3]


def test_long_steps_that_take_the_server_long_are_sent_in_parts(without_maintenance, deferring, monkeypatch):
    monkeypatch.setattr(step_ends, "_SLOW", 1.0)
    monkeypatch.setattr(step_ends, "_WORTH", 0.0)
    long_chain(2 * step_ends._TRIED)
    batches = sent_batches(deferring, monkeypatch)
    long_chain(20)
    assert max(sizes_of(batches)) < 151


def test_results_of_long_steps_that_stay_have_their_graph(deferring, monkeypatch):
    monkeypatch.setattr(step_ends, "_SLOW", 1.0)
    monkeypatch.setattr(step_ends, "_WORTH", 1.0)
    kept: list[Any] = []
    long_chain(2 * step_ends._TRIED, kept, 80)
    last = kept[-1]
    assert last.grad_fn.name() == "AddBackward0"
    node, names = last.grad_fn, []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    assert names == ["AddBackward0", "MulBackward0"] * 40 + ["torch::autograd::AccumulateGrad"]
    with pytest.raises(RuntimeError, match="second time"):
        last.sum().backward()
    (again := last * 2).sum()
    assert again.grad_fn.next_functions[0][0].name() == "AddBackward0"


def test_whether_long_steps_are_kept_is_tried_now_and_then():
    steps = LongSteps()
    kept = [steps.waits(300) for _ in range(600)]
    tried = step_ends._TRIED
    assert kept[: tried + 3] == [False, *[True] * tried, False, False]
    assert sum(kept) == 3 * tried  # then after 128 and 256 steps
    steps.computed(300, 300 * step_ends._WORTH * 1.01)
    assert not steps.waits(300)
    steps.computed(300, 300 * step_ends._WORTH * 0.99)
    assert all(steps.waits(300) for _ in range(tried))
    assert not steps.waits(300)


def test_long_steps_of_slow_commands_are_not_tried():
    steps = LongSteps()
    assert not any(steps.waits(300, 300 * step_ends._SLOW * 1.01) for _ in range(9))
    assert steps.waits(300, 300 * step_ends._SLOW * 0.99)
    steps.computed(300, 0.0)
    assert steps.waits(300, 1.0)  # other programs may have taken the time


def test_of_long_steps_few_lengths_are_known():
    steps = LongSteps()
    for length in range(100, 200):
        assert not steps.waits(length)
        assert steps.waits(length)
    assert not steps.waits(100)
    assert not steps.waits(5000)
    assert not steps.waits(5000)


def test_a_step_that_another_thread_notes_meanwhile_stops_no_batch():
    ends = StepEnds()

    class Noting(int):
        def __gt__(self, other):
            ends._starts.append(40)
            return int(self) > other

    ends._starts.extend([10, Noting(20), 30])
    assert ends.last_start(5, 25) == 20

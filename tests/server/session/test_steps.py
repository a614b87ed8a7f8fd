"""Steps whose tensors nobody sees: joined to one list, they leave what their commands leave one by one, bit for bit."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2, types_pb2
from gradwire_engine import Tensor, activate, tensor
from gradwire_engine.autograd.repeated_step import RepeatedStep, Running
from gradwire_engine.graph.callbacks import hook_tensor
from gradwire_engine.graph.hooks import ExternalCallback
from gradwire_server.session.meter import Meter
from gradwire_server.session.prepared import calls, repeats, steps
from tests.server.harness import Id, argument, command, op
from tests.server.session.test_repeated_steps import (
    NO_GRAD,
    ROWS,
    Program,
    Side,
    disturb,
    prepare_update,
    seen,
    sides_of,
)

LEAVES = (2, 3, 4, 6)
Payload = types_pb2.Payload
DTYPES = {"float32": types_pb2.DTYPE_FLOAT32, "float64": types_pb2.DTYPE_FLOAT64}


def reached(program: Program) -> set[int]:
    """The leaves that a program's loss depends on."""
    found: set[int] = set()
    waiting: list[Any] = [("made", len(program.plan) - 1)]
    while waiting:
        one = waiting.pop()
        if type(one) is tuple:
            waiting += program.plan[one[1]][1]
        elif type(one) is int:
            found.add(one)
    return found


#: A program whose loss is cross entropy, and which uses all leaves.
SEED = next(seed for seed in range(200) if {*LEAVES, 5} <= reached(Program(seed)))


class Pair:
    """Two sessions with the same commands, of which one joins steps; and how often it did."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
        self.program = Program(seed)
        self.program.updated = [leaf for leaf in LEAVES if leaf in reached(self.program)]
        self.sgd = {leaf: prepare_update(self.program) for leaf in LEAVES}  # ops of one description each
        self.sides, _ = sides_of(self.program, True, True)
        self.plain, self.joining = self.sides
        self.plain.session.steps = None
        self.ran: list[bool] = []
        run = RepeatedStep.run

        def counted(step: RepeatedStep, *args: Any) -> Any:
            received = yield from run(step, *args)
            self.ran.append(received is not None)
            return received

        monkeypatch.setattr(RepeatedStep, "run", counted)

    def commands(self, keep: Callable[[int], bool] = lambda one: False) -> list[service_pb2.Command]:
        """A step whose last command releases its tensors, except those to keep."""
        made, ids = self.program.step(self.sgd)
        return [*made, command(c.ReleaseRequest(tensors=[each for each in ids if not keep(each)]), quiet=True)]

    def step(self, commands: list[service_pb2.Command] | None = None) -> bytes:
        """Run a step in both sessions, and compare them."""
        commands = self.commands() if commands is None else commands
        answers = [side.run(commands) for side in self.sides]
        assert answers[0] == answers[1]
        assert seen(self.plain) == seen(self.joining)
        return answers[0]

    def both(self, change: Callable[[Side], object]) -> None:
        """Change both sessions."""
        for side in self.sides:
            with activate(side.session.grad_context):
                change(side)

    def warm(self) -> None:
        """Run steps until one is joined."""
        for _ in range(12):
            self.step()
            if self.ran and self.ran[-1]:
                return
        raise AssertionError("no step was joined")

    def next_is(self, joined: bool) -> bytes:
        """Run a step, and check whether it was joined."""
        before = sum(self.ran)
        answer = self.step()
        assert sum(self.ran) - before == joined
        return answer


@pytest.fixture(autouse=True)
def calls_and_steps_are_kept_from_the_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_FIRST", 1)
    monkeypatch.setattr(repeats, "_recipes", {})
    monkeypatch.setattr(repeats, "_failures", {})
    monkeypatch.setattr(steps, "_ALWAYS", 16)
    monkeypatch.setattr(steps, "_REPAID", 2)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    made = Pair(SEED, monkeypatch)
    made.warm()
    return made


@pytest.mark.parametrize("seed", range(40))
def test_random_steps_leave_the_same_state(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick, pair = random.Random(seed), Pair(seed, monkeypatch)
    for number in range(20):
        few = pick.random() < 0.3
        commands = pair.commands(keep=lambda one, few=few: few and pick.random() < 0.15)  # type: ignore[misc]
        if number > 8 and pick.random() < 0.4:
            *body, last = commands
            disturb(pick, body, list(last.release.tensors), pair.program)
            commands = [*body, last]
        pair.step(commands)
    assert any(pair.ran)


@pytest.mark.parametrize("seed", range(12))
def test_several_steps_in_a_batch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(seed, monkeypatch)
    pair.warm()
    parts = [pair.commands() for _ in range(4)]
    ids = [each for part in parts for each in part[-1].release.tensors]
    before = sum(pair.ran)
    pair.step([*(one for part in parts for one in part[:-1]), command(c.ReleaseRequest(tensors=ids), quiet=True)])
    assert sum(pair.ran) - before == 4


# What may change between two steps whose bytes are alike but for ids.


def _set(side: Side, key: int, made: Tensor) -> None:
    side.session.release(key)
    side.session.bind(key, made)


def _values(side: Side, key: int) -> np.ndarray:
    array: np.ndarray = side.session.store[key].array.copy()
    return array


CHANGES: dict[str, Callable[[Side], object]] = {
    "a leaf that needs no gradient": lambda side: _set(side, 2, tensor(_values(side, 2), False)),
    "an input that needs one": lambda side: _set(side, 1, tensor(_values(side, 1), True)),
    "another layout": lambda side: _set(side, 2, tensor(np.asfortranarray(_values(side, 2)), True)),
    "an input with strides": lambda side: _set(side, 1, tensor(np.asfortranarray(_values(side, 1)), False)),
    "another dtype": lambda side: _set(side, 1, tensor(_values(side, 1).astype(np.float16), False)),
    "another shape": lambda side: _set(side, 1, tensor(_values(side, 1)[:4], False)),
    "another rank": lambda side: _set(side, 3, tensor(_values(side, 3)[None], True)),
    "a result of a recorded op": lambda side: _set(side, 2, side.session.store[2] * 2.0),
    "a view": lambda side: _set(side, 2, side.session.store[2][:]),
    "a hook on a leaf": lambda side: hook_tensor(side.session.store[2], ExternalCallback(5, [])),
    "a class that is none": lambda side: side.session.store[5].array.__setitem__(0, 99),
    "a gradient of another dtype": lambda side: setattr(
        side.session.store[2], "grad", tensor(_values(side, 2).astype(np.float16))
    ),
    "a gradient that is a view": lambda side: setattr(side.session.store[2], "grad", tensor(_values(side, 2))[:]),
    "one storage for two": lambda side: setattr(side.session.store[2], "storage", side.session.store[3].storage),
    "an open level": lambda side: setattr(side.session.grad_context.duals, "active", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_an_operand_is_seen(pair: Pair, change: str) -> None:
    pair.both(CHANGES[change])
    pair.next_is(False)


def test_an_inference_tensor_is_seen(pair: Pair) -> None:
    def change(side: Side) -> None:
        with activate(side.session.inference_context):
            _set(side, 2, tensor(_values(side, 2)))

    pair.both(change)
    pair.next_is(False)


def test_other_values_of_operands_count(pair: Pair) -> None:
    pair.both(lambda side: side.session.store[1].array.__imul__(-0.5))
    pair.both(lambda side: _set(side, 2, tensor(_values(side, 2) * 3, True)))
    pair.next_is(True)


def test_limits_are_kept(pair: Pair) -> None:
    for limit in (1, 100, 3000):
        pair.both(lambda side, limit=limit: setattr(side.session.account, "limit", side.session.account.bytes + limit))
        pair.step()
    pair.both(lambda side: setattr(side.session.account, "limit", 1 << 30))
    pair.next_is(True)
    pair.both(lambda side: setattr(side.session, "max_tensors", len(side.session.store) + 2))
    pair.next_is(False)
    pair.both(lambda side: setattr(side.session, "max_tensors", 1000))
    pair.both(lambda side: setattr(side.session.account, "operations", -1.0))
    pair.next_is(False)


def test_a_cancelled_step_is_refused(pair: Pair) -> None:
    pair.both(lambda side: setattr(side.session.cancel_token, "cancel_ticket", side.ticket + 1))
    answer = pair.next_is(False)
    assert service_pb2.RunResponse.FromString(answer).results
    pair.next_is(True)


def test_a_session_whose_ids_have_failed_runs_commands(pair: Pair) -> None:
    pair.step([command(op("matmul", Id(1), Id(1), outputs=[900]), quiet=True)])
    pair.next_is(False)
    pair.step([command(c.ReleaseRequest(tensors=[900]), quiet=True)])
    pair.next_is(True)


def test_an_op_that_is_prepared_anew_is_seen(pair: Pair) -> None:
    number = pair.program.plan[0][0]
    pair.step([each for each in pair.program.prepared if each.prepare.number == number])
    pair.next_is(False)
    pair.warm()


@pytest.mark.parametrize("word", range(3))
def test_ids_that_are_taken_or_too_large_are_refused(pair: Pair, word: int) -> None:
    commands = pair.commands()
    made = commands[-1].release.tensors[0]
    if word == 0:
        pair.both(lambda side: side.session.bind(made, tensor(np.ones(1))))
    other = {0: made, 1: 1 << 60, 2: 1}[word]
    words = commands[0].calls.words
    commands[0].calls.words = words.replace(struct.pack("<Q", made), struct.pack("<Q", other))
    before = sum(pair.ran)
    pair.step(commands)
    assert sum(pair.ran) == before


def test_results_that_stay_are_named(pair: Pair) -> None:
    *body, last = pair.commands()
    grads = [each.grad.id for each in body if each.HasField("grad")]
    before = sum(pair.ran)
    kept = command(c.ReleaseRequest(tensors=[each for each in last.release.tensors if each != grads[1]]), quiet=True)
    pair.step([*body, kept])
    assert sum(pair.ran) == before + 1
    assert grads[1] in pair.joining.session.store


def test_a_gradient_that_stays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(SEED, monkeypatch)
    for number in range(12):
        commands = [each for each in pair.commands() if not each.HasField("set_grad")]
        clear = [command(c.SetGradRequest(tensor=leaf), quiet=True) for leaf in LEAVES]
        pair.step([*clear, *commands])
        del number
    assert pair.ran[-1]
    assert all(pair.joining.session.store[leaf].grad is not None for leaf in LEAVES)


def _cleared(leaves: Iterable[int]) -> list[service_pb2.Command]:
    return [command(c.SetGradRequest(tensor=leaf), quiet=True) for leaf in leaves]


@pytest.mark.parametrize("seed", range(12))
def test_gradients_that_are_dropped_before_the_backward(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(seed, monkeypatch)
    for _ in range(12):
        commands = [each for each in pair.commands() if not each.HasField("set_grad")]
        pair.step([commands[0], *_cleared((*LEAVES, 1)), *commands[1:]])
    assert pair.ran[-1]
    leaf = pair.program.updated[0]
    pair.step([commands[0], *_cleared(LEAVES), command(op("mul_", Id(leaf), 2.0, grad_mode=NO_GRAD), quiet=True)])
    for name in ("a hook on a leaf", "another shape"):
        pair.both(CHANGES[name])
        commands = [each for each in pair.commands() if not each.HasField("set_grad")]
        before = sum(pair.ran)
        pair.step([commands[0], *_cleared((*LEAVES, 1)), *commands[1:]])
        assert sum(pair.ran) == before or leaf != 2


@pytest.mark.parametrize("seed", range(12))
def test_gradients_are_added_to_those_that_leaves_have(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(seed, monkeypatch)
    leaves = pair.program.updated

    def step(*dropped: int) -> None:
        commands = [each for each in pair.commands() if not each.HasField("set_grad")]
        pair.step([*commands, *_cleared(dropped)] if dropped else commands)

    for number in range(16):  # steps with and without an end of the gradients
        step(*(leaves if number % 4 == 3 else ()))
    before = sum(pair.ran)
    for number in range(8):
        step(*(leaves if number % 4 == 3 else ()))
    assert sum(pair.ran) == before + 8
    step()
    pair.both(lambda side: setattr(side.session.store[leaves[0]].grad, "requires_grad", True))
    step()
    pair.both(lambda side: setattr(side.session.store[leaves[0]].grad.storage, "version", 7))
    step()
    for side in pair.sides:
        for leaf in leaves:
            assert side.session.store[leaf].grad.storage.version


def _spread(pick: random.Random, pair: Pair, commands: list[service_pb2.Command]) -> list[service_pb2.Command]:
    """A step whose calls are several commands, with tensors created and gradients dropped between them."""
    words, calls = commands[0].calls.words, []
    for _, operands in pair.program.plan:
        size = 8 * (len(operands) + 2)
        calls.append(words[:size])
        words = words[size:]
    made: list[service_pb2.Command] = []
    last = commands[-1].release
    given = 1
    while calls:
        count = pick.randrange(1, len(calls) + 1)
        data = b"".join(calls[:count]).replace(struct.pack("<Q", 1), struct.pack("<Q", given))
        made.append(service_pb2.Command(calls=c.Calls(count=count, words=data)))
        del calls[:count]
        if calls and pick.random() < 0.6:
            pair.program.next_id += 1
            given = pair.program.next_id
            dtype, rows = pair.program.leaves[1][0].dtype, np.asarray(pair.program.leaves[1][0]) * 0.5
            created = Payload(dtype=DTYPES[str(dtype)], shape=rows.shape, data=rows.tobytes())
            made.append(command(c.CreateRequest(id=given, payload=created), quiet=True))
            if pick.random() < 0.8:
                last.tensors.append(given)
        if pick.random() < 0.5:
            made += _cleared(pair.program.updated)
    return [*made, *commands[1:]]


def _uses_created(commands: list[service_pb2.Command]) -> bool:
    ids = [each.create.id for each in commands if each.HasField("create")]
    return bool(ids) and any(struct.pack("<Q", ids[0]) in each.calls.words for each in commands)


@pytest.mark.parametrize("seed", range(30))
def test_steps_of_several_groups_of_calls_leave_the_same_state(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick, pair = random.Random(seed), Pair(seed, monkeypatch)
    for number in range(18):
        few = number > 6 and pick.random() < 0.5
        commands = pair.commands(keep=lambda one, few=few: few and pick.random() < 0.2)  # type: ignore[misc]
        commands = _spread(random.Random(seed), pair, commands)
        if number > 10 and pick.random() < 0.3:
            place = pick.randrange(len(commands) - 1)
            one = pick.choice(commands[-1].release.tensors)
            commands.insert(place, command(c.ReadRequest(tensor=one)))
        pair.step(commands)
    assert any(pair.ran)


@pytest.mark.parametrize("change", ["an id that is taken", "bytes that are no tensor", "a shape that does not fit"])
def test_a_created_tensor_that_fails_is_refused(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(SEED, monkeypatch)
    seed = next(each for each in range(200) if _uses_created(_spread(random.Random(each), pair, pair.commands())))
    for _ in range(12):
        pair.step(_spread(random.Random(seed), pair, pair.commands()))
    assert pair.ran[-1]
    commands = _spread(random.Random(seed), pair, pair.commands())
    create = next(each.create for each in commands if each.HasField("create"))
    if change == "an id that is taken":
        pair.both(lambda side: side.session.bind(create.id, tensor(np.ones(1))))
    elif change == "bytes that are no tensor":
        create.payload.data += b"1"
    else:
        create.payload.shape[0] -= 1
        create.payload.data = create.payload.data[: len(create.payload.data) * (ROWS - 1) // ROWS]
    before = sum(pair.ran)
    pair.step(commands)
    assert sum(pair.ran) == before
    pair.step([command(c.ReleaseRequest(tensors=[create.id]), quiet=True)])


def test_an_update_before_the_calls_is_no_part_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(SEED, monkeypatch)
    sgd = pair.sgd[LEAVES[0]]
    for _ in range(12):
        commands = pair.commands()
        leaf = struct.pack("<QQdQQQQ", sgd[0], LEAVES[0], 0.01, 999, sgd[1], LEAVES[0], 999)
        update = service_pb2.Command(calls=c.Calls(count=2, words=leaf))
        commands[-1].release.tensors.append(999)
        pair.step([update, *_cleared(LEAVES), *commands])
    assert pair.ran[-1]


@pytest.mark.parametrize("seed", range(16))
def test_a_loss_that_stays_has_its_graph(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(seed, monkeypatch)
    pair.warm()
    losses: list[int] = []
    for number in range(4):
        commands = pair.commands()
        losses.append(commands[1].backward.tensors[0])
        ids = [each for each in commands[-1].release.tensors if each != losses[-1]]
        released = [*ids, losses[-2]] if number % 2 else ids
        before = sum(pair.ran)
        pair.step([*commands[:-1], command(c.ReleaseRequest(tensors=released), quiet=True)])
        assert sum(pair.ran) == before + 1
        assert pair.joining.session.store[losses[-1]].node is not None
        answer = pair.step([command(c.BackwardRequest(tensors=[losses[-1]]))])
        assert bool(service_pb2.RunResponse.FromString(answer).results[0].HasField("error"))
    pair.step([command(c.ReleaseRequest(tensors=[losses[0], losses[2], losses[3]]), quiet=True)])
    pair.next_is(True)


@pytest.mark.parametrize("seed", range(16))
def test_each_result_that_stays_has_its_graph(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(seed, monkeypatch)
    pair.warm()
    for place in range(len(pair.program.plan)):
        commands = pair.commands()
        kept = commands[-1].release.tensors[place]
        ids = [each for each in commands[-1].release.tensors if each != kept]
        before = sum(pair.ran)
        pair.step([*commands[:-1], command(c.ReleaseRequest(tensors=ids), quiet=True)])
        assert sum(pair.ran) == before + 1
        recorded = pair.joining.session.store[kept].node is not None
        answer = pair.step([command(c.BackwardRequest(tensors=[kept], gradients=[kept]))])
        assert recorded or service_pb2.RunResponse.FromString(answer).results[0].HasField("error")
        pair.step([command(c.SetGradRequest(tensor=leaf)) for leaf in (*LEAVES, 1)])
        pair.step([command(c.ReleaseRequest(tensors=[kept]), quiet=True)])


@pytest.mark.parametrize(
    "options", [{"retain_graph": True}, {"create_graph": True}, {"check_nan": True}, {"inputs": [2]}]
)
def test_a_backward_with_options_runs_alone(pair: Pair, options: dict[str, Any]) -> None:
    commands = pair.commands()
    request = commands[1].backward
    for name, value in options.items():
        if name == "inputs":
            request.inputs.extend(value)
        else:
            setattr(request, name, value)
    before = sum(pair.ran)
    pair.step(commands)
    assert sum(pair.ran) == before


def test_answered_and_timed_commands_run_alone(pair: Pair) -> None:
    for place, change in ((1, {"quiet": False}), (0, {"timeout_ms": 60_000}), (1, {"timeout_ms": 60_000})):
        commands = pair.commands()
        for name, value in change.items():
            setattr(commands[place], name, value)
        before = sum(pair.ran)
        pair.step(commands)
        assert sum(pair.ran) == before


@pytest.mark.parametrize("value", [0.25, -0.0, float("nan"), float("inf")])
def test_numbers_may_vary(pair: Pair, value: float) -> None:
    commands = pair.commands()
    for each in commands:
        if each.HasField("calls"):
            each.calls.words = each.calls.words.replace(struct.pack("<d", 0.01), struct.pack("<d", value))
    before = sum(pair.ran)
    pair.step(commands)
    assert sum(pair.ran) == before + 1


class Sloped(Program):
    """A program with a number that a list holds for a constant."""

    def _plan(self) -> list[tuple[int, list[Any]]]:
        names = ("matmul", "leaky_relu", "matmul", "sum")
        given = ([1, 4], [("made", 0), 0.1], [("made", 1), 2], [("made", 2)])
        told = [[1.0 if type(each) is float else Id(0) for each in one] for one in given]
        ops = [self.prepare(op(name, *one, outputs=[0])) for name, one in zip(names, told, strict=True)]
        return [(number, list(one)) for number, one in zip(ops, given, strict=True)]


class Transposed(Program):
    """A program with a view of a leaf that the step changes."""

    def _plan(self) -> list[tuple[int, list[Any]]]:
        turned = self.prepare(op("transpose", Id(0), argument(0), argument(1), outputs=[0]))
        layer = self.prepare(op("linear", Id(0), Id(0), Id(0), outputs=[0]))
        loss = self.prepare(op("sum", Id(0), outputs=[0]))
        return [(turned, [2]), (layer, [1, ("made", 0), 3]), (loss, [("made", 1)])]


def test_a_step_with_a_view_of_what_it_changes_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.server.session.test_steps.Program", Transposed)
    pair = Pair(SEED, monkeypatch)
    pair.warm()
    for _ in range(3):
        pair.next_is(True)


def test_bytes_are_those_of_the_list_that_holds_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.server.session.test_steps.Program", Sloped)
    pair = Pair(SEED, monkeypatch)
    joined = []
    for slope, count in ((0.1, 20), (0.5, 40), (0.1, 3), (0.5, 3)):
        pair.program.plan[1][1][1], before = slope, sum(pair.ran)
        for _ in range(count):
            pair.step()
        joined.append(sum(pair.ran) > before)
    assert joined == [True, True, False, True]


def test_without_memory_for_borrowed_bytes_calls_are_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise MemoryError

    for side in pair.sides:
        side.session.transfers.borrowed.append(None)  # type: ignore[arg-type]
        monkeypatch.setattr(side.session.transfers, "copy_borrowed", fail)
    answer = pair.next_is(False)
    assert service_pb2.RunResponse.FromString(answer).results[0].error.message


def test_a_repeated_batch_is_answered_from_memory(pair: Pair) -> None:
    commands = pair.commands()
    first = pair.step(commands)
    before = [seen(side) for side in pair.sides]
    for side in pair.sides:
        side.seq -= sum(each.calls.count if each.HasField("calls") else 1 for each in commands)
        assert side.run(commands) == first
    assert [seen(side) for side in pair.sides] == before


def test_commands_are_counted_alike(pair: Pair) -> None:
    pair.both(lambda side: setattr(side.session.usage, "meter", Meter()))
    pair.next_is(True)
    counts = [side.session.usage.meter.as_json()["commands"] for side in pair.sides]  # type: ignore[union-attr]
    assert sorted(counts[0]) == sorted(counts[1])


@pytest.mark.parametrize("failing", range(8))
def test_a_command_after_the_backward_that_fails_is_run_again(
    pair: Pair, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = next(iter(each.list for known in pair.joining.session.steps._known.values() for each in known.values()))
    assert step is not None
    calls = [number for number, item in enumerate(step._items) if item.context is not None]
    place = calls[failing]

    def fail(*args: Any) -> Any:
        raise MemoryError

    item = step._items[place]
    step._items[place] = (
        item._replace(writer=fail) if item.writer else item._replace(parts=((fail, *item.parts[0][1:]),))
    )
    pair.next_is(True)


def test_a_step_that_differs_from_its_commands_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(SEED, monkeypatch)
    monkeypatch.setattr(RepeatedStep, "confirm", lambda step, tensors: False)
    for _ in range(10):
        pair.step()
    assert not pair.ran


def test_patterns_of_ids_count_among_known_steps() -> None:
    memo = steps.StepMemo()
    memo._commands = steps._MOST_KNOWN - 5
    for number in range(4):
        found = steps.Commands(0)
        found.add(steps.BACKWARD, 0, 1)
        found.add(steps.CLEAR, 1, 1 + (number % 2))
        memo.find(found)
    assert memo._commands == steps._MOST_KNOWN - 1
    found = steps.Commands(0)
    found.add(steps.BACKWARD, 0, 1)
    found.add(steps.CLEAR, 1, 2)
    found.add(steps.CLEAR, 2, 3)
    memo.find(found)
    assert list(memo._known) == [(steps.BACKWARD, steps.CLEAR, steps.CLEAR)]


def test_known_steps_are_few(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_MOST_KNOWN", 1)
    memo = steps.StepMemo()
    pair.joining.session.steps = memo
    for _ in range(6):
        pair.step()
    assert not memo._known
    assert memo._commands == 0


def test_a_traced_batch_runs_its_commands(pair: Pair) -> None:
    before, commands = sum(pair.ran), pair.commands()
    for side in pair.sides:
        trace = side.session.begin_trace()
        try:
            side.run(commands)
        finally:
            side.session.end_trace(trace)
    assert sum(pair.ran) == before
    assert seen(pair.plain) == seen(pair.joining)


def test_a_step_takes_the_time_of_its_parts_without_that_of_others_in_its_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, times = [0.0], list[float]()
    monkeypatch.setattr(time, "thread_time", lambda: now[0])

    def running() -> Running:
        now[0] += 1
        yield
        now[0] += 2
        return None

    for _ in calls._timed(running(), times):
        now[0] += 100
    assert sum(times) == 3

"""Repeated steps: a session that repeats calls and passes is in the same state, bit for bit, as one that does not."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2, types_pb2
from gradwire_engine import Tensor, activate, tensor
from gradwire_engine.graph.graph import AccumulateGrad
from gradwire_engine.graph.saved import Saved
from gradwire_server.common.limits import Limits
from gradwire_server.session.batch import run_batch
from gradwire_server.session.prepared import repeats
from gradwire_server.session.session import CancelToken, PendingCall, Session
from tests.server.harness import Id, argument, command, op


@pytest.fixture(autouse=True)
def repeated_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are repeated from their third on, so that short programs repeat them."""
    monkeypatch.setattr(repeats, "_FIRST", 1)
    monkeypatch.setattr(repeats, "_recipes", {})
    monkeypatch.setattr(repeats, "_failures", {})


NO_GRAD = types_pb2.GRAD_MODE_DISABLED
UNARY = ("relu", "tanh", "exp", "sigmoid", "neg", "abs", "sin", "square", "log1p", "gelu", "softplus")
BINARY = ("add", "sub", "mul", "div", "maximum", "hypot")
ROWS, WIDTH, CLASSES = 6, 5, 4


class Side:
    """One session and what it answers. repeats: whether calls and passes are repeated."""

    def __init__(self, repeats: bool, **limits: Any) -> None:
        self.repeats = repeats
        self.session = Session(1, Limits(**limits).resolved(), CancelToken())
        self.session.attach(1)
        self.passes = self.session.passes
        if not repeats:
            self.session.passes = None
        self.seq, self.ticket = 0, 0
        self.repeated = 0

    def run(self, commands: list[service_pb2.Command], recorded: bool = False) -> bytes:
        self.ticket += 1
        request = service_pb2.RunRequest(writer=1, first_seq=self.seq + 1, commands=commands, recorded=recorded)
        self.seq += sum(each.calls.count if each.HasField("calls") else 1 for each in commands)
        return self.apply(request.SerializeToString())

    def apply(self, raw: bytes) -> bytes:
        """Apply a batch's bytes."""
        call = PendingCall("Run", self.session, raw, self.ticket)
        self.session.schedule.turn_ends = float("inf")
        self.session.cancel_token.begin_slice(float("inf"))
        steps = run_batch(call)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            answer: bytes = done.value
        self.session.apply_deferred_releases()
        for each in self.session.writers[1].prepared.values():
            each.plainly = each.plainly and self.repeats
            each.repeatable = self.repeats
            self.repeated += each.repeats.made > 0
        return answer


def state_of(tensor: Tensor, numbers: dict[int, int]) -> Any:
    """All of a tensor that a client can see, and how its memory is laid out."""
    array = tensor.array
    grad = None if tensor.grad is None else state_of(tensor.grad, numbers)
    return (
        array.tobytes(), array.dtype.str, array.shape, array.strides, array.flags.writeable, tensor.requires_grad,
        tensor.storage.version, tensor.storage.history, tensor.storage.nbytes, tensor.index, grad,
        None if tensor.node is None else node_of(tensor.node, numbers),
    )  # fmt: skip


def node_of(node: Any, numbers: dict[int, int]) -> Any:
    """A node and what it leads to, each node once."""
    known = numbers.get(id(node))
    if known is not None:
        return known
    numbers[id(node)] = len(numbers)
    if type(node) is AccumulateGrad:
        return "AccumulateGrad", node.variable.array.tobytes()
    saved = [
        (value.array.tobytes(), value.version, value.output, value.requires_grad)
        if type(value) is Saved
        else len(value)
        if type(value) is list
        else repr(value)
        for value in node.saved
        if not hasattr(value, "device")
    ]
    edges = [None if edge is None else (node_of(edge[0], numbers), edge[1]) for edge in node.edges]
    return node.name, node.seq, node.command, node.freed, node.work, node.metas, saved, edges


def seen(side: Side) -> Any:
    """What a session holds."""
    session = side.session
    numbers: dict[int, int] = {}
    return (
        {key: state_of(each, numbers) for key, each in sorted(session.store.items())},
        sorted(session.failed_ids), session.account.bytes, session.grad_context.nodes.next,
    )  # fmt: skip


class Program:
    """A random network as prepared ops, its loss, and updates in place; the same structure in each step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.prepared: list[service_pb2.Command] = []
        self.next_id = 1000
        numbers = np.random.default_rng(seed)
        dtype = self.random.choice(["float32", "float32", "float64"])
        self.leaves = {
            1: (numbers.standard_normal((ROWS, WIDTH)).astype(dtype), False),
            2: (numbers.standard_normal((WIDTH, CLASSES)).astype(dtype), True),
            3: (numbers.standard_normal(CLASSES).astype(dtype), True),
            4: (numbers.standard_normal((WIDTH, WIDTH)).astype(dtype), True),
            5: (numbers.integers(0, CLASSES, ROWS), False),
            6: (numbers.standard_normal((1, WIDTH)).astype(dtype), True),
        }
        self.plan = self._plan()
        self.updated = [2, 3, 4, 6]

    def prepare(self, request: c.OpRequest) -> int:
        number = len(self.prepared) + 1
        self.prepared.append(service_pb2.Command(prepare=c.Prepare(number=number, op=request), quiet=True))
        return number

    def _plan(self) -> list[tuple[int, list[Any]]]:
        """Calls of a step: the op's number and its operands: a leaf, or ("made", place of an earlier call), a float."""
        pick, plan, wide = self.random, [], [1]

        def call(name: str, *given: Any, **named: Any) -> Any:
            told = [
                each if isinstance(each, types_pb2.Argument) else 1.0 if type(each) is float else Id(0)
                for each in given
            ]
            number = self.prepare(op(name, *told, outputs=[0], named=named))
            plan.append((number, [each for each in given if not isinstance(each, types_pb2.Argument)]))
            return "made", len(plan) - 1

        for _ in range(pick.randrange(1, 6)):
            one = pick.choice(wide)
            kind = pick.randrange(4)
            if kind == 0:
                wide.append(call(pick.choice(UNARY), one))
            elif kind == 1:
                wide.append(call(pick.choice(BINARY), one, pick.choice([6, *wide])))
            elif kind == 2:
                wide.append(call(pick.choice(["matmul", "linear"]), one, 4))
            else:
                wide.append(call(pick.choice(["mul", "add"]), one, pick.uniform(0.5, 2)))
        if pick.random() < 0.4:
            scores = call("linear", wide[-1], call("transpose", 2, argument(0), argument(1)), 3)
        else:
            scores = call("add", call("matmul", wide[-1], 2), 3)
        if pick.random() < 0.7:
            call("cross_entropy", scores, 5)
        else:
            call("sum" if pick.random() < 0.5 else "mean", call("square", call("log_softmax", scores, argument(1))))
        return plan

    def step(self, sgd: tuple[int, int] | dict[int, tuple[int, int]]) -> tuple[list[service_pb2.Command], list[int]]:
        """A step's commands, and the ids of its tensors."""
        made: list[int] = []
        words = b""
        for number, operands in self.plan:
            self.next_id += 1
            made.append(self.next_id)
            told = [made[each[1]] if type(each) is tuple else each for each in operands]
            words += struct.pack("<" + "".join("d" if type(e) is float else "Q" for e in [number, *told]) + "Q",
                                 number, *told, made[-1])  # fmt: skip
        commands = [
            service_pb2.Command(calls=c.Calls(count=len(self.plan), words=words)),
            command(c.BackwardRequest(tensors=[made[-1]]), quiet=True),
        ]
        for leaf in self.updated:
            grad, scaled = self.next_id + 1, self.next_id + 2
            self.next_id += 2
            made += [grad, scaled]
            mul, sub = sgd[leaf] if isinstance(sgd, dict) else sgd
            update = struct.pack("<QQdQQQQ", mul, grad, 0.01, scaled, sub, leaf, scaled)
            commands += [
                command(c.GradRequest(tensor=leaf, id=grad), quiet=True),
                service_pb2.Command(calls=c.Calls(count=2, words=update)),
                command(c.SetGradRequest(tensor=leaf), quiet=True),
            ]
        return commands, made


def disturb(pick: random.Random, commands: list[service_pb2.Command], made: list[int], program: Program) -> None:
    """Make a step extraordinary."""
    kind = pick.randrange(9)
    place = pick.randrange(1, len(commands))
    loss = commands[1].backward.tensors[0]
    if kind == 0:  # no backward: gradients are missing
        del commands[1]
    elif kind == 1:  # a second backward: freed graphs, or gradients that are added
        commands.insert(place, command(c.BackwardRequest(tensors=[loss]), quiet=True))
    elif kind == 2:  # a saved value changes in place
        commands.insert(1, command(op("mul_", Id(pick.choice([1, *made[: len(program.plan)]])), 2.0), quiet=False))
    elif kind == 3:  # a target that is no class
        commands.insert(0, command(op("add_", Id(5), 1), quiet=True))
    elif kind == 4:
        commands.insert(1, command(c.RetainGradRequest(tensor=pick.choice(made[: len(program.plan)])), quiet=True))
    elif kind == 5:
        commands.insert(
            0, command(c.SetRequiresGradRequest(tensor=pick.choice((1, 2, 3)), requires_grad=pick.random() < 0.5))
        )
    elif kind == 6:  # the graph is kept
        commands[1].backward.retain_graph = True
        commands.insert(2, command(c.BackwardRequest(tensors=[loss]), quiet=False))
    elif kind == 7:
        commands.insert(place, command(c.ReadRequest(tensor=pick.choice(made))))
    else:  # a call whose operand is missing
        commands.insert(place, command(c.ReleaseRequest(tensors=[pick.choice(made)]), quiet=True))


def prepare_update(program: Program) -> tuple[int, int]:
    """Prepare an update's ops; their numbers."""
    return (
        program.prepare(op("mul", Id(0), 1.0, outputs=[0], grad_mode=NO_GRAD)),
        program.prepare(op("sub_", Id(0), Id(0), grad_mode=NO_GRAD)),
    )


def sides_of(program: Program, *repeats: bool) -> tuple[list[Side], tuple[int, int]]:
    """Sessions that have a program's leaves and prepared ops, and the numbers of its update's ops."""
    sgd = prepare_update(program)
    sides = [Side(each) for each in repeats]
    for side in sides:
        with activate(side.session.grad_context):
            for key, (array, grad) in program.leaves.items():
                side.session.bind(key, tensor(array.copy(), grad))
        side.run(program.prepared)
    return sides, sgd


@pytest.mark.parametrize("seed", range(40))
def test_random_steps_leave_the_same_state(seed: int) -> None:
    pick = random.Random(seed)
    program = Program(seed)
    (ordinary, repeating), sgd = sides_of(program, False, True)
    for number in range(14):
        commands, made = program.step(sgd)
        if number > 4 and pick.random() < 0.4:
            disturb(pick, commands, made, program)
        released = [each for each in made if pick.random() < 0.8]
        if pick.random() < 0.8:
            commands.append(command(c.ReleaseRequest(tensors=released), quiet=True))
        assert ordinary.run(commands) == repeating.run(commands), number
        assert seen(ordinary) == seen(repeating), number
    assert repeating.repeated
    assert not ordinary.repeated


def watched(side: Side) -> list[bool]:
    """Whether each backward so far was a repeated pass; grows."""
    found: list[bool] = []

    class Watched:
        noted = staticmethod(side.passes.noted)

        def run(self, root: Tensor, retain: bool) -> Any:
            received = side.passes.run(root, retain)
            found.append(received is not None)
            return received

    side.session.passes = Watched()  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_passes_are_noted_and_repeated_from_the_first_step_on(seed: int) -> None:
    program = Program(seed)
    side, sgd = sides_of(program, True)
    side[0].session.steps = None
    found = watched(side[0])
    for _ in range(6):
        side[0].run(program.step(sgd)[0])
    assert found == [True] * 6  # the third step's calls are repeated ones


@pytest.mark.parametrize("seed", range(8))
def test_a_memory_limit_refuses_the_same_steps(seed: int) -> None:
    pick = random.Random(seed)
    program = Program(seed)
    sides, sgd = sides_of(program, False, True)
    for number in range(12):
        commands, _ = program.step(sgd)
        limit = pick.choice([0, 3000, 5000, 8000]) if number > 3 else 0
        for side in sides:
            side.session.account.limit = side.session.account.bytes + limit if limit else 1 << 30
        assert sides[0].run(commands) == sides[1].run(commands), number
        assert seen(sides[0]) == seen(sides[1]), number


@pytest.mark.parametrize(("room", "ids"), [(3.5, 99), (4.0, 99), (4.5, 99), (5.0, 99), (99.0, 6), (99.0, 7)])
def test_a_step_is_not_refused_for_results_that_are_kept_to_note_it(room: float, ids: int) -> None:
    """What is enough for the first step is enough for the later ones, of which some are noted."""
    side = Side(True)
    session, data = side.session, np.ones((64, 64), np.float32)
    with activate(session.grad_context):
        session.bind(1, tensor(data))
        session.bind(2, tensor(data, True))
    prepared = [op("mul", Id(0), 2.0, outputs=[0]), op("mul", Id(0), Id(0), outputs=[0]), op("sum", Id(0), outputs=[0])]
    side.run([
        service_pb2.Command(prepare=c.Prepare(number=number, op=each), quiet=True)
        for number, each in enumerate(prepared)
    ])  # fmt: skip
    session.account.limit = session.account.bytes + int(room * data.nbytes)
    session.max_tensors = ids

    def calls(*words: int, count: int = 1) -> service_pb2.Command:
        return service_pb2.Command(calls=c.Calls(count=count, words=struct.pack(f"<{len(words)}Q", *words)), quiet=True)

    two = struct.unpack("<Q", struct.pack("<d", 2.0))[0]
    clear = service_pb2.Command(set_grad=c.SetGradRequest(tensor=2), quiet=True)
    for turn in range(1, 20):
        at = 100 * turn
        answer = side.run([
            calls(0, 1, two, at, 0, at, two, at + 1, count=2), clear, calls(0, at + 1, two, at + 2), clear,
            calls(0, at + 2, two, at + 3, 1, 2, at + 3, at + 4, 2, at + 4, at + 5, count=3),
            service_pb2.Command(backward=c.BackwardRequest(tensors=[at + 5]), quiet=True),
            service_pb2.Command(release=c.ReleaseRequest(tensors=range(at, at + 6)), quiet=True),
        ])  # fmt: skip
        assert not service_pb2.RunResponse.FromString(answer).results, turn
        assert not session.kept_ids
        assert session.store[2].grad.array.tobytes() == (16 * data).tobytes()  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(8))
def test_recorded_batches_make_nothing_ready_and_leave_the_same_state(seed: int) -> None:
    program = Program(seed)
    (ordinary, recorded), sgd = sides_of(program, False, True)
    for number in range(8):
        commands, made = program.step(sgd)
        commands.append(command(c.ReleaseRequest(tensors=made), quiet=True))
        assert ordinary.run(commands) == recorded.run(commands, recorded=True), number
        assert seen(ordinary) == seen(recorded), number
    assert not recorded.repeated
    assert not recorded.session.passes._known  # type: ignore[union-attr]
    assert not recorded.session.steps._known  # type: ignore[union-attr]


def test_recorded_batches_use_what_earlier_ones_have_made_ready() -> None:
    program = Program(1)
    (side,), sgd = sides_of(program, True)
    for _ in range(4):
        side.run(program.step(sgd)[0])
    found = watched(side)
    side.run(program.step(sgd)[0], recorded=True)
    assert found == [True]


def test_batches_after_a_recorded_one_are_made_ready() -> None:
    program = Program(1)
    (side,), sgd = sides_of(program, True)
    side.run(program.step(sgd)[0], recorded=True)
    for _ in range(4):
        side.run(program.step(sgd)[0])
    assert side.repeated
    assert side.session.passes._known  # type: ignore[union-attr]

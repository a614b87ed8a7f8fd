"""Recurrent layers: all steps in one op, ops of each step, and Tensors give the same; pauses, memory, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.autograd.backward import gradients
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import Context, Interrupt, activate
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.cost import LONG
from gradwire_engine.ops.nn.recurrent import backward, by_steps, forward, onednn, recorded_backward, recurrent, steps

GATES = {"lstm_layer": 4, "gru_layer": 3, "rnn_layer": 1}
PACKED = (5, 3, 3, 1)
OPS = {"lstm_layer": forward.lstm, "gru_layer": forward.gru, "rnn_layer": forward.rnn}


@pytest.fixture
def without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers in float32 by the project's own ops."""
    monkeypatch.setattr(onednn, "fits", lambda tensors: False)


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def call(name: str, rng: np.random.Generator, lead: tuple[int, ...] = (), **options: Any) -> tuple[list[Any], dict]:
    """Random arguments of a layer: arrays, and options."""
    gates, hidden, width = GATES[name], int(rng.integers(1, 5)), int(rng.integers(1, 4))
    packed = bool(rng.integers(2))
    rows, length = (PACKED[0], len(PACKED)) if packed else (int(rng.integers(1, 4)), int(rng.integers(1, 6)))
    out = max(1, hidden - 1) if name == "lstm_layer" and rng.integers(2) else hidden
    shapes: list[Any] = [(sum(PACKED), width) if packed else (length, rows, width), (rows, out)]
    shapes += [(rows, hidden)] if name == "lstm_layer" else []
    shapes += [(gates * hidden, width), (gates * hidden, out)]
    shapes += [(gates * hidden,)] * 2 if rng.integers(2) else [None, None]
    named: dict[str, Any] = {"batch_sizes": PACKED if packed else (), "reverse": bool(rng.integers(2)), **options}
    if out != hidden:
        named["weight_hr"] = drawn(rng, *lead, out, hidden)
    if name == "rnn_layer":
        named["nonlinearity"] = "relu" if rng.integers(2) else "tanh"
    return [None if shape is None else drawn(rng, *lead, *shape) for shape in shapes], named


def tensors(args: list[Any], named: dict) -> tuple[list[Any], dict, list[engine.Tensor]]:
    """The arguments with leaves instead of arrays; and the leaves."""
    made = [value if value is None else engine.tensor(value, True) for value in args]
    options = {key: engine.tensor(value, True) if type(value) is np.ndarray else value for key, value in named.items()}
    leaves = [value for value in [*made, *options.values()] if type(value) is engine.Tensor]
    return made, options, leaves


def loss_of(results: Any) -> engine.Tensor:
    """A number that depends on all results, differently on each element."""
    total = None
    for place, result in enumerate(results):
        weights = engine.tensor(np.cos(np.arange(result.array.size) + place).reshape(result.shape))
        part = engine.call("sum", [engine.call("mul", [engine.call("mul", [result, result]), weights])])
        total = part if total is None else engine.call("add", [total, part])
    assert total is not None
    return total


def run(name: str, args: list[Any], named: dict, create_graph: bool = False) -> tuple[list[Any], list[Any]]:
    """Results and gradients, as arrays."""
    given, options, leaves = tensors(args, named)
    results = engine.call(name, given, options)
    found, _ = gradients([loss_of(results)], leaves, create_graph=create_graph)
    return [each.array for each in results], [each.array for each in found if each is not None]


def assert_equal(one: tuple[list[Any], list[Any]], other: tuple[list[Any], list[Any]]) -> None:
    for ours, theirs in zip([*one[0], *one[1]], [*other[0], *other[1]], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11)


class _Fusing:
    """Stands for a tracer whose plan is fused."""

    fuses = True

    def applied(self, *report: Any) -> None:
        """Takes an op's report."""

    def observe(self, *report: Any) -> None:
        """Observes no backward."""

    def created(self, tensor: Any) -> None:
        """Takes a report of a constant."""

    plain = staticmethod(tuple)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", GATES)
def test_all_steps_at_once_are_the_ops_of_each_step(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    args, named = call(name, rng)
    ran: list[Any] = []
    steps_run = by_steps.run
    monkeypatch.setattr(by_steps, "run", lambda *given: ran.append(1) or steps_run(*given))
    monkeypatch.setattr(backward, "BLOCK", int(rng.choice([1, 30, 1 << 18])))
    with activate(Context()):
        at_once = run(name, args, named)
    assert not ran
    with activate(Context(tracer=_Fusing())):
        assert_equal(run(name, args, named), at_once)
    assert ran


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", GATES)
def test_backward_on_tensors_is_that_on_arrays(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    args, named = call(name, np.random.default_rng(seed))
    ways: list[str] = []
    for module in (backward, recorded_backward):
        kind = name.removesuffix("_layer")
        computed = getattr(module, kind)
        monkeypatch.setattr(
            module, kind, lambda *given, f=computed, m=module: ways.append(m.__name__.rpartition(".")[2]) or f(*given)
        )
    with activate(Context()):
        assert_equal(run(name, args, named, create_graph=True), run(name, args, named))
    assert ways == ["recorded_backward", "backward"]


@pytest.mark.parametrize("name", GATES)
def test_second_derivatives_are_those_of_the_ops_of_each_step(name: str) -> None:
    args, named = call(name, np.random.default_rng(8))
    found = []
    for context in (Context(), Context(tracer=_Fusing())):
        with activate(context):
            given, options, leaves = tensors(args, named)
            first, _ = gradients([loss_of(engine.call(name, given, options))], leaves, create_graph=True)
            second, _ = gradients([loss_of(first)], leaves)
            found.append(([], [each.array for each in second if each is not None]))
    assert found[0][1]
    assert_equal(*found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", GATES)
def test_a_batch_of_layers_is_computed_layer_by_layer(name: str, seed: int) -> None:
    """As vmap calls it."""
    args, named = call(name, np.random.default_rng(seed), lead=(2,))
    with activate(Context()):
        given, options, leaves = tensors(args, named)
        results = engine.call(name, given, options)
        found, _ = gradients([loss_of(results)], leaves)
        for layer in range(2):
            part = [value if value is None else value[layer] for value in args]
            rest = {key: value[layer] if type(value) is np.ndarray else value for key, value in named.items()}
            one, more, own = tensors(part, rest)
            alone = engine.call(name, one, more)
            for result, single in zip(results, alone, strict=True):
                np.testing.assert_allclose(result.array[layer], single.array, rtol=1e-10)
            seeds = [engine.tensor(2 * np.cos(np.arange(each.array.size) + place).reshape(each.shape)[layer]
                                   * each.array[layer]) for place, each in enumerate(results)]  # fmt: skip
            singles, _ = gradients(list(alone), own, seeds)
            for whole, single in zip(found, singles, strict=True):
                np.testing.assert_allclose(whole.array[layer], single.array, rtol=1e-9, atol=1e-11)


def test_steps_are_rows_in_the_order_of_computation() -> None:
    given, state = np.empty((3, 2, 4)), np.empty((2, 1))
    assert steps.steps_of(given, state, (), False) == [(0, 2), (2, 2), (4, 2)]
    assert steps.steps_of(np.empty((6, 4)), np.empty((3, 1)), (3, 2, 1), True) == [(5, 1), (3, 2), (0, 3)]
    assert steps.extent([(5, 1), (3, 2)]) == (3, 3)


def lstm_arguments(length: int, rows: int, width: int, grad: bool = True) -> list[engine.Tensor]:
    rng = np.random.default_rng(0)
    shapes = [(length, rows, width), (rows, width), (rows, width), (4 * width, width), (4 * width, width)]
    return [engine.tensor(drawn(rng, *shape).astype(np.float32), grad) for shape in shapes]


@pytest.mark.usefixtures("without_onednn")
def test_gates_are_saved_for_backward_alone_and_the_inputs_part_is_not() -> None:
    length, rows, width = 20, 8, 16
    state, each = 4 * rows * width, 4 * length * rows * width
    for grad, values in ((False, 1), (True, 6)):  # the output; and four gates and the cells
        context = Context(account=engine.Account(limit=1 << 30))
        with activate(context):
            args = lstm_arguments(length, rows, width, grad)
            before = context.account.bytes
            results = engine.call("lstm_layer", args)
            assert context.account.bytes - before == values * each + 2 * state
            assert results[0].requires_grad is grad


@pytest.mark.usefixtures("without_onednn")
def test_missing_gradients_of_gates_are_no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    computed = backward.lstm
    monkeypatch.setattr(backward, "lstm", lambda gs, *rest: seen.append(gs) or computed(gs, *rest))
    with activate(Context()):
        output, _, _ = engine.call("lstm_layer", lstm_arguments(3, 2, 4))
        engine.backward([engine.call("sum", [output])])
    ((output, h_n, c_n, gates, cells),) = seen
    assert output.all()
    assert not (h_n.any() or c_n.any())
    assert gates is None
    assert cells is None


class _Pressed(Interrupt):
    """Other sessions wait at each poll; the session is cancelled at one of them."""

    def __init__(self, cancelled_at: float = math.inf) -> None:
        super().__init__()
        self.polls = 0
        self.cancelled_at = cancelled_at
        self.account = engine.Account()

    def poll(self) -> None:
        self.polls += 1
        self.account.pressed = True
        if self.polls >= self.cancelled_at:
            raise EngineError(Reason.CANCELLED, "the command was cancelled")


@pytest.mark.parametrize("name", GATES)
def test_sessions_change_between_steps_and_a_cancelled_one_ends_there(name: str) -> None:
    length = 50
    sizes = {"lstm_layer": 2, "gru_layer": 1, "rnn_layer": 1}[name]
    rng = np.random.default_rng(0)
    rows = 3 * GATES[name]
    args = [drawn(rng, length, 2, 3), *[drawn(rng, 2, 3)] * sizes, drawn(rng, rows, 3), drawn(rng, rows, 3)]
    for interrupt, ends in ((_Pressed(), False), (_Pressed(length // 2), True)):
        with activate(Context(interrupt=interrupt, account=interrupt.account)):
            leaves = [engine.tensor(each, True) for each in args]
            interrupt.account.pressed = True
            if ends:
                with pytest.raises(EngineError) as raised:
                    engine.call(name, leaves)
                assert raised.value.reason is Reason.CANCELLED
                assert interrupt.polls == length // 2
                continue
            output = engine.call(name, leaves)[0]
            assert interrupt.polls >= length
            loss = engine.call("sum", [output])
            interrupt.polls, interrupt.cancelled_at = 0, length // 2
            interrupt.account.pressed = True
            with pytest.raises(EngineError) as raised:
                engine.backward([loss])
            assert raised.value.reason is Reason.CANCELLED
            assert leaves[0].grad is None


def test_long_sequences_are_not_computed_apart_but_large_steps_are() -> None:
    long = [np.empty((100_000, 8, 512), np.float32), np.empty((8, 128)), np.empty((8, 128)), np.empty((512, 128))]
    large = [np.empty((2, 8192, 8192), np.float32), np.empty((8192, 2048)), np.empty((8192, 2048))]
    large.append(np.empty((8192, 2048)))
    for arrays, apart in ((long, False), (large, True)):
        works = forward.lstm.cost.forward(arrays, (), False, True), forward.lstm.cost.backward(arrays, (), False, True)
        assert [work >= LONG for work in works] == [apart, apart]
    short = [each[:4] if each.ndim == 3 else each for each in long]
    assert forward.lstm.cost.forward(short, (), False, True) < 1e8


@pytest.mark.usefixtures("without_onednn")
def test_a_plan_that_is_fused_has_the_steps_as_ops() -> None:
    for fuses in (False, True):
        with activate(Context()):
            leaves = lstm_arguments(6, 2, 4)
        tracer = Tracer(leaves, fuses)
        with activate(Context(tracer=tracer)):
            engine.backward([engine.call("sum", [engine.call("lstm_layer", leaves)[0]])])
        assert tracer.failed is None
        names = [instr.what.name for instr in tracer.instrs if instr.kind == "op"]
        assert ("_lstm" in names) is not fuses
        assert names.count("tanh") == (12 if fuses else 0)


X, H, W, U, B = (2, 3, 2), (3, 4), (4, 2), (4, 4), (4,)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        ((X[1:], H, W, U), {}, "the numbers of dimensions do not fit"),
        ((X, H[1:], W, U), {}, "the numbers of dimensions do not fit"),
        ((X, H, B, U), {}, "the numbers of dimensions do not fit"),
        ((X, H, W, B), {}, "the numbers of dimensions do not fit"),
        ((X, H, (4, 3), U), {}, "expected sizes [4, 2], got [4, 3]"),
        ((X, H, W, (4, 3)), {}, "expected sizes [4, 4], got [4, 3]"),
        ((X, (2, 4), W, U), {}, "expected sizes [3, 4], got [2, 4]"),
        ((X, (3, 5), W, (4, 5)), {}, "expected sizes [3, 4], got [3, 5]"),
        ((X, H, W, U, (3,), B), {}, "expected sizes [4], got [3]"),
        (((6, 2), H, W, U), {"batch_sizes": (2, 3, 1)}, "the batch sizes of a packed sequence"),
        (((6, 2), H, W, U), {"batch_sizes": (3, 2)}, "the batch sizes of a packed sequence"),
        (((6, 2), H, W, U), {"batch_sizes": (3, 3, 0)}, "the batch sizes of a packed sequence"),
        (((5, 2), H, W, U), {"batch_sizes": (3, 3, -1)}, "the batch sizes of a packed sequence"),
        (((6, 2), (2, 4), W, U), {"batch_sizes": (3, 2, 1)}, "the batch sizes of a packed sequence"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(shapes: Any, options: Any, message: str) -> None:
    with activate(Context()), pytest.raises(EngineError) as raised:
        recurrent.rnn_layer(*[engine.tensor(np.ones(shape)) for shape in shapes], **options)
    assert raised.value.reason is Reason.SHAPE
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (recurrent.gru_layer, (X, H, W, U), "expected sizes [3, 1], got [3, 4]"),
        (recurrent.gru_layer, (X, (3, 1), W, (4, 1)), "4 rows of weights cannot be divided into 3 gates"),
        (recurrent.lstm_layer, (X, (3, 1), (3, 2), W, (4, 1)), "expected sizes [3, 1], got [3, 2]"),
        (recurrent.lstm_layer, (X, (3, 2), (3, 1), W, (4, 2)), "without weight_hr, h has the size of c"),
        (recurrent.lstm_layer, (X, (3, 1), (3,), W, (4, 1)), "the numbers of dimensions do not fit"),
        (recurrent.lstm_layer, (X, (3, 2), (3, 1), W, (4, 2), B, B, (1, 2)), "expected sizes [2, 1], got [1, 2]"),
    ],
)
def test_gates_that_do_not_fit_are_refused(op: Any, shapes: Any, message: str) -> None:
    with activate(Context()), pytest.raises(EngineError) as raised:
        op(*[engine.tensor(np.ones(shape)) for shape in shapes])
    assert raised.value.reason is Reason.SHAPE
    assert message in raised.value.message

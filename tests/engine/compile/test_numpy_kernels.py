"""Kernels: each writes what its op or formula computes, also into the memory that it may take."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Tensor, tensor
from gradwire_engine.compile.fusion.cross_entropy import LossKernels, sources
from gradwire_engine.compile.fusion.kernel_cache import available
from gradwire_engine.compile.kernels import numpy as kernels
from gradwire_engine.compile.kernels import registry
from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.trace import Instr, Ref, Reg
from gradwire_engine.op.declaration import OPS
from gradwire_engine.ops.base.basic import fit
from tests.engine.compile.fusing import built

DTYPES = ["float32", "float64"]


def choose(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    """The kernel of an instruction on NumPy arrays."""
    return registry.choose("numpy", instr, regs)


class Made:
    """An instruction of these arguments with its result in the last register."""

    def __init__(self, kind: str, what: Any, args: Sequence[Any], result: Any) -> None:
        self.args = list(args)
        self.regs: list[Reg] = []
        template = tuple(map(self._template, args))
        self.out = np.full(result.shape, np.nan, result.dtype) if result.dtype.kind == "f" else np.zeros_like(result)
        self.instr = Instr(kind, what, template, (int(self._reg(self.out)),))
        self.kernel = choose(self.instr, self.regs)

    def _template(self, item: Any) -> Any:
        if isinstance(item, list):
            return [self._template(each) for each in item]
        return self._reg(item) if isinstance(item, np.ndarray) else item

    def _reg(self, array: np.ndarray) -> Ref:
        self.regs.append(Reg(array.shape, array.dtype, frozenset((len(self.regs),)), True))
        return Ref(len(self.regs) - 1)


def drawn(dtype: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shapes))
    return [rng.uniform(0.2, 2.0, shape).astype(dtype) for shape in shapes]


def check(made: Made, expected: np.ndarray) -> None:
    """The kernel's result is the expected one, also in the memory of each argument that it may take."""
    assert made.kernel is not None
    tolerance = {"rtol": 1e-5 if expected.dtype == np.float32 else 1e-12}
    out = made.out.T if made.kernel.transposed else made.out
    out = np.empty(expected.shape[::-1], expected.dtype).T if made.kernel.transposed else out
    made.kernel.run(out, *made.args)
    np.testing.assert_allclose(out, expected, **tolerance)
    for place in made.kernel.takes:
        if made.args[place].shape == expected.shape:
            args = [item.copy() if isinstance(item, np.ndarray) else item for item in made.args]
            made.kernel.run(args[place], *args)
            np.testing.assert_allclose(args[place], expected, **tolerance, err_msg=f"in the memory of argument {place}")


S, ROW = (6, 5), (5,)
OP_CASES = [
    *((name, (S, S), ()) for name in ("mul", "maximum", "minimum")),
    *((name, (S, ROW), ()) for name in ("mul", "maximum", "minimum")),
    *(("div", (S, shape), (None,)) for shape in (S, ROW)),
    *((name, (S, shape), (alpha,)) for name in ("add", "sub") for shape in (S, ROW) for alpha in (1,)),
    *((name, (S, S), (2.5,)) for name in ("add", "sub")),
    *((name, (S,), ()) for name in ("neg", "exp", "log", "tanh", "sqrt", "sin", "cos", "relu", "square")),
    *((name, (S, S), ()) for name in ("_tanh_backward", "_sigmoid_backward")),
    ("relu", ((3, 20_000),), ()),
    ("mm", ((4, 3), (3, 5)), ()),
    ("_linear_mm", ((4, 3), (3, 5)), ()),
    ("_linear_addmm", (ROW, (4, 3), (3, 5)), ()),
    ("addmm", (ROW, (4, 3), (3, 5)), (1, 1)),
    ("log_softmax", (S,), (1, None)),
    ("log_softmax", (S,), (-1, None)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "shapes", "rest"), OP_CASES)
def test_an_ops_kernel_writes_what_the_op_computes(name: str, shapes: tuple, rest: tuple, dtype: str) -> None:
    args = (*drawn(dtype, *shapes), *rest)
    expected = np.asarray(OPS[name].compute(args))
    check(Made("op", OPS[name], args, expected), expected)


FORMULA_CASES = [
    *((name, of, (S,), S) for name, of in (("neg", "input"),)),
    *((name, "input", (S, S), S) for name in ("exp", "tanh", "relu", "square", "sigmoid")),
    *(("mul", of, (S, S), S) for of in ("input", "other")),
    ("_tanh_backward", "g", (S, S), S),
    ("_tanh_backward", "out", (S, S, S), S),
    ("_sigmoid_backward", "g", (S, S), S),
    ("add", "input", (S,), ROW),
    ("_linear_addmm", "input", (S,), ROW),
    ("mm", "input", ((4, 5), (3, 5)), (4, 3)),
    ("mm", "mat2", ((4, 5), (4, 3)), (3, 5)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "of", "shapes", "result"), FORMULA_CASES)
def test_a_formulas_kernel_writes_what_the_formula_computes(
    name: str, of: str, shapes: tuple, result: tuple, dtype: str
) -> None:
    formula, _ = OPS[name].formulas[of]
    args = drawn(dtype, *shapes)
    expected = np.asarray(fit(formula(*args), (result, np.dtype(dtype))))
    check(Made("formula", (name, of, formula), args, expected), expected)


WRITE_CASES = [
    ("add", (S, S, 1)),
    ("add", (S, ROW, 1)),
    ("add", (S, S, -0.5)),
    ("sub", (S, S, 1)),
    ("sub", (S, S, 2.0)),
    ("mul", (S, S)),
    ("mul", (S, 0.5)),
    ("addcmul", (S, S, S, 0.3)),
    ("addcdiv", (S, S, S, -2)),
    ("zero", (S,)),
]


def _filled(args: tuple, dtype: str) -> list[Any]:
    made = iter(drawn(dtype, *(item for item in args if type(item) is tuple)))
    return [next(made) if type(item) is tuple else item for item in args]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "args"), WRITE_CASES)
def test_an_update_changes_its_target_as_the_op_in_place_does(name: str, args: tuple, dtype: str) -> None:
    given = _filled(args, dtype)
    expected = OPS[name].in_place(
        tuple(tensor(item.copy()) if isinstance(item, np.ndarray) else item for item in given)
    )
    assert type(expected) is Tensor
    made = Made("write", OPS[name], given, given[0])
    assert made.kernel is not None
    made.kernel.run(made.out, *given)
    np.testing.assert_allclose(given[0], expected.array, rtol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize(("name", "other"), [("add", 1), ("add", -7), ("sub", 2)])
def test_a_counter_changes_as_by_the_op_in_place(name: str, other: int, shape: tuple[int, ...]) -> None:
    counter = np.full(shape, 2**63 - 3)
    given = [counter.copy(), other, 1]
    expected = OPS[name].in_place((tensor(counter.copy()), other, 1))
    assert type(expected) is Tensor
    made = Made("write", OPS[name], given, given[0])
    assert made.kernel is not None
    for _ in range(2):  # the second one may pass the largest number
        made.kernel.run(made.out, *given)
    OPS[name].in_place((expected, other, 1))
    np.testing.assert_array_equal(given[0], expected.array)


REFUSED = {
    "whole numbers": ("op", "add", (np.ones(3, np.int64), np.ones(3, np.int64), 1)),
    "two dtypes": ("op", "mul", (np.ones(3), np.ones(3, np.float32))),
    "half types": ("op", "exp", (np.ones(3, np.float16),)),
    "another dimension": ("op", "log_softmax", (np.ones((3, 3)), 0, None)),
    "another dtype of the result": ("op", "log_softmax", (np.ones((3, 3)), 1, np.dtype(np.float32))),
    "an op without a kernel": ("op", "erf", (np.ones(3),)),
    "a rounded quotient": ("op", "div", (np.ones(3), np.ones(3), "floor")),
    "a counter that changes by a fraction": ("write", "add", (np.ones(3, np.int64), 0.5, 1)),
    "a counter that changes by a multiple": ("write", "add", (np.ones(3, np.int64), 2, 3)),
    "a counter that changes by a large number": ("write", "add", (np.ones(3, np.int64), 1 << 40, 1)),
    "an update that is scaled and broadcast": ("write", "add", (np.ones((2, 3)), np.ones(3), 2.0)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_where_a_kernel_would_differ_there_is_none(what: str) -> None:
    kind, name, args = REFUSED[what]
    assert Made(kind, OPS[name], args, np.asarray(args[0])).kernel is None


@pytest.mark.parametrize("plain", [True, False])
def test_cross_entropy_computes_loss_and_gradient_or_leaves_both_to_the_ops(plain: bool) -> None:
    (x,) = drawn("float64", (4, 3))
    logs = OPS["log_softmax"].compute((x, 1, None))
    target = np.array([0, 2, 1, 0 if plain else -100])
    state = kernels.NumpyCrossEntropy((4, 3), np.dtype(np.float64))
    found = state.forward(logs, target, lambda: "the op's")
    assert state.is_plain is plain
    out = np.empty((4, 3))
    state.backward(out, np.float64(2.0), logs, lambda: np.full((4, 3), 7.0))
    if not plain:
        assert found == "the op's"
        assert (out == 7.0).all()
        return
    np.testing.assert_allclose(found, -logs[range(4), target].mean())
    expected = np.exp(logs)
    expected[range(4), target] -= 1
    np.testing.assert_allclose(out, expected * 2.0 / 4)


@pytest.mark.skipif(not available(), reason="kernels need llvmlite")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (128, 10), (37, 3), (5, 300)])
def test_cross_entropy_by_kernels_has_the_same_bits(shape: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(shape[0])
    sides = [kernels.NumpyCrossEntropy(shape, np.dtype(dtype)) for _ in range(2)]
    pick, scatter = (built(source) for source in sources(np.dtype(dtype).char))
    sides[1].use(partial(LossKernels, pick, scatter))
    for number in range(6):
        logs = OPS["log_softmax"].compute((rng.normal(0, 30, shape).astype(dtype), 1, None))
        logs[0, -1] = [-np.inf, np.nan, 0.5][number % 3]
        target = rng.integers(0, shape[1], shape[0])
        if number % 2:
            target[-1] = rng.choice([-100, -1, shape[1], 1 << 62])
        if number > 3:  # layouts that kernels leave to NumPy
            target, logs = np.repeat(target, 2)[::2], np.asfortranarray(logs)
        g = np.asarray(rng.normal(), dtype)
        answers = []
        for side in sides:
            out = np.full(shape, 7, dtype)
            loss = side.forward(logs, target, lambda: "the op's")
            side.backward(out, g, logs, lambda: np.full(shape, 9, dtype))
            answers.append((side.is_plain, str(loss), getattr(loss, "dtype", None), out.tobytes()))
        assert answers[0] == answers[1]
        assert answers[0][0] is not bool(number % 2)


@pytest.mark.parametrize("size", [1, kernels.BLOCK, kernels.BLOCK + 1, 3 * kernels.BLOCK + 5])
def test_an_update_in_blocks_changes_every_element_once(size: int) -> None:
    target, other = np.arange(float(size)), np.ones(size)
    kernel = Made("write", OPS["add"], (target, other, 2.0), target).kernel
    assert kernel is not None
    calls = kernel.in_blocks([target, other, 2.0])
    assert len(calls) == -(-size // kernel.block)
    for call in calls:
        call()
    np.testing.assert_array_equal(target, np.arange(float(size)) + 2.0)


JOINED = [("cat", np.concatenate, dim) for dim in (0, 1, -1)] + [("stack", np.stack, dim) for dim in (0, 1, -1)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize(("name", "expected", "dim"), JOINED)
def test_arrays_are_joined_in_the_results_memory(name: str, expected: Any, dim: int, dtype: str) -> None:
    parts = [(array * 4).astype(dtype) for array in drawn("float64", (3, 4), (3, 4), (3, 4))]
    parts[1] = np.asfortranarray(parts[1])
    formula = {"cat": ("split", "tensor"), "stack": ("unbind", "input")}[name]
    for kind, what in (("op", OPS[name]), ("formula", (*formula, None))):
        made = Made(kind, what, [parts, dim], expected(parts, dim))
        check(made, expected(parts, dim))


def test_arrays_of_several_dtypes_or_ranks_are_not_joined_by_a_kernel() -> None:
    one, other, empty = np.ones((2, 3)), np.ones((2, 3), np.float32), np.ones(0)
    assert Made("op", OPS["cat"], [[one, other], 0], np.ones((4, 3))).kernel is None
    assert Made("op", OPS["cat"], [[one, empty], 0], one).kernel is None
    assert Made("op", OPS["cat"], [[empty, empty], 3], empty).kernel is None
    assert Made("op", OPS["stack"], [[one, other], 0], np.ones((2, 2, 3))).kernel is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("op", "part"),
    [("select", (0, 2)), ("select", (-1, -1)), ("_slice", (1, 1, None, 2)), ("_slice", (-2, None, -1, 1))],
)
def test_the_gradient_of_a_part_is_placed_in_the_results_memory(op: str, part: tuple[Any, ...], dtype: str) -> None:
    shape = (3, 5)
    backward = OPS[{"select": "_select_backward", "_slice": "_slice_backward"}[op]]
    (g,) = drawn(dtype, OPS[op].compute((np.zeros(shape, dtype), *part)).shape)
    expected = backward.compute((g, shape, *part))
    check(Made("op", backward, [g, shape, *part], expected), expected)
    check(Made("formula", (op, "input", None), [g, None, *part], expected), expected)

"""Products that a plan lets the library add to a tensor: values as without, and where they may not be moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Tensor, backward, call, grad_mode, set_grad, tensor
from gradwire_engine.compile import added_products
from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.trace import Instr, Ref, Reg
from gradwire_engine.core.context import CURRENT, Context, activate
from gradwire_engine.op.declaration import OPS
from tests.engine.compile.fusing import Program, fused, run, traced

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def updated(weight: Tensor, rate: float, name: str = "sub_") -> None:
    """Change a weight by its gradient, which is then dropped."""
    with grad_mode(False):
        call(name, (weight, call("mul", (weight.grad, rate))))
    set_grad(weight, None)
    tracer = CURRENT.get().tracer
    if tracer is not None:  # as the server tells it
        tracer.grad_changed(weight)


def network(layers: int, linear: bool, name: str = "sub_", extra: Any = None) -> Program:
    """A step of a network; the last argument is the rate. extra: is called with the weights before they change."""

    def program(x: Tensor, *given: Any) -> list[Tensor]:
        weights, rate = given[:layers], given[layers]
        state = x
        for weight in weights:
            state = call("tanh", (call("linear", (state, weight)) if linear else call("matmul", (state, weight)),))
        loss = call("sum", (state * state,))
        backward([loss])
        made = [loss] if extra is None else [loss, extra(state, weights)]
        for weight in weights:
            updated(weight, rate, name)
        return made

    return program


def drawn(rows: int, widths: Sequence[int], linear: bool = False, dtype: str = "float32") -> list[np.ndarray]:
    shapes = [(rows, widths[0])]
    for one, other in pairwise(widths):
        shapes.append((other, one) if linear else (one, other))
    return [(RNG.standard_normal(shape) * shape[-1] ** -0.5).astype(dtype) for shape in shapes]


def tensors(arrays: Sequence[np.ndarray]) -> list[Tensor]:
    return [tensor(array.copy(), number > 0) for number, array in enumerate(arrays)]


def added(plan: Plan) -> int:
    """How many products are added by the library."""
    return sum(instr.kind == "update" for instr in plan.instrs)


def agree(program: Program, arrays: Sequence[np.ndarray], rates: Sequence[float] = (0.1, -0.3)) -> Plan:
    """The plan, and the plan of machine code, change inputs as the program does."""
    plan = traced(program, tensors(arrays), rates[:1])
    for each in (plan, fused(plan)[0]):
        for rate in rates:
            given, expected = tensors(arrays), tensors(arrays)
            results, wanted = run(each, given, [rate]), program(*expected, rate)
            for one, other in zip([*results, *given], [*wanted, *expected], strict=True):
                np.testing.assert_allclose(one.array, other.array, rtol=3e-5, atol=3e-5)
                assert (one.grad is None) == (other.grad is None)
    return plan


@pytest.mark.parametrize("linear", [False, True], ids=["matmul", "linear"])
@pytest.mark.parametrize("name", ["sub_", "add_"])
def test_each_weight_is_updated_by_one_product(linear: bool, name: str) -> None:
    widths = [int(RNG.integers(256, 400)) for _ in range(3)]
    plan = agree(network(2, linear, name), drawn(int(RNG.integers(20, 100)), widths, linear))
    assert added(plan) == 2


def test_drawn_networks_agree_with_their_programs() -> None:
    for _ in range(12):
        linear, layers = bool(RNG.random() < 0.5), int(RNG.integers(1, 4))
        widths = [int(RNG.choice([17, 64, 256, 300, 513])) for _ in range(layers + 1)]
        agree(network(layers, linear), drawn(int(RNG.choice([1, 3, 64, 130])), widths, linear))


def test_a_gradient_accumulates_in_its_memory() -> None:
    def program(x: Tensor, weight: Tensor, rate: float) -> list[Tensor]:
        for _ in range(2):
            backward([call("sum", (call("tanh", (call("matmul", (x, weight)),)) * rate,))])
        return []

    arrays = drawn(40, [256, 300])
    plan = traced(program, tensors(arrays), [0.5])
    assert added(plan) == 1
    given, expected = tensors(arrays), tensors(arrays)
    run(plan, given, [0.5])
    program(*expected, 0.5)
    assert given[1].grad is not None
    assert expected[1].grad is not None
    np.testing.assert_allclose(given[1].grad.array, expected[1].grad.array, rtol=3e-5, atol=3e-5)


def test_a_rate_of_zero_still_makes_nan_of_an_infinite_gradient() -> None:
    arrays = drawn(40, [256, 300])
    arrays[0][3, 5] = np.inf
    plan = traced(network(1, False), tensors(arrays), [0.0])
    assert added(plan) == 1
    given, expected = tensors(arrays), tensors(arrays)
    run(plan, given, [0.0])
    network(1, False)(*expected, 0.0)
    assert np.isnan(expected[1].array).any()
    np.testing.assert_array_equal(np.isnan(given[1].array), np.isnan(expected[1].array))


@pytest.mark.parametrize("rate", [1e-50, 1e20, np.inf, np.nan])
def test_a_rate_that_is_a_constant_of_any_size_gives_what_the_program_gives(rate: float) -> None:
    def program(x: Tensor, y: Tensor, weight: Tensor) -> list[Tensor]:
        call("sub_", (weight, call("matmul", (call("transpose", (x, 0, 1)), y))), {"alpha": rate})
        return []

    arrays = [array.astype(np.float32) for array in RNG.standard_normal((2, 40, 300))]
    arrays.append(np.zeros((300, 300), np.float32))
    arrays[0][3, 5] = np.inf
    plan = traced(program, [tensor(each.copy()) for each in arrays])
    assert added(plan) == 1
    given, expected = [[tensor(each.copy()) for each in arrays] for _ in range(2)]
    run(plan, given)
    program(*expected)
    np.testing.assert_allclose(given[2].array, expected[2].array, rtol=3e-5, atol=3e-4 * min(1e20, rate))


def penalized(state: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Reads the gradients, as a clipping of their norm does."""
    assert weights[0].grad is not None
    return call("sum", (weights[0].grad * weights[0].grad,))


def test_gradients_with_another_use_are_made() -> None:
    assert added(agree(network(2, False, extra=penalized), drawn(40, [256, 300, 280]))) == 1


@pytest.mark.parametrize(
    ("rows", "widths", "dtype"),
    [
        (40, [200, 300], "float32"),  # a small weight
        (200, [256, 300], "float32"),  # factors that have more elements
        (40, [256, 300], "float64"),
    ],
)
def test_other_products_are_made(rows: int, widths: Sequence[int], dtype: str) -> None:
    assert added(agree(network(1, False), drawn(rows, widths, dtype=dtype))) == 0


def test_sessions_that_exchange_values_make_products_as_step_by_step() -> None:
    arrays = drawn(40, [256, 300])
    assert added(traced(network(1, False), tensors(arrays), [0.1])) == 1
    assert added(traced(network(1, False), tensors(arrays), [0.1], shared=True)) == 0


def test_a_gradient_that_stays_is_made() -> None:
    def program(x: Tensor, weight: Tensor, rate: float) -> list[Tensor]:
        backward([call("sum", (call("matmul", (x, weight)) * rate,))])
        with grad_mode(False):
            call("sub_", (weight, call("mul", (weight.grad, rate))))
        return []

    assert added(agree(program, drawn(40, [256, 300]))) == 0


@pytest.mark.parametrize(
    ("kind", "changed", "moves"),
    [
        ("", 0, True), ("write", 0, False), ("write", 1, False), ("write", 2, True), ("accumulate", 1, False),
        ("call", 0, False), ("write", 9, True),
    ],
)  # fmt: skip
def test_products_are_not_moved_over_a_change_of_their_factors(kind: str, changed: int, moves: bool) -> None:
    """The product of registers 0 and 1, added to 2; between, a register may be changed in place. 9 is another one."""
    shapes = {0: (8, 300), 1: (8, 300), 2: (300, 300), 3: (300, 300)}
    regs = [Reg(shapes.get(n, (300, 300)), np.dtype(np.float32), frozenset((n,)), True) for n in range(10)]
    instrs = [Instr("formula", ("mm", "mat2", None), (Ref(0), Ref(1)), (3,))]
    if kind:
        instrs.append(Instr(kind, OPS["mul"], (Ref(changed), Ref(8)), ()))
    instrs.append(Instr("write", OPS["sub"], (Ref(2), Ref(3), 0.5), ()))
    kernel = Kernel(lambda: None, added=lambda transposed: lambda: None)
    roots = {number: reg.roots for number, reg in enumerate(regs)}
    left = added_products.merge(instrs, [kernel] + [None] * (len(instrs) - 1), regs, roots, [2])
    assert [instr.kind for instr, _ in left][-1] == ("update" if moves else "write")
    assert len(left) == len(instrs) - moves


def test_a_product_of_the_tensor_itself_is_made() -> None:
    def program(x: Tensor, weight: Tensor, rate: float) -> list[Tensor]:
        call("sub_", (weight, call("matmul", (call("transpose", (weight, 0, 1)), weight)) * rate))
        return []

    arrays = [drawn(1, [300])[0], (RNG.standard_normal((300, 300)) / 20).astype(np.float32)]
    plan = traced(program, [tensor(each.copy()) for each in arrays], [0.1])
    assert added(plan) == 0


def test_a_product_of_a_part_of_the_gradient_it_is_added_to_is_made() -> None:
    """An input that is a view of a gradient is known to share its memory."""

    def program(weight: Tensor, part: Tensor) -> list[Tensor]:
        backward([call("sum", (call("matmul", (part, weight)),))])
        return []

    def inputs() -> list[Tensor]:
        weight = tensor(arrays[0].copy(), True)
        set_grad(weight, tensor(arrays[1].copy()))
        grad = weight.grad
        assert grad is not None
        return [weight, Tensor(grad.array[:300], False, grad.storage)]

    arrays = RNG.standard_normal((2, 640, 640)).astype(np.float32)
    plan = traced(program, inputs())
    assert added(plan) == 0
    given, expected = inputs(), inputs()
    assert plan.fits(given)
    run(plan, given)
    program(*expected)
    assert given[0].grad is not None
    assert expected[0].grad is not None
    np.testing.assert_allclose(given[0].grad.array, expected[0].grad.array, rtol=3e-5, atol=3e-4)


def test_gradients_that_are_views_of_an_input_are_accumulated() -> None:
    """As where one tensor has all gradients, so that one op scales them."""

    def program(flat: Tensor, x: Tensor, weight: Tensor) -> list[Tensor]:
        backward([call("sum", (call("matmul", (x, weight)),))])
        call("mul_", (flat, 0.5))
        return []

    def inputs() -> list[Tensor]:
        flat, weight = tensor(arrays[2].copy()), tensor(arrays[1].copy(), True)
        set_grad(weight, Tensor(flat.array[: weight.array.size].reshape(weight.array.shape), False, flat.storage))
        return [flat, tensor(arrays[0].copy()), weight]

    arrays = [*drawn(40, [256, 300]), RNG.standard_normal(256 * 300 + 5).astype(np.float32)]
    plan = traced(program, inputs())
    assert added(plan) == 1
    for each in (plan, fused(plan)[0]):
        given, expected = inputs(), inputs()
        assert each.fits(given)
        run(each, given)
        program(*expected)
        np.testing.assert_allclose(given[0].array, expected[0].array, rtol=3e-5, atol=3e-5)


def test_parts_of_a_result_are_not_kept_for_a_product_that_is_smaller() -> None:
    def program(x: Tensor, wide: Tensor, *weights: Tensor) -> list[Tensor]:
        made = []
        for _ in weights:
            part = call("narrow", (call("tanh", (call("matmul", (x, wide)),)), 1, 0, 300))
            made.append(call("matmul", (call("transpose", (part, 0, 1)), x)))
        for weight, each in zip(weights, made, strict=True):
            call("sub_", (weight, each), {"alpha": 0.1})
        return []

    shapes = [(40, 300), (300, 4000), (300, 300), (300, 300), (300, 300)]
    plan = traced(program, [tensor(RNG.standard_normal(shape).astype(np.float32)) for shape in shapes])
    assert added(plan) == 0


def test_memory_does_not_grow() -> None:
    arrays, account = drawn(64, [512] * 7), CURRENT.get().account
    program = network(6, False)
    plan = traced(program, tensors(arrays), [0.1])
    assert added(plan) == 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(added_products, "_LEAST", 1 << 60)
        other = traced(program, tensors(arrays), [0.1])
    assert added(other) == 0
    assert plan.bytes <= other.bytes
    assert account.bytes >= 0

"""Random programs by four ways: PyTorch, the ops one by one, the interpreted plan, and the plan of machine code.

python -m tests.engine.compile.drawn_plans --seconds 600 --seed 1

A program is drawn from a seed: elementwise and row-wise ops, reductions, products, views, losses, a backward, sometimes
a derivative of a derivative, and updates in place. All ways must give the same results and the same changed inputs.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradwire_engine import Tensor, backward, call, grad_mode, gradients, tensor
from gradwire_engine.core.context import Context, activate
from gradwire_engine.op.declaration import OPS
from tests.engine.compile.fusing import fused, run, traced

ROWS, WIDTHS = (1, 2, 5, 8), (1, 3, 8, 17, 24)
#: Relative to the largest value: what roundings of a program of a few steps may add up to.
BETWEEN_PLANS = {"float32": 2e-4, "float64": 1e-11}
TO_PYTORCH = {"float32": 2e-3, "float64": 1e-10}

Apply = Callable[..., Any]
Step = Callable[[Apply, list[Any]], Any]


def _engine(name: str, *args: Any, **options: Any) -> Any:
    return call(name, args, options)


def _pytorch(name: str, *args: Any, **options: Any) -> Any:
    import torch

    functional = torch.nn.functional
    first = functional if name in _FUNCTIONAL else torch
    return getattr(first, name)(*args, **options)


_FUNCTIONAL = frozenset(
    {"gelu", "silu", "softplus", "elu", "leaky_relu", "hardtanh", "hardswish", "mish", "layer_norm", "mse_loss",
     "binary_cross_entropy_with_logits", "smooth_l1_loss", "softmax", "log_softmax", "linear", "logsigmoid",
     "cross_entropy"}
)  # fmt: skip
_UNARY = (
    "exp", "tanh", "sigmoid", "silu", "relu", "square", "neg", "gelu", "softplus", "elu", "leaky_relu", "hardtanh",
    "hardswish", "mish", "sin", "cos", "abs", "erf", "log1p", "sqrt", "reciprocal", "expm1", "atan",
)  # fmt: skip
#: Ops that overflow or leave their domain, behind an op that bounds their input.
_BOUNDED = {"exp": "tanh", "expm1": "tanh", "square": "tanh", "reciprocal": "exp", "sqrt": "exp", "log1p": "sigmoid"}
_BINARY = ("add", "sub", "mul", "maximum", "minimum", "where", "div", "atan2", "hypot")
_REDUCED = ("sum", "mean", "logsumexp", "var", "amax", "norm")


@dataclass
class Drawn:
    """A program: its inputs, steps, and whether its loss is made of a gradient."""

    arrays: list[np.ndarray]
    steps: list[Step] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    twice: bool = False
    updated: tuple[int, ...] = ()


def draw(seed: int) -> Drawn:
    """The program of a seed. Its inputs' dtype is float32 for even seeds."""
    rng = np.random.default_rng(seed)
    dtype = ("float32", "float64")[seed % 2]
    rows, width = int(rng.choice(ROWS)), int(rng.choice(WIDTHS))
    shapes = [(rows, width), (width,), (rows, 1), (2, rows, width), (width, width), (1,)]
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    if rng.random() < 0.2:  # ties and zeros
        arrays = [np.round(array).astype(dtype) for array in arrays]
    made = Drawn(arrays, twice=rng.random() < 0.25, updated=tuple(np.flatnonzero(rng.random(len(shapes)) < 0.5)))
    for _ in range(int(rng.integers(4, 16))):
        words, step = _draw_step(rng, width)
        made.words.append(words)
        made.steps.append(step)
    return made


def _draw_step(rng: np.random.Generator, width: int) -> tuple[str, Step]:
    kind = int(rng.integers(10))
    one, other, third = (int(number) for number in rng.integers(1 << 20, size=3))

    def chosen(values: list[Any], number: int) -> Any:
        return values[-1 - number % len(values)] if number % 3 else values[-1]

    if kind < 3:
        name = str(rng.choice(_UNARY))
        return f"{name} of {one}", lambda apply, values: _unary(apply, name, chosen(values, one))
    if kind < 6:
        name = str(rng.choice(_BINARY))
        return (
            f"{name} of {one}, {other}",
            lambda apply, values: _binary(apply, name, chosen(values, one), chosen(values, other), third),
        )
    if kind == 6:
        name = str(rng.choice(("softmax", "log_softmax", "layer_norm", "weighted_norm", "cumsum")))
        return f"{name} of {one}", lambda apply, values: _of_rows(apply, name, chosen(values, one), values)
    if kind == 7:
        name, keep = str(rng.choice(_REDUCED)), bool(third % 2)
        return f"{name} of {one}, {keep}", lambda apply, values: _reduced(apply, name, chosen(values, one), keep)
    if kind == 8:
        name = str(rng.choice(("transpose", "flip", "narrow", "cat", "expand")))
        return f"{name} of {one}", lambda apply, values: _moved(apply, name, chosen(values, one))
    name = str(rng.choice(("matmul", "mse_loss", "binary_cross_entropy_with_logits", "smooth_l1_loss", "linear")))
    return f"{name} of {one}", lambda apply, values: _combined(apply, name, chosen(values, one), values, width)


def _unary(apply: Apply, name: str, x: Any) -> Any:
    return apply(name, apply(_BOUNDED[name], x) if name in _BOUNDED else x)


def _joins(x: Any, y: Any) -> bool:
    """Whether two shapes broadcast to one that is not large."""
    pairs = zip(reversed(tuple(x.shape)), reversed(tuple(y.shape)), strict=False)
    return all(one == other or 1 in (one, other) for one, other in pairs)


def _binary(apply: Apply, name: str, x: Any, y: Any, number: int) -> Any:
    if not _joins(x, y) or number % 5 == 0:
        return apply(("add", "sub", "mul")[number % 3], x, (0.75, -2.0, 1.5, 0.0)[number % 4])
    if name == "where":
        return apply("where", apply("gt", x, 0.0), x, y)
    if name == "div":
        return apply("div", x, apply("add", apply("square", y), 1.0))
    if name == "hypot":
        return apply("hypot", apply("add", apply("abs", x), 0.5), y)
    if name == "atan2":
        return apply("atan2", x, apply("add", apply("square", y), 0.5))
    return apply(name, x, y)


def _of_rows(apply: Apply, name: str, x: Any, values: list[Any]) -> Any:
    if x.ndim == 0:
        return apply("tanh", x)
    if name == "layer_norm":
        return apply("layer_norm", x, (x.shape[-1],), None, None, 1e-2)
    if name == "weighted_norm":
        weight = values[1]
        same = x.shape[-1] == weight.shape[0]
        return apply("layer_norm", x, (x.shape[-1],), *((weight, weight) if same else (None, None)), 1e-2)
    return apply(name, x, -1)


def _reduced(apply: Apply, name: str, x: Any, keep: bool) -> Any:
    if x.ndim == 0:
        return apply("neg", x)
    if name == "var":
        return apply("sqrt", apply("add", apply("mean", apply("square", x), -1, keep), 0.1))
    if name == "norm":
        return apply("sum", apply("abs", x), 0, keep)
    return apply(name, x, -1, keep)


def _moved(apply: Apply, name: str, x: Any) -> Any:
    if x.ndim < 2:
        return apply("cos", x)
    if name == "transpose":
        return apply("transpose", x, -1, -2)
    if name == "flip":
        return apply("flip", x, (-1,))
    if name == "narrow":
        return apply("narrow", x, -1, x.shape[-1] // 2, x.shape[-1] - x.shape[-1] // 2)
    if name == "cat":
        return apply("cat", [x, apply("neg", x)], -1) if x.shape[-1] < 64 else apply("sin", x)
    return apply("add", apply("sum", x, -1, True), x)


def _combined(apply: Apply, name: str, x: Any, values: list[Any], width: int) -> Any:
    if name in ("matmul", "linear"):
        if x.ndim < 1 or x.shape[-1] != width:
            return apply("sigmoid", x)
        return apply("linear", x, values[4], values[1]) if name == "linear" else apply("matmul", x, values[4])
    target = apply("sigmoid", apply("mul", x, 0.5))
    return apply("add", apply(name, x, target), apply("mul", x, 0.25))


def _loss(apply: Apply, drawn: Drawn, given: Sequence[Any]) -> tuple[Any, list[Any]]:
    values = list(given)
    for step in drawn.steps:
        values.append(step(apply, values))
    ends = [apply("sum", apply("tanh", value)) for value in values[-3:]]
    return apply("add", apply("add", ends[0], ends[1]), apply("mul", ends[2], 0.5)), values[len(given) :]


def engine_program(drawn: Drawn) -> Callable[..., list[Tensor]]:
    """The program by the engine's ops."""

    def program(*given: Tensor) -> list[Tensor]:
        loss, made = _loss(_engine, drawn, given)
        if drawn.twice:
            (slope,), _ = gradients([loss], [given[0]], create_graph=True, materialize_grads=True)
            if slope is not None and slope.requires_grad:
                loss = _engine("add", loss, _engine("sum", _engine("tanh", slope)))
        if loss.requires_grad:
            backward([loss])
        with grad_mode(False):
            for place in drawn.updated:
                leaf = given[place]
                if leaf.grad is not None:
                    _in_place("mul", leaf, 0.9)
                    _in_place("add", leaf, leaf.grad)
            return [call("mul", (each, 1.0)) for each in (loss, *made)]  # a plan's outputs are no views of its inputs

    return program


def _in_place(name: str, target: Tensor, *rest: Any) -> None:
    op = OPS[name]
    op.in_place(op.bind((target, *rest), {}))


def pytorch_results(drawn: Drawn, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of PyTorch, then the inputs and their gradients (empty without one)."""
    import torch

    given = [torch.tensor(array, requires_grad=True) for array in arrays]
    loss, made = _loss(_pytorch, drawn, given)
    if drawn.twice:
        (slope,) = torch.autograd.grad(loss, [given[0]], create_graph=True, materialize_grads=True)
        if slope.requires_grad:
            loss = loss + torch.tanh(slope).sum()
    if loss.requires_grad:
        loss.backward()
    with torch.no_grad():
        for place in drawn.updated:
            if given[place].grad is not None:
                given[place].mul_(0.9).add_(given[place].grad)
    shown = [each.detach().numpy() for each in (loss, *made, *given)]
    return [*shown, *(np.zeros(0) if each.grad is None else each.grad.numpy() for each in given)]


def engine_results(
    drawn: Drawn, arrays: Sequence[np.ndarray], way: Callable[[list[Tensor]], list[Tensor]]
) -> list[np.ndarray]:
    """The same of a way to run the engine's program."""
    given = [tensor(array.copy(), True) for array in arrays]
    made = way(given)
    shown = [np.array(each.array) for each in (*made, *given)]
    return [*shown, *(np.zeros(0) if each.grad is None else np.array(each.grad.array) for each in given)]


def differences(seed: int, with_pytorch: bool = True) -> list[str]:
    """What differs between the ways, in words. Raises what a way raises."""
    drawn = draw(seed)
    dtype = str(drawn.arrays[0].dtype)
    found: list[str] = []
    with activate(Context()), np.errstate(all="ignore"):
        program = engine_program(drawn)
        plan = traced(program, [tensor(array.copy(), True) for array in drawn.arrays])
        quick, _ = fused(plan)
        for turn in range(2):
            arrays = [np.roll(array.reshape(-1), turn).reshape(array.shape) for array in drawn.arrays]
            ops = engine_results(drawn, arrays, lambda given: program(*given))
            plain = engine_results(drawn, arrays, lambda given: run(plan, given))
            compiled = engine_results(drawn, arrays, lambda given: run(quick, given))
            found += _compared("interpreted plan", plain, ops, BETWEEN_PLANS[dtype])
            found += _compared("fused plan", compiled, plain, BETWEEN_PLANS[dtype])
            if with_pytorch:
                found += _compared("PyTorch", pytorch_results(drawn, arrays), ops, TO_PYTORCH[dtype])
    return found


def _compared(name: str, made: list[np.ndarray], wanted: list[np.ndarray], tolerance: float) -> list[str]:
    found = []
    for place, (one, other) in enumerate(zip(made, wanted, strict=True)):
        if one.shape != other.shape or (one.size and one.dtype != other.dtype):
            found.append(f"{name}, result {place}: {one.dtype}{one.shape}, not {other.dtype}{other.shape}")
            continue
        finite = np.isfinite(one) & np.isfinite(other)
        scale = float(np.abs(other[finite]).max(initial=1.0))
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            found.append(f"{name}, result {place}: other values that are not finite")
        elif (worst := float(np.abs(one[finite] - other[finite]).max(initial=0.0))) > tolerance * scale:
            found.append(f"{name}, result {place}: differs by {worst:.3g}, largest value {scale:.3g}")
    return found


def main() -> int:
    """Run programs until the time is over. Returns how many seeds differ, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1, help="the first program's; the next ones follow")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    end, seed, bad = time.monotonic() + given.seconds, given.seed, 0
    while time.monotonic() < end:
        found = differences(seed)
        if found:
            bad += 1
            print(f"--- seed {seed}:", *draw(seed).words, *found[:4], sep="\n    ", flush=True)
        seed += 1
    print(f"{seed - given.seed} programs, {bad} of them differ")
    return min(bad, 100)


if __name__ == "__main__":
    sys.exit(main())

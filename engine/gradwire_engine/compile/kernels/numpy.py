"""Kernels for NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire_engine.compile.kernels.registry import (
    GRADIENT_SUM,
    Choice,
    Kernel,
    TargetIndexing,
    cross_entropy,
    kernel,
)
from gradwire_engine.compile.trace import Instr, NumRef, Ref, Reg
from gradwire_engine.core.matrix_product import RepeatedProduct
from gradwire_engine.ops.elementwise.activation import keep

Array = Any
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
# Elements per block, so that a step's result is still in the cache for the next step.
BLOCK = 1 << 14
_ZEROS = {dtype: np.zeros(BLOCK, dtype) for dtype in _FLOATS}


def _regs(instr: Instr, regs: Sequence[Reg]) -> list[Reg]:
    return [regs[item] for item in instr.args if type(item) is Ref]


def _plain(instr: Instr, regs: Sequence[Reg], out: Reg) -> bool:
    """Whether all arguments are arrays of the result's floating dtype, or numbers, and broadcast to its shape."""
    if out.dtype not in _FLOATS:
        return False
    for item in instr.args:
        if type(item) is Ref:
            reg = regs[item]
            if reg.dtype != out.dtype or not _broadcasts(reg.shape, out.shape):
                return False
        elif type(item) not in (float, int, NumRef):
            return False
    return True


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))


def _ufunc(ufunc: Any, operands: int) -> Choice:
    """Kernel for an op that is one ufunc of its first arguments; the others must have their default values."""

    def choose(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
        args, rest = instr.args[:operands], instr.args[operands:]
        if any(item not in (None, 1) or type(item) in (Ref, NumRef) for item in rest):
            return None
        out = regs[instr.outs[0]]
        if not _plain(Instr("", None, args, ()), regs, out) or not any(type(item) is Ref for item in args):
            return None

        def run(out: Array, *given: Any) -> None:
            ufunc(*given[:operands], out=out)

        return Kernel(run, [place for place, item in enumerate(args) if type(item) is Ref])

    return choose


def _scaled(ufunc: Any) -> Choice:
    """input + alpha * other."""
    plain = _ufunc(ufunc, 2)

    def choose(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
        if type(instr.args[2]) in (int, float) and instr.args[2] == 1:
            return plain(instr, regs)
        out, other = regs[instr.outs[0]], instr.args[1]
        if not _plain(instr, regs, out) or type(other) is not Ref or regs[other].shape != out.shape:
            return None

        def run(out: Array, a: Array, b: Array, alpha: Any) -> None:
            np.multiply(b, alpha, out)
            ufunc(a, out, out)

        # The first operand's memory may not be reused: it is read after `out` is written.
        return Kernel(run, [1] if instr.args[0] != other else [])

    return choose


def _relu(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    out = regs[instr.outs[0]]
    return Kernel(_run_relu, [0]) if _plain(instr, regs, out) and out.shape else None


def _run_relu(out: Array, x: Array) -> None:
    if not x.flags.c_contiguous:
        np.maximum(x, 0, out=out)
        return
    # Comparing two arrays is several times faster than comparing an array and a number.
    flat, target, zeros = x.reshape(-1), out.reshape(-1), _ZEROS[out.dtype]
    whole = flat.size - flat.size % BLOCK
    if whole:
        np.maximum(flat[:whole].reshape(-1, BLOCK), zeros, out=target[:whole].reshape(-1, BLOCK))
    np.maximum(flat[whole:], zeros[: flat.size - whole], out=target[whole:])


def _relu_backward(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    out = regs[instr.outs[0]]
    if not _plain(instr, regs, out) or any(reg.shape != out.shape for reg in _regs(instr, regs)) or not out.shape:
        return None
    mask = np.empty(out.shape, np.bool_)
    bits = np.dtype(f"i{out.dtype.itemsize}")

    def run(out: Array, g: Array, result: Array) -> None:
        if not (g.flags.c_contiguous and result.flags.c_contiguous):
            out[...] = keep(np, g, result != 0)
            return
        # Bits times 0 or 1, also for inf and nan.
        np.not_equal(result, 0, mask)
        np.multiply(g.view(bits), mask, out.view(bits))

    return Kernel(run, [0])


def _matmul(*, left_t: bool = False, right_t: bool = False, swap: bool = False, bias: bool = False) -> Choice:
    """Product of two matrices. swap: the left factor is the second one. bias: the first argument is a row to add."""

    def choose(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
        out = regs[instr.outs[0]]
        refs = instr.args[:3] if bias else instr.args[:2]
        if out.dtype not in _FLOATS or not all(type(item) is Ref and regs[item].dtype == out.dtype for item in refs):
            return None
        if any(regs[item].shape[-1:] == () or len(regs[item].shape) != 2 for item in refs[1 if bias else 0 :]):
            return None
        if any(type(item) is not int or item != 1 for item in instr.args[len(refs) :]):
            return None

        multiply = RepeatedProduct(left_t, right_t)

        def run(out: Array, one: Array, other: Array, *_: Any) -> None:
            if swap:
                one, other = other, one
            multiply(one, other, out)

        def run_biased(out: Array, row: Array, one: Array, other: Array, *_: Any) -> None:
            multiply.add(one, other, out, row if row.ndim else np.broadcast_to(row, out.shape[1:]))

        return Kernel(run_biased) if bias else Kernel(run, added=_added(multiply, swap))

    return choose


def _added(multiply: RepeatedProduct, swap: bool) -> Callable[[bool], Callable[..., None]]:
    """What a kernel of products has as `added`."""

    def added(transposed: bool) -> Callable[..., None]:
        add_to = (multiply.with_result_transposed() if transposed else multiply).add_to

        def run(target: Array, alpha: float, one: Array, other: Array, *_: Any) -> None:
            if swap:
                one, other = other, one
            add_to(target, alpha, one, other)

        return run

    return added


def _weight_transposed(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    """Gradient of linear's weight, computed in the weight's memory layout."""
    out = regs[instr.outs[0]]
    if out.dtype not in _FLOATS or any(reg.dtype != out.dtype or len(reg.shape) != 2 for reg in _regs(instr, regs)):
        return None

    multiply = RepeatedProduct(one_t=True, out_t=True)

    def run(out: Array, g: Array, mat1: Array) -> None:
        multiply(g, mat1, out)

    return Kernel(run, transposed=True, added=_added(multiply, False))


def _passed_on(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    """Gradient of a vector that was added to each row: a sum over rows."""
    out, g = regs[instr.outs[0]], regs[instr.args[0]]
    if out.dtype not in _FLOATS or g.dtype != out.dtype or len(g.shape) != 2 or out.shape != g.shape[1:]:
        return None
    if any(type(item) is not int or item != 1 for item in instr.args[1:]):
        return None
    ones = np.ones(g.shape[0], out.dtype)
    if not out.shape[0] or not g.shape[0]:
        return None

    def run(out: Array, g: Array, *_: Any) -> None:
        np.matmul(ones, g, out)

    return Kernel(run)


def _times(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    """g * other, without broadcasting of the input."""
    out = regs[instr.outs[0]]
    if not _plain(instr, regs, out) or regs[instr.args[0]].shape != out.shape:
        return None
    return Kernel(lambda out, g, other: np.multiply(g, other, out), [0])


def _parts(instr: Instr, regs: Sequence[Reg]) -> list[Reg] | None:
    """The arrays of a list, if all have the result's dtype and nothing is computed with a number of the run."""
    items, dim = instr.args
    if type(items) not in (list, tuple) or type(dim) is not int or not all(type(item) is Ref for item in items):
        return None
    given = [regs[item] for item in items]
    return given if given and all(reg.dtype == regs[instr.outs[0]].dtype for reg in given) else None


def _joined(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    """Arrays one after the other along a dimension, straight into the result's memory."""
    given, out = _parts(instr, regs), regs[instr.outs[0]]
    if given is None or not out.shape or any(len(reg.shape) != len(out.shape) for reg in given):
        return None
    if not -len(out.shape) <= instr.args[1] < len(out.shape):
        return None  # of empty vectors, any dimension is allowed
    return Kernel(lambda out, parts, dim: np.concatenate(parts, dim, out))


def _stacked(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    """Arrays along a new dimension."""
    given = _parts(instr, regs)
    if given is None:
        return None
    shape = given[0].shape
    if instr.args[1] == 0 and shape:  # one after the other
        whole = (len(given) * shape[0], *shape[1:])
        return Kernel(lambda out, parts, dim: np.concatenate(parts, 0, out.reshape(whole)))
    return Kernel(lambda out, parts, dim: np.stack(parts, dim, out))


def _placed(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    """Gradient of a part along a dimension: the gradient in that place, zero elsewhere."""
    given, dim, part, out = instr.args[0], instr.args[2], instr.args[3:], regs[instr.outs[0]]
    if type(given) is not Ref or regs[given].dtype != out.dtype or not out.shape:
        return None
    if type(dim) is not int or any(type(item) is not int and item is not None for item in part):
        return None
    index = (slice(None),) * (dim % len(out.shape)) + ((part[0] if len(part) == 1 else slice(*part)),)

    def run(out: Array, g: Array, *_: Any) -> None:
        out.fill(0)
        out[index] = g

    return Kernel(run)


# Derivatives: elementwise, on arrays of one shape. `taken` is the index of the argument whose memory may be reused for
# the result, if no other argument is the same array.


def _slope(run: Callable[..., None], taken: int | None = None) -> Choice:
    def choose(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
        out = regs[instr.outs[0]]
        if out.dtype not in _FLOATS or not all(type(item) is Ref for item in instr.args):
            return None
        if any(reg.shape != out.shape or reg.dtype != out.dtype for reg in _regs(instr, regs)):
            return None
        takes = [] if taken is None or instr.args.count(instr.args[taken]) > 1 else [taken]
        return Kernel(run, takes)

    return choose


def _tanh_slope(out: Array, g: Array, y: Array) -> None:
    np.multiply(y, y, out)
    np.subtract(1, out, out)
    np.multiply(g, out, out)


def _tanh_bend(out: Array, h: Array, g: Array, y: Array) -> None:
    np.multiply(h, g, out)
    np.multiply(out, y, out)
    np.multiply(out, -2, out)


def _sigmoid_slope(out: Array, g: Array, y: Array) -> None:
    np.subtract(1, y, out)
    np.multiply(out, y, out)
    np.multiply(g, out, out)


def _square_slope(out: Array, g: Array, x: Array) -> None:
    np.multiply(x, 2, out)
    np.multiply(g, out, out)


def _log_softmax(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    out = regs[instr.outs[0]]
    dim, dtype = instr.args[1], instr.args[2]
    if dtype is not None or len(out.shape) != 2 or dim not in (1, -1) or out.dtype not in _FLOATS or 0 in out.shape:
        return None
    if regs[instr.args[0]].dtype != out.dtype:
        return None
    columns = np.empty(out.shape[::-1], out.dtype)
    shares = np.empty(out.shape, out.dtype)
    row = np.empty(out.shape[0], out.dtype)
    ones = np.ones(out.shape[1], out.dtype)

    def run(out: Array, x: Array, *_: Any) -> None:
        np.copyto(columns, x.T)
        np.maximum.reduce(columns, 0, out=row)
        np.subtract(x, row[:, None], out)
        np.exp(out, shares)
        np.matmul(shares, ones, row)
        np.log(row, row)
        np.subtract(out, row[:, None], out)

    return Kernel(run, [0])


class NumpyCrossEntropy:
    """nll_loss of log_softmax, and the gradient of both in one step. The ops handle targets outside the classes."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.classes = shape[1]
        self.starts = np.arange(0, shape[0] * shape[1], shape[1])
        self.positions = np.empty(shape[0], np.int64)
        self.picked = np.empty(shape[0], dtype)
        self.count = dtype.type(shape[0])
        self.is_plain = False
        self._kernels: TargetIndexing | None = None

    def use(self, make: Callable[[Array, Array], TargetIndexing]) -> None:
        """Compute by kernels with the same bits, which are made for positions and picked values."""
        self._kernels = make(self.positions, self.picked)

    def forward(self, logs: Array, target: Array, fallback: Callable[[], Any]) -> Any:
        """Mean of minus the log-probabilities at the targets."""
        found = None if self._kernels is None else self._kernels.pick(logs, target)
        if found is None:
            found = self._pick(logs, target)
        self.is_plain = found
        return np.asarray(-np.add.reduce(self.picked) / self.count) if found else fallback()

    def _pick(self, logs: Array, target: Array) -> bool:
        """Whether all targets are classes. Then positions and picked values are theirs."""
        if not np.maximum.reduce(target.view(np.uint64)) < self.classes:
            return False
        np.add(self.starts, target, self.positions)
        logs.reshape(-1).take(self.positions, out=self.picked, mode="wrap")
        return True

    def backward(self, out: Array, g: Array, logs: Array, fallback: Callable[[], Any]) -> None:
        """Write (softmax - onehot(target)) * g / count into `out`."""
        if not self.is_plain:
            np.copyto(out, fallback())
            return
        np.exp(logs, out)
        share = g / self.count
        if self._kernels is not None and self._kernels.scatter(out, share):
            return
        flat = out.reshape(-1)
        flat[self.positions] -= 1
        np.multiply(out, share, out)


# In-place ops: (temporary memory, target, arguments).


def _write(operands: int, run: Callable[..., Any], scratch: bool) -> Choice:
    def choose(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
        target = instr.args[0]
        if type(target) is not Ref or not _plain(instr, regs, regs[target]):
            return None
        if scratch and any(type(item) is Ref and regs[item].shape != regs[target].shape for item in instr.args[1:]):
            return None
        if len(instr.args) != operands:
            return None
        return Kernel(run, scratch=scratch, block=BLOCK)

    return choose


def _is_counted(instr: Instr, regs: Sequence[Reg]) -> bool:
    """Whether a counter of int64 changes by a literal, as batch normalization counts its batches."""
    target, other = instr.args[:2]
    return type(target) is Ref and regs[target].dtype == np.int64 and type(other) is int and abs(other) < 1 << 31


def _change(ufunc: Any) -> Choice:
    """target += alpha * other."""

    def scaled(out: Array, target: Array, other: Array, alpha: Any) -> None:
        np.multiply(other, alpha, out)
        ufunc(target, out, target)

    simple = _write(3, lambda out, target, other, alpha: ufunc(target, other, target), False)
    full = _write(3, scaled, True)

    def choose(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
        alpha = instr.args[2]
        is_one = type(alpha) in (int, float) and alpha == 1
        if not is_one and type(instr.args[1]) is not Ref:
            return None
        if is_one and _is_counted(instr, regs):
            return Kernel(lambda out, target, other, alpha: ufunc(target, other, target))
        return (simple if is_one else full)(instr, regs)

    return choose


def _addcmul(out: Array, target: Array, one: Array, other: Array, value: Any) -> None:
    np.multiply(one, other, out)
    np.multiply(out, value, out)
    np.add(target, out, target)


def _addcdiv(out: Array, target: Array, one: Array, other: Array, value: Any) -> None:
    np.true_divide(one, other, out)
    np.multiply(out, value, out)
    np.add(target, out, target)


cross_entropy("numpy", NumpyCrossEntropy)
_KERNELS: dict[str, Choice] = {
    "add": _scaled(np.add),
    "sub": _scaled(np.subtract),
    "mul": _ufunc(np.multiply, 2),
    "div": _ufunc(np.true_divide, 2),
    "maximum": _ufunc(np.maximum, 2),
    "minimum": _ufunc(np.minimum, 2),
    "neg": _ufunc(np.negative, 1),
    "exp": _ufunc(np.exp, 1),
    "log": _ufunc(np.log, 1),
    "tanh": _ufunc(np.tanh, 1),
    "sqrt": _ufunc(np.sqrt, 1),
    "sin": _ufunc(np.sin, 1),
    "cos": _ufunc(np.cos, 1),
    "relu": _relu,
    "mm": _matmul(),
    "_linear_mm": _matmul(),
    "_linear_addmm": _matmul(bias=True),
    "addmm": _matmul(bias=True),
    "log_softmax": _log_softmax,
    "cat": _joined,
    "_select_backward": _placed,
    "_slice_backward": _placed,
    "stack": _stacked,
    "square": _slope(lambda out, x: np.multiply(x, x, out), 0),
    "_tanh_backward": _slope(_tanh_slope, 1),
    "_sigmoid_backward": _slope(_sigmoid_slope),
    # Formulas of gradients.
    "split.grad.tensor": _joined,
    "unbind.grad.input": _stacked,
    "select.grad.input": _placed,
    "_slice.grad.input": _placed,
    "add.grad.input": _passed_on,
    "add.grad.other": _passed_on,
    "sub.grad.input": _passed_on,
    "_linear_addmm.grad.input": _passed_on,
    "mm.grad.input": _matmul(right_t=True),
    "mm.grad.mat2": _matmul(left_t=True, swap=True),
    "_linear_mm.grad.input": _matmul(right_t=True),
    "_linear_addmm.grad.mat1": _matmul(right_t=True),
    "_linear_addmm.grad.mat2": _weight_transposed,
    "_linear_mm.grad.mat2": _weight_transposed,
    "relu.grad.input": _relu_backward,
    "mul.grad.input": _times,
    "mul.grad.other": _times,
    "exp.grad.input": _times,
    "tanh.grad.input": _slope(_tanh_slope, 1),
    "_tanh_backward.grad.g": _slope(_tanh_slope, 1),
    "_tanh_backward.grad.out": _slope(_tanh_bend, 0),
    "sigmoid.grad.input": _slope(_sigmoid_slope),
    "_sigmoid_backward.grad.g": _slope(_sigmoid_slope),
    "square.grad.input": _slope(_square_slope, 1),
    "neg.grad.input": _slope(lambda out, g: np.negative(g, out), 0),
    GRADIENT_SUM: lambda instr, regs: Kernel(lambda out, one, other: np.add(one, other, out), [0, 1]),
    # In-place ops.
    "add_": _change(np.add),
    "sub_": _change(np.subtract),
    "mul_": _write(2, lambda out, target, other: np.multiply(target, other, target), False),
    "addcmul_": _write(4, _addcmul, True),
    "addcdiv_": _write(4, _addcdiv, True),
    "zero_": _write(1, lambda out, target: target.fill(0), False),
}
for _name, _choice in _KERNELS.items():
    kernel("numpy", _name)(_choice)

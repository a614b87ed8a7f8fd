"""Rules of products of matrices, made of mm, bmm, addmm, mv and dot."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradwire._dispatch.calls import aten
from gradwire._dispatch.rules.shapes import broadcast, reshaped

Tensor = Any


def _linear(call: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.ndim != 2:
        return NotImplemented
    if bias is None or bias.ndim != 1:
        made = matmul(input, aten("t.default", weight))
        return made if bias is None else aten("add.Tensor", made, bias)
    if input.ndim == 2:
        return aten("addmm.default", bias, input, aten("t.default", weight))
    if not input.is_contiguous():
        return aten("add.Tensor", matmul(input, aten("t.default", weight)), bias)
    rows = math.prod(input.shape[:-1])
    flat = aten("view.default", input, [rows, input.shape[-1]])
    made = aten("addmm.default", bias, flat, aten("t.default", weight))
    return aten("view.default", made, [*input.shape[:-1], weight.shape[0]])


def _matmul(call: Any, input: Tensor, other: Tensor) -> Any:
    return matmul(input, other)


def matmul(input: Tensor, other: Tensor) -> Any:
    """The product, as PyTorch divides it among its kernels."""
    form = (input.ndim, other.ndim)
    if 0 in form:
        return NotImplemented
    if form == (1, 1):
        return aten("dot.default", input, other)
    if form == (2, 1):
        return aten("mv.default", input, other)
    if form == (2, 2):
        return aten("mm.default", input, other)
    if form == (1, 2):
        return aten("squeeze_.dim", aten("mm.default", aten("unsqueeze.default", input, 0), other), 0)
    if form[1] <= 2 and _folds(input, other):
        return _folded(input, other)
    if form[0] <= 2:
        turned = aten("transpose.int", other, -2, -1)
        if _folds(turned, input):
            return _transposed(input, turned)
    return _batched(input, other)


def _folds(larger: Tensor, smaller: Tensor) -> bool:
    """Whether a batch of matrices is multiplied as one matrix."""
    if smaller.requires_grad or smaller.ndim == 1:
        return True
    sizes, strides = larger.shape, larger.stride()
    return all(strides[at] == strides[at + 1] * sizes[at + 1] for at in range(larger.ndim - 2))


def _folded(larger: Tensor, smaller: Tensor) -> Any:
    flat = reshaped(larger, [math.prod(larger.shape[:-1]), larger.shape[-1]])
    if smaller.ndim == 1:
        return aten("_unsafe_view.default", aten("mv.default", flat, smaller), list(larger.shape[:-1]))
    made = aten("mm.default", flat, smaller)
    return aten("_unsafe_view.default", made, [*larger.shape[:-1], smaller.shape[-1]])


def _transposed(smaller: Tensor, turned: Tensor) -> Any:
    """A vector or matrix times matrices, whose transposes are given: by the transposed product."""
    flat = reshaped(turned, [math.prod(turned.shape[:-1]), turned.shape[-1]])
    if smaller.ndim == 1:
        return aten("_unsafe_view.default", aten("mv.default", flat, smaller), list(turned.shape[:-1]))
    made = aten("mm.default", flat, aten("t.default", smaller))
    made = aten("_unsafe_view.default", made, [*turned.shape[:-1], smaller.shape[0]])
    return aten("transpose.int", made, -2, -1)


def _batched(input: Tensor, other: Tensor) -> Any:
    if input.ndim == 1:
        made = _batched(aten("unsqueeze.default", input, 0), other)
        return aten("squeeze.dim", made, -2)
    if other.ndim == 1:
        return aten("squeeze.dim", _batched(input, aten("unsqueeze.default", other, 1)), -1)
    lead = list(broadcast(input.shape[:-2], other.shape[:-2]))
    count = math.prod(lead)

    def flat(each: Tensor) -> Any:
        wide = aten("expand.default", each, [*lead, *each.shape[-2:]])
        return reshaped(wide, [count, *each.shape[-2:]])

    made = aten("bmm.default", flat(input), flat(other))
    return aten("_unsafe_view.default", made, [*lead, input.shape[-2], other.shape[-1]])


def _outer(call: Any, input: Tensor, vec2: Tensor) -> Any:
    if input.ndim != 1 or vec2.ndim != 1:
        return NotImplemented
    return aten("mul.Tensor", reshaped(input, [input.shape[0], 1]), vec2)


def _tensordot(call: Any, a: Tensor, b: Tensor, dims: Any = 2, **_: Any) -> Any:
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            return NotImplemented
        first, second = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        flat = [at for each in dims for at in ([each] if isinstance(each, int) else each)]  # first a's, then b's
        pair = [flat[: len(flat) // 2], flat[len(flat) // 2 :]]
        if any(not -t.ndim <= each < t.ndim for one, t in zip(pair, (a, b), strict=True) for each in one):
            return NotImplemented
        first, second = ([each % tensor.ndim for each in one] for one, tensor in zip(pair, (a, b), strict=True))
    if any(a.shape[one] != b.shape[other] for one, other in zip(first, second, strict=True)):
        return NotImplemented
    kept, rest = ([at for at in range(t.ndim) if at not in some] for t, some in ((a, first), (b, second)))
    inner = math.prod([a.shape[each] for each in first])
    if not kept and not rest and len(first) == 1:
        one, two = (aten("permute.default", each, [0]) for each in (a, b))
        return aten("view.default", aten("dot.default", one, two), [])
    one = aten("permute.default", a, [*kept, *first])
    one = reshaped(one, [math.prod([a.shape[each] for each in kept]), inner])
    two = aten("permute.default", b, [*second, *rest])
    two = reshaped(two, [inner, math.prod([b.shape[each] for each in rest])])
    sizes = [a.shape[each] for each in kept] + [b.shape[each] for each in rest]
    return reshaped(aten("mm.default", one, two), sizes)


def _inner(call: Any, input: Tensor, other: Tensor) -> Any:
    if not input.ndim or not other.ndim:
        return aten("mul.Tensor", input, other)
    return _tensordot(call, input, other, ([-1], [-1]))


def _einsum(call: Any, equation: str, operands: Any) -> Any:
    """The product of two operands whose labels all differ; others stay one op."""
    text, _, output = equation.replace(" ", "").partition("->")
    inputs = text.split(",")
    if "->" not in equation or "." in equation or len(inputs) != 2 or len(operands) != 2:
        return NotImplemented
    if any(len(set(each)) != len(each) for each in inputs):
        return NotImplemented
    sizes: dict[str, int] = {}
    for labels, tensor in zip(inputs, operands, strict=True):
        if len(labels) != tensor.ndim:
            return NotImplemented
        for label, size in zip(labels, tensor.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                return NotImplemented
    first, second = inputs
    summed = [each for each in first if each in second and each not in output]
    if not summed or any(each not in output and each not in summed for each in first + second):
        return NotImplemented
    order = [*output, *sorted(summed)]
    aligned = []
    for labels, tensor in zip(inputs, operands, strict=True):
        missing = [each for each in order if each not in labels]
        for at in range(len(missing)):
            tensor = aten("unsqueeze.default", tensor, len(labels) + at)
        places = [*labels, *missing]
        aligned.append(aten("permute.default", tensor, [places.index(each) for each in order]))
    made = _contracted(aligned[0], aligned[1], list(range(len(output), len(order))))
    return aten("view.default", made, list(made.shape[: len(output)]))


def _contracted(left: Tensor, right: Tensor, summed: list[int]) -> Any:
    """The sum over dimensions of the products of two tensors of the same number of dimensions, which stay as ones."""
    kept = [at for at in range(left.ndim) if at not in summed]
    both = [at for at in kept if left.shape[at] != 1 and right.shape[at] != 1]
    of_left = [at for at in kept if left.shape[at] != 1 and at not in both]
    of_right = [at for at in kept if at not in both and at not in of_left]
    sizes = {at: max(left.shape[at], right.shape[at]) for at in range(left.ndim)}
    count = [math.prod(sizes[at] for at in some) for some in (both, of_left, summed, of_right)]
    order = [*both, *of_left, *summed, *of_right]
    one = reshaped(aten("permute.default", left, order), [count[0], count[1], count[2]])
    other = aten("permute.default", right, [*both, *summed, *of_right, *of_left])
    made = aten("bmm.default", one, reshaped(other, [count[0], count[2], count[3]]))
    made = aten("view.default", made, [1 if at in summed else sizes[at] for at in order])
    return aten("permute.default", made, [order.index(at) for at in range(left.ndim)])


def _kron(call: Any, input: Tensor, other: Tensor) -> Any:
    count = max(input.ndim, other.ndim)
    one, two = ((1,) * (count - each.ndim) + tuple(each.shape) for each in (input, other))
    first = aten("_unsafe_view.default", input, [size for each in one for size in (each, 1)])
    second = aten("_unsafe_view.default", other, [size for each in two for size in (1, each)])
    made = aten("mul.Tensor", first, second)
    return aten("_unsafe_view.default", made, [a * b for a, b in zip(one, two, strict=True)])


RULES: dict[str, Callable[..., Any]] = {
    "einsum": _einsum,
    "inner": _inner,
    "kron": _kron,
    "linear": _linear,
    "matmul": _matmul,
    "outer": _outer,
    "tensordot": _tensordot,
}

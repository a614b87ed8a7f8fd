"""Composed functions: PyTorch functions made of a few other ops: windows, matrix powers, decompositions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._base.promotion import promote_types
from gradwire._functions.create import arange, like_output, ones, tensor
from gradwire._proxy.results import return_type
from gradwire._tensor import ops
from gradwire._tensor.out import _into, _into_each

__all__ = [
    "adjoint",
    "bartlett_window",
    "blackman_window",
    "broadcast_shapes",
    "chain_matmul",
    "conj_physical",
    "hamming_window",
    "hann_window",
    "kaiser_window",
    "matrix_power",
    "pinverse",
    "qr",
    "range",
    "svd",
    "vander",
]


def broadcast_shapes(*shapes: int | Sequence[int]) -> dtypes.Size:
    """Shape that shapes broadcast to (torch.broadcast_shapes). Raises RuntimeError if they do not broadcast."""
    given = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    made = [1] * max(map(len, given), default=0)
    for shape in given:
        for place, size in enumerate(reversed(shape), 1):
            if size < 0:
                raise refuse(f"Trying to create tensor with negative dimension ({size}): ({size})")
            if made[-place] == 1:
                made[-place] = size
            elif size not in (1, made[-place]):
                raise refuse(
                    "Shape mismatch: objects cannot be broadcast to a single shape: " + " and ".join(map(str, given))
                )
    return dtypes.Size(made)


def adjoint(input: Any) -> Any:
    """The transposed, conjugated matrices (torch.adjoint)."""
    return input.mH


def conj_physical(input: Any, *, out: Any = None) -> Any:
    """The complex conjugate, computed at once (torch.conj_physical)."""
    made = ops.conj(input)
    return made if out is None else _into("conj_physical", out, made, (input,))


def matrix_power(input: Any, n: int, *, out: Any = None) -> Any:
    """The n-th power of square matrices; for a negative n, the -n-th power of their inverses (torch.matrix_power)."""
    return ops.linalg_matrix_power(input, n, out=out)


def pinverse(input: Any, rcond: float = 1e-15) -> Any:
    """The pseudo-inverse of matrices (torch.pinverse)."""
    return ops.linalg_pinv(input, rtol=rcond)


def svd(input: Any, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """U, S and V with input = U diag(S) Vᴴ (torch.svd): V, not Vᴴ as `linalg.svd` gives."""
    if compute_uv:
        left, values, right = ops.linalg_svd(input, full_matrices=not some)
        right = right.mH
    else:
        values = ops.linalg_svdvals(input)
        *batch, rows, columns = input.shape
        left, right = input.new_zeros((*batch, rows, rows)), input.new_zeros((*batch, columns, columns))
    made = return_type("svd", ("U", "S", "V"))(left, values, right)
    return made if out is None else _into_each("svd", out, made, (input,))


def qr(input: Any, some: bool = True, *, out: Any = None) -> Any:
    """An orthogonal and an upper triangular matrix whose product is the input (torch.qr)."""
    made = return_type("qr", ("Q", "R"))(*ops.linalg_qr(input, "reduced" if some else "complete"))
    return made if out is None else _into_each("qr", out, made, (input,))


def chain_matmul(*matrices: Any, out: Any = None) -> Any:
    """Product of matrices, multiplied in the cheapest order (torch.chain_matmul)."""
    if not matrices:
        raise refuse("chain_matmul(): Expected one or more matrices")
    if len(matrices) > 1:
        return ops.linalg_multi_dot(list(matrices), out=out)
    return matrices[0] if out is None else _into("chain_matmul", out, ops.clone(matrices[0]), matrices)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Powers of a vector as columns, in decreasing order unless `increasing` (torch.vander)."""
    if x.ndim != 1:
        raise refuse(f"x must be a one-dimensional tensor, but got {x.ndim} dimensions")
    count = len(x) if N is None else N
    if count < 0:
        raise refuse(f"N must be non-negative, but got {count}")
    column = x.to(promote_types(x.dtype, dtypes.int64)).unsqueeze(1)
    parts = [ops.ones_like(column)] if count else []
    if count > 1:
        parts.append(ops.cumprod(column.expand(len(x), count - 1), 1))
    made = ops.cat(parts, 1) if parts else column[:, :0]
    return made if increasing else made.flip(1)


def _window(length: int, periodic: bool, options: dict[str, Any], weights: Sequence[float]) -> Any:
    """A sum of cosines: weights[0] - weights[1] cos(2πk/n) + weights[2] cos(4πk/n) …, over `length` points."""
    return _points(length, periodic, options, lambda k, n: _cosines(k, n, weights))


def _cosines(k: Any, n: int, weights: Sequence[float]) -> Any:
    made = weights[0]
    for order, weight in enumerate(weights[1:], 1):
        made = made + (-1) ** order * weight * ops.cos(k * (2 * math.pi * order / n))
    return made


def _points(length: int, periodic: bool, options: dict[str, Any], of: Any) -> Any:
    if "out" in options:
        raise TypeError("a window got an unexpected keyword argument 'out'")
    requires_grad = options.pop("requires_grad", False)
    if options.get("dtype") is None:
        options["dtype"] = dtypes.get_default_dtype()
    if not dtypes.as_dtype(options["dtype"]).is_floating_point:
        raise refuse("a window expects floating point dtypes")
    if length <= 1:
        made = ones(length, **options)
    else:
        with no_grad():
            made = of(arange(length, **options), length if periodic else length - 1)
    return made.requires_grad_(requires_grad)


def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Any:
    """sin²(πk / n) at k = 0, 1, … (torch.hann_window)."""
    return _window(window_length, periodic, options, (0.5, 0.5))


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Any:
    """alpha - beta cos(2πk / n) at k = 0, 1, … (torch.hamming_window)."""
    return _window(window_length, periodic, options, (alpha, beta))


def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Any:
    """0.42 - 0.5 cos(2πk / n) + 0.08 cos(4πk / n) at k = 0, 1, … (torch.blackman_window)."""
    return _window(window_length, periodic, options, (0.42, 0.5, 0.08))


def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Any:
    """Triangular window: 1 - |2k / n - 1| at k = 0, 1, … (torch.bartlett_window)."""
    return _points(window_length, periodic, options, lambda k, n: 1 - (k * (2 / n) - 1).abs())


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Any:
    """i0(beta sqrt(1 - (2k / n - 1)²)) / i0(beta) at k = 0, 1, … (torch.kaiser_window)."""

    def at(k: Any, n: int) -> Any:
        bound = tensor(beta, dtype=k.dtype, device=k.device)
        return ops.i0(bound * (1 - (k * (2 / n) - 1).square()).clamp(min=0).sqrt()) / ops.i0(bound)

    return _points(window_length, periodic, options, at)


def range(start: Any, end: Any, step: Any = 1, **options: Any) -> Any:
    """Numbers from start up to and including end, floating by default (torch.range). Warns.

    Raises RuntimeError for a step of 0, and for bounds that the step leads away from.
    """
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        UserWarning,
        stacklevel=2,
    )
    out = options.pop("out", None)
    options = options if out is None else like_output(options, out)
    kind = dtypes.as_dtype(options.get("dtype") or dtypes.get_default_dtype())
    options["dtype"] = kind
    if (end - start) * step < 0:
        raise refuse("upper bound and lower bound inconsistent with step sign")
    if not (kind.is_floating_point or kind.is_complex):
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        raise refuse("step must be nonzero")
    count = int((end - start) / step) + 1
    requires_grad = options.pop("requires_grad", False)
    with no_grad():
        if kind.is_floating_point:  # PyTorch computes in the wider type, and rounds once
            wide = dtypes.float64 if kind.itemsize > 2 else dtypes.float32
            made = (arange(count, **{**options, "dtype": wide}) * step + start).to(kind)
        else:
            made = arange(count, **options) * step + start
    return made.requires_grad_(requires_grad) if out is None else _into("range", out, made)

"""Distances between the rows of two matrices, computed without an array of all differences.

A matrix product gives 2-norms of many rows. Loops of machine code (distance_loops.py) compute the usual norms of other
calls, and 2-norms of short rows. Without such loops, NumPy computes in blocks, whose differences stay in the
processor's cache: of rows if they are long, and column by column if they are short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import broadcast_shape
from gradwire_engine.ops.base.compare import eq
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.base.loops import with_loop
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.elementwise.unary import abs as magnitude
from gradwire_engine.ops.elementwise.unary import sign
from gradwire_engine.ops.linalg.costs import bmm_cost
from gradwire_engine.ops.linalg.distance_loops import (
    NAMES,
    euclidean_loop,
    gradient_loop,
    norms_loop,
    pitch_of,
    shares_of,
)
from gradwire_engine.ops.linalg.matrix import matmul
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.reduce.reduce import vector_norm
from gradwire_engine.ops.shape.shape import transpose, unsqueeze

# Differences that are computed at once, and the length from which rows are subtracted whole.
_BLOCK, _LONG_ROW = 1 << 15, 32


@composite
def cdist(
    x1: Array,
    x2: Array,
    p: float = 2.0,
    compute_mode: Literal[
        "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"
    ]
    | None = None,
) -> Any:
    """Pairwise p-norm distances between the rows of x1 and x2 (torch.cdist).

    x1: (..., n, k); x2: (..., m, k); batches broadcast.
    compute_mode: whether a matrix product computes 2-norms, which is fast but less exact for rows close to each other:
    "use_mm_for_euclid_dist_if_necessary" (the default: for more than 25 rows), "use_mm_for_euclid_dist" or
    "donot_use_mm_for_euclid_dist".
    Raises EngineError: SHAPE, RUNTIME for a negative p, ARGUMENT_VALUE for another compute_mode.
    """
    for name, value in (("X1", x1), ("X2", x2)):
        if value.ndim < 2:
            raise EngineError(Reason.SHAPE, f"cdist only supports at least 2D tensors, {name} got: {value.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise EngineError(
            Reason.SHAPE,
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}",
        )
    if p < 0:
        raise EngineError(Reason.RUNTIME, "cdist only supports non-negative p values")
    if dtypes.category(x1.dtype) != dtypes.FLOAT:
        title = dtypes.TITLES[x1.dtype]
        raise EngineError(Reason.RUNTIME, f"cdist only supports floating-point dtypes, X1 got: {title}", op="cdist")
    if is_half(x1.dtype):
        raise EngineError(Reason.NOT_SUPPORTED, f"\"cdist\" not implemented for '{dtypes.TITLES[x1.dtype]}'")
    if compute_mode not in (*_BY_PRODUCT, *_BY_SIZE, "donot_use_mm_for_euclid_dist"):
        raise EngineError(Reason.ARGUMENT_VALUE, f"{compute_mode} is not a valid value for compute_mode", op="cdist")
    many = compute_mode in _BY_PRODUCT or (compute_mode in _BY_SIZE and max(x1.shape[-2], x2.shape[-2]) > 25)
    if p == 2 and many and x1.dtype == x2.dtype:
        return _euclidean(x1, x2)
    if x1.dtype == x2.dtype:
        return _norms(x1, x2, float(p))
    return row_norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p)


def row_norm(rows: Any, p: float) -> Any:
    """p-norm of each row, whose gradient for p = 0 is zeros."""
    return total(where(eq(rows, 0), rows * 0, 1), -1) if p == 0 else vector_norm(rows, p, -1)


_BY_PRODUCT = ("use_mm_for_euclid_dist",)
_BY_SIZE = (None, "use_mm_for_euclid_dist_if_necessary")


def _distances_cost(x1: Any, x2: Any) -> Any:
    return 8.0 * x1.shape[-2] * x2.shape[-2] * max(math.prod(x1.shape[:-2]), math.prod(x2.shape[:-2]), 1) + bmm_cost(
        x1, x2.swapaxes(-1, -2)
    )


@op(name="_euclidean_dist", node="CdistBackward0", cost=counted(_distances_cost, 4.0, 1 << 20))
@with_loop(euclidean_loop, least=1)
def _euclidean(xp: Any, x1: Array, x2: Array) -> Array:
    """Distances by |a|² - 2 a·b + |b|², which needs no array of all differences."""
    squares = xp.matmul(x1 * -2, xp.swapaxes(x2, -1, -2))
    squares += (x1 * x1).sum(-1, keepdims=True)
    squares += xp.swapaxes((x2 * x2).sum(-1, keepdims=True), -1, -2)
    squares = xp.maximum(squares, squares.dtype.type(0), out=squares)
    return xp.sqrt(squares, out=squares)


_euclidean.works_in(backward=2.5)
_euclidean.by_loops("cdist_2")
_euclidean.sized_by(
    lambda x1, x2: math.prod(broadcast_shape(x1.shape[:-2], x2.shape[:-2])) * x1.shape[-2] * x2.shape[-2] * x1.itemsize
)


def _euclidean_input(g: Any, one: Any, other: Any, out: Any) -> Any:
    """Gradient of x1: sum over the rows b of g (a - b) / |a - b|; 0 where a equals b."""
    shares = _shares(g, out)
    return total(shares, -1, True) * one - matmul(shares, other)


def _shares(g: Any, out: Any) -> Any:
    """g / out; 0 for a distance of 0."""
    if type(g) is np.ndarray and type(out) is np.ndarray:
        return shares_of(g, out)
    same = eq(out, 0)
    return where(same, 0, g / where(same, 1, out))


_euclidean.grad(
    x1=lambda g, x1, x2, out: _euclidean_input(g, x1, x2, out),
    x2=lambda g, x1, x2, out: _euclidean_input(transpose(g, -2, -1), x2, x1, transpose(out, -2, -1)),
)


# Any norm.


def _broadcast_batch(one: Any, other: Any) -> tuple[int, ...]:
    return broadcast_shape(one.shape[:-2], other.shape[:-2])


def _norms_cost(x1: Any, x2: Any, p: float) -> Any:
    rows = math.prod(_broadcast_batch(x1, x2)) * x1.shape[-2] * x2.shape[-2]
    return rows * (4.0 + (3.0 if p in (0, 1, 2, math.inf) else 40.0) * x1.shape[-1])


def _flat(xp: Any, value: Array, batch: tuple[int, ...]) -> Array:
    """An array with one dimension of batches before the last two."""
    rows, columns = value.shape[-2:]
    return xp.broadcast_to(value, (*batch, rows, columns)).reshape(math.prod(batch), rows, columns)


def _blocks(xp: Any, one: Array, other: Array) -> Iterator[tuple[slice, slice]]:
    """Batches and rows of `one` whose differences from all rows of `other` are computed at once."""
    batch, rows, length = one.shape
    size = _BLOCK if xp is np else _BLOCK << 9
    width = max(1, other.shape[1] * (length if length >= _LONG_ROW else 1))
    if rows * width <= size:
        step = max(1, size // max(1, rows * width))
        yield from ((slice(place, place + step), slice(None)) for place in range(0, batch, step))
        return
    step = max(1, size // width)
    for place in range(batch):
        yield from ((slice(place, place + 1), slice(row, row + step)) for row in range(0, rows, step))


@op(name="_cdist", node="CdistBackward0", cost=counted(_norms_cost, 4.0))
@with_loop(norms_loop, least=1)
def _norms(xp: Any, x1: Array, x2: Array, p: float) -> Array:
    """p-norms of the differences of all rows."""
    batch = _broadcast_batch(x1, x2)
    one, other = _flat(xp, x1, batch), _flat(xp, x2, batch)
    made = xp.zeros((len(one), one.shape[1], other.shape[1]), x1.dtype)
    for place, rows in _blocks(xp, one, other):
        out, left, right = made[place, rows], one[place, rows], other[place]
        if left.shape[-1] >= _LONG_ROW:
            _reduce(xp, xp.abs(left[:, :, None] - right[:, None]), p, out)
        else:
            for column in range(left.shape[-1]):
                _add(xp, xp.abs(left[:, :, column, None] - right[:, None, :, column]), p, out)
        if p not in (0, 1, math.inf):
            _ = xp.sqrt(out, out=out) if p == 2 else xp.power(out, out.dtype.type(1 / p), out=out)
    return made.reshape(*batch, *made.shape[1:])


def _reduce(xp: Any, sizes: Array, p: float, out: Array) -> None:
    """Reduce the last dimension of differences to the sum of their powers, or to the largest."""
    if p == 2:
        out[...] = xp.einsum("bijk,bijk->bij", sizes, sizes)
    elif p == math.inf:
        while (length := sizes.shape[-1]) > 1:  # by halves: NumPy's reduction of a row takes ten times as long
            half = length // 2
            top = xp.maximum(sizes[..., :half], sizes[..., half : 2 * half])
            if length % 2:
                xp.maximum(top[..., :1], sizes[..., -1:], out=top[..., :1])
            sizes = top
        out[...] = sizes[..., 0]
    else:
        out[...] = xp.matmul(_powered(xp, sizes, p), xp.ones(sizes.shape[-1], sizes.dtype))


def _add(xp: Any, sizes: Array, p: float, out: Array) -> None:
    """Add the powers of one column's differences, or take those that are larger."""
    if p == math.inf:
        xp.maximum(out, sizes, out=out)
    else:
        out += _powered(xp, sizes, p)


def _powered(xp: Any, sizes: Array, p: float) -> Array:
    if p == 0:
        return (sizes != 0).astype(sizes.dtype)
    if p == 2:
        return xp.multiply(sizes, sizes, out=sizes)
    return sizes if p == 1 else xp.power(sizes, sizes.dtype.type(p), out=sizes)


_norms.works_in(
    forward=lambda x1, x2, p: (
        (
            math.prod(_broadcast_batch(x1, x2)) * (x1.shape[-2] + x2.shape[-2] + pitch_of(x2.shape[-2], x2.itemsize))
            + 4 * x2.shape[-2]
        )
        * x1.shape[-1]
        * 8
        + 32 * _BLOCK
    ),
    backward=6,
)
_norms.sized_by(lambda x1, x2, p: math.prod(_broadcast_batch(x1, x2)) * x1.shape[-2] * x2.shape[-2] * x1.itemsize)


@with_loop(gradient_loop, 0, 1)
def _norms_input(g: Any, one: Any, other: Any, p: float, out: Any) -> Any:
    """Gradient of x1; zeros for a distance of 0, as in PyTorch."""
    if type(g) is not np.ndarray:
        differences = unsqueeze(one, -2) - unsqueeze(other, -3)
        return total(unsqueeze(g, -1) * _slopes_of_ops(differences, unsqueeze(out, -1), p), -2)
    batch = _broadcast_batch(one, other)
    left, right, g, out = [_flat(np, each, batch) for each in (one, other, g, out)]
    made = np.zeros_like(left)
    if p == 0:
        return made.reshape(*batch, *made.shape[1:])
    for place, rows in _blocks(np, left, right):
        # Where a distance is 0, all differences are.
        lengths = np.where(out[place, rows] == 0, out.dtype.type(1), out[place, rows])
        shares = shares_of(g[place, rows], out[place, rows]) if p == 2 else g[place, rows]
        ours, theirs = left[place, rows], right[place]
        if left.shape[-1] >= _LONG_ROW:
            slopes = _slopes(ours[:, :, None] - theirs[:, None], lengths[..., None], p)
            made[place, rows] = np.matmul(shares[:, :, None], slopes)[:, :, 0]
        else:
            for column in range(left.shape[-1]):
                slopes = _slopes(ours[:, :, column, None] - theirs[:, None, :, column], lengths, p)
                made[place, rows, column] = np.einsum("bij,bij->bi", shares, slopes)
    return made.reshape(*batch, *made.shape[1:])


def _slopes(differences: Array, lengths: Array, p: float) -> Array:
    """Derivatives of the norm by the differences; for p = 2, times the norm."""
    if p == 2:
        return differences
    signs = np.subtract((differences > 0).view(np.int8), (differences < 0).view(np.int8)).astype(differences.dtype)
    if p == 1:
        return signs
    sizes = np.abs(differences, out=differences)
    if p == math.inf:
        signs *= sizes == lengths
        return signs
    sizes /= lengths
    if p < 1:
        sizes[sizes == 0] = 1
    signs *= np.power(sizes, sizes.dtype.type(p - 1), out=sizes)
    return signs


def _slopes_of_ops(differences: Any, out: Any, p: float) -> Any:
    """`_slopes` by ops, of arrays on a GPU and where the gradient gets a graph; for p = 2, not times the norm."""
    if p == 0:
        return differences * 0
    lengths = where(eq(out, 0), 1, out)
    if p == 2:
        return differences / lengths
    sizes, signs = magnitude(differences), sign(differences)
    if p == 1:
        return signs
    if p == math.inf:
        return where(eq(sizes, lengths), signs, signs * 0)
    return signs * where(eq(sizes, 0), 1, sizes / lengths) ** (p - 1)


_norms.grad(
    x1=lambda g, x1, x2, p, out: _norms_input(g, x1, x2, p, out),
    x2=lambda g, x1, x2, p, out: _norms_input(transpose(g, -2, -1), x2, x1, p, transpose(out, -2, -1)),
)
_norms.by_loops(*NAMES)

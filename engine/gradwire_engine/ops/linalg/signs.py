"""Signs of eigenvectors and singular vectors as PyTorch's LAPACK gives them.

LAPACK's vectors are unique only up to a sign. OpenBLAS and the library in PyTorch's builds for CPUs use the same
algorithms, but other conventions of sign in two places. `eigenvector_signs` repeats the scalar part of one of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array
from gradwire_engine.ops.linalg.linalg import solvers

#: Most elements of a batch whose signs are adapted, since that takes about 3 microseconds each.
_ELEMENTS = 256


def first_row_turns(A: Array) -> bool:
    """Whether PyTorch's singular vectors are those of A with its first row negated: real, wide matrices."""
    rows, columns = A.shape[-2:]
    return isinstance(A, np.ndarray) and A.dtype.kind == "f" and 0 < rows < columns and columns >= 11 * rows // 6


def with_first_row_negated(A: Array) -> Array:
    """A copy of matrices with their first row negated."""
    made = A.copy()
    np.negative(made[..., :1, :], out=made[..., :1, :])
    return made


def adapted_eigenvectors(A: Array, vectors: Array, upper: bool) -> Array:
    """Eigenvectors of Hermitian matrices with PyTorch's signs, in place. A large batch keeps its signs."""
    order = A.shape[-1]
    if isinstance(A, np.ndarray) and order > 2 and A.size <= _ELEMENTS:
        for place in np.ndindex(A.shape[:-2]):
            vectors[place] *= _eigenvector_signs(A[place], vectors[place], upper)
    return vectors


def _eigenvector_signs(matrix: Array, vectors: Array, upper: bool) -> Array:
    """A sign for each eigenvector of a matrix.

    The implicit QL algorithm turns one generic combination of the eigenvectors' components, instead of all of them;
    the sign of the result decides.
    """
    weights = np.cos(np.arange(1.0, len(matrix) + 1)).astype(matrix.dtype)
    (reduce,) = solvers(np).get_lapack_funcs((f"{'he' if matrix.dtype.kind == 'c' else 'sy'}trd",), (matrix,))
    reflectors, diagonal, beside, factors, _ = reduce(matrix, lower=not upper)
    turned = _reflected(weights, reflectors, factors, upper)
    wanted = _implicit_ql(diagonal.tolist(), beside.tolist(), turned.tolist(), np.finfo(diagonal.dtype))
    return np.where((wanted * (weights @ vectors).conj()).real < 0, -1, 1).astype(diagonal.dtype)


def _reflected(weights: Array, reflectors: Array, factors: Array, upper: bool) -> Array:
    """weights @ Q for the Q of a tridiagonal reduction, which is a product of reflections."""
    made = weights.copy()
    count = len(factors)
    for each in range(count - 1, -1, -1) if upper else range(count):
        vector = np.zeros_like(made)
        if upper:
            vector[:each], vector[each] = reflectors[:each, each + 1], 1
        else:
            vector[each + 2 :], vector[each + 1] = reflectors[each + 2 :, each], 1
        made -= factors[each] * (made @ vector) * vector.conj()
    return made


def _rotation(f: float, g: float) -> tuple[float, float, float]:
    """c, s, r with c f + s g = r and c g = s f, by LAPACK's rule for signs before version 3.10."""
    if g == 0:
        return 1.0, 0.0, f
    if f == 0:
        return 0.0, 1.0, g
    r = math.sqrt(f * f + g * g)
    if abs(f) > abs(g) and f < 0:
        r = -r
    return f / r, g / r, r


def _implicit_ql(d: list[float], e: list[float], row: list[Any], finest: Any) -> Array:
    """row @ Z for the eigenvectors Z of a tridiagonal matrix, in ascending order of eigenvalues (LAPACK's steqr).

    d and e are the diagonal and the elements beside it. They are overwritten.
    """
    epsilon, least = float(finest.eps) / 2, float(finest.tiny)
    low = 0
    while low < len(d):
        high = low
        while high < len(e) and abs(e[high]) > (math.sqrt(abs(d[high])) * math.sqrt(abs(d[high + 1]))) * epsilon:
            high += 1
        ends = (low, high) if abs(d[high]) >= abs(d[low]) else (high, low)
        _diagonalize(d, e, row, ends, (epsilon * epsilon, least))
        low = high + 1
    return np.array(row)[np.argsort(np.array(d), kind="stable")]


def _diagonalize(
    d: list[float], e: list[float], row: list[Any], ends: tuple[int, int], small: tuple[float, float]
) -> None:
    """Diagonalize a block from its first end on: the upper one (QL) or the lower one (QR)."""
    first, last = ends
    step = 1 if last > first else -1
    while (last - first) * step >= 0:
        split = first
        while split != last:
            beside, product = e[min(split, split + step)], abs(d[split]) * abs(d[split + step])
            if beside * beside <= small[0] * product + small[1]:
                break
            split += step
        if split == first + step:
            _turn_pair(d, e, row, min(first, split))
            first += 2 * step
        elif split == first:
            first += step
        else:
            _sweep(d, e, row, first, split, step)


def _sweep(d: list[float], e: list[float], row: list[Any], first: int, last: int, step: int) -> None:
    """One implicit step of QL with Wilkinson's shift, from the last row of a block to the first."""
    back = min(step, 0)  # the element between rows p and p + step is e[p + back]
    g = (d[first + step] - d[first]) / (2 * e[first + back])
    root = math.sqrt(g * g + 1)
    g = d[last] - d[first] + e[first + back] / (g + (root if g >= 0 else -root))
    s, c, p = 1.0, 1.0, 0.0
    for i in range(last - step, first - step, -step):
        f, b = s * e[i + back], c * e[i + back]
        c, s, r = _rotation(g, f)
        if i != last - step:
            e[i + step + back] = r
        g = d[i + step] - p
        r = (d[i] - g) * s + 2 * c * b
        p = s * r
        d[i + step] = g + p
        g = c * r - b
        row[i], row[i + step] = c * row[i] - s * row[i + step], s * row[i] + c * row[i + step]
    d[first] -= p
    e[first + back] = g


def _turn_pair(d: list[float], e: list[float], row: list[Any], i: int) -> None:
    """Diagonalize rows i and i + 1, the one with the eigenvalue of larger magnitude first (LAPACK's laev2)."""
    a, b, c = d[i], e[i], d[i + 1]
    root = math.hypot(a - c, 2 * b)
    larger = (a + c - root if a + c < 0 else a + c + root) / 2
    smaller = a + c - larger
    cosine, sine = _large_vector(a - c, 2 * b, root)
    if (a + c < 0) == (a - c < 0):
        cosine, sine = -sine, cosine
    d[i], d[i + 1], e[i] = larger, smaller, 0.0
    row[i], row[i + 1] = cosine * row[i] + sine * row[i + 1], cosine * row[i + 1] - sine * row[i]


def _large_vector(difference: float, twice: float, root: float) -> tuple[float, float]:
    """Cosine and sine of a rotation that diagonalizes a symmetric matrix of order 2."""
    shifted = difference + root if difference >= 0 else difference - root
    if abs(shifted) > abs(twice):
        ratio = -twice / shifted
        sine = 1 / math.sqrt(1 + ratio * ratio)
        return ratio * sine, sine
    if twice == 0:
        return 1.0, 0.0
    ratio = -shifted / twice
    cosine = 1 / math.sqrt(1 + ratio * ratio)
    return cosine, ratio * cosine

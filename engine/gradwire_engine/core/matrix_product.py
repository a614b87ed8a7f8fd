"""Products of float32 matrices in CPU memory: by oneDNN where it has AVX-512, else by NumPy's BLAS.

oneDNN's sgemm runs in one thread. So large products are cut into tiles. The shapes alone decide the tiles, so results
do not depend on the number of threads. NumPy's BLAS may be older than the CPU, or set to another CPU's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import Any
from weakref import ref

import numpy as np

from gradwire_engine.backends.onednn import Library, library
from gradwire_engine.core.device import Array
from gradwire_engine.core.threads import POOL

#: Multiply-adds of a matrix from which oneDNN is worth its call of 5 µs, and of all from which threads share them.
_WORTH, _LARGE = 1 << 19, 1 << 23
_TILE = 256  # rows of a tile; it has twice as many columns, which are contiguous
_FLOAT = np.dtype(np.float32)
_SIZE = _FLOAT.itemsize
#: A matrix as sgemm reads it: its address, N or transposed T, and the distance of its rows in elements.
_Matrix = tuple[int, bytes, int]


def matrix_product(xp: Any, a: Array, b: Array, out: Array | None = None) -> Array:
    """a @ b as the array module's `matmul` defines it. `out` must not overlap a or b. Raises ValueError: shapes."""
    if xp is not np:
        return xp.matmul(a, b, out=out)
    if a.dtype == b.dtype == _FLOAT and a.ndim == b.ndim > 1 and a.shape[:-2] == b.shape[:-2]:
        (rows, inner), columns = a.shape[-2:], b.shape[-1]
        if rows * inner * columns >= _WORTH and rows > 1 < columns and b.shape[-2] == inner:
            found = _fast()
            made = None if found is None else _by_onednn(found, a, b, out)
            if made is not None:
                return made
    return np.matmul(a, b) if out is None else np.matmul(a, b, out)


def product_for(a: Array, b: Array) -> Callable[[Any, Array, Array], Array]:
    """What `matrix_product` does for two matrices of these shapes and dtypes in host memory."""
    small = a.shape[0] * a.shape[1] * b.shape[1] < _WORTH or not a.dtype == b.dtype == _FLOAT
    return _by_blas if small else matrix_product


def _by_blas(xp: Any, a: Array, b: Array) -> Array:
    return np.matmul(a, b)


class RepeatedProduct:
    """The product of two matrices, either of them transposed, again and again in the same memory, as plans compute it.

    A call of sgemm is kept for the arrays of the last product. One thread at a time may use it. It holds no array.
    """

    __slots__ = ("_arrays", "_call", "_turns")

    def __init__(self, one_t: bool = False, other_t: bool = False, out_t: bool = False) -> None:
        self._turns = one_t, other_t, out_t
        self._arrays: tuple[Any, ...] = ()
        self._call: Callable[[], None] | None = None

    def __call__(self, one: Array, other: Array, out: Array) -> None:
        """Write one @ other into `out`, with the matrices transposed as declared. Raises ValueError: shapes."""
        held = self._arrays
        if held and held[0]() is one and held[1]() is other and held[2]() is out:
            assert self._call is not None
            self._call()
            return
        turned = [each.T if turn else each for each, turn in zip((one, other, out), self._turns, strict=True)]
        self._call = _call_of(*turned)
        if self._call is None:
            self._arrays = ()
            matrix_product(np, *turned)
        else:
            self._arrays = ref(one), ref(other), ref(out)
            self._call()


def _call_of(a: Array, b: Array, out: Array) -> Callable[[], None] | None:
    """One call of sgemm that writes a @ b; None where `matrix_product` has another way."""
    if not a.dtype == b.dtype == out.dtype == _FLOAT or not a.ndim == b.ndim == out.ndim == 2:
        return None
    (rows, inner), columns = a.shape, b.shape[1]
    if b.shape[0] != inner or out.shape != (rows, columns) or rows < 2 or columns < 2:
        return None
    found = _fast() if _WORTH <= rows * columns * inner < _LARGE else None
    one, other, made = _matrix(a), _matrix(b), _matrix(out)
    if found is None or one is None or other is None or made is None:
        return None
    if made[1] == b"T":
        one, other, rows, columns = _turned(other), _turned(one), columns, rows
    return found.prepared_sgemm(
        one[1], other[1], rows, columns, inner, one[0], one[2], other[0], other[2], made[0], made[2]
    )


@cache
def _fast() -> Library | None:
    """oneDNN, if it uses AVX-512. With AVX2, NumPy's BLAS is as fast."""
    found = library()
    return found if found is not None and found.has_avx512 else None


def _by_onednn(found: Library, a: Array, b: Array, out: Array | None) -> Array | None:
    """The product; None if sgemm cannot read or write an operand."""
    shape = (*a.shape[:-1], b.shape[-1])
    if out is not None and (out.dtype != _FLOAT or out.shape != shape):
        return None
    result = np.empty(shape, _FLOAT) if out is None else out
    one, other, made = _matrix(a), _matrix(b), _matrix(result)
    if one is None or other is None or made is None:
        return None
    lead, (rows, columns), inner = shape[:-2], shape[-2:], a.shape[-1]
    if made[1] == b"T":  # the transposed product of the transposed factors
        a, b, one, other, rows, columns = b, a, _turned(other), _turned(one), columns, rows
    places = _places(lead, a, b, result) if lead else [(0, 0, 0)]
    if prod(lead) * rows * columns * inner >= _LARGE:
        _by_tiles(found, places, (rows, columns, inner), one, other, made)
        return result
    found.use_one_thread()
    for left, right, place in places:
        found.sgemm(
            one[1], other[1], rows, columns, inner,
            one[0] + left, one[2], other[0] + right, other[2], made[0] + place, made[2],
        )  # fmt: skip
    return result


def _by_tiles(
    found: Library, places: Sequence[Sequence[int]], shape: tuple[int, int, int], one: _Matrix, other: _Matrix,
    made: _Matrix,
) -> None:  # fmt: skip
    """Large products, tile by tile in the pool's threads."""
    rows, columns, inner = shape
    tiles = list(product(places, range(0, rows, _TILE), range(0, columns, 2 * _TILE)))
    down = _SIZE * (1 if one[1] == b"T" else one[2])
    across = _SIZE * (other[2] if other[1] == b"T" else 1)

    def run(number: int) -> None:
        (left, right, place), row, column = tiles[number]
        found.use_one_thread()
        found.sgemm(
            one[1], other[1], min(_TILE, rows - row), min(2 * _TILE, columns - column), inner,
            one[0] + left + row * down, one[2], other[0] + right + column * across, other[2],
            made[0] + place + _SIZE * (row * made[2] + column), made[2],
        )  # fmt: skip

    POOL.each(run, len(tiles))


def _places(lead: Sequence[int], *arrays: Array) -> list[tuple[int, ...]]:
    """Where each matrix of a batch begins in the arrays, in bytes."""
    return [
        tuple([sum(map(int.__mul__, index, array.strides)) for array in arrays])
        for index in product(*[range(length) for length in lead])
    ]


def _matrix(array: Array) -> _Matrix | None:
    """The first matrix of an array, if its rows or columns are packed; None for others."""
    held: dict[str, Any] = array.__array_interface__
    address: int = held["data"][0]
    (rows, columns), (down, right) = array.shape[-2:], array.strides[-2:]
    if any(stride % _SIZE for stride in (address, *array.strides)):
        return None
    if right == _SIZE and down >= columns * _SIZE:
        return address, b"N", down // _SIZE
    if down == _SIZE and right >= rows * _SIZE:
        return address, b"T", right // _SIZE
    return None


def _turned(matrix: _Matrix) -> _Matrix:
    """The transposed matrix."""
    address, order, leading = matrix
    return address, b"N" if order == b"T" else b"T", leading

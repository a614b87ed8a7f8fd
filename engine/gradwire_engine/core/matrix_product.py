"""Products of float32 matrices in CPU memory: by oneDNN where it has AVX-512, else by NumPy's OpenBLAS.

Their sgemm is called for one thread. So large products are cut into tiles, and batches into pieces, which a team of
threads shares (team.py). Shapes and layouts decide the cuts, so results do not depend on the number of threads. The
number of cores decides too: OpenBLAS's bits depend on it, and oneDNN's do not. oneDNN is preferred with AVX-512, since
NumPy's BLAS may be older than the CPU, or set to another CPU's kernels. Without either library NumPy computes.
"""

from __future__ import annotations

import os
from array import array as packed
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from gradwire_engine.backends.onednn import Library, error_of, library
from gradwire_engine.backends.openblas import OpenBlas, openblas
from gradwire_engine.backends.product_facts import PRODUCT_FACTS, PRODUCT_NUMBERS, set_scales
from gradwire_engine.core.device import Array
from gradwire_engine.core.team import PRODUCTS
from gradwire_engine.core.threads import POOL

#: Multiply-adds from which a library is worth its call, and those of each matrix of a batch; from which they are cut.
_WORTH, _WORTH_EACH, _CUT = 1 << 18, 1 << 16, 1 << 19
#: Multiply-adds from which threads share a product: with a team, and without.
_SHARED, _LARGE = 1 << 19, 1 << 23
#: The same for products of single ops, if the client needs a core: a helper that waits in a loop takes it.
_SHARED_BESIDE = 1 << 22
#: Rows or columns below which OpenBLAS is faster than oneDNN, up to so many multiply-adds. With AVX-512 it has kernels
#: for them that copy nothing and use one thread.
_THIN = 16 if os.environ.get("OPENBLAS_CORETYPE", "").lower() in ("", "skylakex", "cooperlake", "sapphirerapids") else 0
_THIN_WORTH = 1_000_000
_TILE = 1 << 18  # multiply-adds of a tile of OpenBLAS, at least
#: What a tile of OpenBLAS takes, in copied elements of the factors. So many multiply-adds take as long as one. A row
#: takes so many more, if other tiles have the rest of the result's row: cores fetch lines ahead that others write. This
#: is for each pass through the result; there is one for so many elements of the inner dimension.
_PER_COPY, _DIVIDED_ROW, _DEPTH = 10, 600, 320
_PIECE = 1 << 19  # multiply-adds of a piece of a batch
_ROWS, _COLUMNS = 112, 400  # of a tile, at least
_BIG = 1 << 18  # elements of the second factor, which each tile reads: then tiles have twice as many rows
#: Cores of this process, which the number of its threads does not exceed for long.
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_FLOAT = np.dtype(np.float32)
_SIZE = _FLOAT.itemsize
_MOST_CUTS, _MOST_PARTS = 32, 1024  # cuts of a length, and parts of a job, which are kept
_LEAST = 16  # rows or columns of a tile
#: The one product that is no batch.
_ONE: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0, 0, 0), (1, 0, 0, 0))]
#: A matrix as sgemm reads it: N or transposed T, and the distance of its rows in elements.
_Matrix = tuple[bytes, int]
#: Numbers of a job's first part: the addresses of the factors and of the result, and that of a row to add.
_PLACES, _ROW = (PRODUCT_FACTS + 5, PRODUCT_FACTS + 7, PRODUCT_FACTS + 9), PRODUCT_FACTS + 15
_PLAIN = (1.0, 0.0)  # factors of the products and of what was in the result's memory
#: Factors of products that a library may use. It does not multiply by 0, which makes NaN of infinity. It may multiply
#: the matrices first, which overflow or lose digits with a very large or small factor.
_LEAST_SCALE, _MOST_SCALE = 2.0**-40, 2.0**40
_ONE_BY_ONE = 8  # parts of a job, up to which their addresses are added without NumPy


def matrix_product(xp: Any, a: Array, b: Array, out: Array | None = None) -> Array:
    """a @ b as the array module's `matmul` defines it. `out` must not overlap a or b. Raises ValueError: shapes."""
    if xp is not np:
        return xp.matmul(a, b, out=out)
    if _is_worth(a, b):
        return _worth_product(xp, a, b, out)
    return np.matmul(a, b) if out is None else np.matmul(a, b, out)


def prepare() -> None:
    """Let oneDNN generate its kernels, so that the first product does not wait for it. Raises RuntimeError."""
    found = _fast()
    if isinstance(found, Library):
        found.prepare_products()


def _worth_product(xp: Any, a: Array, b: Array, out: Array | None = None) -> Array:
    found = _chosen(a, b)
    shape = (*a.shape[:-1], b.shape[-1])
    if found is not None and (out is None or (out.dtype == _FLOAT and out.shape == shape)):
        result = np.empty(shape, _FLOAT) if out is None else out
        job = _job(found, a, b, result)
        if job is not None:
            job.run(_SHARED_BESIDE if POOL.is_beside_client else _SHARED)
            return result
    return np.matmul(a, b) if out is None else np.matmul(a, b, out)


def _is_worth(a: Array, b: Array) -> bool:
    """Whether a library may compute a product, by its shapes and dtypes."""
    if not (a.dtype == b.dtype == _FLOAT and a.ndim == b.ndim > 1 and a.shape[:-2] == b.shape[:-2]):
        return False
    (rows, inner), columns = a.shape[-2:], b.shape[-1]
    each = rows * inner * columns
    if rows < 2 or columns < 2 or b.shape[-2] != inner or each < _WORTH_EACH:
        return False
    return bool(prod(a.shape[:-2]) * each >= _WORTH)


def product_for(a: Array, b: Array) -> Callable[[Any, Array, Array], Array]:
    """What `matrix_product` does for two matrices of these shapes and dtypes in host memory."""
    if not _is_worth(a, b):
        return _by_blas
    found, shape, strides, other_strides = _chosen(a, b), (a.shape[0], b.shape[1]), a.strides, b.strides
    layout = _layout(a.shape, strides, b.shape, other_strides, (_SIZE * shape[1], _SIZE))
    if found is None or layout is None:
        return _worth_product

    def product_in_layout(xp: Any, a: Array, b: Array) -> Array:
        if a.strides != strides or b.strides != other_strides:
            return _worth_product(xp, a, b)
        result = np.empty(shape, _FLOAT)
        job = _job_in(found, layout, a, b, result)
        if job is None:
            return np.matmul(a, b)
        job.run(_SHARED_BESIDE if POOL.is_beside_client else _SHARED)
        return result

    return product_in_layout


def _by_blas(xp: Any, a: Array, b: Array) -> Array:
    return np.matmul(a, b)


class RepeatedProduct:
    """The product of two matrices, either of them transposed, again and again in the same memory, as plans compute it.

    The job is kept for the arrays of the last product. One thread at a time may use it. It holds no array.
    """

    __slots__ = ("_arrays", "_job", "_turns")

    def __init__(self, one_t: bool = False, other_t: bool = False, out_t: bool = False) -> None:
        self._turns = one_t, other_t, out_t
        self._arrays: tuple[Any, ...] = ()
        self._job: _Job | None = None

    def __call__(self, one: Array, other: Array, out: Array) -> None:
        """Write one @ other into `out`, with the matrices transposed as declared. Raises ValueError: shapes."""
        self.add(one, other, out, None)

    def add(self, one: Array, other: Array, out: Array, row: Array | None) -> None:
        """Write one @ other + row. `row` must not overlap `out`. Raises ValueError: shapes."""
        job = self._job_for(one, other, out, row)
        if job is None:
            np.matmul(*self._turned(one, other, out))
        elif job.run():
            return
        if row is not None:
            whole = out.T if self._turns[2] else out
            np.add(whole, row, whole)

    def add_to(self, target: Array, alpha: float, one: Array, other: Array) -> None:
        """Add alpha * (one @ other) to `target`, which must not overlap them. Raises ValueError: shapes."""
        job = self._job_for(one, other, target, None)
        if job is not None and _LEAST_SCALE <= abs(alpha) <= _MOST_SCALE:
            job.run(scales=(alpha, 1.0))
            return
        first, second, whole = self._turned(one, other, target)
        made = np.matmul(first, second)
        np.multiply(made, alpha, made)
        np.add(whole, made, whole)

    def with_result_transposed(self) -> RepeatedProduct:
        """A product of the same matrices, whose result is written transposed."""
        first, second, third = self._turns
        return RepeatedProduct(first, second, not third)

    def _job_for(self, one: Array, other: Array, out: Array, row: Array | None) -> _Job | None:
        """The job of these arrays, kept for the next call; None where `matrix_product` has another way."""
        held, given = self._arrays, _NO_ROW if row is None else row
        if not (held and held[0]() is one and held[1]() is other and held[2]() is out and held[3]() is given):
            self._arrays = ()  # an interrupt may come before the new job is complete
            self._job = _job_of(*self._turned(one, other, out), row)
            self._arrays = ref(one), ref(other), ref(out), ref(given)
        return self._job

    def _turned(self, one: Array, other: Array, out: Array) -> tuple[Array, Array, Array]:
        """The matrices as declared."""
        first, second, third = self._turns
        return one.T if first else one, other.T if second else other, out.T if third else out


class _NoRow:
    """Stands for a row that was not given: it differs from one that was freed."""


_NO_ROW = _NoRow()


def _job_of(a: Array, b: Array, out: Array, row: Array | None) -> _Job | None:
    """The job that writes a @ b + row; None where `matrix_product` has another way."""
    found = _chosen(a, b) if _is_worth(a, b) else None
    if found is None or out.dtype != _FLOAT or out.shape != (*a.shape[:-1], b.shape[-1]):
        return None
    adds = row is not None and row.dtype == _FLOAT and row.shape == out.shape[-1:] and row.flags.c_contiguous
    return _job(found, a, b, out, row.__array_interface__["data"][0] if adds and row is not None else 0)


@cache
def _fast() -> Library | OpenBlas | None:
    """oneDNN, if it uses AVX-512. Else OpenBLAS, whose kernels are as fast or faster."""
    found = library()
    return found if found is not None and found.has_avx512 else openblas()


def _chosen(a: Array, b: Array) -> Library | OpenBlas | None:
    """The library for these factors, which `_is_worth` allows. None: NumPy, without a team."""
    found = _fast()
    if a.ndim == 2 and isinstance(found, Library) and min(a.shape[0], b.shape[1]) < _THIN:
        return None if a.shape[0] * b.size <= _THIN_WORTH else found
    return found


class _Job:
    """Products of matrices at fixed addresses, in parts that threads share."""

    __slots__ = ("_adds", "_facts", "_found", "_layout", "_scales")

    def __init__(self, found: Library | OpenBlas, layout: _Layout, addresses: Sequence[int], bias: int) -> None:
        """addresses: of the factors as sgemm reads them, and of the result. bias: of a row to add, or 0."""
        self._found, self._layout, self._adds = found, layout, bias != 0
        facts = self._facts = layout.facts[:]
        facts[0], facts[1] = found.sgemm, found.set_threads
        self._scales: tuple[float, float] | None = _PLAIN
        if layout.parts <= _ONE_BY_ONE:
            one, other, result = addresses
            for first in range(0, layout.parts * PRODUCT_NUMBERS, PRODUCT_NUMBERS):
                facts[first + _PLACES[0]] += one
                facts[first + _PLACES[1]] += other
                facts[first + _PLACES[2]] += result
        else:
            shown = np.frombuffer(facts, np.int64)
            for place, address in zip(_PLACES, addresses, strict=True):
                shown[place::PRODUCT_NUMBERS] += address
        if bias:
            for part, before in enumerate(layout.columns):
                facts[part * PRODUCT_NUMBERS + _ROW] = before + bias

    def run(self, shared: int = _SHARED, scales: tuple[float, float] = _PLAIN) -> bool:
        """Compute the products; returns whether the row was added. Raises RuntimeError, MemoryError.

        shared: multiply-adds from which a team shares them. scales: factors of the products, and of what the result's
        memory holds, to which they are added.
        """
        if scales != self._scales:
            self._scales = None  # an interrupt may come before they are set
            set_scales(self._facts, *scales)
            self._scales = scales
        found = self._found
        if isinstance(found, Library):  # each of its calls uses one thread
            return self._run(shared)
        try:
            found.begin()
            return self._run(shared)
        finally:
            found.end()

    def _run(self, shared: int) -> bool:
        team, layout, facts = POOL.ready_team(), self._layout, self._facts
        if team is not None:
            threads = POOL.threads if layout.work >= shared else 1
            team.run(PRODUCTS, layout.parts, facts.buffer_info()[0], threads)
            if facts[2]:
                status, facts[2] = facts[2], 0
                raise error_of("sgemm", status)
            return self._adds
        if layout.work >= _LARGE:
            POOL.each(self._part, layout.parts)
        else:
            for number in range(layout.parts):
                self._part(number)
        return False

    def _part(self, number: int) -> None:
        self._found.multiply(self._facts, number)


def _job(found: Library | OpenBlas, a: Array, b: Array, result: Array, bias: int = 0) -> _Job | None:
    """The product as a job; None if sgemm cannot read or write an operand. bias: where a row to add is, or 0."""
    layout = _layout(a.shape, a.strides, b.shape, b.strides, result.strides)
    return None if layout is None else _job_in(found, layout, a, b, result, bias)


def _job_in(
    found: Library | OpenBlas, layout: _Layout, a: Array, b: Array, result: Array, bias: int = 0
) -> _Job | None:
    """The job of arrays of this layout; None if an address is none of a float."""
    one, other = a.__array_interface__["data"][0], b.__array_interface__["data"][0]
    made = result.__array_interface__["data"][0]
    if (one | other | made) % _SIZE:
        return None
    if layout.is_turned:
        one, other, bias = other, one, 0
    return _Job(found, layout, (one, other, made), bias)


class _Layout(NamedTuple):
    """A job of products without its addresses: what shapes and strides alone decide.

    columns: bytes before each part's first column. is_turned: the factors change places. work: multiply-adds.
    """

    facts: packed[int]
    columns: Sequence[int]
    parts: int
    work: int
    is_turned: bool


@lru_cache(256)
def _layout(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    other_shape: tuple[int, ...],
    other_strides: tuple[int, ...],
    made_strides: tuple[int, ...],
) -> _Layout | None:
    """The job of a product of these arrays; None if sgemm cannot read or write an operand."""
    lead, (rows, inner), columns = shape[:-2], shape[-2:], other_shape[-1]
    one, other = _matrix(shape, strides), _matrix(other_shape, other_strides)
    made = _matrix((*lead, rows, columns), made_strides)
    if one is None or other is None or made is None or not prod(lead) * rows * columns:
        return None
    if prod(lead[:-1]) > _MOST_PARTS:
        return None
    is_turned = made[0] == b"T"
    if is_turned:  # the transposed product of the transposed factors
        strides, other_strides = other_strides, strides
        one, other, rows, columns = _turned(other), _turned(one), columns, rows
    if isinstance(_fast(), OpenBlas):
        tiles = _grid(rows, columns, inner, _count(rows * columns * inner, prod(lead)))
    else:
        tiles = _tiles(rows, columns, inner, bool(lead))
        if not lead and len(tiles) > _CORES and _cuts_freely(rows, columns, inner, one[0], other[0]):
            tiles = _bands(rows, columns, _CORES)
    pieces = _pieces(lead, rows * columns * inner, strides, other_strides, made_strides) if lead else _ONE
    if len(pieces) * len(tiles) > _MOST_PARTS:
        return None
    down = _SIZE * (1 if one[0] == b"T" else one[1])
    across = _SIZE * (other[1] if other[0] == b"T" else 1)
    parts = [
        (
            one[0][0], other[0][0], height, width, inner, left + row * down, one[1], right + column * across, other[1],
            place + _SIZE * (row * made[1] + column), made[1], *repeats, 0,
        )
        for (left, right, place), repeats in pieces
        for row, height, column, width in tiles
    ]  # fmt: skip
    facts = packed("q", [0] * PRODUCT_FACTS)
    set_scales(facts, *_PLAIN)
    for part in parts:
        facts.extend(part)
    before = [_SIZE * column for _ in pieces for _, _, column, _ in tiles]
    return _Layout(facts, before, len(parts), prod(lead) * rows * columns * inner, is_turned)


def _tiles(rows: int, columns: int, inner: int, batched: bool) -> list[tuple[int, int, int, int]]:
    """Tiles of a product: first row, rows, first column, columns. Of a batch, only large products are cut."""
    if rows * columns * inner < (_LARGE if batched else _CUT):
        return [(0, rows, 0, columns)]
    big = inner * columns >= _BIG
    tall = _cut(rows, 2 * _ROWS if big else _ROWS)
    wide = _cut(columns, _COLUMNS if big else columns)
    if len(tall) == len(wide) == 1:
        if rows >= 2 * _LEAST:
            tall = _cut(rows, rows // 2)
        elif columns >= 2 * _LEAST:
            wide = _cut(columns, columns // 2)
    return [(row, height, column, width) for row, height in tall for column, width in wide]


def _cuts_freely(rows: int, columns: int, inner: int, order: bytes, other_order: bytes) -> bool:
    """Whether bands of any multiple of `_LEAST` rows give the same bits: oneDNN's sgemm then takes one way.

    Its other ways are for remainders of vectors, and for a transposed second factor.
    """
    whole = not any(length % _LEAST for length in (rows, columns, inner))
    return whole and not (order == b"N" and other_order == b"T")


def _bands(rows: int, columns: int, count: int) -> list[tuple[int, int, int, int]]:
    """So many tiles of whole rows: with as many as cores, each factor is read least often."""
    step = max(-(-rows // count), _ROWS)
    step += -step % _LEAST
    return [(row, min(step, rows - row), 0, columns) for row in range(0, rows, step)]


def _count(work: int, matrices: int) -> int:
    """Tiles of OpenBLAS's products: as many as cores, since each tile copies the parts of the factors that it reads."""
    return min(-(-_CORES // matrices), _MOST_CUTS, max(1, work // _TILE))


def _grid(rows: int, columns: int, inner: int, count: int) -> list[tuple[int, int, int, int]]:
    """At most so many tiles of about equal size, of which the largest takes least time."""
    while True:
        pairs = [(down, count // down) for down in range(1, count + 1) if not count % down]
        fitting = [(down, right) for down, right in pairs if _may_cut(rows, down) and _may_cut(columns, right)]
        if fitting:
            break
        count -= 1
    grids = [
        [(row, height, column, width) for row, height in _even(rows, down) for column, width in _even(columns, right)]
        for down, right in fitting
    ]
    return min(grids, key=lambda tiles: _time(tiles, columns, inner))


def _time(tiles: list[tuple[int, int, int, int]], columns: int, inner: int) -> int:
    """What the first of these tiles, which none exceeds, takes."""
    _, height, _, width = tiles[0]
    divided = height * _DIVIDED_ROW * -(-inner // _DEPTH) if width < columns else 0
    return (height * width // _PER_COPY + height + width) * inner + divided


def _may_cut(length: int, count: int) -> bool:
    """Whether each of so many parts has enough rows or columns."""
    return count == 1 or length >= count * _LEAST


def _even(length: int, count: int) -> list[tuple[int, int]]:
    """So many parts of a length: where each begins, and its length."""
    step = -(-length // count)
    step += -step % _LEAST
    return [(begin, min(step, length - begin)) for begin in range(0, length, step)]


def _cut(length: int, least: int) -> list[tuple[int, int]]:
    """Parts of a length, of about `least` or up to twice as much: where each begins, and its length."""
    count = 1
    while length >= 2 * count * least and count < _MOST_CUTS:
        count *= 2
    return _even(length, count)


def _pieces(lead: Sequence[int], each: int, *strides: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pieces of a batch: where they begin in the arrays, in bytes; their matrices, and the distances of these."""
    step, last = max(1, _PIECE // each), len(lead) - 1
    return [
        (
            tuple([sum(at * stride for at, stride in zip((*index, begin), steps, strict=False)) for steps in strides]),
            (min(step, lead[-1] - begin), *[steps[last] for steps in strides]),
        )
        for index in product(*[range(length) for length in lead[:-1]])
        for begin in range(0, lead[-1], step)
    ]


def _matrix(shape: tuple[int, ...], strides: tuple[int, ...]) -> _Matrix | None:
    """The matrices of an array, if their rows or columns are packed; None for others."""
    (rows, columns), (down, right) = shape[-2:], strides[-2:]
    if any(stride % _SIZE for stride in strides):
        return None
    if right == _SIZE and down >= columns * _SIZE:
        return b"N", down // _SIZE
    if down == _SIZE and right >= rows * _SIZE:
        return b"T", right // _SIZE
    return None


def _turned(matrix: _Matrix) -> _Matrix:
    """The transposed matrix."""
    order, leading = matrix
    return b"N" if order == b"T" else b"T", leading

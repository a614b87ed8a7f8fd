"""How the arguments of each op's fresh random calls are drawn, group by group. What is drawn is mostly valid."""

from __future__ import annotations

import math
from typing import Any

from tests.parity.fuzz import COMPLEX, EVERY, FLOATS, WHOLE, D, Draw, Made, a, calls

REAL = (*FLOATS, *WHOLE, "bool")
NUMBERS = (*FLOATS, *WHOLE)


def _any(d: Draw, **shape: Any) -> Made:
    return d.tensor(d.shape(**shape))


# Special functions.

for _name, _low, _high in (
    ("i0", -4, 4), ("special.i0e", -4, 4), ("special.i1", -4, 4), ("special.i1e", -4, 4), ("special.ndtr", -3, 3),
    ("special.ndtri", 0.05, 0.95), ("special.log_ndtr", -4, 3), ("special.erfcx", -2, 3), ("special.entr", 0.1, 3),
    ("special.expit", -3, 3), ("special.psi", 0.3, 4), ("special.gammaln", 0.3, 4), ("lgamma", 0.3, 5),
    ("digamma", 0.3, 5), ("erf", -3, 3), ("erfc", -3, 3), ("erfinv", -0.9, 0.9), ("sinc", -3, 3),
    ("special.exp2", -3, 3), ("special.sinc", -3, 3),
):  # fmt: skip
    calls(_name)(lambda d, low=_low, high=_high: a(d.tensor(d.shape(), low=low, high=high, odd=0.0, ties=0.0)))
for _name in ("logit", "special.logit"):
    calls(_name)(
        lambda d: a(d.tensor(d.shape(), low=0.1, high=0.9, ties=0.0), **({"eps": 0.2} if d.chance(0.3) else {}))
    )


@calls("polygamma", "special.polygamma")
def _polygamma(d: Draw) -> Any:
    return a(d.int(0, 3), d.tensor(d.shape(), low=0.5, high=4, odd=0.0, ties=0.0))


@calls("special.zeta")
def _zeta(d: Draw) -> Any:
    shape = d.shape()
    first = d.tensor(d.broadcast(shape), d.dtype(REAL), 1.5, 5, grad=False, odd=0.0)
    second = d.tensor(shape, d.dtype(REAL), 1, 4, odd=0.0)
    return d.pick(a(first, second), a(2.5, second), a(first, 3))


@calls("igamma", "igammac", "special.gammainc", "special.gammaincc")
def _igamma(d: Draw) -> Any:
    shape, dtype = d.shape(), d.dtype(FLOATS)
    first = d.tensor(d.broadcast(shape), dtype, 0.5, 4, grad=False, odd=0.0)
    return a(first, d.tensor(shape, dtype, 0.2, 4, odd=0.0, ties=0.0))


@calls("special.xlog1py", "xlogy", "special.xlogy")
def _xlogy(d: Draw) -> Any:
    shape = d.shape()
    x, y = d.tensor(d.broadcast(shape), low=-2, high=2), d.tensor(shape, low=0.1, high=3, odd=0.0, ties=0.0)
    return d.pick(a(x, y), a(x, y), a(x, 1.5), a(0.5, y))


@calls("gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift", order=0)
def _whole_pairs(d: Draw) -> Any:
    shape = d.shape()
    return a(d.tensor(shape, d.dtype(EVERY if d.chance(0.1) else WHOLE)), d.tensor(d.broadcast(shape), d.dtype(WHOLE)))


@calls("ldexp", "nextafter")
def _pairs(d: Draw) -> Any:
    shape = d.shape()
    return a(d.tensor(shape), d.tensor(d.broadcast(shape)))


@calls("isreal", order=0)
def _isreal(d: Draw) -> Any:
    return a(d.tensor(d.shape()))


@calls("mvlgamma", "special.multigammaln")
def _mvlgamma(d: Draw) -> Any:
    return a(d.tensor(d.shape(), low=3, high=6, odd=0.0, ties=0.0), d.int(1, 3))


# Statistics.


@calls("histc", order=0)
def _histc(d: Draw) -> Any:
    x = d.tensor(d.shape(), d.dtype(REAL))
    return d.pick(a(x), a(x, d.int(1, 9)), a(x, bins=5, min=-1, max=2), a(x, 4, -2.0, 2.5))


@calls("bucketize", order=0)
def _bucketize(d: Draw) -> Any:
    bounds = d.tensor((d.int(0, 6),), d.dtype(REAL), odd=0.0, ties=0.5)
    bounds.values = bounds.values.copy()
    bounds.values.sort()
    x = d.tensor(d.shape(), d.dtype(REAL), odd=0.0)
    return d.pick(a(x, bounds), a(x, bounds, right=d.chance(0.5), out_int32=d.chance(0.5)), a(0.5, bounds))


@calls("cov")
def _cov(d: Draw) -> Any:
    x = d.tensor(d.shape(0, 2), odd=0.02, dtype=d.dtype((*FLOATS[:2], *WHOLE, "complex128")))
    count = x.shape[-1] if x.ndim else 1
    kwargs: dict[str, Any] = {}
    if d.chance(0.4):
        kwargs["correction"] = d.int(0, 2)
    if d.chance(0.3):
        x.grad = False  # PyTorch subtracts in place, which a leaf refuses
        kwargs["fweights"] = d.tensor((count,), "int64", 1, 4)
    if d.chance(0.3):
        x.grad = False
        kind = x.dtype if x.dtype in FLOATS else "float32" if x.dtype in WHOLE else "float64"
        kwargs["aweights"] = d.tensor((count,), kind, 0.2, 3, grad=False, odd=0.0)
    return a(x, **kwargs)


@calls("corrcoef", order=1)
def _corrcoef(d: Draw) -> Any:
    return a(d.tensor((d.int(1, 3), d.int(3, 5)) if d.chance(0.8) else (d.int(2, 5),), odd=0.0, ties=0.0))


@calls("dist")
def _dist(d: Draw) -> Any:
    shape, dtype = d.shape(), d.dtype((*FLOATS, *COMPLEX))
    x, y = d.tensor(shape, dtype, odd=0.0, ties=0.0), d.tensor(d.broadcast(shape), dtype, odd=0.0, ties=0.0)
    return d.pick(a(x, y), a(x, y, d.pick(1, 2, 3, 1.5, math.inf)), a(x, y, p=2))


@calls("renorm")
def _renorm(d: Draw) -> Any:
    x = d.tensor(d.shape(1, 3), d.dtype((*FLOATS, *COMPLEX)), odd=0.0, ties=0.0)
    return a(x, d.pick(1, 2, 3.0, 2), d.dim(x), d.pick(0.5, 1, 2.5))


@calls("renorm_")
def _renorm_(d: Draw) -> Any:
    return _renorm(d)


@calls("trapezoid", "cumulative_trapezoid", "trapz")
def _trapezoid(d: Draw) -> Any:
    y = d.tensor(d.shape(1, 3), d.dtype((*FLOATS, *WHOLE, *COMPLEX)))
    dim = d.dim(y)
    size = y.shape[dim] if -y.ndim <= dim < y.ndim else 2
    way = d.int(0, 4)
    if way == 0:
        return a(y)
    if way == 1:
        return a(y, dx=d.pick(2, 0.5), dim=dim)
    if way == 2:
        return a(y, d.tensor((size,), d.dtype(NUMBERS)), dim=dim)
    return a(y, d.tensor(y.shape), dim=dim) if way == 3 else a(y, dim=dim)


# Shapes.

for _name in ("t", "ravel", "clone", "contiguous", "diagflat", "fliplr", "flipud", "atleast_1d", "atleast_2d",
              "atleast_3d", "numel", "is_floating_point", "is_complex", "is_signed", "conj", "adjoint",
              "resolve_conj"):  # fmt: skip
    calls(_name)(lambda d: a(_any(d, high=3)))


def _other_shape(d: Draw, count: int) -> tuple[int, ...]:
    sizes = []
    while count > 1 and len(sizes) < 3:
        factor = d.pick(*[f for f in range(1, count + 1) if count % f == 0])
        sizes.append(factor)
        count //= factor
    sizes.append(count)
    if d.chance(0.4) and 0 not in sizes:
        sizes[d.int(0, len(sizes) - 1)] = -1
    return tuple(sizes)


@calls("reshape", "view")
def _reshape(d: Draw) -> Any:
    x = _any(d)
    size = _other_shape(d, x.values.size) if x.values.size or d.chance(0.5) else (0, 2)
    return a(x, (*size, 2) if d.chance(0.03) else size)


@calls("view_as", "reshape_as", "expand_as")
def _as(d: Draw) -> Any:
    x = _any(d)
    return a(x, d.tensor(x.shape if d.chance(0.3) else tuple(n for n in _other_shape(d, x.values.size) if n >= 0)))


@calls("permute")
def _permute(d: Draw) -> Any:
    x = _any(d)
    dims = [int(i) - (x.ndim if d.chance(0.3) else 0) for i in d.rng.permutation(x.ndim)]
    return a(x, tuple(dims) if not d.chance(0.04) or not dims else (dims[0],) * len(dims))


@calls("transpose", "swapaxes", "swapdims")
def _transpose(d: Draw) -> Any:
    x = _any(d)
    return a(x, d.dim(x), d.dim(x))


@calls("transpose_", "swapaxes_", order=1)
def _transpose_(d: Draw) -> Any:
    return _transpose(d)


@calls("movedim", "moveaxis")
def _movedim(d: Draw) -> Any:
    x = _any(d, low=1)
    if d.chance(0.5):
        return a(x, d.dim(x), d.dim(x))
    count = d.int(1, x.ndim)
    return a(x, tuple(map(int, d.rng.permutation(x.ndim)[:count])), tuple(map(int, d.rng.permutation(x.ndim)[:count])))


@calls("squeeze")
def _squeeze(d: Draw) -> Any:
    x = d.tensor([1 if d.chance(0.4) else n for n in d.shape()])
    return d.pick(a(x), a(x, d.dim(x)), a(x, dim=(d.dim(x),)))


@calls("squeeze_", order=1)
def _squeeze_(d: Draw) -> Any:
    return _squeeze(d)


@calls("unsqueeze")
def _unsqueeze(d: Draw) -> Any:
    x = _any(d)
    return a(x, d.int(-x.ndim - 1, x.ndim + (1 if d.chance(0.05) else 0)))


@calls("unsqueeze_", order=1)
def _unsqueeze_(d: Draw) -> Any:
    return _unsqueeze(d)


@calls("expand", "broadcast_to")
def _expand(d: Draw) -> Any:
    shape = d.shape()
    x = d.tensor(d.broadcast(shape))
    given = list(shape)
    for back in range(1, x.ndim + 1):
        if d.chance(0.2):
            given[-back] = -1
    return a(x, tuple(given) if not d.chance(0.04) else (*given, 5))


@calls("sum_to_size")
def _sum_to_size(d: Draw) -> Any:
    shape = d.shape()
    return a(d.tensor(shape, d.dtype((*FLOATS, *COMPLEX))), d.broadcast(shape))


@calls("flatten")
def _flatten(d: Draw) -> Any:
    x = _any(d)
    return d.pick(a(x), a(x, d.dim(x)), a(x, start_dim=0, end_dim=d.dim(x)), a(x, d.dim(x), d.dim(x)))


@calls("unflatten")
def _unflatten(d: Draw) -> Any:
    x = _any(d, low=1)
    dim = d.dim(x, 0)
    return a(x, dim, _other_shape(d, x.shape[dim]) if x.shape[dim] else (0, 2))


@calls("select")
def _select(d: Draw) -> Any:
    x = _any(d, low=1)
    dim = d.dim(x, 0)
    return a(x, dim, d.int(-x.shape[dim], max(x.shape[dim] - (0 if d.chance(0.05) else 1), 0)))


@calls("narrow")
def _narrow(d: Draw) -> Any:
    x = _any(d, low=1)
    dim = d.dim(x, 0)
    start = d.int(-x.shape[dim], x.shape[dim])
    return a(x, dim, start, d.int(0, max(x.shape[dim] - start % max(x.shape[dim], 1), 0)))


@calls("split")
def _split(d: Draw) -> Any:
    x = _any(d, low=1)
    dim = d.dim(x, 0)
    size = x.shape[dim]
    cut = d.int(0, size)
    return d.pick(a(x, d.int(1, 3), dim), a(x, [cut, size - cut], dim=dim), a(x, d.int(1, 3)), a(x, [1, size], dim))


@calls("split_with_sizes", "unsafe_split_with_sizes")
def _split_with_sizes(d: Draw) -> Any:
    x = _any(d, low=1)
    dim = d.dim(x, 0)
    cut = d.int(0, x.shape[dim])
    return a(x, [cut, x.shape[dim] - cut + (1 if d.chance(0.04) else 0)], dim)


@calls("chunk", "tensor_split", "unsafe_chunk")
def _chunk(d: Draw) -> Any:
    x = _any(d)
    return d.pick(a(x, d.int(0 if d.chance(0.05) else 1, 5), d.dim(x)), a(x, d.int(1, 4)))


@calls("tensor_split/places")
def _tensor_split(d: Draw) -> Any:
    x = _any(d, low=1)
    return a(x, [d.int(-4, 5) for _ in range(d.int(0, 3))], dim=d.dim(x))


@calls("hsplit", "vsplit", "dsplit")
def _hsplit(d: Draw) -> Any:
    x = d.tensor([d.pick(2, 4, 3, 0) for _ in range(d.int(0, 4))])
    return d.pick(a(x, d.pick(1, 2, 3)), a(x, [d.int(-3, 4), d.int(0, 4)]))


@calls("unbind")
def _unbind(d: Draw) -> Any:
    x = _any(d)
    return d.pick(a(x), a(x, d.dim(x)))


@calls("unfold")
def _skip(d: Draw) -> Any:
    """nn.functional.unfold."""
    x = d.tensor((*d.shape(1, 2, 3, 0.05), d.int(3, 6), d.int(3, 6)), d.dtype((*FLOATS, "complex128")), odd=0.0)
    kernel = d.pick(2, (2, 3), (1, 2))
    return a(x, kernel, dilation=d.pick(1, 1, 2), padding=d.pick(0, 1), stride=d.pick(1, 2))


@calls("Tensor.unfold")
def _tensor_unfold(d: Draw) -> Any:
    x = _any(d)
    dim = d.dim(x)
    size = x.shape[dim] if -x.ndim <= dim < x.ndim else 1
    return a(x, dim, d.int(0 if d.chance(0.1) else 1, max(size, 1)), d.int(1, 2))


@calls("diagonal", "linalg.diagonal")
def _diagonal(d: Draw) -> Any:
    x = _any(d, low=2)
    if d.chance(0.4):
        return a(x, offset=d.int(-3, 3))
    return a(x, offset=d.int(-3, 3), dim1=d.dim(x), dim2=d.dim(x))


@calls("diag")
def _diag(d: Draw) -> Any:
    x = _any(d, high=3 if d.chance(0.05) else 2)
    return d.pick(a(x), a(x, d.int(-3, 3)))


@calls("diag_embed")
def _diag_embed(d: Draw) -> Any:
    x = _any(d, low=1, high=3)
    return d.pick(a(x), a(x, d.int(-2, 2)), a(x, 0, d.dim((*x.shape, 1)), d.dim((*x.shape, 1))))


@calls("as_strided")
def _as_strided(d: Draw) -> Any:
    x = d.tensor((4, 3))
    x.layout = "plain"
    return d.pick(a(x, (2, 2), (1, 3)), a(x, (3,), (4,), 1), a(x, (2, 3), (0, 1)), a(x, (3, 2), (1, 1), 2))


@calls("cat", "concat")
def _cat(d: Draw) -> Any:
    shape = list(d.shape(1, 3))
    dim = d.dim(shape)
    dtype = d.dtype() if d.chance(0.7) else None
    parts = []
    for _ in range(d.int(1, 3)):
        sizes = list(shape)
        if -len(shape) <= dim < len(shape):
            sizes[dim] = d.int(0, 3)
        elif d.chance(0.1):
            sizes = [0]
        parts.append(d.tensor((0,) if d.chance(0.05) else sizes, dtype))
    return d.pick(a(parts, dim), a(parts, dim=dim))


@calls("stack")
def _stack(d: Draw) -> Any:
    shape = d.shape(0, 3)
    dtype = d.dtype() if d.chance(0.7) else None
    parts = [d.tensor(shape if not d.chance(0.02) else (*shape, 2), dtype) for _ in range(d.int(1, 3))]
    return d.pick(a(parts), a(parts, dim=d.dim((*shape, 1))))


@calls("hstack", "vstack", "dstack", "column_stack", "row_stack")
def _stacks(d: Draw) -> Any:
    shape = d.shape(0, 3)
    return a([d.tensor(shape) for _ in range(d.int(1, 3))])


@calls("block_diag")
def _block_diag(d: Draw) -> Any:
    return a(*[d.tensor(d.shape(0, 2)) for _ in range(d.int(1, 3))])


@calls("cartesian_prod")
def _cartesian(d: Draw) -> Any:
    dtype = d.dtype()
    return a(*[d.tensor((d.int(0 if d.chance(0.1) else 1, 3),), dtype) for _ in range(d.int(1, 3))])


@calls("combinations")
def _combinations(d: Draw) -> Any:
    x = d.tensor((d.int(0, 4),))
    return d.pick(a(x), a(x, d.int(0, 3)), a(x, r=2, with_replacement=True))


@calls("meshgrid")
def _meshgrid(d: Draw) -> Any:
    dtype = d.dtype()
    parts = [d.tensor(d.shape(0, 1), dtype) for _ in range(d.int(1, 3))]
    return d.pick(a(*parts, indexing="ij"), a(parts, indexing="xy"))


@calls("broadcast_tensors")
def _broadcast_tensors(d: Draw) -> Any:
    shape = d.shape()
    return a(*[d.tensor(d.broadcast(shape)) for _ in range(d.int(1, 3))])


@calls("flip")
def _flip(d: Draw) -> Any:
    x = _any(d)
    dims = sorted({d.dim(x, 0) % max(x.ndim, 1) for _ in range(d.int(0, 2))})
    return a(x, dims if x.ndim or not dims else [0])


@calls("roll")
def _roll(d: Draw) -> Any:
    x = _any(d, low=1)
    return d.pick(a(x, d.int(-5, 5)), a(x, d.int(-5, 5), d.dim(x)), a(x, (1, -2), (0, -1)))


@calls("rot90")
def _rot90(d: Draw) -> Any:
    x = _any(d, low=2)
    return d.pick(a(x), a(x, d.int(-5, 5)), a(x, d.int(-5, 5), (d.dim(x), d.dim(x))), a(x, k=1, dims=[0, -1]))


@calls("repeat", "tile")
def _repeat(d: Draw) -> Any:
    x = _any(d, high=3)
    return a(x, tuple(d.int(0 if d.chance(0.1) else 1, 3) for _ in range(d.int(max(x.ndim - 1, 0), x.ndim + 1))))


@calls("repeat_interleave")
def _repeat_interleave(d: Draw) -> Any:
    x = _any(d)
    dim = d.dim(x, 0)
    size = x.shape[dim] if x.ndim else 1
    counts = d.tensor((size,), "int64", 0, 3)
    return d.pick(a(x, d.int(0, 3)), a(x, d.int(0, 3), dim), a(x, counts, dim=dim))


@calls("tril", "triu")
def _tril(d: Draw) -> Any:
    x = _any(d, low=2)
    return d.pick(a(x), a(x, d.int(-3, 3)), a(x, diagonal=d.int(-1, 1)))


@calls("tril_", "triu_")
def _tril_(d: Draw) -> Any:
    return _tril(d)


# Index and scatter.


def _sized(d: Draw, **options: Any) -> tuple[Made, int, int]:
    """A tensor, one of its dimensions, and that one's size."""
    x = d.tensor(d.shape(low=0 if d.chance(0.1) else 1, high=3), **options)
    dim = d.dim(x, 0)
    return x, dim, x.shape[dim] if x.ndim else 1


@calls("index_select")
def _index_select(d: Draw) -> Any:
    x, dim, size = _sized(d)
    return a(x, dim, d.index((d.int(0 if not size else 1, 4) if size else 0,), size))


def _source(d: Draw, x: Made, dim: int, count: int) -> Made:
    shape = list(x.shape)
    if shape:
        shape[dim] = count
    return d.tensor(shape, x.dtype if not d.chance(0.03) else None, odd=0.0)


@calls("index_add", "index_add_")
def _index_add(d: Draw) -> Any:
    x, dim, size = _sized(d, odd=0.0)
    count = (d.int(1, 4) if size else 0) if x.ndim else 1
    named = {"alpha": d.pick(2, 3)} if d.chance(0.3) else {}
    return a(x, dim, d.index((count,), size), _source(d, x, dim, count), **named)


def _distinct(d: Draw, size: int) -> Made:
    index = d.index((d.int(0, size),), size, beyond=0.0)
    index.values = d.rng.permutation(max(size, 1))[: index.values.size]
    return index


@calls("index_copy", "index_copy_")
def _index_copy(d: Draw) -> Any:
    x, dim, size = _sized(d)
    index = _distinct(d, size)
    return a(x, dim, index, _source(d, x, dim, index.values.size))


@calls("index_fill", "index_fill_")
def _index_fill(d: Draw) -> Any:
    x, dim, size = _sized(d)
    value = d.pick(1, 2.5, d.tensor((), x.dtype, odd=0.0))
    return a(x, dim, d.index((d.int(1, 3) if size else 0,), size, negative=True), value)


@calls("index_reduce", order=1)
def _index_reduce(d: Draw) -> Any:
    x, dim, size = _sized(d, dtype=d.dtype(NUMBERS), odd=0.0, ties=0.0)
    count = (d.int(1, 4) if size else 0) if x.ndim else 1
    return a(x, dim, d.index((count,), size), _source(d, x, dim, count), d.pick("prod", "mean", "amax", "amin"),
             include_self=d.chance(0.5))  # fmt: skip


def _gathered(d: Draw, **options: Any) -> tuple[Made, int, Made]:
    x, dim, size = _sized(d, **options)
    shape = [d.int(min(n, 1), n) for n in x.shape]
    if shape:
        shape[dim] = d.int(1, 4) if size else 0
    return x, dim, d.index(shape, size)


@calls("gather")
def _gather(d: Draw) -> Any:
    x, dim, index = _gathered(d)
    return d.pick(a(x, dim, index), a(x, dim=dim, index=index))


@calls("scatter", "scatter_")
def _scatter(d: Draw) -> Any:
    x, dim, size = _sized(d, odd=0.0)
    shape = [d.int(min(n, 1), n) for n in x.shape]
    index = d.index(shape, size, beyond=0.0)
    if shape and size:  # one place twice would leave the order open
        along = d.rng.permuted(_steps(shape, dim), axis=dim)
        index.values = along
    value = d.tensor(shape, x.dtype, odd=0.0)
    return d.pick(a(x, dim, index, value), a(x, dim, index, 1.5), a(x, dim, index, value=2))


def _steps(shape: list[int], dim: int) -> Any:
    import numpy as np

    line = np.arange(shape[dim]).reshape([-1 if axis == dim % len(shape) else 1 for axis in range(len(shape))])
    return np.broadcast_to(line, shape).copy()


@calls("scatter_add", "scatter_add_")
def _scatter_add(d: Draw) -> Any:
    x, dim, index = _gathered(d, odd=0.0)
    extra = [n + d.int(0, 1) for n in index.shape]
    return a(x, dim, index, d.tensor(extra, x.dtype, odd=0.0))


@calls("scatter_reduce", order=1)
def _scatter_reduce(d: Draw) -> Any:
    x, dim, index = _gathered(d, dtype=d.dtype(NUMBERS), odd=0.0, ties=0.0)
    src = d.tensor(index.shape, x.dtype, odd=0.0, ties=0.0)
    return a(x, dim, index, src, d.pick("sum", "prod", "mean", "amax", "amin"), include_self=d.chance(0.5))


@calls("take")
def _take(d: Draw) -> Any:
    x = _any(d, empty=0.0)
    return a(x, d.index(d.shape(0, 2), x.values.size, negative=True))


@calls("put", "put_")
def _put(d: Draw) -> Any:
    x = d.tensor(d.shape(empty=0.0), odd=0.0)
    index = _distinct(d, x.values.size)
    source = d.tensor(index.shape, x.dtype, odd=0.0)
    return d.pick(a(x, index, source), a(x, index, source, accumulate=True))


@calls("take_along_dim")
def _take_along_dim(d: Draw) -> Any:
    x, dim, size = _sized(d)
    shape = [1 if d.chance(0.3) else n for n in x.shape]
    if shape:
        shape[dim] = d.int(1, 4) if size else 0
    if d.chance(0.2) and x.values.size:
        x.layout = "plain"  # PyTorch views it, and refuses other layouts
        return a(x, d.index((3,), x.values.size))
    return a(x, d.index(shape, size), dim)


@calls("masked_select")
def _masked_select(d: Draw) -> Any:
    x = _any(d)
    return a(x, d.mask(d.broadcast(x.shape)))


@calls("masked_fill", "masked_fill_")
def _masked_fill(d: Draw) -> Any:
    x = _any(d)
    return a(x, d.mask(d.broadcast(x.shape)), d.pick(1, 2.5, -1, d.tensor((), x.dtype, odd=0.0)))


@calls("masked_scatter", "masked_scatter_")
def _masked_scatter(d: Draw) -> Any:
    x = _any(d)
    return a(x, d.mask(d.broadcast(x.shape)), d.tensor((x.values.size + d.int(0, 2),), x.dtype))


@calls("nonzero", "argwhere", order=0)
def _nonzero(d: Draw) -> Any:
    x = d.tensor(d.shape(), low=-1, high=1, ties=0.6)
    return a(x)


@calls("nonzero/tuple", order=0)
def _nonzero_tuple(d: Draw) -> Any:
    return a(d.tensor(d.shape(), low=-1, high=1, ties=0.6), as_tuple=True)


@calls("select_scatter")
def _select_scatter(d: Draw) -> Any:
    x = d.tensor(d.shape(1, empty=0.0), d.dtype(REAL))
    dim = d.dim(x, 0)
    shape = [n for axis, n in enumerate(x.shape) if axis != dim % x.ndim]
    return a(x, d.tensor(shape, x.dtype), dim, d.int(-x.shape[dim], x.shape[dim] - 1))


@calls("slice_scatter")
def _slice_scatter(d: Draw) -> Any:
    x = d.tensor(d.shape(1), d.dtype(REAL))
    dim = d.dim(x, 0)
    start, end, step = d.int(0, x.shape[dim]), d.int(0, x.shape[dim]), d.int(1, 2)
    shape = list(x.shape)
    shape[dim] = len(range(start, end, step))
    return a(x, d.tensor(shape, x.dtype), dim, start, end, step)


@calls("diagonal_scatter")
def _diagonal_scatter(d: Draw) -> Any:
    x = d.tensor((d.int(1, 4), d.int(1, 4)))
    offset = d.int(-1, 1)
    height, width = x.shape
    length = max(min(height + min(offset, 0), width - max(offset, 0)), 0)
    return a(x, d.tensor((length,), x.dtype), offset)


@calls("index_put", "index_put_")
def _index_put(d: Draw) -> Any:
    x = d.tensor(d.shape(1, 3, empty=0.0), odd=0.0)
    if d.chance(0.3):
        return a(x, [d.mask(x.shape)], d.tensor((), x.dtype, odd=0.0))
    index = d.index((d.int(1, 3),), x.shape[0], negative=True, beyond=0.02)
    value = d.tensor((index.values.size, *x.shape[1:]), x.dtype, odd=0.0)
    return a(x, [index], value, accumulate=True) if d.chance(0.7) else a(x, [index], d.tensor((), x.dtype, odd=0.0))


def _key(d: Draw, shape: tuple[int, ...]) -> Any:
    items: list[Any] = []
    left = list(shape)
    while left and d.chance(0.8):
        size = left.pop(0)
        way = d.int(0, 6)
        if way == 0:
            items.append(d.int(-size, max(size - (0 if d.chance(0.03) else 1), -size)))
        elif way in (1, 2):
            items.append(slice(d.pick(None, d.int(-5, 5)), d.pick(None, d.int(-5, 5)), d.pick(None, 1, 2)))
        elif way == 3:
            items.append(None)
            left.insert(0, size)
        elif way == 4 and Ellipsis not in [item for item in items if not isinstance(item, Made)]:
            items.append(Ellipsis)
            left = left[d.int(0, len(left)) :]
        elif way == 5 and size:
            items.append(d.index(d.pick((), (2,), (2,), (1, 2)), size, negative=True))
        else:
            items.append(d.mask((size,)) if d.chance(0.3) else slice(None))
    return items[0] if len(items) == 1 and d.chance(0.5) else tuple(items)


@calls("Tensor.__getitem__")
def _getitem(d: Draw) -> Any:
    x = _any(d)
    return a(x, _key(d, x.shape))


# Activations, layers and losses.


def _act(d: Draw, low: int = 0, among: tuple[str, ...] = EVERY) -> Made:
    return d.tensor(d.shape(low), d.dtype((*FLOATS, *FLOATS, *FLOATS)) if d.chance(0.9) else d.dtype(among))


for _name in ("relu", "relu6", "selu", "silu", "mish", "hardsigmoid", "hardswish", "softsign", "tanhshrink",
              "logsigmoid", "sigmoid", "tanh", "relu_"):  # fmt: skip
    calls(_name)(lambda d: a(_act(d)))
for _name in ("leaky_relu", "elu", "celu"):
    calls(_name)(lambda d: d.pick(a(_act(d)), a(_act(d), d.float(0.1, 2))))
calls("gelu")(lambda d: d.pick(a(_act(d)), a(_act(d), approximate="tanh")))
calls("hardtanh")(lambda d: d.pick(a(_act(d)), a(_act(d), -0.5, 0.75), a(_act(d), min_val=-2.0, max_val=2.0)))
calls("hardshrink", "softshrink")(lambda d: d.pick(a(_act(d)), a(_act(d), 0.75), a(_act(d), lambd=0.3)))
calls("softplus")(lambda d: d.pick(a(_act(d)), a(_act(d), 2), a(_act(d), beta=1.5, threshold=2)))
calls("threshold")(lambda d: a(_act(d), d.pick(0.5, 1, -1), d.pick(2, 0.25)))
calls("rrelu")(lambda d: d.pick(a(_act(d)), a(_act(d), 0.1, 0.3)))
calls("softmax", "log_softmax", "softmin")(lambda d: a(x := _act(d), d.dim(x)))


@calls("glu")
def _glu(d: Draw) -> Any:
    x = d.tensor([2 * n for n in d.shape(1)], d.dtype(FLOATS))
    return d.pick(a(x), a(x, d.dim(x)))


@calls("prelu")
def _prelu(d: Draw) -> Any:
    x = d.tensor(d.shape(1), d.dtype(FLOATS))
    count = x.shape[1] if x.ndim > 1 and d.chance(0.5) else 1
    return a(x, d.tensor((count,), x.dtype, odd=0.0))


def _image(d: Draw, dims: int, channels: int | None = None, dtype: str | None = None, low: int = 3) -> Made:
    sizes = [d.int(low, 6) for _ in range(dims)]
    lead = [d.int(1, 2)] if d.chance(0.8) else []
    return d.tensor(
        [*lead, channels or d.int(1, 3), *sizes], dtype or d.dtype(("float64", "float32")), odd=0.02, ties=0.1
    )


def _per(d: Draw, dims: int, *options: int) -> Any:
    return d.pick(*options) if d.chance(0.6) else tuple(d.pick(*options) for _ in range(dims))


for _dims in (1, 2, 3):

    def _conv(d: Draw, dims: int = _dims) -> Any:
        groups, each = d.pick(1, 1, 2), d.int(1, 2)
        x = _image(d, dims, groups * each)
        weight = d.tensor([groups * d.int(1, 2), each, *[d.int(1, 3) for _ in range(dims)]], x.dtype, odd=0.0)
        bias = d.tensor((weight.shape[0],), x.dtype, odd=0.0) if d.chance(0.5) else None
        padding = d.pick("same", "valid") if d.chance(0.1) else _per(d, dims, 0, 1)
        stride = 1 if isinstance(padding, str) else _per(d, dims, 1, 2)
        return a(x, weight, bias, stride=stride, padding=padding, dilation=_per(d, dims, 1, 1, 2), groups=groups)

    def _conv_transpose(d: Draw, dims: int = _dims) -> Any:
        groups, each = d.pick(1, 1, 2), d.int(1, 2)
        x = _image(d, dims, groups * each, low=2)
        weight = d.tensor([groups * each, d.int(1, 2), *[d.int(1, 3) for _ in range(dims)]], x.dtype, odd=0.0)
        bias = d.tensor((groups * weight.shape[1],), x.dtype, odd=0.0) if d.chance(0.5) else None
        return a(x, weight, bias, stride=_per(d, dims, 1, 2), padding=_per(d, dims, 0, 1),
                 output_padding=d.pick(0, 0, 1), groups=groups, dilation=_per(d, dims, 1, 2))  # fmt: skip

    def _max_pool(d: Draw, dims: int = _dims) -> Any:
        x = _image(d, dims)
        named: dict[str, Any] = {"stride": _per(d, dims, 1, 2)} if d.chance(0.5) else {}
        named |= {"dilation": d.pick(1, 2)} if d.chance(0.2) else {}
        return a(x, _per(d, dims, 2, 3), padding=d.pick(0, 1), ceil_mode=d.chance(0.3),
                 return_indices=d.chance(0.3), **named)  # fmt: skip

    def _avg_pool(d: Draw, dims: int = _dims) -> Any:
        named: dict[str, Any] = {"stride": _per(d, dims, 1, 2)} if d.chance(0.5) else {}
        named |= {"divisor_override": d.pick(2, 3)} if dims > 1 and d.chance(0.2) else {}
        return a(_image(d, dims), _per(d, dims, 2, 3), padding=d.pick(0, 1), ceil_mode=d.chance(0.3),
                 count_include_pad=d.chance(0.6), **named)  # fmt: skip

    def _adaptive(d: Draw, dims: int = _dims) -> Any:
        size = d.int(1, 4) if dims == 1 or d.chance(0.4) else tuple(d.pick(1, 2, 3, None) for _ in range(dims))
        return a(_image(d, dims), size)

    def _unpool(d: Draw, dims: int = _dims) -> Any:
        x = d.tensor(
            [d.int(1, 2), d.int(1, 2), *[d.int(1, 3) for _ in range(dims)]], odd=0.0, dtype=d.dtype(FLOATS[:2])
        )
        count = math.prod(2 * n for n in x.shape[2:])
        index = d.index(x.shape, count)
        rows = index.values.reshape(math.prod(x.shape[:2]), -1)
        if not (rows == count).any():
            for row in rows:
                row[:] = d.rng.permutation(count)[: row.size]
        return a(x, index, 2)

    def _lp_pool(d: Draw, dims: int = _dims) -> Any:
        x = _image(d, dims)
        x.values = abs(x.values) + 0.1
        return a(x, d.pick(2, 3, 1.5), 2, **({"stride": 1} if d.chance(0.5) else {}))

    calls(f"conv{_dims}d")(_conv)
    calls(f"conv_transpose{_dims}d")(_conv_transpose)
    calls(f"nn.functional.max_pool{_dims}d")(_max_pool)
    calls(f"avg_pool{_dims}d")(_avg_pool)
    calls(f"adaptive_avg_pool{_dims}d", f"nn.functional.adaptive_max_pool{_dims}d")(_adaptive)
    calls(f"max_unpool{_dims}d", order=1)(_unpool)
    calls(f"lp_pool{_dims}d")(_lp_pool)
    calls(f"nn.functional.dropout{_dims}d")(lambda d, dims=_dims: a(_image(d, dims), d.pick(0.5, 0.0, 2.0), False))
calls("alpha_dropout", "feature_alpha_dropout")(lambda d: d.pick(a(_act(d), 0.5, False), a(_act(d), 1.0, True)))
calls("nn.functional.dropout")(lambda d: d.pick(a(_act(d), 0.5, False), a(_act(d), 1.0, True), a(_act(d), 1.5, True)))


@calls("fold")
def _fold(d: Draw) -> Any:
    x = d.tensor([*([2] if d.chance(0.7) else []), 2 * 4, 9], d.dtype(FLOATS[:2]), odd=0.0)
    return d.pick(a(x, (4, 4), 2), a(x, output_size=4, kernel_size=(2, 2)), a(x, (6, 6), 2, stride=2), a(x, (5, 4), 2))


@calls("nn.functional.pad")
def _pad(d: Draw) -> Any:
    mode = d.pick("constant", "constant", "reflect", "replicate", "circular")
    if mode == "constant":
        x = _any(d)
        count = d.int(0, x.ndim)
        return a(x, [d.int(-1, 2) for _ in range(2 * count)], **({"value": 1.5} if d.chance(0.4) else {}))
    dims = d.int(1, 3)
    return a(_image(d, dims), [d.int(0, 2) for _ in range(2 * dims)], mode=mode)


@calls("interpolate")
def _interpolate(d: Draw) -> Any:
    dims = d.int(1, 3)
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[dims]
    mode = d.pick("nearest", "nearest-exact", linear, "area", *(["bicubic"] if dims == 2 else []))
    sizes = [d.int(2, 5) for _ in range(dims)]
    x = d.tensor([d.int(1, 2), d.int(1, 2), *sizes], d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    named: dict[str, Any] = {"mode": mode}
    if mode in (linear, "bicubic") and d.chance(0.5):
        named["align_corners"] = d.chance(0.5)
    if d.chance(0.5):
        return a(x, size=[d.int(1, 6) for _ in range(dims)], **named)
    return a(x, scale_factor=d.pick(2, 0.5, 1.5), **named)


@calls("grid_sample")
def _grid_sample(d: Draw) -> Any:
    x = d.tensor([2, 2, d.int(2, 4), d.int(2, 4)], "float64", odd=0.0, ties=0.0)
    grid = d.tensor([2, 2, 3, 2], "float64", -1.3, 1.3, odd=0.0, ties=0.0)
    return a(x, grid, mode=d.pick("bilinear", "nearest", "bicubic"),
             padding_mode=d.pick("zeros", "border", "reflection"), align_corners=d.chance(0.5))  # fmt: skip


calls("pixel_shuffle")(lambda d: a(d.tensor([*d.shape(0, 2, 2), 4 * d.int(1, 2), d.int(1, 3), 2]), d.pick(2, 2, 1, 3)))
calls("pixel_unshuffle")(
    lambda d: a(d.tensor([*d.shape(0, 2, 2), d.int(1, 2), 2 * d.int(1, 2), 4]), d.pick(2, 2, 1, 3))
)
calls("channel_shuffle", order=1)(lambda d: a(d.tensor([d.int(1, 2), 6, *d.shape(1, 2)]), d.pick(1, 2, 3, 6, 4)))


@calls("local_response_norm")
def _local(d: Draw) -> Any:
    x = d.tensor([d.int(1, 2), d.int(1, 5), *d.shape(1, 3)], d.dtype(FLOATS[:2]), odd=0.0)
    x.layout = "plain"  # PyTorch views it, and refuses other layouts
    return d.pick(a(x, d.int(1, 4)), a(x, 3, alpha=0.1, beta=0.5, k=2.0))


@calls("linear")
def _linear(d: Draw) -> Any:
    dtype = d.dtype((*FLOATS, *COMPLEX))
    n, m = d.int(1, 4), d.int(1, 3)
    weight = d.tensor((m, n), dtype, odd=0.0)
    bias = d.tensor((m,), dtype, odd=0.0)
    x = d.tensor((*d.shape(0, 2), n if not d.chance(0.03) else n + 1), dtype, odd=0.0)
    return d.pick(a(x, weight), a(x, weight, bias), a(x, weight=weight, bias=bias))


@calls("bilinear")
def _bilinear(d: Draw) -> Any:
    dtype = d.dtype(FLOATS[:2])
    lead = d.shape(1, 2)
    x, y = d.tensor((*lead, 2), dtype, odd=0.0), d.tensor((*lead, 3), dtype, odd=0.0)
    return a(x, y, d.tensor((4, 2, 3), dtype, odd=0.0), d.pick(None, d.tensor((4,), dtype, odd=0.0)))


@calls("nn.functional.embedding")
def _embedding(d: Draw) -> Any:
    weight = d.tensor((5, d.int(1, 3)), d.dtype(FLOATS), odd=0.0)
    named: dict[str, Any] = {"padding_idx": d.int(-5, 4)} if d.chance(0.4) else {}
    named |= {"scale_grad_by_freq": True} if d.chance(0.2) else {}
    return a(d.index(d.shape(0, 3), 5), weight, **named)


@calls("nn.functional.embedding_bag")
def _embedding_bag(d: Draw) -> Any:
    weight = d.tensor((5, 3), d.dtype(FLOATS[:2]), odd=0.0)
    mode = d.pick("mean", "sum", "max")
    if d.chance(0.5):
        return a(d.index((2, 3), 5), weight, mode=mode)
    offsets = d.index((2,), 1, beyond=0.0)
    offsets.values[1] = 2
    return a(d.index((5,), 5), weight, offsets, mode=mode)


@calls("one_hot", order=0)
def _one_hot(d: Draw) -> Any:
    index = d.index(d.shape(), 4, beyond=0.0)
    return d.pick(a(index), a(index, 5), a(index, num_classes=3), a(index, num_classes=-1))


def _maybe(d: Draw, made: Made) -> Made | None:
    return made if d.chance(0.6) else None


@calls("nn.functional.batch_norm")
def _batch_norm(d: Draw) -> Any:
    x = d.tensor([d.int(2, 3), d.int(1, 3), *d.shape(0, 2, empty=0.0)], d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    c = (x.shape[1],)
    line = lambda low: d.tensor(c, x.dtype, low, 2, odd=0.0, ties=0.0)  # noqa: E731
    mean, var = line(-1), line(0.5)
    mean.grad = var.grad = False
    if d.chance(0.5):
        return a(x, None, None, _maybe(d, line(-2)), _maybe(d, line(-2)), training=True, eps=0.01)
    return a(x, mean, var, _maybe(d, line(-2)), _maybe(d, line(-2)), training=d.chance(0.3), momentum=0.2)


@calls("nn.functional.layer_norm", "rms_norm")
def _layer_norm(d: Draw) -> Any:
    x = d.tensor(d.shape(1, 3, empty=0.0), d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    shape = x.shape[d.int(0, x.ndim - 1) :]
    weight = _maybe(d, d.tensor(shape, x.dtype, odd=0.0))
    return a(x, shape, weight, eps=0.01)


@calls("nn.functional.group_norm")
def _group_norm(d: Draw) -> Any:
    x = d.tensor([2, 4, *d.shape(0, 2, empty=0.0)], d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    line = (4,)
    return a(
        x,
        d.pick(1, 2, 4, 3),
        _maybe(d, d.tensor(line, x.dtype, odd=0.0)),
        _maybe(d, d.tensor(line, x.dtype, odd=0.0)),
        0.01,
    )


@calls("nn.functional.instance_norm")
def _instance_norm(d: Draw) -> Any:
    x = d.tensor([2, 3, *[d.int(2, 4) for _ in range(d.int(1, 2))]], d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    return a(x, weight=_maybe(d, d.tensor((3,), x.dtype, odd=0.0)), eps=0.01)


@calls("normalize")
def _normalize(d: Draw) -> Any:
    x = d.tensor(d.shape(2, 3), d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    return d.pick(a(x), a(x, d.pick(1, 2, 3.0), d.dim(x)), a(x, dim=-1, eps=0.5))


@calls("cosine_similarity")
def _cosine_similarity(d: Draw) -> Any:
    shape = d.shape(2, 3)
    x, y = (
        d.tensor(shape, d.dtype(FLOATS[:2]), odd=0.0, ties=0.0),
        d.tensor(shape, d.dtype(FLOATS[:2]), odd=0.0, ties=0.0),
    )
    return d.pick(a(x, y), a(x, y, d.dim(x)), a(x, y, dim=-1, eps=0.5))


@calls("scaled_dot_product_attention", order=1)
def _attention(d: Draw) -> Any:
    dtype, lead = d.dtype(FLOATS[:2]), d.shape(0, 2, 2, 0.0)
    q, k, v = (d.tensor((*lead, n, m), dtype, odd=0.0) for n, m in ((3, 4), (5, 4), (5, 2)))
    masked = d.mask((3, 5))
    masked.values[:, 0] = True
    return d.pick(a(q, k, v), a(q, k, v, is_causal=True), a(q, k, v, d.tensor((3, 5), dtype, odd=0.0)),
                  a(q, k, v, attn_mask=masked), a(q, k, v, scale=0.3))  # fmt: skip


@calls("pairwise_distance")
def _pairwise(d: Draw) -> Any:
    shape = d.shape(1, 3)
    x, y = (
        d.tensor(shape, d.dtype(FLOATS[:2]), odd=0.0, ties=0.0),
        d.tensor(shape, d.dtype(FLOATS[:2]), odd=0.0, ties=0.0),
    )
    return d.pick(a(x, y), a(x, y, d.pick(1.0, 3.0)), a(x, y, keepdim=True, eps=0.1))


@calls("pdist", order=1)
def _pdist(d: Draw) -> Any:
    x = d.tensor((d.int(2, 4), d.int(1, 3)), d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    x.layout = "plain"  # of another layout PyTorch's own derivative is no longer safe
    return d.pick(a(x), a(x, d.pick(0.5, 1.0, 2.0, 3.0)))


@calls("nn.functional.multi_head_attention_forward", order=1)
def _heads(d: Draw) -> Any:
    t = lambda *shape: d.tensor(shape, "float64", odd=0.0, ties=0.0)  # noqa: E731
    lead = (2,) if d.chance(0.7) else ()
    q, k = t(3, *lead, 4), t(5, *lead, 4)
    mask = _maybe(d, t(3, 5))
    return a(q, k, k, 4, 2, t(12, 4), _maybe(d, t(12)), None, None, d.chance(0.3), 0.0, t(4, 4), _maybe(d, t(4)),
             attn_mask=mask, need_weights=d.chance(0.7), average_attn_weights=d.chance(0.5))  # fmt: skip


def _way(d: Draw) -> dict[str, Any]:
    return {"reduction": d.pick("none", "mean", "sum", "mean")} if not d.chance(0.03) else {"reduction": "median"}


@calls("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
def _elementwise_loss(d: Draw) -> Any:
    shape = d.shape()
    x = d.tensor(shape, d.dtype((*FLOATS, *FLOATS, *WHOLE)), odd=0.02)
    y = d.tensor(shape if not d.chance(0.1) else d.broadcast(shape), x.dtype if d.chance(0.8) else d.dtype(FLOATS))
    return a(x, y, **_way(d))


calls("smooth_l1_loss/beta")(
    lambda d: a(x := d.tensor(d.shape(), d.dtype(FLOATS)), d.tensor(x.shape, x.dtype), beta=d.pick(0.0, 0.5, 2.0))
)
calls("huber_loss/delta")(
    lambda d: a(x := d.tensor(d.shape(), d.dtype(FLOATS)), d.tensor(x.shape, x.dtype), delta=d.pick(0.5, 2.0))
)


@calls("nn.functional.binary_cross_entropy_with_logits")
def _bce_logits(d: Draw) -> Any:
    x = d.tensor(d.shape(), d.dtype(FLOATS), odd=0.02)
    y = d.tensor(x.shape, x.dtype, 0, 1, odd=0.0)
    weight = d.tensor(d.broadcast(x.shape), x.dtype, 0.5, 2, grad=False, odd=0.0)
    return d.pick(a(x, y, **_way(d)), a(x, y, weight, **_way(d)), a(x, y, pos_weight=weight, **_way(d)))


@calls("binary_cross_entropy")
def _bce(d: Draw) -> Any:
    x = d.tensor(d.shape(), d.dtype(FLOATS[:2]), 0.05, 0.95, odd=0.0)
    y = d.tensor(x.shape, x.dtype, 0, 1, odd=0.0)
    weight = d.tensor(d.broadcast(x.shape), x.dtype, 0.5, 2, grad=False, odd=0.0)
    return d.pick(a(x, y, **_way(d)), a(x, y, weight, **_way(d)))


@calls("nn.functional.kl_div")
def _kl_div(d: Draw) -> Any:
    x = d.tensor(d.shape(), d.dtype(FLOATS), -3, 0, odd=0.0)
    return a(x, d.tensor(x.shape, x.dtype, 0.05, 1, odd=0.0), reduction=d.pick("none", "sum", "mean", "batchmean"),
             log_target=d.chance(0.3))  # fmt: skip


def _classes(d: Draw) -> tuple[Made, tuple[int, ...], int]:
    c = d.int(2, 4)
    if d.chance(0.2):
        return d.tensor((c,), d.dtype(FLOATS[:2]), odd=0.0), (), c
    lead, rest = d.int(1, 3), d.shape(0, 2, 3, 0.0)
    return d.tensor((lead, c, *rest), d.dtype(FLOATS[:2]), odd=0.0), (lead, *rest), c


@calls("cross_entropy", "nll_loss")
def _cross_entropy(d: Draw) -> Any:
    x, shape, c = _classes(d)
    named = _way(d)
    if d.chance(0.4):
        named["weight"] = d.tensor((c,), x.dtype, 0.5, 2, grad=False, odd=0.0)
    if d.chance(0.3):
        named["ignore_index"] = d.int(0, c - 1)
    return a(x, d.index(shape, c), **named)


@calls("cross_entropy/soft")
def _cross_entropy_soft(d: Draw) -> Any:
    x, shape, c = _classes(d)
    named = _way(d)
    if d.chance(0.5):
        named["label_smoothing"] = d.pick(0.1, 0.5)
    if d.chance(0.5):
        return a(x, d.tensor(x.shape, x.dtype, 0, 1, odd=0.0), **named)
    return a(x, d.index(shape, c), **named)


@calls("nn.functional.poisson_nll_loss")
def _poisson_nll(d: Draw) -> Any:
    x = d.tensor(d.shape(), d.dtype(FLOATS[:2]), 0.2, 2, odd=0.0)
    return a(x, d.tensor(x.shape, x.dtype, 0.2, 4, odd=0.0), log_input=d.chance(0.5), full=d.chance(0.4), **_way(d))


@calls("gaussian_nll_loss")
def _gaussian_nll(d: Draw) -> Any:
    x = d.tensor(d.shape(1), d.dtype(FLOATS[:2]), odd=0.0)
    var = d.tensor(x.shape if d.chance(0.6) else (*x.shape[:-1], 1), x.dtype, 0.3, 2, odd=0.0, ties=0.0)
    return a(x, d.tensor(x.shape, x.dtype, odd=0.0), var, full=d.chance(0.4), **_way(d))


def _signs(d: Draw, shape: tuple[int, ...], dtype: str) -> Made:
    made = d.tensor(shape, dtype, grad=False, odd=0.0)
    made.values = (made.values > 0) * 2.0 - 1.0
    return made


@calls("nn.functional.hinge_embedding_loss", "soft_margin_loss")
def _hinge(d: Draw) -> Any:
    x = d.tensor(d.shape(), d.dtype(FLOATS[:2]), odd=0.0)
    return a(x, _signs(d, x.shape, x.dtype), **_way(d))


@calls("nn.functional.margin_ranking_loss")
def _ranking(d: Draw) -> Any:
    x = d.tensor(d.shape(), d.dtype(FLOATS[:2]), odd=0.0)
    return a(x, d.tensor(x.shape, x.dtype, odd=0.0), _signs(d, x.shape, x.dtype), margin=d.pick(0.0, 0.5), **_way(d))


@calls("nn.functional.cosine_embedding_loss")
def _cosine_embedding(d: Draw) -> Any:
    dtype = d.dtype(FLOATS[:2])
    lead = (d.int(1, 3),) if d.chance(0.7) else ()
    x, y = d.tensor((*lead, 3), dtype, odd=0.0, ties=0.0), d.tensor((*lead, 3), dtype, odd=0.0, ties=0.0)
    return a(x, y, _signs(d, lead, dtype), margin=d.pick(0.0, 0.3), **_way(d))


@calls("nn.functional.triplet_margin_loss", "triplet_margin_with_distance_loss")
def _triplet(d: Draw) -> Any:
    shape, dtype = (*d.shape(0, 2, empty=0.0), 3), d.dtype(FLOATS[:2])
    three = [d.tensor(shape, dtype, odd=0.0, ties=0.0) for _ in range(3)]
    return a(*three, margin=d.pick(1.0, 0.5), swap=d.chance(0.4), **_way(d))


@calls("multi_margin_loss", order=1)
def _multi_margin(d: Draw) -> Any:
    c = d.int(2, 4)
    lead = (d.int(1, 3),) if d.chance(0.8) else ()
    x = d.tensor((*lead, c), d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    named = _way(d)
    if d.chance(0.4):
        named["weight"] = d.tensor((c,), x.dtype, 0.5, 2, grad=False, odd=0.0)
    return a(x, d.index(lead, c), p=d.pick(1, 2), margin=d.pick(1.0, 0.5), **named)


@calls("multilabel_margin_loss", order=1)
def _multilabel_margin(d: Draw) -> Any:
    c = d.int(2, 4)
    lead = (d.int(1, 3),) if d.chance(0.8) else ()
    x = d.tensor((*lead, c), d.dtype(FLOATS[:2]), odd=0.0, ties=0.0)
    target = d.index((*lead, c), c)
    target.values = target.values - (d.rng.random(target.shape) < 0.3) * (target.values + 1)
    return a(x, target, **_way(d))


@calls("multilabel_soft_margin_loss")
def _multilabel_soft(d: Draw) -> Any:
    x = d.tensor(d.shape(1), d.dtype(FLOATS[:2]), odd=0.0)
    weight = d.tensor(x.shape[-1:], x.dtype, 0.5, 2, grad=False, odd=0.0)
    return a(x, d.tensor(x.shape, x.dtype, 0, 1, odd=0.0), **({"weight": weight} if d.chance(0.3) else {}), **_way(d))


@calls("nn.functional.ctc_loss")
def _ctc(d: Draw) -> Any:
    t, n, c, s = d.int(4, 6), 2, 4, d.int(1, 2)
    logs = d.tensor((t, n, c), "float64", -3, -0.1, odd=0.0, ties=0.0)
    targets = d.index((n, s), c - 1, beyond=0.0)
    targets.values = targets.values + 1
    return a(logs, targets, (t, d.int(3, t)), (s, d.int(1, s)), zero_infinity=d.chance(0.5), **_way(d))


# Recurrent layers: their options, the lengths of packed sequences, parameters, input and states.


def _parameters(d: Draw, shapes: list[tuple[int, ...]], dtype: str) -> list[Made]:
    return [d.tensor(shape, dtype, -1, 1, odd=0.0, ties=0.0) for shape in shapes]


def _recurrent(d: Draw, name: str) -> Any:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    size, hidden, time, batch = d.int(1, 3), d.int(2, 3), d.int(1, 4), d.int(1, 3)
    options: dict[str, Any] = {"input_size": size, "hidden_size": hidden, "num_layers": d.int(1, 2)}
    options |= {"bias": d.chance(0.7), "bidirectional": d.chance(0.4), "batch_first": d.chance(0.5)}
    out = hidden
    if name == "RNN" and d.chance(0.4):
        options["nonlinearity"] = "relu"
    if name == "LSTM" and d.chance(0.25):
        out = options["proj_size"] = 1
    ways, dtype = 1 + options["bidirectional"], d.pick("float64", "float64", "float64", "float32")
    shapes: list[tuple[int, ...]] = []
    for layer in range(options["num_layers"]):
        rows = gates * hidden
        one = [(rows, out * ways if layer else size), (rows, out), *[(rows,)] * (2 * options["bias"])]
        shapes += ([*one, (out, hidden)] if out != hidden else one) * ways
    batched = d.chance(0.8)
    x = (batch, time, size) if options["batch_first"] else (time, batch, size)
    lengths = [d.int(1, time) for _ in range(batch)] if batched and d.chance(0.3) else None
    if lengths is not None:
        lengths[0] = time
    depth = ways * options["num_layers"]
    states = [(depth, batch, out)[:: 1 if batched else 2], (depth, batch, hidden)[:: 1 if batched else 2]]
    given = _parameters(d, [x if batched else (time, size), *states], dtype)
    start: list[Any] = [] if d.chance(0.4) else [tuple(given[1:])] if name == "LSTM" else [given[1]]
    return a(options, lengths, _parameters(d, shapes, dtype), [given[0], *start])


def _cell(d: Draw, name: str) -> Any:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    size, hidden, batch = d.int(1, 3), d.int(1, 3), [d.int(1, 3)] if d.chance(0.8) else []
    options: dict[str, Any] = {"input_size": size, "hidden_size": hidden, "bias": d.chance(0.7)}
    dtype, rows = d.pick("float64", "float64", "float32"), gates * hidden
    shapes = [(rows, size), (rows, hidden), *[(rows,)] * (2 * options["bias"])]
    x, *states = _parameters(d, [(*batch, size), (*batch, hidden), (*batch, hidden)], dtype)
    start: list[Any] = [] if d.chance(0.4) else [tuple(states)] if name == "LSTM" else [states[0]]
    return a(options, None, _parameters(d, shapes, dtype), [x, *start])


for _layer in ("LSTM", "GRU", "RNN"):
    calls(f"nn.{_layer}")(lambda d, name=_layer: _recurrent(d, name))
    calls(f"nn.{_layer}Cell")(lambda d, name=_layer: _cell(d, name))


# Creation, and what is like another tensor.

_KINDS = (None, "float64", "float32", "int64", "bool", "complex64", "float16")


def _kind(d: Draw) -> dict[str, Any]:
    name = d.pick(*_KINDS)
    return {} if name is None else {"dtype": D(name)}


calls("zeros", "ones", order=0)(lambda d: d.pick(a(*d.shape(1)), a(d.shape(), **_kind(d)), a((2, -1))))
calls("full", order=0)(lambda d: a(d.shape(), d.pick(1, 2.5, True, 1j), **_kind(d)))
calls("eye", order=0)(lambda d: d.pick(a(d.int(0, 4)), a(d.int(0, 4), d.int(0, 4), **_kind(d)), a(-1)))
calls("arange", order=0)(
    lambda d: d.pick(a(d.int(-1, 6)), a(d.int(-3, 3), d.int(0, 9)), a(d.int(-3, 3), d.int(2, 9), d.int(1, 3)),
                     a(5, 1, -2), a(d.float(-1, 1), d.float(2, 5), 0.5), a(1, 5, 2, dtype=D("float64")), a(1, 5, 0))
)  # fmt: skip
calls("linspace", order=0)(
    lambda d: a(d.float(), d.float(), d.int(0, 7), **d.pick({}, {"dtype": D("float64")}, {"dtype": D("int64")}))
)
calls("logspace", order=0)(
    lambda d: a(d.float(), d.float(), d.int(0, 7), **d.pick({}, {"base": 2.0}, {"dtype": D("float64")}))
)
calls("zeros_like", "ones_like", order=0)(lambda d: a(_any(d), **_kind(d)))
calls("full_like", order=0)(lambda d: a(_any(d), d.pick(1, 2.5, True), **_kind(d)))
calls("Tensor.new_zeros", "Tensor.new_ones", order=0)(
    lambda d: d.pick(a(_any(d), d.shape(), **_kind(d)), a(_any(d), 2, 3))
)
calls("Tensor.new_full", order=0)(lambda d: a(_any(d), d.shape(), d.pick(1, 2.5), **_kind(d)))
calls("scalar_tensor", order=0)(lambda d: a(d.pick(1, 2.5, True), **_kind(d)))
calls("tril_indices", "triu_indices", order=0)(lambda d: a(d.int(0, 4), d.int(0, 4), d.int(-3, 3)))
calls("fill_", "Tensor.fill_")(lambda d: a(_any(d), d.pick(1, 2.5, True, d.tensor((), odd=0.0, grad=False))))
calls("zero_")(lambda d: a(_any(d)))
calls("Tensor.type_as", "Tensor.copy_")(lambda d: a(x := _any(d), d.tensor(x.shape)))
calls("Tensor.to")(lambda d: a(_any(d), D(d.dtype())))

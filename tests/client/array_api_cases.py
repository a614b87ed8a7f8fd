"""A call of every function of the array API standard, with random arguments.

A case is a function of a namespace and a `Draw`. The same seed draws the same values for every namespace. So NumPy,
which implements the standard, gives the expected answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = Callable[[Any, "Draw"], Any]

KINDS = {
    "bool": ("bool",),
    "int": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "signed": ("int8", "int16", "int32", "int64"),
    "float": ("float32", "float64"),
    "complex": ("complex64", "complex128"),
}
KINDS["real"] = KINDS["int"] + KINDS["float"]
KINDS["inexact"] = KINDS["float"] + KINDS["complex"]
KINDS["number"] = KINDS["real"] + KINDS["complex"]
KINDS["whole"] = KINDS["bool"] + KINDS["int"]
KINDS["any"] = KINDS["bool"] + KINDS["number"]


class Draw:
    """Random arguments. Arrays are made by the namespace's own asarray, from the same values for each namespace."""

    def __init__(self, xp: Any, seed: int) -> None:
        self.xp = xp
        self.random = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def flag(self) -> bool:
        """True or False."""
        return bool(self.integer(0, 1))

    def choice(self, *options: Any) -> Any:
        """One of the options."""
        return options[self.integer(0, len(options) - 1)]

    def shape(self, least: int = 0, most: int = 3, empty: bool = True) -> tuple[int, ...]:
        """Sizes of up to three axes, which may be empty."""
        return tuple(
            self.integer(0 if empty and self.integer(0, 9) == 0 else 1, 4) for _ in range(self.integer(least, most))
        )

    def dtype(self, kind: str) -> str:
        """The name of a dtype of a kind."""
        return str(self.choice(*KINDS[kind]))

    def values(self, kind: str, shape: tuple[int, ...] | None = None, low: float = -4, high: float = 4) -> np.ndarray:
        """Values of one dtype of a kind, with repeats where they are whole."""
        return self.of(self.dtype(kind), self.shape() if shape is None else shape, low, high)

    def of(self, dtype: str, shape: tuple[int, ...], low: float = -4, high: float = 4) -> np.ndarray:
        """Values of a dtype."""
        if dtype == "bool":
            return self.random.random(shape) < 0.5
        drawn = self.random.uniform(max(low, 0) if dtype.startswith("u") else low, high, shape)
        if dtype.startswith("complex"):
            drawn = drawn + 1j * self.random.uniform(low, high, shape)
        return np.asarray(drawn).astype(dtype)

    def array(self, kind: str, shape: tuple[int, ...] | None = None, low: float = -4, high: float = 4) -> Any:
        """An array of the namespace."""
        return self.xp.asarray(self.values(kind, shape, low, high))

    def two(self, kind: str, low: float = -4, high: float = 4) -> tuple[Any, Any]:
        """Two arrays that are broadcast against each other, of dtypes that promote to one."""
        shape = self.shape()
        other = tuple(1 if self.integer(0, 2) == 0 else size for size in shape)[self.integer(0, len(shape)) :]
        first, second = self.dtype(kind), self.dtype(kind)
        if {first[0], second[0]} == {"u", "i"} and "uint64" in (first, second):
            second = first  # nothing holds both
        if {first[0], second[0]} not in ({"u"}, {"i"}, {"u", "i"}) and first[0] != second[0]:
            second = first  # of two categories the standard promises no promotion
        pair = [self.xp.asarray(self.of(first, shape, low, high)), self.xp.asarray(self.of(second, other, low, high))]
        return (pair[0], pair[1]) if self.integer(0, 1) else (pair[1], pair[0])

    def axis(self, x: Any) -> int:
        """An axis of an array, from the front or the end."""
        return self.integer(-x.ndim, x.ndim - 1)

    def axes(self, x: Any) -> Any:
        """None, one axis, several or none of them."""
        if x.ndim == 0 or self.integer(0, 3) == 0:
            return None
        if self.integer(0, 1):
            return self.axis(x)
        count = self.integer(1, x.ndim)
        return tuple(int(one) for one in self.random.permutation(x.ndim)[:count])

    def matrix(self, kind: str = "float", square: bool = True) -> Any:
        """A stack of well-conditioned matrices."""
        rows = self.integer(1, 3)
        shape = (*self.shape(0, 1, empty=False), rows, rows if square else self.integer(1, 4))
        dtype = self.dtype(kind)
        return self.xp.asarray(self.of(dtype, shape, -1, 1) + np.eye(*shape[-2:], dtype=dtype) * 4)

    def definite(self, kind: str = "float") -> Any:
        """A stack of Hermitian positive definite matrices."""
        rows, dtype = self.integer(1, 3), self.dtype(kind)
        half = self.of(dtype, (*self.shape(0, 1, empty=False), rows, rows), -1, 1)
        return self.xp.asarray(half @ np.conj(np.swapaxes(half, -1, -2)) + np.eye(rows, dtype=dtype))


CASES: dict[str, Case] = {}


def unary(names: str, kind: str, low: float = -4, high: float = 4) -> None:
    """Functions of one array."""
    for name in names.split():
        CASES[name] = lambda xp, d, name=name: getattr(xp, name)(d.array(kind, None, low, high))


def binary(names: str, kind: str, low: float = -4, high: float = 4) -> None:
    """Functions of two arrays, or of an array and a number."""

    def call(xp: Any, d: Draw, name: str) -> Any:
        first, second = d.two(kind, low, high)
        if d.integer(0, 3) == 0 and "complex" not in str(first.dtype):
            floating = "float" in str(first.dtype)
            second = True if "bool" in str(first.dtype) else 1.5 if floating else 2
        return getattr(xp, name)(first, second)

    for name in names.split():
        CASES[name] = lambda xp, d, name=name: call(xp, d, name)


unary("abs negative", "signed")
unary("acos asin", "float", -0.9, 0.9)
unary("atanh", "inexact", -0.9, 0.9)
unary("acosh", "float", 1.1, 4)
unary("asinh atan cos cosh exp expm1 sin sinh tan tanh", "inexact", -1, 1)
unary("log log10 log2 log1p sqrt", "inexact", 0.1, 4)
unary("ceil floor trunc round signbit", "float")
unary("square positive", "number", -4, 4)
unary("reciprocal", "inexact", 1, 4)
unary("sign", "number")
unary("conj real imag", "complex")
unary("isfinite isinf isnan", "number")
unary("logical_not", "bool")
unary("bitwise_invert", "whole")
binary("add subtract multiply", "number", 0, 4)
binary("divide atan2 copysign hypot logaddexp nextafter", "float", 0.5, 4)
binary("pow", "float", 0.5, 3)
binary("floor_divide remainder", "real", 1, 5)
binary("bitwise_and bitwise_or bitwise_xor", "whole")
binary("bitwise_left_shift bitwise_right_shift", "signed", 0, 4)
binary("equal not_equal", "any")
binary("less less_equal greater greater_equal maximum minimum", "real")
binary("logical_and logical_or logical_xor", "bool")
CASES["clip"] = lambda xp, d: xp.clip(d.array("float"), d.choice(None, -1), d.choice(2, 1))

# Making arrays.
CASES["arange"] = lambda xp, d: xp.arange(d.integer(-4, 4), d.integer(-4, 9), d.choice(1, 2, -1, 3), dtype=xp.int32)
CASES["asarray"] = lambda xp, d: xp.asarray(d.values("any").tolist(), dtype=xp.complex128)
CASES["empty"] = lambda xp, d: xp.empty(d.shape(), dtype=xp.int16).shape
CASES["empty_like"] = lambda xp, d: xp.empty_like(d.array("any")).shape
CASES["eye"] = lambda xp, d: xp.eye(d.integer(0, 4), d.choice(None, 2, 5), k=d.integer(-5, 5), dtype=xp.float64)
CASES["from_dlpack"] = lambda xp, d: xp.from_dlpack(d.values("real"))
CASES["full"] = lambda xp, d: xp.full(d.shape(), d.choice(True, 3, -2))
CASES["full_like"] = lambda xp, d: xp.full_like(d.array("number"), 3)
CASES["linspace"] = lambda xp, d: xp.linspace(-1.5, 4, d.integer(1, 6), endpoint=d.flag(), dtype=xp.float64)
CASES["meshgrid"] = lambda xp, d: xp.meshgrid(d.array("int", (3,)), d.array("int", (2,)), indexing=d.choice("xy", "ij"))
CASES["ones"] = lambda xp, d: xp.ones(d.shape(), dtype=xp.uint32)
CASES["ones_like"] = lambda xp, d: xp.ones_like(d.array("any"))
CASES["tril"] = lambda xp, d: xp.tril(d.array("any", (2, 3, 4)), k=d.integer(-4, 4))
CASES["triu"] = lambda xp, d: xp.triu(d.array("any", (3, 2)), k=d.integer(-4, 4))
CASES["zeros"] = lambda xp, d: xp.zeros(d.shape(), dtype=xp.uint64)
CASES["zeros_like"] = lambda xp, d: xp.zeros_like(d.array("any"), dtype=xp.int8)

# Dtypes.
CASES["astype"] = lambda xp, d: xp.astype(d.array("real"), d.choice(xp.float64, xp.complex64, xp.int64, xp.bool))
CASES["can_cast"] = lambda xp, d: xp.can_cast(getattr(xp, d.dtype("int")), xp.int32)
CASES["finfo"] = lambda xp, d: [
    float(getattr(xp.finfo(getattr(xp, d.dtype("float"))), one)) for one in ("eps", "max", "min")
]
CASES["iinfo"] = lambda xp, d: [getattr(xp.iinfo(getattr(xp, d.dtype("int"))), one) for one in ("bits", "max", "min")]
CASES["isdtype"] = lambda xp, d: xp.isdtype(
    getattr(xp, d.dtype("any")), d.choice("bool", "integral", ("signed integer", "real floating"), "numeric")
)
CASES["result_type"] = lambda xp, d: xp.result_type(*d.two("number"))

# Shapes.
CASES["broadcast_arrays"] = lambda xp, d: xp.broadcast_arrays(*d.two("any"))
CASES["broadcast_shapes"] = lambda xp, d: xp.broadcast_shapes((3, 1), d.choice((), (4,), (2, 1, 4)))
CASES["broadcast_to"] = lambda xp, d: xp.broadcast_to(d.array("any", (3, 1)), (2, 3, 4))
CASES["concat"] = lambda xp, d: xp.concat(
    [d.array("float", (2, 3)), d.array("float", (2, 3))], axis=d.choice(0, -1, None)
)
CASES["expand_dims"] = lambda xp, d: xp.expand_dims(d.array("any", (2, 3)), axis=d.choice(0, -1, 2, (0, -1)))
CASES["flip"] = lambda xp, d: (lambda x: xp.flip(x, axis=d.axes(x)))(d.array("any"))
CASES["moveaxis"] = lambda xp, d: xp.moveaxis(d.array("any", (2, 3, 4)), *d.choice((0, -1), ((0, 1), (2, 0))))
CASES["permute_dims"] = lambda xp, d: xp.permute_dims(d.array("any", (2, 3, 4)), d.choice((2, 0, 1), (1, 0, 2)))
CASES["repeat"] = lambda xp, d: xp.repeat(d.array("any", (2, 3)), d.choice(2, xp.asarray([1, 0, 2])), axis=1)
CASES["reshape"] = lambda xp, d: xp.reshape(d.array("any", (2, 6)), d.choice((3, 4), (-1,), (2, -1, 3)))
CASES["roll"] = lambda xp, d: xp.roll(d.array("any", (2, 3)), d.integer(-4, 4), axis=d.choice(None, 0, -1, (0, 1)))
CASES["squeeze"] = lambda xp, d: xp.squeeze(d.array("any", (1, 3, 1)), axis=d.choice(0, -1, (0, 2)))
CASES["stack"] = lambda xp, d: xp.stack([d.array("float", (2, 3)), d.array("float", (2, 3))], axis=d.integer(-3, 2))
CASES["tile"] = lambda xp, d: xp.tile(d.array("any", (2, 3)), d.choice((2,), (2, 1, 3), ()))
CASES["unstack"] = lambda xp, d: xp.unstack(d.array("any", (2, 3)), axis=d.integer(-2, 1))

# Places.
CASES["argmax"] = lambda xp, d: xp.argmax(d.array("real", d.shape(1, 3, False)), keepdims=d.flag())
CASES["argmin"] = lambda xp, d: xp.argmin(d.array("real", (2, 3)), axis=d.choice(0, -1), keepdims=d.flag())
CASES["isin"] = lambda xp, d: xp.isin(d.array("signed"), d.array("signed"), invert=d.flag())
CASES["nonzero"] = lambda xp, d: xp.nonzero(d.array("any", d.shape(1)))
CASES["searchsorted"] = lambda xp, d: xp.searchsorted(
    xp.sort(d.array("float", (5,))), d.array("float"), side=d.choice("left", "right")
)
CASES["take"] = lambda xp, d: xp.take(
    d.array("any", (3, 4)), xp.asarray([d.integer(-3, 2), 0, -1]), axis=d.choice(0, -1)
)
CASES["take_along_axis"] = lambda xp, d: xp.take_along_axis(
    d.array("any", (3, 4)), xp.asarray([[d.integer(-3, 2), 0, -1, 1]]), axis=0
)
CASES["where"] = lambda xp, d: xp.where(
    d.array("bool", (2, 3)), d.array("float", (3,)), d.choice(1.5, 2, d.array("float", (2, 1)))
)

# Order.
CASES["argsort"] = lambda xp, d: xp.argsort(d.array("int", (2, 5)), axis=d.integer(-2, 1), stable=True)
CASES["sort"] = lambda xp, d: xp.sort(d.array("real", (2, 5)), axis=d.integer(-2, 1))
unary("unique_all unique_counts unique_inverse", "real")
# In which order is not said.
CASES["unique_values"] = lambda xp, d: xp.sort(xp.unique_values(d.array("real")))

# Many to one.


def reduction(names: str, kind: str, empty: bool = True, low: float = -4) -> None:
    """Functions over axes."""

    def call(xp: Any, d: Draw, name: str) -> Any:
        x = d.array(kind, d.shape(0, 3, empty), low, 3)
        return getattr(xp, name)(x, axis=d.axes(x), keepdims=d.flag())

    for name in names.split():
        CASES[name] = lambda xp, d, name=name: call(xp, d, name)


reduction("all any count_nonzero", "any")
reduction("sum prod", "number", low=0)
reduction("max min", "real", empty=False)
reduction("mean std var", "float", empty=False)
for _name in ("cumulative_sum", "cumulative_prod"):
    CASES[_name] = lambda xp, d, name=_name: (lambda x: getattr(xp, name)(x, axis=d.axis(x), include_initial=d.flag()))(
        d.array("number", d.shape(1), 0, 3)
    )
CASES["diff"] = lambda xp, d: xp.diff(d.array("float", (3, 4)), axis=d.choice(0, -1), n=d.integer(1, 2))

# Products.
CASES["matmul"] = lambda xp, d: (
    lambda dtype: xp.matmul(
        xp.asarray(d.of(dtype, d.choice((3,), (2, 3), (4, 1, 3)))),
        xp.asarray(d.of(dtype, d.choice((3,), (3, 2), (1, 3, 2)))),
    )
)(d.dtype("number"))
CASES["matrix_transpose"] = lambda xp, d: xp.matrix_transpose(d.array("any", d.choice((2, 3), (2, 3, 1))))
CASES["tensordot"] = lambda xp, d: xp.tensordot(
    d.array("float", (2, 3, 4)),
    d.array("float", (3, 4, 2)),
    axes=d.choice(((1,), (0,)), ((1, 2), (0, 1)), ((0,), (-1,))),
)
CASES["vecdot"] = lambda xp, d: xp.vecdot(d.array("complex", (2, 3)), d.array("complex", (3,)))

# linalg
CASES["linalg.cholesky"] = lambda xp, d: xp.linalg.cholesky(d.definite("inexact"), upper=d.flag())
CASES["linalg.cross"] = lambda xp, d: xp.linalg.cross(d.array("float", (2, 3)), d.array("float", (2, 3)))
CASES["linalg.det"] = lambda xp, d: xp.linalg.det(d.matrix("inexact"))
CASES["linalg.diagonal"] = lambda xp, d: xp.linalg.diagonal(d.array("any", (2, 3, 4)), offset=d.integer(-3, 3))
CASES["linalg.eig"] = lambda xp, d: xp.sort(xp.abs(xp.linalg.eig(d.matrix("inexact")).eigenvalues))
CASES["linalg.eigh"] = lambda xp, d: xp.linalg.eigh(d.definite("inexact")).eigenvalues
CASES["linalg.eigvals"] = lambda xp, d: xp.sort(xp.abs(xp.linalg.eigvals(d.matrix("inexact"))))
CASES["linalg.eigvalsh"] = lambda xp, d: xp.linalg.eigvalsh(d.definite("inexact"))
CASES["linalg.inv"] = lambda xp, d: xp.linalg.inv(d.matrix("inexact"))
CASES["linalg.matmul"] = lambda xp, d: xp.linalg.matmul(d.array("float", (2, 3)), d.array("float", (3, 2)))
CASES["linalg.matrix_norm"] = lambda xp, d: xp.linalg.matrix_norm(
    d.matrix("inexact", False), ord=d.choice("fro", "nuc", 1, -1, 2, -2, np.inf), keepdims=d.flag()
)
CASES["linalg.matrix_power"] = lambda xp, d: xp.linalg.matrix_power(d.matrix(), d.integer(-2, 3))
CASES["linalg.matrix_rank"] = lambda xp, d: xp.linalg.matrix_rank(d.matrix("float", False))
CASES["linalg.matrix_transpose"] = lambda xp, d: xp.linalg.matrix_transpose(d.array("any", (2, 3)))
CASES["linalg.outer"] = lambda xp, d: xp.linalg.outer(d.array("float", (2,)), d.array("float", (3,)))
CASES["linalg.pinv"] = lambda xp, d: xp.linalg.pinv(d.matrix("inexact", False), rtol=1e-5)
CASES["linalg.qr"] = lambda xp, d: (lambda f: (f.Q @ f.R, xp.abs(f.R)))(
    xp.linalg.qr(d.matrix("inexact", False), mode="reduced")
)
CASES["linalg.slogdet"] = lambda xp, d: xp.linalg.slogdet(d.matrix("inexact"))
CASES["linalg.solve"] = lambda xp, d: (
    lambda a: xp.linalg.solve(a, xp.ones(d.choice((a.shape[-1],), (a.shape[-1], 3), (*a.shape[:-1], 2)), dtype=a.dtype))
)(d.matrix("inexact"))
CASES["linalg.svd"] = lambda xp, d: xp.linalg.svd(d.matrix("inexact", False), full_matrices=False).S
CASES["linalg.svdvals"] = lambda xp, d: xp.linalg.svdvals(d.matrix("inexact", False))
CASES["linalg.tensordot"] = lambda xp, d: xp.linalg.tensordot(
    d.array("float", (2, 3)), d.array("float", (3, 2)), axes=1
)
CASES["linalg.trace"] = lambda xp, d: xp.linalg.trace(d.array("number", (2, 3, 3)), offset=d.integer(-1, 1))
CASES["linalg.vecdot"] = lambda xp, d: xp.linalg.vecdot(d.array("float", (2, 3)), d.array("float", (2, 3)))
CASES["linalg.vector_norm"] = lambda xp, d: (
    lambda x: xp.linalg.vector_norm(x, axis=d.axes(x), ord=d.choice(1, 2, 3, np.inf), keepdims=d.flag())
)(d.array("inexact", d.shape(1, 3, False)))

# fft


def transform(names: str, kind: str) -> None:
    """Transforms along one axis, or several where the name ends with n."""

    def call(xp: Any, d: Draw, name: str) -> Any:
        norm = d.choice("backward", "ortho", "forward")
        if name.endswith("n"):
            return getattr(xp.fft, name)(d.array(kind, (3, 4, 2)), axes=d.choice((0, 1), (2, 0)), norm=norm)
        return getattr(xp.fft, name)(d.array(kind, (3, 5)), n=d.choice(None, 4, 7), axis=d.choice(0, -1), norm=norm)

    for name in names.split():
        CASES[f"fft.{name}"] = lambda xp, d, name=name: call(xp, d, name)


transform("fft ifft hfft irfft fftn ifftn irfftn", "complex")
transform("rfft ihfft", "float")
CASES["fft.rfftn"] = lambda xp, d: xp.fft.rfftn(d.array("float", (3, 4, 2)), s=(4, 3), axes=d.choice((0, 1), (2, 0)))
CASES["fft.fftfreq"] = lambda xp, d: xp.astype(xp.fft.fftfreq(d.integer(1, 9), d=0.5), xp.float32)
CASES["fft.rfftfreq"] = lambda xp, d: xp.astype(xp.fft.rfftfreq(d.integer(1, 9), d=0.5), xp.float32)
CASES["fft.fftshift"] = lambda xp, d: (lambda x: xp.fft.fftshift(x, axes=d.axes(x)))(d.array("inexact", d.shape(1)))
CASES["fft.ifftshift"] = lambda xp, d: (lambda x: xp.fft.ifftshift(x, axes=d.axes(x)))(d.array("inexact", d.shape(1)))

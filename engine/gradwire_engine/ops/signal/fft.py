"""Fourier transforms: three primitives, complex to complex, real to complex and complex to real.

The adjoint of an unscaled transform is the unscaled transform in the other direction, for any scale. So each
primitive's gradient formula uses the other primitives, and derivatives of any order follow. SciPy's pocketfft computes
on the CPU and keeps single precision; cupyx.scipy.fft computes on a GPU. fft_plans.py bounds pocketfft's plan cache.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, scipy_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import FourierNorm
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import cast, conj
from gradwire_engine.ops.base.checks import admit, ints, normalize_dim
from gradwire_engine.ops.shape.join import cat, roll
from gradwire_engine.ops.shape.shape import narrow
from gradwire_engine.ops.signal.fft_plans import transformed, working_bytes

Ints = Any
# Scale of a transform: 1, 1/sqrt(n) or 1/n; below, SciPy's names of the three for each direction.
PLAIN_SCALE, ROOT_SCALE, FULL_SCALE = range(3)
_FORWARD = ("backward", "ortho", "forward")
_BACKWARD = ("forward", "ortho", "backward")


def _transforms(xp: Any) -> ModuleType:
    """SciPy's or CuPy's module of Fourier transforms, for an array module."""
    return scipy_of(xp, "fft")


def _transform_cost(length: int) -> Any:
    """Operations per element along a dimension of this length; more for lengths with large prime factors."""
    rest = length
    for prime in (2, 3, 5, 7, 11, 13):
        while rest > 1 and not rest % prime:
            rest //= prime
    slow = 1.0 if rest == 1 else 8.0
    far = 1.0 if length < 1 << 16 else 4.0  # longer lines exceed the caches
    return slow * far * 0.6 * math.log2(2 + length)


def _fft_cost(input: Any, dim: Ints, *rest: Any) -> Any:
    return input.size * (4.0 + 2.0 * sum(_transform_cost(input.shape[axis]) for axis in dim))


def _c2r_cost(input: Any, dim: Ints, scale: int, last: int) -> Any:
    lines = input.size // max(1, input.shape[dim[-1]])
    count = max(input.size, lines * last)
    return count * (4.0 + 2.0 * (_transform_cost(last) + sum(_transform_cost(input.shape[axis]) for axis in dim[:-1])))


@op(name="_fft_c2c", node="FftC2CBackward0", cost=counted(_fft_cost, 2.0, 1 << 16))
def c2c(xp: Any, input: Array, dim: Ints, scale: int, forward: bool) -> Array:
    """Transform complex numbers over dimensions `dim`."""
    module = _transforms(xp)
    if not input.size:
        return input.copy()
    transform, norm = (module.fftn, _FORWARD[scale]) if forward else (module.ifftn, _BACKWARD[scale])
    if xp is not np:
        return transform(input, axes=dim, norm=norm)
    return transformed(transform, input, dim, [input.shape[axis] for axis in dim], False, norm=norm)


c2c.works_in(lambda input, dim, *rest: working_bytes(input.dtype, input.shape, dim, False))
c2c.grad(input=lambda g, dim, scale, forward: c2c(g, dim, scale, not forward)).tangent("linear")


@op(name="_fft_r2c", node="FftR2CBackward0", cost=counted(_fft_cost, 2.0, 1 << 16))
def r2c(xp: Any, input: Array, dim: Ints, scale: int, onesided: bool) -> Array:
    """Forward transform of real numbers. onesided: return only the non-redundant half along the last of `dim`."""
    module = _transforms(xp)
    if not input.size:
        shape = list(input.shape)
        shape[dim[-1]] = shape[dim[-1]] // 2 + 1 if onesided else shape[dim[-1]]
        return xp.zeros(shape, dtypes.to_complex(input.dtype))
    transform = module.rfftn if onesided else module.fftn
    if xp is not np:
        return transform(input, axes=dim, norm=_FORWARD[scale])
    return transformed(transform, input, dim, [input.shape[axis] for axis in dim], True, norm=_FORWARD[scale])


r2c.sized_by(lambda input, *rest: 2 * input.nbytes)
r2c.works_in(lambda input, dim, *rest: working_bytes(input.dtype, input.shape, dim, True), backward=2.6)


@op(name="_fft_c2r", node="FftC2RBackward0", cost=counted(_c2r_cost, 2.0))
def c2r(xp: Any, input: Array, dim: Ints, scale: int, last: int) -> Array:
    """Inverse transform of a one-sided Hermitian spectrum, to `last` real numbers along the last of `dim`."""
    if not input.size:
        shape = list(input.shape)
        shape[dim[-1]] = last
        return xp.zeros(shape, dtypes.real_part(input.dtype))
    sizes = [*(input.shape[axis] for axis in dim[:-1]), last]
    transform = _transforms(xp).irfftn
    if xp is not np:
        return transform(input, s=sizes, axes=dim, norm=_BACKWARD[scale])
    return transformed(transform, input, dim, sizes, True, s=sizes, norm=_BACKWARD[scale])


def _c2r_bytes(input: Any, dim: Any, last: int) -> int:
    """Temporary bytes: the transforms' buffers, and a copy for the transforms along all but the last dimension."""
    shape = list(input.shape)
    shape[dim[-1]] = last
    return int(working_bytes(input.dtype, shape, dim, True) + (input.nbytes if len(dim) > 1 else 0))


c2r.sized_by(lambda input, dim, scale, last: input.nbytes // max(input.shape[dim[-1]], 1) * last // 2)
c2r.works_in(lambda input, dim, scale, last: _c2r_bytes(input, dim, last))


def _r2c_input(g: Any, input_meta: Any, dim: Any, scale: int, onesided: bool) -> Any:
    if onesided:  # pad the omitted half with zeros
        g = resized(g, dim[-1:], (input_meta.shape[dim[-1]],))
    return c2c(g, dim, scale, False)  # fit() takes the real part


def _c2r_input(g: Any, input_meta: Any, dim: Any, scale: int) -> Any:
    """Gradient of c2r. All frequencies count twice, except the first and, for an even length, the middle one."""
    half = r2c(g, dim, scale, True)
    axis = dim[-1]
    mirrored = g.shape[axis] - half.shape[axis]
    if mirrored <= 0:
        return half
    parts = [narrow(half, axis, 0, 1), narrow(half, axis, 1, mirrored) * 2]
    if half.shape[axis] > mirrored + 1:
        parts.append(narrow(half, axis, mirrored + 1, half.shape[axis] - mirrored - 1))
    return cat(parts, axis)


r2c.grad(input=_r2c_input).tangent("linear")
c2r.grad(input=_c2r_input).tangent("linear")


@op(name="_fft_resized", node="ConstantPadNdBackward0", cost=8)
def resized(xp: Any, input: Array, dim: Ints, sizes: Ints) -> Array:
    """The first `sizes` elements along `dim`, padded with zeros."""
    shape = list(input.shape)
    for axis, size in zip(dim, sizes, strict=True):
        shape[axis] = size
    admit(shape, input.dtype)
    made = xp.zeros(shape, input.dtype)
    shared = tuple(slice(min(m, n)) for m, n in zip(shape, input.shape, strict=True))
    made[shared] = input[shared]
    return made


resized.grad(input=lambda g, input_meta, dim: resized(g, dim, tuple(input_meta.shape[axis] for axis in dim)))
resized.tangent("linear")


# Arguments.


def _to_float(name: str, input: Any) -> Any:
    """Cast to a float or complex dtype that the transforms support. Raises EngineError: RUNTIME for half types."""
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        return cast(input, dtypes.default())
    if input.dtype.itemsize == 2:
        raise EngineError(Reason.RUNTIME, f"{name}: Unsupported dtype {dtypes.TITLES[input.dtype]}")
    return input


def _complex(value: Any) -> Any:
    return value if value.dtype.kind == "c" else cast(value, dtypes.to_complex(value.dtype))


def _check_real(name: str, input: Any) -> Any:
    if input.dtype.kind == "c":
        raise EngineError(Reason.RUNTIME, f"{name} expects a real input tensor, but got {dtypes.TITLES[input.dtype]}")
    return input


def _scale(norm: str | None, forward: bool) -> int:
    """The scale that `norm` selects for a direction. Raises EngineError: RUNTIME for an unknown norm."""
    if norm == "ortho":
        return ROOT_SCALE
    if norm not in (None, "backward", "forward"):
        raise EngineError(Reason.RUNTIME, f'Invalid normalization mode: "{norm}"')
    return FULL_SCALE if (norm == "forward") == forward else PLAIN_SCALE


def _dim_and_length(input: Any, n: int | None, dim: int) -> tuple[int, int]:
    """Dimension and length of a transform over one dimension. Raises EngineError: DIM_OUT_OF_RANGE."""
    if not input.ndim:
        raise EngineError(
            Reason.DIM_OUT_OF_RANGE, f"Dimension specified as {dim} but tensor has no dimensions", dim=dim
        )
    axis = normalize_dim(dim, input.ndim)
    length = input.shape[axis] if n is None else n
    return axis, length


def _check_length(count: int) -> None:
    if count < 1:
        raise EngineError(Reason.RUNTIME, f"Invalid number of data points ({count}) specified")


def _resize(input: Any, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    changed = [(axis, size) for axis, size in zip(dims, sizes, strict=True) if input.shape[axis] != size]
    if not changed:
        return input
    return resized(input, tuple(axis for axis, _ in changed), tuple(size for _, size in changed))


def _dims_and_lengths(input: Any, s: Ints | None, dim: Ints | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions of a transform over several, and the length in each; -1 means the input's size.

    Raises EngineError: RUNTIME.
    """
    lengths = None if s is None else ints(s)
    if dim is not None:
        dims = tuple(normalize_dim(axis, input.ndim) for axis in ints(dim))
        if len(set(dims)) != len(dims):
            raise EngineError(Reason.RUNTIME, "FFT dims must be unique")
    elif lengths is not None:
        if len(lengths) > input.ndim:
            raise EngineError(
                Reason.RUNTIME,
                f"Got shape with {len(lengths)} values but input tensor only has {input.ndim} dimensions.",
            )
        dims = tuple(range(input.ndim - len(lengths), input.ndim))
    else:
        dims = tuple(range(input.ndim))
    if lengths is None:
        return dims, tuple(input.shape[axis] for axis in dims)
    if len(lengths) != len(dims):
        raise EngineError(Reason.RUNTIME, "When given, dim and shape arguments must have the same length")
    return dims, tuple(input.shape[axis] if size == -1 else size for axis, size in zip(dims, lengths, strict=True))


# Over one dimension.


def _transform(name: str, input: Any, n: int | None, dim: int, norm: str | None, forward: bool) -> Any:
    input = _to_float(name, input)
    axis, length = _dim_and_length(input, n, dim)
    _check_length(length)
    scale = _scale(norm, forward)
    input = _resize(input, (axis,), (length,))
    if input.dtype.kind != "c" and forward:
        return r2c(input, (axis,), scale, False)
    return c2c(_complex(input), (axis,), scale, forward)


@composite(name="fft.fft")
def fft(input: Array, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None) -> Any:
    """Discrete Fourier transform along `dim` (torch.fft.fft).

    n: length, to which the input is cut or zero-padded. norm: "backward" (no scaling), "ortho" or "forward".
    Real numbers and integers are converted to complex numbers.
    Raises EngineError: RUNTIME for a length below 1 and for half types.
    """
    return _transform("fft", input, n, dim, norm, True)


@composite(name="fft.ifft")
def ifft(input: Array, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None) -> Any:
    """Inverse Fourier transform along `dim`, scaled by 1/n by default (torch.fft.ifft)."""
    return _transform("ifft", input, n, dim, norm, False)


@composite(name="fft.rfft")
def rfft(input: Array, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None) -> Any:
    """Fourier transform of real numbers: the first n // 2 + 1 frequencies (torch.fft.rfft).

    Raises EngineError: RUNTIME for complex input.
    """
    input = _to_float("rfft", _check_real("rfft", input))
    axis, length = _dim_and_length(input, n, dim)
    _check_length(length)
    return r2c(_resize(input, (axis,), (length,)), (axis,), _scale(norm, True), True)


@composite(name="fft.irfft")
def irfft(input: Array, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None) -> Any:
    """Inverse of rfft: n real numbers, by default 2 * (m - 1) for an input of length m (torch.fft.irfft)."""
    return _to_real("irfft", input, n, dim, _scale(norm, False), mirrored=False)


def _to_real(name: str, input: Any, n: int | None, dim: int, scale: int, mirrored: bool) -> Any:
    input = _complex(_to_float(name, input))
    axis, length = _dim_and_length(input, n, dim)
    length = 2 * (length - 1) if n is None else length
    _check_length(length)
    input = _resize(input, (axis,), (length // 2 + 1,))
    return c2r(conj(input) if mirrored else input, (axis,), scale, length)


@composite(name="fft.hfft")
def hfft(input: Array, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None) -> Any:
    """Fourier transform of a Hermitian signal, given its first half, to real numbers (torch.fft.hfft)."""
    return _to_real("hfft", input, n, dim, _scale(norm, True), mirrored=True)


@composite(name="fft.ihfft")
def ihfft(input: Array, n: int | None = None, dim: int = -1, norm: FourierNorm | None = None) -> Any:
    """Inverse of hfft: the first half of a Hermitian signal, from real numbers (torch.fft.ihfft)."""
    input = _to_float("ihfft", _check_real("ihfft", input))
    axis, length = _dim_and_length(input, n, dim)
    _check_length(length)
    return conj(r2c(_resize(input, (axis,), (length,)), (axis,), _scale(norm, False), True))


# Over several dimensions.


def _transform_n(name: str, input: Any, s: Any, dim: Any, norm: str | None, forward: bool) -> Any:
    dims, sizes = _dims_and_lengths(input, s, dim)
    input = _complex(_to_float(name, input))
    for size in sizes:
        _check_length(size)
    scale = _scale(norm, forward)
    if not dims:
        return input
    return c2c(_resize(input, dims, sizes), dims, scale, forward)


@composite(name="fft.fftn")
def fftn(input: Array, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None) -> Any:
    """Fourier transform over several dimensions, by default all or the last len(s) (torch.fft.fftn)."""
    return _transform_n("fftn", input, s, dim, norm, True)


@composite(name="fft.ifftn")
def ifftn(input: Array, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None) -> Any:
    """Inverse Fourier transform over several dimensions (torch.fft.ifftn)."""
    return _transform_n("ifftn", input, s, dim, norm, False)


@composite(name="fft.fft2")
def fft2(input: Array, s: Ints | None = None, dim: Ints = (-2, -1), norm: FourierNorm | None = None) -> Any:
    """Fourier transform over two dimensions (torch.fft.fft2)."""
    return _transform_n("fft2", input, s, dim, norm, True)


@composite(name="fft.ifft2")
def ifft2(input: Array, s: Ints | None = None, dim: Ints = (-2, -1), norm: FourierNorm | None = None) -> Any:
    """Inverse Fourier transform over two dimensions (torch.fft.ifft2)."""
    return _transform_n("ifft2", input, s, dim, norm, False)


def _from_real_n(name: str, input: Any, s: Any, dim: Any, norm: str | None) -> Any:
    _check_real(name, input)
    dims, sizes = _dims_and_lengths(input, s, dim)
    input = _to_float(name, input)
    if not dims:
        raise EngineError(Reason.RUNTIME, f"{name} must transform at least one axis")
    for size in sizes:
        _check_length(size)
    return r2c(_resize(input, dims, sizes), dims, _scale(norm, True), True)


def _to_real_n(name: str, input: Any, s: Any, dim: Any, norm: str | None) -> Any:
    dims, sizes = _dims_and_lengths(input, s, dim)
    input = _complex(_to_float(name, input))
    if not dims:
        raise EngineError(Reason.RUNTIME, f"{name} must transform at least one axis")
    last = sizes[-1]
    if s is None or ints(s)[-1] == -1:
        last = 2 * (last - 1)
    for size in (*sizes[:-1], last):
        _check_length(size)
    return c2r(_resize(input, dims, (*sizes[:-1], last // 2 + 1)), dims, _scale(norm, False), last)


@composite(name="fft.rfftn")
def rfftn(input: Array, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None) -> Any:
    """Fourier transform of real numbers over several dimensions, one-sided along the last (torch.fft.rfftn)."""
    return _from_real_n("rfftn", input, s, dim, norm)


@composite(name="fft.rfft2")
def rfft2(input: Array, s: Ints | None = None, dim: Ints = (-2, -1), norm: FourierNorm | None = None) -> Any:
    """Fourier transform of real numbers over two dimensions, one-sided along the last (torch.fft.rfft2)."""
    return _from_real_n("rfft2", input, s, dim, norm)


@composite(name="fft.irfftn")
def irfftn(input: Array, s: Ints | None = None, dim: Ints | None = None, norm: FourierNorm | None = None) -> Any:
    """Inverse of rfftn, to real numbers (torch.fft.irfftn)."""
    return _to_real_n("irfftn", input, s, dim, norm)


@composite(name="fft.irfft2")
def irfft2(input: Array, s: Ints | None = None, dim: Ints = (-2, -1), norm: FourierNorm | None = None) -> Any:
    """Inverse of rfft2, to real numbers (torch.fft.irfft2)."""
    return _to_real_n("irfft2", input, s, dim, norm)


# The order of frequencies.


def _shifted(input: Any, dim: Any, ahead: bool) -> Any:
    dims = tuple(range(input.ndim)) if dim is None else tuple(normalize_dim(axis, input.ndim) for axis in ints(dim))
    shifts = tuple(input.shape[axis] // 2 if ahead else math.ceil(input.shape[axis] / 2) for axis in dims)
    return roll(input, shifts, dims)


@composite(name="fft.fftshift")
def fftshift(input: Array, dim: Ints | None = None) -> Any:
    """Reorder frequencies to ascending order, zero in the middle (torch.fft.fftshift)."""
    return _shifted(input, dim, True)


@composite(name="fft.ifftshift")
def ifftshift(input: Array, dim: Ints | None = None) -> Any:
    """Inverse of fftshift (torch.fft.ifftshift)."""
    return _shifted(input, dim, False)

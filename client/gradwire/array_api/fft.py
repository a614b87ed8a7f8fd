"""The standard's Fourier transform extension (array_api.fft)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gradwire._base import dtypes
from gradwire._base.dtypes import dtype
from gradwire._base.errors import GradwireValueError
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, axes_of, call, cast
from gradwire.array_api._creation import Device, arange
from gradwire.array_api._manipulation import concat

Norm = Literal["backward", "ortho", "forward"]
Sizes = Sequence[int] | None

__all__ = [
    "fft",
    "ifft",
    "fftn",
    "ifftn",
    "rfft",
    "irfft",
    "rfftn",
    "irfftn",
    "hfft",
    "ihfft",
    "fftfreq",
    "rfftfreq",
    "fftshift",
    "ifftshift",
]


def _one(op: str, x: Tensor, n: int | None, axis: int, norm: str) -> Array:
    return call(f"fft.{op}", x, n, axis, norm)


def _many(op: str, x: Tensor, s: Sizes, axes: Sizes, norm: str) -> Array:
    sizes, along = (None if one is None else tuple(one) for one in (s, axes))
    return call(f"fft.{op}", x, sizes, along, norm)


def fft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The discrete Fourier transform along an axis, cut or filled with zeros to size n."""
    return _one("fft", x, n, axis, norm)


def ifft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of fft."""
    return _one("ifft", x, n, axis, norm)


def fftn(x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward") -> Array:
    """The transform along several axes, or all."""
    return _many("fftn", x, s, axes, norm)


def ifftn(x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward") -> Array:
    """The inverse of fftn."""
    return _many("ifftn", x, s, axes, norm)


def rfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The transform of real values: the half that is not implied."""
    return _one("rfft", x, n, axis, norm)


def irfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of rfft; n is the size of the result."""
    return _one("irfft", x, n, axis, norm)


def rfftn(x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward") -> Array:
    """The transform of real values along several axes: the half of the last one that is not implied."""
    return _many("rfftn", x, s, axes, norm)


def irfftn(x: Tensor, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward") -> Array:
    """The inverse of rfftn."""
    return _many("irfftn", x, s, axes, norm)


def hfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The real transform of values whose other half is the conjugate."""
    return _one("hfft", x, n, axis, norm)


def ihfft(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of hfft."""
    return _one("ihfft", x, n, axis, norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: dtype | None = None, device: Device = None) -> Array:
    """The frequencies of fft's results, for samples at a distance d. Raises ValueError unless n is positive."""
    of = _frequency_dtype("fftfreq", n, dtype)
    half = (n - 1) // 2 + 1
    places = concat([arange(0, half, device=device), arange(-(n // 2), 0, device=device)])
    made: Array = as_array(cast(places, of)) / (n * d)
    return made


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: dtype | None = None, device: Device = None) -> Array:
    """The frequencies of rfft's results, for n samples at a distance d. Raises ValueError unless n is positive."""
    of = _frequency_dtype("rfftfreq", n, dtype)
    made: Array = as_array(cast(arange(0, n // 2 + 1, device=device), of)) / (n * d)
    return made


def _frequency_dtype(name: str, n: int, given: dtype | None) -> dtype:
    if n < 1:
        raise GradwireValueError(f"{name}(): n must be positive, not {n}")
    of = dtypes.get_default_dtype() if given is None else given
    if not of.is_floating_point:
        raise GradwireValueError(f"{name}(): dtype must be real floating, not {of}")
    return of


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The frequencies in ascending order: zero moved to the middle."""
    return _shifted("fftshift", x, axes)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of fftshift."""
    return _shifted("ifftshift", x, axes)


def _shifted(op: str, x: Tensor, axes: Any) -> Array:
    along = axes_of(x, axes if axes is None or isinstance(axes, int) else tuple(axes))
    return call(f"fft.{op}", x, along) if along else as_array(x, (x,))

"""Fourier transforms made of the ops: of Hermitian signals in several dimensions, and sample frequencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._functions.create import arange
from gradwire._tensor import ops
from gradwire._tensor.out import _into
from gradwire._tensor.tensor import Tensor

__all__ = ["fftfreq", "hfft2", "hfftn", "ihfft2", "ihfftn", "rfftfreq"]

# The inverse transform has the other scale.
_OTHER = {None: "forward", "backward": "forward", "forward": "backward"}
_Dims = Sequence[int] | int | None


def hfftn(
    input: Tensor, s: _Dims = None, dim: _Dims = None, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Real transform over dimensions of half of a signal that is Hermitian in the last of them (torch.fft.hfftn)."""
    return ops.fft_irfftn(input.conj(), s, dim, _OTHER.get(norm, norm), out=out)


def hfft2(
    input: Tensor, s: _Dims = None, dim: _Dims = (-2, -1), norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """`hfftn` over two dimensions (torch.fft.hfft2)."""
    return hfftn(input, s, dim, norm, out=out)


def ihfftn(
    input: Tensor, s: _Dims = None, dim: _Dims = None, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Inverse of `hfftn`, of a real signal (torch.fft.ihfftn)."""
    made: Tensor = ops.fft_rfftn(input, s, dim, _OTHER.get(norm, norm)).conj()
    return made if out is None else _into("ihfftn", out, made)


def ihfft2(
    input: Tensor, s: _Dims = None, dim: _Dims = (-2, -1), norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """`ihfftn` over two dimensions (torch.fft.ihfft2)."""
    return ihfftn(input, s, dim, norm, out=out)


def fftfreq(n: int, d: float = 1.0, **options: Any) -> Tensor:
    """Frequencies of the n terms of `fft` of samples d apart: 0, 1, …, -2, -1 over n d (torch.fft.fftfreq)."""
    half = (n + 1) // 2
    return _frequencies(n, 1.0 / (n * d), options, lambda k: ops.cat([k[:half], k[half:] - n]))


def rfftfreq(n: int, d: float = 1.0, **options: Any) -> Tensor:
    """Frequencies of the terms of `rfft` of n samples d apart: 0, 1, …, n/2 over n d (torch.fft.rfftfreq)."""
    return _frequencies(n // 2 + 1, 1.0 / (n * d), options, lambda k: k)


def _frequencies(count: int, scale: float, options: dict[str, Any], order: Callable[[Tensor], Any]) -> Tensor:
    requires_grad, out = options.pop("requires_grad", False), options.pop("out", None)
    options.setdefault("dtype", None)
    if options["dtype"] is None:
        options["dtype"] = dtypes.get_default_dtype() if out is None else out.dtype
    made: Tensor = order(arange(count, **options)) * scale
    return made.requires_grad_(requires_grad) if out is None else _into("fftfreq", out, made)

"""Windows of signal processing (torch.signal.windows): symmetric, or periodic if `sym` is False."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._functions.create import empty, linspace, ones, tensor
from gradwire._tensor import ops

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def _checked(name: str, length: int, options: dict[str, Any]) -> dict[str, Any]:
    """The options of the tensor, with its dtype. Raises ValueError for a length or dtype that no window can have."""
    if "out" in options:
        raise TypeError(f"{name}() got an unexpected keyword argument 'out'")
    options = {**options, "dtype": options.get("dtype") or dtypes.get_default_dtype()}
    if length < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={length}")
    layout = options.pop("layout", None)
    if layout is not None and str(layout).rpartition(".")[2] != "strided":
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if options["dtype"] not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {options['dtype']}")
    return options


def _places(start: float, step: float, length: int, options: dict[str, Any]) -> Any:
    return linspace(start * step, (start + (length - 1)) * step, length, **options)


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any) -> Any:
    """exp(-|n - center| / tau) of n from 0 to M - 1, float32 or float64 (torch.signal.windows.exponential).

    Raises ValueError for a `tau` that is not positive, and for a `center` of a symmetric window.
    """
    options = _checked("exponential", M, options)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if M == 0:
        return empty(0, **options)
    middle = (M if not sym and M > 1 else M - 1) / 2.0 if center is None else center
    return (-_places(-middle, 1 / tau, M, options).abs()).exp()


def cosine(M: int, *, sym: bool = True, **options: Any) -> Any:
    """sin(π (n + 1/2) / M) of n from 0 to M - 1, float32 or float64 (torch.signal.windows.cosine)."""
    options = _checked("cosine", M, options)
    if M == 0:
        return empty(0, **options)
    return _places(0.5, math.pi / (M + 1 if not sym and M > 1 else M), M, options).sin()


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Any:
    """exp(-(n - middle)² / (2 std²)) of n from 0 to M - 1, float32 or float64 (torch.signal.windows.gaussian).

    Raises ValueError for an `std` that is not positive.
    """
    options = _checked("gaussian", M, options)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if M == 0:
        return empty(0, **options)
    start = -(M if not sym and M > 1 else M - 1) / 2.0
    return (-(_places(start, 1 / (std * math.sqrt(2)), M, options) ** 2)).exp()


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Any:
    """Kaiser's window of M values with shape `beta`, float32 or float64 (torch.signal.windows.kaiser).

    Raises ValueError for a negative `beta`.
    """
    options = _checked("kaiser", M, options)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M < 2:
        return ones(M, **options)
    # PyTorch computes the ends in the window's dtype: the last place must not exceed beta there.
    plain = {name: value for name, value in options.items() if name != "requires_grad"}
    shape = tensor(beta, **plain)
    end = ops.minimum(shape, -shape + (M - 1) * (2.0 * shape / (M if not sym else M - 1)))
    places = linspace((-shape).item(), end.item(), M, **options)
    return ops.i0((shape * shape - places.pow(2)).sqrt()) / ops.i0(shape)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Any:
    """Triangle of M values with zeros at its ends, float32 or float64 (torch.signal.windows.bartlett)."""
    options = _checked("bartlett", M, options)
    if M < 2:
        return ones(M, **options)
    step = 2 / (M if not sym else M - 1)
    return 1 - linspace(-1, -1 + (M - 1) * step, M, **options).abs()


def general_cosine(M: int, *, a: Sequence[float], sym: bool = True, **options: Any) -> Any:
    """Sum of a[i] (-1)^i cos(2π i n / (M - 1)), float32 or float64 (torch.signal.windows.general_cosine).

    Raises TypeError for coefficients that are no list, ValueError for none.
    """
    options = _checked("general_cosine", M, options)
    if M < 2:
        return ones(M, **options)
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    places = _places(0, 2 * math.pi / (M if not sym else M - 1), M, options)
    weights = tensor([(-1) ** i * weight for i, weight in enumerate(a)], **options)
    harmonics = tensor([float(i) for i in range(len(a))], **options)
    return (weights.unsqueeze(-1) * (harmonics.unsqueeze(-1) * places).cos()).sum(0)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Any:
    """alpha - (1 - alpha) cos(2π n / (M - 1)), float32 or float64 (torch.signal.windows.general_hamming)."""
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Any:
    """Hamming's window of M values, float32 or float64 (torch.signal.windows.hamming)."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Any:
    """Hann's window of M values, float32 or float64 (torch.signal.windows.hann)."""
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Any:
    """Blackman's window of M values, float32 or float64 (torch.signal.windows.blackman)."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Any:
    """Nuttall's window of four terms, M values, float32 or float64 (torch.signal.windows.nuttall)."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)

"""Draws: methods of Tensor that fill it with random numbers, from the session's generator or a given one."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from gradwire._base import dtypes
from gradwire._base.errors import GradwireNotImplementedError
from gradwire._base.wiring import wired
from gradwire._proxy.handle import Handle
from gradwire._tensor.call import _call

_T = TypeVar("_T", bound="Draws")
# Powers of two up to which a dtype holds each integer.
_DIGITS = {dtypes.float64: 53, dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8}


class Draws(Handle):
    """uniform_ and similar methods. No gradient flows to the overwritten values."""

    __slots__ = ()

    def uniform_(self: _T, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **named: float) -> _T:
        """Fill with numbers uniform in [`from`, `to`)."""
        return _drawn(self, "uniform_", generator, _first(named, "uniform_", from_), to)

    def normal_(self: _T, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> _T:
        """Fill with numbers of a normal distribution."""
        return _drawn(self, "normal_", generator, mean, std)

    def exponential_(self: _T, lambd: float = 1.0, *, generator: Any = None) -> _T:
        """Fill with numbers of an exponential distribution."""
        return _drawn(self, "exponential_", generator, lambd)

    def cauchy_(self: _T, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> _T:
        """Fill with numbers of a Cauchy distribution."""
        return _drawn(self, "cauchy_", generator, median, sigma)

    def log_normal_(self: _T, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> _T:
        """Fill with numbers of a log-normal distribution; mean and std are the logarithm's."""
        return _drawn(self, "log_normal_", generator, mean, std)

    def geometric_(self: _T, p: float, *, generator: Any = None) -> _T:
        """Fill with numbers of trials until the first success, each with probability p."""
        return _drawn(self, "geometric_", generator, p)

    def random_(self: _T, *bounds: int, to: int | None = None, generator: Any = None, **named: int) -> _T:
        """Fill with integers: random_() up to the dtype's largest exact integer, random_(to), random_(from, to)."""
        low, high = _first(named, "random_", 0), to
        if len(bounds) == 2:
            low, high = bounds
        elif bounds:
            low, high = (0, bounds[0]) if to is None else (bounds[0], to)
        _warn_of_bounds(self, low, high)
        return _drawn(self, "random_", generator, low, high)

    def bernoulli_(self: _T, p: Any = 0.5, *, generator: Any = None) -> _T:
        """Fill with ones and zeros. The probability p of a one is a number or a tensor that broadcasts to this one."""
        if not isinstance(p, Handle):
            return _drawn(self, "bernoulli_", generator, float(p))
        target: Any = self
        for kind, name in ((target.dtype, "self"), (p._spec.dtype, "p")):
            if kind.is_complex:
                raise GradwireNotImplementedError(
                    f"\"bernoulli_tensor_cpu_{name}_\" not implemented for '{kind.title}'"
                )
        chances: Any = _call("broadcast_to", (_call("detach", (p,)), target.shape))
        strides = target.stride()
        axes = sorted(range(target.ndim), key=lambda axis: -strides[axis])  # the order of memory, as for other draws
        with _used(generator):
            drawn: Any = _call("bernoulli", (chances.permute(axes),))
        target.copy_(drawn.permute([axes.index(axis) for axis in range(target.ndim)]))
        return self


def _warn_of_bounds(tensor: Any, low: int, high: int | None) -> None:
    """Warn of bounds between which a floating dtype does not hold each integer, as PyTorch does."""
    digits = _DIGITS.get(tensor.dtype)
    if digits is None:
        return
    for name, bound in (("from", low), ("to - 1", 0 if high is None else high - 1)):
        if abs(bound) > 1 << digits:
            warnings.warn(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}]: {tensor.dtype} does not hold each integer up to "
                f"{bound}",
                UserWarning,
                stacklevel=3,
            )


def _first(named: dict[str, Any], name: str, default: Any) -> Any:
    """Value of the argument `from`, a keyword of Python that can only be passed as `**{"from": 1}`."""
    value = named.pop("from", default)
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
    return value


def _used(generator: Any) -> Any:
    return (generator or wired("default_generator")).used()


def _drawn(self: _T, op: str, generator: Any, *args: Any) -> _T:
    with _used(generator):
        _call(op, (self, *args))
    return self

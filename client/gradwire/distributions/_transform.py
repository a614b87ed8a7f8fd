"""Transform: invertible functions with the logarithm of their derivative; chains and batches of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
from gradwire._functions.create import zeros_like
from gradwire.distributions._utils import _sum_rightmost


class Transform:
    """The base: a subclass defines `_call`, `_inverse` and `log_abs_det_jacobian(x, y)`; `sign` is the derivative's.

    With `cache_size=1` the inverse of the last result is its input. Raises ValueError for another size.
    """

    bijective = False
    domain: Any
    codomain: Any
    sign: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Transform | None = None
        self._last: tuple[Any, Any] = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inv": None}

    def __getattr__(self, name: str) -> Any:
        if name == "sign":
            raise NotImplementedError(f"{type(self).__name__} has no sign")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def event_dim(self) -> int:
        """Dimensions that belong together. Raises ValueError if input and result differ."""
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse."""
        if self._inv is None:
            self._inv = _Inverse(self)
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same with a cache of that size."""
        if self._cache_size == cache_size:
            return self
        return self._again(cache_size)

    def _again(self, cache_size: int) -> Transform:
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __call__(self, x: Any) -> Any:
        """y."""
        return self._cached(x, 0, self._call)

    def _inv_call(self, y: Any) -> Any:
        return self._cached(y, 1, self._inverse)

    def _cached(self, given: Any, place: int, compute: Callable[[Any], Any]) -> Any:
        if not self._cache_size:
            return compute(given)
        if self._last[place] is not given:
            made = compute(given)
            self._last = (made, given) if place else (given, made)
        return self._last[1 - place]

    def _call(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} gives no _call")

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} gives no _inverse")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |dy / dx|."""
        raise NotImplementedError(f"{type(self).__name__} gives no log_abs_det_jacobian")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Any) -> Any:
        """The result's shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The input's shape for a result's."""
        return shape


class AlikeTransform(Transform):
    """A transform without arguments: all of one class are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


class _Inverse(Transform):
    def __init__(self, forward: Transform) -> None:
        super().__init__(forward._cache_size)
        self._forward = forward

    @property
    def domain(self) -> Any:
        return self._forward.codomain

    @property
    def codomain(self) -> Any:
        return self._forward.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self._forward.bijective

    @property
    def sign(self) -> Any:
        return self._forward.sign

    @property
    def inv(self) -> Transform:
        return self._forward

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._forward.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inverse) and self._forward == other._forward

    def __hash__(self) -> int:
        return hash((_Inverse, self._forward))

    def __call__(self, x: Any) -> Any:
        return self._forward._inv_call(x)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._forward.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._forward.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._forward.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._forward!r})"


class ComposeTransform(Transform):
    """Several transforms, one after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash((ComposeTransform, *self.parts))

    @property
    def domain(self) -> Any:
        """The first part's, with as many dimensions as any part needs."""
        if not self.parts:
            return constraints.real
        count = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            count = max(count + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return _widened(self.parts[0].domain, count)

    @property
    def codomain(self) -> Any:
        """The last part's, with as many dimensions as any part needs."""
        if not self.parts:
            return constraints.real
        count = self.parts[0].domain.event_dim
        for part in self.parts:
            count = max(count + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return _widened(self.parts[-1].codomain, count)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all parts are."""
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        """The product of the parts'."""
        return math.prod(part.sign for part in self.parts)

    @property
    def inv(self) -> Transform:
        """The parts' inverses, the last first."""
        if self._inv is None:
            self._inv = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def _again(self, cache_size: int) -> Transform:
        return ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Any) -> Any:
        """y."""
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The sum of the parts'."""
        if not self.parts:
            return zeros_like(x)
        at = [x]
        for part in self.parts[:-1]:
            at.append(part(at[-1]))
        at.append(y)
        total: Any = None
        count = self.domain.event_dim
        for part, before, after in zip(self.parts, at[:-1], at[1:], strict=True):
            term = _sum_rightmost(part.log_abs_det_jacobian(before, after), count - part.domain.event_dim)
            total = term if total is None else total + term
            count += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape: Any) -> Any:
        """The result's shape."""
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The input's shape for a result's."""
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"ComposeTransform(\n    {', '.join(map(repr, self.parts))}\n)"


def _widened(constraint: Any, event_dim: int) -> Any:
    """A constraint with that many dimensions judged together."""
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Another transform, with further dimensions that belong together."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def _again(self, cache_size: int) -> Transform:
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @property
    def domain(self) -> Any:
        """The base's, with the further dimensions."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Any:
        """The base's, with the further dimensions."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """As the base."""
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        """As the base."""
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        if x.dim() < self.domain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        if y.dim() < self.codomain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The base's, summed over the further dimensions."""
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        """The result's shape."""
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        """The input's shape for a result's."""
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

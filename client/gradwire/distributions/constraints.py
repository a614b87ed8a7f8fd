"""What values an argument or a sample may have (torch.distributions.constraints): `check(value)` returns which do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._functions.create import full
from gradwire._proxy.handle import Handle
from gradwire._tensor import ops

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class Constraint:
    """The base: a subclass defines `check`; `event_dim` trailing dimensions are judged together."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Any:
        """Which values hold it: a bool for a number, a tensor of bools for a tensor."""
        raise NotImplementedError(f"{type(self).__name__} gives no check")

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Dependent(Constraint):
    """The support of a distribution whose bounds are its arguments; only an instance knows it."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """Raises NotImplementedError where only an instance knows it."""
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return bool(self._is_discrete)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """Raises NotImplementedError where only an instance knows it."""
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return int(self._event_dim)

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        """The same with what is known of every instance."""
        discrete = self._is_discrete if is_discrete is NotImplemented else is_discrete
        return _Dependent(is_discrete=discrete, event_dim=self._event_dim if event_dim is NotImplemented else event_dim)

    def check(self, value: Any) -> Any:
        """Raises ValueError."""
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether only an instance of a distribution knows it."""
    return isinstance(constraint, _Dependent)


class dependent_property(property, _Dependent):
    """A property of an instance; of the class, a constraint that only an instance knows."""

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, fn: Callable[..., Any]) -> dependent_property:  # type: ignore[override]
        """The decorator: a property with what is known of every instance."""
        return dependent_property(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class independent(Constraint):
    """Another constraint, with further dimensions judged together."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """As the base."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """The base's and the further ones."""
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        """See Constraint. Raises ValueError for a value of fewer dimensions."""
        held, count = self.base_constraint.check(value), self.reinterpreted_batch_ndims
        if held.ndim < count:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return _all_of(held, held.ndim - count)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


def _all_of(held: Any, kept: int) -> Any:
    """Whether all hold over the dimensions behind the first `kept`."""
    return held.all(tuple(range(kept, held.ndim))) if held.ndim > kept else held


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: that of every component."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """As the components."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """As the components."""
        return self.base_constraint.event_dim

    def check(self, value: Any) -> Any:
        """See Constraint. Raises ValueError for a value of fewer dimensions."""
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        held = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return _all_of(held, value.dim() - self.event_dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Bounded(Constraint):
    """A constraint with bounds, which its repr shows."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.__dict__.items())
        return f"{_NAMES[type(self)]}({shown})"


def _whole(value: Any, held: Any) -> Any:
    """Where a condition holds and the value is a whole number, as every value of an integer tensor is."""
    if isinstance(value, Handle) and not value._spec.dtype.is_floating_point:
        return held
    return (value % 1 == 0) & held


class _IntegerGreaterThan(_Bounded):
    is_discrete = True

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Any) -> Any:
        return _whole(value, value >= self.lower_bound)


class integer_interval(_Bounded):
    """A whole number between two bounds, both included."""

    is_discrete = True

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        """See Constraint."""
        return _whole(value, (value >= self.lower_bound) & (value <= self.upper_bound))


class _Real(Constraint):
    def check(self, value: Any) -> Any:
        return value == value  # not nan


class greater_than(_Bounded):
    """Above a bound."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Any) -> Any:
        """See Constraint."""
        return self.lower_bound < value


class greater_than_eq(_Bounded):
    """A bound, or above."""

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Any) -> Any:
        """See Constraint."""
        return self.lower_bound <= value


class less_than(_Bounded):
    """Below a bound."""

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        """See Constraint."""
        return value < self.upper_bound


class interval(_Bounded):
    """Between two bounds, both included."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        """See Constraint."""
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class half_open_interval(interval):
    """Between two bounds, the upper one excluded."""

    def check(self, value: Any) -> Any:
        """See Constraint."""
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class multinomial(Constraint):
    """Whole numbers that add up to at most a bound. PyTorch's check demands no whole numbers either."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        """See Constraint."""
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)

    def __repr__(self) -> str:
        return "Multinomial()"


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Any) -> Any:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Any) -> Any:
        tolerance = dtypes.finfo(value.dtype).eps * value.size(-1) * 10
        lengths = ops.linalg_norm(value.detach(), dim=-1)
        return super().check(value) & ((lengths - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        *batch, rows, columns = value.shape
        return full(batch, rows == columns, dtype=dtypes.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return ops.isclose(value, value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        held = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return held
        return held & (ops.linalg_eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        held = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return held
        return held & (ops.linalg_eigvalsh(value) > 0).all(-1)


class _Several(Constraint):
    """Constraints of parts of a value, along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(each, Constraint) for each in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq = list(cseq)
        self.dim = dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """Whether one of them is."""
        return any(each.is_discrete for each in self.cseq)

    def _check_dim(self, value: Any) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for value with {value.dim()} dimensions")


class cat(_Several):
    """Constraints of the parts of a value along a dimension, of `lengths` each."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """The most of them."""
        return max(each.event_dim for each in self.cseq)

    def check(self, value: Any) -> Any:
        """See Constraint."""
        self._check_dim(value)
        parts = ops.split_with_sizes(value.narrow(self.dim, 0, sum(self.lengths)), self.lengths, self.dim)
        return ops.cat([each.check(part) for each, part in zip(self.cseq, parts, strict=True)], self.dim)

    def __repr__(self) -> str:
        return "Cat()"


class stack(_Several):
    """Constraints of the slices of a value along a dimension."""

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        """The most of them, and the dimension if it lies among these."""
        most = max(each.event_dim for each in self.cseq)
        return most + 1 if self.dim + most < 0 else most

    def check(self, value: Any) -> Any:
        """See Constraint."""
        self._check_dim(value)
        parts = [value.select(self.dim, place) for place in range(value.size(self.dim))]
        return ops.stack([each.check(part) for part, each in zip(parts, self.cseq, strict=False)], self.dim)

    def __repr__(self) -> str:
        return "Stack()"


_NAMES: dict[type, str] = {
    _IntegerGreaterThan: "IntegerGreaterThan",
    integer_interval: "IntegerInterval",
    greater_than: "GreaterThan",
    greater_than_eq: "GreaterThanEq",
    less_than: "LessThan",
    interval: "Interval",
    half_open_interval: "HalfOpenInterval",
}
dependent = _Dependent()
real = _Real()
real_vector = independent(real, 1)
positive = greater_than(0.0)
nonnegative = greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
simplex = _Simplex()
boolean = _Boolean()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
one_hot = _OneHot()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()

"""What values an argument or a sample may have (torch.distributions.constraints): `check(value)` returns which do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._tensor import ops


class Constraint:
    """A condition by name; `event_dim` trailing dimensions are judged together.

    `text` may be a function, if bounds are tensors, which only an error shows.
    """

    def __init__(
        self,
        text: str | Callable[[], str],
        check: Callable[[Any], Any],
        event_dim: int = 0,
        is_discrete: bool = False,
    ) -> None:
        self._text = text
        self._check = check
        self.event_dim = event_dim
        self.is_discrete = is_discrete

    def check(self, value: Any) -> Any:
        """Which values hold it: a bool for a number, a tensor of bools for a tensor."""
        return self._check(value)

    def __repr__(self) -> str:
        return self._text if isinstance(self._text, str) else self._text()


def _sums_to_one(value: Any) -> Any:
    return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


def _is_lower_cholesky(value: Any) -> Any:
    return (value.tril() == value).flatten(-2).all(-1) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


def _is_positive_definite(value: Any) -> Any:
    symmetric = (value - value.mT).abs().flatten(-2).amax(-1) < 1e-6
    return symmetric & (ops.linalg_eigvalsh(value) > 0).all(-1)


def _whole(value: Any) -> Any:
    return value % 1 == 0


real = Constraint("Real()", lambda value: value == value)
real_vector = Constraint("IndependentConstraint(Real(), 1)", lambda value: (value == value).all(-1), 1)
positive = Constraint("GreaterThan(lower_bound=0.0)", lambda value: value > 0)
nonnegative = Constraint("GreaterThanEq(lower_bound=0.0)", lambda value: value >= 0)
unit_interval = Constraint("Interval(lower_bound=0.0, upper_bound=1.0)", lambda value: (value >= 0) & (value <= 1))
simplex = Constraint("Simplex()", _sums_to_one, 1)
boolean = Constraint("Boolean()", lambda value: (value == 0) | (value == 1), 0, True)
nonnegative_integer = Constraint(
    "IntegerGreaterThan(lower_bound=0)", lambda value: _whole(value) & (value >= 0), 0, True
)
one_hot = Constraint("OneHot()", lambda value: ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1), 1, True)
lower_cholesky = Constraint("LowerCholesky()", _is_lower_cholesky, 2)
positive_definite = Constraint("PositiveDefinite()", _is_positive_definite, 2)


def greater_than(bound: Any) -> Constraint:
    """Above a bound."""
    return Constraint(lambda: f"GreaterThan(lower_bound={bound})", lambda value: value > bound)


def interval(low: Any, high: Any) -> Constraint:
    """Between two bounds, both included."""
    return Constraint(
        lambda: f"Interval(lower_bound={low}, upper_bound={high})", lambda value: (value >= low) & (value <= high)
    )


def integer_interval(low: Any, high: Any) -> Constraint:
    """A whole number between two bounds, both included."""
    return Constraint(
        f"IntegerInterval(lower_bound={low}, upper_bound={high})",
        lambda value: _whole(value) & (value >= low) & (value <= high),
        0,
        True,
    )

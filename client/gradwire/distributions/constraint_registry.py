"""Transforms of real numbers to what a constraint allows (torch.distributions.constraint_registry)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradwire.distributions.constraints as constraints
import gradwire.distributions.transforms as transforms
from gradwire.distributions.constraints import Constraint
from gradwire.distributions.transforms import Transform

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Finds the transform of a constraint by the constraint's class."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Transform]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], Transform] | None = None) -> Any:
        """Register `factory(constraint)` for a class, or an instance's class; without a factory, a decorator.

        Raises TypeError for anything else.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Transform:
        """The transform. Raises NotImplementedError where none is registered."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(constraint: Any, factory: Callable[[Any], Transform]) -> None:
    for registry in (biject_to, transform_to):
        registry.register(constraint, factory)


def _beyond(constraint: Any) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


def _below(constraint: Any) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _of_parts(registry: ConstraintRegistry) -> None:
    """Register what is made of other constraints."""
    registry.register(
        constraints.independent,
        lambda each: transforms.IndependentTransform(registry(each.base_constraint), each.reinterpreted_batch_ndims),
    )
    registry.register(
        constraints.cat,
        lambda each: transforms.CatTransform([registry(one) for one in each.cseq], each.dim, each.lengths),
    )
    registry.register(
        constraints.stack, lambda each: transforms.StackTransform([registry(one) for one in each.cseq], each.dim)
    )


_both(constraints.real, lambda _: transforms.identity_transform)
_both(constraints.greater_than, _beyond)
_both(constraints.greater_than_eq, _beyond)
_both(constraints.less_than, _below)
_both(constraints.interval, _between)
_both(constraints.half_open_interval, _between)
_both(constraints.corr_cholesky, lambda _: transforms.CorrCholeskyTransform())
biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda _: transforms.PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda _: transforms.PositiveDefiniteTransform())
_of_parts(biject_to)
_of_parts(transform_to)

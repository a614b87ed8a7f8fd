"""In-place changes of views: the ops of the nodes that op/rebase.py records. They have no public names."""

from __future__ import annotations

from typing import Any, TypeAlias

from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import Meta
from gradwire_engine.op.op import op
from gradwire_engine.op.rebase import AS_BEFORE, OVERWRITE, SHOW, ViewRoute
from gradwire_engine.ops.base.basic import fit, sum_to_size

Ints: TypeAlias = Any


@op(name=AS_BEFORE, cost=4)
def as_before(xp: Any, input: Array) -> Array:
    """The input unchanged; its sizes have since changed from those that its node recorded."""
    return input


def _fit_to_changed_shape(g: Any, shape: tuple[int, ...]) -> Any:
    """Fit a gradient to a shape that has changed, as PyTorch does: sum broadcast dimensions.

    Raises EngineError: SHAPE if the shape does not broadcast to the gradient's.
    """
    if g.shape == shape:
        return g
    kept = g.shape[len(g.shape) - len(shape) :]
    if len(shape) <= len(g.shape) and all(n in (1, m) for n, m in zip(shape, kept, strict=True)):
        return sum_to_size(g, shape)
    raise EngineError(
        Reason.SHAPE,
        f"a function returned an invalid gradient - got {list(g.shape)} but expected shape compatible with "
        f"{list(shape)}: the tensor's sizes were changed in place, unrecorded, after its node was made",
    )


as_before.grad(input=lambda g, input_meta: _fit_to_changed_shape(g, input_meta.shape))


@op(name=SHOW, node="AsStridedBackward0", cost=4)
def show(xp: Any, input: Array, route: Ints) -> Array:
    """Copy of the part of a base, or of the base's gradient, that one of its views covers."""
    return route.follow(route.copy(xp, input))


@op(name=OVERWRITE, node="CopySlices", cost=4)
def overwrite(xp: Any, input: Array, source: Array | Number, route: Ints) -> Array:
    """Copy of the base with a view's part overwritten."""
    result = route.copy(xp, input)
    route.follow(result)[...] = source
    return result


def _scatter_into_base(g: Any, route: ViewRoute) -> Any:
    """Put a view's gradient into zeros of the base's shape: apply the formulas of the view's ops, last op first."""
    for step in reversed(route.steps):
        formula, names = step.op.formulas[step.op.params[0].name]
        known = {param.name: value for param, value in zip(step.op.params[1:], step.args, strict=True)}
        known[f"{step.op.params[0].name}_meta"] = Meta(step.shape, step.dtype, route.device)
        g = fit(formula(g, *[known[name] for name in names]), (step.shape, step.dtype))
    return g


show.grad(input=lambda g, route: _scatter_into_base(g, route))
overwrite.grad(
    input=lambda g, route: overwrite(g, 0, route),
    source=lambda g, route: show(g, route),
)

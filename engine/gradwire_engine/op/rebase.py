"""In-place changes of views: what they do to the base's history, and how views follow it.

Changing a view is changing a part of its base. So the base's new node (`CopySlices`) is "the old base, with this part
written over", and the changed part comes of the op that changed it. Every view, the changed one too, from then on is
the view of that new base: its node is made anew (`AsStridedBackward0`) when somebody asks.

A `Route` is the ops from a base to a view. Forward they are applied to arrays; backward their own formulas are, last
op first, so this file knows no view op by name but `as_strided`, whose geometry is that of the base's memory.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from gradwire_engine.core.device import Array, device_of
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import Edge, Meta, Node
from gradwire_engine.graph.tensor import Step, Tensor, ViewOf, edge_of, move_to, refresh
from gradwire_engine.op.op import op
from gradwire_engine.op.refusals import check_base
from gradwire_engine.ops.base.basic import fit, sum_to_size
from gradwire_engine.ops.shape.strided import as_strided_view, geometry_of, laid_out

Ints: TypeAlias = Any


class Route:
    """The ops from a base to a view, first op first, and how the base lies in memory if not row by row."""

    __slots__ = ("device", "geometry", "steps")

    def __init__(self, base: Array, last: Step) -> None:
        self.device = device_of(base)
        self.steps: list[Step] = []
        step: Step | None = last
        while step is not None:
            self.steps.append(step)
            step = step.before
        self.steps.reverse()
        absolute = [place for place, step in enumerate(self.steps) if step.op is as_strided_view]
        own = bool(absolute) or not base.flags.c_contiguous
        self.geometry = geometry_of(base) if own else None
        if absolute and self.geometry is not None:
            # A geometry tells places in memory, whatever views lay between: it may reach beyond what they show.
            first = self.steps[absolute[-1]]
            (_, target, _), (source, whole) = first.args, self.geometry
            self.steps[: absolute[-1] + 1] = [Step(None, first.op, (source, target, (whole,)), base)]

    def copy(self, xp: Any, base: Array) -> Array:
        """A copy of a base, or of its gradient, that lies in memory as the base did: so that the ops make views."""
        # A gradient without dimensions may be a scalar of NumPy's, which cannot be written to.
        return xp.array(base, order="C") if self.geometry is None else laid_out(xp, base, self.geometry)

    def follow(self, base: Array) -> Array:
        """The part of such a copy that the view shows."""
        for step in self.steps:
            base = step.op.compute((base, *step.args))
        return base


def node_of_view(view: Tensor, held: ViewOf) -> Node:
    """The node that makes a view of its base as that is now."""
    base = held.base
    follow_base(view, held)
    edge = edge_of(base)
    return _node(show, (base, Route(base.array, held.last)), (view,), (edge,))


def follow_base(view: Tensor, held: ViewOf) -> None:
    """Let a view whose base had its sizes changed in place, unrecorded, come of the base's memory directly.

    Raises EngineError: RUNTIME where the base has other memory by now.
    """
    if held.source is held.base.array:
        return
    check_base(view, held)
    source, _ = geometry_of(held.base.array)
    target, whole = geometry_of(view.array)
    held.last = Step(None, as_strided_view, (source, target, (whole,)), held.base.array)
    held.source = held.base.array


def by_route(target: Tensor) -> None:
    """Let a view that is to be changed come of its base directly, where views between hide what it shows."""
    held = target.view
    assert held is not None
    follow_base(target, held)
    step = held.last
    while step.before is not None:
        if step.op is as_strided_view:
            move_to(target, node_of_view(target, held), 0)
            return
        step = step.before


def rewrite(target: Tensor, node: Node, index: int) -> None:
    """Give a tensor that was changed in place the node of its new values; of a view, its base gets another one."""
    held = target.view
    if held is None:
        move_to(target, node, index)
        target.requires_grad = True
        target.storage.history += 1
        return
    base = held.base
    follow_base(target, held)
    route = Route(base.array, held.last)
    written = _node(overwrite, (base, target, route), (base,), (edge_of(base), (node, index)))
    written.command = node.command
    move_to(base, written, 0)
    base.requires_grad = True
    target.storage.history += 1
    refresh(target)


def _node(op: Any, args: tuple[Any, ...], outputs: tuple[Tensor, ...], edges: tuple[Edge | None, ...]) -> Node:
    """A node of an op that was applied already, or whose edges are not those of its arguments."""
    plan = op.plan(sum(1 << slot for slot, edge in enumerate(edges) if edge is not None))
    metas = tuple(
        None if edge is None else (args[place].array.shape, args[place].array.dtype)
        for place, edge in zip(op.tensor_places, edges, strict=True)
    )
    return Node(op, op.node_name, plan, plan.save(args, outputs), edges, metas)


def node_as_before(target: Tensor) -> Node:
    """The node of a tensor whose sizes are about to change without a record: it stands for the one that there is."""
    assert target.node is not None
    made = _node(as_before, (target,), (target,), ((target.node, target.index),))
    made.name, made.command = target.node.name, target.node.command
    made.retained, target.node.retained = target.node.retained, None
    return made


@op(name="_as_before")
def as_before(xp: Any, input: Array) -> Array:
    """The input, whose sizes are others by now than those that its node made."""
    return input


def _of_sizes(g: Any, shape: tuple[int, ...]) -> Any:
    """A gradient as PyTorch takes one where sizes changed: summed to what it broadcasts from, or refused."""
    if g.shape == shape:
        return g
    kept = g.shape[len(g.shape) - len(shape) :]
    if len(shape) <= len(g.shape) and all(n in (1, m) for n, m in zip(shape, kept, strict=True)):
        return sum_to_size(g, shape)
    raise EngineError(
        Reason.SHAPE,
        f"a function returned an invalid gradient - got {list(g.shape)} but expected shape compatible with "
        f"{list(shape)}: the tensor's sizes were changed in place without a record since a node made it",
    )


as_before.grad(input=lambda g, input_meta: _of_sizes(g, input_meta.shape))


@op(name="_show", node="AsStridedBackward0")
def show(xp: Any, input: Array, route: Ints) -> Array:
    """The part of a base, or of its gradient, that a view of it shows; a copy."""
    return route.follow(route.copy(xp, input))


@op(name="_overwrite", node="CopySlices")
def overwrite(xp: Any, input: Array, source: Array | Number, route: Ints) -> Array:
    """The base with a view's part written over."""
    result = route.copy(xp, input)
    route.follow(result)[...] = source
    return result


def _hide(g: Any, route: Route) -> Any:
    """Zeros in the base's shape with a view's gradient in its part: the views' own formulas, last op first."""
    for step in reversed(route.steps):
        formula, names = step.op.formulas[step.op.params[0].name]
        known = {param.name: value for param, value in zip(step.op.params[1:], step.args, strict=True)}
        known[f"{step.op.params[0].name}_meta"] = Meta(step.shape, step.dtype, route.device)
        g = fit(formula(g, *[known[name] for name in names]), (step.shape, step.dtype))
    return g


show.grad(input=lambda g, route: _hide(g, route))
overwrite.grad(
    input=lambda g, route: overwrite(g, 0, route),
    source=lambda g, route: show(g, route),
)

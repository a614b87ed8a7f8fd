"""In-place changes of views: what they do to the base's history, and how views follow it.

Changing a view is changing a part of its base. So the base's new node (`CopySlices`) is "the old base, with this part
written over", and the changed part comes of the op that changed it. Every view, the changed one too, from then on is
the view of that new base: its node is made anew (`AsStridedBackward0`) when somebody asks.

A `Route` is the ops from a base to a view. Forward they are applied to arrays; backward their own formulas are, last
op first, so this file knows no view op by name but `as_strided`, whose geometry is that of the base's memory.
"""

from __future__ import annotations

from typing import Any

from gradwire_engine.core.device import Array, device_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import Edge, Node
from gradwire_engine.graph.tensor import Step, Tensor, ViewOf, check_base, edge_of, move_to, refresh
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.strides import geometry_of, laid_out

# Ops of this file's nodes and steps. They are declared above it, in ops/shape/, and looked up here.
AS_STRIDED, AS_BEFORE, SHOW, OVERWRITE = "_as_strided", "_as_before", "_show", "_overwrite"


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
        absolute = [place for place, step in enumerate(self.steps) if step.op.name == AS_STRIDED]
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


class OpView(ViewOf):
    """A view by ops: its node is one that goes their way again."""

    __slots__ = ()

    def new_node(self, view: Tensor) -> Node:
        """The node that makes a view of its base as that is now."""
        base = self.base
        follow_base(view, self)
        edge = edge_of(base)
        return _node(SHOW, (base, Route(base.array, self.last)), (view,), (edge,))


def follow_base(view: Tensor, held: ViewOf) -> None:
    """Let a view whose base had its sizes changed in place, unrecorded, come of the base's memory directly.

    Raises EngineError: RUNTIME where the base has other memory by now.
    """
    if held.source is held.base.array:
        return
    check_base(view, held)
    source, _ = geometry_of(held.base.array)
    target, whole = geometry_of(view.array)
    held.last = Step(None, OPS[AS_STRIDED], (source, target, (whole,)), held.base.array)
    held.source = held.base.array


def by_route(target: Tensor) -> None:
    """Let a view that is to be changed come of its base directly, where views between hide what it shows."""
    held = target.view
    assert held is not None
    follow_base(target, held)
    step = held.last
    while step.before is not None:
        if step.op.name == AS_STRIDED:
            move_to(target, held.new_node(target), 0)
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
    written = _node(OVERWRITE, (base, target, route), (base,), (edge_of(base), (node, index)))
    written.command = node.command
    move_to(base, written, 0)
    base.requires_grad = True
    target.storage.history += 1
    refresh(target)


def _node(name: str, args: tuple[Any, ...], outputs: tuple[Tensor, ...], edges: tuple[Edge | None, ...]) -> Node:
    """A node of an op that was applied already, or whose edges are not those of its arguments."""
    op = OPS[name]
    plan = op.plan(sum(1 << slot for slot, edge in enumerate(edges) if edge is not None))
    metas = tuple(
        None if edge is None else (args[place].array.shape, args[place].array.dtype)
        for place, edge in zip(op.tensor_places, edges, strict=True)
    )
    assert isinstance(op.node_name, str)
    return Node(op, op.node_name, plan, plan.save(args, outputs), edges, metas)


def _node_as_before(target: Tensor) -> Node:
    """The node of a tensor whose sizes are about to change without a record: it stands for the one that there is."""
    assert target.node is not None
    made = _node(AS_BEFORE, (target,), (target,), ((target.node, target.index),))
    made.name, made.command = target.node.name, target.node.command
    made.retained, target.node.retained = target.node.retained, None
    return made


def take_geometry(target: Tensor, view: Tensor) -> None:
    """Let a tensor have the sizes and strides of a view of it, and the view's node if it has one (torch.Tensor.t_).

    A leaf stays the leaf that it is, and a view follows its base as before, by one step more. Other views of the
    tensor follow it by where they lie in its memory. Raises EngineError: RUNTIME for what is no view of it.
    """
    held, made = target.view, view.view
    if view is not target:
        base, last = (target, None) if held is None else (held.base, held.last)
        if not target.storage.inference and (made is None or made.base is not base or not _leads_on(made.last, last)):
            raise EngineError(Reason.RUNTIME, "a tensor takes the sizes and strides of a view of it, not of another")
        if held is None and target.node is not None and view.node is None:
            target.node, target.index = _node_as_before(target), 0
        target.array = view.array
        if made is not None:
            if held is None:
                made.source = None  # it was made of what was there before
            else:
                held.last = made.last
    target.storage.changed()
    if view is target or view.node is None:
        return
    view.node.name = _name_in_place(view.node.name)
    move_to(target, view.node, view.index)
    if held is not None:
        held.version, held.seen = target.storage.version, target.storage.history


def _name_in_place(name: str) -> str:
    """The name of a view's node where the view was taken in place."""
    squeezed = {"SqueezeBackward0": "SqueezeBackward3", "SqueezeBackward1": "SqueezeBackward4"}
    return squeezed.get(name) or (name[:-1] + ("5" if name.startswith("Squeeze") else "1"))


def _leads_on(step: Step | None, start: Step | None) -> bool:
    """Whether the steps that end with one go on from another; None is their base."""
    while step is not None and step is not start:
        step = step.before
    return step is start

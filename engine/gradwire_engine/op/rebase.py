"""Rebase: records in-place changes of views in the base's graph, and updates the views.

An in-place change of a view changes a part of its base. The base's new node (`CopySlices`) stands for the old base with
this part overwritten; the new part comes from the op that changed it. After that, every view of the base, including the
changed one, is a view of the new base: its node (`AsStridedBackward0`) is made again on the next read.

A `ViewRoute` is the ops from a base to a view. Forward applies them to arrays; backward applies their formulas, last op
first. So this file names no view op except `as_strided`, whose geometry refers to the base's memory.
"""

from __future__ import annotations

from typing import Any

from gradwire_engine.core.device import Array, device_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import Edge, Node
from gradwire_engine.graph.tensor import Tensor, ViewOf, ViewStep, check_base, edge_of, refresh, set_gradient_edge
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.strides import Ints, geometry_of, laid_out

# Ops of this file's nodes and steps, declared in ops/shape/ and looked up by name.
AS_STRIDED, AS_BEFORE, SHOW, OVERWRITE = "_as_strided", "_as_before", "_show", "_overwrite"
_PARTS = "view_as_real"


class ViewRoute:
    """The ops from a base to a view, first op first, and the base's memory layout unless it is row-major."""

    __slots__ = ("device", "geometry", "steps")

    def __init__(self, base: Array, last: ViewStep) -> None:
        self.device = device_of(base)
        self.steps: list[ViewStep] = []
        step: ViewStep | None = last
        while step is not None:
            self.steps.append(step)
            step = step.before
        self.steps.reverse()
        absolute = [place for place, step in enumerate(self.steps) if step.op.name == AS_STRIDED]
        own = bool(absolute) or not base.flags.c_contiguous
        self.geometry = geometry_of(base) if own else None
        if absolute and self.geometry is not None:
            # as_strided addresses the base's memory directly, beyond the elements of the views before it.
            first = self.steps[absolute[-1]]
            self.steps[: absolute[-1] + 1] = _to_geometry(base, first.dtype, first.args[1])

    def copy(self, xp: Any, base: Array) -> Array:
        """Copy a base, or its gradient, with the base's memory layout, so that the ops return views."""
        # A 0-d gradient may be a NumPy scalar, which is read-only.
        return xp.array(base, order="C") if self.geometry is None else laid_out(xp, base, self.geometry)

    def follow(self, base: Array) -> Array:
        """The part of a base, or of a `copy`, that the view shows."""
        for step in self.steps:
            base = step.op.compute((base, *step.args))
        return base


def _to_geometry(base: Array, dtype: Any, target: Ints) -> list[ViewStep]:
    """Steps from a base to a geometry of its memory, which counts in elements of `dtype`.

    Raises EngineError: NOT_SUPPORTED if the dtype is neither the base's nor that of its real and imaginary parts.
    """
    before = None
    if base.dtype != dtype:
        if base.dtype.kind != "c" or dtype.itemsize * 2 != base.dtype.itemsize:
            raise EngineError(
                Reason.NOT_SUPPORTED,
                f"as_strided: a strided view of dtype {dtype} cannot be recorded for a base of dtype {base.dtype}",
            )
        parts = OPS[_PARTS]
        before = ViewStep(None, parts, (), base)
        base = parts.compute((base,))
    source, whole = geometry_of(base)
    strided = ViewStep(before, OPS[AS_STRIDED], (source, target, (whole,)), base)
    return [strided] if before is None else [before, strided]


class OpView(ViewOf):
    """A view made by ops: its new node applies them again."""

    __slots__ = ()

    def new_node(self, view: Tensor) -> Node:
        """Node that makes the view from the base's present values."""
        base = self.base
        follow_base(view, self)
        edge = edge_of(base)
        return _node(SHOW, (base, ViewRoute(base.array, self.last)), (view,), (edge,))


def follow_base(view: Tensor, held: ViewOf) -> None:
    """Derive a view directly from the base's memory, if the base's sizes were changed in place without a record.

    Raises EngineError: RUNTIME if the base's memory was replaced.
    """
    if held.source is held.base.array:
        return
    check_base(view, held)
    source, _ = geometry_of(held.base.array)
    target, whole = geometry_of(view.array)
    held.last = ViewStep(None, OPS[AS_STRIDED], (source, target, (whole,)), held.base.array)
    held.source = held.base.array


def by_route(target: Tensor) -> None:
    """Derive a view directly from its base before an in-place change, if that changes what a backward does.

    It does if an as_strided step follows other views: the view may then show elements that the views before it do not.
    And if the view's node has hooks: as in PyTorch, gradients then go from the new base's node to the old base's.
    """
    held = target.view
    assert held is not None and target.node is not None
    follow_base(target, held)
    hooks = target.node.hooks
    if hooks is not None and (any(hooks.tensor.values()) or hooks.before or hooks.after):
        set_gradient_edge(target, held.new_node(target), 0)
        return
    step = held.last
    while step.before is not None:
        if step.op.name == AS_STRIDED:
            set_gradient_edge(target, held.new_node(target), 0)
            return
        step = step.before


def rewrite(target: Tensor, node: Node, index: int) -> None:
    """Give a tensor changed in place the node of its new values; for a view, the base gets a `CopySlices` node."""
    held = target.view
    if held is None:
        set_gradient_edge(target, node, index)
        target.requires_grad = True
        target.storage.history += 1
        return
    base = held.base
    follow_base(target, held)
    route = ViewRoute(base.array, held.last)
    written = _node(OVERWRITE, (base, target, route), (base,), (edge_of(base), (node, index)))
    written.command = node.command
    set_gradient_edge(base, written, 0)
    base.requires_grad = True
    target.storage.history += 1
    refresh(target)


def _node(name: str, args: tuple[Any, ...], outputs: tuple[Tensor, ...], edges: tuple[Edge | None, ...]) -> Node:
    """Node of an op that was already applied, or whose edges differ from its arguments' edges."""
    op = OPS[name]
    plan = op.saving_plan(sum(1 << slot for slot, edge in enumerate(edges) if edge is not None))
    metas = tuple(
        None if edge is None else (args[place].array.shape, args[place].array.dtype)
        for place, edge in zip(op.tensor_positions, edges, strict=True)
    )
    assert isinstance(op.node_name, str)
    return Node(op, op.node_name, plan, plan.save(args, outputs), edges, metas)


def _node_as_before(target: Tensor) -> Node:
    """Node that stands for a tensor's present node, before its sizes change without a record."""
    assert target.node is not None
    made = _node(AS_BEFORE, (target,), (target,), ((target.node, target.index),))
    made.name, made.command = target.node.name, target.node.command
    made.retained, target.node.retained = target.node.retained, None
    return made


def take_geometry(target: Tensor, view: Tensor) -> None:
    """Give a tensor the sizes, strides and node of a view of it (torch.Tensor.t_).

    A leaf stays a leaf. A view follows its base by one more step. Other views of the tensor follow it by their
    position in its memory. Raises EngineError: RUNTIME if `view` is no view of the tensor.
    """
    held, made = target.view, view.view
    if view is not target:
        base, last = (target, None) if held is None else (held.base, held.last)
        if not target.storage.inference and (made is None or made.base is not base or not _leads_on(made.last, last)):
            raise EngineError(Reason.RUNTIME, "the sizes and strides must come from a view of the tensor itself")
        if held is None and target.node is not None and view.node is None:
            target.node, target.index = _node_as_before(target), 0
        target.array = view.array
        if made is not None:
            if held is None:
                made.source = None  # it was made from the previous array
            else:
                held.last = made.last
    target.storage.changed()
    if view is target or view.node is None:
        return
    view.node.name = _name_in_place(view.node.name)
    set_gradient_edge(target, view.node, view.index)
    if held is not None:
        held.version, held.seen = target.storage.version, target.storage.history


def _name_in_place(name: str) -> str:
    """Name of a view op's node if the op was applied in place."""
    squeezed = {"SqueezeBackward0": "SqueezeBackward3", "SqueezeBackward1": "SqueezeBackward4"}
    return squeezed.get(name) or (name[:-1] + ("5" if name.startswith("Squeeze") else "1"))


def _leads_on(step: ViewStep | None, start: ViewStep | None) -> bool:
    """Whether `start` is among the steps that lead to `step`; None is the base."""
    while step is not None and step is not start:
        step = step.before
    return step is start

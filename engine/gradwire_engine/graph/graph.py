"""The reverse graph as data: a node is an op, its saved values, and edges to the nodes of its inputs.

A node holds no closure. Its op's formulas are looked up in the registry, so a graph can be drawn, counted, saved
and moved. This module is below tensor.py: nodes hold tensors (`retained`, `variable`) without use of their class.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.dtypes import DType

if TYPE_CHECKING:
    from gradwire_engine.graph.hooks import Hooks
    from gradwire_engine.graph.protocols import GraphOp, SavingPlan

LAST = 1 << 62  # sequence number of leaves: their gradients are delivered as soon as they are complete


class Meta:
    """Shape, dtype and device of a tensor, without its data."""

    __slots__ = ("device", "dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: str) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


# Target of `fit` for a gradient: the input's shape and dtype.
Fit: TypeAlias = "tuple[tuple[int, ...], DType]"
Edge: TypeAlias = "tuple[Node | AccumulateGrad, int]"


class Node:
    """A recorded op. The formulas of `saving_plan` compute gradients from `saved`; the gradients go to `edges`."""

    __slots__ = (
        "__weakref__", "command", "edges", "freed", "hooks", "metas", "name", "op", "outputs", "part",
        "retained", "saved", "saving_plan", "seq", "work",
    )  # fmt: skip

    def __init__(
        self,
        op: GraphOp,
        name: str,
        plan: SavingPlan,
        saved: tuple[Any, ...],
        edges: tuple[Edge | None, ...],
        metas: tuple[Fit | None, ...],
        seq: int | None = None,
    ) -> None:
        """seq: its number; None takes the session's next number."""
        self.op = op
        self.name = name
        self.saving_plan = plan
        self.saved = saved
        self.edges = edges
        self.metas = metas
        self.seq = CURRENT.get().nodes.take() if seq is None else seq
        self.freed = False
        self.command = 0  # number of the command that made it (core.context.Command)
        self.work = 0.0  # estimated operations of its formulas; 0 if not estimated
        self.outputs: tuple[Meta | None, ...] | None = None
        self.retained: dict[int, weakref.ref[Any]] | None = None
        self.hooks: Hooks | None = None
        self.part: Any = None  # of the repeated call that made it (op/repeated_source.py)

    def retain(self, index: int, tensor: Any) -> None:
        """Store the gradient of output `index` in `tensor` during backward."""
        if self.retained is None:
            self.retained = {}
        self.retained[index] = weakref.ref(tensor)

    def differentiable_output(self, index: int) -> bool:
        """Whether gradients arrive for this output; integer outputs such as indices get none."""
        return self.outputs is None or self.outputs[index] is not None

    def free(self) -> None:
        """Drop the saved values, if any is a tensor."""
        if self.saving_plan.saves_tensors:
            self.saved = ()
            self.freed = True

    def __repr__(self) -> str:
        return f"<{self.name} object at {id(self):#x}>"


class FunctionNode(Node):
    """A node with external formulas (callbacks.py); without one, output i's gradient goes to input i.

    materializes: missing gradients are replaced by zeros.
    """

    __slots__ = ("differentiable", "materializes")

    def __init__(
        self,
        op: GraphOp,
        name: str,
        saved: tuple[Any, ...],
        edges: tuple[Edge | None, ...],
        metas: tuple[Fit | None, ...],
        differentiable: tuple[bool, ...],
        materializes: bool,
    ) -> None:
        super().__init__(op, name, op.saving_plan(0), saved, edges, metas)
        self.differentiable = differentiable
        self.materializes = materializes

    def differentiable_output(self, index: int) -> bool:
        """Whether gradients arrive for this output."""
        return self.differentiable[index]

    def free(self) -> None:
        """Drop the saved values."""
        if self.saved:
            self.saved = ()
            self.freed = True


class AccumulateGrad:
    """Node that accumulates a leaf's gradient."""

    __slots__ = ("__weakref__", "hooks", "variable")
    name = "AccumulateGrad"
    edges: tuple[Edge | None, ...] = ()
    seq = LAST
    freed = False
    retained = None

    def __init__(self, variable: Any) -> None:
        self.variable = variable  # the leaf: a tensor.Tensor
        self.hooks: Hooks | None = None  # the node's own; the leaf's hooks are in its GradState

    def __repr__(self) -> str:
        return f"<{self.name} object at {id(self):#x}>"

"""The reverse graph as data: a node is an op, its saved values, and edges to the nodes of its inputs.

A node holds no closure. Its op's formulas are looked up in the registry, so a graph can be drawn, counted, saved
and moved.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.dtypes import TITLES, DType
from gradwire_engine.core.errors import EngineError, Reason

if TYPE_CHECKING:
    from gradwire_engine.core.device import Array
    from gradwire_engine.graph.hooks import Hooks
    from gradwire_engine.graph.protocols import GraphOp, SavingPlan
    from gradwire_engine.graph.tensor import Storage, Tensor

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


class Saved:
    """A value saved for backward, with its version and the node that made it, for higher derivatives."""

    __slots__ = ("array", "index", "leaf", "node", "output", "requires_grad", "storage", "version")
    node: Node | None

    def __init__(self, tensor: Tensor, output: int) -> None:
        """output: -1 for an op's input. An op's own output is saved without its node, to avoid a reference cycle."""
        self.array: Array = tensor.array
        self.storage: Storage = tensor.storage
        if self.storage.inference:
            _refuse_inference()
        self.version = self.storage.version
        self.output = output
        self.requires_grad = tensor.requires_grad
        if output >= 0:
            self.node, self.index, self.leaf = None, output, None
        else:
            self.node, self.index = tensor.node, tensor.index
            self.leaf = tensor if tensor.node is None and tensor.requires_grad else None

    def value(self, owner: Node, name: str) -> Array:
        """The array. Raises EngineError: VERSION_CONFLICT if it was changed in place since it was saved."""
        holder = self if self.leaf is None else self.leaf  # a leaf's data may have been replaced (x.data = y)
        if self.version != holder.storage.version:
            self._refuse(owner, name)
        return holder.array

    def tensor(self, owner: Node, name: str) -> Tensor:
        """The tensor with its node, to differentiate through backward itself. Raises EngineError: VERSION_CONFLICT."""
        from gradwire_engine.graph.tensor import Tensor

        self.value(owner, name)
        if self.leaf is not None:
            return self.leaf
        made = Tensor(self.array, self.requires_grad, self.storage)
        if self.output >= 0:
            if owner.differentiable_output(self.output):
                made.node, made.index, made.requires_grad = owner, self.output, True
        else:
            made.node, made.index = self.node, self.index
        return made

    def _refuse(self, owner: Node, name: str) -> None:
        kind = TITLES[self.array.dtype]
        where = "torch.cuda." if not hasattr(self.array, "__array_interface__") else "torch."
        maker, index = (owner, self.output) if self.output >= 0 else (self.node, self.index)
        # PyTorch's message has the node's class name, without the "Backward0" of its nodes' names.
        which = "" if maker is None else f", which is output {index} of {maker.name.partition('Backward')[0]},"
        version = (self if self.leaf is None else self.leaf).storage.version
        raise EngineError(
            Reason.VERSION_CONFLICT,
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{where}{kind}Tensor {list(self.array.shape)}]{which} is at version {version}; "
            f"expected version {self.version} instead. {owner.name} needs it as {name!r}.",
            op=owner.op.name,
            saved=name,
            version=version,
            expected_version=self.version,
            shape=list(self.array.shape),
            node=owner.name,
            command=owner.command,
            **({} if maker is None else {"made_by": maker.name, "output": index, "made_by_command": maker.command}),
        )


def _refuse_inference() -> None:
    raise EngineError(
        Reason.RUNTIME,
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
        "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it "
        "in autograd, or use `gradwire.no_grad()` instead of `gradwire.inference_mode()`.",
    )


# Target of `fit` for a gradient: the input's shape and dtype.
Fit: TypeAlias = "tuple[tuple[int, ...], DType]"
Edge: TypeAlias = "tuple[Node | AccumulateGrad, int]"


class Node:
    """A recorded op. The formulas of `plan` compute gradients from `saved`; the gradients go to `edges`."""

    __slots__ = (
        "__weakref__", "command", "edges", "freed", "hooks", "metas", "name", "op", "outputs", "plan", "retained",
        "saved", "seq", "work",
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
        self.plan = plan
        self.saved = saved
        self.edges = edges
        self.metas = metas
        self.seq = CURRENT.get().nodes.take() if seq is None else seq
        self.freed = False
        self.command = 0  # number of the command that made it (core.context.Command)
        self.work = 0.0  # estimated operations of its formulas; 0 if not estimated
        self.outputs: tuple[Meta | None, ...] | None = None
        self.retained: dict[int, weakref.ref[Tensor]] | None = None
        self.hooks: Hooks | None = None

    def retain(self, index: int, tensor: Tensor) -> None:
        """Store the gradient of output `index` in `tensor` during backward."""
        if self.retained is None:
            self.retained = {}
        self.retained[index] = weakref.ref(tensor)

    def differentiable_output(self, index: int) -> bool:
        """Whether gradients arrive for this output; integer outputs such as indices get none."""
        return self.outputs is None or self.outputs[index] is not None

    def free(self) -> None:
        """Drop the saved values, if any is a tensor."""
        if self.plan.saves_tensors:
            self.saved = ()
            self.freed = True

    def saved_bytes(self) -> int:
        """Bytes of the saved arrays."""
        return sum(value.array.nbytes for value in self.saved if isinstance(value, Saved))

    def saved_values(self) -> list[tuple[str, Saved]]:
        """Saved tensors with their names in the formulas; lists are flattened."""
        found: list[tuple[str, Saved]] = []
        for place, value in enumerate(self.saved):
            name = self.plan.names[place] if place < len(self.plan.names) else f"saved {place}"
            values = value if isinstance(value, (list, tuple)) else (value,)
            found.extend((name, each) for each in values if isinstance(each, Saved))
        return found

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
        saved: tuple[Saved | None, ...],
        edges: tuple[Edge | None, ...],
        metas: tuple[Fit | None, ...],
        differentiable: tuple[bool, ...],
        materializes: bool,
    ) -> None:
        super().__init__(op, name, op.plan(0), saved, edges, metas)
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

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.hooks: Hooks | None = None  # the node's own; the leaf's hooks are in its GradState

    def saved_bytes(self) -> int:
        """Always 0: a leaf's node saves nothing."""
        return 0

    def __repr__(self) -> str:
        return f"<{self.name} object at {id(self):#x}>"

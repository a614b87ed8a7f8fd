"""Values that nodes save for backward, with the version at which they were saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.dtypes import TITLES
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import LEFT, Storage, Tensor, update_requires_grad

if TYPE_CHECKING:
    from gradwire_engine.core.device import Array
    from gradwire_engine.graph.graph import Node


class Saved:
    """A value saved for backward, with its version and the node that made it, for higher derivatives."""

    __slots__ = ("array", "index", "leaf", "node", "output", "requires_grad", "storage", "tangents", "version")
    node: Node | None

    def __init__(self, tensor: Tensor, output: int) -> None:
        """output: -1 for an op's input. An op's own output is saved without its node, to avoid a reference cycle."""
        self.array: Array = tensor.array
        self.storage: Storage = tensor.storage
        if self.storage.inference:
            _refuse_inference()
        self.version = self.storage.version
        self.output = output
        self.tangents: Any = None  # of the value, while a forward-mode level is open
        self.requires_grad = tensor.requires_grad
        if output >= 0:
            self.node, self.index, self.leaf = None, output, None
        else:
            self.node, self.index = tensor.node, tensor.index
            self.leaf = tensor if tensor.node is None else None

    def value(self, owner: Node, name: str) -> Array:
        """The array. Raises EngineError: VERSION_CONFLICT if it was changed in place since it was saved.

        RUNTIME if it is an input that has left the graph in place since.
        """
        # A leaf's data may have been replaced (x.data = y), and it may require gradients only since.
        holder = self if self.leaf is None else self.leaf
        if self.version != holder.storage.version:
            self._refuse(owner, name)
        if self.storage.left and self.node is not None and self.index in LEFT.get(self.node, ()):
            raise EngineError(
                Reason.RUNTIME,
                "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is not "
                f"supported, please use out-of-place `.detach()` instead. {owner.name} needs it as {name!r}.",
                node=owner.name,
                made_by=self.node.name,
            )
        return holder.array

    def tensor(self, owner: Node, name: str) -> Tensor:
        """The tensor with its node, to differentiate through backward itself. Raises EngineError: VERSION_CONFLICT."""
        self.value(owner, name)
        if self.leaf is not None:
            if self.leaf.view is not None:
                update_requires_grad(self.leaf)
            return self.leaf
        made = Tensor(self.array, self.requires_grad, self.storage)
        if self.output >= 0:
            if owner.differentiable_output(self.output):
                made.node, made.index, made.requires_grad = owner, self.output, True
        else:
            made.node, made.index = self.node, self.index
        if self.tangents is not None:
            CURRENT.get().duals.hold(made, self.tangents)
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


def saved_values(node: Node) -> Iterator[tuple[str, Saved]]:
    """A node's saved tensors with their names in the formulas; lists are flattened."""
    names = node.saving_plan.names
    for place, value in enumerate(node.saved):
        name = names[place] if place < len(names) else f"saved {place}"
        values = value if isinstance(value, (list, tuple)) else (value,)
        yield from ((name, each) for each in values if isinstance(each, Saved))


def saved_integers(node: Node) -> Iterator[tuple[Storage, Array]]:
    """Storages and arrays of the integers on a GPU that a node saved."""
    for value in node.saved:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(each, Saved):
                continue
            holder = each if each.leaf is None else each.leaf  # see Saved.value
            if type(holder.array) is not np.ndarray and holder.array.dtype.kind in "iu":
                yield holder.storage, holder.array


def saved_bytes(node: Node) -> int:
    """Bytes of the arrays that a node saved; lists are not counted."""
    return sum(value.array.nbytes for value in node.saved if isinstance(value, Saved))

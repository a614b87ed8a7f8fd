"""The argument of a batching rule: an op's call, its arguments by name, and the table that rules register in.

A rule calls ops on values, whose first dimension is the batch, so a sample's dimensions are shifted by one. Or it calls
ops on batched tensors, which have rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base.errors import GradwireIndexError
from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.func._batched import BatchedTensor, Level, UnmappableError, is_batched, spread, value_at
from gradwire.func._pytree import tree_map

Rule = Callable[["OpCall"], Any]


RULES: dict[str, Rule] = {}


class OpCall:
    """An op's call: its arguments by name, as they were given by place or by name."""

    def __init__(
        self,
        op: str,
        base: str,
        in_place: bool,
        args: tuple[Any, ...],
        kwargs: Sequence[tuple[str, Any]],
        result: Any,
        level: Level,
        names: tuple[str, ...],
    ) -> None:
        self.op = op
        self.base = base
        self.in_place = in_place
        self.args = list(args)
        self.kwargs = dict(kwargs)
        self.result = result
        self.level = level
        self.names = names

    def get(self, name: str, default: Any = None) -> Any:
        """An argument, or the default if it was left out."""
        place = self.names.index(name)
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)

    def set(self, name: str, value: Any) -> None:
        """Replace an argument's value."""
        place = self.names.index(name)
        if place < len(self.args):
            self.args[place] = value
        else:
            self.kwargs[name] = value

    def first(self) -> Any:
        """The value of the first argument, with the batch in front."""
        return spread(self.args[0], self.level)

    def run(self) -> Any:
        """Call the op on the current arguments."""
        return _call(self.op, tuple(self.args), tuple(self.kwargs.items()), self.result)

    def wrap(self, answer: Any) -> Any:
        """Convert a result in values to batched tensors."""
        return tree_map(lambda one: BatchedTensor(one, self.level) if isinstance(one, Tensor) else one, answer)


def rule(names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ops."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


def refuse_in_place(call: OpCall) -> None:
    """Refuse to write samples into what all samples share."""
    if call.in_place and not is_batched(call.args[0], call.level):
        raise UnmappableError(
            f"vmap: inplace arithmetic(self, *extra_args) is not possible: {call.op} would write a value per sample "
            "into a tensor that all samples share. Use the out-of-place form, or make the tensor inside of vmap from "
            "one that is mapped over (x.new_zeros, zeros_like)."
        )


def padded(tensor: Any, ndim: int, level: Level) -> Any:
    """A value with so many dimensions behind the batch; what all samples share broadcasts as it is."""
    if not is_batched(tensor, level):
        return tensor
    value = value_at(tensor, level)
    missing = ndim - tensor.dim()
    return value.reshape((level.size, *(1,) * missing, *tensor.shape)) if missing > 0 else value


def shifted(dim: int, ndim: int) -> int:
    """A sample's dimension as one of the value."""
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise GradwireIndexError(
            f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})"
        )
    return dim % count + 1


def shifted_all(dim: Any, ndim: int) -> Any:
    return shifted(dim, ndim) if isinstance(dim, int) else tuple(shifted(one, ndim) for one in dim)


def reduced(losses: Any, reduction: str) -> Any:
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()

"""AdaptiveLogSoftmaxWithLoss: a softmax over many classes, whose rarer ones are in clusters of smaller layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from gradwire._base.errors import refuse
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn._containers import ModuleList, Sequential
from gradwire.nn._layers import Linear
from gradwire.nn._module import Module


class _Answer(NamedTuple):
    """Each example's log probability of its target, and the mean loss."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log probabilities of targets among `n_classes`, ordered by frequency (Grave et al., 2016).

    cutoffs: the first class of each cluster; the classes before the first cutoff are in the head. A cluster's layer has
    `div_value` times fewer features than the one before it. Reads the targets. Raises ValueError for bad cutoffs. Like
    torch.nn.AdaptiveLogSoftmaxWithLoss.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        given = list(cutoffs)
        if not given:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if given != sorted(set(given)) or given[0] <= 0 or given[-1] > n_classes - 1 or any(int(c) != c for c in given):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*given, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = given[0]
        self.n_clusters = len(given)
        self.head_size = self.shortlist_size + self.n_clusters
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for at, (low, high) in enumerate(pairwise(self.cutoffs), 1):
            inner = int(in_features // div_value**at)
            first = Linear(in_features, inner, bias=False, **made)
            self.tail.append(Sequential(first, Linear(inner, high - low, bias=False, **made)))

    def reset_parameters(self) -> None:
        """Draw new values of all layers."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _Answer:
        """Log probabilities (N) of targets (N), given inputs (N, in_features), and the mean loss; or of one example.

        Raises RuntimeError for other sizes and for a target that is no class.
        """
        _check_sizes(input_, target_)
        single = target_.ndim == 0
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        output = input.new_zeros(target.shape[0])
        chosen = target.clone()
        used = 0
        for at, (low, high) in enumerate(pairwise([0, *self.cutoffs])):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            used += len(rows)
            if at == 0 or not len(rows):
                continue
            inside = self.tail[at - 1](input.index_select(0, rows)).log_softmax(1)
            place = (target.index_select(0, rows) - low).unsqueeze(1)
            chosen = chosen.index_fill(0, rows, self.shortlist_size + at - 1)
            output = output.index_copy(0, rows, inside.gather(1, place).squeeze(1))
        if used != len(target):
            raise refuse(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{target.min().item()}, "
                f"{target.max().item()}] were found. "
            )
        output = output + self.head(input).log_softmax(1).gather(1, chosen.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _Answer(output.squeeze(0) if single else output, loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log probabilities of all classes: (N, in_features) to (N, n_classes)."""
        head = self.head(input).log_softmax(1)
        parts = [head[:, : self.shortlist_size]]
        for at, layers in enumerate(self.tail):
            place = self.shortlist_size + at
            parts.append(layers(input).log_softmax(1) + head[:, place : place + 1])
        made: Tensor = ops.cat(parts, 1)
        return made

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each example: (N, in_features) to (N)."""
        # A class of a cluster is less probable than its cluster, so examples whose head chooses a class keep it.
        head = self.head(input).argmax(1)
        return ops.where(head < self.shortlist_size, head, self.log_prob(input).argmax(1))


def _check_sizes(input: Tensor, target: Tensor) -> None:
    if target.ndim > 1:
        raise refuse("0D or 1D target tensor expected, multi-target not supported")
    if target.ndim == 1 and input.shape[0] != target.shape[0]:
        raise refuse("Input and target should have the same size in the batch dimension.")
    if input.ndim != target.ndim + 1:
        raise refuse(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with size "
            f"{input.size()}"
        )

"""LinearCrossEntropyLoss: a linear layer and the cross entropy of its scores, in one module; and its options."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gradwire.nn.functional as F
from gradwire._base import dtypes
from gradwire._base.dtypes import dtype
from gradwire._tensor.tensor import Tensor
from gradwire.nn._layers import Linear
from gradwire.nn._loss import _WeightedLoss

_POLICIES = ("auto", "accurate", "balanced", "compact")
_ACCUMULATED = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


@dataclass
class LinearCrossEntropyOptions:
    """How PyTorch computes the scores piece by piece, to save memory (torch.nn.LinearCrossEntropyOptions).

    The options are checked and have no effect here: the loss is computed at once. Raises ValueError for what PyTorch
    does not know.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: dtype | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = str(self.chunking_method).partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) > 0)):
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype is not None and self.acc_dtype not in _ACCUMULATED:
            raise ValueError(
                "acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32, torch.float64}, "
                f"got {self.acc_dtype!r}. Pass acc_dtype=None to let the op pick automatically."
            )


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross entropy of `linear(input)` and the targets: (N, in_features) and classes (N, *out_features).

    `linear` has a row of weights for each class and place of `out_features`. Raises RuntimeError for weights of another
    size, and for smoothing outside [0, 1]. Like torch.nn.LinearCrossEntropyLoss.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: dtype | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        rows = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, rows, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        places = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*places, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(places),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """The sizes and options, as PyTorch prints them."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, reduction={self.reduction}, "
            f"ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}, options={self.options}"
        )

"""Layers that are neither convolution nor norm: linear, embedding, dropout, and those that only change shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire import _dtypes
from gradwire._create import empty
from gradwire._tensor import Tensor
from gradwire.nn import functional as F
from gradwire.nn import init
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter

Device = _dtypes.device | str | int | None


class Identity(Module):
    """Gives back its input; takes and ignores any arguments. Answers to torch.nn.Identity."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """The input."""
        return input


class Linear(Module):
    """input @ weight.T + bias: (*, in_features) to (*, out_features). Answers to torch.nn.Linear."""

    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = None,
        dtype: _dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: both uniform within 1 / sqrt(in_features) of zero."""
        init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            bound = init.fan_in_bound(self.weight)
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """A table of vectors: whole numbers of any shape (*) to (*, embedding_dim). Answers to torch.nn.Embedding.

    The vector at `padding_idx` starts as zeros and gets no gradient; vectors longer than `max_norm` are shortened in
    place when looked up. Raises NotImplementedError for `sparse`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Device = None,
        dtype: _dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        if sparse:
            raise NotImplementedError("Embedding: sparse gradients are not supported yet")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            values = empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight = Parameter(values, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draw new values from the normal distribution; zeros at `padding_idx`."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight.detach()[self.padding_idx].zero_()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A table of given vectors, not trained unless `freeze` is False."""
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(rows, columns, *options, _weight=embeddings, _freeze=freeze)

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        return text + (f", scale_grad_by_freq={self.scale_grad_by_freq}" if self.scale_grad_by_freq else "")


class Dropout(Module):
    """In training zeroes each element with probability `p` and scales the others by 1 / (1 - p).

    Raises ValueError for a `p` outside [0, 1]. Answers to torch.nn.Dropout.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"p={self.p}, inplace={self.inplace}"


class Flatten(Module):
    """Joins the dimensions from `start_dim` to `end_dim` into one. Answers to torch.nn.Flatten."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits dimension `dim` into sizes. Answers to torch.nn.Unflatten."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        place = self.dim % input.ndim
        return input.reshape(*input.shape[:place], *self.unflattened_size, *input.shape[place + 1 :])

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"

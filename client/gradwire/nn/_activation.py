"""Activations as modules; each calls the function of its name."""

from __future__ import annotations

from gradwire._tensor import Tensor
from gradwire.nn import functional as F
from gradwire.nn._module import Module


class ReLU(Module):
    """max(0, input). Answers to torch.nn.ReLU."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.relu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return "inplace=True" if self.inplace else ""


class LeakyReLU(Module):
    """The input where positive, elsewhere negative_slope times it. Answers to torch.nn.LeakyReLU."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class Sigmoid(Module):
    """1 / (1 + exp(-input)). Answers to torch.nn.Sigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.sigmoid(input)


class Tanh(Module):
    """tanh(input). Answers to torch.nn.Tanh."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.tanh(input)


class GELU(Module):
    """input times the normal distribution's function of it; approximate="tanh" is the usual approximation.

    Answers to torch.nn.GELU.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"approximate={self.approximate!r}"


class _AlongDim(Module):
    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(input) divided by its sum along `dim`. Answers to torch.nn.Softmax."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """The logarithm of softmax along `dim`. Answers to torch.nn.LogSoftmax."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.log_softmax(input, self.dim, _stacklevel=5)

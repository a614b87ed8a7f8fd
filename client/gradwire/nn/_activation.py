"""Activations as modules; each calls the function of its name."""

from __future__ import annotations

import gradwire.nn.functional as F
import gradwire.nn.init as initial
from gradwire._base import dtypes
from gradwire._functions.create import full
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter

Device = dtypes.device | str | int | None


class _MayBeInPlace(Module):
    """Base of activations that take `inplace`, and show it; `_shown` names the options that are shown before it."""

    _shown: tuple[str, ...] = ()
    _shows_inplace = True

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        parts = [f"{name}={getattr(self, name)}" for name in self._shown]
        return ", ".join([*parts, *(["inplace=True"] if self.inplace and self._shows_inplace else [])])


class ReLU(_MayBeInPlace):
    """max(0, input). Like torch.nn.ReLU."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.relu(input, inplace=self.inplace)


class LeakyReLU(_MayBeInPlace):
    """The input where positive, elsewhere negative_slope times it. Like torch.nn.LeakyReLU."""

    _shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.leaky_relu(input, self.negative_slope, inplace=self.inplace)


class RReLU(_MayBeInPlace):
    """leaky_relu with a slope drawn from [lower, upper], in evaluation the mean. Like torch.nn.RReLU."""

    _shown = (
        "lower",
        "upper",
    )

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.rrelu(input, self.lower, self.upper, self.training, inplace=self.inplace)


class ReLU6(_MayBeInPlace):
    """The input clamped to [0, 6]. Like torch.nn.ReLU6."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.relu6(input, inplace=self.inplace)


class ELU(_MayBeInPlace):
    """The input where positive, elsewhere alpha * (exp(input) - 1). Like torch.nn.ELU."""

    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.elu(input, self.alpha, inplace=self.inplace)


class CELU(_MayBeInPlace):
    """The input where positive, elsewhere alpha * (exp(input / alpha) - 1). Like torch.nn.CELU."""

    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.celu(input, self.alpha, inplace=self.inplace)


class SELU(_MayBeInPlace):
    """elu, scaled so that layers normalize themselves. Like torch.nn.SELU."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.selu(input, inplace=self.inplace)


class SiLU(_MayBeInPlace):
    """input * sigmoid(input). Like torch.nn.SiLU."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.silu(input, inplace=self.inplace)


class Mish(_MayBeInPlace):
    """input * tanh(softplus(input)). Like torch.nn.Mish."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.mish(input, inplace=self.inplace)


class Hardsigmoid(_MayBeInPlace):
    """relu6(input + 3) / 6. Like torch.nn.Hardsigmoid."""

    _shows_inplace = False

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.hardsigmoid(input, inplace=self.inplace)


class Hardswish(_MayBeInPlace):
    """input * hardsigmoid(input). Like torch.nn.Hardswish."""

    _shows_inplace = False

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.hardswish(input, inplace=self.inplace)


class Threshold(_MayBeInPlace):
    """The input where above `threshold`, elsewhere `value`. Like torch.nn.Threshold."""

    _shown = (
        "threshold",
        "value",
    )

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.threshold(input, self.threshold, self.value, inplace=self.inplace)


class Hardtanh(_MayBeInPlace):
    """The input clamped to [min_val, max_val]. Like torch.nn.Hardtanh.

    Raises AssertionError unless `max_val` is greater.
    """

    _shown = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        if not max_val > min_val:
            raise AssertionError(f"max_val ({max_val}) must be larger than min_val ({min_val})")
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class Sigmoid(Module):
    """1 / (1 + exp(-input)). Like torch.nn.Sigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.sigmoid(input)


class Tanh(Module):
    """tanh(input). Like torch.nn.Tanh."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.tanh(input)


class GELU(Module):
    """input times the normal distribution's function of it; approximate="tanh" is the usual approximation.

    Like torch.nn.GELU.
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
    """exp(input) divided by its sum along `dim`. Like torch.nn.Softmax."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """The logarithm of softmax along `dim`. Like torch.nn.LogSoftmax."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """softmax of the negated input. Like torch.nn.Softmin."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W). Like torch.nn.Softmax2d."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class. Raises ValueError for other ranks."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)


class LogSigmoid(Module):
    """log(sigmoid(input)). Like torch.nn.LogSigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.logsigmoid(input)


class Softsign(Module):
    """input / (1 + |input|). Like torch.nn.Softsign."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.softsign(input)


class Tanhshrink(Module):
    """input - tanh(input). Like torch.nn.Tanhshrink."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.tanhshrink(input)


class GLU(Module):
    """The first half of `dim` times the sigmoid of the second. Like torch.nn.GLU."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"dim={self.dim}"


class Hardshrink(Module):
    """0 within [-lambd, lambd], elsewhere the input. Like torch.nn.Hardshrink."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return str(self.lambd)


class Softshrink(Hardshrink):
    """The input brought nearer to 0 by `lambd`. Like torch.nn.Softshrink."""

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.softshrink(input, self.lambd)


class Softplus(Module):
    """log(1 + exp(beta * input)) / beta. Like torch.nn.Softplus."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"beta={self.beta}, threshold={self.threshold}"


class PReLU(Module):
    """leaky_relu with a slope that is learnt, one or one per channel. Like torch.nn.PReLU."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        kind = dtypes.get_default_dtype() if dtype is None else dtype
        self.weight = Parameter(full((num_parameters,), float(init), device=device, dtype=kind))

    def reset_parameters(self) -> None:
        """The first slope again."""
        initial.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """See the class."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        return f"num_parameters={self.num_parameters}"

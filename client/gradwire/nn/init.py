"""Initial values of parameters: PyTorch's functions, distributions and names.

All change their tensor in place, outside of the graph, and return it. The random numbers are drawn on the server from
the session's generator, in PyTorch's order: after `manual_seed` they are PyTorch's.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gradwire._base.modes import no_grad
from gradwire._functions import create
from gradwire._functions.create import empty, empty_like, randperm
from gradwire._functions.random import Generator
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

_LIKELY = 0.3  # probability of the bounds from which normal numbers are drawn until they are inside

_GAINS = {
    **dict.fromkeys(("linear", "sigmoid"), 1.0),
    **{f"conv{'_transpose' * transposed}{d}d": 1.0 for transposed in (0, 1) for d in (1, 2, 3)},
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity's weights are spread. Raises ValueError for an unknown name."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, int | float):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with numbers uniform in [a, b)."""
    with _drawing(generator):
        return tensor.uniform_(a, b)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of the normal distribution."""
    with _drawing(generator):
        return tensor.normal_(mean, std)


@no_grad()
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with numbers of the normal distribution cut off below `a` and above `b`."""
    low, high = (0.5 * (1 + math.erf((bound - mean) / (std * math.sqrt(2)))) for bound in (a, b))
    if (mean < a - 2 * std) or (mean > b + 2 * std):
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )
    with _drawing(generator):
        if high - low > _LIKELY:
            _draw_until_inside(tensor, mean, std, a, b)
        else:
            _accept_by_density(tensor, mean, std, a, b)
    return tensor


def _draw_until_inside(tensor: Tensor, mean: float, std: float, a: float, b: float) -> None:
    """Draw normal numbers, and those outside the bounds anew."""
    lowest, highest = tensor.new_tensor(a), tensor.new_tensor(b)
    tensor.normal_(mean, std)
    while (outside := (tensor < lowest) | (tensor > highest)).any():
        tensor.copy_(ops.where(outside, empty_like(tensor).normal_(mean, std), tensor))


def _accept_by_density(tensor: Tensor, mean: float, std: float, a: float, b: float) -> None:
    """Draw uniform numbers, and accept each with a probability proportional to the normal density there."""
    highest = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    pending: Tensor | None = None
    while pending is None or pending.any():
        drawn = empty_like(tensor).uniform_(a, b)
        tensor.copy_(drawn if pending is None else ops.where(pending, drawn, tensor))
        density = drawn.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(highest)
        refused = empty_like(tensor).uniform_().log_().gt(density)
        pending = refused if pending is None else pending & refused


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number."""
    return tensor.fill_(val)


@no_grad()
def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return tensor.fill_(1.0)


@no_grad()
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return tensor.zero_()


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity. Raises ValueError unless it has two dimensions."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return tensor.copy_(create.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill uniformly within gain * sqrt(6 / (fan_in + fan_out)) of zero (Glorot)."""
    fan_in, fan_out = _fans(tensor)
    bound = math.sqrt(3.0) * (gain * math.sqrt(2.0 / (fan_in + fan_out)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill normally with a deviation of gain * sqrt(2 / (fan_in + fan_out)) (Glorot)."""
    fan_in, fan_out = _fans(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill uniformly within gain * sqrt(3 / fan) of zero (He); `a` is the slope of a leaky ReLU."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill normally with a deviation of gain / sqrt(fan) (He); `a` is the slope of a leaky ReLU."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with a matrix of orthonormal rows or columns, times gain; further dimensions count as columns."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    drawn = normal_(empty(rows, columns, dtype=tensor.dtype, device=tensor.device), 0, 1, generator)
    q, r = ops.linalg_qr(drawn.t() if rows < columns else drawn)
    # By the signs of r's diagonal all such matrices are equally likely.
    q = q * r.diagonal().sign()
    if rows < columns:
        q = q.t()
    return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight (3 to 5 dimensions) so that it returns its input, as far as channels allow."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out, inside = tensor.shape[:2]
    if out % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    tensor.zero_()
    middle = tuple(size // 2 for size in tensor.shape[2:])
    per_group = out // groups
    for group in range(groups):
        for channel in range(min(per_group, inside)):
            index = (group * per_group + channel, channel, *middle)
            tensor[index] = 1
    return tensor


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix normally, but for the share `sparsity` of each column, which is zero."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    normal_(tensor, 0, std, generator)
    for column in range(columns):  # the generator draws no permutation, as in PyTorch
        tensor[randperm(rows, device=tensor.device)[:zeros], column] = 0
    return tensor


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _fans(tensor: Tensor) -> tuple[int, int]:
    """The number of inputs of an output value, and the number of outputs of an input value."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    per_pair = math.prod(tensor.shape[2:])
    return tensor.shape[1] * per_pair, tensor.shape[0] * per_pair


# The names by which libraries call them.
_calculate_fan_in_and_fan_out = _fans


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """The number of inputs or outputs. Raises ValueError for another mode."""
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _fans(tensor)[mode.lower() == "fan_out"]


def _drawing(generator: Generator | None) -> AbstractContextManager[None]:
    """Inside the block, the generator draws random numbers; from the session's own if it is None."""
    return nullcontext() if generator is None else generator.used()


def fan_in_bound(weight: Tensor) -> float:
    """The bound of the default biases: 1 / sqrt(fan_in), 0 where nothing comes in."""
    fan_in = _fans(weight)[0]
    return 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0


def _deprecated(name: str) -> Callable[..., Tensor]:
    """The function of the name without its underscore, which warns (torch.nn.init.xavier_uniform)."""
    function: Callable[..., Tensor] = globals()[f"{name}_"]

    def deprecated(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    deprecated.__name__, deprecated.__doc__ = name, f"Another name of `{name}_`. Warns."
    return deprecated


constant = _deprecated("constant")
dirac = _deprecated("dirac")
eye = _deprecated("eye")
kaiming_normal = _deprecated("kaiming_normal")
kaiming_uniform = _deprecated("kaiming_uniform")
normal = _deprecated("normal")
orthogonal = _deprecated("orthogonal")
sparse = _deprecated("sparse")
uniform = _deprecated("uniform")
xavier_normal = _deprecated("xavier_normal")
xavier_uniform = _deprecated("xavier_uniform")

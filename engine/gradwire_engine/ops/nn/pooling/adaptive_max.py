"""Adaptive max pooling over 1, 2 or 3 dimensions: the windows follow from the output size."""

from __future__ import annotations

import itertools
import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import LOOP, counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.memory_format import keeps_format
from gradwire_engine.ops.index.gather import gather_backward
from gradwire_engine.ops.nn.pooling.primitives import check_filled_gradient, max_indices, max_pool, order_of_images
from gradwire_engine.ops.shape.shape import flatten, reshape, squeeze, unsqueeze

Ints = Any  # an int or a sequence of ints
_MOST_TAPS = 64  # of larger windows, a search in each takes less time


def _ranges(size: int, count: int) -> list[tuple[int, int]]:
    """Start and end of each of `count` windows over `size` elements."""
    return [(place * size // count, -(-(place + 1) * size // count)) for place in range(count)]


def _by_place_cost(input: Any, size: Ints) -> Any:
    """Cost of a loop over the windows, with a few calls each."""
    return math.prod(size) * 2 * LOOP + 6.0 * (input.size + math.prod(input.shape[: -len(size)]) * math.prod(size) * 4)


@op(
    name="_adaptive_max_pool",
    node=lambda input, size: f"AdaptiveMaxPool{len(size)}DBackward0",
    outputs=("values", "indices"),
    differentiable_outputs=(0,),
    cost=counted(_by_place_cost),
)
@keeps_format(order_of_images)
def _adaptive_max_pool(xp: Any, input: Array, size: Ints) -> Any:
    """Maximum of each window, and its flat index in the input: the first of equal values, the last nan."""
    spatial = input.shape[-len(size) :]
    lead = input.shape[: -len(size)]
    shape = (*lead, *size)
    if _are_equal(spatial, size):
        return _of_equal_windows(xp, input, tuple(n // made for n, made in zip(spatial, size, strict=True)))
    admit(shape, input.dtype)
    values, indices = xp.empty(shape, input.dtype), xp.empty(shape, dtypes.int64)
    places = xp.arange(math.prod(spatial), dtype=dtypes.int64).reshape(spatial)
    for at in itertools.product(*(enumerate(_ranges(*pair)) for pair in zip(spatial, size, strict=True))):
        target = (..., *(place for place, _ in at))
        within = (..., *(slice(*ends) for _, ends in at))
        window = input[within].reshape(*lead, math.prod(high - low for _, (low, high) in at))
        best = _winner(xp, window)
        values[target] = xp.take_along_axis(window, best[..., None], -1)[..., 0]
        indices[target] = places[within].reshape(-1)[best]
    return values, indices


def _are_equal(spatial: Ints, size: Ints) -> bool:
    """Whether the windows have one size and few elements, and lie side by side."""
    whole = all(made and n % made == 0 for n, made in zip(spatial, size, strict=True))
    return whole and 1 < math.prod(spatial) // math.prod(size) <= _MOST_TAPS


def _of_equal_windows(xp: Any, input: Array, kernel: Ints) -> Any:
    """The same by max pooling."""
    window = kernel, kernel, (0,) * len(kernel), (1,) * len(kernel)
    values, which = max_pool.forward(xp, input, *window, False)
    admit(which.shape, dtypes.int64, 2 * dtypes.int64.itemsize)
    return values, max_indices.forward(xp, which, *window, input.shape[-len(kernel) :])


def _winner(xp: Any, window: Array) -> Array:
    """Index of the maximum along the last dimension: the first of equal values, the last nan."""
    best = window.argmax(-1)
    if dtypes.category(window.dtype) == dtypes.FLOAT:
        nans = xp.isnan(window)
        if bool(nans.any()):
            last = window.shape[-1] - 1 - nans[..., ::-1].argmax(-1)
            best = xp.where(nans.any(-1), last, best)
    return best


def _adaptive_max_input(g: Any, out1: Any, input_meta: Any, size: Ints) -> Any:
    shape, dims = input_meta.shape, len(size)
    check_filled_gradient(f"adaptive_max_pool{dims}d_backward", g.shape)
    flat = (*shape[:-dims], math.prod(shape[-dims:]))
    added = gather_backward(flatten(g, -dims), len(shape) - dims, flatten(out1, -dims), flat)
    return reshape(added, shape)


_adaptive_max_pool.by_loops("max_pool")
_adaptive_max_pool.grad(input=_adaptive_max_input)


def _pooled(dims: int, input: Any, output_size: Ints) -> tuple[Any, Any]:
    name = f"adaptive_max_pool{dims}d"
    if input.ndim not in (dims + 1, dims + 2):
        raise EngineError(
            Reason.RUNTIME, f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(input.shape)}"
        )
    given = (output_size,) * dims if output_size is None or isinstance(output_size, int) else tuple(output_size)
    if len(given) >= input.ndim:
        raise EngineError(Reason.ARGUMENT_VALUE, f"Input dimension should be at least {len(given) + 1}")
    if len(given) != dims:
        raise EngineError(Reason.RUNTIME, f"{name}(): internal error: output_size.size() must be {dims}")
    size = tuple(n if wanted is None else wanted for wanted, n in zip(given, input.shape[-dims:], strict=True))
    if min(size) < 0:
        raise EngineError(
            Reason.RUNTIME,
            f"{name}: elements of output_size must be greater than or equal to 0 but received {list(size)}",
        )
    if 0 in input.shape[1:]:  # as in PyTorch, also if the first dimension is that of the channels
        raise EngineError(
            Reason.RUNTIME,
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has "
            f"sizes {list(input.shape)}",
        )
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{name}_cpu\" not implemented for '{dtypes.TITLES[input.dtype]}'")
    if dims == 1:  # computed in two dimensions, as in PyTorch
        values, indices = _adaptive_max_pool(unsqueeze(input, -2), (1, *size))
        return squeeze(values, -2), squeeze(indices, -2)
    values, indices = _adaptive_max_pool(input, size)
    return values, indices


_OUTPUTS = ("values", "indices")


@composite(outputs=_OUTPUTS)
def adaptive_max_pool1d(input: Array, output_size: Ints, return_indices: bool = False) -> Any:
    """Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool1d).

    input: (n, c, l) or (c, l). return_indices: also return each maximum's index. Raises EngineError: RUNTIME,
    NOT_SUPPORTED.
    """
    values, indices = _pooled(1, input, output_size)
    return (values, indices) if return_indices else values


@composite(outputs=_OUTPUTS)
def adaptive_max_pool2d(input: Array, output_size: Ints, return_indices: bool = False) -> Any:
    """Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool2d).

    input: (n, c, h, w) or (c, h, w). output_size: an int, or (h, w) where None keeps a size. return_indices: also
    return each maximum's index in the flattened (h, w). Raises EngineError: RUNTIME, NOT_SUPPORTED.
    """
    values, indices = _pooled(2, input, output_size)
    return (values, indices) if return_indices else values


@composite(outputs=_OUTPUTS)
def adaptive_max_pool3d(input: Array, output_size: Ints, return_indices: bool = False) -> Any:
    """Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool3d).

    input: (n, c, d, h, w) or (c, d, h, w). output_size: an int, or (d, h, w) where None keeps a size. return_indices:
    also return each maximum's index in the flattened (d, h, w). Raises EngineError: RUNTIME, NOT_SUPPORTED.
    """
    values, indices = _pooled(3, input, output_size)
    return (values, indices) if return_indices else values


for _pool in (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d):
    _pool.variant("", return_indices=False)
    _pool.variant("return_indices", _pool.outputs, return_indices=True)

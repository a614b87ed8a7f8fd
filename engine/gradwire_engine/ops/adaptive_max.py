"""adaptive_max_pool2d: the largest value of as many windows as the output has elements."""

from __future__ import annotations

from typing import Any

from gradwire_engine import dtypes
from gradwire_engine.device import Array
from gradwire_engine.errors import EngineError, Reason
from gradwire_engine.op import composite, op
from gradwire_engine.ops.checks import admit
from gradwire_engine.ops.gather import gather_backward
from gradwire_engine.ops.shape import flatten, reshape

Ints = Any  # an int or several


def _ranges(size: int, count: int) -> list[tuple[int, int]]:
    """Where each of `count` windows over `size` positions begins and ends."""
    return [(place * size // count, -(-(place + 1) * size // count)) for place in range(count)]


@op(
    name="_adaptive_max_pool", node="AdaptiveMaxPool2DBackward0", outputs=("values", "indices"),
    differentiable_outputs=(0,),
)  # fmt: skip
def _adaptive_max_pool(xp: Any, input: Array, size: Ints) -> Any:
    """The largest of each window, the first of equal ones or of nans, and its place in the flattened (h, w)."""
    height, width = input.shape[-2:]
    shape = (*input.shape[:-2], *size)
    admit(shape, input.dtype)
    values, indices = xp.empty(shape, input.dtype), xp.empty(shape, dtypes.int64)
    for row, (top, bottom) in enumerate(_ranges(height, size[0])):
        for column, (left, right) in enumerate(_ranges(width, size[1])):
            window = input[..., top:bottom, left:right].reshape(*input.shape[:-2], -1)
            place = window.argmax(-1)
            values[..., row, column] = xp.take_along_axis(window, place[..., None], -1)[..., 0]
            across = right - left
            indices[..., row, column] = (top + place // across) * width + left + place % across
    return values, indices


def _adaptive_max_input(g: Any, out1: Any, input_meta: Any) -> Any:
    shape = input_meta.shape
    flat = (*shape[:-2], shape[-2] * shape[-1])
    added = gather_backward(flatten(g, -2), len(shape) - 2, flatten(out1, -2), flat)
    return reshape(added, shape)


_adaptive_max_pool.grad(input=_adaptive_max_input)


@composite
def adaptive_max_pool2d(input: Array, output_size: Ints, return_indices: bool = False) -> Any:
    """The largest value of as many windows as the output has elements (torch.nn.functional.adaptive_max_pool2d).

    input: (n, c, h, w) or (c, h, w); output_size: an int, or (h, w) where None keeps a size. With return_indices also
    where each was, in the flattened (h, w). Raises EngineError: RUNTIME.
    """
    if input.ndim not in (3, 4):
        raise EngineError(
            Reason.RUNTIME, f"adaptive_max_pool2d(): Expected 3D or 4D tensor, but got: {list(input.shape)}"
        )
    given = (output_size,) * 2 if output_size is None or isinstance(output_size, int) else tuple(output_size)
    size = tuple(n if wanted is None else wanted for wanted, n in zip(given, input.shape[-2:], strict=True))
    if 0 in input.shape[-3:]:
        raise EngineError(
            Reason.RUNTIME,
            "adaptive_max_pool2d(): Expected input to have non-zero size for non-batch dimensions, but input has "
            f"sizes {list(input.shape)}",
        )
    values, indices = _adaptive_max_pool(input, size)
    return (values, indices) if return_indices else values

"""Padding of the last dimensions: with a constant, or with reflected, replicated or circular elements.

Negative padding crops, so constant padding is its own adjoint.
"""

from __future__ import annotations

from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.schema import PadMode
from gradwire_engine.op.composite import composite
from gradwire_engine.op.integer_bounds import elements_of
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.shape.axis_gather import build_positions, take_positions

Ints = tuple[int, ...]


@op(name="_constant_pad", node="ConstantPadNdBackward0", cost=8)
def constant_pad(xp: Any, input: Array, pad: Ints, value: Number) -> Array:
    """Pad with `value`. pad: (left, right) of the last dimension, then of the one before it, and so on."""
    source: list[Any] = []
    target: list[Any] = []
    shape = list(input.shape)
    for axis in range(len(pad) // 2):
        left, right = pad[2 * axis], pad[2 * axis + 1]
        dim = input.ndim - 1 - axis
        size = shape[dim]
        shape[dim] = size + left + right
        if shape[dim] < 0:
            raise EngineError(
                Reason.RUNTIME,
                f"The input size {size}, plus negative padding {left} and {right}, resulted in a negative output size, "
                f"which is invalid. Check dimension {dim} of your input.",
            )
        source.insert(0, slice(max(0, -left), max(0, size + min(0, right))))
        target.insert(0, slice(max(0, left), max(0, shape[dim] - max(0, right))))
    admit(shape, input.dtype)
    padded = xp.full(tuple(shape), value, input.dtype)
    put, taken = (..., *target), (..., *source)
    padded[put] = input[taken]
    return padded


constant_pad.casts_numbers("value")
constant_pad.bounds_results(elements_of(0, 2))
constant_pad.tangent(lambda t_input, pad: constant_pad(t_input, pad, 0))
constant_pad.grad(input=lambda g, pad: constant_pad(g, tuple(-side for side in pad), 0))


_NODES = {"reflect": "ReflectionPad", "replicate": "ReplicationPad", "circular": "CircularPad"}


@composite
def pad(input: Array, pad: Ints, mode: PadMode = "constant", value: float | None = None) -> Any:
    """Pad the last dimensions (torch.nn.functional.pad).

    pad: (left, right) of the last dimension, then of the one before it, and so on; negative values crop.
    mode: "constant", "reflect", "replicate" or "circular".
    Raises EngineError: RUNTIME for wrong sizes, NOT_SUPPORTED for another mode or rank.
    """
    if len(pad) % 2:
        raise EngineError(Reason.RUNTIME, f"Padding length must be divisible by 2, but it is {len(pad)}")
    if len(pad) > 2 * input.ndim:
        raise EngineError(
            Reason.RUNTIME,
            "Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(pad)} and input of dimension {input.ndim}",
        )
    if mode == "constant":
        return constant_pad(input, tuple(pad), 0 if value is None else value)
    if value is not None and value != 0:
        raise EngineError(Reason.RUNTIME, f'Padding mode "{mode}" doesn\'t take in value argument')
    spatial = len(pad) // 2
    if input.ndim not in (spatial + 1, spatial + 2) or spatial > 3:
        raise EngineError(
            Reason.NOT_SUPPORTED, f"Padding size {len(pad)} is not supported for {input.ndim}D input tensor."
        )
    if mode not in _NODES:
        raise EngineError(Reason.NOT_SUPPORTED, f"Unrecognised padding mode {mode}")
    sides = [(input.ndim - 1 - axis, pad[2 * axis], pad[2 * axis + 1]) for axis in reversed(range(spatial))]
    counts = [input.shape[dim] + left + right for dim, left, right in sides]
    lines = build_positions("pad", counts, lambda: tuple(_line(mode, input.shape, *side) for side in sides))
    return take_positions(input, lines, f"{_NODES[mode]}{spatial}DBackward0")


pad.unsupported("b", "reflection_pad", when=pad.given("mode", "reflect"))
pad.unsupported("b", "replication_pad", when=pad.given("mode", "replicate"))


def _line(mode: str, shape: Ints, dim: int, left: int, right: int) -> Ints:
    """Input position of each position of the padded dimension."""
    size = shape[dim]
    if mode == "reflect" and max(left, right) >= size:
        raise EngineError(
            Reason.RUNTIME,
            f"Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
            f"({left}, {right}) at dimension {dim} of input {list(shape)}",
        )
    if mode == "circular" and max(left, right) > size:
        raise EngineError(Reason.RUNTIME, "Padding value causes wrapping around more than once.")
    if size + left + right < 0 or (not size and max(left, right) > 0):
        raise EngineError(
            Reason.RUNTIME,
            f"The input size {size}, plus padding {left} and {right}, leaves nothing to repeat or to crop. Check "
            f"dimension {dim} of your input.",
        )
    places = range(-left, size + right)
    if mode == "replicate":
        return tuple(min(max(place, 0), size - 1) for place in places)
    if mode == "circular":
        first = max(0, -left)  # cropped positions are not part of the cycle
        return tuple(first + (place - first) % (size - first - max(0, -right)) for place in places)
    return tuple(size - 1 - abs(size - 1 - abs(place)) for place in places)

"""Selection by a mask, and overwriting: where, masked_fill, fill, zero, copy.

Also `zeros`, the constant with which formulas give zero gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import device as devices
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number, cast_number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.integer_bounds import copied, elements_of, only
from gradwire_engine.op.op import cast_array, op
from gradwire_engine.op.refusals import check_overlap, check_writable
from gradwire_engine.ops.base.basic import expand, sum_to_size
from gradwire_engine.ops.base.checks import admit, broadcast_shape
from gradwire_engine.ops.base.memory_format import row_major

Ints = tuple[int, ...]


def zeros(g: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Zeros of g's dtype, device and (by default) shape: a Tensor for a Tensor, an array for an array."""
    return _zeros(g, g.shape if shape is None else shape)


def ones(g: Any) -> Any:
    """Ones of g's shape, dtype and device: a Tensor for a Tensor, an array for an array."""
    return zeros(g) + 1


@op(name="_zeros", cost=4)
def _zeros(xp: Any, input: Array, shape: Ints) -> Array:
    return xp.zeros(shape, input.dtype)


@op(cost=4)
def where(xp: Any, condition: Array, input: Array | Number, other: Array | Number) -> Array:
    """input where the condition is True, other elsewhere (torch.where)."""
    if condition.dtype not in (dtypes.bool_, dtypes.uint8):
        raise EngineError(
            Reason.RUNTIME,
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{dtypes.TITLES[condition.dtype]}",
        )
    shape = broadcast_shape(condition.shape, *(value.shape for value in (input, other) if hasattr(value, "shape")))
    dtype = dtypes.result_type(input, other)
    admit(shape, dtype)
    return xp.where(condition.astype(bool, copy=False), _in(xp, input, dtype), _in(xp, other, dtype))


def _in(xp: Any, value: Any, dtype: Any) -> Any:
    return cast_array(value, dtype) if hasattr(value, "dtype") else xp.asarray(value, dtype)


where.bounds_results(elements_of(1, 2))
where.grad(
    input=lambda g, condition: where(condition, g, 0),
    other=lambda g, condition: where(condition, 0, g),
).tangent("linear")


def _fill_value(op_name: str, input: Array, value: Any) -> Any:
    """Cast a number or 0-d array to the input's dtype. Raises EngineError: RUNTIME if the value has dimensions."""
    if hasattr(value, "ndim") and value.ndim:
        raise EngineError(
            Reason.RUNTIME,
            f"{op_name} only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s).",
        )
    return cast_array(value, input.dtype)


#: What PyTorch calls a mask's dtype when it refuses the mask, by the dtype's usual title.
_C_NAMES = {
    "Byte": "unsigned char", "Char": "signed char", "Short": "short int", "Int": "int", "Long": "long int",
    "UInt16": "short unsigned int", "UInt32": "unsigned int", "UInt64": "long unsigned int", "Half": "c10::Half",
    "BFloat16": "c10::BFloat16", "Float": "float", "Double": "double", "ComplexFloat": "c10::complex<float>",
    "ComplexDouble": "c10::complex<double>",
}  # fmt: skip


def check_mask(mask: Any) -> None:
    """Refuse a mask to fill by that is not boolean. Raises EngineError: RUNTIME."""
    if mask.dtype != dtypes.bool_:
        raise EngineError(
            Reason.RUNTIME,
            f"masked_fill_ only supports boolean masks, but got mask with dtype {_C_NAMES[dtypes.TITLES[mask.dtype]]}",
        )


@op(in_place=True, node=lambda input, mask, value: f"MaskedFillBackward{int(type(value) is Tensor)}", cost=4)
@row_major
def masked_fill(xp: Any, input: Array, mask: Array, value: Array | Number) -> Array:
    """value where the mask is True, input elsewhere (torch.masked_fill)."""
    check_mask(mask)
    admit(broadcast_shape(input.shape, mask.shape), input.dtype)
    given: Any = value
    if not hasattr(given, "dtype"):
        value = cast_number(given, input.dtype)
    elif not given.ndim:
        cast_number(given.item(), input.dtype)
    return xp.where(mask, xp.asarray(_fill_value("masked_fill_", input, value)), input)


masked_fill.bounds_results(elements_of(0, 2))
masked_fill.grad(
    input=lambda g, mask: masked_fill(g, mask, 0),
    value=lambda g, mask: sum_to_size(where(mask, g, 0), ()),
).tangent("linear")


@op(in_place=True, node=lambda input, value: f"FillBackward{2 + (type(value) is Tensor)}", cost=4)
def fill(xp: Any, input: Array, value: Array | Number) -> Array:
    """One value, with the input's shape and dtype (torch.Tensor.fill_)."""
    _refuse_wide(value)
    value = value if hasattr(value, "dtype") else cast_number(value, input.dtype)
    return xp.full(input.shape, cast_array(value, input.dtype), input.dtype)


def brought(value: Any, target: Array) -> Any:
    """A value on the device of an array that it is written to; numbers of the host need not be copied."""
    if not hasattr(value, "ndim") or isinstance(value, np.generic):
        return value
    return devices.to_device(value, devices.device_of(target))


def _refuse_wide(value: Any) -> None:
    if hasattr(value, "ndim") and value.ndim:
        raise EngineError(
            Reason.RUNTIME,
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.",
        )


def _write_fill(xp: Any, input: Array, value: Any) -> None:
    _refuse_wide(value)
    if hasattr(value, "dtype"):  # a number may be written to elements that share memory, a tensor may not
        check_writable(input)
        value = brought(value, input)
    input[...] = cast_array(value if hasattr(value, "dtype") else cast_number(value, input.dtype), input.dtype)


fill.into(_write_fill, always=True).bounds_results(elements_of(1))
fill.takes_from_devices(lambda input, value: not getattr(value, "ndim", 0))
fill.grad(
    input=lambda g: zeros(g), value=lambda g, value_meta: on_device(sum_to_size(g, ()), value_meta.device)
).tangent("linear")


@op(in_place=True, cost=4)
def zero(xp: Any, input: Array) -> Array:
    """Zeros with the input's shape and dtype (torch.Tensor.zero_)."""
    return xp.zeros(input.shape, input.dtype)


zero.into(lambda xp, input: input.fill(0), always=True).bounds_results(only(0))
zero.grad(input=lambda g: zeros(g)).tangent("linear")


@op(in_place=True, node="CopyBackwards", drops_grad=True, cost=4)
def copy(xp: Any, input: Array, src: Array, non_blocking: bool = False) -> Array:
    """src, broadcast to the input's shape and cast to its dtype and device (torch.Tensor.copy_)."""
    return _source(input, src).copy()


def _source(input: Array, src: Array) -> Array:
    return expand(cast_array(devices.to_device(src, devices.device_of(input)), input.dtype), input.shape)


def _write_copy(xp: Any, input: Array, src: Array, non_blocking: bool) -> None:
    check_writable(input)
    src = brought(src, input)
    check_overlap(input, src)
    input[...] = _source(input, src)


copy.into(_write_copy, always=True).bounds_results(copied)
copy.takes_from_devices(lambda input, src, non_blocking: True)
copy.grad(input=lambda g: zeros(g), src=lambda g, src_meta: on_device(g, src_meta.device)).tangent("linear")


def on_device(value: Any, device: str) -> Any:
    """Copy a gradient to a device; return the gradient itself if it is already there."""
    from gradwire_engine.ops.base.basic import to_device

    return (
        value
        if (value.device if type(value) is Tensor else devices.device_of(value)) == device
        else to_device(value, device)
    )

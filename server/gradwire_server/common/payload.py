"""Payload: converts bytes to arrays and back: row-major, little-endian, no gaps. Checks sizes before allocating."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradwire.v1 import types_pb2
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, host
from gradwire_engine.core.dtypes import DType
from gradwire_server.common.errors import Refusal

MAX_DIMS = 64  # NumPy's
MAX_BYTES = 1 << 62
FROM_WIRE: dict[int, DType] = {
    types_pb2.Dtype.Value(f"DTYPE_{name.upper()}"): dtype for name, dtype in dtypes.BY_NAME.items()
}
TO_WIRE: dict[DType, int] = {dtype: number for number, dtype in FROM_WIRE.items()}
_SWAPPED = sys.byteorder == "big"


def dtype_of(number: int) -> DType:
    """The dtype of a wire number. Raises Refusal: DTYPE, if it is unknown."""
    dtype = FROM_WIRE.get(number)
    if dtype is None:
        known = ", ".join(sorted(dtypes.BY_NAME))
        raise Refusal("DTYPE", f"dtype {number} is not known; the server has {known}", dtype=number)
    return dtype


def checked_bytes(shape: Sequence[int], dtype: DType) -> int:
    """Bytes of a tensor of a shape. Raises Refusal: SHAPE, if no array can have it."""
    if len(shape) > MAX_DIMS:
        raise Refusal("SHAPE", f"a tensor has at most {MAX_DIMS} dimensions, not {len(shape)}")
    if any(size < 0 for size in shape):
        raise Refusal("SHAPE", f"a shape has no negative sizes: {list(shape)}", shape=list(shape))
    # NumPy bounds the product of the sizes that are not zero, even where the tensor is empty.
    if math.prod(size for size in shape if size) * dtype.itemsize > MAX_BYTES:
        raise Refusal("SHAPE", f"shape {list(shape)} is out of bounds", shape=list(shape))
    return math.prod(shape) * dtype.itemsize


def check_size(shape: Sequence[int], dtype: DType, given: int) -> int:
    """Bytes of a tensor; `given` must equal them. Raises Refusal: SHAPE, PAYLOAD_SIZE."""
    wanted = checked_bytes(shape, dtype)
    if given != wanted:
        partial = given % dtype.itemsize
        raise Refusal(
            "PAYLOAD_SIZE",
            f"{dtypes.name_of(dtype)} of shape {list(shape)} takes {wanted} bytes, but {given} were given"
            + (f", which is no multiple of the item size {dtype.itemsize}" if partial else ""),
            shape=list(shape),
            dtype=dtypes.name_of(dtype),
            expected=wanted,
            given=given,
        )
    return wanted


def array_of(data: "bytes | np.ndarray[Any, Any]", dtype: DType, shape: Sequence[int], copy: bool = True) -> Array:
    """The array of the bytes; call `check_size` first. Raises Refusal: ARGUMENT_VALUE for bools other than 0 and 1."""
    if dtype == dtypes.bool_:
        flags = np.frombuffer(data, np.uint8)
        if flags.size and flags.max() > 1:
            raise Refusal("ARGUMENT_VALUE", "bool values are bytes of 0 or 1", dtype="bool")
    array = np.frombuffer(data, dtype.newbyteorder("<") if _SWAPPED else dtype).reshape(tuple(shape))
    return array.astype(dtype, order="C", copy=copy)


def bytes_of(array: Array) -> bytes:
    """An array's values in wire order."""
    values = host(array)
    if _SWAPPED:
        values = values.astype(values.dtype.newbyteorder("<"))
    return values.tobytes()


def wire_view(array: Array) -> tuple[memoryview, bool]:
    """An array's values in wire order, read-only, and whether they share the array's memory."""
    values = host(array)
    as_sent = values.dtype.newbyteorder("<") if _SWAPPED else values.dtype
    sent = np.ascontiguousarray(values, as_sent)
    return sent.reshape(-1).view(np.uint8).data.toreadonly(), values is array and np.may_share_memory(sent, values)

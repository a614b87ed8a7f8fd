"""Arrays of another dtype."""

from __future__ import annotations

from typing import Any

from gradwire._base import dtypes
from gradwire._base.dtypes import dtype
from gradwire._base.errors import GradwireTypeError
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, call


def astype(x: Tensor, dtype: dtype, /, *, copy: bool = True, device: Any = None) -> Array:
    """The array in another dtype; new memory unless `copy` is False and nothing changes.

    Raises TypeError for complex to real, which loses a part: use real, imag or abs.
    """
    if x.is_complex() and not dtype.is_complex and dtype is not dtypes.bool_:
        raise GradwireTypeError(
            f"astype(): {x.dtype} to {dtype} would lose the imaginary parts; use real(), imag(), abs()"
        )
    target_device = x.device if device is None else dtypes.device(device)
    if dtype is x.dtype and target_device == x.device:
        return call("clone", x) if copy else as_array(x, (x,))
    return as_array(x.to(device=target_device, dtype=dtype), (x,))

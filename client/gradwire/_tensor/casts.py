"""Casts: moves and casts tensors by differentiable copies; returns the same tensor if nothing changes."""

from __future__ import annotations

from typing import Any

from gradwire._base import dtypes
from gradwire._base.memory_formats import PRESERVE, name_of, suggested
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec
from gradwire._tensor.call import _call


class Casts:
    """Mixin with the methods of Tensor that change dtype or device.

    The methods have the names of Python types, which they would shadow in the class body of Tensor.
    """

    __slots__ = ()
    _spec: Spec

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The same values with another dtype or on another device: to(dtype), to(device), to(device, dtype), to(other).

        A differentiable copy, or this very tensor if nothing changes (unless `copy=True`).
        """
        wanted_dtype, wanted_device, copied = _parse_to(args, kwargs)
        return self._in_format(kwargs.get("memory_format"), wanted_dtype, wanted_device, copied)

    def _in_format(
        self, memory_format: Any, wanted_dtype: dtypes.dtype | None, wanted_device: str | None, copied: bool = False
    ) -> Any:
        """Cast and move the tensor; what is new lies in the memory format."""
        made = self._moved(wanted_dtype, wanted_device, copied)
        if memory_format is None or (name := name_of(memory_format)) == PRESERVE:
            return made
        if made is self and suggested(self._spec.shape, self.stride()) == name:
            return self
        return made.contiguous(memory_format)

    def _moved(self, wanted_dtype: dtypes.dtype | None, wanted_device: str | None, copied: bool = False) -> Any:
        spec = self._spec
        same_dtype = wanted_dtype is None or wanted_dtype is spec.dtype
        same_device = wanted_device is None or wanted_device == spec.device_name
        if wanted_device == "cuda" and spec.device.type == "cuda":
            same_device = True  # "cuda" without an index is the tensor's own GPU
        if same_dtype and same_device:
            return _call("to", (self,), (("copy", True),)) if copied else self
        named: list[tuple[str, Any]] = []
        if not same_device:
            named.append(("device", wanted_device))
        if not same_dtype:
            named.append(("dtype", wanted_dtype))
        return _call("to", (self,), named)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Name of the tensor's type ("torch.FloatTensor"), or with `dtype` the tensor cast to it."""
        if dtype is None:
            prefix = "torch.cuda." if self._spec.device.type == "cuda" else "torch."
            return f"{prefix}{self._spec.dtype.title}Tensor"
        if isinstance(dtype, str):
            title = dtype.rsplit(".", 1)[-1].removesuffix("Tensor")
            if title not in dtypes.BY_TITLE:
                raise ValueError(f"invalid type: '{dtype}'")
            dtype = dtypes.BY_TITLE[title]
        return self._moved(dtypes.as_dtype(dtype), None)

    def type_as(self, other: Any) -> Any:
        """This tensor with another's dtype."""
        return self._moved(other._spec.dtype, None)

    def cpu(self, memory_format: Any = None) -> Any:
        """This tensor in the server's memory."""
        return self._in_format(memory_format, None, "cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """This tensor on the server's GPU. Raises RuntimeError if it has none."""
        return self._in_format(memory_format, None, dtypes.device_name("cuda" if device is None else device))

    def float(self, memory_format: Any = None) -> Any:
        """Cast to float32."""
        return self._in_format(memory_format, dtypes.float32, None)

    def double(self, memory_format: Any = None) -> Any:
        """Cast to float64."""
        return self._in_format(memory_format, dtypes.float64, None)

    def half(self, memory_format: Any = None) -> Any:
        """Cast to float16."""
        return self._in_format(memory_format, dtypes.float16, None)

    def bfloat16(self, memory_format: Any = None) -> Any:
        """Cast to bfloat16."""
        return self._in_format(memory_format, dtypes.bfloat16, None)

    def int(self, memory_format: Any = None) -> Any:
        """Cast to int32."""
        return self._in_format(memory_format, dtypes.int32, None)

    def long(self, memory_format: Any = None) -> Any:
        """Cast to int64."""
        return self._in_format(memory_format, dtypes.int64, None)

    def short(self, memory_format: Any = None) -> Any:
        """Cast to int16."""
        return self._in_format(memory_format, dtypes.int16, None)

    def char(self, memory_format: Any = None) -> Any:
        """Cast to int8."""
        return self._in_format(memory_format, dtypes.int8, None)

    def byte(self, memory_format: Any = None) -> Any:
        """Cast to uint8."""
        return self._in_format(memory_format, dtypes.uint8, None)

    def bool(self, memory_format: Any = None) -> Any:
        """Cast to bool."""
        return self._in_format(memory_format, dtypes.bool_, None)

    def cfloat(self, memory_format: Any = None) -> Any:
        """Cast to complex64."""
        return self._in_format(memory_format, dtypes.complex64, None)

    def cdouble(self, memory_format: Any = None) -> Any:
        """Cast to complex128."""
        return self._in_format(memory_format, dtypes.complex128, None)


def _parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dtypes.dtype | None, str | None, bool]:
    """Parse the arguments of Tensor.to, in any of its forms, to dtype, device and copy flag."""
    wanted_dtype, wanted_device = kwargs.get("dtype"), kwargs.get("device")
    flags = [arg for arg in args if isinstance(arg, bool)]
    copied = bool(kwargs.get("copy", flags[1] if len(flags) > 1 else False))
    other = kwargs.get("other")
    for arg in args:
        if isinstance(arg, Handle):
            other = arg
        elif isinstance(arg, dtypes.dtype) or (isinstance(arg, type) and arg in dtypes.BY_PYTHON):
            wanted_dtype = arg
        elif isinstance(arg, (str, dtypes.device)) or (isinstance(arg, int) and not isinstance(arg, bool)):
            wanted_device = arg
        elif arg is not None and not isinstance(arg, bool):
            raise TypeError(f"to() received an invalid argument: {type(arg).__name__}")
    if other is not None:
        wanted_dtype, wanted_device = other._spec.dtype, other._spec.device_name
    return (
        None if wanted_dtype is None else dtypes.as_dtype(wanted_dtype),
        None if wanted_device is None else dtypes.device_name(wanted_device),
        copied,
    )

"""Tensor descriptions: dtype, device and size, as plain values without a server.

Their reprs equal PyTorch's (`torch.float32`, `device(type='cpu')`, `torch.Size([2, 3])`). A program
prints the same text after its import line changes.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable
from typing import Any, SupportsIndex, overload

import numpy as np

from gradwire._base.errors import GradwireNotImplementedError
from gradwire.v1 import types_pb2 as pb


class dtype:
    """An element type (torch.dtype). Each type is one object, so `is` compares types."""

    __slots__ = ("code", "is_complex", "is_floating_point", "itemsize", "name", "numpy", "title")

    def __init__(self, name: str, code: int, numpy: str | None, itemsize: int, title: str) -> None:
        self.name = name
        self.code = code
        # NumPy has no bfloat16: values are sent as the upper 16 bits of float32.
        self.numpy: np.dtype[Any] | None = None if numpy is None else np.dtype(numpy)
        self.itemsize = itemsize
        self.is_floating_point = "float" in name
        self.is_complex = name.startswith("complex")
        self.title = title

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: object) -> dtype:
        return self

    @property
    def is_signed(self) -> builtins.bool:
        """Whether the dtype can represent negative values."""
        return self.name != "bool" and not self.name.startswith("uint")

    def to_complex(self) -> dtype:
        """The complex dtype for this real dtype: complex128 for 8-byte items, else complex64."""
        return complex128 if self.itemsize == 8 else complex64

    def to_real(self) -> dtype:
        """The dtype of the real and imaginary parts. A real dtype returns itself."""
        return {complex64: float32, complex128: float64}.get(self, self)


float32 = dtype("float32", pb.DTYPE_FLOAT32, "<f4", 4, "Float")
float64 = dtype("float64", pb.DTYPE_FLOAT64, "<f8", 8, "Double")
float16 = dtype("float16", pb.DTYPE_FLOAT16, "<f2", 2, "Half")
bfloat16 = dtype("bfloat16", pb.DTYPE_BFLOAT16, None, 2, "BFloat16")
int8 = dtype("int8", pb.DTYPE_INT8, "<i1", 1, "Char")
int16 = dtype("int16", pb.DTYPE_INT16, "<i2", 2, "Short")
int32 = dtype("int32", pb.DTYPE_INT32, "<i4", 4, "Int")
int64 = dtype("int64", pb.DTYPE_INT64, "<i8", 8, "Long")
uint8 = dtype("uint8", pb.DTYPE_UINT8, "<u1", 1, "Byte")
uint16 = dtype("uint16", pb.DTYPE_UINT16, "<u2", 2, "UInt16")
uint32 = dtype("uint32", pb.DTYPE_UINT32, "<u4", 4, "UInt32")
uint64 = dtype("uint64", pb.DTYPE_UINT64, "<u8", 8, "UInt64")
bool_ = bool = dtype("bool", pb.DTYPE_BOOL, "?", 1, "Bool")
complex64 = dtype("complex64", pb.DTYPE_COMPLEX64, "<c8", 8, "ComplexFloat")
complex128 = dtype("complex128", pb.DTYPE_COMPLEX128, "<c16", 16, "ComplexDouble")

ALL = (
    *(float32, float64, float16, bfloat16, int8, int16, int32, int64),
    *(uint8, uint16, uint32, uint64, bool_, complex64, complex128),
)
BY_CODE = {item.code: item for item in ALL}
BY_NAME = {item.name: item for item in ALL}
BY_TITLE = {item.title: item for item in ALL}
BY_NUMPY = {item.numpy: item for item in ALL if item.numpy is not None}
#: Python types accepted as dtypes: torch.zeros(2, dtype=float).
BY_PYTHON = {float: float64, int: int64, builtins.bool: bool_, complex: complex128}


class AbsentDtype(dtype):
    """A dtype of PyTorch's that no server computes with: it can be compared and printed only."""

    __slots__ = ()

    def __init__(self, name: str, itemsize: int) -> None:
        for field, value in (("name", name), ("numpy", None), ("itemsize", itemsize), ("title", name)):
            setattr(self, field, value)
        self.is_floating_point, self.is_complex = "float" in name, name.startswith("complex")

    def __getattr__(self, name: str) -> object:
        if name == "code":
            error = GradwireNotImplementedError(f"gradwire has no tensors of torch.{self.name}")
            error.reason = "NOT_SUPPORTED"
            raise error
        raise AttributeError(name)


#: PyTorch's dtypes that are missing here, by name.
ABSENT = {
    each.name: each
    for each in (
        AbsentDtype("complex32", 4),
        *(AbsentDtype(f"float8_{kind}", 1) for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")),
        AbsentDtype("float4_e2m1fn_x2", 1),
        *(AbsentDtype(name, 1) for name in ("qint8", "quint8", "quint4x2", "quint2x4", "bits8")),
        *(AbsentDtype(f"{sign}int{bits}", 1) for sign in ("", "u") for bits in range(1, 8)),
        AbsentDtype("qint32", 4),
    )
}
ABSENT["chalf"] = ABSENT["complex32"]


def as_dtype(value: object) -> dtype:
    """A dtype from a dtype or from Python's float, int, bool or complex. Raises TypeError for anything else."""
    if isinstance(value, dtype):
        return value
    if isinstance(value, type):
        found = BY_PYTHON.get(value, getattr(value, "dtype", None))
        if isinstance(found, dtype):  # of Python's types, or of a class such as FloatTensor
            return found
    raise TypeError(f"dtype must be a gradwire.dtype such as gradwire.float32, not {value!r}")


# PyTorch's devices that no server has. Their names can be compared.
_OTHER_DEVICES = frozenset(("meta", "mps", "xpu", "hpu", "npu", "mtia", "ipu", "xla", "mlu", "musa", "sdaa", "neuron"))


class device:
    """A device that holds tensors: device("cuda:0"), device("cuda", 0) (torch.device)."""

    __slots__ = ("index", "type")

    def __init__(self, type: str | device, index: int | None = None) -> None:
        if isinstance(type, device):
            self.type: str = type.type
            self.index: int | None = type.index
            return
        kind, _, number = type.partition(":")
        if number:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed: {type}")
            if not number.isdecimal():
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if kind not in ("cpu", "cuda") and kind not in _OTHER_DEVICES:
            raise RuntimeError(f"Expected one of cpu, cuda device type at start of device string: {kind}")
        self.type = kind
        self.index = index

    def __enter__(self) -> device:
        """Make tensors on this device in the block. Raises NotImplementedError for other devices than CPU and GPU."""
        if self.type not in ("cpu", "cuda"):
            _refuse_meta(self.type)
            raise GradwireNotImplementedError(
                f"gradwire does not support `with torch.device('{self}')`: give the device to each function"
            )
        _entered_devices.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _entered_devices.pop()

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> builtins.bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))


def _refuse_meta(kind: str) -> None:
    if kind == "meta":
        error = GradwireNotImplementedError(
            "gradwire has no tensors without values (device 'meta'): a result's size and dtype come from computing it. "
            "Make the module on 'cpu' or 'cuda'; torch.nn.utils.skip_init leaves out its initialization, and "
            "load_state_dict sets its values"
        )
        error.reason = "NOT_SUPPORTED"
        raise error


def device_name(value: device | str | int | None) -> str:
    """The device name of a tensor, such as "cpu" or "cuda:0". An int is a CUDA index; None is the default device."""
    if value is None:
        return default_device_name()
    if isinstance(value, int):
        return f"cuda:{value}"
    named = device(value)
    _refuse_meta(named.type)
    return named.type if named.type == "cpu" else f"{named.type}:{named.index or 0}"


# The default device of each block that sets one, the innermost last; before them that of set_default_device.
_entered_devices: list[device] = []


def default_device_name() -> str:
    """The name of the device of new tensors."""
    return device_name(_entered_devices[-1]) if _entered_devices else "cpu"


def get_default_device() -> device:
    """The device of new tensors (torch.get_default_device)."""
    return _entered_devices[-1] if _entered_devices else device("cpu")


def set_default_device(device: device | str | int | None) -> None:
    """Set the device of new tensors; None is the server's CPU (torch.set_default_device).

    Raises NotImplementedError for other devices than CPU and GPU.
    """
    kept = _entered_devices[1:]
    _entered_devices.clear()
    if device is not None:
        _Device(device_name(device)).__enter__()
    _entered_devices.extend(kept)


_Device = device


class Size(tuple[int, ...]):
    """A tensor's sizes, a tuple of ints (torch.Size)."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor of this size."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Size: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | Size:
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(found, tuple) else found

    def __add__(self, other: Iterable[Any]) -> Size:
        if not isinstance(other, tuple):
            if hasattr(type(other), "__radd__") and not isinstance(other, (int, float, complex)):
                return NotImplemented
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: tuple[Any, ...]) -> Size:
        if not isinstance(other, tuple):
            return NotImplemented
        return Size(tuple.__add__(other, self))

    def __mul__(self, count: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


_default_dtype = float32


def get_default_dtype() -> dtype:
    """The dtype of a tensor made of Python floats (torch.get_default_dtype)."""
    return _default_dtype


def set_default_dtype(d: dtype) -> None:
    """Set the dtype of tensors made of Python floats (torch.set_default_dtype). Raises TypeError unless floating."""
    global _default_dtype
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, not {d!r}")
    _default_dtype = d


class finfo:
    """The limits of a floating-point dtype (torch.finfo): eps, max, min, tiny, smallest_normal, resolution, bits."""

    def __init__(self, type: dtype | None = None) -> None:
        of = _default_dtype if type is None else type
        if not (of.is_floating_point or of.is_complex):
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{of}'")
        real = of.to_real()
        self.dtype = real.name
        self.bits = real.itemsize * 8
        if real.numpy is None:  # bfloat16: float32's exponents with seven bits of fraction
            self.eps, self.max, self.tiny, self.resolution = 2.0**-7, (2 - 2.0**-7) * 2.0**127, 2.0**-126, 0.01
        else:
            known: Any = np.finfo(real.numpy)
            self.eps, self.max = float(known.eps), float(known.max)
            self.tiny, self.resolution = float(known.smallest_normal), float(known.resolution)
        self.min = -self.max
        self.smallest_normal = self.tiny


class iinfo:
    """The limits of an integer dtype (torch.iinfo): max, min, bits."""

    def __init__(self, type: dtype) -> None:
        if type.is_floating_point or type.is_complex or type is bool_ or type.numpy is None:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        known = np.iinfo(type.numpy)
        self.dtype, self.bits = type.name, type.itemsize * 8
        self.max, self.min = int(known.max), int(known.min)

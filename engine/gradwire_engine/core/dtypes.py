"""Element types, and their promotion by PyTorch's rules.

The engine's dtypes are NumPy's dtype objects. Promotion follows PyTorch's table, not NumPy's: an int never widens
a float. A 0-d tensor or a Python number counts only if its category exceeds that of the dimensioned tensors.
The order of categories is bool < int < float < complex.
PyTorch refuses to promote uint16, uint32 and uint64; here the result is the smallest integer type that holds both.
"""

import math
from functools import cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import EngineError, Reason

DType: TypeAlias = "np.dtype[Any]"
Number: TypeAlias = "bool | int | float | complex"

bool_ = np.dtype(np.bool_)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
complex64 = np.dtype(np.complex64)
complex128 = np.dtype(np.complex128)

BY_NAME: dict[str, DType] = {
    "bool": bool_,
    "uint8": uint8,
    "uint16": uint16,
    "uint32": uint32,
    "uint64": uint64,
    "int8": int8,
    "int16": int16,
    "int32": int32,
    "int64": int64,
    "float16": float16,
    "bfloat16": bfloat16,
    "float32": float32,
    "float64": float64,
    "complex64": complex64,
    "complex128": complex128,
}
NAMES = {dtype: name for name, dtype in BY_NAME.items()}
# PyTorch's type names for messages ("result type Float").
TITLES = {
    bool_: "Bool", uint8: "Byte", int8: "Char", int16: "Short", int32: "Int", int64: "Long", float16: "Half",
    uint16: "UInt16", uint32: "UInt32", uint64: "UInt64", bfloat16: "BFloat16", float32: "Float", float64: "Double",
    complex64: "ComplexFloat", complex128: "ComplexDouble",
}  # fmt: skip
BOOL, INT, FLOAT, COMPLEX = range(4)
_CATEGORY = {
    dtype: BOOL if name == "bool" else FLOAT if "float" in name else COMPLEX if "complex" in name else INT
    for name, dtype in BY_NAME.items()
}
_SIGNED_OF_BYTES: dict[int, DType] = {2: int16, 4: int32, 8: int64}
_PARTS: dict[DType, DType] = {complex64: float32, complex128: float64}


def category(dtype: DType) -> int:
    """BOOL, INT, FLOAT or COMPLEX."""
    return _CATEGORY[dtype]


def is_half(dtype: DType) -> bool:
    """Whether a dtype is float16 or bfloat16."""
    return dtype.itemsize == 2 and category(dtype) == FLOAT


def is_differentiable(dtype: DType) -> bool:
    """Whether tensors of this dtype can require a gradient: floating and complex ones can."""
    return _CATEGORY[dtype] >= FLOAT


def name_of(dtype: DType) -> str:
    """PyTorch's name without "torch."."""
    return NAMES[dtype]


def real_part(dtype: DType) -> DType:
    """The dtype of a complex dtype's parts; a real dtype unchanged."""
    return _PARTS.get(dtype, dtype)


def to_complex(dtype: DType) -> DType:
    """The complex dtype whose parts hold this dtype."""
    return complex128 if dtype in (float64, complex128) else complex64


@cache
def promote_types(a: DType, b: DType) -> DType:
    """Common dtype of two operands of the same kind: dimensioned, 0-d or number (torch.promote_types)."""
    if a == b:
        return a
    low, high = sorted((a, b), key=category)
    if category(low) < category(high):
        if category(high) == COMPLEX and low == float64:
            return complex128
        return high
    if category(a) == INT:
        return _promote_ints(a, b)
    if category(a) == FLOAT and {a, b} == {float16, bfloat16}:
        return float32
    return a if a.itemsize > b.itemsize else b


def _promote_ints(a: DType, b: DType) -> DType:
    if a.kind == b.kind:
        return a if a.itemsize > b.itemsize else b
    unsigned, signed = (a, b) if a.kind == "u" else (b, a)
    if unsigned == uint64:
        raise EngineError(
            Reason.DTYPE,
            f"Promotion of UInt64 with signed integers is not supported, attempted to promote {TITLES[a]} and "
            f"{TITLES[b]}: no integer type holds both",
        )
    return signed if signed.itemsize > unsigned.itemsize else _SIGNED_OF_BYTES[unsigned.itemsize * 2]


def default() -> DType:
    """Default dtype of Python floats: float32 unless set (torch.get_default_dtype)."""
    found: DType = CURRENT.get().default_dtype
    return found


def of_number(value: Number) -> DType:
    """Default dtype of a Python number: bool, int64, the default float or its complex dtype."""
    if isinstance(value, bool | np.bool_):
        return bool_
    if isinstance(value, int | np.integer):
        return int64
    return to_complex(default()) if isinstance(value, complex) else default()


def result_type(*values: Any) -> DType:
    """Common dtype of arrays and Python numbers (torch.result_type)."""
    groups: list[DType | None] = [None, None, None]
    for value in values:
        if hasattr(value, "dtype"):
            rank, dtype = (0 if value.ndim else 1), value.dtype
        else:
            rank, dtype = 2, of_number(value)
        held = groups[rank]
        groups[rank] = dtype if held is None else promote_types(held, dtype)
    result: DType | None = None
    for dtype in groups:
        if dtype is None:
            continue
        if result is None:
            result = dtype
        elif category(dtype) > category(result):
            # A float keeps its precision: float32 with a complex128 number or 0-d tensor gives complex64.
            result = promote_types(result, dtype) if category(result) < FLOAT else to_complex(result)
    if result is None:
        raise EngineError(Reason.ARGUMENT_TYPE, "result_type needs at least one tensor or number")
    return result


# C++ names of element types, for PyTorch's overflow message.
_C_NAMES = {
    uint8: "uint8_t", uint16: "uint16_t", uint32: "uint32_t", uint64: "uint64_t",
    int8: "int8_t", int16: "int16_t", int32: "int",
    int64: "int64_t", float16: "c10::Half", bfloat16: "c10::BFloat16", float32: "float",
    float64: "double", complex64: "c10::complex<float>", complex128: "c10::complex<double>",
}  # fmt: skip


def cast_number(value: Any, dtype: DType) -> Any:
    """Convert a number to a value of this dtype: truncate floats for ints, wrap negative ints for unsigned dtypes.

    Raises EngineError: RUNTIME if it is out of range, or has an imaginary part and the dtype is real.
    """
    if dtype == bool_:
        return bool(value)
    if isinstance(value, complex) and dtype.kind != "c":
        if value.imag:
            raise _overflow(value, dtype)
        value = value.real
    if category(dtype) == INT:
        limits = np.iinfo(dtype)
        wraps = not limits.min and not isinstance(value, float | np.floating)
        if not math.isfinite(value) or not (-limits.max if wraps else limits.min) <= value <= limits.max:
            raise _overflow(value, dtype)
        return int(value) % (limits.max + 1) if not limits.min else int(value)
    if not isinstance(value, complex) and math.isfinite(value) and abs(value) > _most(dtype):
        raise _overflow(value, dtype)
    return value


@cache
def _most(dtype: DType) -> float:
    """The largest number of a floating dtype, or of a complex one's parts. To look it up takes 10 µs."""
    return float(ml_dtypes.finfo(real_part(dtype)).max)  # type: ignore[no-untyped-call]


def _overflow(value: Any, dtype: DType) -> EngineError:
    return EngineError(
        Reason.RUNTIME,
        f"value cannot be converted to type {_C_NAMES.get(dtype, name_of(dtype))} without overflow: {value}",
        value=value,
    )

"""Legacy: accepts PyTorch's tensor types by name (`FloatTensor`), memory formats and machine settings.

The settings concern the server. They are stored and returned, and change no result.
"""

from __future__ import annotations

from typing import Any

from gradwire._base import dtypes
from gradwire._base.dtypes import Size
from gradwire._functions.create import empty, make_tensor
from gradwire._tensor.tensor import Tensor


class _TensorType(type):
    """A class that only names a dtype: tensors of that dtype are its instances."""

    dtype: dtypes.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and not instance.is_cuda

    def __call__(cls, *args: Any) -> Tensor:
        """A tensor of this dtype, from sizes or from values."""
        if not args or all(type(arg) is int for arg in args):
            return empty(*(args or (0,)), dtype=cls.dtype)
        if len(args) != 1:
            raise TypeError(f"{cls.__name__}() takes sizes, or one list, array or tensor of values")
        if isinstance(args[0], Size):
            return empty(*args[0], dtype=cls.dtype)
        if isinstance(args[0], Tensor):
            if args[0].dtype is not cls.dtype:
                raise TypeError(f"expected {cls.__name__} (got {args[0].type()})")
            return args[0].detach()
        return make_tensor(args[0], cls.dtype)


def _type(title: str) -> Any:
    made = _TensorType(f"{title}Tensor", (), {"dtype": dtypes.BY_TITLE[title]})
    made.__module__ = "gradwire"
    return made


FloatTensor = _type("Float")
DoubleTensor = _type("Double")
HalfTensor = _type("Half")
BFloat16Tensor = _type("BFloat16")
LongTensor = _type("Long")
IntTensor = _type("Int")
ShortTensor = _type("Short")
CharTensor = _type("Char")
ByteTensor = _type("Byte")
BoolTensor = _type("Bool")


class memory_format:
    """PyTorch's order of a tensor's dimensions in memory, by name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


class layout:
    """How a tensor's elements are stored; here all tensors are strided."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> str:
        return self._name


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")


class _Switches:
    """Current values of the settings."""

    deterministic = False
    warn_only = False
    precision = "highest"
    threads = 1


def set_default_tensor_type(t: Any) -> None:
    """Set the default dtype to a tensor type's dtype. Raises TypeError for a type that is not floating."""
    if isinstance(t, str):
        title = t.rsplit(".", 1)[-1].removesuffix("Tensor")
        if title not in dtypes.BY_TITLE:
            raise TypeError(f"invalid type object: {t!r}; expected a floating tensor type such as gradwire.FloatTensor")
        dtypes.set_default_dtype(dtypes.BY_TITLE[title])
        return
    if not isinstance(t, _TensorType):
        raise TypeError(f"invalid type object: {t!r}; expected a floating tensor type such as gradwire.FloatTensor")
    dtypes.set_default_dtype(t.dtype)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Store the setting; no effect. The server's results depend only on the inputs and its number of threads."""
    _Switches.deterministic, _Switches.warn_only = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Setting of use_deterministic_algorithms."""
    return _Switches.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Setting `warn_only` of use_deterministic_algorithms."""
    return _Switches.warn_only


def set_float32_matmul_precision(precision: str) -> None:
    """Store the setting; float32 products are always computed in float32. Raises ValueError for an unknown name."""
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f'{precision} is not one of "highest", "high" or "medium"')
    _Switches.precision = precision


def get_float32_matmul_precision() -> str:
    """Setting of set_float32_matmul_precision."""
    return _Switches.precision


def set_num_threads(number: int) -> None:
    """Store the setting; no effect. The server's option `--blas-threads` sets the number of threads.

    Raises RuntimeError for a number below 1.
    """
    if number < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    _Switches.threads = number


def get_num_threads() -> int:
    """Setting of set_num_threads, initially 1."""
    return _Switches.threads


_conversion = {"overwrite": False, "swap": False}


def get_overwrite_module_params_on_conversion() -> bool:
    """What `set_overwrite_module_params_on_conversion` set (torch.__future__)."""
    return _conversion["overwrite"]


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Store the setting. `Module.to` keeps the parameter objects either way (torch.__future__)."""
    _conversion["overwrite"] = value


def get_swap_module_params_on_conversion() -> bool:
    """What `set_swap_module_params_on_conversion` set (torch.__future__)."""
    return _conversion["swap"]


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Store the setting. `Module.to` keeps the parameter objects either way (torch.__future__)."""
    _conversion["swap"] = value

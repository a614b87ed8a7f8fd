"""Names in the pickles of torch.save, and what they mean here: how tensors are rebuilt from a file's storages.

They are also found as `torch._utils`, `torch.serialization` and `torch.storage`.
"""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.errors import GradwireRuntimeError
from gradwire._functions.pickled import from_stored
from gradwire._tensor import ops
from gradwire._tensor.storages import UntypedStorage as UntypedStorage
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import Array
from gradwire.nn._parameter import Parameter

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"]

class StorageType:
    """The class of a file's storage: `torch.FloatStorage` and the like. Without a dtype its elements are bytes."""

    def __init__(self, dtype: dtypes.dtype | None) -> None:
        self.dtype = dtype


class LoadedStorage:
    """A storage of a file: its elements, and the tensor on the server that all tensors of it are views of."""

    def __init__(self, data: Any, dtype: dtypes.dtype | None, device: str) -> None:
        self.data = data  # bytes
        self.dtype = dtype
        self.device = device
        self._whole: dict[dtypes.dtype, Tensor] = {}

    def tensor(self, dtype: dtypes.dtype, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
        """A tensor of some elements. Raises RuntimeError if the storage has not got them."""
        array = np.frombuffer(self.data, "<u2" if dtype.numpy is None else dtype.numpy)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if min((offset, *size, *stride), default=0) < 0 or (0 not in size and last >= len(array)):
            raise GradwireRuntimeError(
                f"a tensor of size {list(size)}, stride {list(stride)} and storage offset {offset} is out of bounds of "
                f"its storage of {len(array)} elements"
            )
        count = math.prod(tuple(size))
        if dtype not in self._whole and tuple(stride) == _dense(size) and offset == 0 and count == len(array):
            made = self._whole[dtype] = from_stored(array.reshape(tuple(size)), dtype, self.device)
            return made
        if dtype not in self._whole:
            self._whole[dtype] = from_stored(array, dtype, self.device)
        # .data: as in PyTorch it shares bytes with the others and is no view of them.
        return ops.as_strided(self._whole[dtype], tuple(size), tuple(stride), offset).data


def _dense(size: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for n in reversed(size):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


# The functions that PyTorch's pickles call, under its names.


def _rebuild_tensor(storage: LoadedStorage, storage_offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    if storage.dtype is None:
        raise GradwireRuntimeError("a tensor's storage has no dtype")
    return storage.tensor(storage.dtype, storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: LoadedStorage,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    if metadata:
        raise GradwireRuntimeError(
            f"the file has a tensor with {', '.join(map(str, metadata))} set, which is lazy there"
        )
    return made.requires_grad_() if requires_grad else made


def _rebuild_tensor_v3(
    storage: LoadedStorage,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Any,
    dtype: dtypes.dtype,
    metadata: Any = None,
) -> Tensor:
    made = storage.tensor(dtype, storage_offset, size, stride)
    return made.requires_grad_() if requires_grad else made


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(
    data: Tensor, requires_grad: bool, backward_hooks: Any, state: dict[str, Any]
) -> Parameter:
    made = Parameter(data, requires_grad)
    made.__dict__.update(state)
    return made


def _rebuild_from_type_v2(func: Any, new_type: Any, args: tuple[Any, ...], state: Any) -> Tensor:
    made = func(*args)
    if new_type is not type(made):
        made = made._as_subclass(new_type)
    given = state[0] if isinstance(state, tuple) else state
    made.__dict__.update(given or {})
    rebuilt: Tensor = made
    return rebuilt


def _numpy_scalar(dtype: np.dtype[Any], data: bytes = b"") -> Any:
    """A NumPy number of its bytes."""
    if dtype.hasobject:
        raise GradwireRuntimeError("the file has a NumPy number of Python objects")
    return np.frombuffer(data, dtype)[0]


def _numpy_array(kind: Any, shape: Any, code: Any) -> Array:
    """An array that its state fills later."""
    if kind is not np.ndarray:
        raise GradwireRuntimeError("the file has a subclass of NumPy's array")
    return np.empty(shape, "b")


_STORAGES = {f"{each.title}Storage": StorageType(each) for each in dtypes.ALL}
_REBUILD = (
    _rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter, _rebuild_parameter_with_state,
    _rebuild_from_type_v2,
)  # fmt: skip
_BYTES = StorageType(None)

#: What a pickle may name if it is read with weights_only: plain data, and how tensors are rebuilt.
PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "Counter"): collections.Counter,
    ("collections", "defaultdict"): collections.defaultdict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "bytearray"): bytearray,
    ("builtins", "slice"): slice,
    ("builtins", "range"): range,
    **{("builtins", kind.__name__): kind for kind in (int, float, bool, str, list, tuple, dict)},
    ("_codecs", "encode"): lambda text, encoding="latin1": text.encode(encoding),
    ("torch", "Size"): dtypes.Size,
    ("torch", "device"): dtypes.device,
    ("torch", "Tensor"): Tensor,
    ("torch._tensor", "Tensor"): Tensor,
    ("torch.nn.parameter", "Parameter"): Parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type_v2,
    ("torch.storage", "UntypedStorage"): _BYTES,
    ("torch", "UntypedStorage"): _BYTES,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    **{("torch._utils", each.__name__): each for each in _REBUILD},
    **{("torch", name): each for name, each in _STORAGES.items()},
    **{("torch.cuda", name): each for name, each in _STORAGES.items()},
    **{("torch", each.name): each for each in dtypes.ALL},
    **{(f"numpy.{core}.multiarray", "scalar"): _numpy_scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _numpy_array for core in ("core", "_core")},
}

_safe: dict[tuple[str, str], Any] = {}


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Let files that are read with weights_only name these classes and functions (torch.serialization)."""
    for each in safe_globals:
        found, path = each if isinstance(each, tuple) else (each, f"{each.__module__}.{each.__qualname__}")
        module, _, name = path.rpartition(".")
        _safe[module, name] = found


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return list(_safe.values())


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` was given."""
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """`add_safe_globals` for the block."""
    before = dict(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe.clear()
        _safe.update(before)


def safe_global(module: str, name: str) -> Any:
    """What a name means in a file that is read with weights_only; None if it is not allowed."""
    return PLAIN.get((module, name), _safe.get((module, name)))


def _element_size(dtype: dtypes.dtype) -> int:
    """Bytes of an element (torch._utils._element_size)."""
    return dtype.itemsize

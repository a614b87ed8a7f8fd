"""Writes files of torch.save: a zip archive of a pickle and the storages' bytes, which PyTorch reads.

State dicts are readable with weights_only. Other objects are pickled as Python does, under gradwire's names.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from typing import Any, ClassVar

from gradwire._base import dtypes
from gradwire._functions.pickled import attributes, stored_array
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import Array

_FOLDER = "archive"
_VERSION = b"3\n"
# PyTorch has no storage class for these dtypes; their tensors name the dtype beside a storage of bytes.
_UNTYPED = (dtypes.uint16, dtypes.uint32, dtypes.uint64)


class _Global:
    """A name of PyTorch's in a pickle."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:
        """Never called: pickle wants what rebuilds an object to be callable."""


class _Storage:
    """A tensor's bytes in the file."""

    def __init__(self, key: str, dtype: dtypes.dtype, device: str, count: int) -> None:
        self.key, self.dtype, self.device, self.count = key, dtype, device, count


_Base: Any = pickle._Pickler


class _Pickler(_Base):  # type: ignore[misc]
    """Pickles tensors as PyTorch does. It is Python's pickler in Python: the other one looks names up."""

    dispatch: ClassVar[dict[Any, Any]] = dict(_Base.dispatch)

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.arrays: dict[str, Array] = {}
        # Objects made for the pickle live as long as it: it knows objects by their addresses.
        self._kept: list[Any] = []

    def save_name(self, given: Any) -> None:
        """Write a name that is not looked up."""
        self.write(pickle.GLOBAL + f"{given.module}\n{given.name}\n".encode())
        self.memoize(given)

    dispatch[_Global] = save_name

    def persistent_id(self, obj: Any) -> Any:
        """How the pickle names a storage; None for everything else."""
        if not isinstance(obj, _Storage):
            return None
        if obj.dtype in _UNTYPED:
            kind, count = _name("torch.storage", "UntypedStorage"), obj.count * obj.dtype.itemsize
        else:
            kind, count = _name("torch", f"{obj.dtype.title}Storage"), obj.count
        return ("storage", kind, obj.key, obj.device, count)

    def reducer_override(self, obj: Any) -> Any:
        """How tensors, dtypes, devices and sizes are rebuilt, under PyTorch's names."""
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if isinstance(obj, dtypes.dtype):
            return _name("torch", obj.name)
        if isinstance(obj, dtypes.device):
            return _name("torch", "device"), (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, dtypes.Size):
            return _name("torch", "Size"), (tuple(obj),)
        return NotImplemented

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Write an object; a dtype is written as its name."""
        if isinstance(obj, dtypes.dtype):
            obj = _name("torch", obj.name)
        super().save(obj, save_persistent_id)

    def _tensor(self, value: Tensor) -> Any:
        reduced = self._reduced(value)
        self._kept.append(reduced)
        return reduced

    def _reduced(self, value: Tensor) -> tuple[Any, ...]:
        key = str(len(self.arrays))
        array = self.arrays[key] = stored_array(value.detach())
        strides = [step // array.itemsize for step in array.strides]
        storage = _Storage(key, value.dtype, str(value.device), array.size)
        is_parameter = value._is_parameter()
        flag = value.requires_grad and not is_parameter
        args: tuple[Any, ...] = (storage, 0, tuple(value.shape), tuple(strides), flag, OrderedDict())
        rebuild = _name("torch._utils", "_rebuild_tensor_v2")
        if value.dtype in _UNTYPED:
            rebuild, args = _name("torch._utils", "_rebuild_tensor_v3"), (*args, value.dtype)
        given = attributes(value)
        if not is_parameter:
            if not given:
                return rebuild, args
            return _name("torch._tensor", "_rebuild_from_type_v2"), (rebuild, _name("torch", "Tensor"), args, given)
        hooks: OrderedDict[int, Any] = OrderedDict()
        parameter = (_Reduced(rebuild, args), value.requires_grad, hooks)
        if given:
            return _name("torch._utils", "_rebuild_parameter_with_state"), (*parameter, given)
        return _name("torch._utils", "_rebuild_parameter"), parameter


class _Reduced:
    """An object that is pickled as a call."""

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        self._call = (function, args)

    def __reduce__(self) -> Any:
        return self._call


_names: dict[tuple[str, str], _Global] = {}


def _name(module: str, name: str) -> Any:
    """The one object for a name, so that a pickle has it once."""
    return _names.setdefault((module, name), _Global(module, name))


def written(obj: Any, protocol: int = 2) -> bytes:
    """The content of a file. Raises PicklingError for an object that cannot be pickled."""
    pickled = io.BytesIO()
    pickler = _Pickler(pickled, protocol)
    try:
        pickler.dump(obj)
    except (AttributeError, TypeError, RecursionError) as problem:
        raise pickle.PicklingError(f"save(): {problem}") from problem
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{_FOLDER}/data.pkl", pickled.getvalue())
        archive.writestr(f"{_FOLDER}/byteorder", b"little")
        for key, array in pickler.arrays.items():
            archive.writestr(f"{_FOLDER}/data/{key}", array.tobytes())
        archive.writestr(f"{_FOLDER}/version", _VERSION)
    return content.getvalue()

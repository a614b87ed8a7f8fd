"""Storages: which tensors share memory, and how much memory it is. The addresses are made up, but stable."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from gradwire._base.absent import GradwireAbsentError
from gradwire._base.errors import refuse
from gradwire._base.wiring import wired
from gradwire._proxy.results import share_storage

if TYPE_CHECKING:
    from gradwire._tensor.tensor import Tensor

# Far enough apart for any tensor, and not those of the process's memory.
_STEP = 1 << 40
_numbers = itertools.count(1)
_addresses: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def memory_of(tensor: Any) -> Any:
    """What identifies the memory of a tensor: one object for all tensors on the same memory."""
    return tensor.__dict__.get("_memory") or tensor._storage or share_storage(tensor, tensor)


def address(tensor: Tensor) -> int:
    """An address for the memory of a tensor: equal for all tensors on the same memory."""
    storage = memory_of(tensor)
    if storage not in _addresses:
        _addresses[storage] = next(_numbers) * _STEP
    return _addresses[storage]


def _host_copy(tensor: Tensor) -> Any:
    """The tensor's present values in this process: the same memory at each call, unless its size changed."""
    fresh = wired("stored_array")(tensor.detach())
    copies = tensor.__dict__.setdefault("_host_copies", [])
    if not copies or copies[-1].shape != fresh.shape or copies[-1].dtype != fresh.dtype:
        copies.append(fresh.copy())  # the earlier ones stay: their addresses may be in use
    else:
        np.copyto(copies[-1], fresh)
    return copies[-1]


@functools.total_ordering
class Address:
    """An address of a tensor's element: a number that can be compared, added to and hashed, but is no int.

    C functions that are called by ctypes get the address of a copy of the tensor's values in this process. It lives as
    long as the tensor. What they write to it is lost. Only a contiguous tensor has such a copy.
    """

    def __init__(self, tensor: Tensor, first: int, moved: int = 0) -> None:
        """`first` is the number of the tensor's first element, `moved` the bytes from there."""
        self._tensor = tensor
        self._first = first
        self._moved = moved
        self._number = first + moved

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        if not self._tensor.is_contiguous():
            raise refuse("a C function gets a copy of a contiguous tensor's values; call .contiguous() first")
        return ctypes.c_void_p(_host_copy(self._tensor).ctypes.data + self._moved)

    def __add__(self, other: int) -> Address:
        return Address(self._tensor, self._first, self._moved + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other if type(other) is int else self._number - int(other)

    def __mod__(self, other: int) -> int:
        return self._number % other

    def __int__(self) -> int:
        return self._number

    __hash__ = __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Address, int)) and self._number == int(other)

    def __lt__(self, other: Any) -> bool:
        return self._number < int(other)

    def __repr__(self) -> str:
        return str(self._number)


def data_address(tensor: Tensor) -> Address:
    """The address of a tensor's first element."""
    return Address(tensor, address(tensor) + tensor.storage_offset() * tensor.itemsize)


class FileBytes(np.ndarray[Any, Any]):
    """Bytes of a file in this process."""

    def untyped(self) -> FileBytes:
        """The bytes themselves."""
        return self


class UntypedStorage:
    """The memory of a tensor (torch.UntypedStorage): its address and size. Its bytes are on the server."""

    def __init__(self, tensor: Tensor) -> None:
        view = tensor.__dict__.get("_view")
        self._base: Tensor = tensor if view is None else view.base
        self._address = address(tensor)
        # A detached tensor is no view, but may show a part of the memory of another.
        self._owner = None if view is not None else memory_of(tensor).owner
        self.device = tensor.device

    @staticmethod
    def from_file(filename: str, shared: bool = False, nbytes: int = 0) -> FileBytes:
        """The bytes of a file, for a library that makes tensors of parts of them by `asarray`. Raises OSError.

        They are an array of this process, not on the server. `shared` is refused.
        """
        if shared:
            raise GradwireAbsentError("gradwire has no storage that shares a file: its bytes are on the server")
        return np.memmap(filename, np.uint8, "r", shape=(nbytes,) if nbytes else None).view(FileBytes)

    def data_ptr(self) -> int:
        """Its address: no address of this process."""
        return self._address

    _cdata = property(data_ptr)

    def nbytes(self) -> int:
        """Its size in bytes."""
        owner = self._owner
        shown = math.prod(owner.shape) * owner.dtype.itemsize if owner is not None else 0
        return max(shown, self._base.nbytes)

    size = __len__ = nbytes

    def element_size(self) -> int:
        """1: it is made of bytes."""
        return 1

    def tolist(self) -> list[Any]:
        """All bytes, read from the server. Raises RuntimeError for memory with gaps, which no tensor shows whole."""
        if not self._base.is_contiguous():
            raise refuse("the bytes of a storage are read through a contiguous tensor; call .contiguous() first")
        return list(wired("stored_array")(self._base.detach()).tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._address == other._address

    def __hash__(self) -> int:
        return hash(self._address)


class TypedStorage(UntypedStorage):
    """The memory of a tensor as elements of its dtype (torch.TypedStorage), which can be read and written."""

    def __init__(self, tensor: Tensor | int, *, dtype: Any = None, device: Any = None) -> None:
        """The memory of a tensor, or new memory of that many elements, which are 0."""
        held: Tensor = wired("zeros")(tensor, dtype=dtype, device=device) if isinstance(tensor, int) else tensor
        if held is tensor and (dtype is not None or device is not None):
            raise refuse("a TypedStorage of a tensor has the tensor's dtype and device")
        super().__init__(held)
        self._tensor = held
        self.dtype = held.dtype
        self.is_cuda = held.is_cuda

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        return self.nbytes() // self.dtype.itemsize

    size = __len__

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._tensor)

    def _elements(self) -> Tensor:
        return self._tensor.detach().as_strided((len(self),), (1,), 0)

    def tolist(self) -> list[Any]:
        """All elements as numbers."""
        return list(self._elements().tolist())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, place: int) -> Any:
        return self._elements()[place].item()

    def __setitem__(self, place: int | slice, value: float) -> None:
        self._elements()[place] = value

    def fill_(self, value: float) -> TypedStorage:
        """Set all elements."""
        self._elements().fill_(value)
        return self

    def __repr__(self) -> str:
        lines = "\n".join(f" {each}" for each in self.tolist())
        name = f"gradwire.storage.TypedStorage(dtype={self.dtype}, device={self.device})"
        return f"{lines}\n[{name} of size {len(self)}]"

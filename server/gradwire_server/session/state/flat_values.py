"""Flat values: the elements of several tensors of one dtype as one sequence, in pieces that are each in one tensor."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from gradwire_engine import Account, Tensor
from gradwire_engine.core.device import host, selected, to_device
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.reduction import HostArray


class FlatValues:
    """The values of a reduction's tensors, in host memory: the tensors' own arrays where they allow it."""

    def __init__(self, account: Account, tensors: Sequence[Tensor]) -> None:
        """Copy what shares memory or is not dense. Raises EngineError: MEMORY_LIMIT; MemoryError."""
        self._tensors = tensors
        self._account = account
        self._copied = 0  # bytes
        self.dtype: DType = tensors[0].dtype
        self.arrays = self._flattened(account)
        self._begins = [0]
        for each in self.arrays:
            self._begins.append(self._begins[-1] + each.size)
        self.size = self._begins[-1]

    def _flattened(self, account: Account) -> list[HostArray]:
        arrays = [each.array for each in self._tensors]
        if all(type(each) is np.ndarray and each.flags.c_contiguous for each in arrays):
            places = sorted((each.ctypes.data, each.nbytes) for each in arrays if each.nbytes)
            if all(at + size <= after for (at, size), (after, _) in pairwise(places)):
                return [each.reshape(-1) for each in arrays]
        size = sum(math.prod(each.shape) * each.dtype.itemsize for each in self._tensors)
        account.admit(size)
        made = [np.array(host(each), order="C", copy=True).reshape(-1) for each in arrays]
        account.bytes += size
        self._copied = size
        return made

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, HostArray]]:
        """The elements from `begin` to `end`: for each tensor its number, its first element of them, and a view."""
        end = min(end, self.size)
        at = bisect_right(self._begins, begin) - 1
        while at < len(self.arrays) and self._begins[at] < end:
            first = self._begins[at]
            skipped = max(begin - first, 0)
            part = self.arrays[at][skipped : end - first]
            if part.size:
                yield at, skipped, part
            at += 1

    def offset(self, tensor: int, element: int) -> int:
        """The number of a tensor's element in the sequence."""
        return self._begins[tensor] + element

    def write_back(self) -> None:
        """Write copies back, and note that the tensors have changed."""
        for flat, target in zip(self.arrays, self._tensors, strict=True):
            if self._copied:
                with selected(target.device):
                    target.array[...] = to_device(flat.reshape(target.shape), target.device)
            target.storage.changed()

    def note_changes(self) -> None:
        """Note that tensors may have changed, as some values were written before a failure."""
        if not self._copied:
            for target in self._tensors:
                target.storage.changed()

    def close(self) -> None:
        """Count copies no longer."""
        self._account.bytes -= self._copied
        self._copied = 0

"""Products of matrices on GPUs by cublasLt, called by ctypes: unlike CuPy's cuBLAS, a CUDA graph can capture them.

What a product needs is prepared once for its sizes, strides and alignment: descriptors, and the algorithm that
cublasLt's heuristic proposes first. Each GPU has one workspace, since its work runs in one order. Float32 is
multiplied without TF32.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.backends.cuda_library import CudaLibrary, CudaLibraryError, Descriptors, Pointer, log

Array = Any  # cupy.ndarray; CuPy has no type stubs

# cublasLt's numbers of types and attributes (cublasLt.h, library_types.h): compute type, scale type, data type.
_TYPES = {"f": (68, 0, 0), "d": (70, 1, 1), "e": (68, 0, 2)}
_TRANSPOSE_A, _TRANSPOSE_B = 3, 4
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
_MOST_WORKSPACE, _FIRST_ALIGNMENT = 1, 5
_MOST_ALIGNED = 256  # bytes
_WORKSPACE = 32 << 20  # bytes: NVIDIA's advice for Hopper
_Size = ctypes.c_size_t


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", _Size),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


#: An operand as cublasLt reads it: whether it is transposed (1), elements between its columns, and between its
#: matrices.
Operand = tuple[int, int, int]


@dataclass(frozen=True)
class Batches:
    """The operands of a product of matrices, or of batches of them, the result's shape, and the number of matrices."""

    first: Operand
    second: Operand
    shape: tuple[int, ...]
    inner: int
    count: int

    @classmethod
    def of(cls, a: Array, b: Array, out: Array | None, types: str) -> Batches | None:
        """The operands; None for dtypes, shapes or strides that cuBLAS does not read. types: characters of dtypes."""
        if a.dtype != b.dtype or a.dtype.char not in types or a.shape[-1] != b.shape[-2] or not (a.size and b.size):
            return None
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            return None
        shape = (*batch, a.shape[-2], b.shape[-1])
        if out is not None and not (out.dtype == a.dtype and out.shape == shape and out.flags.c_contiguous):
            return None
        first, second = (cls._operand(each, batch) for each in (a, b))
        return None if first is None or second is None else cls(first, second, shape, a.shape[-1], math.prod(batch))

    @staticmethod
    def _operand(array: Array, batch: tuple[int, ...]) -> Operand | None:
        rows, columns = array.shape[-2:]
        strides = [stride // array.itemsize for stride in array.strides]
        down, right = strides[-2:]
        if right == 1 and down >= columns:
            layout = 0, down
        elif down == 1 and right >= rows:
            layout = 1, right
        else:
            return None
        given = array.shape[:-2]
        if math.prod(given) == 1:
            return *layout, 0  # the same matrix for all
        if given != batch:
            return None
        step = strides[-3]
        for axis in range(len(given) - 2, -1, -1):  # one step from each matrix to the next
            if strides[axis] != strides[axis + 1] * given[axis + 1]:
                return None
        return (*layout, step) if step >= 0 else None


class _Prepared(Descriptors):
    """Descriptors and the algorithm of a product. cublasLt's matrices are column-major, so the second comes first."""

    def __init__(self, library: Library, given: Batches, dtype: str, aligned: tuple[int, ...]) -> None:
        compute, scale, data = _TYPES[dtype]
        super().__init__(library)
        self._handle = library.handle()
        rows, columns = given.shape[-2:]
        self.product = self._create("MatmulDesc", compute, scale)
        for attribute, (turned, _, _) in ((_TRANSPOSE_A, given.second), (_TRANSPOSE_B, given.first)):
            self._set("MatmulDesc", self.product, attribute, ctypes.c_int(turned))
        sizes = (given.second, columns, given.inner), (given.first, given.inner, rows)
        self.layouts = [
            self._layout(data, *((high, wide) if not turned else (wide, high)), apart, step, given.count)
            for (turned, apart, step), high, wide in sizes
        ]
        self.layouts.append(self._layout(data, columns, rows, columns, rows * columns, given.count))
        self.algorithm, self.workspace = self._found(aligned)

    def _create(self, kind: str, *arguments: Any) -> Pointer:
        return self._created(f"cublasLt{kind}Create", f"cublasLt{kind}Destroy", *arguments)

    def _set(self, kind: str, target: Pointer, attribute: int, value: Any) -> None:
        size = _Size(ctypes.sizeof(value))
        self._library.call(f"cublasLt{kind}SetAttribute", target, ctypes.c_int(attribute), ctypes.byref(value), size)

    def _layout(self, data: int, rows: int, columns: int, apart: int, step: int, count: int) -> Pointer:
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(apart)
        made = self._create("MatrixLayout", ctypes.c_int(data), *sizes)
        if count > 1:
            self._set("MatrixLayout", made, _BATCH_COUNT, ctypes.c_int32(count))
            self._set("MatrixLayout", made, _BATCH_OFFSET, ctypes.c_int64(step))
        return made

    def _found(self, aligned: tuple[int, ...]) -> tuple[Any, int]:
        """The first algorithm that the heuristic proposes, and its workspace in bytes."""
        preference = self._create("MatmulPreference")
        self._set("MatmulPreference", preference, _MOST_WORKSPACE, ctypes.c_uint64(_WORKSPACE))
        for place, size in enumerate((*aligned, aligned[-1])):
            self._set("MatmulPreference", preference, _FIRST_ALIGNMENT + place, ctypes.c_uint32(size))
        result, count = _Result(), ctypes.c_int()
        self._library.call(
            "cublasLtMatmulAlgoGetHeuristic", self._handle, self.product, *self.layouts, self.layouts[-1],
            preference, ctypes.c_int(1), ctypes.byref(result), ctypes.byref(count),
        )  # fmt: skip
        if not count.value or result.state:
            raise CudaLibraryError("cublasLt has no algorithm for this product")
        return result, int(result.workspace)


class Library(CudaLibrary[_Prepared]):
    """cublasLt with its handles and prepared products. Any thread may use it."""

    def __init__(self, loaded: ctypes.CDLL, cupy: Any) -> None:
        super().__init__(loaded, cupy, "CuPy computes a product")
        self._handles: dict[int, tuple[Pointer, Any]] = {}
        self._matmul = self.function("cublasLtMatmul")
        self._factors = {"f": np.array([1, 0], "f"), "d": np.array([1, 0], "d"), "e": np.array([1, 0], "f")}

    def handle(self) -> Pointer:
        """The current device's handle."""
        return self._of_device()[0]

    def _of_device(self) -> tuple[Pointer, Any]:
        device = self._cupy.cuda.runtime.getDevice()
        found = self._handles.get(device)
        if found is None:
            handle = Pointer()
            self.call("cublasLtCreate", ctypes.byref(handle))
            # Outside of the pool, whose bytes are those of tensors.
            found = self._handles[device] = handle, self._cupy.cuda.memory.Memory(_WORKSPACE)
        return found

    def product(self, a: Array, b: Array, out: Array | None) -> Array | None:
        """a @ b in row-major order; None if cublasLt does not compute it."""
        given = Batches.of(a, b, out, "fde")
        if given is None:
            return None
        made = self._cupy.empty(given.shape, a.dtype) if out is None else out
        pointers = b.data.ptr, a.data.ptr, made.data.ptr
        aligned = tuple([min(_MOST_ALIGNED, pointer & -pointer) for pointer in pointers])
        with self._lock:
            handle, workspace = self._of_device()
            dtype = a.dtype.char
            prepared = self._prepared((given, dtype, aligned), lambda: _Prepared(self, given, dtype, aligned))
        if prepared is None:
            return None
        factors = self._factors[a.dtype.char]
        one, zero = factors.ctypes.data, factors.ctypes.data + factors.itemsize
        second, first, result = prepared.layouts
        status = self._matmul(
            handle, prepared.product, Pointer(one), Pointer(pointers[0]), second, Pointer(pointers[1]), first,
            Pointer(zero), Pointer(pointers[2]), result, Pointer(pointers[2]), result,
            ctypes.byref(prepared.algorithm), Pointer(workspace.ptr), _Size(_WORKSPACE),
            Pointer(self._cupy.cuda.get_current_stream().ptr),
        )  # fmt: skip
        if status:
            raise CudaLibraryError(f"cublasLtMatmul failed with status {status}")
        return made


@cache
def library(cupy: Any) -> Library | None:
    """cublasLt of the CUDA version that CuPy was built for; None if it is not installed."""
    try:
        cupy.cuda.device.get_cublas_handle()  # loads cuBLAS, and cublasLt with it
        version = cupy.cuda.runtime.runtimeGetVersion() // 1000
        return Library(ctypes.CDLL(f"libcublasLt.so.{version}"), cupy)
    except (OSError, AttributeError, ImportError) as error:
        log.warning("CuPy's cuBLAS computes products, and no plan is a CUDA graph: %s", error)
        return None

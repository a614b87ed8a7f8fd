"""Convolutions on GPUs by cuDNN, called by ctypes; CuPy has no binding of it.

What a convolution needs is prepared once for its sizes: descriptors, an algorithm and its workspace. Of the algorithms
that cuDNN's heuristic proposes, the first is taken that always gives the same bits and fits the workspace. So a call's
bits depend on its sizes, the GPU and cuDNN's version alone. Float32 is multiplied without TF32. A CUDA graph can
capture the calls.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gradwire_engine.backends.cuda_library import CudaLibrary, CudaLibraryError, Descriptors, Pointer, log

Array = Any  # cupy.ndarray; CuPy has no type stubs
#: What is computed from the other two: the output, the input's gradient, the weight's gradient.
Kind = Literal["forward", "source", "weights"]


# cuDNN's numbers (cudnn_graph.h, cudnn_ops.h, cudnn_cnn.h): types, layout, mode, products without TF32, determinism.
_TYPES = {"f": (0, ctypes.c_float), "d": (1, ctypes.c_double)}
_NCHW, _CROSS_CORRELATION, _FMA_MATH, _DETERMINISTIC = 0, 1, 3, 1
_NAMES: dict[Kind, str] = {"forward": "Forward", "source": "BackwardData", "weights": "BackwardFilter"}
# Which of (input, weight, output) is read first, read second, and written.
_ORDER: dict[Kind, tuple[int, int, int]] = {"forward": (0, 1, 2), "source": (1, 2, 0), "weights": (0, 2, 1)}
_ALGORITHMS = 16  # proposed at most
_WORKSPACE = 256 << 20  # bytes at most
_MOST = (1 << 31) - 1  # elements of an array
_SONAME = "libcudnn.so.9"


class _Proposal(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t and its kin."""

    _fields_ = (
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


@dataclass(frozen=True)
class Sizes:
    """Shapes of input, weight and output, all row-major; and how the kernel moves."""

    input: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class _Prepared(Descriptors):
    """Descriptors, algorithm and workspace of a convolution."""

    def __init__(self, library: Library, kind: Kind, sizes: Sizes, dtype: str) -> None:
        super().__init__(library)
        self._handle = library.handle()
        data = _TYPES[dtype][0]
        self.moves = self._convolution(sizes, data)
        shapes = (self._tensor(sizes.input, data), self._filter(sizes.weight, data), self._tensor(sizes.output, data))
        first, second, self.result = (shapes[place] for place in _ORDER[kind])
        self.operands = first, second
        self.algorithm, self.workspace = self._chosen(kind)

    def _create(self, kind: str) -> Pointer:
        return self._created(f"cudnnCreate{kind}Descriptor", f"cudnnDestroy{kind}Descriptor")

    def _tensor(self, shape: Sequence[int], data: int) -> Pointer:
        made, strides, step = self._create("Tensor"), [1] * len(shape), 1
        for axis in range(len(shape) - 1, -1, -1):
            strides[axis], step = step, step * shape[axis]
        self._library.call("cudnnSetTensorNdDescriptor", made, data, len(shape), _ints(shape), _ints(strides))
        return made

    def _filter(self, shape: Sequence[int], data: int) -> Pointer:
        made = self._create("Filter")
        self._library.call("cudnnSetFilterNdDescriptor", made, data, _NCHW, len(shape), _ints(shape))
        return made

    def _convolution(self, sizes: Sizes, data: int) -> Pointer:
        made = self._create("Convolution")
        moves = [_ints(each) for each in (sizes.padding, sizes.stride, sizes.dilation)]
        call = self._library.call
        call("cudnnSetConvolutionNdDescriptor", made, len(sizes.stride), *moves, _CROSS_CORRELATION, data)
        call("cudnnSetConvolutionGroupCount", made, sizes.groups)
        call("cudnnSetConvolutionMathType", made, _FMA_MATH)
        return made

    def _chosen(self, kind: Kind) -> tuple[int, int]:
        """The first proposed algorithm that may be used, and its workspace in bytes. Raises CudaLibraryError."""
        proposals, count = (_Proposal * _ALGORITHMS)(), ctypes.c_int()
        self._library.call(
            f"cudnnGetConvolution{_NAMES[kind]}Algorithm_v7", self._handle, *self.operands, self.moves,
            self.result, _ALGORITHMS, ctypes.byref(count), proposals,
        )  # fmt: skip
        for each in proposals[: count.value]:
            if each.status == 0 and each.determinism == _DETERMINISTIC and each.memory <= _WORKSPACE:
                return int(each.algorithm), int(each.memory)
        raise CudaLibraryError("no algorithm gives the same bits each time in the workspace")


def _ints(values: Iterable[int]) -> Any:
    given = tuple(values)
    return (ctypes.c_int * len(given))(*given)


class Library(CudaLibrary[_Prepared]):
    """cuDNN with its handles and prepared convolutions. Any thread may use it."""

    def __init__(self, loaded: ctypes.CDLL, cupy: Any) -> None:
        super().__init__(loaded, cupy, "a convolution runs without cuDNN")
        self._handles: dict[int, Pointer] = {}
        for name in _NAMES.values():  # a library without them is refused here, not amid a step
            self.function(f"cudnnConvolution{name}")
            self.function(f"cudnnGetConvolution{name}Algorithm_v7")

    def handle(self) -> Pointer:
        """The current device's handle."""
        device = self._cupy.cuda.runtime.getDevice()
        found = self._handles.get(device)
        if found is None:
            found = Pointer()
            self.call("cudnnCreate", ctypes.byref(found))
            self._handles[device] = found
        return found

    def convolve(self, kind: Kind, sizes: Sizes, first: Array, second: Array, result: Array) -> bool:
        """Write one of input, weight and output, from the other two in this order; return whether that was possible.

        All are row-major, of one dtype and on the current device. Nothing is written if it was not.
        """
        if first.dtype.char not in _TYPES or max(first.size, second.size, result.size) > _MOST:
            return False
        with self._lock:  # a handle serves one thread at a time
            dtype = first.dtype.char
            prepared = self._prepared((kind, sizes, dtype), lambda: _Prepared(self, kind, sizes, dtype))
            if prepared is None:
                return False
            workspace = self._cupy.empty(prepared.workspace, "B") if prepared.workspace else None
            one, zero = (_TYPES[first.dtype.char][1](factor) for factor in (1, 0))
            handle, (read, other) = self.handle(), prepared.operands
            self.call("cudnnSetStream", handle, Pointer(self._cupy.cuda.get_current_stream().ptr))
            self.call(
                f"cudnnConvolution{_NAMES[kind]}", handle, ctypes.byref(one), read, Pointer(first.data.ptr), other,
                Pointer(second.data.ptr), prepared.moves, prepared.algorithm,
                Pointer(workspace.data.ptr if workspace is not None else None), ctypes.c_size_t(prepared.workspace),
                ctypes.byref(zero), prepared.result, Pointer(result.data.ptr),
            )  # fmt: skip
        return True


def _loaded() -> ctypes.CDLL:
    """cuDNN as the system finds it, else of NVIDIA's package. Raises OSError without either."""
    try:
        return ctypes.CDLL(_SONAME)
    except OSError:
        found = importlib.util.find_spec("nvidia.cudnn") if importlib.util.find_spec("nvidia") else None
        for folder in (found.submodule_search_locations or ()) if found else ():
            file = Path(folder, "lib", _SONAME)
            if file.exists():
                return ctypes.CDLL(str(file))
        raise


@cache
def library(cupy: Any) -> Library | None:
    """cuDNN; None if it is not installed or does not start."""
    try:
        made = Library(_loaded(), cupy)
        made.handle()
        return made
    except (OSError, AttributeError, CudaLibraryError) as error:
        log.info("convolutions on GPUs run without cuDNN: %s", error)
        return None

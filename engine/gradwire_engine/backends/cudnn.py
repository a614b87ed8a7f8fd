"""Convolutions on GPUs by cuDNN, called by ctypes; CuPy has no binding of it.

What a convolution needs is prepared once for its sizes: descriptors, an algorithm and its workspace. Of the algorithms
that cuDNN's heuristic proposes, the first is taken that always gives the same bits and fits the workspace. So a call's
bits depend on its sizes, the GPU and cuDNN's version alone. Float32 is multiplied without TF32. A CUDA graph can
capture the calls.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Array = Any  # cupy.ndarray; CuPy has no type stubs
#: What is computed from the other two: the output, the input's gradient, the weight's gradient.
Kind = Literal["forward", "source", "weights"]

log = logging.getLogger("gradwire.engine")

# cuDNN's numbers (cudnn_graph.h, cudnn_ops.h, cudnn_cnn.h): types, layout, mode, products without TF32, determinism.
_TYPES = {"f": (0, ctypes.c_float), "d": (1, ctypes.c_double)}
_NCHW, _CROSS_CORRELATION, _FMA_MATH, _DETERMINISTIC = 0, 1, 3, 1
_NAMES: dict[Kind, str] = {"forward": "Forward", "source": "BackwardData", "weights": "BackwardFilter"}
# Which of (input, weight, output) is read first, read second, and written.
_ORDER: dict[Kind, tuple[int, int, int]] = {"forward": (0, 1, 2), "source": (1, 2, 0), "weights": (0, 2, 1)}
_ALGORITHMS = 16  # proposed at most
_WORKSPACE = 256 << 20  # bytes at most
_MOST = (1 << 31) - 1  # elements of an array
_PREPARED = 1024  # convolutions at most
_SONAME = "libcudnn.so.9"
_Pointer = ctypes.c_void_p


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


class CudnnError(RuntimeError):
    """A call of cuDNN failed."""


class _Prepared:
    """Descriptors, algorithm and workspace of a convolution."""

    def __init__(self, library: Library, kind: Kind, sizes: Sizes, dtype: str) -> None:
        self._library = library
        self._made: list[tuple[Callable[..., int], _Pointer]] = []
        data = _TYPES[dtype][0]
        self._moves = self._convolution(sizes, data)
        shapes = (self._tensor(sizes.input, data), self._filter(sizes.weight, data), self._tensor(sizes.output, data))
        first, second, self.result = (shapes[place] for place in _ORDER[kind])
        self.operands = first, second
        self.moves = self._moves
        self.algorithm, self.workspace = self._chosen(kind)

    def _create(self, kind: str) -> _Pointer:
        made = _Pointer()
        self._library.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(made))
        self._made.append((self._library.function(f"cudnnDestroy{kind}Descriptor"), made))
        return made

    def _tensor(self, shape: Sequence[int], data: int) -> _Pointer:
        made, strides, step = self._create("Tensor"), [1] * len(shape), 1
        for axis in range(len(shape) - 1, -1, -1):
            strides[axis], step = step, step * shape[axis]
        self._library.call("cudnnSetTensorNdDescriptor", made, data, len(shape), _ints(shape), _ints(strides))
        return made

    def _filter(self, shape: Sequence[int], data: int) -> _Pointer:
        made = self._create("Filter")
        self._library.call("cudnnSetFilterNdDescriptor", made, data, _NCHW, len(shape), _ints(shape))
        return made

    def _convolution(self, sizes: Sizes, data: int) -> _Pointer:
        made = self._create("Convolution")
        moves = [_ints(each) for each in (sizes.padding, sizes.stride, sizes.dilation)]
        call = self._library.call
        call("cudnnSetConvolutionNdDescriptor", made, len(sizes.stride), *moves, _CROSS_CORRELATION, data)
        call("cudnnSetConvolutionGroupCount", made, sizes.groups)
        call("cudnnSetConvolutionMathType", made, _FMA_MATH)
        return made

    def _chosen(self, kind: Kind) -> tuple[int, int]:
        """The first proposed algorithm that may be used, and its workspace in bytes. Raises CudnnError without one."""
        proposals, count = (_Proposal * _ALGORITHMS)(), ctypes.c_int()
        self._library.call(
            f"cudnnGetConvolution{_NAMES[kind]}Algorithm_v7", self._library.handle(), *self.operands, self.moves,
            self.result, _ALGORITHMS, ctypes.byref(count), proposals,
        )  # fmt: skip
        for each in proposals[: count.value]:
            if each.status == 0 and each.determinism == _DETERMINISTIC and each.memory <= _WORKSPACE:
                return int(each.algorithm), int(each.memory)
        raise CudnnError("no algorithm gives the same bits each time in the workspace")

    def __del__(self) -> None:
        for destroy, made in self._made:
            destroy(made)


def _ints(values: Iterable[int]) -> Any:
    given = tuple(values)
    return (ctypes.c_int * len(given))(*given)


class Library:
    """cuDNN with its handles and prepared convolutions. Any thread may use it."""

    def __init__(self, loaded: ctypes.CDLL, cupy: Any) -> None:
        self._loaded, self._cupy = loaded, cupy
        self._lock = threading.Lock()
        self._handles: dict[int, _Pointer] = {}
        self._prepared: OrderedDict[Any, _Prepared | None] = OrderedDict()
        for name in _NAMES.values():  # a library without them is refused here, not amid a step
            self.function(f"cudnnConvolution{name}")
            self.function(f"cudnnGetConvolution{name}Algorithm_v7")

    def function(self, name: str) -> Callable[..., int]:
        """A function of the library. Raises AttributeError if it has none of this name."""
        found: Callable[..., int] = getattr(self._loaded, name)
        return found

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises CudnnError if it fails."""
        status = self.function(name)(*arguments)
        if status:
            raise CudnnError(f"{name} failed with status {status}")

    def handle(self) -> _Pointer:
        """The current device's handle."""
        device = self._cupy.cuda.runtime.getDevice()
        found = self._handles.get(device)
        if found is None:
            found = _Pointer()
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
            prepared = self._prepare(kind, sizes, first.dtype.char)
            if prepared is None:
                return False
            workspace = self._cupy.empty(prepared.workspace, "B") if prepared.workspace else None
            one, zero = (_TYPES[first.dtype.char][1](factor) for factor in (1, 0))
            handle, (read, other) = self.handle(), prepared.operands
            self.call("cudnnSetStream", handle, _Pointer(self._cupy.cuda.get_current_stream().ptr))
            self.call(
                f"cudnnConvolution{_NAMES[kind]}", handle, ctypes.byref(one), read, _Pointer(first.data.ptr), other,
                _Pointer(second.data.ptr), prepared.moves, prepared.algorithm,
                _Pointer(workspace.data.ptr if workspace is not None else None), ctypes.c_size_t(prepared.workspace),
                ctypes.byref(zero), prepared.result, _Pointer(result.data.ptr),
            )  # fmt: skip
        return True

    def _prepare(self, kind: Kind, sizes: Sizes, dtype: str) -> _Prepared | None:
        key = self._cupy.cuda.runtime.getDevice(), kind, sizes, dtype
        if key not in self._prepared:
            try:
                made: _Prepared | None = _Prepared(self, kind, sizes, dtype)
            except CudnnError as error:
                log.info("a convolution runs without cuDNN: %s", error)
                made = None
            self._prepared[key] = made
            if len(self._prepared) > _PREPARED:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(key)
        return self._prepared[key]


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
    """cuDNN; None if it is not installed."""
    try:
        return Library(_loaded(), cupy)
    except (OSError, AttributeError) as error:
        log.info("convolutions on GPUs run without cuDNN: %s", error)
        return None

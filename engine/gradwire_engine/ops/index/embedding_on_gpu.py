"""Embedding lookup on a GPU: one kernel for the lookup and the check of its indices, and one for the gradient.

For float32 and float64 and whole rows. The gradient's sums are atomic additions, whose order differs between runs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, cupy
from gradwire_engine.core.index_bounds import are_checked, are_within, learn
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.loops import are_plain

_THREADS, _MOST_BLOCKS = 256, 1 << 16
_SOURCE = r"""
typedef TYPE T;
typedef INDEX I;
#define EACH(i, count) \
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < (count); \
       i += (long long)gridDim.x * blockDim.x)
// `wrong` is zero before.
extern "C" __global__ void lookup(
    const I* indices, const T* table, T* out, int* wrong, long long count, long long rows, long long width) {
  EACH(i, count) {
    const long long row = indices[i / width];
    if (row >= 0 && row < rows) out[i] = table[row * width + i % width];
    else *wrong = 1;
  }
}
// `made` holds zeros before.
extern "C" __global__ void lookup_grad(
    const I* indices, const T* g, T* made, long long count, long long rows, long long width, long long padding) {
  EACH(i, count) {
    const long long row = indices[i / width];
    if (row != padding && row >= 0 && row < rows) atomicAdd(made + row * width + i % width, g[i]);
  }
}
"""
_TYPES = {"f": "float", "d": "double"}
_INDICES = {dtypes.int32: "int", dtypes.int64: "long long"}


@cache
def _kernel(module: Any, name: str, dtype: str, index: str) -> Any:
    source = _SOURCE.replace("TYPE", _TYPES[dtype]).replace("INDEX", index)
    return module.RawKernel(source, name, options=("--std=c++17",))


def _launch(name: str, indices: Array, values: Array, count: int, arguments: tuple[Any, ...]) -> None:
    kernel = _kernel(cupy(), name, values.dtype.char, _INDICES[indices.dtype])
    kernel((min(_MOST_BLOCKS, -(-count // _THREADS)),), (_THREADS,), arguments)


def _fits(indices: Array, values: Array) -> bool:
    return (
        are_plain(values)
        and type(indices) is type(values)
        and indices.dtype in _INDICES
        and bool(indices.flags.c_contiguous)
        and indices.size > 0
        and values.size > 0
    )


def lookup(indices: Array, table: Array) -> Array | None:
    """The rows of a table (rows, width). None if the kernel does not fit, or an index is out of range.

    Waits for the GPU, unless the indices were checked before or their bounds are known.
    """
    if not _fits(indices, table) or table.ndim != 2:
        return None
    module: Any = cupy()
    shape = (*indices.shape, table.shape[1])
    admit(shape, table.dtype)
    made, wrong = module.empty(shape, table.dtype), module.zeros((), np.int32)
    _launch("lookup", indices, table, made.size, (indices, table, made, wrong, made.size, *table.shape))
    if are_checked() or are_within(indices, 0, table.shape[0]):
        return made
    if int(wrong):
        return None
    learn(indices, 0, table.shape[0] - 1)
    return made


def lookup_grad(grad: Array, indices: Array, rows: int, padding: int) -> Array | None:
    """The gradient of a table of so many rows, without those looked up as `padding`; None if the kernel does not fit.

    grad: the gradient of the looked-up rows.
    """
    if not _fits(indices, grad):
        return None
    width = grad.shape[-1]
    made = cupy().zeros((rows, width), grad.dtype)  # type: ignore[union-attr]
    _launch("lookup_grad", indices, grad, grad.size, (indices, grad, made, grad.size, rows, width, padding))
    return made

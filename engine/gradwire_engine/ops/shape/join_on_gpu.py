"""Concatenation of a few row-major arrays on a GPU by one kernel. CuPy copies each of them by a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array, cupy

#: Arrays at most, whose addresses and sizes are arguments of the kernel.
MOST = 4
_THREADS, _MOST_BLOCKS = 256, 1 << 16
_SOURCE = r"""
typedef TYPE T;
extern "C" __global__ void join(
    const T* a, const T* b, const T* c, const T* d, long long na, long long nb, long long nc, long long nd,
    T* out, long long count) {
  const long long width = na + nb + nc + nd;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += (long long)gridDim.x * blockDim.x) {
    const long long row = i / width;
    long long at = i % width;
    if (at < na) { out[i] = a[row * na + at]; continue; }
    at -= na;
    if (at < nb) { out[i] = b[row * nb + at]; continue; }
    at -= nb;
    out[i] = at < nc ? c[row * nc + at] : d[row * nd + at - nc];
  }
}
"""
_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}


@cache
def _kernel(module: Any, itemsize: int) -> Any:
    return module.RawKernel(_SOURCE.replace("TYPE", _TYPES[itemsize]), "join", options=("--std=c++17",))


def join(arrays: Sequence[Array], shape: tuple[int, ...], axis: int) -> Array | None:
    """Arrays, one after another along an axis of an array of this shape; None if the kernel does not fit."""
    first = arrays[0]
    fits = (
        1 < len(arrays) <= MOST
        and first.dtype.kind in "fiub"
        and all(type(each) is type(first) and each.dtype == first.dtype for each in arrays)
        and all(each.size and each.flags.c_contiguous for each in arrays)
    )
    if not fits:
        return None
    made = np.empty_like(first, shape=shape)
    lead = math.prod(shape[:axis])
    lacking = MOST - len(arrays)
    widths = [*(each.size // lead for each in arrays), *[0] * lacking]
    arguments = (*arrays, *[first] * lacking, *widths, made, made.size)
    blocks = min(_MOST_BLOCKS, -(-made.size // _THREADS))
    _kernel(cupy(), first.dtype.itemsize)((blocks,), (_THREADS,), arguments)
    return made

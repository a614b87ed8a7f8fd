"""Windows over images on a GPU, by one kernel each: columns of a convolution and their sum, maximum pooling.

For images of two dimensions in float32 and float64. An element of a result is one thread's, which adds in the order of
the kernel's elements. So results do not depend on the order of threads.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array, cupy
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.loops import are_plain, gpu_loops_of
from gradwire_engine.ops.nn.windows import Window

_THREADS, _MOST_BLOCKS = 256, 1 << 16
_MOST_TAPS = 256  # a maximum's position is a byte
_MOST_CELLS = 1 << 30  # of a plane: counted by ints
_WINDOW = "int h, int w, int kh, int kw, int oh, int ow, int sy, int sx, int py, int px, int dy, int dx"
_SOURCE = r"""
typedef TYPE T;
#define EACH(i, count) \
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < (count); \
       i += (long long)gridDim.x * blockDim.x)
// Where kernel position k reads the window of a cell, or -1 for padding.
__device__ int tap(int cell, int k, WINDOW) {
  const int y = cell / ow * sy - py + k / kw * dy, x = cell % ow * sx - px + k % kw * dx;
  return y >= 0 && y < h && x >= 0 && x < w ? y * w + x : -1;
}
// The cell whose window's kernel position k reads a pixel, or -1.
__device__ int cell_of(int pixel, int k, WINDOW) {
  const int y = pixel / w + py - k / kw * dy, x = pixel % w + px - k % kw * dx;
  if (y < 0 || x < 0 || y % sy || x % sx) return -1;
  return y / sy < oh && x / sx < ow ? y / sy * ow + x / sx : -1;
}
extern "C" __global__ void columns(
    const T* input, T* out, long long count, long long channels, long long image_step, long long tap_step, WINDOW) {
  const int cells = oh * ow, taps = kh * kw;
  EACH(i, count) {
    const int cell = i % cells;
    const long long row = i / cells, plane = row / taps;
    const int k = row % taps, pixel = tap(cell, k, GIVEN);
    out[plane / channels * image_step + (plane % channels * taps + k) * tap_step + cell] =
        pixel < 0 ? (T)0 : input[plane * h * w + pixel];
  }
}
extern "C" __global__ void sum_columns(const T* given, T* out, long long count, WINDOW) {
  const int pixels = h * w, cells = oh * ow, taps = kh * kw;
  EACH(i, count) {
    const long long plane = i / pixels;
    T sum = 0;
    for (int k = 0; k < taps; k++) {
      const int cell = cell_of(i % pixels, k, GIVEN);
      if (cell >= 0) sum += given[(plane * taps + k) * cells + cell];
    }
    out[i] = sum;
  }
}
extern "C" __global__ void max_pool(const T* input, T* out, unsigned char* which, long long count, WINDOW) {
  const int cells = oh * ow, taps = kh * kw;
  EACH(i, count) {
    const T* plane = input + i / cells * (h * w);
    T best = -INFINITY_;
    int at = 0;
    bool some = false;
    for (int k = 0; k < taps; k++) {
      const int pixel = tap(i % cells, k, GIVEN);
      if (pixel < 0) continue;
      const T value = plane[pixel];
      if (!some || value > best || value != value) { best = value; at = k; }
      some = true;
    }
    out[i] = best;
    which[i] = at;
  }
}
extern "C" __global__ void max_unpool(const T* grad, const unsigned char* which, T* out, long long count, WINDOW) {
  const int pixels = h * w, cells = oh * ow, taps = kh * kw;
  EACH(i, count) {
    const long long first = i / pixels * cells;
    T sum = 0;
    for (int k = 0; k < taps; k++) {
      const int cell = cell_of(i % pixels, k, GIVEN);
      if (cell >= 0 && which[first + cell] == k) sum += grad[first + cell];
    }
    out[i] = sum;
  }
}
"""
_TYPES = {"f": "float", "d": "double"}


@cache
def _kernel(module: Any, name: str, dtype: str) -> Any:
    given = _WINDOW.replace("int ", "")
    source = _SOURCE.replace("WINDOW", _WINDOW).replace("GIVEN", given).replace("TYPE", _TYPES[dtype])
    source = source.replace("INFINITY_", "(T)__int_as_float(0x7f800000)")
    return module.RawKernel(source, name, options=("--std=c++17",))


def _launch(name: str, dtype: str, count: int, arguments: tuple[Any, ...], window: Window) -> None:
    numbers = (*window.size, *window.kernel, *window.output, *window.stride, *window.padding, *window.dilation)
    blocks = min(_MOST_BLOCKS, -(-count // _THREADS))
    _kernel(cupy(), name, dtype)((blocks,), (_THREADS,), (*arguments, *map(np.int32, numbers)))


def fits(window: Window, *arrays: Array) -> bool:
    """Whether the kernels compute on these arrays, in this context."""
    return (
        gpu_loops_of(arrays[0]) is not None
        and len(window.size) == 2
        and are_plain(*arrays)
        and all(each.size for each in arrays)
        and 0 < window.taps <= _MOST_TAPS
        and max(math.prod(window.padded), math.prod(window.output)) <= _MOST_CELLS
        and min(window.output) > 0
    )


def columns(window: Window, input: Array, out: Array, wide: bool = False) -> None:
    """Write the windows' elements of images (n, c, *size): as (n, c * taps, positions); if wide, (c * taps, n, ..)."""
    images, channels = input.shape[:2]
    positions = math.prod(window.output)
    steps = (positions, images * positions) if wide else (channels * window.taps * positions, positions)
    _launch("columns", input.dtype.char, out.size, (input, out, out.size, channels, *steps), window)


def sum_columns(window: Window, given: Array, out: Array) -> None:
    """Add up columns (n, c * taps, positions) where they were read from: images (n, c, *size)."""
    _launch("sum_columns", out.dtype.char, out.size, (given, out, out.size), window)


def max_pool(window: Window, input: Array) -> tuple[Array, Array] | None:
    """Maximum of each window, and its kernel position; None if the kernel does not fit."""
    if input.ndim < 3 or not fits(window, input):
        return None
    shape = (*input.shape[:-2], *window.output)
    admit(shape, input.dtype)
    values, which = np.empty_like(input, shape=shape), np.empty_like(input, shape=shape, dtype=np.uint8)
    _launch("max_pool", input.dtype.char, values.size, (input, values, which, values.size), window)
    return values, which


def max_unpool(window: Window, grad: Array, which: Array) -> Array | None:
    """Each window's gradient at its maximum, summed over the windows; None if the kernel does not fit."""
    if grad.ndim < 3 or not fits(window, grad):
        return None
    if which.dtype != np.uint8 or which.shape != grad.shape or not which.flags.c_contiguous:
        return None
    shape = (*grad.shape[:-2], *window.size)
    admit(shape, grad.dtype)
    made = np.empty_like(grad, shape=shape)
    _launch("max_unpool", grad.dtype.char, made.size, (grad, which, made, made.size), window)
    return made

"""nll_loss of a mean or sum on a GPU: one kernel for the loss, and one for its gradient.

One block visits all targets: it reads one element per target. The order of its sums is fixed, in double precision.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, cupy
from gradwire_engine.core.index_bounds import IGNORED, are_checked, are_within, learn
from gradwire_engine.ops.base.loops import are_plain

# Targets of one block at most: more are divided among many blocks by CuPy's kernels. Threads of the block.
_MOST_TARGETS, _THREADS = 1 << 17, 256
_SOURCE = r"""
typedef TYPE T;
__device__ double block_sum(double value) {
  __shared__ double held[THREADS];
  held[threadIdx.x] = value;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) held[threadIdx.x] += held[threadIdx.x + half];
    __syncthreads();
  }
  const double made = held[0];
  __syncthreads();
  return made;
}
__device__ bool is_inside(long long target, long long classes) { return target >= 0 && target < classes; }
__device__ double weight_of(long long target, const T* weight) { return weight ? (double)weight[target] : 1; }
extern "C" __global__ void loss(
    const T* input, const long long* targets, const T* weight, T* out, int* wrong, long long count, long long classes,
    long long rest, long long ignored, bool mean) {
  double sum = 0, total = 0, outside = 0;
  for (long long i = threadIdx.x; i < count; i += THREADS) {
    const long long target = targets[i];
    if (target == ignored) continue;
    if (!is_inside(target, classes)) { outside += 1; continue; }
    const double share = weight_of(target, weight);
    sum -= share * (double)input[(i / rest * classes + target) * rest + i % rest];
    total += share;
  }
  sum = block_sum(sum);
  total = block_sum(total);
  outside = block_sum(outside);
  if (threadIdx.x == 0) {
    out[0] = (T)(mean ? sum / total : sum);
    wrong[0] = outside > 0;
  }
}
// The gradient: `made` holds zeros before.
extern "C" __global__ void loss_grad(
    const T* g, const long long* targets, const T* weight, T* made, long long count, long long classes, long long rest,
    long long ignored, bool mean) {
  double total = 0;
  for (long long i = threadIdx.x; i < count; i += THREADS) {
    if (targets[i] != ignored && is_inside(targets[i], classes)) total += weight_of(targets[i], weight);
  }
  total = mean ? block_sum(total) : 1;
  for (long long i = threadIdx.x; i < count; i += THREADS) {
    const long long target = targets[i];
    if (target == ignored || !is_inside(target, classes)) continue;
    made[(i / rest * classes + target) * rest + i % rest] = (T)(-(double)g[0] * (weight_of(target, weight) / total));
  }
}
"""
_TYPES = {"f": "float", "d": "double"}


@cache
def _kernel(module: Any, name: str, dtype: str) -> Any:
    source = _SOURCE.replace("TYPE", _TYPES[dtype]).replace("THREADS", str(_THREADS))
    return module.RawKernel(source, name, options=("--std=c++17",))


def _fits(target: Array, weight: Array | None, reduction: str, *arrays: Array) -> bool:
    """Whether the kernels compute this loss."""
    return (
        reduction != "none"
        and are_plain(*arrays, *(() if weight is None else (weight,)))
        and type(target) is type(arrays[0])
        and target.dtype == dtypes.int64
        and bool(target.flags.c_contiguous)
        and 0 < target.size <= _MOST_TARGETS
        and all(each.size for each in arrays)
    )


def _sizes(shape: tuple[int, ...], target: Array) -> tuple[int, int, int]:
    """Targets, classes, and targets of one sample."""
    return target.size, shape[1] if len(shape) > 1 else shape[0], target.size // shape[0] if len(shape) > 2 else 1


def nll_loss(input: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int) -> Array | None:
    """The loss; None if the kernel does not fit, or a target is out of bounds.

    Waits for the GPU, unless the targets were checked before or their bounds are known.
    """
    if not _fits(target, weight, reduction, input):
        return None
    module: Any = cupy()
    made, wrong = module.empty((), input.dtype), module.empty((), np.int32)
    sizes = _sizes(input.shape, target)
    arguments = (input, target, 0 if weight is None else weight, made, wrong, *sizes, ignore_index, reduction == "mean")
    _kernel(module, "loss", input.dtype.char)((1,), (_THREADS,), arguments)
    classes = sizes[1]
    if are_checked() or are_within(target, 0, classes, ignore_index):
        return made
    if int(wrong):
        return None
    if ignore_index == IGNORED or 0 <= ignore_index < classes:
        learn(target, 0, classes - 1, ignored=ignore_index == IGNORED)
    return made


def nll_loss_grad(
    g: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int, shape: tuple[int, ...]
) -> Array | None:
    """The input's gradient; None if the kernel does not fit."""
    if not _fits(target, weight, reduction, g):
        return None
    module: Any = cupy()
    made = module.zeros(shape, g.dtype)
    arguments = (
        g,
        target,
        0 if weight is None else weight,
        made,
        *_sizes(shape, target),
        ignore_index,
        reduction == "mean",
    )
    _kernel(module, "loss_grad", g.dtype.char)((1,), (_THREADS,), arguments)
    return made

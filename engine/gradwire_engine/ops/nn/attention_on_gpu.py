"""Attention on a GPU by fused kernels: one forward, two backward, and no array of the size of all scores.

A block of 256 threads owns 16 to 64 queries, or keys, and passes over the others tile by tile. The forward keeps each
query's largest score and its sum of weights, and corrects both with each tile. Backward computes the weights
again from the logarithm of that sum. Each sum is one thread's or one block's, in a fixed order. So results have the
same bits each time. Half types are read as float32, and rounded once at the end.

Before the first use of a kernel on a GPU, `is_trusted` computes a small problem and compares.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, cupy

log = logging.getLogger("gradwire.engine")

# The widest rows of query, key and value: those of float64 have no smaller tile that fits the shared memory.
_WIDEST, _WIDEST_DOUBLE = 128, 64
_SIDE = 16  # threads of a block in each of two dimensions
_SHARED = 48 << 10  # bytes of shared memory that every GPU gives to a block
_MOST_BLOCKS = (1 << 31) - 1
_BOOL, _ADDED = 1, 2  # kinds of mask
# Queries and keys of a tile: the first that fits the shared memory is taken.
_TILES = ((64, 64), (64, 32), (32, 32), (32, 16), (16, 16))
_NAMES = {
    dtypes.float16: "float16",
    dtypes.bfloat16: "bfloat16",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
# Largest difference from the plain path that rounding explains, beside the largest value.
_ROUNDING = {dtypes.float16: 4e-3, dtypes.bfloat16: 3e-2, dtypes.float32: 1e-4, dtypes.float64: 1e-10}
_CALL = np.dtype(
    [
        *((name, np.int64) for name in ("heads", "rows", "keys", "width", "made", "causal")),
        *((name, np.int64, 3) for name in ("query", "key", "value")),
        ("mask", np.int64, 4),
        ("factor", np.float64),
    ]
)
_SOURCE = r"""
#include <cupy/carray.cuh>
#include <cupy/float16.cuh>
#if HAS_BFLOAT16
#include <cupy/bfloat16.cuh>
#endif
// STORED, WIDE, MASK, MASKED, WIDTH, SIDE, and <KERNEL>_QUERIES and _KEYS: options of the compiler.
typedef STORED T;
typedef WIDE A;
typedef MASK Mask;
#define ROW (WIDTH + 1)
#define TILE_ROW (KEYS + 1)
#define EACH_QUERY for (int i = 0; i < QUERIES / SIDE; i++)
#define EACH_KEY for (int j = 0; j < KEYS / SIDE; j++)
#define EACH_COLUMN for (int e = 0; e < WIDTH / SIDE; e++)
#define AT(i, which) ((which) + SIDE * (i))
#define INFINITE ((A)__int_as_float(0x7f800000))
typedef long long I;
// Strides, in elements, of batch, head and row; of the mask also of the key.
struct Call {
  I heads, rows, keys, width, made, causal, query[3], key[3], value[3], mask[4];
  double factor;
};
// `count` rows of `width` numbers to shared memory. Rows and columns that there are not become 0.
__device__ void load(A* tile, const T* from, I step, I rows, I width, int count) {
  for (int i = threadIdx.y * SIDE + threadIdx.x; i < count * WIDTH; i += SIDE * SIDE) {
    const int row = i / WIDTH, column = i % WIDTH;
    tile[row * ROW + column] = row < rows && column < width ? (A)from[row * step + column] : (A)0;
  }
}
// Products of each row of a tile of queries and each row of a tile of keys.
template <int QUERY_COUNT, int KEY_COUNT>
__device__ void dots(const A* queries, const A* keys, A (&sums)[QUERY_COUNT][KEY_COUNT]) {
  const int QUERIES = QUERY_COUNT * SIDE, KEYS = KEY_COUNT * SIDE;
  EACH_QUERY EACH_KEY sums[i][j] = 0;
  for (int d = 0; d < WIDTH; d++) {
    A one[QUERIES / SIDE], other[KEYS / SIDE];
    EACH_QUERY one[i] = queries[AT(i, threadIdx.y) * ROW + d];
    EACH_KEY other[j] = keys[AT(j, threadIdx.x) * ROW + d];
    EACH_QUERY EACH_KEY sums[i][j] += one[i] * other[j];
  }
}
// The score of a query and a key; -infinity where it may not attend, and beyond the ends.
__device__ A score(A dot, const Call& call, const Mask* mask, I row, I key) {
  if (row >= call.rows || key >= call.keys || (call.causal && key > row)) return -INFINITE;
  const A scaled = dot * (A)call.factor;
#if MASKED == 1
  return mask[row * call.mask[2] + key * call.mask[3]] ? scaled : -INFINITE;
#elif MASKED == 2
  return scaled + (A)mask[row * call.mask[2] + key * call.mask[3]];
#else
  return scaled;
#endif
}
// Where a block's matrices and its first row are.
struct Place {
  I matrix, first;
  __device__ Place(I rows, I per_block) {
    const I blocks = (rows + per_block - 1) / per_block;
    matrix = blockIdx.x / blocks;
    first = blockIdx.x % blocks * per_block;
  }
  __device__ I at(const I* strides, I heads) const {
    return matrix / heads * strides[0] + matrix % heads * strides[1];
  }
};
extern "C" __global__ void attend(
    const T* query, const T* key, const T* value, const Mask* mask, T* out, A* total, const Call call) {
  const int QUERIES = ATTEND_QUERIES, KEYS = ATTEND_KEYS;
  __shared__ A queries[QUERIES * ROW], others[KEYS * ROW], weights[QUERIES * TILE_ROW];
  const Place place(call.rows, QUERIES);
  query += place.at(call.query, call.heads);
  key += place.at(call.key, call.heads);
  value += place.at(call.value, call.heads);
  mask += place.at(call.mask, call.heads);
  load(queries, query + place.first * call.query[2], call.query[2], call.rows - place.first, call.width, QUERIES);
  A best[QUERIES / SIDE], sum[QUERIES / SIDE], made[QUERIES / SIDE][WIDTH / SIDE];
  EACH_QUERY {
    best[i] = -INFINITE;
    sum[i] = 0;
    EACH_COLUMN made[i][e] = 0;
  }
  const I end = call.causal ? min(call.keys, place.first + QUERIES) : call.keys;
  for (I start = 0; start < end; start += KEYS) {
    __syncthreads();  // the values of the tile before are read
    load(others, key + start * call.key[2], call.key[2], call.keys - start, call.width, KEYS);
    __syncthreads();
    A scores[QUERIES / SIDE][KEYS / SIDE];
    dots(queries, others, scores);
    EACH_QUERY {
      A high = best[i], part = 0;
      EACH_KEY {
        scores[i][j] = score(scores[i][j], call, mask, place.first + AT(i, threadIdx.y), start + AT(j, threadIdx.x));
        high = max(high, scores[i][j]);
      }
      for (int lane = SIDE / 2; lane; lane /= 2) high = max(high, __shfl_xor_sync(0xffffffffu, high, lane));
      const A base = high == -INFINITE ? (A)0 : high, kept = exp(best[i] - base);
      EACH_KEY {
        const A weight = exp(scores[i][j] - base);
        weights[AT(i, threadIdx.y) * TILE_ROW + AT(j, threadIdx.x)] = weight;
        part += weight;
      }
      for (int lane = SIDE / 2; lane; lane /= 2) part += __shfl_xor_sync(0xffffffffu, part, lane);
      sum[i] = sum[i] * kept + part;
      best[i] = high;
      EACH_COLUMN made[i][e] *= kept;
    }
    __syncthreads();  // the keys are read, and the weights are written
    load(others, value + start * call.value[2], call.value[2], call.keys - start, call.made, KEYS);
    __syncthreads();
    for (int n = 0; n < KEYS; n++) {
      A one[QUERIES / SIDE], other[WIDTH / SIDE];
      EACH_QUERY one[i] = weights[AT(i, threadIdx.y) * TILE_ROW + n];
      EACH_COLUMN other[e] = others[n * ROW + AT(e, threadIdx.x)];
      EACH_QUERY EACH_COLUMN made[i][e] += one[i] * other[e];
    }
  }
  EACH_QUERY {
    const I row = place.first + AT(i, threadIdx.y), index = place.matrix * call.rows + row;
    if (row >= call.rows) continue;
    const bool alone = MASKED && sum[i] == 0;  // a mask left no key; scores that are all nan have the sum nan
    EACH_COLUMN {
      const I column = AT(e, threadIdx.x);
      if (column < call.made) out[index * call.made + column] = T(alone ? (A)0 : made[i][e] / sum[i]);
    }
    if (!threadIdx.x) total[index] = alone ? INFINITE : best[i] + log(sum[i]);
  }
}
// The queries' gradient; and per query the sum of its output times that output's gradient, as `slopes`.
extern "C" __global__ void query_gradient(
    const T* query, const T* key, const T* value, const Mask* mask, const T* grad, const T* out, const A* total,
    T* result, A* slopes, const Call call) {
  const int QUERIES = QUERY_GRADIENT_QUERIES, KEYS = QUERY_GRADIENT_KEYS;
  __shared__ A queries[QUERIES * ROW], arriving[QUERIES * ROW], others[KEYS * ROW], weights[QUERIES * TILE_ROW];
  const Place place(call.rows, QUERIES);
  query += place.at(call.query, call.heads);
  key += place.at(call.key, call.heads);
  value += place.at(call.value, call.heads);
  mask += place.at(call.mask, call.heads);
  const I first = place.matrix * call.rows + place.first, left = call.rows - place.first;
  load(queries, query + place.first * call.query[2], call.query[2], left, call.width, QUERIES);
  load(arriving, grad + first * call.made, call.made, left, call.made, QUERIES);
  __syncthreads();
  A slope[QUERIES / SIDE], sums[QUERIES / SIDE], made[QUERIES / SIDE][WIDTH / SIDE];
  EACH_QUERY {
    const int row = AT(i, threadIdx.y);
    slope[i] = sums[i] = 0;
    if (row < left) {
      sums[i] = total[first + row];
      for (I column = threadIdx.x; column < call.made; column += SIDE)
        slope[i] += arriving[row * ROW + column] * (A)out[(first + row) * call.made + column];
    }
    for (int lane = SIDE / 2; lane; lane /= 2) slope[i] += __shfl_xor_sync(0xffffffffu, slope[i], lane);
    if (row < left && !threadIdx.x) slopes[first + row] = slope[i];
    EACH_COLUMN made[i][e] = 0;
  }
  const I end = call.causal ? min(call.keys, place.first + QUERIES) : call.keys;
  for (I start = 0; start < end; start += KEYS) {
    A scores[QUERIES / SIDE][KEYS / SIDE], products[QUERIES / SIDE][KEYS / SIDE];
    __syncthreads();
    load(others, value + start * call.value[2], call.value[2], call.keys - start, call.made, KEYS);
    __syncthreads();
    dots(arriving, others, products);
    __syncthreads();
    load(others, key + start * call.key[2], call.key[2], call.keys - start, call.width, KEYS);
    __syncthreads();
    dots(queries, others, scores);
    EACH_QUERY EACH_KEY {
      const int row = AT(i, threadIdx.y), column = AT(j, threadIdx.x);
      const A weight = exp(score(scores[i][j], call, mask, place.first + row, start + column) - sums[i]);
      weights[row * TILE_ROW + column] = weight * (products[i][j] - slope[i]) * (A)call.factor;
    }
    __syncthreads();
    for (int n = 0; n < KEYS; n++) {
      A one[QUERIES / SIDE], other[WIDTH / SIDE];
      EACH_QUERY one[i] = weights[AT(i, threadIdx.y) * TILE_ROW + n];
      EACH_COLUMN other[e] = others[n * ROW + AT(e, threadIdx.x)];
      EACH_QUERY EACH_COLUMN made[i][e] += one[i] * other[e];
    }
  }
  EACH_QUERY EACH_COLUMN {
    const I row = AT(i, threadIdx.y), column = AT(e, threadIdx.x);
    if (row < left && column < call.width) result[(first + row) * call.width + column] = T(made[i][e]);
  }
}
// The gradients of keys and values, by the slopes that `query_gradient` wrote.
extern "C" __global__ void key_gradients(
    const T* query, const T* key, const T* value, const Mask* mask, const T* grad, const A* total, const A* slopes,
    T* of_key, T* of_value, const Call call) {
  const int QUERIES = KEY_GRADIENTS_QUERIES, KEYS = KEY_GRADIENTS_KEYS;
  __shared__ A keys[KEYS * ROW], values[KEYS * ROW], others[QUERIES * ROW], weights[QUERIES * TILE_ROW];
  const Place place(call.keys, KEYS);
  query += place.at(call.query, call.heads);
  key += place.at(call.key, call.heads);
  value += place.at(call.value, call.heads);
  mask += place.at(call.mask, call.heads);
  const I before = place.matrix * call.rows, left = call.keys - place.first;
  load(keys, key + place.first * call.key[2], call.key[2], left, call.width, KEYS);
  load(values, value + place.first * call.value[2], call.value[2], left, call.made, KEYS);
  A key_sums[KEYS / SIDE][WIDTH / SIDE], value_sums[KEYS / SIDE][WIDTH / SIDE];
  EACH_KEY EACH_COLUMN key_sums[j][e] = value_sums[j][e] = 0;
  for (I start = call.causal ? place.first / QUERIES * QUERIES : 0; start < call.rows; start += QUERIES) {
    A scores[QUERIES / SIDE][KEYS / SIDE], products[QUERIES / SIDE][KEYS / SIDE];
    const I rows = call.rows - start;
    __syncthreads();
    load(others, query + start * call.query[2], call.query[2], rows, call.width, QUERIES);
    __syncthreads();
    dots(others, keys, scores);
    EACH_QUERY EACH_KEY {
      const int row = AT(i, threadIdx.y), column = AT(j, threadIdx.x);
      const A sum = row < rows ? total[before + start + row] : (A)0;
      scores[i][j] = exp(score(scores[i][j], call, mask, start + row, place.first + column) - sum);
      weights[row * TILE_ROW + column] = scores[i][j];
    }
    __syncthreads();
    load(others, grad + (before + start) * call.made, call.made, rows, call.made, QUERIES);
    __syncthreads();
    dots(others, values, products);
    for (int m = 0; m < QUERIES; m++) {
      A one[KEYS / SIDE], other[WIDTH / SIDE];
      EACH_KEY one[j] = weights[m * TILE_ROW + AT(j, threadIdx.y)];
      EACH_COLUMN other[e] = others[m * ROW + AT(e, threadIdx.x)];
      EACH_KEY EACH_COLUMN value_sums[j][e] += one[j] * other[e];
    }
    __syncthreads();
    load(others, query + start * call.query[2], call.query[2], rows, call.width, QUERIES);
    EACH_QUERY EACH_KEY {
      const int row = AT(i, threadIdx.y), column = AT(j, threadIdx.x);
      const A slope = row < rows ? slopes[before + start + row] : (A)0;
      weights[row * TILE_ROW + column] = scores[i][j] * (products[i][j] - slope) * (A)call.factor;
    }
    __syncthreads();
    for (int m = 0; m < QUERIES; m++) {
      A one[KEYS / SIDE], other[WIDTH / SIDE];
      EACH_KEY one[j] = weights[m * TILE_ROW + AT(j, threadIdx.y)];
      EACH_COLUMN other[e] = others[m * ROW + AT(e, threadIdx.x)];
      EACH_KEY EACH_COLUMN key_sums[j][e] += one[j] * other[e];
    }
  }
  EACH_KEY EACH_COLUMN {
    const I row = AT(j, threadIdx.y), column = AT(e, threadIdx.x), index = place.matrix * call.keys + place.first + row;
    if (row < left && column < call.width) of_key[index * call.width + column] = T(key_sums[j][e]);
    if (row < left && column < call.made) of_value[index * call.made + column] = T(value_sums[j][e]);
  }
}
"""
_KERNELS = ("attend", "query_gradient", "key_gradients")


def _columns(width: int) -> int:
    """Columns of a tile for rows of this width."""
    return max(_SIDE, 1 << (width - 1).bit_length())


def _tile(kernel: str, columns: int, size: int) -> tuple[int, int]:
    """Queries and keys of a kernel's tiles, of numbers of `size` bytes."""
    queries = keys = _SIDE
    for queries, keys in _TILES:
        if kernel == "key_gradients":
            queries, keys = keys, queries
        rows = {"attend": queries + keys, "query_gradient": 2 * queries + keys, "key_gradients": queries + 2 * keys}
        if size * (rows[kernel] * (columns + 1) + queries * (keys + 1)) <= _SHARED:
            break
    return queries, keys


def _wide(dtype: Any) -> Any:
    """The dtype in which sums are kept."""
    return dtypes.float64 if dtype == dtypes.float64 else dtypes.float32


@cache
def _module(module: Any, dtype: Any, masked: int, columns: int) -> Any:
    """The kernels for a dtype, a kind of mask and rows of so many columns, compiled together with their first use."""
    stored, wide = _NAMES[dtype], _NAMES[_wide(dtype)]
    given = {
        "STORED": stored, "WIDE": wide, "MASK": "bool" if masked == _BOOL else stored, "MASKED": masked,
        "WIDTH": columns, "SIDE": _SIDE, "HAS_BFLOAT16": int(stored == "bfloat16"),
    }  # fmt: skip
    for name in _KERNELS:
        queries, keys = _tile(name, columns, _wide(dtype).itemsize)
        given |= {f"{name.upper()}_QUERIES": queries, f"{name.upper()}_KEYS": keys}
    options = ("--std=c++17", *(f"-D{key}={value}" for key, value in given.items()))
    return module.RawModule(code=_SOURCE, options=options)


@cache
def _kernel(module: Any, name: str, dtype: Any, masked: int, columns: int, device: int) -> Any:
    return _module(module, dtype, masked, columns).get_function(name)


class _Call:
    """One call's arrays as the kernels read them, with their strides."""

    def __init__(self, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float) -> None:
        self.tensors = [_with_rows(each) for each in tensors]
        query, _, value = self.tensors
        self.lead, self.dtype = tensors[0].shape[:-2], query.dtype
        self.matrices = math.prod(self.lead)
        self.rows, self.width = query.shape[-2:]
        self.keys, self.made = value.shape[-2:]
        self.mask = None if mask is None else _mask_of(mask, (*self.lead, self.rows, self.keys))
        self.masked = 0 if self.mask is None else _BOOL if self.mask.dtype == dtypes.bool_ else _ADDED
        table = np.zeros(1, _CALL)
        table["heads"] = self.lead[-1] if self.lead else 1
        table["rows"], table["keys"], table["width"], table["made"] = self.rows, self.keys, self.width, self.made
        table["causal"], table["factor"] = is_causal, factor
        for name, each in zip(("query", "key", "value"), self.tensors, strict=True):
            table[name] = _steps(each)[:3]
        if self.mask is not None:
            table["mask"] = _steps(self.mask)
        self.table = table

    def launch(self, name: str, *others: Array) -> None:
        """Run a kernel on the operands and these arrays."""
        module: Any = cupy()
        columns = _columns(max(self.width, self.made))
        queries, keys = _tile(name, columns, _wide(self.dtype).itemsize)
        rows, each = (self.keys, keys) if name == "key_gradients" else (self.rows, queries)
        kernel = _kernel(module, name, self.dtype, self.masked, columns, module.cuda.runtime.getDevice())
        mask = np.uint64(0) if self.mask is None else self.mask
        arguments = (*self.tensors, mask, *others, self.table)
        kernel((self.matrices * -(-rows // each),), (_SIDE, _SIDE), arguments)


def _with_rows(array: Array) -> Array:
    """The array, or a copy whose rows the kernels can read: elements side by side, and four dimensions at most.

    `reshape` gives a stride that is true of what it joins: that of a size of 1 may be any, of contiguous arrays too.
    """
    if array.ndim > 4:
        array = array.reshape(-1, *array.shape[-3:])
    plain = array.strides[-1] == array.itemsize
    return array if plain or array.flags.c_contiguous else array.copy(order="C")


def _mask_of(mask: Array, shape: tuple[int, ...]) -> Array:
    """The mask, broadcast to all scores, without a copy."""
    module: Any = cupy()
    return module.broadcast_to(mask, shape)


def _steps(array: Array) -> list[int]:
    """Elements between batches, heads, rows and columns."""
    strides = [stride // array.itemsize for stride in array.strides[-4:]]
    return [0] * (4 - len(strides)) + strides


def fits(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether the kernels compute arrays of these shapes and dtypes. mask: None, or broadcastable to the scores."""
    shape = query.shape
    if query.ndim < 2 or query.dtype not in _NAMES or key.dtype != query.dtype or value.dtype != query.dtype:
        return False
    if key.shape[:-2] != shape[:-2] or value.shape[:-1] != key.shape[:-1] or key.shape[-1] != shape[-1]:
        return False
    sizes = (*shape, key.shape[-2], value.shape[-1])
    widest = _WIDEST_DOUBLE if query.dtype == dtypes.float64 else _WIDEST
    if not all(sizes) or max(shape[-1], value.shape[-1]) > widest:
        return False
    blocks = math.prod(shape[:-2]) * -(-max(shape[-2], key.shape[-2]) // _SIDE)
    if blocks > _MOST_BLOCKS:
        return False
    if mask is None:
        return True
    scores = (*shape[:-1], key.shape[-2])
    if mask.dtype not in (dtypes.bool_, query.dtype) or mask.ndim > len(scores) or len(scores) > 4:
        return False
    return all(size in (1, whole) for size, whole in zip(reversed(mask.shape), reversed(scores), strict=False))


def attend(tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float) -> tuple[Array, Array]:
    """Attention's output, and per query the logarithm of the sum of its weights before they are divided by it."""
    call = _Call(tensors, mask, is_causal, factor)
    module: Any = cupy()
    made = module.empty((*call.lead, call.rows, call.made), call.dtype)
    total = module.empty((*call.lead, call.rows), _wide(call.dtype))
    call.launch("attend", made, total)
    return made, total


def gradients(
    g: Array, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float, out: Array, total: Array
) -> list[Array]:
    """The gradients of query, key and value."""
    call = _Call(tensors, mask, is_causal, factor)
    module: Any = cupy()
    g, out, total = (module.ascontiguousarray(each) for each in (g, out, total))  # hooks may return saved values turned
    made = [module.empty(each.shape, call.dtype) for each in tensors]
    slopes = module.empty(total.shape, total.dtype)
    call.launch("query_gradient", g, out, total, made[0], slopes)
    call.launch("key_gradients", g, total, slopes, *made[1:])
    return made


# The check before the first use.


_TRUSTED: dict[tuple[int, Any, int, int], bool] = {}


def is_trusted(query: Any, value: Any, mask: Any, plain: Callable[..., list[Array]]) -> bool:
    """Whether the kernels for such arrays compute, on the current GPU, what the plain path does.

    The first call for a GPU, a dtype, a width and a kind of mask computes a small problem both ways. If they differ by
    more than rounding, or the kernels cannot run, the log has one warning, and this process never uses them.
    plain: gets query, key, value, mask, is_causal, factor and g, and returns the output and the three gradients.
    """
    module: Any = cupy()
    masked = 0 if mask is None else _BOOL if mask.dtype == dtypes.bool_ else _ADDED
    width = _columns(max(query.shape[-1], value.shape[-1]))
    key = module.cuda.runtime.getDevice(), query.dtype, width, masked
    if key not in _TRUSTED:
        why = _difference(query.dtype, width, masked, plain)
        _TRUSTED[key] = not why
        if why:
            log.warning("attention on this GPU runs without its fused kernels (%s, width %d): %s", *key[1:3], why)
    return _TRUSTED[key]


def _difference(dtype: Any, width: int, masked: int, plain: Callable[..., list[Array]]) -> str:
    """How a small problem's results differ from those of the plain path; empty if they do not."""
    module: Any = cupy()
    draw = np.random.default_rng(20)
    rows, keys = 71, 85  # two tiles, of which the last is not full
    shapes = (1, 2, rows, width), (1, 2, keys, width), (1, 2, keys, width - 3), (1, 2, rows, width - 3)
    query, key, value, g = (module.asarray(draw.standard_normal(shape)).astype(dtype) for shape in shapes)
    mask = None
    if masked:
        drawn = draw.random((2, rows, keys)) < 0.7
        drawn[:, 5] = False
        drawn[:, 6, :70] = False
        mask = module.asarray(drawn)
        if masked == _ADDED:
            mask = module.where(mask, 0.5, -module.inf).astype(dtype)
    for is_causal in (False,) if masked else (False, True):
        given = [query, key, value], mask, is_causal, 1 / math.sqrt(width)
        try:
            made, total = attend(*given)
            found = [made, *gradients(g, *given, made, total)]
        except (RuntimeError, module.cuda.compiler.CompileException) as error:
            return f"{type(error).__name__}: {error}"
        names = ("output", "query's gradient", "key's gradient", "value's gradient")
        for name, one, other in zip(names, found, plain(*given, g), strict=True):
            apart = float(abs(one.astype(np.float64) - other.astype(np.float64)).max())
            largest = float(abs(other.astype(np.float64)).max())
            if not apart <= _ROUNDING[dtype] * largest:
                return f"the {name} differs by {apart:.2g} beside {largest:.2g}"
    return ""

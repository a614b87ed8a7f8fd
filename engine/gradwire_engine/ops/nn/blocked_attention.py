"""Attention in blocks of queries: no array has the size of all scores, forward or backward.

A block's scores fit the cache. Backward computes the weights again, so only query, key and value are saved. With a
causal mask, blocks leave out the keys behind their last query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import CPU, Array
from gradwire_engine.core.matrix_product import matrix_product
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import LONG, counted, flop
from gradwire_engine.op.op import op
from gradwire_engine.op.workload import pause
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.linalg.matrix import matmul, matrix_t
from gradwire_engine.ops.nn.softmax import safe_softmax, softmax, softmax_backward

#: Scores of a block, about: two such arrays fit a core's second-level cache.
SCORES = 1 << 17
_LEAST_ROWS = 16
Index = tuple[slice, ...]


def computes(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether blocks compute these Tensors' attention: plain arrays of one float dtype in host memory."""
    tensors = (query, key, value)
    if any(type(each) is not Tensor or each.device != CPU or each.ndim < 2 for each in tensors):
        return False
    if query.dtype not in (dtypes.float32, dtypes.float64) or any(each.dtype != query.dtype for each in tensors):
        return False
    lead, (rows, width), keys = query.shape[:-2], query.shape[-2:], key.shape[-2]
    if key.shape != (*lead, keys, width) or value.shape[:-1] != (*lead, keys):
        return False
    if not all(query.shape) or not keys or not value.shape[-1]:
        return False
    return mask is None or _mask_fits(mask, query.dtype, (*lead, rows, keys))


def _mask_fits(mask: Any, dtype: Any, shape: tuple[int, ...]) -> bool:
    if type(mask) is not Tensor or mask.device != CPU or mask.requires_grad or mask.ndim > len(shape):
        return False
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    return mask.dtype in (dtypes.bool_, dtype) and all(size in (1, whole) for size, whole in sizes)


def blocks(shape: Sequence[int]) -> Iterator[Index]:
    """Parts of the scores, as slices of all dimensions but the keys'. shape: (..., l, s)."""
    size, inner = shape[0], math.prod(shape[1:])
    last = len(shape) == 2
    count = max(SCORES // inner, _LEAST_ROWS if last else 0)
    for start in range(0, size, count or 1):
        part = slice(start, min(size, start + (count or 1)))
        if last or count:
            yield (part, *[slice(0, length) for length in shape[1:-1]])
        else:
            for rest in blocks(shape[1:]):
                yield (part, *rest)


class _Attention:
    """One call's operands, and the weights of its blocks."""

    def __init__(self, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float) -> None:
        query, key, value = tensors
        self.query, self.key, self.value, self.is_causal = query, key, value, is_causal
        self.factor = query.dtype.type(factor)
        self.shape = (*query.shape[:-1], key.shape[-2])
        self.mask = None if mask is None else np.broadcast_to(mask, self.shape)

    def blocks(self) -> Iterator[tuple[Index, Index, Array, Array]]:
        """Blocks: where their queries are, where their keys are, the scaled queries, and the weights."""
        for place in blocks(self.shape):
            pause()
            rows = place[-1]
            keys = min(self.shape[-1], rows.stop) if self.is_causal else self.shape[-1]
            source = (*place[:-1], slice(0, keys))
            scaled = self.query[place] * self.factor
            scores = matrix_product(np, scaled, self.key[source].swapaxes(-1, -2))
            yield place, source, scaled, self._weights(scores, place, keys)

    def _weights(self, scores: Array, place: Index, keys: int) -> Array:
        """softmax of a block's scores behind the mask; a query that may attend to no key has weights 0."""
        rows = place[-1]
        if self.is_causal:
            np.copyto(scores[..., rows.start :], -math.inf, where=_later(rows.stop - rows.start, keys - rows.start))
        alone = None
        if self.mask is not None:
            index = (*place, slice(0, keys))
            mask = self.mask[index]
            if mask.dtype == bool:
                np.copyto(scores, -math.inf, where=~mask)
            else:
                scores += mask
            alone = _alone(scores)
        made: Array = softmax.function(np, scores, -1)
        if alone is not None:
            made[alone] = 0
        return made


@lru_cache(maxsize=8)
def _later(queries: int, keys: int) -> Array:
    """Which of a block's last keys are behind each of its queries. It has at most a block's bytes / 4."""
    made: Array = np.arange(keys) > np.arange(queries)[:, None]
    made.flags.writeable = False
    return made


def _alone(scores: Array) -> Array | None:
    """The rows whose scores are all -inf, which become 0; None if there is none."""
    if not (scores[..., 0] == -math.inf).any():
        return None
    alone = (scores == -math.inf).all(-1)
    if not alone.any():
        return None
    scores[alone] = 0
    return alone


def _work(tensors: Sequence[Any], *_: Any) -> float:
    """Operations of all blocks, or of one, before which there is a pause, if all take long."""
    query, key, value = tensors
    scores = math.prod(query.shape[:-1]) * key.shape[-2]
    each = (query.shape[-1] + value.shape[-1]) * flop(query.dtype) + 12.0
    return float(min(scores * each, max(_block_scores(query, key) * each, LONG - 1.0)))


def _work_back(*args: Any) -> float:
    return min(2.5 * _work(*args), max(LONG - 1.0, _work(*args)))


def _block_scores(query: Any, key: Any) -> int:
    return int(min(math.prod(query.shape[:-1]) * key.shape[-2], max(SCORES, _LEAST_ROWS * key.shape[-2])))


def _result_bytes(tensors: Sequence[Any], *_: Any) -> int:
    query, value = tensors[0], tensors[2]
    return int(math.prod(query.shape[:-1]) * value.shape[-1] * query.itemsize)


def _block_bytes(tensors: Sequence[Any], *_: Any) -> int:
    """Bytes of a block's scores, weights, mask and scaled queries."""
    query, key = tensors[:2]
    scores = _block_scores(query, key)
    return int((3 * scores + scores // key.shape[-2] * query.shape[-1]) * query.itemsize)


@op(
    name="_attention",
    promote=None,
    in_place=False,
    complex_grad=False,
    node="ScaledDotProductFlashAttentionForCpuBackward0",
    cost=counted(_work, _work_back),
)
def blocked_attention(xp: Any, tensors: list[Array], mask: Array | None, is_causal: bool, factor: float) -> Array:
    """softmax(query @ key.T * factor + mask) @ value; rows that may attend to no key are 0.

    tensors: query (..., l, e), key (..., s, e), value (..., s, v). mask: bool, True to attend, or added to the
    scores; broadcasts to (..., l, s).
    """
    call = _Attention(tensors, mask, is_causal, factor)
    shape = (*call.query.shape[:-1], call.value.shape[-1])
    admit(shape, call.query.dtype)
    made = np.empty(shape, call.query.dtype)
    for place, source, _, weights in call.blocks():
        matrix_product(np, weights, call.value[source], made[place])
    return made


blocked_attention.by_loops("softmax", "softmax_backward")
blocked_attention.sized_by(_result_bytes)
blocked_attention.works_in(forward=_block_bytes)


def _gradients(g: Array, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float) -> list[Array]:
    """Gradients of query, key and value."""
    call = _Attention(tensors, mask, is_causal, factor)
    of_query = np.empty(call.query.shape, g.dtype)
    of_key, of_value = (np.zeros(each.shape, g.dtype) for each in (call.key, call.value))
    for place, source, scaled, weights in call.blocks():
        arriving = g[place]
        of_value[source] += matrix_product(np, weights.swapaxes(-1, -2), arriving)
        to_weights = matrix_product(np, arriving, call.value[source].swapaxes(-1, -2))
        of_scores = softmax_backward.function(np, to_weights, weights, -1)
        matrix_product(np, of_scores, call.key[source], of_query[place])
        of_key[source] += matrix_product(np, of_scores.swapaxes(-1, -2), scaled)
    of_query *= call.factor
    return [of_query, of_key, of_value]


def recorded_gradients(g: Any, tensors: Sequence[Any], mask: Any, is_causal: bool, factor: float) -> list[Any]:
    """The same by ops on Tensors, for create_graph: all scores at once."""
    query, key, value = tensors
    scores = masked_scores(query * factor, key, mask, is_causal)
    weights = softmax(scores, -1) if mask is None else safe_softmax(scores, -1)
    of_scores = softmax_backward(matmul(g, matrix_t(value)), weights, -1)
    return [
        matmul(of_scores, key) * factor,
        matmul(matrix_t(of_scores), query) * factor,
        matmul(matrix_t(weights), g),
    ]


@op(name="_causal_mask", cost=counted(lambda query, keys: 4.0 * query.shape[-2] * keys))
def _causal_mask(xp: Any, query: Array, keys: int) -> Array:
    """True where a key's position is not after its query's."""
    return xp.tri(query.shape[-2], keys, dtype=bool)


def masked_scores(scaled: Any, key: Any, mask: Any, is_causal: bool) -> Any:
    """All scores of scaled queries, -inf where a query may not attend."""
    scores = matmul(scaled, matrix_t(key))
    allowed = _causal_mask(scaled, key.shape[-2]) if is_causal else mask
    if allowed is None:
        return scores
    return where(allowed, scores, -math.inf) if allowed.dtype == dtypes.bool_ else scores + allowed


def _both_ways(g: Any, tensors: Sequence[Any], mask: Any, is_causal: bool, factor: float) -> list[Any]:
    return (recorded_gradients if type(g) is Tensor else _gradients)(g, tensors, mask, is_causal, factor)


blocked_attention.grad(tensors=_both_ways)

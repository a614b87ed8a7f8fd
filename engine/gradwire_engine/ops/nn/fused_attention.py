"""Attention by the fused kernels of a GPU, where an array of all scores would be large.

The op computes the same without these kernels: by products and a softmax, as for contexts that may use none, to verify
them, and for the check before their first use. For create_graph, ops on Tensors compute all scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import CPU, Array, module_of, selected
from gradwire_engine.core.matrix_product import matrix_product
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import counted, flop
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.loops import Loops, may_use_gpu_loops, with_loop
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.nn import attention_on_gpu as kernels
from gradwire_engine.ops.nn.blocked_attention import recorded_gradients

#: Bytes of all scores from which the kernels compute. Below, cuBLAS's products and a softmax do, which are faster.
LEAST = 1 << 27


def computes(query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether the kernels compute these Tensors' attention: large, on one GPU, in a context that may use kernels."""
    tensors = (query, key, value)
    if any(type(each) is not Tensor or each.device == CPU or each.device != query.device for each in tensors):
        return False
    if mask is not None and (type(mask) is not Tensor or mask.device != query.device or mask.requires_grad):
        return False
    if not kernels.fits(query, key, value, mask) or not may_use_gpu_loops(math.prod(query.shape)):
        return False
    if math.prod(query.shape[:-1]) * key.shape[-2] * query.dtype.itemsize < LEAST:
        return False
    with selected(query.device):
        return kernels.is_trusted(query, value, mask, _plainly)


def _attempt(
    loops: Loops, xp: Any, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float
) -> tuple[Array, Array] | None:
    if not _may_run(loops, tensors, mask):
        return None
    admit((*tensors[0].shape[:-1], tensors[2].shape[-1]), tensors[0].dtype)
    return kernels.attend(tensors, mask, is_causal, factor)


def _may_run(loops: Loops, tensors: Sequence[Array], mask: Array | None) -> bool:
    """Whether these arrays' results can be compared, where that is wanted: those of half types are rounded once."""
    query, key, value = tensors
    return kernels.fits(query, key, value, mask) and not (loops.verifies and is_half(tensors[0].dtype))


def _wide(array: Array) -> Array:
    return array.astype(dtypes.float32) if is_half(array.dtype) else array


def _scores(xp: Any, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float) -> Array:
    """All scores, -inf where a query may not attend. tensors: not of half types."""
    query, key = tensors[:2]
    scores = matrix_product(xp, query, key.swapaxes(-1, -2)) * query.dtype.type(factor)
    allowed = xp.tri(*scores.shape[-2:], dtype=bool) if is_causal else mask
    if allowed is None:
        return scores
    hidden = query.dtype.type(-math.inf)
    return xp.where(allowed, scores, hidden) if allowed.dtype == bool else scores + _wide(allowed)


def _by_products(
    xp: Any, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float
) -> tuple[Array, Array]:
    """The results of `fused_attention` by products, with all scores at once."""
    wide = [_wide(each) for each in tensors]
    scores = _scores(xp, wide, mask, is_causal, factor)
    high = scores.max(-1, keepdims=True)
    alone = high == -math.inf
    weights = xp.exp(scores - xp.where(alone, 0, high).astype(scores.dtype))
    total = weights.sum(-1, keepdims=True)
    made = matrix_product(xp, weights / total, wide[2])
    total = high + xp.log(total)
    if mask is not None:
        made, total = xp.where(alone, 0, made), xp.where(alone, math.inf, total)
    return made.astype(tensors[0].dtype), total[..., 0].astype(scores.dtype)


_with_kernel = with_loop(_attempt)(_by_products)


@op(
    name="_fused_attention",
    promote=None,
    in_place=False,
    complex_grad=False,
    outputs=("output", "total"),
    differentiable_outputs=(0,),
    node="ScaledDotProductEfficientAttentionBackward0",
    cost=counted(lambda tensors, *rest: _work(tensors), lambda tensors, *rest: 3.5 * _work(tensors)),
)
def fused_attention(
    xp: Any, tensors: list[Array], mask: Array | None, is_causal: bool, factor: float
) -> tuple[Array, Array]:
    """softmax(query @ key.T * factor + mask) @ value, and the logarithm of the sum of each query's weights.

    tensors: query (..., l, e), key (..., s, e), value (..., s, v). mask: bool, True to attend, or added to the scores;
    broadcasts to (..., l, s). A query to which it leaves no key has the output 0, and the logarithm inf.
    """
    made: tuple[Array, Array] = _with_kernel(xp, tensors, mask, is_causal, factor)
    return made


def _work(tensors: Sequence[Any]) -> float:
    """Operations of the kernels, in those of a core of the CPU."""
    query, value = tensors[0], tensors[2]
    scores = math.prod(query.shape[:-1]) * value.shape[-2]
    return float(scores * ((query.shape[-1] + value.shape[-1]) * flop(dtypes.float32) + 4.0))


def _result_bytes(tensors: Sequence[Any], *_: Any) -> int:
    query, value = tensors[0], tensors[2]
    return int(math.prod(query.shape[:-1]) * (value.shape[-1] * query.itemsize + 8))


def _attempt_gradients(
    loops: Loops, g: Array, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float, out: Array,
    total: Array,
) -> list[Array] | None:  # fmt: skip
    if not _may_run(loops, tensors, mask):
        return None
    return kernels.gradients(g, tensors, mask, is_causal, factor, out, total)


def _gradients_by_products(
    g: Array, tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float, out: Array, total: Array
) -> list[Array]:
    """Gradients of query, key and value, by products."""
    xp, dtype = module_of(g), tensors[0].dtype
    query, key, value = wide = [_wide(each) for each in tensors]
    arriving, made = _wide(g), _wide(out)
    weights = xp.exp(_scores(xp, wide, mask, is_causal, factor) - total[..., None])
    of_scores = matrix_product(xp, arriving, value.swapaxes(-1, -2)) - (arriving * made).sum(-1, keepdims=True)
    of_scores *= weights * query.dtype.type(factor)
    found = (
        matrix_product(xp, of_scores, key),
        matrix_product(xp, of_scores.swapaxes(-1, -2), query),
        matrix_product(xp, weights.swapaxes(-1, -2), arriving),
    )
    return [each.astype(dtype) for each in found]


_gradients = with_loop(_attempt_gradients, place=0)(_gradients_by_products)


def _plainly(tensors: Sequence[Array], mask: Array | None, is_causal: bool, factor: float, g: Array) -> list[Array]:
    """Output and gradients without the kernels."""
    made, total = _by_products(module_of(g), tensors, mask, is_causal, factor)
    return [made, *_gradients_by_products(g, tensors, mask, is_causal, factor, made, total)]


def _both_ways(
    g: Any, tensors: Sequence[Any], mask: Any, is_causal: bool, factor: float, out0: Any, out1: Any
) -> list[Any]:
    made: list[Any]
    if type(g) is Tensor:
        made = recorded_gradients(g, tensors, mask, is_causal, factor)
    else:
        made = _gradients(g, tensors, mask, is_causal, factor, out0, out1)
    return made


fused_attention.sized_by(_result_bytes)
fused_attention.grad(tensors=_both_ways)

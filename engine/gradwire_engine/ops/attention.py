"""Similarity of vectors, and attention, which is made of it."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine import dtypes
from gradwire_engine.device import Array
from gradwire_engine.errors import EngineError, Reason
from gradwire_engine.op import composite, op
from gradwire_engine.ops.basic import expand
from gradwire_engine.ops.binary import clamp
from gradwire_engine.ops.dropout import dropout
from gradwire_engine.ops.fill import where
from gradwire_engine.ops.matrix import matmul, matrix_t
from gradwire_engine.ops.reduce import sum as total
from gradwire_engine.ops.reduce import vector_norm
from gradwire_engine.ops.softmax import softmax

Ints = Any  # an int or several


@composite
def normalize(input: Array, p: float = 2.0, dim: Ints = 1, eps: float = 1e-12) -> Any:
    """The input over its p-norm along dim, which counts as eps at least (torch.nn.functional.normalize)."""
    length = clamp(vector_norm(input, p, dim, True), eps)
    return input / expand(length, input.shape)


@composite
def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Any:
    """The cosine of the angle between vectors along dim (torch.nn.functional.cosine_similarity).

    x1, x2: shapes that broadcast; lengths count as eps at least. Raises EngineError: SHAPE.
    """
    first = x1 / clamp(vector_norm(x1, 2, dim, True), eps)
    second = x2 / clamp(vector_norm(x2, 2, dim, True), eps)
    return total(first * second, dim)


@op(name="_causal_mask")
def _causal_mask(xp: Any, query: Array, keys: int) -> Array:
    """True where a key is not after its query."""
    return xp.tri(query.shape[-2], keys, dtype=bool)


@composite
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(query @ key.T * scale + mask) @ value (torch.nn.functional.scaled_dot_product_attention).

    query: (..., l, e); key: (..., s, e); value: (..., s, v); attn_mask: (..., l, s), added, or bool: True takes part.
    Raises EngineError: RUNTIME, NOT_SUPPORTED for enable_gqa.
    """
    if enable_gqa:
        raise EngineError(Reason.NOT_SUPPORTED, "scaled_dot_product_attention: enable_gqa is not implemented")
    if attn_mask is not None and is_causal:
        raise EngineError(Reason.RUNTIME, "Explicit attn_mask should not be set when is_causal=True")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = matmul(query * factor, matrix_t(key))
    mask = _causal_mask(query, key.shape[-2]) if is_causal else attn_mask
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype == dtypes.bool_ else scores + mask
    weights = softmax(scores, -1)
    return matmul(dropout(weights, dropout_p) if dropout_p else weights, value)

"""normalize, cosine_similarity, and attention."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import CPU, Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import cast, expand
from gradwire_engine.ops.base.checks import broadcast_shape
from gradwire_engine.ops.base.fill import masked_fill, zeros
from gradwire_engine.ops.elementwise.binary import clamp
from gradwire_engine.ops.linalg.matrix import bmm, linear, matmul
from gradwire_engine.ops.nn.blocked_attention import blocked_attention, computes, masked_scores
from gradwire_engine.ops.nn.dropout import dropout
from gradwire_engine.ops.nn.fused_attention import computes as kernels_compute
from gradwire_engine.ops.nn.fused_attention import fused_attention
from gradwire_engine.ops.nn.softmax import safe_softmax, softmax
from gradwire_engine.ops.reduce.reduce import mean, vector_norm
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.join import cat
from gradwire_engine.ops.shape.padding import pad
from gradwire_engine.ops.shape.shape import contiguous, permute, reshape, split, squeeze, transpose, unbind, unsqueeze

Ints = Any  # an int or a sequence of ints


@composite
def normalize(input: Array, p: float = 2.0, dim: Ints = 1, eps: float = 1e-12) -> Any:
    """Divide by the p-norm along `dim`, but at least by eps (torch.nn.functional.normalize)."""
    length = clamp(vector_norm(input, p, dim, True), eps)
    return input / expand(length, input.shape)


@op(name="_held_above", cost=4)
def _held_above(xp: Any, input: Array, low: float) -> Array:
    """max(input, low), whose gradient passes unchanged, as in PyTorch's cosine_similarity."""
    return xp.maximum(input, input.dtype.type(low))


_held_above.grad(input=lambda g: g)


@composite
def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Any:
    """Cosine similarity of vectors along `dim` (torch.nn.functional.cosine_similarity).

    x1, x2: shapes broadcast. Each norm counts as at least eps. Raises EngineError: SHAPE.
    """
    dtype = dtypes.result_type(*(getattr(x, "array", x) for x in (x1, x2)))
    shape = broadcast_shape(tuple(x1.shape), tuple(x2.shape))
    x1, x2 = (x if x.dtype == dtype else cast(x, dtype) for x in (x1, x2))
    x1, x2 = (x if tuple(x.shape) == shape else expand(x, shape) for x in (x1, x2))  # norms of the expanded vectors
    first = x1 / _held_above(vector_norm(x1, 2, dim, True), eps)
    second = x2 / _held_above(vector_norm(x2, 2, dim, True), eps)
    return total(first * second, dim)


cosine_similarity.unsupported("c", message="expected common dtype to be floating point, yet common dtype is complex")


@composite(draws=True)
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

    query: (..., l, e); key: (..., s, e); value: (..., s, v). attn_mask: (..., l, s), added to the scores; or bool, True
    to attend. Raises EngineError: RUNTIME, NOT_SUPPORTED for enable_gqa.
    """
    if enable_gqa:
        raise EngineError(Reason.NOT_SUPPORTED, "scaled_dot_product_attention: enable_gqa is not implemented")
    if attn_mask is not None and is_causal:
        raise EngineError(Reason.RUNTIME, "Explicit attn_mask should not be set when is_causal=True")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if not dropout_p and not CURRENT.get().duals.active:
        if computes(query, key, value, attn_mask):
            return blocked_attention([query, key, value], attn_mask, is_causal, factor)
        if kernels_compute(query, key, value, attn_mask):
            return fused_attention([query, key, value], attn_mask, is_causal, factor)[0]
    scores = masked_scores(query * factor, key, attn_mask, is_causal)
    weights = softmax(scores, -1) if attn_mask is None else safe_softmax(scores, -1)
    return matmul(dropout(weights, dropout_p) if dropout_p else weights, value)


# multi_head_attention_forward.


def _projected(query: Any, key: Any, value: Any, given: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Multiply query, key and value by their weights: three matrices, or one that contains all three."""
    width = query.shape[-1]
    bias = given["in_proj_bias"]
    if given["use_separate_proj_weight"]:
        weights = [given[f"{name}_proj_weight"] for name in ("q", "k", "v")]
        if any(weight is None for weight in weights):
            raise EngineError(
                Reason.ARGUMENT_VALUE,
                "use_separate_proj_weight is True but q_proj_weight, k_proj_weight or v_proj_weight is None",
            )
    else:
        if given["in_proj_weight"] is None:
            raise EngineError(Reason.ARGUMENT_VALUE, "use_separate_proj_weight is False but in_proj_weight is None")
        if query is key and key is value and query.device != CPU:
            return _projected_at_once(query, given["in_proj_weight"], bias)
        weights = list(split(given["in_proj_weight"], width, 0))
    biases = [None] * 3 if bias is None else list(split(bias, width, 0))
    made = [linear(x, weight, b) for x, weight, b in zip((query, key, value), weights, biases, strict=True)]
    return made[0], made[1], made[2]


def _projected_at_once(x: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Query, key and value of one tensor, by one product: a GPU takes longer to start three. x: (l, n, e)."""
    length, batch, width = x.shape
    apart = permute(reshape(linear(x, weight, bias), (length, batch, 3, width)), (2, 0, 1, 3))
    made = unbind(contiguous(apart), 0)
    return made[0], made[1], made[2]


def _to_score_mask(mask: Any, like: Any) -> Any:
    """Convert a mask to one that is added to the scores: a bool mask has -inf where it is True."""
    if mask is None or mask.dtype != dtypes.bool_:
        return mask
    return masked_fill(zeros(like, tuple(mask.shape)), mask, -math.inf)


def _check_attention(query: Any, key: Any, value: Any, padding: Any, mask: Any, heads: int) -> None:
    if query.ndim not in (2, 3):
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor",
        )
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"For {'' if query.ndim == 3 else 'un'}batched query, expected key and value to be {query.ndim}-D, not "
            f"{key.ndim}-D and {value.ndim}-D",
        )
    if padding is not None and padding.ndim != query.ndim - 1:
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"expected `key_padding_mask` to be None or {query.ndim - 1}-D but found {padding.ndim}-D tensor instead",
        )
    if mask is not None and mask.ndim not in (2, 3):
        raise EngineError(
            Reason.ARGUMENT_VALUE, f"expected `attn_mask` to be None, 2-D or 3-D but found {mask.ndim}-D tensor instead"
        )


def _check_widths(query: Any, key: Any, value: Any, width: int, heads: int, separate: bool) -> None:
    if query.shape[-1] != width:
        raise EngineError(
            Reason.ARGUMENT_VALUE, f"was expecting embedding dimension of {width}, but got {query.shape[-1]}"
        )
    if width % heads:
        raise EngineError(Reason.ARGUMENT_VALUE, f"embed_dim {width} not divisible by num_heads {heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"key's sequence and batch dims {list(key.shape[:2])} do not match value's {list(value.shape[:2])}",
        )
    if not separate and key.shape != value.shape:
        raise EngineError(
            Reason.ARGUMENT_VALUE, f"key shape {list(key.shape)} does not match value shape {list(value.shape)}"
        )


def _append_key_value(keys: Any, values: Any, mask: Any, padding: Any, bias_k: Any, bias_v: Any) -> Any:
    """Append one key and value, learned or zero, to which every query may attend."""
    batch = keys.shape[1]
    keys = cat([keys, expand(bias_k, (1, batch, keys.shape[-1]))], 0)
    values = cat([values, expand(bias_v, (1, batch, values.shape[-1]))], 0)
    mask = None if mask is None else pad(mask, (0, 1))
    padding = None if padding is None else pad(padding, (0, 1))
    return keys, values, mask, padding


def _split_heads(x: Any, heads: int) -> Any:
    """Split the heads: (l, n, e) to (n * heads, l, e / heads)."""
    return transpose(reshape(x, (x.shape[0], x.shape[1] * heads, -1)), 0, 1)


@composite(outputs=("attn_output", "attn_output_weights"), draws=True)
def multi_head_attention_forward(
    query: Array,
    key: Array,
    value: Array,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Array | None,
    in_proj_bias: Array | None,
    bias_k: Array | None,
    bias_v: Array | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Array,
    out_proj_bias: Array | None,
    training: bool = True,
    key_padding_mask: Array | None = None,
    need_weights: bool = True,
    attn_mask: Array | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Array | None = None,
    k_proj_weight: Array | None = None,
    v_proj_weight: Array | None = None,
    static_k: Array | None = None,
    static_v: Array | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Multi-head attention with projections (torch.nn.functional.multi_head_attention_forward).

    query: (l, n, e) or (l, e); key, value: (s, n, e) or (s, e). attn_mask: (l, s) or (n * num_heads, l, s);
    key_padding_mask: (n, s); masks are added to the scores, or bool, True to exclude.
    Returns (output, weights), the weights averaged over the heads or per head; without need_weights only the output.
    Raises EngineError: ARGUMENT_VALUE, RUNTIME.
    """
    _check_attention(query, key, value, key_padding_mask, attn_mask, num_heads)
    if is_causal and attn_mask is None:
        raise EngineError(
            Reason.RUNTIME, "Need attn_mask if specifying the is_causal hint. Use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask.",
        )  # fmt: skip
    batched = query.ndim == 3
    if not batched:
        raised = {id(x): unsqueeze(x, 1) for x in (query, key, value)}  # one tensor stays one
        query, key, value = (raised[id(x)] for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)
    _check_widths(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    length, batch, width = query.shape
    queries, keys, values = _projected(
        query,
        key,
        value,
        {
            "in_proj_weight": in_proj_weight,
            "in_proj_bias": in_proj_bias,
            "use_separate_proj_weight": use_separate_proj_weight,
            "q_proj_weight": q_proj_weight,
            "k_proj_weight": k_proj_weight,
            "v_proj_weight": v_proj_weight,
        },
    )
    mask, padding = _to_score_mask(attn_mask, queries), _to_score_mask(key_padding_mask, queries)
    _check_mask(mask, length, key.shape[0], batch * num_heads)
    if bias_k is not None and bias_v is not None:
        keys, values, mask, padding = _append_key_value(keys, values, mask, padding, bias_k, bias_v)
    queries = _split_heads(queries, num_heads)
    keys = _split_heads(keys, num_heads) if static_k is None else static_k
    values = _split_heads(values, num_heads) if static_v is None else static_v
    if add_zero_attn:
        nothing = (batch * num_heads, 1, width // num_heads)
        keys, values = (cat([x, zeros(x, nothing)], 1) for x in (keys, values))
        mask = None if mask is None else pad(mask, (0, 1))
        padding = None if padding is None else pad(padding, (0, 1))
    sources = keys.shape[1]
    if padding is not None:
        if tuple(padding.shape) != (batch, sources):
            raise EngineError(
                Reason.ARGUMENT_VALUE,
                f"expecting key_padding_mask shape of {(batch, sources)}, but got {list(padding.shape)}",
            )
        wide = expand(reshape(padding, (batch, 1, 1, sources)), (batch, num_heads, 1, sources))
        wide = reshape(wide, (batch * num_heads, 1, sources))
        mask = wide if mask is None else mask + wide
    weights, rate = None, dropout_p if training else 0.0
    if need_weights:
        scores = bmm(queries * (1 / math.sqrt(width // num_heads)), transpose(keys, -2, -1))
        weights = softmax(scores if mask is None else scores + mask, -1)
        weights = dropout(weights, rate) if rate > 0 else weights
        mixed = bmm(weights, values)
    else:
        mixed = scaled_dot_product_attention(queries, keys, values, mask, rate)
    mixed = reshape(transpose(mixed, 0, 1), (length * batch, width))
    output = reshape(linear(mixed, out_proj_weight, out_proj_bias), (length, batch, -1))
    output = output if batched else squeeze(output, 1)
    if not need_weights:
        return output
    weights = reshape(weights, (batch, num_heads, length, sources))
    weights = mean(weights, 1) if average_attn_weights else weights
    return output, weights if batched else squeeze(weights, 0)


multi_head_attention_forward.variant("", multi_head_attention_forward.outputs, need_weights=True)
multi_head_attention_forward.variant("without_weights", ("attn_output",), need_weights=False)


def _check_mask(mask: Any, length: int, sources: int, heads: int) -> None:
    if mask is None:
        return
    wanted = (length, sources) if mask.ndim == 2 else (heads, length, sources)
    if tuple(mask.shape) != wanted:
        raise EngineError(
            Reason.RUNTIME,
            f"The shape of the {mask.ndim}D attn_mask is {list(mask.shape)}, but should be {list(wanted)}.",
        )

"""Shape rules of embeddings, norms, recurrent layers and losses."""

from __future__ import annotations

import itertools
import math
from typing import Any

from gradwire._proxy.handle import Handle
from gradwire._tensor.shape_rules.sizes import Shapes, dense, dim_of, has_parameters

# Rows of a recurrent layer's weights for each number of its state.
_GATES = {"lstm_layer": 4, "gru_layer": 3, "rnn_layer": 1}


def embedding(
    op: str, input: Any, weight: Any = None, padding_idx: Any = None, max_norm: Any = None, *args: Any, **named: Any
) -> Shapes:
    """embedding(input, weight)."""
    if not isinstance(input, Handle) or not isinstance(weight, Handle) or max_norm is not None:
        return None
    rows = weight._spec.shape
    if len(rows) != 2 or 0 in rows or 0 in input._spec.shape or weight._spec.strides or input._spec.strides:
        return None
    if padding_idx is not None and dim_of(padding_idx, rows[0]) < 0:
        return None
    return dense((*input._spec.shape, rows[1]))


def layer_norm(
    op: str, input: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, *args: Any, **named: Any
) -> Shapes:
    """layer_norm(input, normalized_shape, weight, bias)."""
    if not isinstance(input, Handle) or not isinstance(normalized_shape, (list, tuple)) or not normalized_shape:
        return None
    sizes, shape = tuple(normalized_shape), tuple(input._spec.shape)
    if not all(type(size) is int for size in sizes):
        return None
    if 0 in shape or shape[len(shape) - len(sizes) :] != sizes or len(shape) < len(sizes) or input._spec.strides:
        return None
    return dense(shape) if has_parameters((weight, bias), sizes) else None


def batch_norm(
    op: str,
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: Any = False,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
    *args: Any,
    **named: Any,
) -> Shapes:
    """batch_norm of a contiguous batch. The statistics that it updates are no views."""
    if not isinstance(input, Handle) or args or named or type(training) is not bool:
        return None
    shape = tuple(input._spec.shape)
    if len(shape) < 2 or 0 in shape or input._spec.strides or (training and math.prod(shape) == shape[1]):
        return None
    if type(momentum) is not float or type(eps) is not float or not (0 <= momentum <= 1 and 0 < eps < 1):
        return None
    for each in (running_mean, running_var):
        if each is None and training and running_mean is running_var:
            continue
        if not isinstance(each, Handle) or each._spec.strides or each._spec.requires_grad:
            return None
        if training and each._spec.is_view:
            return None
    return dense(shape) if has_parameters((running_mean, running_var, weight, bias), shape[1:2]) else None


def attention(
    op: str,
    query: Any,
    key: Any = None,
    value: Any = None,
    attn_mask: Any = None,
    dropout_p: Any = 0.0,
    is_causal: Any = False,
    scale: Any = None,
    enable_gqa: Any = False,
) -> Shapes:
    """scaled_dot_product_attention of heads of one number, without a mask and dropout."""
    if not all(isinstance(each, Handle) for each in (query, key, value)) or attn_mask is not None:
        return None
    if type(dropout_p) not in (int, float) or dropout_p != 0 or type(is_causal) is not bool or enable_gqa is not False:
        return None
    if scale is not None and type(scale) is not float:
        return None
    sizes, keys, values = (tuple(each._spec.shape) for each in (query, key, value))
    if len(sizes) < 2 or 0 in (*sizes, *keys, *values) or len(keys) != len(sizes) or len(values) != len(sizes):
        return None
    if keys != (*sizes[:-2], keys[-2], sizes[-1]) or values[:-1] != keys[:-1]:
        return None
    return dense((*sizes[:-1], values[-1]))


def recurrent(op: str, input: Any, *args: Any, **named: Any) -> Shapes:
    """A layer of an LSTM, a GRU or an RNN without a projection: the results of all steps, and the last states."""
    states, tensors = (2, 6) if op == "lstm_layer" else (1, 5)
    if not isinstance(input, Handle) or named or len(args) < tensors:
        return None
    given, rest = args[:tensors], list(args[tensors:])
    if op == "lstm_layer" and rest and rest.pop(0) is not None:
        return None
    sizes = rest[0] if rest else ()
    weights, biases = given[states : states + 2], given[states + 2 :]
    if not all(isinstance(each, Handle) for each in (*given[:states], *weights)):
        return None
    if not isinstance(sizes, (list, tuple)) or not all(type(each) is int and each > 0 for each in sizes):
        return None
    shape = tuple(input._spec.shape)
    if len(shape) != (2 if sizes else 3) or 0 in shape:
        return None
    width = given[0]._spec.shape[-1] if given[0]._spec.shape else 0
    rows, batch = _GATES[op] * width, sizes[0] if sizes else shape[1]
    if sizes and (sum(sizes) != shape[0] or any(one < other for one, other in itertools.pairwise(sizes))):
        return None
    wanted = [*[(batch, width)] * states, (rows, shape[-1]), (rows, width)]
    if not width or [tuple(each._spec.shape) for each in (*given[:states], *weights)] != wanted:
        return None
    if any(each._spec.strides for each in (input, *given[:states], *weights)):
        return None
    if not has_parameters(biases, (rows,)):
        return None
    made = dense((*shape[:-1], width))
    return None if made is None else (*made, *[((batch, width), ())] * states)


def _is_reduced(reduction: Any, old: tuple[Any, ...]) -> bool:
    return type(reduction) is str and reduction in ("mean", "sum") and all(each is None for each in old)


def elementwise_loss(
    op: str,
    input: Any,
    target: Any = None,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    *args: Any,
    **named: Any,
) -> Shapes:
    """Losses of two tensors of one shape, with a mean or a sum; without weights."""
    if op == "smooth_l1_loss" and (type(reduction) not in (int, float) or not 0 < reduction < 1 << 15):
        return None  # that is beta
    if op != "binary_cross_entropy_with_logits":
        weight, size_average, reduce, reduction = (None, weight, size_average, reduce)
    if not isinstance(input, Handle) or not isinstance(target, Handle):
        return None
    if not _is_reduced(reduction, (weight, size_average, reduce)) or any(isinstance(one, Handle) for one in args):
        return None
    same = input._spec.shape == target._spec.shape and 0 not in input._spec.shape
    return ((((), ())),) if same else None


def class_loss(
    op: str,
    input: Any,
    target: Any = None,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: Any = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    *args: Any,
    **named: Any,
) -> Shapes:
    """cross_entropy and nll_loss of rows, with a class for each, a mean or a sum; without weights."""
    if not isinstance(input, Handle) or not isinstance(target, Handle):
        return None
    if type(ignore_index) is not int or ignore_index != -100:
        return None
    shape, classes = input._spec.shape, target._spec
    if len(shape) != 2 or 0 in shape or classes.dtype.name != "int64" or tuple(classes.shape) != shape[:1]:
        return None
    return ((((), ())),) if _is_reduced(reduction, (weight, size_average, reduce)) else None


def embedding_bag(
    op: str,
    input: Any,
    weight: Any = None,
    offsets: Any = None,
    max_norm: Any = None,
    norm_type: Any = 2.0,
    scale: Any = False,
    mode: Any = "mean",
    sparse: Any = False,
    samples: Any = None,
    last: Any = False,
    padding_idx: Any = None,
    *args: Any,
    **named: Any,
) -> Shapes:
    """embedding_bag of indices in a row, with the start of each bag."""
    if not all(isinstance(each, Handle) for each in (input, weight, offsets)):
        return None
    one, rows, bags = input._spec, weight._spec, offsets._spec
    plain = max_norm is None and samples is None and padding_idx is None and not (scale or sparse or last)
    if not plain or len(one.shape) != 1 or len(rows.shape) != 2 or len(bags.shape) != 1:
        return None
    if one.strides or rows.strides or bags.strides or 0 in (*one.shape, *rows.shape, *bags.shape):
        return None
    return dense((bags.shape[0], rows.shape[1]))

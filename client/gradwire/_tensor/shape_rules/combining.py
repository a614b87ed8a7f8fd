"""Shape rules of products, joins, selections and orders."""

from __future__ import annotations

from typing import Any

from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec
from gradwire._tensor.shape_rules.elementwise import along
from gradwire._tensor.shape_rules.sizes import Shapes, broadcast, dense, dim_of, fits, is_contiguous

# Ranks of the operands of ops that refuse others.
_RANKS = {"bmm": (3, 3), "mm": (2, 2), "mv": (2, 1)}


def matmul(op: str, input: Any, other: Any = None, *args: Any, **named: Any) -> Shapes:
    """Products of contiguous vectors, matrices and batches of matrices."""
    if not isinstance(input, Handle) or not isinstance(other, Handle) or args or named:
        return None
    one, two = input._spec, other._spec
    ranks = len(one.shape), len(two.shape)
    if not _is_matrix(one) or not _is_matrix(two) or _RANKS.get(op, ranks) != ranks:
        return None
    if one.shape[-1] != two.shape[max(len(two.shape) - 2, 0)] or 0 in one.shape or 0 in two.shape:
        return None
    batch = broadcast((one.shape[:-2], two.shape[:-2]))
    if batch is None or (op == "bmm" and one.shape[0] != two.shape[0]):
        return None
    if min(ranks) > 2 and one.shape[:-2] != two.shape[:-2] and (one.requires_grad or two.requires_grad):
        return None  # the node depends on which batch is expanded
    return dense((*batch, *one.shape[:-1][-1:], *(two.shape[-1:] if len(two.shape) > 1 else ())))


def _is_matrix(spec: Spec) -> bool:
    """Whether a tensor is contiguous, or is so with its last two dimensions exchanged. Scalars are no operands."""
    if not spec.strides:
        return bool(spec.shape)
    if len(spec.shape) < 2:
        return False
    return is_contiguous((*spec.shape[:-2], *spec.shape[:-3:-1]), (*spec.strides[:-2], *spec.strides[:-3:-1]))


def linear(op: str, input: Any, weight: Any = None, bias: Any = None, *args: Any, **named: Any) -> Shapes:
    """linear(input, weight, bias)."""
    if not isinstance(input, Handle) or not isinstance(weight, Handle):
        return None
    shape, rows = input._spec.shape, weight._spec.shape
    if not shape or len(rows) != 2 or shape[-1] != rows[1] or 0 in shape or 0 in rows:
        return None
    if weight._spec.strides or (input._spec.strides and (len(shape) != 2 or not _is_matrix(input._spec))):
        return None
    if bias is not None and (not isinstance(bias, Handle) or bias._spec.shape != rows[:1]):
        return None
    return dense((*shape[:-1], rows[0]))


def dot(op: str, input: Any, tensor: Any = None, *args: Any, **named: Any) -> Shapes:
    """dot of two vectors of one size."""
    if not isinstance(input, Handle) or not isinstance(tensor, Handle) or args or named:
        return None
    shape = input._spec.shape
    return (((), ()),) if len(shape) == 1 and 0 not in shape and shape == tensor._spec.shape else None


def stack(op: str, tensors: Any, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """stack of contiguous tensors of one shape."""
    specs = _contiguous(tensors)
    place = dim_of(dim, len(specs[0].shape) + 1) if specs else -1
    if place < 0 or any(spec.shape != specs[0].shape for spec in specs):
        return None
    return dense((*specs[0].shape[:place], len(specs), *specs[0].shape[place:]))


def cat(op: str, tensors: Any, dim: Any = 0, *args: Any, **named: Any) -> Shapes:
    """cat of contiguous tensors."""
    specs = _contiguous(tensors)
    place = dim_of(dim, len(specs[0].shape)) if specs else -1
    if place < 0:
        return None
    first = list(specs[0].shape)
    total = 0
    for spec in specs:
        sizes = list(spec.shape)
        if len(sizes) != len(first):
            return None
        total += sizes[place]
        sizes[place] = first[place]
        if sizes != first:
            return None
    return dense((*first[:place], total, *first[place + 1 :]))


def _contiguous(tensors: Any) -> list[Spec]:
    """Descriptions of tensors; empty unless all of them are contiguous and have elements."""
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(tensor, Handle) for tensor in tensors):
        return []
    specs = [tensor._spec for tensor in tensors]
    return [] if any(spec.strides or 0 in spec.shape for spec in specs) else specs


def index_select(op: str, input: Any, dim: Any = None, index: Any = None, *args: Any, **named: Any) -> Shapes:
    """index_select(dim, index)."""
    if not isinstance(input, Handle) or not isinstance(index, Handle):
        return None
    shape, chosen = input._spec.shape, index._spec.shape
    place = dim_of(dim, len(shape))
    if place < 0 or len(chosen) != 1 or input._spec.strides or 0 in shape or 0 in chosen:
        return None
    return dense((*shape[:place], chosen[0], *shape[place + 1 :]))


def gather(op: str, input: Any, dim: Any = None, index: Any = None, *args: Any, **named: Any) -> Shapes:
    """gather(dim, index)."""
    if not isinstance(input, Handle) or not isinstance(index, Handle):
        return None
    shape, chosen = input._spec.shape, index._spec.shape
    place = dim_of(dim, len(shape))
    if place < 0 or len(shape) != len(chosen) or 0 in shape or input._spec.strides or index._spec.strides:
        return None
    if any(have < want for axis, (have, want) in enumerate(zip(shape, chosen, strict=True)) if axis != place):
        return None
    return dense(chosen)


def repeat(op: str, input: Any, repeats: Any = None, *args: Any, **named: Any) -> Shapes:
    """repeat(repeats) and tile."""
    if not isinstance(input, Handle) or not isinstance(repeats, (list, tuple)):
        return None
    shape = input._spec.shape
    if len(repeats) < len(shape) or 0 in shape or input._spec.strides:
        return None
    if not all(type(one) is int and one > 0 for one in repeats):
        return None
    padded = (*(1,) * (len(repeats) - len(shape)), *shape)
    return dense([size * times for size, times in zip(padded, repeats, strict=True)])


def pad(op: str, input: Any, pad: Any = None, mode: Any = "constant", *args: Any, **named: Any) -> Shapes:
    """pad with a constant."""
    if not isinstance(input, Handle) or not isinstance(pad, (list, tuple)) or len(pad) % 2:
        return None
    if type(mode) is not str or mode != "constant":
        return None
    spec = input._spec
    sizes = list(spec.shape)
    if not all(fits(value, spec.dtype) for value in (*args, *named.values())):
        return None
    if len(pad) > 2 * len(sizes) or spec.strides or 0 in sizes or not all(type(n) is int and n >= 0 for n in pad):
        return None
    for place in range(len(pad) // 2):
        sizes[-1 - place] += pad[2 * place] + pad[2 * place + 1]
    return dense(sizes)


def topk(op: str, input: Any, k: Any = None, dim: Any = -1, *args: Any, **named: Any) -> Shapes:
    """topk(k, dim): values and indices."""
    place = dim_of(dim, len(input._spec.shape)) if isinstance(input, Handle) else -1
    if place < 0 or type(k) is not int or input._spec.strides or not 0 < k <= input._spec.shape[place]:
        return None
    made = dense((*input._spec.shape[:place], k, *input._spec.shape[place + 1 :]))
    return None if made is None else made * 2


def sort(op: str, input: Any, dim: Any = -1, *args: Any, **named: Any) -> Shapes:
    """sort(dim): values and indices."""
    made = along(op, input, dim)
    return None if made is None else made * 2


def roll(op: str, input: Any, shifts: Any = None, dims: Any = (), *args: Any, **named: Any) -> Shapes:
    """roll by any number of places along the dimensions given."""
    if isinstance(shifts, (list, tuple)) != isinstance(dims, (list, tuple)):
        return None
    if isinstance(dims, (list, tuple)):
        rank = len(input._spec.shape) if isinstance(input, Handle) else 0
        places = {dim_of(dim, rank) for dim in dims}
        if not dims or -1 in places or len(places) != len(dims) or len(shifts) != len(dims):
            return None
        return along(op, input, dims[0])
    return along(op, input, dims)

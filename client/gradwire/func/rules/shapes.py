"""Batching rules of what changes shapes, repeats and joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._proxy.transforms import unbatched
from gradwire._tensor.call import _call
from gradwire.func._batched import is_batched, spread
from gradwire.func.rules.calls import OpCall, padded, refuse_in_place, rule, shifted, shifted_all
from gradwire.func.rules.layers import folded


@rule("unsqueeze")
def unsqueeze(call: OpCall) -> Any:
    dim = shifted(call.get("dim"), call.args[0].dim() + 1)
    return call.wrap(_call("unsqueeze", (call.first(), dim)))


@rule("transpose swapaxes swapdims")
def transpose(call: OpCall) -> Any:
    ndim = call.args[0].dim()
    if not ndim:
        return call.args[0]
    return call.wrap(_call("transpose", (call.first(), *[shifted(one, ndim) for one in _rest(call, 2)])))


def _rest(call: OpCall, count: int) -> list[Any]:
    return [call.get(name) for name in call.names[1 : 1 + count]]


@rule("T t mT H mH")
def transposed(call: OpCall) -> Any:
    tensor = call.args[0]
    ndim = tensor.dim()
    if call.base in ("mT", "mH") and ndim < 2:
        raise refuse(f"tensor.{call.base} is only supported on matrices or batches of matrices. Got {ndim}-D tensor.")
    if call.base == "t" and ndim > 2:
        raise refuse(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    order = [*range(ndim - 2), ndim - 1, ndim - 2] if call.base in ("mT", "mH") else list(reversed(range(ndim)))
    turned = tensor.permute(order) if ndim > 1 else tensor
    return turned.conj() if call.base in ("H", "mH") else turned


@rule("take_geometry")
def take_geometry(call: OpCall) -> Any:
    """The last step of `squeeze_` and its relatives: the tensor gets the sizes and strides of a view of it."""
    refuse_in_place(call)
    _call("take_geometry_", (call.first(), spread(call.args[1], call.level)))
    return call.args[0]


@rule("permute")
def permute(call: OpCall) -> Any:
    ndim = call.args[0].dim()
    dims = [shifted(one, ndim) for one in call.get("dims")] if ndim else []
    return call.wrap(_call("permute", (call.first(), (0, *dims))))


@rule("movedim moveaxis")
def movedim(call: OpCall) -> Any:
    ndim = call.args[0].dim()
    source, target = (shifted_all(one, ndim) for one in _rest(call, 2))
    return call.wrap(_call("movedim", (call.first(), source, target)))


def sizes_of(size: Any) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)


@rule("reshape view")
def reshape(call: OpCall) -> Any:
    size = sizes_of(call.get(call.names[1]))
    if -1 in size:
        known = math.prod(one for one in size if one != -1)
        count = math.prod(call.args[0].shape)
        if known and count % known == 0:
            size = tuple(count // known if one == -1 else one for one in size)
    return call.wrap(_call(call.base, (call.first(), (call.level.size, *size))))


@rule("as_strided")
def as_strided(call: OpCall) -> Any:
    """The same elements of each sample, relative to its first. Raises RuntimeError for elements of another sample."""
    value = call.first()
    size, stride = sizes_of(call.get("size")), sizes_of(call.get("stride"))
    begin = value.storage_offset()
    offset = call.get("storage_offset")
    offset = begin if offset is None else offset
    own = begin + _reach(value.shape[1:], value.stride()[1:])
    if 0 not in size and (offset < begin or offset + _reach(size, stride) > own):
        raise refuse(
            f"vmap: as_strided(size={list(size)}, stride={list(stride)}, storage_offset={offset}) can access memory "
            f"outside of `tensor`, a sample of sizes {list(value.shape[1:])} and strides {list(value.stride()[1:])}. "
            "This is not supported inside of vmap."
        )
    apart = _apart(value) if unbatched(value)._spec.tangents else None
    if apart is not None:
        value, offset = apart, offset - begin
    sizes, strides = (call.level.size, *size), (value.stride()[0], *stride)
    return call.wrap(_call("as_strided", (value, sizes, strides, offset)))


def _apart(value: Any) -> Any:
    """A copy with memory for each sample, where samples share theirs: their tangents do not. None without need.

    A sample keeps its layout, so it must not have gaps.
    """
    sizes, strides = value.shape[1:], value.stride()[1:]
    if value.stride()[0] or value.shape[0] < 2 or _reach(sizes, strides) + 1 != math.prod(sizes):
        return None
    order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], dim))
    made = value.permute((0, *[dim + 1 for dim in order])).contiguous()
    return made.permute((0, *[order.index(dim) + 1 for dim in range(len(sizes))]))


def _reach(size: Sequence[int], stride: Sequence[int]) -> int:
    """How far behind the first element the last one lies."""
    return sum((count - 1) * step for count, step in zip(size, stride, strict=True))


@rule("reshape_as view_as expand_as")
def like_another(call: OpCall) -> Any:
    other = call.get("other")
    base = call.base.removesuffix("_as")
    return (
        call.args[0]
        if call.args[0].shape == other.shape and base == "expand"
        else _call(base, (call.args[0], tuple(other.shape)))
    )


@rule("flatten")
def flatten(call: OpCall) -> Any:
    tensor = call.args[0]
    ndim = tensor.dim()
    if not ndim:
        return tensor.reshape((1,))
    start, end = shifted(call.get("start_dim", 0), ndim), shifted(call.get("end_dim", -1), ndim)
    return call.wrap(_call("flatten", (call.first(), start, end)))


@rule("ravel")
def ravel(call: OpCall) -> Any:
    return call.args[0].reshape((-1,))


@rule("expand broadcast_to")
def expand(call: OpCall) -> Any:
    size = sizes_of(call.get("size"))
    value = padded(call.args[0], len(size), call.level)
    return call.wrap(_call("expand", (value, (call.level.size, *size))))


@rule("repeat tile")
def repeat(call: OpCall) -> Any:
    counts = sizes_of(call.get(call.names[1]))
    counts = (1,) * (call.args[0].dim() - len(counts) if call.base == "tile" else 0) + counts
    return call.wrap(_call("repeat", (padded(call.args[0], len(counts), call.level), (1, *counts))))


@rule("roll")
def roll(call: OpCall) -> Any:
    tensor, dims = call.args[0], call.get("dims", ())
    if dims in ((), []):
        return _call("roll", (tensor.reshape((-1,)), call.get("shifts"), 0)).reshape(tensor.shape)
    return call.wrap(_call("roll", (call.first(), call.get("shifts"), shifted_all(dims, tensor.dim()))))


@rule("diagonal")
def diagonal(call: OpCall) -> Any:
    ndim = call.args[0].dim()
    dims = shifted(call.get("dim1", 0), ndim), shifted(call.get("dim2", 1), ndim)
    return call.wrap(_call("diagonal", (call.first(), call.get("offset", 0), *dims)))


@rule("diag")
def diag(call: OpCall) -> Any:
    tensor, offset = call.args[0], call.get("diagonal", 0)
    return _call("diagonal" if tensor.dim() == 2 else "diag_embed", (tensor, offset))


@rule("trace")
def trace(call: OpCall) -> Any:
    return call.args[0].diagonal().sum()


@rule(
    "view_as_real view_as_complex "
    "tril triu diag_embed pad one_hot linalg.inv linalg.det linalg.slogdet linalg.cholesky linalg.eigh linalg.eigvalsh "
    "linalg.svdvals linalg.pinv linalg.matrix_exp linalg.matrix_power inverse det logdet slogdet matrix_exp"
)
def last_dims(call: OpCall) -> Any:
    """Ops on the last dimensions, for any leading dimensions."""
    if call.base == "pad" and call.get("mode", "constant") != "constant":
        return folded(call)
    call.args[0] = call.first()
    return call.wrap(call.run())


@rule("unfold")
def unfold(call: OpCall) -> Any:
    dim = shifted(call.get("dimension"), call.args[0].dim())
    return call.wrap(_call("unfold", (call.first(), dim, call.get("size"), call.get("step"))))


@rule("meshgrid")
def meshgrid(call: OpCall) -> Any:
    tensors = [each.reshape((-1,)) for each in call.get("tensors")]
    count = len(tensors)
    order = [1, 0, *range(2, count)] if call.get("indexing") == "xy" and count > 1 else list(range(count))
    shape = tuple(tensors[place].numel() for place in order)
    made = []
    for place, each in enumerate(tensors):
        axis = order.index(place)
        made.append(each.reshape((1,) * axis + (-1,) + (1,) * (count - axis - 1)).expand(shape))
    return tuple(made)


@rule("broadcast_tensors")
def broadcast_tensors(call: OpCall) -> Any:
    tensors = call.get("tensors")
    shape = broadcast_shape([tuple(each.shape) for each in tensors])
    return tuple(each.expand(shape) for each in tensors)


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all of them broadcast to. Raises RuntimeError if there is none."""
    ndim = max(len(shape) for shape in shapes)
    joint = [1] * ndim
    for shape in shapes:
        for place, size in enumerate(shape, ndim - len(shape)):
            if size != 1 and joint[place] not in (1, size):
                raise refuse(
                    f"The size of tensor a ({joint[place]}) must match the size of tensor b ({size}) at non-singleton "
                    f"dimension {place}"
                )
            joint[place] = size if joint[place] == 1 else joint[place]
    return tuple(joint)


@rule("atleast_1d atleast_2d atleast_3d")
def at_least(call: OpCall) -> Any:
    return at_least_dims(call.args[0], int(call.base[8]))


@rule("repeat_interleave")
def repeat_interleave(call: OpCall) -> Any:
    tensor, repeats, dim = call.args[0], call.get("repeats"), call.get("dim")
    if is_batched(repeats, call.level):
        raise refuse("vmap: repeat_interleave takes no counts per sample: the size would vary")
    if dim is None:
        tensor, dim = tensor.reshape((-1,)), 0
    return call.wrap(_call("repeat_interleave", (spread(tensor, call.level), repeats, shifted(dim, tensor.dim()))))


@rule("cat concat concatenate stack")
def join(call: OpCall) -> Any:
    tensors = call.get("tensors")
    ndim = max(each.dim() for each in tensors)
    dim = shifted(call.get("dim", 0), ndim + (call.base == "stack"))
    return call.wrap(_call(call.base, ([spread(each, call.level) for each in tensors], dim)))


@rule("hstack vstack dstack row_stack column_stack")
def join_named(call: OpCall) -> Any:
    least = {"hstack": 1, "vstack": 2, "row_stack": 2, "dstack": 3, "column_stack": 1}[call.base]
    tensors = [at_least_dims(each, least) for each in call.get("tensors")]
    if call.base == "column_stack":
        tensors = [each.unsqueeze(1) if each.dim() == 1 else each for each in tensors]
    axis = {"vstack": 0, "row_stack": 0, "dstack": 2}.get(call.base, min(1, max(each.dim() for each in tensors) - 1))
    return _call("cat", (tensors, axis))


def at_least_dims(tensor: Any, ndim: int) -> Any:
    if tensor.dim() >= ndim:
        return tensor
    if ndim == 3 and tensor.dim() == 2:
        return tensor.unsqueeze(-1)
    if ndim == 3 and tensor.dim() == 1:
        return tensor.reshape((1, -1, 1))
    return tensor.reshape((1,) * (ndim - tensor.dim()) + tuple(tensor.shape))


@rule("new_zeros new_ones new_full new_empty")
def new_like(call: OpCall) -> Any:
    """A value per sample, so that samples may be written into it."""
    size = sizes_of(call.get("size"))
    call.args[0] = call.first()
    call.set("size", (call.level.size, *size))
    return call.wrap(call.run())

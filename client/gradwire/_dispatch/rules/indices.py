"""Rules of x[...] and x[...] = value: selects and slices in a row, then one index with tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._base.wiring import wired
from gradwire._dispatch.calls import aten
from gradwire._proxy.handle import Handle

Tensor = Any
_END = (1 << 63) - 1


def _walked(input: Tensor, items: Any) -> tuple[Any, list[Any], bool]:
    """What the plain items of an index make of a tensor, the tensors among them by dimension, and if any was used."""
    used = sum(_takes(each) for each in items)
    found: list[Any] = []
    dim, made, changed = 0, input, False
    for item in items:
        if item is Ellipsis:
            dim += input.ndim - used
        elif item is None:
            made, changed = aten("unsqueeze.default", made, dim), True
            dim += 1
        elif isinstance(item, slice):
            start, end, step = item.start, item.stop, item.step
            if (start or 0, _END if end is None else end, step or 1) != (0, _END, 1):
                made = aten("slice.Tensor", made, dim, start or 0, _END if end is None else end, step or 1)
                changed = True
            dim += 1
        elif isinstance(item, Handle):
            found.extend([None] * (dim - len(found)))
            found.append(item)
            dim += item.ndim if item._spec.dtype.name in ("bool", "uint8") else 1  # type: ignore[attr-defined]
        else:
            made, changed = aten("select.int", made, dim, item), True
    return made, found, changed


def _takes(item: Any) -> int:
    """The number of dimensions that an item stands for."""
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, Handle) and item._spec.dtype.name in ("bool", "uint8"):
        return len(item._spec.shape)
    return 1


def _plain(items: Any) -> bool:
    """Whether the rules know all items: no truth values, and no mask behind another tensor."""
    tensors = [each for each in items if isinstance(each, Handle)]
    masks = [each for each in tensors if each._spec.dtype.name in ("bool", "uint8")]
    return not any(type(each) is bool for each in items) and (not masks or len(tensors) == 1)


def _getitem(call: Any, input: Tensor, index: Any) -> Any:
    if not _plain(index.items):
        return aten("index.Tensor", input, list(index.items), compute=call.compute)
    made, tensors, changed = _walked(input, index.items)
    if tensors:
        return aten("index.Tensor", made, tensors)
    return made if changed else aten("alias.default", made)


def _setitem(call: Any, input: Tensor, index: Any, value: Any) -> Any:
    if not _plain(index.items):
        return aten("index_put_.default", input, list(index.items), value, compute=call.compute)
    lifted = value
    if not isinstance(value, Handle):
        lifted = wired("make_tensor")(value, input.dtype, str(input.device))
        lifted = aten("lift_fresh.default", lifted, compute=lambda: lifted)
    made, tensors, _ = _walked(input, index.items)
    if tensors:
        aten("index_put_.default", made, tensors, lifted)
    elif isinstance(value, Handle):
        aten("copy_.default", made, value)
    else:
        aten("fill_.Tensor", made, lifted)
    return input


def _scatter(call: Any, input: Tensor, dim: int, index: Tensor, src: Any = None, value: Any = None) -> Any:
    given = src if value is None else value
    form = "src" if isinstance(given, Handle) else "value"
    return aten(f"{call.op}.{form}", input, dim, index, given, compute=call.compute)


def _index_put(call: Any, input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Any:
    return aten(f"{call.op}.default", input, list(indices), values, accumulate, compute=call.compute)


def _argsort(call: Any, input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    if stable:
        return aten("sort.stable", input, stable=True, dim=dim, descending=descending)[1]
    return aten("sort.default", input, dim, descending)[1]


def _sort(call: Any, input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    if stable:
        return aten("sort.stable", input, stable=True, dim=dim, descending=descending, compute=call.compute)
    return aten("sort.default", input, dim, descending, compute=call.compute)


def _embedding(
    call: Any,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    padding = -1 if padding_idx is None else padding_idx
    if padding_idx is not None and padding < 0:
        padding += weight.shape[0]
    if max_norm is None:
        return aten("embedding.default", weight, input, padding, scale_grad_by_freq, sparse, compute=call.compute)
    aten("embedding_renorm_.default", aten("detach.default", weight), input, max_norm, norm_type)
    return aten("embedding.default", weight, input, padding, scale_grad_by_freq, sparse)


def _one_hot(call: Any, tensor: Tensor, num_classes: int = -1) -> Any:
    if num_classes != -1 or not tensor.numel():
        return NotImplemented
    low, high = aten("aminmax.default", tensor)
    smallest = aten("_local_scalar_dense.default", low)
    if smallest < 0:
        return NotImplemented
    count = int(aten("_local_scalar_dense.default", high)) + 1
    made = aten(
        "zeros.default",
        [*tensor.shape, count],
        dtype=tensor.dtype,
        layout=tensor.layout,
        device=tensor.device,
    )
    return aten("scatter_.value", made, -1, aten("unsqueeze.default", tensor, -1), 1)


RULES: dict[str, Callable[..., Any]] = {
    "argsort": _argsort,
    "embedding": _embedding,
    "getitem": _getitem,
    "index_put": _index_put,
    "index_put_": _index_put,
    "one_hot": _one_hot,
    "scatter": _scatter,
    "scatter_": _scatter,
    "setitem_": _setitem,
    "sort": _sort,
}

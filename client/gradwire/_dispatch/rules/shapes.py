"""Rules of views and of joins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradwire._dispatch.calls import aten
from gradwire._functions.legacy import contiguous_format

Tensor = Any


def broadcast(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The common sizes of two shapes."""
    count = max(len(one), len(other))
    pairs = zip((1,) * (count - len(one)) + tuple(one), (1,) * (count - len(other)) + tuple(other), strict=True)
    return tuple(b if a == 1 else a for a, b in pairs)


def reshaped(input: Tensor, sizes: Sequence[int]) -> Any:
    """A view of these sizes, or a copy where the strides allow none."""
    sizes = _completed(input, sizes)
    if _views(input.shape, input.stride(), sizes):
        return aten("view.default", input, list(sizes))
    made = aten("clone.default", input, memory_format=contiguous_format)
    return aten("_unsafe_view.default", made, list(sizes))


def _completed(input: Tensor, sizes: Sequence[int]) -> list[int]:
    """Sizes with the number in place of -1."""
    if -1 not in sizes:
        return list(sizes)
    rest = math.prod(each for each in sizes if each != -1)
    return [input.numel() // rest if each == -1 and rest else each for each in sizes]


def _views(shape: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether a tensor of that shape and strides has a view of these sizes."""
    if math.prod(shape) == 0 or math.prod(sizes) != math.prod(shape):
        return True
    blocks: list[list[int]] = []  # the elements of each run of memory, and its stride
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if blocks and blocks[-1][1] == size * stride:
            blocks[-1] = [blocks[-1][0] * size, stride]
        else:
            blocks.append([size, stride])
    at = 0
    for block, _ in blocks:
        left = block
        while left > 1 or (at < len(sizes) and sizes[at] == 1):
            if at == len(sizes) or left % sizes[at]:
                return False
            left //= sizes[at]
            at += 1
    return True


def _view(call: Any, input: Tensor, size: Any) -> Any:
    return aten("view.default", input, _sizes(size), compute=call.compute)


def _sizes(size: Any) -> list[int]:
    return list(size) if isinstance(size, (tuple, list)) else [size]


def _reshape(call: Any, input: Tensor, shape: Any) -> Any:
    return reshaped(input, _sizes(shape))


def _is_dim(input: Tensor, dim: Any) -> bool:
    """Whether a tensor has this dimension: if not, the op itself raises the error."""
    return type(dim) is int and -input.ndim <= dim < input.ndim


def _flatten(call: Any, input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    count = input.ndim
    if not count:
        return reshaped(input, [1])
    if not (_is_dim(input, start_dim) and _is_dim(input, end_dim)):
        return NotImplemented
    start, end = start_dim % count, end_dim % count
    if start == end:
        return input
    if start > end:
        return NotImplemented
    return reshaped(input, [*input.shape[:start], math.prod(input.shape[start : end + 1]), *input.shape[end + 1 :]])


def _unflatten(call: Any, input: Tensor, dim: int, sizes: Any) -> Any:
    if not _is_dim(input, dim):
        return NotImplemented
    dim %= input.ndim
    rest = math.prod(each for each in sizes if each != -1)
    given = [input.shape[dim] // rest if each == -1 and rest else each for each in sizes]
    return aten("view.default", input, [*input.shape[:dim], *given, *input.shape[dim + 1 :]], compute=call.compute)


def _ravel(call: Any, input: Tensor) -> Any:
    if input.is_contiguous():
        return aten("view.default", input, [-1], compute=call.compute)
    made = aten("clone.default", input, memory_format=contiguous_format)
    return aten("view.default", made, [-1])


def _permuted(call: Any, input: Tensor) -> Any:
    return aten("permute.default", input, list(range(input.ndim))[::-1], compute=call.compute)


def _turned(call: Any, input: Tensor) -> Any:
    return aten("transpose.int", input, -2, -1, compute=call.compute)


def _transposed(call: Any, input: Tensor, *dims: Any, **named: Any) -> Any:
    return aten("transpose.int", input, *dims, *named.values(), compute=call.compute)


def _movedim(call: Any, input: Tensor, source: Any, destination: Any) -> Any:
    if not all(_is_dim(input, each) for each in (*_sizes(source), *_sizes(destination))):
        return NotImplemented
    sources, targets = ([each % input.ndim for each in _sizes(one)] for one in (source, destination))
    if len(sources) != len(targets):
        return NotImplemented
    if sources == targets:
        return aten("alias.default", input, compute=call.compute)
    order = [at for at in range(input.ndim) if at not in sources]
    for target, one in sorted(zip(targets, sources, strict=True)):
        order.insert(target, one)
    return aten("permute.default", input, order, compute=call.compute)


def _expand(call: Any, input: Tensor, size: Any) -> Any:
    return aten("expand.default", input, _sizes(size), compute=call.compute)


def _expand_as(call: Any, input: Tensor, other: Tensor) -> Any:
    return aten("expand.default", input, list(other.shape), compute=call.compute)


def _view_as(call: Any, input: Tensor, other: Tensor) -> Any:
    return aten("view.default", input, list(other.shape), compute=call.compute)


def _reshape_as(call: Any, input: Tensor, other: Tensor) -> Any:
    return reshaped(input, list(other.shape))


def _squeeze(call: Any, input: Tensor, dim: Any = None) -> Any:
    end = "_" if call.op.endswith("_") else ""
    form = "default" if dim is None else "dim" if isinstance(dim, int) else "dims"
    return aten(f"squeeze{end}.{form}", input, *(() if dim is None else (dim,)), compute=call.compute)


def _split(call: Any, tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    if isinstance(split_size_or_sections, int):
        return aten("split.Tensor", tensor, split_size_or_sections, dim, compute=call.compute)
    return aten("split_with_sizes.default", tensor, list(split_size_or_sections), dim, compute=call.compute)


def _chunk(call: Any, input: Tensor, chunks: int, dim: int = 0) -> Any:
    if not _is_dim(input, dim) or type(chunks) is not int or chunks < 1:
        return NotImplemented
    size = -(-input.shape[dim] // chunks)
    if not size:
        return NotImplemented
    return aten("split.Tensor", input, size, dim, compute=call.compute)


def _unbind(call: Any, input: Tensor, dim: int = 0) -> Any:
    return aten("unbind.int", input, dim, compute=call.compute)


def _narrow(call: Any, input: Tensor, dim: int, start: int, length: int) -> Any:
    if not _is_dim(input, dim) or type(start) is not int:
        return NotImplemented
    first = start if start >= 0 else start + input.shape[dim]
    return aten("slice.Tensor", input, dim, first, first + length, compute=call.compute)


def _contiguous_copy(call: Any, input: Tensor) -> Any:
    if input.is_contiguous():
        return input
    return aten("clone.default", input, memory_format=contiguous_format, compute=call.compute)


def _hstack(call: Any, tensors: Sequence[Tensor]) -> Any:
    if not tensors or any(not each.ndim for each in tensors):
        return NotImplemented
    return aten("cat.default", list(tensors), 0 if tensors[0].ndim == 1 else 1, compute=call.compute)


def _vstack(call: Any, tensors: Sequence[Tensor]) -> Any:
    if any(each.ndim < 2 for each in tensors):
        parts = [aten("unsqueeze.default", each, 0) if each.ndim == 1 else each for each in tensors]
        return aten("cat.default", parts) if all(each.ndim for each in tensors) else NotImplemented
    return aten("cat.default", list(tensors), compute=call.compute)


def _tile(call: Any, input: Tensor, dims: Any) -> Any:
    given = _sizes(dims)
    return aten("repeat.default", input, [1] * (input.ndim - len(given)) + given, compute=call.compute)


def _meshgrid(call: Any, tensors: Sequence[Tensor], indexing: str | None = None) -> Any:
    if indexing == "xy" or not isinstance(tensors, (tuple, list)) or any(each.ndim != 1 for each in tensors):
        return NotImplemented
    count, sizes = len(tensors), [each.shape[0] for each in tensors]
    made = []
    for at, each in enumerate(tensors):
        line = aten("view.default", each, [-1 if place == at else 1 for place in range(count)])
        made.append(aten("expand.default", line, sizes))
    return tuple(made)


def _type(call: Any, input: Tensor, dtype: Any) -> Any:
    return aten("view.dtype", input, dtype, compute=call.compute)


def _real(call: Any, input: Tensor) -> Any:
    if not input.is_complex():
        return input
    part = 0 if call.op == "real" else 1
    return aten("select.int", aten("view_as_real.default", input), input.ndim, part)


def _conj(call: Any, input: Tensor) -> Any:
    return aten("_conj.default", input, compute=call.compute) if input.is_complex() else input


def _diag(call: Any, input: Tensor, diagonal: int = 0) -> Any:
    if input.ndim == 1:
        return aten("diag_embed.default", input, diagonal, compute=call.compute)
    if input.ndim != 2:
        return NotImplemented
    return aten("clone.default", aten("diagonal.default", input, diagonal))


RULES: dict[str, Callable[..., Any]] = {
    "T": _permuted,
    "broadcast_to": _expand,
    "chunk": _chunk,
    "conj": _conj,
    "contiguous": _contiguous_copy,
    "diag": _diag,
    "expand": _expand,
    "expand_as": _expand_as,
    "flatten": _flatten,
    "hstack": _hstack,
    "imag": _real,
    "mT": _turned,
    "meshgrid": _meshgrid,
    "moveaxis": _movedim,
    "movedim": _movedim,
    "narrow": _narrow,
    "ravel": _ravel,
    "real": _real,
    "reshape": _reshape,
    "reshape_as": _reshape_as,
    "split": _split,
    "squeeze": _squeeze,
    "squeeze_": _squeeze,
    "swapaxes": _transposed,
    "swapdims": _transposed,
    "tile": _tile,
    "transpose": _transposed,
    "unbind": _unbind,
    "unflatten": _unflatten,
    "view": _view,
    "view_as": _view_as,
    "view_dtype": _type,
    "vstack": _vstack,
}

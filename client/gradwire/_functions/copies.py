"""Copies: views as tensors of their own (torch.view_copy), and tensors with chosen strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._functions.create import empty
from gradwire._tensor import ops
from gradwire._tensor.out import _into
from gradwire._tensor.tensor import Tensor

__all__ = [
    "alias_copy",
    "as_strided_copy",
    "as_strided_scatter",
    "detach_copy",
    "diagonal_copy",
    "empty_permuted",
    "empty_strided",
    "expand_copy",
    "narrow_copy",
    "permute_copy",
    "select_copy",
    "slice_copy",
    "split_copy",
    "split_with_sizes_copy",
    "squeeze_copy",
    "t_copy",
    "transpose_copy",
    "unbind_copy",
    "unfold_copy",
    "unsqueeze_copy",
    "view_as_complex_copy",
    "view_as_real_copy",
    "view_copy",
]


def _copying(name: str, view: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a view's name that copies: one tensor, or a tuple of them."""

    def copied(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        made = view(input, *args, **kwargs)
        if isinstance(made, Tensor):
            return made.clone() if out is None else _into(f"{name}_copy", out, made.clone(), (input,))
        if not isinstance(made, (tuple, list)):  # sparse
            return made.clone()
        copies = tuple([each.clone() for each in made])
        if out is None:
            return copies
        for target, each in zip(out, copies, strict=True):
            _into(f"{name}_copy", target, each, (input,))
        return None

    copied.__name__ = f"{name}_copy"
    copied.__doc__ = f"A copy of what `{name}` gives, with memory of its own (torch.{name}_copy)."
    return copied


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    if step <= 0:
        raise refuse("slice step must be positive")
    items: list[Any] = [slice(None)] * input.ndim
    items[dim] = slice(start, end, step)
    made: Tensor = input[tuple(items)]
    return made


def _view(input: Tensor, size: Any) -> Tensor:
    made: Tensor = input.view(size)
    return made


alias_copy = _copying("alias", lambda input: input)
as_strided_copy = _copying("as_strided", ops.as_strided)
detach_copy = _copying("detach", lambda input: input.detach())
diagonal_copy = _copying("diagonal", ops.diagonal)
expand_copy = _copying("expand", lambda input, size, *, implicit=False: input.expand(size))
narrow_copy = _copying("narrow", ops.narrow)
permute_copy = _copying("permute", ops.permute)
select_copy = _copying("select", ops.select)
slice_copy = _copying("slice", _slice)
split_copy = _copying("split", lambda input, split_size, dim=0: ops.split(input, split_size, dim))
split_with_sizes_copy = _copying("split_with_sizes", ops.split_with_sizes)
squeeze_copy = _copying("squeeze", ops.squeeze)
t_copy = _copying("t", ops.t)
transpose_copy = _copying("transpose", ops.transpose)
unbind_copy = _copying("unbind", ops.unbind)
unfold_copy = _copying("unfold", lambda input, dimension, size, step: input.unfold(dimension, size, step))
unsqueeze_copy = _copying("unsqueeze", ops.unsqueeze)
view_as_complex_copy = _copying("view_as_complex", ops.view_as_complex)
view_as_real_copy = _copying("view_as_real", ops.view_as_real)
view_copy = _copying("view", _view)


def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Copy of the input with `src` written to its as_strided view (torch.as_strided_scatter).

    Raises RuntimeError if `src` has another shape than `size`.
    """
    made = input.clone()
    view = ops.as_strided(made, size, stride, storage_offset)
    if view.shape != src.shape:
        raise refuse(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
            f"{list(view.shape)}"
        )
    view.copy_(src)
    return made


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """A tensor of unspecified values with these strides; options as of `empty` (torch.empty_strided).

    Raises RuntimeError for lists of unequal length.
    """
    if "out" in options:
        raise TypeError("empty_strided() got an unexpected keyword argument 'out'")
    requires_grad = options.pop("requires_grad", False)
    if len(size) != len(stride):
        raise refuse(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})")
    last = sum((length - 1) * step for length, step in zip(size, stride, strict=True)) + 1
    made = ops.as_strided(empty(0 if 0 in size else last, **options), size, stride)
    return made.detach().requires_grad_(requires_grad)


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """A tensor of unspecified values, dense, with its dimensions in an order of memory (torch.empty_permuted).

    physical_layout: the dimensions from the outermost to the innermost. Raises RuntimeError if it is no permutation.
    """
    count = len(size)
    if len(physical_layout) != count:
        raise refuse(
            f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {count} "
            f"is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    strides, step = [0] * count, 1
    for dim in reversed(physical_layout):
        if not 0 <= dim < count:
            raise refuse(
                f"Dimension out of range (expected to be between 0 and {count - 1}, but got {dim} at index "
                f"{list(physical_layout).index(dim)}).  NB: negative dims not currently supported; file an issue if "
                "you want it."
            )
        if strides[dim]:
            raise refuse("Duplicate dim not allowed")
        strides[dim] = step
        step *= max(size[dim], 1)
    return empty_strided(size, strides, **options)

"""Splits at positions: tensor_split, hsplit, vsplit, dsplit, split_with_sizes. Each part is a separate view."""

from __future__ import annotations

import itertools
from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.base.checks import check_count, ints, normalize_dim
from gradwire_engine.ops.shape.shape import slice_, split

Ints = Any


def _refuse(message: str) -> None:
    raise EngineError(Reason.RUNTIME, message)


@composite(outputs=("...",), views="always")
def split_with_sizes(input: Array, split_sizes: Ints, dim: int = 0) -> Any:
    """Split into parts of the given sizes, whose sum is the dimension's size (torch.split_with_sizes)."""
    return split(input, list(ints(split_sizes)), dim)


@composite(outputs=("...",), views="always")
def tensor_split(input: Array, indices_or_sections: Ints, dim: int = 0) -> Any:
    """Split into a number of parts, or at the given indices (torch.tensor_split).

    With a number of parts the first parts are longer by one where the size is not divisible.
    Raises EngineError: RUNTIME for a tensor without dimensions or for fewer than one part.
    """
    if not input.ndim:
        _refuse("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    dim = normalize_dim(dim, input.ndim)
    size = input.shape[dim]
    if not isinstance(indices_or_sections, int):
        places = list(ints(indices_or_sections))
        return tuple(slice_(input, dim, a, b, 1) for a, b in zip([0, *places], [*places, size], strict=True))
    count = indices_or_sections
    if count <= 0:
        _refuse(f"number of sections must be larger than 0, got {count}")
    check_count("tensor_split", count)
    each, longer = divmod(size, count)
    starts = [part * each + min(part, longer) for part in range(count + 1)]
    return tuple(slice_(input, dim, a, b, 1) for a, b in itertools.pairwise(starts))


@tensor_split.overload("sections", outputs=("...",))
def _(input: Array, indices_or_sections: int, dim: int = 0) -> Any: ...


@tensor_split.overload("indices", outputs=("...",))
def _(input: Array, indices_or_sections: Ints, dim: int = 0) -> Any: ...


def _split_along(name: str, input: Any, given: Any, needed: int, dim: int) -> Any:
    if input.ndim < needed:
        _refuse(
            f"torch.{name} requires a tensor with at least {needed} dimension, but got a tensor with {input.ndim} "
            "dimensions!"
        )
    if isinstance(given, int) and (not given or input.shape[dim] % given):
        _refuse(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {input.shape[dim]} "
            f"is not divisible by the split_size {given}!"
        )
    return tensor_split(input, given, dim)


@composite(outputs=("...",), views="always")
def hsplit(input: Array, indices_or_sections: Ints) -> Any:
    """Split along the second dimension, a vector along its only dimension (torch.hsplit); see tensor_split."""
    return _split_along("hsplit", input, indices_or_sections, 1, 0 if input.ndim == 1 else 1)


@composite(outputs=("...",), views="always")
def vsplit(input: Array, indices_or_sections: Ints) -> Any:
    """Split along the first dimension (torch.vsplit); see tensor_split."""
    return _split_along("vsplit", input, indices_or_sections, 2, 0)


@composite(outputs=("...",), views="always")
def dsplit(input: Array, indices_or_sections: Ints) -> Any:
    """Split along the third dimension (torch.dsplit); see tensor_split."""
    return _split_along("dsplit", input, indices_or_sections, 3, 2)


for _split_op in (hsplit, vsplit, dsplit):

    @_split_op.overload("int", outputs=("...",))
    def _(input: Array, indices_or_sections: int) -> Any: ...

    @_split_op.overload("array", outputs=("...",))
    def _(input: Array, indices_or_sections: Ints) -> Any: ...

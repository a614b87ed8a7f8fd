"""Larger tensors from smaller ones: block_diag, diagflat, cartesian_prod, combinations."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import CALL, counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import cast
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.creation import zeros as new_zeros
from gradwire_engine.ops.base.fill import zeros
from gradwire_engine.ops.index.gather import index_select
from gradwire_engine.ops.shape.join import diag_embed, meshgrid, stack
from gradwire_engine.ops.shape.shape import reshape, slice_


@composite
def diagflat(input: Array, offset: int = 0) -> Any:
    """Diagonal matrix of the elements in row-major order (torch.diagflat)."""
    return diag_embed(reshape(input, (-1,)), offset)


def _blocks_cost(tensors: list[Any]) -> Any:
    height, width = (sum(each.shape[axis] for each in tensors) for axis in (0, 1))
    return 2.0 * height * width + len(tensors) * CALL


@op(name="_block_diag", promote="same", in_place=False, node="BlockDiagBackward0", cost=counted(_blocks_cost))
def _block_diag(xp: Any, tensors: list[Array]) -> Array:
    """Block-diagonal matrix."""
    shape = (sum(block.shape[0] for block in tensors), sum(block.shape[1] for block in tensors))
    admit(shape, tensors[0].dtype)
    whole = xp.zeros(shape, tensors[0].dtype)
    row = column = 0
    for block in tensors:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole


def _blocks(g: Any, tensors_meta: Any) -> list[Any]:
    row = column = 0
    parts = []
    for meta in tensors_meta:
        height, width = meta.shape
        part = slice_(slice_(g, 0, row, row + height, 1), 1, column, column + width, 1)
        parts.append(part)
        row, column = row + height, column + width
    return parts


_block_diag.grad(tensors=_blocks).tangent("linear")


@composite
def block_diag(tensors: list[Array]) -> Any:
    """Block-diagonal matrix; vectors count as rows (torch.block_diag).

    Raises EngineError: RUNTIME for more than two dimensions.
    """
    for place, tensor in enumerate(tensors):
        if tensor.ndim > 2:
            raise EngineError(
                Reason.RUNTIME,
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                f"{place} has {tensor.ndim} dimensions",
            )
    if not tensors:
        return new_zeros((1, 0))
    # Promote before the reshape, because 0-dim tensors have a lower priority in type promotion.
    dtype = dtypes.result_type(*(getattr(tensor, "array", tensor) for tensor in tensors))
    blocks = [reshape(tensor, (1, -1)) if tensor.ndim < 2 else tensor for tensor in tensors]
    return _block_diag([block if block.dtype == dtype else cast(block, dtype) for block in blocks])


def _vector(input: Any) -> None:
    if input.ndim != 1:
        raise EngineError(Reason.RUNTIME, f"Expect a 1D vector, but got shape {list(input.shape)}")


@composite(views="maybe")
def cartesian_prod(tensors: list[Array]) -> Any:
    """Cartesian product of vectors, one tuple per row; one vector is returned unchanged (torch.cartesian_prod)."""
    for tensor in tensors:
        _vector(tensor)
    if len(tensors) == 1:
        return tensors[0]
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise EngineError(Reason.RUNTIME, "torch.meshgrid: meshgrid expects all tensors to have the same dtype")
    return stack([reshape(grid, (-1,)) for grid in meshgrid(tensors, indexing="ij")], 1)


@composite(reads_values=True)
def combinations(input: Array, r: int = 2, with_replacement: bool = False) -> Any:
    """Combinations of r elements of a vector, one per row (torch.combinations).

    Raises EngineError: RUNTIME for another number of dimensions or a negative r.
    """
    _vector(input)
    if r < 0:
        raise EngineError(Reason.RUNTIME, f"Expect a non-negative number, but got {r}")
    if r == 0:
        return zeros(input, (0,))
    count = input.shape[0]
    ways = math.comb(count + r - 1 if with_replacement else count, r)
    admit((r, ways), dtypes.int64, 8)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.fromiter(itertools.chain.from_iterable(choose(range(count), r)), np.int64, ways * r).reshape(ways, r)
    columns = [index_select(input, 0, _like(input, places[:, column])) for column in range(r)]
    return stack(columns, 1)


def _like(input: Any, places: Any) -> Any:
    array = input.array if type(input) is Tensor else input
    made = module_of(array).asarray(np.ascontiguousarray(places))
    return Tensor(made) if type(input) is Tensor else made

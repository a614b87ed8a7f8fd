"""Steps of a recurrent layer: which rows belong to each step, and in which order the steps are computed.

Rows are the sequences of all steps, one step after the other. A packed batch gives the number of rows of each step;
else all steps have as many rows as the state. Dimensions before the rows are batches of layers with separate weights,
which vmap uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.ops.base.basic import cast
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.shape.shape import reshape

Ints = tuple[int, ...]
# A step: its first row, and its number of rows.
Step = tuple[int, int]


def steps_of(given: Any, state: Any, sizes: Ints, reverse: bool) -> list[Step]:
    """The steps in the order in which they are computed. given: the gates' part that the input gives."""
    lengths = list(sizes) or [state.shape[-2]] * given.shape[-3]
    steps = list(zip(accumulate(lengths, initial=0), lengths, strict=False))
    return steps[::-1] if reverse else steps


def by_rows(value: Any, sizes: Ints, rows: int) -> Any:
    """Values of all steps as rows: (t, n, width) as (rows, width); packed values are rows already."""
    if sizes:
        return value
    shape = (*value.shape[:-3], rows, value.shape[-1])
    return reshape(value, shape) if type(value) is Tensor else value.reshape(shape)


def wide(value: Any) -> Any:
    """Convert half types to float32."""
    return cast(value, dtypes.float32) if is_half(value.dtype) else value


def rows_of(value: Array, step: Step) -> Array:
    """An array's rows of a step."""
    start, count = step
    return value[..., start : start + count, :]


def extent(steps: Sequence[Step]) -> Step:
    """The rows of successive steps, as one."""
    return min(start for start, _ in steps), sum(count for _, count in steps)

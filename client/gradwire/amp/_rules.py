"""Rules of autocast for ops whose arguments decide on the dtype: PyTorch casts the ops that it makes of them.

Here each is one op, so it computes in the dtype that its result has there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._base.promotion import promote_types

_Rule = Callable[[Sequence[Any], dtypes.dtype], dtypes.dtype | None]


def _inner(args: Sequence[Any], low: dtypes.dtype) -> dtypes.dtype | None:
    """inner(): a product unless both are vectors, or one is a number."""
    ranks = [len(each._spec.shape) for each in args[:2]]
    return low if min(ranks) and max(ranks) > 1 else None


def _matrix_power(args: Sequence[Any], low: dtypes.dtype) -> dtypes.dtype | None:
    """linalg.matrix_power(): no product for the exponents 0 and 1."""
    return None if args[1] in (0, 1) else low


def _tensordot(args: Sequence[Any], low: dtypes.dtype) -> dtypes.dtype | None:
    """tensordot(): no matrix product if all dimensions of both tensors are summed."""
    summed = args[2] if isinstance(args[2], int) else len(args[2]) // 2
    return None if all(len(each._spec.shape) == summed for each in args[:2]) else low


def _gru_layer(args: Sequence[Any], low: dtypes.dtype) -> dtypes.dtype | None:
    """A GRU's layer: its gates promote the products with the state."""
    promoted = promote_types(args[1]._spec.dtype, low)
    return None if promoted is dtypes.float64 else promoted


def _einsum(args: Sequence[Any], low: dtypes.dtype) -> dtypes.dtype | None:
    """einsum(): operands are contracted from left to right; a step that sums no common label is no product."""
    labelled = _labels(args[0], args[1])
    if labelled is None:
        return None
    operands, out = labelled
    made, dtype = operands[0], args[1][0]._spec.dtype
    for place, labels in enumerate(operands[1:], 1):
        kept = out.union(*operands[place + 1 :])
        if (made & labels) <= kept:
            dtype = promote_types(dtype, args[1][place]._spec.dtype)
        else:
            dtype = low
        made = (made | labels) & kept
    return dtype if dtype.is_floating_point and dtype is not dtypes.float64 else None


def _labels(equation: str, operands: Sequence[Any]) -> tuple[list[set[Any]], set[Any]] | None:
    """The labels of each operand's dimensions but those of size 1, and of the result; None for a malformed equation.

    The dimensions of "..." have numbers as labels, from the right.
    """
    given, arrow, out = equation.replace(" ", "").partition("->")
    parts = given.split(",")
    if len(parts) != len(operands):
        return None
    found: list[set[Any]] = []
    dots: set[Any] = set()
    for part, operand in zip(parts, operands, strict=True):
        shape = operand._spec.shape
        before, has_dots, after = part.partition("...")
        between = len(shape) - len(before) - len(after)
        if between < 0 or (between and not has_dots):
            return None
        numbers = range(between, 0, -1)
        dots.update(numbers)
        found.append({label for label, size in zip([*before, *numbers, *after], shape, strict=True) if size != 1})
    if arrow:
        return found, set(out.replace("...", "")) | (dots if "..." in out else set())
    return found, {label for label in given if given.count(label) == 1} | dots


def _pad(args: Sequence[Any], low: dtypes.dtype) -> dtypes.dtype | None:
    """pad(): float32 for values of the tensor at its border."""
    return dtypes.float32 if "reflect" in args or "replicate" in args else None


def _interpolate(args: Sequence[Any], low: dtypes.dtype) -> dtypes.dtype | None:
    """interpolate(): areas of volumes are means, which take float32."""
    return dtypes.float32 if "area" in args and len(args[0]._spec.shape) == 5 else None


_PRODUCTS: dict[str, _Rule] = {
    "einsum": _einsum,
    "inner": _inner,
    "linalg.matrix_power": _matrix_power,
    "tensordot": _tensordot,
}
#: The dtype that an op computes in, by its arguments and the region's dtype; None for the tensors' own.
RULES: dict[str, dict[str, _Rule]] = {
    "cpu": {**_PRODUCTS, "gru_layer": _gru_layer, "interpolate": _interpolate, "pad": _pad},
    "cuda": _PRODUCTS,
}
#: Ops whose parts compute in different dtypes: a product after means, or after an inverse.
IN_PARTS = frozenset(["corrcoef", "cov", "linalg.matrix_power"])

"""The numbers that describe a job of matrix products to a library: core/matrix_product.py writes them.

A part is products of matrices at equal distances. Machine code of a team reads the same numbers (core/team.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Any

#: Numbers of a job before those of its parts, and of a part. The last two of a job are the bits of float64: by what the
#: products are multiplied, and by what the result is, to which they are added. A part has two orders, N as it is or T
#: transposed; rows, columns and inner length; address and leading dimension of the factors and of the result; repeats
#: and three distances; the address of a row that is added, or 0.
PRODUCT_FACTS, PRODUCT_NUMBERS = 5, 16
_SCALES = slice(PRODUCT_FACTS - 2, PRODUCT_FACTS)
_BITS, _FLOATS = Struct("qq"), Struct("dd")


def set_scales(facts: Any, alpha: float, beta: float) -> None:
    """Let a job write alpha * product + beta * result."""
    facts[_SCALES] = array("q", _BITS.unpack(_FLOATS.pack(alpha, beta)))


def scales_of(facts: Any) -> tuple[float, float]:
    """What `set_scales` has set."""
    alpha, beta = _FLOATS.unpack(_BITS.pack(*facts[_SCALES]))
    return alpha, beta


def products_of(facts: Any, number: int) -> Iterator[tuple[Any, ...]]:
    """The products of a part: orders, rows, columns, inner length, then the matrices with their leading dimensions."""
    begin = PRODUCT_FACTS + PRODUCT_NUMBERS * number
    order, other_order, *sizes, one, one_leading, other, other_leading, result, leading, count, down, across, on, _ = (
        facts[begin : begin + PRODUCT_NUMBERS].tolist()
    )
    orders = bytes((order,)), bytes((other_order,))
    for place in range(count):
        at = one + place * down, other + place * across, result + place * on
        yield *orders, *sizes, at[0], one_leading, at[1], other_leading, at[2], leading

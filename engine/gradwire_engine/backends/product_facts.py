"""The numbers that describe a job of matrix products to a library: core/matrix_product.py writes them.

A part is products of matrices at equal distances. Machine code of a team reads the same numbers (core/team.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: Numbers of a job before those of its parts, and of a part. A part has two orders, N as it is or T transposed; rows,
#: columns and inner length; address and leading dimension of the factors and of the result; repeats and three
#: distances; the address of a row that is added, or 0.
PRODUCT_FACTS, PRODUCT_NUMBERS = 3, 16


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

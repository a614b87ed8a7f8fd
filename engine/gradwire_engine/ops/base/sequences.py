"""How a sequence of elementwise operations is written down for its loop (compile/eager/sequences.py)."""

from __future__ import annotations

#: The loop's name.
NAME = "sequence"
#: The words of an operation. An address is a base and bytes from there. count: of the result's elements, at least one.
WORDS = ("code", "one_base", "one_bytes", "other_base", "other_bytes", "out_base", "out_bytes", "count")
#: Operations on two operands, and on one array.
BINARY = ("add", "sub", "mul", "div")
UNARY = ("neg",)
#: Which operands of a binary operation are arrays of the result's size; the others are one element.
KINDS = ((True, True), (True, False), (False, True))


def code_of(name: str, is_array: bool = True, other_is_array: bool = True) -> int:
    """The number of an operation, by its operands: see `KINDS`."""
    if name in UNARY:
        return len(KINDS) * len(BINARY) + UNARY.index(name)
    return len(KINDS) * BINARY.index(name) + KINDS.index((is_array, other_is_array))

"""Normal numbers in float32 from uniform ones: the operations of ops/random/box_muller.py, with the same roundings.

A row is a block of 16 numbers: eight give the radii, eight the angles. What PyTorch rounds once, a fused multiply-add,
is computed in double precision, as NumPy does there. So all digits agree.
"""

from __future__ import annotations

import numpy as np

from gradwire_engine.compile.fusion.form import F4, F8, I4, SHIFTED, Loop
from gradwire_engine.ops.random import box_muller as given

_ROUNDER = 12582912.0  # adding it to a small number rounds to an integer, whose bits are the sum's last
_HALF = given.BLOCK // 2


class _Normal:
    """The loop under construction."""

    def __init__(self) -> None:
        self.loop = Loop()

    def number(self, value: float) -> int:
        return self.loop.const(float(np.float32(value)), F4)

    def integer(self, value: int) -> int:
        return self.loop.const(int(value), I4)

    def add(self, one: int, other: int) -> int:
        return self.loop.binary("add", one, other)

    def mul(self, one: int, other: int) -> int:
        return self.loop.binary("mul", one, other)

    def multiply_add(self, x: int, y: int, z: int) -> int:
        """x * y + z of float32 values: the product is exact in double precision."""
        x, y, z = (self.loop.cast(each, F8) for each in (x, y, z))
        return self.loop.cast(self.add(self.mul(x, y), z), F4)

    def polynomial(self, coefficients: tuple[float, ...], at: int) -> int:
        made = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            made = self.multiply_add(made, at, self.number(coefficient))
        return made

    def as_float(self, whole: int) -> int:
        """A small integer as a float."""
        bits = self.loop.bits(self.number(_ROUNDER), I4)
        return self.loop.binary("sub", self.loop.bits(self.add(bits, whole), F4), self.number(_ROUNDER))

    def truncated(self, x: int) -> int:
        """The integer part of a small number that is not negative."""
        shifted = self.add(x, self.number(_ROUNDER))
        whole = self.loop.binary("sub", self.loop.bits(shifted, I4), self.loop.bits(self.number(_ROUNDER), I4))
        above = self.loop.compare("gt", self.loop.binary("sub", shifted, self.number(_ROUNDER)), x)
        return self.loop.select(above, self.loop.binary("sub", whole, self.integer(1)), whole)

    def log(self, x: int) -> int:
        bits = self.loop.bits(x, I4)
        shifted = self.loop.binary("sub", bits, self.integer(int(given.ROOT_HALF_BITS)))
        exponent = self.loop.binary("ashr", shifted, self.integer(23))
        scaled = self.loop.binary("sub", bits, self.loop.binary("shl", exponent, self.integer(23)))
        x = self.loop.binary("sub", self.loop.bits(scaled, F4), self.number(1))
        e = self.as_float(exponent)
        square = self.mul(x, x)
        made = self.mul(self.polynomial(given.LOG, x), x)
        made = self.multiply_add(made, square, self.mul(e, self.number(given.LOG_LOW)))
        made = self.loop.binary("sub", made, self.mul(square, self.number(0.5)))
        return self.add(self.add(x, made), self.mul(e, self.number(given.LOG_HIGH)))

    def sin_cos(self, x: int) -> tuple[int, int]:
        octant = self.truncated(self.mul(x, self.number(given.OCTANT)))
        octant = self.loop.binary("and", self.add(octant, self.integer(1)), self.integer(-2))
        count = self.as_float(octant)
        for part in given.PARTS:
            x = self.add(x, self.mul(count, self.number(part)))
        x = self.multiply_add(count, self.number(given.LAST_PART), x)
        square = self.mul(x, x)
        cos = self.mul(self.polynomial(given.COS, square), square)
        cos = self.multiply_add(cos, square, self.mul(square, self.number(-0.5)))
        cos = self.add(cos, self.number(1))
        sin = self.multiply_add(self.mul(self.polynomial(given.SIN, square), square), x, x)
        return self.in_octant(sin, cos, octant)

    def in_octant(self, sin: int, cos: int, octant: int) -> tuple[int, int]:
        binary, integer = self.loop.binary, self.integer
        s, c = self.loop.bits(sin, I4), self.loop.bits(cos, I4)
        exchange = binary("and", binary("ashr", octant, integer(1)), integer(1))
        exchanged = binary("and", binary("xor", s, c), binary("sub", integer(0), exchange))
        s, c = binary("xor", s, exchanged), binary("xor", c, exchanged)
        s = binary("xor", s, binary("shl", binary("and", octant, integer(4)), integer(29)))
        turned = binary("and", self.add(octant, integer(2)), integer(4))
        c = binary("xor", c, binary("shl", turned, integer(29)))
        return self.loop.bits(s, F4), self.loop.bits(c, F4)


def loop() -> Loop:
    """The loop; reads uniform numbers from [0, 1), writes as many normal ones."""
    made = _Normal()
    uniform = made.loop.operand(F4, SHIFTED, given.BLOCK)
    first, second = made.loop.load(uniform, 0), made.loop.load(uniform, _HALF)
    radius = made.mul(made.log(made.loop.binary("sub", made.number(1), first)), made.number(-2))
    radius = made.loop.unary("sqrt", radius)
    sin, cos = made.sin_cos(made.mul(second, made.number(given.TURN)))
    normal = made.loop.operand(F4, SHIFTED, given.BLOCK)
    made.loop.store(normal, made.mul(radius, cos), 0)
    made.loop.store(normal, made.mul(radius, sin), _HALF)
    return made.loop

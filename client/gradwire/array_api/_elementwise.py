"""Functions of each element, on one array, or on two that are broadcast against each other.

If an op's special cases are PyTorch's and not the standard's, the function is composed here. Examples are the sign of
NaN and the rounding of complex numbers.
"""

from __future__ import annotations

from typing import TypeAlias

from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, _arithmetic, binary, call, cast, filled, full
from gradwire.array_api._dtypes import Scalar

Operand: TypeAlias = "Tensor | Scalar"


def abs(x: Tensor, /) -> Array:
    """The absolute value, of complex numbers the magnitude."""
    return call("abs", x)


def acos(x: Tensor, /) -> Array:
    """The inverse cosine."""
    return call("acos", x)


def acosh(x: Tensor, /) -> Array:
    """The inverse of cosh."""
    return call("acosh", x)


def add(x1: Operand, x2: Operand, /) -> Array:
    """x1 + x2."""
    return binary("add", x1, x2)


def asin(x: Tensor, /) -> Array:
    """The inverse sine."""
    return call("asin", x)


def asinh(x: Tensor, /) -> Array:
    """The inverse of sinh."""
    return call("asinh", x)


def atan(x: Tensor, /) -> Array:
    """The inverse tangent."""
    return call("atan", x)


def atan2(x1: Operand, x2: Operand, /) -> Array:
    """The angle of the point (x2, x1), from -pi to pi."""
    return binary("atan2", x1, x2, tensors=True)


def atanh(x: Tensor, /) -> Array:
    """The inverse of tanh."""
    return call("atanh", x)


def bitwise_and(x1: Operand, x2: Operand, /) -> Array:
    """x1 & x2."""
    return binary("bitwise_and", x1, x2)


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Array:
    """x1 << x2."""
    return binary("bitwise_left_shift", x1, x2)


def bitwise_invert(x: Tensor, /) -> Array:
    """~x."""
    return call("bitwise_not", x)


def bitwise_or(x1: Operand, x2: Operand, /) -> Array:
    """x1 | x2."""
    return binary("bitwise_or", x1, x2)


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Array:
    """x1 >> x2, which keeps the sign."""
    return binary("bitwise_right_shift", x1, x2)


def bitwise_xor(x1: Operand, x2: Operand, /) -> Array:
    """x1 ^ x2."""
    return binary("bitwise_xor", x1, x2)


def ceil(x: Tensor, /) -> Array:
    """The smallest whole number that is not less."""
    return call("ceil", x)


def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Array:
    """The elements, but none below `min` or above `max` (numbers or arrays). NaN where an element or a limit is NaN."""
    found = x
    for op, limit in (("maximum", min), ("minimum", max)):
        if limit is not None:
            # A limit does not change the dtype: it is brought to that of x.
            bound = limit if isinstance(limit, Tensor) else filled(limit, x)
            found = call(op, found, cast(bound, x.dtype))
    return call("clone", x) if found is x else found  # type: ignore[return-value]


def conj(x: Tensor, /) -> Array:
    """The complex conjugate; a real array itself."""
    return call("conj", x)


def copysign(x1: Operand, x2: Operand, /) -> Array:
    """The magnitude of x1 with the sign of x2."""
    return binary("copysign", x1, x2)


def cos(x: Tensor, /) -> Array:
    """The cosine."""
    return call("cos", x)


def cosh(x: Tensor, /) -> Array:
    """The hyperbolic cosine."""
    return call("cosh", x)


def divide(x1: Operand, x2: Operand, /) -> Array:
    """x1 / x2, floating also of integers."""
    return _arithmetic("div", x1, x2, False)


def equal(x1: Operand, x2: Operand, /) -> Array:
    """x1 == x2, each element."""
    return binary("eq", x1, x2)


def exp(x: Tensor, /) -> Array:
    """e to the power of it."""
    return call("exp", x)


def expm1(x: Tensor, /) -> Array:
    """exp(x) - 1, exact near zero."""
    made = call("expm1", x)
    if x.is_complex():
        # Of infinite parts PyTorch's is NaN; exp returns C's results there.
        return call("where", call("isfinite", x), made, call("sub", call("exp", x), 1))
    return made


def floor(x: Tensor, /) -> Array:
    """The largest whole number that is not greater."""
    return call("floor", x)


def floor_divide(x1: Operand, x2: Operand, /) -> Array:
    """x1 // x2, rounded down."""
    return _arithmetic("floor_divide", x1, x2, False)


def greater(x1: Operand, x2: Operand, /) -> Array:
    """x1 > x2."""
    return binary("gt", x1, x2)


def greater_equal(x1: Operand, x2: Operand, /) -> Array:
    """x1 >= x2."""
    return binary("ge", x1, x2)


def hypot(x1: Operand, x2: Operand, /) -> Array:
    """The square root of the sum of squares, without overflow on the way."""
    return binary("hypot", x1, x2, tensors=True)


def imag(x: Tensor, /) -> Array:
    """The imaginary parts; zeros for a real array."""
    return call("imag", x) if x.is_complex() else call("zeros_like", x)


def isfinite(x: Tensor, /) -> Array:
    """Whether it is neither infinite nor NaN."""
    return call("isfinite", x)


def isinf(x: Tensor, /) -> Array:
    """Whether it, or a part of it, is infinite."""
    return call("isinf", x)


def isnan(x: Tensor, /) -> Array:
    """Whether it, or a part of it, is NaN."""
    return call("isnan", x)


def less(x1: Operand, x2: Operand, /) -> Array:
    """x1 < x2."""
    return binary("lt", x1, x2)


def less_equal(x1: Operand, x2: Operand, /) -> Array:
    """x1 <= x2."""
    return binary("le", x1, x2)


def log(x: Tensor, /) -> Array:
    """The natural logarithm."""
    return call("log", x)


def log1p(x: Tensor, /) -> Array:
    """log(1 + x), exact near zero."""
    return call("log1p", x)


def log2(x: Tensor, /) -> Array:
    """The logarithm to the base 2."""
    return call("log2", x)


def log10(x: Tensor, /) -> Array:
    """The logarithm to the base 10."""
    return call("log10", x)


def logaddexp(x1: Operand, x2: Operand, /) -> Array:
    """log(exp(x1) + exp(x2)), without overflow on the way."""
    return binary("logaddexp", x1, x2, tensors=True)


def logical_and(x1: Operand, x2: Operand, /) -> Array:
    """Whether both are true."""
    return binary("logical_and", x1, x2, tensors=True)


def logical_not(x: Tensor, /) -> Array:
    """Whether it is not true."""
    return call("logical_not", x)


def logical_or(x1: Operand, x2: Operand, /) -> Array:
    """Whether one is true at least."""
    return binary("logical_or", x1, x2, tensors=True)


def logical_xor(x1: Operand, x2: Operand, /) -> Array:
    """Whether exactly one is true."""
    return binary("logical_xor", x1, x2, tensors=True)


def maximum(x1: Operand, x2: Operand, /) -> Array:
    """The greater of two; NaN if one is."""
    return binary("maximum", x1, x2, tensors=True)


def minimum(x1: Operand, x2: Operand, /) -> Array:
    """The lesser of two; NaN if one is."""
    return binary("minimum", x1, x2, tensors=True)


def multiply(x1: Operand, x2: Operand, /) -> Array:
    """x1 * x2."""
    return binary("mul", x1, x2)


def negative(x: Tensor, /) -> Array:
    """-x."""
    return call("neg", x)


def nextafter(x1: Operand, x2: Operand, /) -> Array:
    """The next representable number from x1 towards x2."""
    return binary("nextafter", x1, x2, tensors=True)


def not_equal(x1: Operand, x2: Operand, /) -> Array:
    """x1 != x2, each element."""
    return binary("ne", x1, x2)


def positive(x: Tensor, /) -> Array:
    """+x."""
    return call("positive", x)


def pow(x1: Operand, x2: Operand, /) -> Array:
    """x1 to the power of x2."""
    return _arithmetic("pow", x1, x2, False)


def real(x: Tensor, /) -> Array:
    """The real parts; a real array itself."""
    return call("real", x)


def reciprocal(x: Tensor, /) -> Array:
    """1 / x."""
    return call("reciprocal", x)


def remainder(x1: Operand, x2: Operand, /) -> Array:
    """The remainder of floor division of x1 by x2; it has the sign of x2."""
    return _arithmetic("remainder", x1, x2, False)


def round(x: Tensor, /) -> Array:
    """The nearest whole number, the even one of two; of complex numbers each part."""
    if x.is_complex():
        return call("complex", call("round", call("real", x)), call("round", call("imag", x)))
    return call("round", x)


def sign(x: Tensor, /) -> Array:
    """-1, 0 or 1; of complex numbers x / abs(x); NaN of NaN."""
    found = call("sgn", x)
    if x.is_floating_point() or x.is_complex():
        # PyTorch's sign of NaN is 0.
        return call("where", call("isnan", x), full((), float("nan"), x.dtype, x.device, x._session), found)
    return found


def signbit(x: Tensor, /) -> Array:
    """Whether the sign is set; that of -0 and of negative NaN is, too."""
    return call("signbit", x)


def sin(x: Tensor, /) -> Array:
    """The sine."""
    return call("sin", x)


def sinh(x: Tensor, /) -> Array:
    """The hyperbolic sine."""
    return call("sinh", x)


def square(x: Tensor, /) -> Array:
    """x * x."""
    return call("mul", x, x)


def sqrt(x: Tensor, /) -> Array:
    """The square root."""
    return call("sqrt", x)


def subtract(x1: Operand, x2: Operand, /) -> Array:
    """x1 - x2."""
    return binary("sub", x1, x2)


def tan(x: Tensor, /) -> Array:
    """The tangent."""
    return call("tan", x)


def tanh(x: Tensor, /) -> Array:
    """The hyperbolic tangent."""
    made = call("tanh", x)
    if x.is_complex():
        # Where the real part is infinite, the standard has a zero of the imaginary part's sign.
        real, imag = (call(part, x.detach()) for part in ("real", "imag"))
        limit = call("complex", call("sgn", real), call("copysign", call("zeros_like", imag), imag))
        return call("where", call("isinf", real), limit, made)
    return made


def trunc(x: Tensor, /) -> Array:
    """The whole number towards zero."""
    return call("trunc", x)

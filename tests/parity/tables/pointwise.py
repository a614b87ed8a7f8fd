"""Elementwise ops of one, two and three tensors."""

import math

from tests.parity.harness import (
    case,
    complexes,
    edge,
    in_dtype,
    ints,
    mask,
    of,
    once,
    pair,
    refuses,
    s,
    t,
    unary,
    whole,
)

INF, NAN = math.inf, math.nan
EDGES = (0.0, -0.0, INF, -INF, NAN)

case("abs", unary(-2, 2, *EDGES), complexes(), whole(dtypes=("int64", "int32", "uint8")))
case("neg", unary(), complexes())
case("sign", unary(-2, 2, *EDGES), whole())
case("sgn", unary(-2, 2, *EDGES), complexes())
case("positive", unary())
case("square", unary(-2, 2, *EDGES), complexes(), whole())
case("sqrt", unary(0.1, 3, 0.0, -1.0, INF, NAN), complexes(), whole())
case("rsqrt", unary(0.1, 3, 0.0, -1.0, INF), complexes(), whole())
case("reciprocal", unary(0.2, 3, 0.0, INF), complexes(), whole())
case("exp", unary(-2, 2, *EDGES), complexes(), whole())
case("exp2", unary(-2, 2, *EDGES), whole())
case("expm1", unary(-2, 2, *EDGES), whole())
case("log", unary(0.1, 3, 0.0, -1.0, INF), complexes(), whole())
case("log2", unary(0.1, 3, 0.0, -1.0), complexes(), whole())
case("log10", unary(0.1, 3, 0.0, -1.0), complexes(), whole())
case("log1p", unary(-0.9, 3, -1.0, -2.0, 0.0), whole())
case("sin", unary(-3, 3, INF, NAN, 0.0), complexes(), whole())
case("cos", unary(-3, 3, INF, NAN, 0.0), complexes(), whole())
case("tan", unary(-1, 1, NAN, 0.0), complexes(), whole())
case("asin", unary(-0.9, 0.9, 1.0, -1.0, 2.0), complexes(low=0.1), whole(dtypes=("bool",)))
case("acos", unary(-0.9, 0.9, 1.0, -1.0, 2.0), complexes(low=0.1), whole(dtypes=("bool",)))
case("atan", unary(-3, 3, *EDGES), complexes(low=0.1, high=0.5), whole())
case("sinh", unary(-2, 2, *EDGES), complexes(), whole())
case("cosh", unary(-2, 2, *EDGES), complexes(), whole())
case("tanh", unary(-2, 2, *EDGES), complexes(low=0.1, high=0.7), whole())
case("asinh", unary(-3, 3, 0.0, NAN), complexes(low=0.1, high=0.5), whole(), in_place_order=0)
case("acosh", unary(1.2, 3, 1.0, 0.5), complexes(low=0.1), whole(), in_place_order=0)
case("atanh", unary(-0.9, 0.9, 1.0, -1.0, 2.0), complexes(low=0.1, high=0.5), in_place_order=0)
case("sigmoid", unary(-4, 4, 0.0, 100.0, INF, -INF, NAN), complexes(low=0.1), whole())
case("erf", unary(-2, 2, *EDGES), whole())
case("erfc", unary(-2, 2, *EDGES), whole())
case("erfinv", unary(-0.9, 0.9, 1.0, -1.0, 2.0))
case("lgamma", unary(0.2, 4, 0.5, 1.0), whole())
case("digamma", unary(0.5, 4, 0.5, 1.0), whole())
case("polygamma", s(1, t(3, low=0.5, high=3)), s(2, t(3, low=0.5, high=3)), s(0, t(3, low=1, high=3)), half=False)
case("logit", unary(0.1, 0.9), unary(0.1, 0.9, 0.05, 0.95, eps=0.2), edge(of(0.0, 1.0, -0.5, 1.5)))
case("sinc", unary(0.3, 2), half=False)
case("nan_to_num", unary(-2, 2, *EDGES), edge(of(*EDGES), nan=1.0, posinf=2.0, neginf=-3.0))
case("deg2rad", unary(-90, 90), node=False)
case("rad2deg", unary(), node=False, tolerance=10)
case("floor", unary(-2, 2, *EDGES), whole(dtypes=("int64",)))
case("ceil", unary(-2, 2, *EDGES), whole(dtypes=("int64",)))
case("trunc", unary(-2, 2, *EDGES), whole(dtypes=("int64",)))
case("frac", unary(-2, 2))
case("round", unary(-2, 2, 0.5, 1.5, 2.5, -0.5), s(t(3), decimals=2), edge(of(1234.5, 1250.0), decimals=-2))
case("isreal", unary(-2, 2, *EDGES), whole(), s(of(1 + 0j, 1j, dtype="complex128")), order=0)
for _name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit"):
    case(_name, unary(-2, 2, *EDGES), whole())
case("logical_not", unary(-2, 2, *EDGES), whole(), in_place=False)
case("bitwise_not", whole(), half=False, in_place=False)

case("add", pair(), edge(t(3), 2), edge(t(3), 2.5), s(t(3), t(3), alpha=2.5), complexes(2), whole(2), whole(2.5))
case("sub", pair(), edge(t(3), 2), s(t(3), t(3), alpha=2.5), complexes(2), whole(2, dtypes=("int64", "uint8")))
case("mul", pair(), edge(t(3), 2), complexes(2), whole(2), whole(2.5), edge(of(*EDGES), of(1.0, 0.0, 0.0, INF, 1.0)))
case("div", pair(0.5, 2), edge(t(3), 2), edge(of(1.0, 0.0, -1.0), of(0.0, 0.0, 0.0)), complexes(2), whole(2))
case("div", edge(t(3, 4), t(4), rounding_mode="floor"), edge(t(3), 0.7, rounding_mode="trunc"), half=False)
case("div", whole(-2, dtypes=("uint8", "int64")), in_place=False)
case(
    "mul",
    edge(t(3), t(dtype="complex128")),
    edge(t(3, dtype="complex64"), t(dtype="float64")),
    half=False,
    in_place=False,
)
case("rsub", pair(), s(t(3), 2.5), s(t(3), t(3), alpha=2.0), in_place=False)
case("pow", pair(0.3, 2, -2, 2), complexes(2, low=0.3), once(of(0.0, 0.0, 0.0, -1.0), of(0.0, 2.0, -1.0, 2.0)))
case("pow", s(ints(1, -1, 2, 0, -3), ints(-1, -3, -2, 2, 3)), s(0, complexes().args[0]), in_place=False, half=False)
case(
    "pow",
    once(of(0.0, 1.5, -2.0), complexes().args[0]),
    once(of(0.0, 0.0, 1.0, dtype="complex128"), of(2.0, -1.0, 3.0)),
    s(-2.0, complexes().args[0]),
    half=False,
    in_place=False,
)
for _power in (0, 1, 2, 3, 4, 5, -1, -2, 0.5, -0.5, 2.5, 2.0, 3.0):
    case("pow", s(t(3, 4, low=0.3), _power), edge(of(0.0, -1.0, 2.0), _power), half=_power in (2, 3, 2.5))
case(
    "pow",
    s(2.5, t(3)),
    edge(0.0, of(0.0, 1.0, 2.0)),
    edge(-1.5, of(0.0, 1.0, 2.0)),
    whole(2),
    whole(2.5),
    whole(3),
    half=False,
    in_place=False,
)
case("float_power", s(t(3, low=0.3), 3), s(t(3, low=0.3), t(3)), node=False, half=False, in_place=False)
case("remainder", pair(1, 5, 1.2, 2.1), s(t(3, low=1, high=5), 1.5), edge(of(-5.0, 5.0), of(3.0, -3.0)), whole(3))
case("fmod", pair(1, 5, 1.2, 2.1), s(t(3, low=1, high=5), 1.5), edge(of(-5.0, 5.0), of(3.0, -3.0)), whole(3))
case("floor_divide", pair(1, 5, 1.2, 2.1), edge(t(3, low=-5, high=5), 1.5), whole(3), order=0)
case("atan2", pair(), edge(of(0.0, 0.0, 1.0, -1.0), of(0.0, 1.0, 0.0, 0.0)))
case("hypot", pair(), edge(of(0.0, 3.0), of(0.0, 4.0)))
case("maximum", pair(), edge(of(1.0, 1.0, NAN, 2.0), of(1.0, 2.0, 1.0, NAN)))
case("minimum", pair(), edge(of(1.0, 1.0, NAN, 2.0), of(1.0, 2.0, 1.0, NAN)))
case("fmax", pair(), edge(of(1.0, 1.0, NAN, 2.0), of(1.0, 2.0, 1.0, NAN)))
case("fmin", pair(), edge(of(1.0, 1.0, NAN, 2.0), of(1.0, 2.0, 1.0, NAN)))
case("logaddexp", pair(), half=False)
case("logaddexp2", pair(), half=False, node=False)
case("copysign", pair(), s(t(3), -1.0), edge(of(0.0, 1.0, -1.0), of(-1.0, -1.0, 0.0)))
case("heaviside", edge(of(-1.0, 0.0, 2.0), of(5.0, 6.0, 7.0)), order=0)
case(
    "xlogy",
    pair(0.2, 2),
    in_dtype("float32", t(3, low=0.2), 2.0),
    edge(of(0.0, 0.0, 1.0), of(0.0, 1.0, 0.0)),
    half=False,
)
case("lerp", s(t(3, 4), t(4), t(3, 1)), s(t(3), t(3), 0.3), s(t(3), t(3), 0.8), complexes(2, 0.3))
case("addcmul", s(t(3, 4), t(4), t(3, 1)), s(t(3), t(3), t(3), value=2.5), complexes(3))
case("addcdiv", s(t(3, 4), t(4), t(3, 1, low=0.5)), s(t(3), t(3), t(3, low=0.5), value=2.5), half=False)
case(
    "clamp",
    unary(-2, 2, min=-0.5, max=0.7),
    edge(of(-1.0, 0.0, 1.0, 2.0, NAN), 0.0, 1.0),
    s(t(3), max=0.3),
    s(t(3), -0.3),
)
case(
    "clamp",
    s(t(3, 4), t(4), t(3, 1)),
    s(t(3), t(3)),
    s(t(3), None, t(3)),
    edge(of(1.0, 2.0, 3.0), of(2.0, 2.0, 4.0), of(2.0, 3.0, 1.0)),
)
case("clamp_min", unary(min=0.3), s(t(3), t(3)), edge(of(1.0, 2.0), 1.0), whole(2.5))
case("clamp_max", unary(max=0.3), s(t(3), t(3)), edge(of(1.0, 2.0), 1.0))

MASK = mask([[True, False, True, True], [False, False, True, False], [True, True, False, False]])
case(
    "where",
    s(MASK, t(3, 4), t(4)),
    s(MASK, t(3, 4), 2.0),
    s(MASK, 1.0, t(3, 1)),
    edge(mask(True, False), of(1.0, 2.0), of(NAN, NAN)),
)
case(
    "masked_fill",
    s(t(3, 4), MASK, 2.0),
    s(t(3, 4), MASK, t()),
    s(t(4), MASK, 1),
    whole(mask(True, False, True, False), 3),
)
case("fill", s(t(3, 4), 2.0), s(t(3, 4), t()), torch="ops.aten.fill", node=False)
case("zero", s(t(3, 4)), torch="ops.aten.zero", node=False)
case(
    "copy", s(t(3, 4), t(4)), s(t(3), t()), edge(t(3), t(3, dtype="float64")), torch=lambda x, src: x.clone().copy_(src)
)

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    case(_name, pair(), edge(of(1.0, 2.0, NAN), of(1.0, 3.0, NAN)), s(t(3), 0.5), whole(2), whole(2.5), order=0)
for _name in ("logical_and", "logical_or", "logical_xor"):
    case(_name, s(mask(True, False, True), mask(True, True, False)), edge(of(0.0, 1.0, NAN), of(1.0, 0.0, 1.0)))
case("ldexp", pair(), complexes(2), edge(of(1.0, 2.0), of(-3.0, INF)), edge(t(3), ints(1, 0, -2)), in_place=False)
case("nextafter", edge(t(3), t(3)), edge(of(1.0, INF, 0.0, NAN), of(1.0, 0.0, -0.0, 1.0)), edge(t(3, 1), t(2)))
case(
    "gcd",
    s(ints(-4, 0, 12, -128, dtype="int8"), ints(6, 0, 18, 0, dtype="int8")),
    s(ints([6], [9]), ints(4, 3)),
    half=False,
    in_place=False,
)
case(
    "lcm",
    s(ints(-4, 0, 100, 7, dtype="int8"), ints(6, 0, 99, 0, dtype="int8")),
    s(ints([6], [9]), ints(4, 3)),
    half=False,
    in_place=False,
)
for _name in ("bitwise_left_shift", "bitwise_right_shift"):
    case(
        _name,
        s(ints(1, -5, 127, 3, 5, dtype="int8"), ints(-1, 100, 1, 8, 7, dtype="int8")),
        s(ints(200, 5, dtype="uint8"), ints(8, 255, dtype="uint8")),
        s(ints(-200, 5), ints(64, 63)),
        s(ints([3], [-9]), ints(1, 2, dtype="int32")),
        s(ints(-200, 5), 2),
        s(2, ints(1, 3)),
        s(mask(True), 1),
        half=False,
        in_place=False,
    )
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    case(
        _name,
        s(mask(True, False, True), mask(True, True, False)),
        s(ints(5, 6, -3), ints(3, 3, 7)),
        s(ints(5, 6), 3),
        half=False,
    )
CLOSE = (of(1.0, 2.0, NAN, INF, INF), of(1.0 + 1e-9, 2.1, NAN, INF, -INF))
case(
    "isclose",
    edge(*CLOSE),
    edge(*CLOSE, equal_nan=True),
    edge(*CLOSE, rtol=0.1),
    whole(ints(1, 2, 3, 4), dtypes=("int64",)),
    half=False,
)
case("allclose", edge(*CLOSE), edge(t(3), t(3)), half=False)
case("equal", edge(of(1.0, 2.0), of(1.0, 2.0)), edge(t(3), t(2)), edge(t(3), t(3)))

REFUSALS = [
    refuses(
        "add",
        RuntimeError,
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        t(2, 3),
        t(2, 4),
    ),
    refuses(
        "sub", RuntimeError, "Subtraction, the `-` operator, with a bool tensor is not supported", mask(True), ints(1)
    ),
    refuses(
        "sub",
        RuntimeError,
        "Subtraction, the `-` operator, with two bool tensors is not supported",
        mask(True),
        mask(True),
    ),
    refuses("sub", RuntimeError, "Subtraction, the `-` operator, with a bool tensor is not supported", t(3), True),
    refuses("lt", NotImplementedError, "not implemented for 'Complex", *complexes(2).args),
    refuses("fmax", RuntimeError, "fmax not implemented for complex tensors", *complexes(2).args),
    refuses("xlogy", NotImplementedError, "not implemented for 'Complex", *complexes(2).args),
    refuses("clamp", NotImplementedError, "clamp is not supported for complex types", *complexes().args, 0.5),
    refuses("pow", RuntimeError, "Integers to negative integer powers are not allowed", ints(1, 2), -1),
    refuses("pow", NotImplementedError, "not implemented for 'Bool'", mask(True), mask(True)),
    refuses("hypot", NotImplementedError, "not implemented for 'Long'", ints(1), ints(1)),
    refuses("neg", RuntimeError, "Negation, the `-` operator, on a bool tensor is not supported", mask(True)),
    refuses("abs_", RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation", t(3)),
    refuses("mul_", RuntimeError, "result type Float can't be cast to the desired output type Long", ints(1, 2), 2.5),
    refuses("add_", RuntimeError, "doesn't match the broadcast shape", t(3, grad=False), t(2, 3, grad=False)),
    refuses("pow", RuntimeError, "Integers to negative integer powers are not allowed", ints(1, 2), -1),
    refuses("sign", NotImplementedError, "Please use torch.sgn instead.", t(3, dtype="complex64")),
    refuses("clamp", RuntimeError, "At least one of", t(3)),
    refuses("div", RuntimeError, "rounding_mode", t(3), 2.0, rounding_mode="up"),
    refuses("remainder", RuntimeError, "ZeroDivisionError", ints(1, 2), 0),
    refuses("masked_fill", RuntimeError, "only supports boolean masks", t(3), t(3, grad=False), 1.0),
    refuses(
        "masked_fill", RuntimeError, "only supports a 0-dimensional value tensor", t(3), mask(True, False, True), t(3)
    ),
    refuses("where", RuntimeError, "expected condition to be a boolean tensor", t(3, grad=False), t(3), t(3)),
    refuses("where", RuntimeError, "must match", mask(True, False), t(3), t(3)),
    refuses("bitwise_and", NotImplementedError, "not implemented for 'Float'", t(3, grad=False), t(3, grad=False)),
    refuses("addcdiv", RuntimeError, "Integer division with addcdiv is no longer supported", ints(1), ints(1), ints(1)),
    refuses("isclose", RuntimeError, "did not match", t(3), ints(1, 2, 3)),
    refuses("floor_divide", NotImplementedError, "not implemented for 'ComplexFloat'", of(1.0, dtype="complex64"), 2.0),
]

# Where formulas part at edges, for complex numbers and moduli below 0.
case("polar", edge(of(-1.0, 2.0, -0.5), of(0.3, -0.4, 2.0)), half=False, node=False)
case("sinc", complexes(), node=False)
case("lgamma", edge(of(-INF, INF)), order=0)
case("frexp", unary(), in_place=False)

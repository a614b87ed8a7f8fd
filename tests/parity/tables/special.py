"""Special functions: Bessel, the normal distribution, incomplete and multivariate gamma, zeta."""

from tests.parity.harness import case, edge, of, once, pair, refuses, s, t, unary, whole

INF, NAN = float("inf"), float("nan")
case("i0", unary(-3, 3), [once(of(0.0, INF, NAN))], whole())
for _name in ("i1", "i0e", "i1e"):
    case(f"special.{_name}", unary(-3, 3), [once(of(0.0, 1.0, -2.0))], whole(), half=_name == "i0e")
case("special.ndtr", unary(-3, 3, 0.0, INF, -INF, NAN), whole(), node=False)
case("special.ndtri", unary(0.05, 0.95), [once(of(0.0, 1.0, 0.5))], whole(), half=False)
case("special.erfcx", unary(-3, 3), [once(of(0.0, INF))], whole(), half=False)
case("special.log_ndtr", unary(-3, 3, 0.0, -40.0), whole(), tolerance=10, half=False)
case("special.entr", unary(0.1, 3), [once(of(0.0, 1.0, -1.0, NAN))], whole())
case("special.xlog1py", pair(0.2, 2), s(t(3, low=0.5), 1.5), s(2.0, t(3, low=0.1)), [edge(of(0.0, 0.0), of(2.0, NAN))])
SECOND = {"low": 0.5, "high": 4.0}
FIXED = {"low": 1.5, "high": 4.0, "grad": False}
case("special.zeta", s(t(3, 4, **FIXED), t(3, 4, **SECOND)), s(t(3, **FIXED), 2.0), s(2.5, t(3, **SECOND)), half=False)
for _name in ("igamma", "igammac"):
    case(
        _name,
        s(t(3, 4, **FIXED), t(3, 4, **SECOND)),
        s(t(3, 1, **FIXED), t(4, **SECOND)),
        s(t(0, 3, **FIXED), t(1, 3, **SECOND)),
        in_place=False,
    )
case("mvlgamma", s(t(3, 4, low=2.0, high=5.0), 3), s(t(low=2.0, high=5.0), 1), s(t(3, low=3.5, high=5.0), p=4))

REFUSALS = [
    *[
        refuses(f"special.{name}", NotImplementedError, f'"{name}_cpu" not implemented for', of(0.5, dtype=dtype))
        for name in ("ndtri", "erfcx", "log_ndtr")
        for dtype in ("float16", "complex64")
    ],
    refuses("i0", NotImplementedError, "not implemented for 'ComplexFloat'", of(0.5, dtype="complex64")),
    refuses("mvlgamma", RuntimeError, "p has to be greater than or equal to 1", t(3), 0),
    refuses(
        "igamma", NotImplementedError, "not implemented for 'Long'", of(1, 2, dtype="int64"), of(1, 2, dtype="int64")
    ),
    refuses("igamma", NotImplementedError, '"igamma_cpu" not implemented for', of(1.0, dtype="complex64"), of(2.0)),
    refuses(
        "igammac", NotImplementedError, '"igammac_cpu" not implemented for', of(1, dtype="int64"), of(2, dtype="int64")
    ),
]

"""Special functions: Bessel, the normal distribution, incomplete and multivariate gamma, zeta, polynomials."""

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
# PyTorch has no derivatives of these. Its Bessel functions of the first kind have about seven digits, Airy's five.
BESSEL = [
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
]
BESSEL += [
    "modified_bessel_k1",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "spherical_bessel_j0",
    "airy_ai",
]
_BETWEEN = {"low": 0.1, "high": 9.0, "grad": False}
for _name in BESSEL:
    case(
        f"special.{_name}",
        s(t(3, 4, **_BETWEEN)),
        s(t(**_BETWEEN)),
        s(t(0, 3, **_BETWEEN)),
        s(t(4, 3, layout="F", **_BETWEEN)),
        s(of(0.0, -0.0, INF, -INF, NAN, -1.0, 30.0)),
        whole(),
        order=0,
        node=False,
        half=False,
        tolerance=1e4,
    )
CHEBYSHEV = [f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"]
POLYNOMIALS = [
    *CHEBYSHEV, "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"
]  # fmt: skip
DEGREES = of([-1.0], [0.0], [1.0], [2.7], [5.0], [12.0])
for _name in POLYNOMIALS:
    case(
        f"special.{_name}",
        s(t(8, low=-1.5, high=1.5, grad=False), DEGREES),
        s(of(0.0, 1.0, -1.0, 2.0, INF), of([0.0], [1.0])),
        s(of(1.0, -1.0, 0.0, 0.5), of([3.0], [4.0], [9.0], [10.0])),
        s(t(0, 3, grad=False), 2.0),
        s(2.0, of(3.0)),
        s(of(1, 2, dtype="int64"), of(2, 3, dtype="int64")),
        order=0,
        node=False,
        half=False,
        tolerance=100,
    )

REFUSALS = [
    *[
        refuses(f"special.{name}", NotImplementedError, f'"{name}_cpu" not implemented for', of(0.5, dtype=dtype))
        for name in ("ndtri", "erfcx", "log_ndtr", *BESSEL)
        for dtype in ("float16", "complex64")
    ],
    *[
        refuses(
            f"special.{name}", NotImplementedError, f'"{name}_cpu" not implemented for', of(0.5, dtype="float16"), 2.0
        )
        for name in POLYNOMIALS
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

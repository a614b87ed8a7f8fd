"""Histograms, covariances, distances, clipped norms, areas under curves."""

from tests.parity.harness import case, edge, in_dtype, ints, of, refuses, s, t

NAN, INF = float("nan"), float("inf")
FIXED = t(4, low=0.5, high=2, grad=False)
case(
    "histc",
    s(t(5, 4)),
    s(t(5, 4), 7),
    s(t(9), bins=4, min=-1, max=1),
    s(t(0), 3),
    edge(of(1.0, 1.0), 3),
    edge(of(1.0, NAN, 4.0), 3, 0, 5),
    order=0,
)
case("cov", s(t(3, 4)), s(t(4)), s(t()), s(t(1, 4)), s(t(3, 4), correction=0), node=False, half=False)
case(
    "cov",
    s(t(3, 4), fweights=ints(1, 2, 0, 3)),
    s(t(3, 4), aweights=FIXED),
    s(t(3, 4), correction=0, aweights=FIXED),
    s(t(3, 4), fweights=ints(1, 2, 0, 3), aweights=FIXED),
    s(t(4), aweights=FIXED),
    in_dtype("float32", t(2, 3, dtype="int64", low=0, high=9)),
    in_dtype("float64", t(2, 3, dtype="complex128")),
    edge(t(2, 0)),
    edge(t(0)),
    edge(t(2, 3), correction=5),
    node=False,
    half=False,
)
case(
    "corrcoef",
    s(t(3, 4)),
    s(t(1, 4)),
    s(t(4)),
    in_dtype("float64", t(2, 3, dtype="complex128")),
    node=False,
    half=False,
)
case("dist", s(t(3, 4), t(3, 4)), s(t(3, 4), t(4), 3), s(t(3), t(3), p=1), s(t(3), t(3), INF), node=False)
case("dist", s(t(3), t(3), 0), edge(t(3), t(3, dtype="float32")), order=0, node=False, half=False)
case(
    "renorm",
    s(t(3, 4), 2, 0, 1.0),
    s(t(3, 4), 1, 1, 0.5),
    s(t(2, 3, 4), 3, -1, 1),
    s(t(2, 3), 2, 0, 100.0),
    s(t(2, 0), 2, 0, 1.0),
    s(t(2, 3), INF, 0, 0.5),
    node=False,
)
for _name in ("trapezoid", "cumulative_trapezoid"):
    case(
        _name,
        s(t(3, 4)),
        s(t(3, 4), dim=0),
        s(t(3, 4), dx=0.5),
        s(t(3, 4), t(4)),
        s(t(3, 4), t(3), dim=0),
        s(t(2, 3, 4), t(3, 4)),
        s(t(3, 4), t(3, 4), dim=0),
        s(t(0)),
        s(t(1)),
        in_dtype("float32", ints(1, 2, 3), dx=2),
        in_dtype("float32", ints(1, 2, 3), ints(1, 2, 4)),
        in_dtype("float32", ints([], dtype="int64")),
        node=False,
        half=False,
    )

REFUSALS = [
    refuses("histc", RuntimeError, "max must be larger than min", t(3), 3, 2, 1),
    refuses("histc", RuntimeError, "is not finite", of(1.0, INF), 3),
    refuses("histc", NotImplementedError, "not implemented for 'Long'", ints(1, 2)),
    refuses("histc", RuntimeError, "bins must be > 0", t(3), 0),
    refuses("cov", RuntimeError, "two or fewer dimensions", t(2, 2, 2)),
    refuses("cov", RuntimeError, "fweights cannot be negative", t(2, 2), fweights=ints(1, -1)),
    refuses("cov", RuntimeError, "weights sum to zero", t(2, 2), fweights=ints(0, 0)),
    refuses("cov", RuntimeError, "aweights cannot be negative", t(2, 2), aweights=of(float("nan"), 1.0)),
    refuses("cov", RuntimeError, "integral", t(2, 2), fweights=t(2, grad=False)),
    refuses("cov", RuntimeError, "same numel", t(2, 3), aweights=t(2, grad=False, low=1)),
    refuses("cov", RuntimeError, "bool dtype is not supported", of(True, False, dtype="bool")),
    refuses("corrcoef", RuntimeError, "two or fewer dimensions", t(2, 2, 2)),
    refuses("renorm", RuntimeError, "needs at least 2 dimensions", t(3), 2, 0, 1),
    refuses("renorm", RuntimeError, "non-positive-norm not supported", t(3, 3), 0, 0, 1),
    refuses("renorm", RuntimeError, "expected maxnorm to be >= 0", t(3, 3), 2, 0, -1),
    refuses("trapezoid", RuntimeError, "one `x` value for each sample point", t(3), t(4)),
    refuses("trapezoid", RuntimeError, "bool is not supported", of(True, False, dtype="bool")),
    refuses("trapezoid", IndexError, "", t()),
]

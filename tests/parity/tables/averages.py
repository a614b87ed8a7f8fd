"""Means, medians, modes, quantiles and runs."""

import math

from tests.parity.harness import D, case, edge, in_dtype, ints, mask, of, refuses, s, t

NAN = math.nan
HOLES = of([[1.0, 2.0, NAN], [3.0, NAN, NAN], [5.0, 4.0, 6.0]])
TIED = of([[1.0, 2.0, 2.0, 1.0], [3.0, 3.0, 4.0, 4.0]])
NOTHING = of([[NAN, NAN]])

case(
    "nanmean",
    [s(t(3, 4)), s(t(3, 4), 1), s(t(3, 4), (0, 1), True), s(t())],
    [edge(HOLES), edge(HOLES, 1), edge(NOTHING), edge(t(0))],
    in_dtype("float32", t(3), dtype=D("float64")),
    node=False,
)

case(
    "nanmedian",
    [edge(t(3, 5)), edge(t(3, 4), 1), edge(t(3, 4), 0, True), edge(t()), edge(t(), 0), edge(HOLES), edge(HOLES, 1)],
    [edge(NOTHING), edge(t(0)), in_dtype("float32", ints(3, 1, 2)), in_dtype("float32", ints(3, 1, 2), 0)],
)

case(
    "mode",
    [edge(TIED), edge(TIED, 0, True), edge(t()), edge(t(3, 4)), edge(of(NAN, NAN, 1.0, 1.0)), edge(of(3.0, NAN, 2.0))],
    [in_dtype("float32", ints(1, 2, 2, 1, 5, 5, 5)), in_dtype("float32", mask(True, False)), edge(t(0, 2))],
)

for name in ("quantile", "nanquantile"):
    case(
        name,
        [edge(HOLES, 0.4), edge(HOLES, 0.4, 1, True), edge(HOLES, of(0.2, 0.6, grad=False), 0), edge(NOTHING, 0.5)],
        [edge(HOLES, 0.4, 1, interpolation=way) for way in ("lower", "higher", "midpoint", "nearest")],
        [edge(t(5), of(0.3, 0.9)), edge(t(2, 3, 4), of(0.3, grad=False), 1, True), edge(t(), 0.5)],
        node=False,
        half=False,
    )

case("unique_consecutive", s(ints([1, 1], [1, 2]), return_inverse=True, return_counts=True), order=0)

REFUSALS = [
    refuses("nanmean", RuntimeError, "expected input to have floating point or complex dtype", ints(1, 2)),
    refuses("nanmedian", NotImplementedError, "\"median_cpu\" not implemented for 'Bool'", mask(True)),
    refuses("nanmedian", IndexError, "to have non-zero size", t(2, 0), 1),
    refuses("mode", IndexError, "Expected reduction dim 0 to have non-zero size", t(0)),
    refuses("unique_consecutive", NotImplementedError, "not implemented for 'ComplexDouble'", t(2, dtype="complex128")),
]

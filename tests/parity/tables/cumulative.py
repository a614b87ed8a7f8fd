"""Running extremes, running logarithms of sums, differences; sums that skip nan; sets and bins."""

import math

from tests.parity.harness import case, edge, in_dtype, ints, mask, of, refuses, s, t, whole

INF, NAN = math.inf, math.nan
RUNS = [s(t(3, 4), 1), s(t(3, 4), 0), s(t(2, 3, 4), -2), s(t(), 0), s(t(0, 3), 1), s(t(4, 3, layout="F"), 0)]
for name in ("cummax", "cummin"):
    case(name, RUNS, edge(of(1.0, 2.0, 2.0, 0.0, 2.0), 0), edge(of(1.0, NAN, 3.0, NAN, -INF), 0), whole(0))
case(
    "logcumsumexp",
    RUNS,
    s(of(300.0, -300.0, 2.0, 299.0), 0),
    edge(of(-INF, -INF, 1.0, 2.0, grad=False), 0),
    node="LogcumsumexpBackward0",
)
case(
    "diff",
    s(t(3, 4)),
    s(t(3, 4), 2, 0),
    s(t(3, 4), dim=0, prepend=t(1, 4), append=t(2, 4)),
    s(t(5), n=7),
    s(t(5), n=0),
    in_dtype("float32", mask(True, False, True)),
    in_dtype("float32", ints(1, 4, 9)),
    node=False,
)
case(
    "nansum",
    s(t(3, 4)),
    s(t(3, 4), 1),
    s(t(3, 4), (0, 1), True),
    edge(of(1.0, NAN, 3.0), 0),
    edge(of(NAN, NAN)),
    whole(),
)

FEW = ints([3, 1, 3], [2, 1, 1])
case(
    "unique",
    edge(FEW),
    edge(FEW, True, True, True),
    edge(of(2.0, NAN, -1.0, NAN, 2.0, grad=False), return_counts=True),
    order=0,
)
case("unique", edge(ints([1, 2], [0, 5], [1, 2]), return_inverse=True, return_counts=True, dim=0), order=0)
case("unique", edge(ints([1, 1, 0], [2, 2, 4]), dim=1), edge(mask(True, False, True)), order=0)
case("isin", edge(FEW, ints(1, 7)), edge(FEW, ints(1, 7), invert=True), edge(of(1.0, 2.5), 2.5), edge(2, FEW), order=0)
case(
    "bincount",
    edge(ints(1, 1, 4)),
    edge(ints(1, 1, 4), minlength=7),
    edge(ints(0, 2, 2), t(3, grad=False)),
    edge(ints(dtype="int32")),
    order=0,
    half=False,
)
LINE = of(-1.0, 0.0, 0.0, 2.0, grad=False)
case(
    "searchsorted",
    edge(LINE, of([0.0, 5.0], [-3.0, 1.0], grad=False)),
    edge(LINE, of(0.0, grad=False), right=True),
    edge(LINE, of(0.0, 2.0, grad=False), side="right", out_int32=True),
    edge(LINE, 1.5),
    edge(LINE, ints(1, 2)),
    edge(of([0.0, 1.0], [2.0, 3.0], grad=False), of([0.5, 2.0, 0.0], [0.0, 2.5, 3.0], grad=False)),
    edge(of(2.0, 0.0, 1.0, grad=False), of(0.5, 1.5, grad=False), sorter=ints(1, 2, 0)),
    order=0,
)
case("bucketize", edge(of([0.0, 5.0], [-3.0, 1.0], grad=False), LINE), edge(0.0, LINE, right=True), order=0)

REFUSALS = [
    refuses("cummax", IndexError, "Dimension out of range", t(3), 1),
    refuses("logcumsumexp", NotImplementedError, "not implemented for 'Long'", ints(1, 2), 0),
    refuses("diff", RuntimeError, "at least one-dimensional", t()),
    refuses("bincount", RuntimeError, "1-d non-negative integral inputs", ints(-1, 2)),
    refuses("bincount", RuntimeError, "same length as input", ints(1, 2), t(3, grad=False)),
    refuses("searchsorted", RuntimeError, "side can only be 'left' or 'right'", LINE, 1.0, side="middle"),
]

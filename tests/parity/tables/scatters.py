"""Copies with a part replaced, and scatter_reduce."""

from tests.parity.harness import case, edge, ints, mask, of, refuses, s, t

X = t(3, 4)
case("select_scatter", s(X, t(4), 0, 1), s(X, t(3), -1, -2))
case("slice_scatter", s(X, t(2, 4), 0, 1), s(X, t(3, 2), 1, 0, 4, 2), s(X, t(3, 4)), s(X, t(3, 1), 1, -1))
case("diagonal_scatter", s(X, t(3)), s(X, t(2), 2), s(X, t(2), -1), s(t(2, 3, 3), t(2, 3), 0, 2, 1))
HOLDS = mask([True, False, True, True], [False, False, True, False], [True, True, False, False])
case(
    "masked_scatter",
    s(X, HOLDS, t(3, 4)),
    s(X, HOLDS, t(6)),
    s(X, mask(True, False, True, False), t(7)),
    s(X, mask(False, False, False, False), t(1)),
)
PLACES = ints([0, 1, 0, 2], [0, 1, 1, 2])
for mode in ("sum", "mean", "prod", "amax", "amin"):
    for included in (True, False):
        case(
            "scatter_reduce",
            s(X, 0, PLACES, t(2, 4), mode, include_self=included),
            s(X, 1, ints([0, 0], [3, 1]), t(2, 2), mode, include_self=included),
            s(t(5), 0, ints(1, 1, 4), t(3), mode, include_self=included),
            edge(ints(5, 7, 9), 0, ints(0, 0, 2), ints(2, 8, 4), mode, include_self=included),
            tolerance=3.0,
        )
TIED = of(2.0, 3.0, 1.0)
for mode in ("amax", "amin"):
    case("scatter_reduce", edge(TIED, 0, ints(0, 0, 1), of(2.0, 2.0, 3.0), mode), half=False)
case(
    "scatter_reduce",
    edge(of(2.0, 0.0, 0.0, 4.0), 0, ints(0, 0, 1, 2, 3), of(0.0, 3.0, 5.0, 0.0, 0.0), "prod"),
    order=1,
    half=False,
)

REFUSALS = [
    refuses("select_scatter", RuntimeError, "expected src to have a size equal to the slice of self", X, t(3), 0, 1),
    refuses("slice_scatter", RuntimeError, "src size = [2, 4], slice size = [3, 4]", X, t(2, 4)),
    refuses("masked_scatter", RuntimeError, "Number of elements of source < number of ones in mask", X, HOLDS, t(5)),
    refuses("masked_scatter", RuntimeError, "only supports boolean masks", X, t(3, 4), t(3, 4)),
    refuses("scatter_reduce", RuntimeError, "reduce argument must be either sum, prod", X, 0, PLACES, X, "median"),
    refuses(
        "scatter_reduce", RuntimeError, "Expected self.dtype to be equal to src.dtype", X, 0, PLACES, PLACES, "sum"
    ),
]

"""More products of vectors and matrices, distances, the matrix exponential."""

from tests.parity.harness import T, case, complexes, in_dtype, ints, refuses, s, t

C = "complex128"


def c(*shape: int) -> T:
    """A complex tensor."""
    return t(*shape, dtype=C)


case(
    "linalg.cross",
    s(t(3), t(3)),
    s(t(4, 3), t(4, 3)),
    s(t(4, 3), t(1, 3)),
    s(t(3, 4), t(3, 4), dim=0),
    in_dtype("float64", c(2, 3), c(2, 3)),
    half=False,
)
case("cross", s(t(3), t(3)), s(t(2, 3), t(2, 3)), s(t(3, 3), t(3, 3), 1), half=False, node=False)
case("vdot", s(t(3), t(3)), s(t(0), t(0)), complexes(2), node=False)
case(
    "inner",
    s(t(3), t(3)),
    s(t(2, 3), t(4, 3)),
    s(t(2, 3), t()),
    s(t(2, 2, 3), t(3)),
    in_dtype("float64", ints(1, 2), ints(3, 4)),
    node=False,
    half=False,
)
case(
    "addmv",
    s(t(2), t(2, 3), t(3)),
    s(t(1), t(2, 3), t(3), beta=0.5, alpha=2.0),
    s(t(), t(2, 3), t(3), beta=0),
    in_dtype("float64", c(2), c(2, 3), c(3), alpha=2j),
    node=False,
    half=False,
)
case(
    "addr",
    s(t(2, 3), t(2), t(3)),
    s(t(3), t(2), t(3), beta=0.5, alpha=2.0),
    s(t(2, 3), t(2), t(3), beta=0),
    in_dtype("float64", ints([1, 2]), ints(1, 2), ints(3, 4), beta=2, alpha=3),
    node=False,
    half=False,
)
case(
    "addbmm",
    s(t(2, 4), t(5, 2, 3), t(5, 3, 4)),
    s(t(4), t(5, 2, 3), t(5, 3, 4), beta=0.5, alpha=2.0),
    node=False,
    half=False,
)
case(
    "linalg.multi_dot",
    s([t(2, 3), t(3, 4)]),
    s([t(10, 2), t(2, 8), t(8, 3), t(3, 5)]),
    s([t(3), t(3, 4), t(4)]),
    s([t(3), t(3, 4), t(4, 2)]),
    s([t(2, 3), t(3, 4), t(4)]),
    in_dtype("float64", [c(2, 3), c(3, 4)]),
    node=False,
    half=False,
)
case(
    "cdist",
    [s(t(4, 3), t(5, 3), p=p) for p in (1.0, 2.0, 3.0, 1.5, float("inf"))],
    s(t(2, 4, 3), t(5, 3)),
    s(t(0, 3), t(5, 3)),
    s(t(30, 3), t(5, 3)),
    s(t(2, 3, 4), t(27, 4)),
    s(t(30, 3), t(5, 3), compute_mode="donot_use_mm_for_euclid_dist"),
    s(t(4, 3), t(5, 3), compute_mode="use_mm_for_euclid_dist"),
    node=False,
    half=False,
    order=1,
)
for name in ("linalg.matrix_exp", "matrix_exp"):
    case(
        name,
        s(t(3, 3)),
        s(t(2, 3, 3)),
        s(t(1, 1)),
        s(t(0, 0)),
        in_dtype("float64", c(3, 3)),
        node=False,
        half=False,
        tolerance=10.0,
    )

REFUSALS = [
    refuses("linalg.cross", RuntimeError, "inputs dimension -1 must have length 3. Got 2 and 2", t(2), t(2)),
    refuses("linalg.cross", RuntimeError, "inputs must have the same number of dimensions", t(3), t(2, 3)),
    refuses("cross", RuntimeError, "no dimension of size 3 in input", t(2, 2), t(2, 2)),
    refuses("vdot", RuntimeError, "inconsistent tensor size, expected tensor [2] and src [3]", t(2), t(3)),
    refuses("inner", RuntimeError, "the last dimension must match on both input tensors", t(2), t(3)),
    refuses("addmv", RuntimeError, "size mismatch, got input (2), mat (2x3), vec (2)", t(2), t(2, 3), t(2)),
    refuses("addr", RuntimeError, "Expected 1-D argument vec1, but got 2-D", t(2), t(2, 3), t(2)),
    refuses("addr", RuntimeError, "must match the existing size (2)", t(2), t(3), t(3)),
    refuses("linalg.multi_dot", RuntimeError, "expected at least 2 tensors but got 1", [t(2, 2)]),
    refuses("linalg.multi_dot", RuntimeError, "tensor 1 must be 2D but got 1D", [t(2, 2), t(2), t(2, 2)]),
    refuses("linalg.multi_dot", RuntimeError, "tensors 0 and 1 with shapes [2, 2] and [3, 2]", [t(2, 2), t(3, 2)]),
    refuses("cdist", RuntimeError, "must have the same number of columns. X1: 3 X2: 4", t(2, 3), t(2, 4)),
    refuses("cdist", RuntimeError, "only supports non-negative p values", t(2, 3), t(2, 3), p=-1.0),
    refuses("cdist", RuntimeError, "cdist only supports at least 2D tensors, X1 got: 1D", t(3), t(2, 3)),
    refuses("matrix_exp", RuntimeError, "must be batches of square matrices", t(2, 3)),
    refuses("addmv", RuntimeError, "size mismatch, got input (3), mat (2x3), vec (3)", t(3), t(2, 3), t(3)),
    refuses("addmv", RuntimeError, "size mismatch, got input (2), mat (2x3), vec (2)", t(2), t(2, 3), t(2)),
    refuses("addmv", RuntimeError, "vector + matrix @ vector expected, got 2, 2, 1", t(2, 2), t(2, 3), t(3)),
    refuses("addmv", RuntimeError, "vector + matrix @ vector expected, got 1, 2, 2", t(2), t(2, 3), t(3, 1)),
    refuses(
        "addmv",
        RuntimeError,
        "addmv input tensors must have the same dtype, but got Double, Float, and Float",
        t(2, dtype="float64"),
        t(2, 3),
        t(3),
    ),
]

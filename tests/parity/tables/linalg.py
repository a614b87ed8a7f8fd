"""Linear algebra."""

from tests.parity.harness import T, case, edge, in_dtype, once, refuses, s, t

C = "complex128"


def c(*shape: int) -> T:
    """A complex tensor."""
    return t(*shape, dtype=C)


def square(*shapes: tuple[int, ...]) -> list:
    """A sample for each shape, and a complex one."""
    return [*(s(t(*shape)) for shape in shapes), in_dtype("float64", c(2, 3, 3))]


SQUARE = square((3, 3), (2, 3, 3), (1, 1), (0, 0), (0, 2, 2), (2, 2, 2, 2))
PLAIN = {"half": False, "tolerance": 100.0}

case("linalg.inv", SQUARE, **PLAIN)
case("linalg.pinv", s(t(4, 3)), s(t(2, 3, 4)), s(t(3, 3)), in_dtype("float64", c(2, 3)), node=False, **PLAIN)
for name in ("linalg.det", "det"):
    case(name, SQUARE, **PLAIN)
case("linalg.det", once(T((3, 3), values=[[1.0, 2, 3], [2, 4, 6], [1, 0, 1]])), **PLAIN)
for name in ("linalg.slogdet", "slogdet"):
    case(name, SQUARE, **PLAIN)
case("logdet", square((3, 3), (2, 3, 3), (4, 4), (0, 0)), node=False, **PLAIN)
case(
    "linalg.solve",
    s(t(3, 3), t(3, 2)),
    s(t(3, 3), t(3)),
    s(t(2, 3, 3), t(2, 3)),
    s(t(2, 3, 3), t(3)),
    s(t(2, 3, 3), t(3, 2)),
    s(t(2, 3, 3), t(4, 1, 3, 2)),
    s(t(3, 3), t(2, 3), left=False),
    s(t(2, 3, 3), t(2, 2, 3), left=False),
    s(t(3, 3), t(2, 3, 2)),
    in_dtype("float64", c(2, 3, 3), c(2, 3, 2)),
    in_dtype("float64", c(3, 3), c(3)),
    node=False,
    **PLAIN,
)
case(
    "linalg.solve_triangular",
    [s(t(3, 3), t(3, 2), upper=upper) for upper in (True, False)],
    [s(t(2, 3, 3), t(2, 4, 3), upper=upper, left=False) for upper in (True, False)],
    [s(t(2, 3, 3), t(3, 2), upper=upper, unitriangular=True) for upper in (True, False)],
    s(t(3, 3), t(2, 3, 2), upper=True),
    s(t(0, 0), t(0, 2), upper=True),
    in_dtype("float64", c(2, 3, 3), c(2, 3, 2), upper=False),
    in_dtype("float64", c(3, 3), c(2, 3), upper=True, left=False),
    node=False,
    **PLAIN,
)
# Of the factor PyTorch's gradient has both halves, though only one is read.
case("cholesky_solve", edge(t(3, 2), t(3, 3)), edge(t(2, 3, 2), t(2, 3, 3), True), node=False, **PLAIN)
case("linalg.matrix_power", [s(t(2, 3, 3), n) for n in (1, 2, 3, 5, -1, -2)], edge(t(3, 3), 0), node=False, **PLAIN)
case("inverse", s(t(3, 3)), **PLAIN)

REFUSALS = [
    refuses("linalg.inv", RuntimeError, "must be batches of square matrices, but they are 2 by 3 matrices", t(2, 3)),
    refuses("linalg.inv", RuntimeError, "must have at least 2 dimensions", t(3)),
    refuses("linalg.inv", RuntimeError, "Expected a floating point or complex", t(2, 2, dtype="int64", grad=False)),
    refuses("linalg.inv", RuntimeError, "Low precision dtypes not supported. Got Half", t(2, 2, dtype="float16")),
    refuses("linalg.det", RuntimeError, "must be batches of square matrices", t(2, 3)),
    refuses("linalg.solve", RuntimeError, "must be batches of square matrices", t(2, 3), t(2, 3)),
    refuses("linalg.solve", RuntimeError, "Incompatible shapes of A and B for the equation AX = B", t(3, 3), t(2, 3)),
    refuses("linalg.solve", RuntimeError, "Expected A and B to have the same dtype", t(3, 3), t(3, 2, dtype="float64")),
    refuses("linalg.solve_triangular", RuntimeError, "Incompatible shapes of A and B", t(3, 3), t(2, 3), upper=True),
]

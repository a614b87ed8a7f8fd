"""Factors, norms and systems of matrices beyond the first."""

import math

from tests.parity.harness import D, Sample, T, case, edge, in_dtype, ints, once, refuses, s, t

C = "complex128"
PLAIN = {"half": False, "tolerance": 300.0}
RANK_ONE = [[1.0, 2.0], [2.0, 4.0]]
FACTORED = [[4.0, 1.0, 2.0], [0.5, 3.0, 1.0], [0.25, -0.5, 2.0]]
PIVOTS = ints(3, 3, 3, dtype="int32")
LOWER = [[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [-1.0, 0.25, 1.0]]


def c(*shape: int) -> T:
    """A complex tensor."""
    return t(*shape, dtype=C)


SHAPES = ((3, 3), (4, 2), (2, 4), (2, 3, 3), (2, 3, 2), (1, 1), (0, 2), (2, 0, 3))
case("linalg.lu", [s(t(*shape)) for shape in SHAPES], [in_dtype("float64", c(*n)) for n in ((3, 3), (2, 3))], **PLAIN)
case(
    "linalg.lu_factor",
    [s(t(*shape)) for shape in SHAPES],
    [in_dtype("float64", c(*n)) for n in ((3, 3), (3, 2))],
    **PLAIN,
)
case(
    "linalg.lu_factor_ex",
    [s(t(*shape)) for shape in SHAPES],
    [in_dtype("float64", c(*n)) for n in ((3, 3), (3, 2))],
    edge(T((2, 2), values=RANK_ONE)),
    **PLAIN,
)
SYMMETRIC = T((3, 3), values=[[1.0, 2.0, -1.0], [2.0, 0.0, 3.0], [-1.0, 3.0, 0.5]], grad=False)
for name in ("linalg.ldl_factor", "linalg.ldl_factor_ex"):
    case(name, [edge(SYMMETRIC), edge(SYMMETRIC, hermitian=True)], order=0, node=False, **PLAIN)
case(
    "linalg.ldl_solve",
    edge(T((3, 3), values=LOWER, grad=False), ints(1, 2, 3, dtype="int32"), T((3, 2), grad=False)),
    order=0,
    node=False,
    **PLAIN,
)
case(
    "geqrf",
    [s(t(*shape, grad=False)) for shape in SHAPES],
    [in_dtype("float64", T(n, dtype=C, grad=False)) for n in ((3, 3), (3, 2))],
    order=0,
    **PLAIN,
)
FACTOR = T((3, 3), values=FACTORED)
case(
    "linalg.lu_solve",
    [edge(FACTOR, PIVOTS, t(3, 2), adjoint=adjoint) for adjoint in (False, True)],
    [edge(FACTOR, PIVOTS, t(2, 3), left=False, adjoint=adjoint) for adjoint in (False, True)],
    edge(FACTOR, ints(2, 3, 3, dtype="int32"), t(2, 3, 1)),
    in_dtype("float64", T((3, 3), values=FACTORED, dtype=C), PIVOTS, c(3, 2), adjoint=True),
    in_dtype("float64", T((3, 3), values=FACTORED, dtype=C), PIVOTS, c(2, 3), left=False),
    node=False,
    **PLAIN,
)
case(
    "linalg.householder_product",
    [s(t(*shape), t(*tau)) for shape, tau in (((3, 3), (3,)), ((4, 2), (2,)), ((4, 3), (1,)), ((2, 4, 3), (2, 3)))],
    in_dtype("float64", c(4, 2), c(2)),
    node=False,
    **PLAIN,
)
FACTOR = T((3, 3), values=LOWER)
case(
    "cholesky_inverse",
    edge(FACTOR),
    edge(FACTOR, True),
    edge(T((2, 3, 3), values=[LOWER, LOWER])),
    in_dtype("float64", T((3, 3), values=LOWER, dtype=C)),
    node=False,
    **PLAIN,
)
case(
    "linalg.lstsq",
    [s(t(4, 3), t(4, 2), driver=driver) for driver in ("gelsy", "gels", "gelsd", "gelss")],
    s(t(4, 3), t(4), driver="gels"),
    s(t(2, 4, 3), t(2, 4), driver="gelsd"),
    s(t(3, 4), t(3, 2)),
    s(t(2, 4, 3), t(1, 4, 2)),
    s(t(3, 3), t(3, 1)),
    in_dtype("float64", c(4, 2), c(4, 3), driver="gels"),
    **PLAIN,
)
case("linalg.lstsq", edge(T((2, 2), values=RANK_ONE), t(2, 1)), edge(t(0, 3), t(0, 1)), order=0, **PLAIN)
case("linalg.tensorinv", s(t(4, 2, 2), 1), s(t(2, 3, 6)), node=False, **PLAIN)
case("linalg.tensorsolve", s(t(2, 3, 6), t(2, 3)), s(t(6, 2, 3), t(3, 2), (0,)), node=False, **PLAIN)

# Norms.

ORDERS = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
case(
    "linalg.matrix_norm",
    [s(t(3, 4), order) for order in ORDERS],
    [s(t(2, 3, 4), order, (0, -1), True) for order in ORDERS],
    [s(t(3, 2, 4), order, (2, 0)) for order in ORDERS],
    [edge(t(*shape), order) for order in ("fro", "nuc", 1, 2) for shape in ((0, 3), (2, 3, 0))],
    [in_dtype("float64", c(3, 4), order) for order in ORDERS],
    in_dtype("float32", t(2, 3), 1, dtype=D("float64")),
    once(T((2, 2), values=[[0.0, 0.0], [0.0, 0.0]]), "fro"),
    tolerance=300.0,
)
case(
    "linalg.norm",
    [s(t(3, 4)), s(t(2, 3, 4)), s(t()), s(t(4), 3), s(t(4), math.inf)],
    [s(t(3, 4), order) for order in ORDERS],
    [s(t(3, 4), "fro", (1, 0), True), s(t(2, 3, 4), 2, 1), s(t(2, 3, 4), 1, (0, 2)), s(t(3, 4), None, 0, True)],
    in_dtype("float32", t(2, 3), 1, dtype=D("float64")),
    tolerance=300.0,
)
case(
    "norm",
    [s(t(3, 4), p) for p in ("fro", "nuc", 1, 3, 2.5, math.inf)],
    Sample((t(3, 4), 0), {}, order=0),  # zeros, where PyTorch leaves the gradient out
    [s(t(2, 3, 4)), s(t(2, 3, 4), 2, (0, 1)), s(t(2, 3, 4), "nuc", (0, 2), True), s(t(3, 4), "fro", 0)],
    [s(t(3, 4), 2, None, True), s(t(), 1), in_dtype("float64", c(3))],
    in_dtype("float32", t(2, 3), 1, dtype=D("float64")),
    tolerance=300.0,
)
case(
    "linalg.cond",
    [s(t(3, 3), order) for order in (None, 2, -2)],
    [Sample((t(3, 3), order), {}, order=0) for order in ORDERS],  # whose derivative PyTorch itself spoils in place
    [s(t(2, 4, 3)), edge(t(0, 0)), Sample((t(2, 0, 0), "fro"), {}, order=0)],
    in_dtype("float64", c(3, 3), 2),
    node=False,
    **PLAIN,
)
case(
    "linalg.cond", edge(T((2, 2, 2), values=[RANK_ONE, [[1.0, 0.0], [0.0, 2.0]]]), "fro"), order=0, node=False, **PLAIN
)
case(
    "linalg.matrix_rank",
    s(T((2, 2), values=RANK_ONE)),
    [s(t(3, 4)), s(t(2, 4, 3)), s(t(0, 3)), s(t(2, 0, 3)), in_dtype("float64", c(3, 3))],
    [
        s(t(3, 4), atol=1.0),
        s(t(3, 4), atol=0.1, rtol=0.9),
        s(t(3, 4), rtol=0.5),
        s(t(2, 2, 3, 3), atol=t(2, grad=False)),
    ],
    s(T((2, 2), values=RANK_ONE), hermitian=True),
    order=0,
    half=False,
)
case(
    "linalg.pinv",
    edge(t(3, 4), atol=1.0, rtol=0.5),
    edge(t(2, 3, 3), rtol=t(2, low=0.1, high=0.5, grad=False)),
    node=False,
    **PLAIN,
)

# Others.

case("linalg.vecdot", s(t(3, 4), t(3, 4)), s(t(3, 1, 4), t(2, 4), dim=0), s(t(), t()), in_dtype("float64", c(3), c(3)))
case(
    "linalg.vander",
    [s(t(3)), s(t(2, 3), N=2), s(t(), N=4), in_dtype("float64", c(3))],
    [in_dtype("float32", ints(1, 2, 3, dtype=name)) for name in ("int64", "int32", "uint8")],
    half=False,
)
case("linalg.diagonal", s(t(3, 4)), s(t(2, 3, 3), offset=-1), s(t(2, 3, 3), dim1=0, dim2=1), node=False)

# Vectors of arbitrary phase are compared in test_linalg.py.
EXCEPTIONS = dict.fromkeys(("linalg.eig", "linalg.eigvals"), "compared up to order and phase, in test_linalg.py")

REFUSALS = [
    refuses("linalg.lstsq", RuntimeError, "parameter `driver` should be one of", t(2, 2), t(2, 2), driver="x"),
    refuses("linalg.lstsq", RuntimeError, "input.size(-2) should match other.size(-2)", t(4, 3), t(3, 2)),
    refuses("linalg.lstsq", RuntimeError, "input must have at least 2 dimensions", t(4), t(4)),
    refuses("linalg.lstsq", RuntimeError, "to have the same dtype", t(2, 2), t(2, 2, dtype="float64")),
    refuses("linalg.lu", RuntimeError, "Expected tensor with 2 or more dimensions", t(3)),
    refuses("linalg.lu", RuntimeError, "LU without pivoting is not implemented", t(3, 3), pivot=False),
    refuses("linalg.lu", NotImplementedError, "\"lu_cpu\" not implemented for 'Half'", t(3, 3, dtype="float16")),
    refuses("linalg.lu_factor", RuntimeError, "U[2,2] is zero and using it on lu_solve", T((2, 2), values=RANK_ONE)),
    refuses("linalg.lu_factor_ex", RuntimeError, "U[2,2] is zero", T((2, 2), values=RANK_ONE), check_errors=True),
    refuses("geqrf", RuntimeError, "input must have at least 2 dimensions", t(3)),
    refuses("linalg.matrix_norm", IndexError, "to have non-zero size", t(0, 3), -math.inf),
    refuses(
        "linalg.lu_solve",
        RuntimeError,
        "pivots should be a Tensor of scalar type torch.int32",
        t(2, 2),
        ints(1, 2),
        t(2, 1),
    ),
    refuses("linalg.lu_solve", RuntimeError, "Incompatible shapes of A and B", t(3, 3), PIVOTS, t(2, 1)),
    refuses("linalg.eig", RuntimeError, "should not contain infs or NaNs", T((1, 1), values=[[math.nan]])),
    refuses("linalg.eig", RuntimeError, "must have at least 2 dimensions", t(3)),
    refuses("linalg.matrix_norm", RuntimeError, "Order 3 not supported", t(2, 2), 3),
    refuses("linalg.matrix_norm", RuntimeError, "Order x not supported", t(2, 2), "x"),
    refuses("linalg.matrix_norm", RuntimeError, "dims must be different. Got (0, 0)", t(2, 2), 1, (0, 0)),
    refuses(
        "linalg.matrix_norm", RuntimeError, "Low precision dtypes not supported. Got Half", t(2, 2, dtype="float16"), 2
    ),
    refuses(
        "linalg.norm", RuntimeError, "If dim is not specified but ord is, the input must be 1D or 2D", t(2, 2, 2), 2
    ),
    refuses("linalg.norm", RuntimeError, "Expected a non-complex scalar as the order of norm", t(2, 2), 1j),
    refuses("norm", RuntimeError, "Expected a non-complex scalar as the order of norm", t(2, 2), 1j),
    refuses("norm", RuntimeError, "dim must be a 2-tuple. Got 0 1 2", t(2, 2, 2), "nuc"),
    refuses("linalg.cond", RuntimeError, "got an invalid norm type", t(2, 2), "x"),
    refuses("linalg.cond", RuntimeError, "must be batches of square matrices", t(2, 3), 1),
    refuses("linalg.matrix_rank", RuntimeError, "must have at least 2 dimensions", t(3)),
    refuses("linalg.vecdot", RuntimeError, "Expected x and y to have the same dtype", t(3), t(3, dtype="float64")),
    refuses("linalg.vander", RuntimeError, "N must be greater than 1", t(3), N=1),
    refuses("linalg.tensorinv", RuntimeError, "strictly positive integer for 'ind'", t(2, 2), 0),
    refuses("linalg.tensorsolve", RuntimeError, "prod(self.shape[other.ndim:])", t(2, 3, 7), t(2, 3)),
    refuses("linalg.householder_product", RuntimeError, "greater than or equal to tau.shape[-1]", t(3, 2), t(3)),
    refuses("cholesky_inverse", RuntimeError, "must be batches of square matrices", t(2, 3)),
]

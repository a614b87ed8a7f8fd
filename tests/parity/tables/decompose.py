"""Decompositions of matrices that have one. Vectors of arbitrary sign or phase are compared in test_linalg.py."""

from tests.parity.harness import T, case, edge, in_dtype, refuses, s, t

C = "complex128"
PLAIN = {"half": False, "tolerance": 300.0}
DEFINITE = [[4.0, 1.0, -1.0], [1.0, 5.0, 0.5], [-1.0, 0.5, 3.0]]
OTHER = [[2.0, -1.0, 0.5], [-1.0, 6.0, 0.25], [0.5, 0.25, 9.0]]
HERMITIAN = [[4.0, 1 + 1j, -1j], [1 - 1j, 5.0, 0.5], [1j, 0.5, 3.0]]
INDEFINITE = [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def c(*shape: int) -> T:
    """A complex tensor."""
    return t(*shape, dtype=C)


def symmetric(**kwargs: object) -> list:
    """Positive-definite matrices: one, several, none. Half of each is read, so differences are not taken."""
    return [
        edge(T((3, 3), values=DEFINITE), **kwargs),
        edge(T((2, 3, 3), values=[DEFINITE, OTHER]), **kwargs),
        edge(t(0, 0), **kwargs),
    ]


def hermitian(**kwargs: object) -> object:
    """A complex one."""
    return in_dtype("float64", T((3, 3), values=HERMITIAN, dtype=C), **kwargs)


case("linalg.cholesky", symmetric(), symmetric(upper=True), hermitian(), hermitian(upper=True), **PLAIN)
case(
    "linalg.qr",
    [s(t(*shape)) for shape in ((3, 3), (4, 3), (3, 4), (2, 4, 2), (2, 2, 3), (1, 1))],
    s(t(3, 3), "complete"),
    s(t(3, 4), mode="complete"),
    [in_dtype("float64", c(*shape)) for shape in ((3, 3), (2, 4, 3), (2, 3))],
    node=False,
    **PLAIN,
)
case("linalg.qr", s(t(4, 3), "r"), s(t(4, 3), "complete"), order=0, node=False, **PLAIN)
case("linalg.svdvals", [s(t(*shape)) for shape in ((3, 3), (4, 3), (2, 3, 4))], in_dtype("float64", c(4, 3)), **PLAIN)
case("linalg.eigvalsh", symmetric(), symmetric(UPLO="U"), hermitian(), **PLAIN)

# Their vectors' signs are LAPACK's choice.
EXCEPTIONS = dict.fromkeys(("linalg.svd", "linalg.eigh"), "compared up to the vectors' signs, in test_linalg.py")
REFUSALS = [
    refuses("linalg.cholesky", RuntimeError, "must be batches of square matrices", t(2, 3)),
    refuses("linalg.qr", RuntimeError, "qr received unrecognized mode 'raw'", t(2, 3), "raw"),
    refuses("linalg.qr", RuntimeError, "must have at least 2 dimensions", t(3)),
    refuses("linalg.svd", RuntimeError, "must have at least 2 dimensions", t(3)),
    refuses("linalg.svdvals", NotImplementedError, "not implemented for 'BFloat16'", t(2, 2, dtype="bfloat16")),
    refuses("linalg.eigh", RuntimeError, "Expected UPLO argument to be 'L' or 'U'", t(2, 2), "X"),
    refuses("linalg.eigvalsh", RuntimeError, "must be batches of square matrices", t(2, 3)),
]

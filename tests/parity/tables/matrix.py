"""Products of matrices and vectors, and linear layers."""

from tests.parity.harness import case, complexes, edge, in_dtype, ints, refuses, s, t

C = "complex128"


def products(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> list:
    """A sample for each two shapes."""
    return [s(t(*a), t(*b)) for a, b in shapes]


def c(*shape: int) -> object:
    """A complex tensor."""
    return t(*shape, dtype=C)


case(
    "matmul",
    products(
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((1, 2, 3), (5, 3, 4)),
        ((6, 5, 2, 3), (5, 3, 4)),
        ((6, 1, 2, 3), (5, 3, 4)),
        ((0, 3), (3, 4)),
        ((2, 0), (0, 4)),
        ((2, 0, 3), (3, 4)),
    ),
    s(t(3, 4, layout="F"), t(4, 2, layout="F")),
    in_dtype("float64", c(2, 3), c(5, 3, 4)),
    in_dtype("float64", ints([1, 2], [3, 4]), ints([1, -2], [3, 4])),
)
case("mm", products(((2, 3), (3, 4)), ((0, 3), (3, 4)), ((2, 0), (0, 4))), in_dtype("float64", c(2, 3), c(3, 4)))
case("bmm", products(((5, 2, 3), (5, 3, 4)), ((0, 2, 3), (0, 3, 4))), in_dtype("float64", c(5, 2, 3), c(5, 3, 4)))
case("mv", products(((2, 3), (3,)), ((0, 3), (3,))), in_dtype("float64", c(2, 3), c(3)))
case("dot", products(((3,), (3,)), ((0,), (0,))), complexes(2))
case("outer", products(((3,), (4,))), in_dtype("float64", c(3), c(4)))
case("trace", s(t(3, 4)), s(t(4, 4, layout="F")), in_dtype("float64", ints([1, 2], [3, 4], dtype="int32")), half=False)
case(
    "addmm",
    [s(t(*b), t(2, 3), t(3, 4)) for b in ((2, 4), (4,), (1, 4), (2, 1), ())],
    s(t(4), t(2, 3), t(3, 4), beta=0.5, alpha=2.0),
    s(t(2, 4), t(2, 3), t(3, 4), beta=0),
    in_dtype("float64", c(4), c(2, 3), c(3, 4), beta=0.5 + 1j, alpha=2j),
)
case(
    "baddbmm",
    s(t(5, 2, 4), t(5, 2, 3), t(5, 3, 4)),
    s(t(4), t(5, 2, 3), t(5, 3, 4), beta=0.5, alpha=3),
)
case(
    "linear",
    [s(t(*shape), t(4, 3), t(4)) for shape in ((2, 3), (3,), (2, 5, 3), (0, 3), (2, 0, 3))],
    [s(t(*shape), t(4, 3)) for shape in ((2, 3), (3,), (2, 5, 3), (2, 0, 3))],
    s(t(2, 3), t(3)),
    s(t(3, 2, layout="F"), t(4, 2, layout="F"), t(4)),
    [s(t(2, 5, 3, layout="F"), t(4, 3), *bias) for bias in ((), (t(4),))],
)
case(
    "einsum",
    edge("ij,jk->ik", [t(2, 3), t(3, 4)]),
    [
        s(equation, [t(*shape) for shape in shapes])
        for equation, shapes in (
            ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
            ("ij,jk", [(2, 3), (3, 4)]),
            ("ii", [(3, 3)]),
            ("ii->i", [(3, 3)]),
            ("ij->ji", [(2, 3)]),
            ("ij->", [(2, 3)]),
            ("i,j->ij", [(2,), (3,)]),
            ("i,i", [(3,), (3,)]),
            ("...ij,...jk->...ik", [(2, 1, 2, 3), (4, 3, 2)]),
            ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
            ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
            ("ij,ij->i", [(2, 3), (2, 3)]),
            ("ab,cd->acbd", [(2, 3), (2, 2)]),
            ("iij,jk->ik", [(2, 2, 3), (3, 4)]),
            ("i...->...", [(2, 3, 4)]),
            ("ba", [(2, 3)]),
            ("ij,j->", [(2, 3), (3,)]),
        )
    ],
    torch=lambda equation, operands: __import__("torch").einsum(equation, *operands),
    node=False,
)
case(
    "tensordot",
    s(t(2, 3, 4), t(3, 4, 5)),
    s(t(2, 3), t(3, 4), 1),
    s(t(2, 3), t(4, 5), 0),
    s(t(2, 3, 4), t(4, 3, 2), ([1, 2], [1, 0])),
    node=False,
)
case("kron", s(t(2, 3), t(4, 2)), s(t(2), t(3, 2)), s(t(2, 1, 2), t(3)), s(t(), t(2)), node=False)

REFUSALS = [
    refuses("matmul", RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", t(2, 3), t(4, 5)),
    refuses(
        "matmul",
        RuntimeError,
        "expected m1 and m2 to have the same dtype, but got: float != double",
        t(2, 3),
        t(3, 4, dtype="float64"),
    ),
    refuses("matmul", RuntimeError, "inconsistent tensor size, expected tensor [2] and src [3]", t(2), t(3)),
    refuses(
        "matmul", RuntimeError, "The size of tensor a (5) must match the size of tensor b (4)", t(5, 2, 3), t(4, 3, 5)
    ),
    refuses("matmul", RuntimeError, "both arguments to matmul need to be at least 1D", t(), t(4, 3)),
    refuses(
        "mm",
        NotImplementedError,
        "not implemented for 'Bool'",
        t(2, 2, dtype="bool", grad=False),
        t(2, 2, dtype="bool", grad=False),
    ),
    refuses("mm", RuntimeError, "must be a matrix", t(2, 3), t(3)),
    refuses(
        "bmm",
        RuntimeError,
        "Expected size for first two dimensions of batch2 tensor to be: [2, 4]",
        t(2, 3, 4),
        t(2, 3, 4),
    ),
    refuses("mv", RuntimeError, "size mismatch, got input (2), mat (2x3), vec (4)", t(2, 3), t(4)),
    refuses("dot", RuntimeError, "1D tensors expected, but got 2D and 1D tensors", t(2, 3), t(3)),
    refuses(
        "addmm",
        RuntimeError,
        "The expanded size of the tensor (4) must match the existing size (3)",
        t(3),
        t(2, 3),
        t(3, 4),
    ),
    refuses("linear", RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)", t(2, 3), t(4, 5)),
    refuses("outer", RuntimeError, "Expected 1-D argument", t(2, 2), t(3)),
    refuses("trace", RuntimeError, "expected a matrix", t(3)),
]

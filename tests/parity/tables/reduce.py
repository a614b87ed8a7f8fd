"""Reductions, scans and order."""

import math

from tests.parity.harness import D, Sample, case, complexes, edge, in_dtype, ints, mask, of, once, refuses, s, t, whole

INF, NAN = math.inf, math.nan


def reductions(*, empty: bool = True, **options: float) -> list:
    """Over all, over one dimension, over several, kept and not, of 0-d, empty and transposed tensors."""
    x = t(3, 4, **options)
    samples = [
        s(x), s(x, 1), s(x, 0, True), s(x, -1), s(t(2, 3, 4, **options), (0, 2)),
        s(t(2, 3, 4, **options), (0, -1), True),
        s(t(**options)), s(t(**options), 0), s(t(4, 3, layout="F", **options), 0), s(t(1, 3, **options), 0),
    ]  # fmt: skip
    return samples + ([s(t(0, 3, **options)), s(t(2, 0, **options), 1), s(t(0, 3, **options), 1)] if empty else [])


case(
    "sum",
    reductions(),
    complexes(),
    whole(),
    edge(t(3), dtype=D("float64")),
    edge(of(1.0, INF, NAN)),
    s(t(3, 4), dim=()),
)
case(
    "mean",
    reductions(),
    complexes(),
    edge(t(3), dtype=D("float64")),
    in_dtype("float32", ints(1, 2), dtype=D("float32")),
)
# Large enough for sums to be products with ones.
LARGE = [
    s(t(80, 70), 1),
    s(t(80, 70), 0),
    s(t(80, 70)),
    s(t(5000)),
    s(t(3, 5000), 1),
    s(t(2, 4096), 1, True),
    s(t(2, 50, 60), (1, 2)),
    s(t(50, 60, 2), (0, 1), True),
    s(t(50, 60, 2), 1),
    s(t(20, 30, 3, 4), (0, 2)),
    s(t(20, 30, 3, 4), (1, 3), True),
]
case("sum", LARGE, tolerance=10)
PROD = [s(t(3, 4)), s(t(3, 4), 1), s(t(3, 4), 0, True), s(t()), s(t(0, 3)), s(t(2, 0), 1), s(t(4, 3, layout="F"), -1)]
ZEROS = [
    s(of([0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]), 1),
    s(of(2.0, 0.0, 3.0)),
    s(of(0.0, 0.0, 3.0, 4.0)),
    s(of(0.0)),
]
case("prod", PROD, ZEROS, complexes(), whole())
case("var", reductions(empty=False), s(t(3, 4), correction=0), s(t(3, 4), 1, correction=2, keepdim=True), complexes())
case("var", s(t(3, 4), 1, False), s(t(3, 4), 0, unbiased=True), once(t(1, 3), 0), once(t()), once(of(2.0, 2.0, 2.0)))
case("std", reductions(empty=False), s(t(3, 4), correction=0), s(t(3, 4), 1, correction=2, keepdim=True), complexes())
case("std", s(t(3, 4), 1, False), once(t(1, 3), 0), once(of(2.0, 2.0, 2.0)))
case("var_mean", s(t(3, 4)), s(t(3, 4), 1), s(t(3, 4), (0, 1), keepdim=True, correction=0))
case("std_mean", s(t(3, 4)), s(t(3, 4), 1))
TIES = [of([1.0, 3.0, 3.0], [2.0, 2.0, 2.0]), of([1.0, NAN, 3.0], [INF, INF, -INF])]
for _name in ("amax", "amin"):
    case(
        _name,
        s(t(3, 4)),
        s(t(3, 4), 1),
        s(t(2, 3, 4), (0, 2), True),
        s(t()),
        s(t(3, 0, 2), 0),
        *(edge(x, 1) for x in TIES),
        whole(),
    )
for _name in ("max", "min"):
    case(_name, s(t(3, 4)), s(t(3, 4), 1), s(t(3, 4), 0, True), s(t()), s(t(), 0), s(t(4, 3, layout="F"), -1))
    case(
        _name,
        *(edge(x) for x in TIES),
        *(edge(x, 1) for x in TIES),
        s(t(3, 4), t(4)),
        edge(*TIES),
        whole(),
        whole(0),
        half=False,
    )
    case(
        f"arg{_name}",
        s(t(3, 4)),
        s(t(3, 4), 1),
        s(t(3, 4), 0, True),
        s(t()),
        s(t(3, 4), keepdim=True),
        *(edge(x, 1) for x in TIES),
        edge(TIES[0]),
        whole(dtypes=("int64", "uint8")),
    )
case("aminmax", s(t(3, 4)), s(t(3, 4), dim=1, keepdim=True), node=False)
case(
    "logsumexp",
    s(t(3, 4), 1),
    s(t(3, 4), (0, 1)),
    s(t(3, 4), 0, True),
    s(t(), 0),
    s(t(2, 0), 1),
    edge(of([-INF, -INF], [INF, 1.0], [1e4, -1e4]), 1),
    whole(0),
)
for _name in ("all", "any"):
    case(
        _name,
        s(mask([True, False], [True, True])),
        s(mask([True, False], [True, True]), 1),
        s(t(3, 4)),
        s(t(2, 0), 1),
        s(t(2, 0)),
        s(t(3, 4), (0, 1), keepdim=True),
        whole(),
    )
case(
    "count_nonzero",
    edge(of([0.0, 1.0, NAN], [0.0, 0.0, 2.0])),
    edge(of([0.0, 1.0], [0.0, 0.0]), 1),
    s(t(2, 3, 4), (0, 2)),
    whole(),
)
case(
    "cumsum",
    s(t(3, 4), 0),
    s(t(3, 4), -1),
    s(t(), 0),
    s(t(0, 3), 1),
    complexes(1, 0),
    whole(0),
    edge(t(3), 0, dtype=D("float64")),
)
# Long enough for products with triangles and sums of slices.
case(
    "cumsum",
    s(t(20, 300), 1),
    s(t(8, 256, 2, layout="F"), 1),
    s(t(3, 5, 512), -1),
    s(t(30, 300), 0),
    edge(of(*[[*[0.5] * 300, INF, *[1.0] * 99]] * 11), 1),
    half=False,
    in_place=False,
    tolerance=10,
)
case("cumprod", s(t(3, 4), 0), s(t(3, 4), -1), s(t(), 0), s(t(0, 3), 1), whole(0), complexes(1, 0), tolerance=10)
case("cumprod", s(of([0.0, 2.0, 3.0], [2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 0.0]), 1), s(of(0.0), 0), half=False)
for _ord in (2, 1, INF, -INF, 3, 2.5, 0.5, 1.5, -1):
    case(
        "linalg.vector_norm",
        s(t(3, 4), _ord),
        s(t(3, 4), _ord, 1),
        s(t(3, 4), _ord, (0, 1), True),
        s(t(), _ord),
        half=_ord in (1, 2),
    )
case(
    "linalg.vector_norm",
    Sample((of(1.0, 0.0), 0), {}, order=0, smooth=False),
    once(of(0.0, 0.0)),
    once(of([0.0, 0.0], [3.0, 4.0]), 2, 1),
    once(of(0.0, 0.0), 1),
    edge(of(1.0, -1.0), INF),
    complexes(1, 2),
    complexes(1, 3),
    half=False,
)
case("norm", edge(of(0.0, 0.0), 3), edge(of(0.0, 0.0)), edge(of(0.0, 0.0), 2.5), half=False)
case("norm", s(t(3, 4)), s(t(3, 4), 1, 0), s(t(3, 4), 3, 1, True), half=False)
case(
    "sort",
    s(t(3, 4)),
    s(t(3, 4), 0),
    s(t(3, 4), 1, True),
    s(t()),
    s(t(0, 3), 1),
    edge(of(2.0, NAN, 1.0, INF)),
    edge(of(2.0, NAN, 1.0), 0, True),
    whole(),
)
case(
    "sort",
    edge(of(2.0, 1.0, 2.0, 1.0), stable=True),
    edge(of(2.0, 1.0, 2.0, 1.0), stable=True, dim=0, descending=True),
    half=False,
)
case("argsort", s(t(3, 4)), s(t(3, 4), 0, True), s(t()))
case("msort", s(t(3, 4)), node=False)
case("topk", s(t(3, 4), 2), s(t(3, 4), 2, 0, False), s(t(), 1), s(t(3, 4), 0))
case(
    "topk",
    s(t(3, 300), 5),
    s(t(300, 2), 4, 0, False),
    s(t(400, layout="F"), 0),
    edge(of(*[[NAN, *map(float, range(300)), INF]] * 2), 3),
    half=False,
)
case("kthvalue", s(t(3, 300), 7), s(t(300, 2), 300, 0, True), half=False)
case(
    "median",
    s(t(3, 301), 1),
    edge(of(*[[float(i), NAN if i == 200 else -float(i)] for i in range(300)]), 0),
    half=False,
)
case("kthvalue", s(t(3, 4), 2), s(t(3, 4), 1, 0, True), s(t(), 1))
case(
    "median",
    s(t(3, 4)),
    s(t(3, 5)),
    s(t()),
    s(t(3, 4), 1),
    s(t(3, 4), 0, True),
    s(t(), 0),
    edge(of(1.0, NAN, 2.0)),
    edge(of([1.0, NAN, 2.0], [3.0, 2.0, 1.0]), 1),
    edge(of(2.0, 2.0, 1.0, 3.0)),
    whole(dtypes=("int64", "uint8")),
)

REFUSALS = [
    refuses("sum", IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 5)", t(3, 4), 5),
    refuses("sum", RuntimeError, "appears multiple times in the list of dims", t(3, 4), (0, 0)),
    refuses(
        "mean",
        RuntimeError,
        "could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: Long",
        ints(1, 2),
    ),
    refuses("max", RuntimeError, "Expected reduction dim to be specified for input.numel() == 0", t(0, 3)),
    refuses("max", IndexError, "Expected reduction dim 0 to have non-zero size", t(0, 3), 0),
    refuses("argmax", IndexError, "Expected reduction dim to be specified for input.numel() == 0", t(0, 3)),
    refuses("amax", RuntimeError, "Expected reduction dim to be specified for input.numel() == 0", t(0, 3)),
    refuses("max", RuntimeError, "does not support complex input", *complexes().args, 0),
    refuses("amax", NotImplementedError, '"max_values_cpu" not implemented for', *complexes().args),
    refuses("argmax", RuntimeError, "does not support complex input", *complexes().args),
    refuses("argmax", RuntimeError, "does not support bool input", mask(True)),
    refuses("sort", RuntimeError, "Sort does not support complex dtypes on CPU", *complexes().args),
    refuses("topk", RuntimeError, "topk does not support bool dtypes on CPU", mask(True), 1),
    refuses("topk", RuntimeError, "selected index k out of range", t(3), 5),
    refuses("kthvalue", RuntimeError, "out of range for dimension 0", t(3), 5),
    refuses("cumsum", IndexError, "Dimension out of range", t(3), 1),
    refuses("linalg.vector_norm", RuntimeError, "Expected a floating point or complex tensor as input", ints(1, 2)),
]

"""Indexing, gathering and scattering."""

from typing import Any

from tests.parity.harness import T, case, complexes, edge, in_dtype, ints, mask, of, refuses, s, t, whole

X = t(3, 4, 5)
V = t(5)
ROW = T((1, 1), dtype="int64", grad=False, values=[[0]])
INT32 = T((2,), dtype="int32", grad=False, values=[0, 1])
MASK2 = mask([[True, False, True, False], [False, False, False, True], [True, True, False, False]])
NONE = mask([[False] * 4] * 3)


def item(x: Any, key: Any) -> Any:
    """x[key]."""
    return x[key]


def put(x: Any, key: Any, value: Any) -> Any:
    """A copy with x[key] = value."""
    copied = x.clone()
    copied[key] = value
    return copied


W = slice(None)
HERE = T((), dtype="int64", grad=False, values=2)
KEYS: list[Any] = [
    0, -1, (0, 1), (0, 1, 2), (Ellipsis, 0), (0, Ellipsis), (Ellipsis,), (), W, slice(1, 3), slice(None, None, 2),
    slice(-2, None), slice(5, 2), (W, slice(1, 3)), (W, 1), (W, W), (None, 0), None, (Ellipsis, None),
    (slice(0, 2), None, 1), ints(0, 2), (ints(0, 2, 0),), (ints(-1, 0), ints(1, -2)), (W, ints(0, 0, 3)),
    (ints(0, 1), W, ints(1, 2)), (0, ints(0, 2)), (W, 0, ints(1, 1)), (ints([0, 1], [2, 0]),),
    (ints([0], [1]), ints(0, 3)), (None, ints(0, 1)), (ints(0, 1), None), (Ellipsis, ints(0, 4)),
    (slice(0, 2), ints(0, 0), slice(1, 4)), ints(), ints(1), (ints(1), 0), MASK2, mask(True, False, True),
    (W, mask(True, False, True, True)), (MASK2, slice(1, 3)), NONE, (mask(True, False, True), 0),
    (mask(True, False, True), ints(0, 3)), True, False, (True, 0), HERE, (HERE, slice(1, 3)),
    (Ellipsis, mask(True, False, True, False, True)),
]  # fmt: skip
case("getitem", (s(X, key) for key in KEYS), torch=item)
case(
    "getitem",
    s(V, ints(0, 0, 3)),
    s(V, mask(True, False, True, False, True)),
    s(t(), None),
    s(t(), Ellipsis),
    s(t(), ()),
    s(t(), True),
    s(t(0, 3), slice(None)),
    torch=item,
)
case(
    "getitem",
    s(t(4, 3, layout="F"), ints(0, 1, 1)),
    s(t(4, 3, layout="F"), 1),
    complexes(1, ints(0, 0, 1)),
    whole(0),
    torch=item,
)
BASIC = (
    0,
    (0, 1),
    slice(1, 3),
    (Ellipsis, 0),
    (slice(None), slice(1, 3)),
    (slice(0, 2), None, 1),
    (slice(None, None, 2), 1),
)
case("setitem", (s(X, key, 2.0) for key in KEYS), torch=put, node=False, in_place=False)
case("setitem", (edge(X, key, t()) for key in KEYS if key is not False), torch=put, node=False)
case(
    "setitem",
    s(X, 0, t(4, 5)),
    s(X, 0, t(5)),
    s(X, ints(0, 2), t(2, 4, 5)),
    s(X, (slice(None), 1), t(3, 5)),
    s(X, MASK2, t(5)),
    s(X, (0, ints(0, 2)), t(2, 5)),
    s(X, 0, t(1, 1, 5)),
    torch=put,
    node=False,
)
case("setitem", (s(X, key, t()) for key in BASIC), torch=put, node=False)
case(
    "setitem",
    whole(0, 3),
    whole(0, 2.7, dtypes=("int64",)),
    edge(t(3, grad=False), 0, t(dtype="float64")),
    torch=put,
    node=False,
)
case(
    "index_put",
    s(X, [ints(0, 2)], t(2, 4, 5)),
    s(X, [ints(0, 0), ints(1, 1)], t(2, 5), True),
    s(t(4), [ints(0, 0, 1)], t(3), True),
    s(X, [MASK2], t(5)),
)
case(
    "index_select", s(X, 0, ints(0, 2, 0)), s(X, -1, ints(1, 1)), s(V, 0, ints(3)), s(t(), 0, ints(0)), s(X, 1, ints())
)
case(
    "index_add",
    s(t(3, 4), 0, ints(0, 2, 0), t(3, 4)),
    s(t(3, 4), 1, ints(1, 1), t(3, 2), alpha=2.5),
    s(V, 0, ints(0, 1), t(2)),
)
case("index_copy", s(t(3, 4), 0, ints(0, 2), t(2, 4)), s(t(3, 4), 1, ints(1), t(3, 1)))
case("index_fill", s(t(3, 4), 0, ints(0, 2), 2.5), s(t(3, 4), 1, ints(1), t()), s(t(3, 4), 1, ints(0, -1), 1.5))
PLACES = ints([0, 1, 2, 0], [2, 2, 0, 1])
case(
    "gather",
    s(t(3, 4), 0, PLACES),
    s(t(3, 4), 1, ints([0], [3], [3])),
    s(V, 0, ints(0, 0, 4)),
    s(t(), 0, T((), dtype="int64", grad=False, values=0)),
    s(t(3, 4), 0, ints([])),
)
case(
    "scatter",
    s(t(3, 4), 0, ints([[0, 1, 2, 0]]), t(1, 4)),
    s(t(3, 4), 1, ints([0], [3], [1]), 2.5),
    s(V, 0, ints(0, 3), t(2)),
)
case("scatter", s(t(3, 4), 0, ints([0, 1], [1, 0]), t(3, 4)), half=False, order=0)
case("scatter", s(t(3, 4), 0, ints([[0, 1, 2, 0]]), value=1.5), half=False)
case(
    "scatter_add",
    s(t(3, 4), 0, PLACES, t(2, 4)),
    s(t(3, 4), 1, ints([0], [3], [3]), t(3, 1)),
    s(V, 0, ints(0, 0, 0), t(3)),
)
case(
    "take_along_dim", s(t(3, 4), ints([[0, 1, 2, 0]]), 0), s(t(3, 4), ints(0, 5, 11)), s(t(3, 1), PLACES, 0), node=False
)
case("take", s(t(3, 4), ints([0, 5], [11, -1])), s(t(3, 4), T((), dtype="int64", grad=False, values=-2)), node=False)
case("masked_select", s(t(3, 4), MASK2), s(t(4), MASK2), s(t(3, 4), mask(True, False, True, True)), s(t(3, 4), NONE))
case(
    "nonzero",
    edge(of([0.0, 1.0], [2.0, 0.0])),
    edge(of(0.0, 0.0)),
    s(T((), values=1.0)),
    edge(of([0.0, 1.0], [2.0, 0.0]), as_tuple=True),
    in_dtype("float32", MASK2),
)
case("argwhere", edge(of([0.0, 1.0], [2.0, 0.0])))

REFUSALS = [
    refuses("getitem", IndexError, "index 5 is out of bounds for dimension 0 with size 3", X, 5, torch=item),
    refuses("getitem", IndexError, "index -6 is out of bounds for dimension 2 with size 5", X, (0, 0, -6), torch=item),
    refuses(
        "getitem", IndexError, "index 9 is out of bounds for dimension 1 with size 4", X, (slice(None), 9), torch=item
    ),
    refuses("getitem", IndexError, "index 7 is out of bounds for dimension 0 with size 3", X, ints(0, 7), torch=item),
    refuses("getitem", IndexError, "too many indices for tensor of dimension 3", X, (0, 0, 0, 0), torch=item),
    refuses("getitem", IndexError, "invalid index of a 0-dim tensor", t(), 0, torch=item),
    refuses("getitem", ValueError, "step must be greater than zero", X, slice(None, None, -1), torch=item),
    refuses("getitem", ValueError, "slice step cannot be zero", X, slice(None, None, 0), torch=item),
    refuses(
        "getitem",
        IndexError,
        "The shape of the mask [2] at index 0 does not match the shape of the indexed tensor [3, 4, 5] at index 0",
        X,
        mask(True, False),
        torch=item,
    ),
    refuses(
        "getitem",
        IndexError,
        "tensors used as indices must be long, int, byte or bool tensors",
        X,
        of(1.0, 2.0),
        torch=item,
    ),
    refuses(
        "getitem",
        IndexError,
        "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]",
        X,
        (ints(0, 1), ints(0, 1, 2)),
        torch=item,
    ),
    refuses("getitem", IndexError, "only integers, slices", X, 1.5, torch=item),
    refuses(
        "setitem_",
        IndexError,
        "index 5 is out of bounds for dimension 0 with size 3",
        t(3, grad=False),
        5,
        1.0,
        torch="Tensor.__setitem__",
    ),
    refuses("index_select", IndexError, "index out of range in self", t(3), 0, ints(3)),
    refuses("gather", RuntimeError, "index 5 is out of bounds for dimension 0 with size 3", t(3), 0, ints(5)),
    refuses(
        "gather", RuntimeError, "Index tensor must have the same number of dimensions as input tensor", X, 0, ints(1)
    ),
    refuses("scatter", RuntimeError, "Expected self.dtype to be equal to src.dtype", t(3), 0, ints(1), ints(1)),
    refuses("masked_select", RuntimeError, "expected BoolTensor", t(3), ints(1, 0, 1)),
    refuses(
        "index_add",
        RuntimeError,
        "Number of indices (2) should be equal to source.size(dim): (3)",
        t(3),
        0,
        ints(0, 1),
        t(3),
    ),
    refuses(
        "index_add",
        RuntimeError,
        "index_add_(): self (Float) and source (Long) must have the same scalar type",
        t(3),
        0,
        ints(0),
        ints(1),
    ),
    refuses(
        "index_copy",
        IndexError,
        "index_copy_(): Number of indices (2) should be equal to source.size(dim) (3)",
        t(3),
        0,
        ints(0, 1),
        t(3),
    ),
    refuses(
        "index_copy",
        RuntimeError,
        "expected to have the same dtype, but got (self) Float and (source) Long",
        t(3),
        0,
        ints(0),
        ints(1),
    ),
    refuses("index_copy", RuntimeError, "index_copy_(): Expected a long tensor for index, but got Float", V, 0, V, V),
    refuses("index_copy", RuntimeError, "Expected a long tensor for index, but got Int", V, 0, INT32, t(2)),
    refuses("index_copy", IndexError, "Index should have dimension 1 or 0 (got 2)", V, 0, ROW, t(1)),
    refuses("index_copy", IndexError, "When source is scalar, index should have one element (got 2)", V, 0, INT32, t()),
    refuses(
        "index_copy",
        IndexError,
        "dimensionality must match. Source dimensionality (2), destination dimensionality (1)",
        V,
        0,
        ints(0),
        t(1, 2),
    ),
    refuses(
        "index_copy",
        IndexError,
        "index_copy_(): index 5 is out of bounds for dimension 0 with size 5",
        V,
        0,
        ints(5),
        t(1),
    ),
    refuses(
        "index_copy",
        IndexError,
        "index_copy_(): index -1 is out of bounds for dimension 0 with size 5",
        V,
        0,
        ints(-1),
        t(1),
    ),
    refuses("index_add", RuntimeError, "index_add_(): Expected dtype int32/int64 for index but got: Float", V, 0, V, V),
    refuses(
        "index_add",
        IndexError,
        "index_add_(): Index is supposed to be a vector, but got dim: 2 with type: Long and size: [1, 1]",
        V,
        0,
        ROW,
        t(1),
    ),
    refuses(
        "index_reduce",
        RuntimeError,
        "index_reduce_(): Expected dtype int32/int64 for index but got",
        V,
        0,
        V,
        V,
        "prod",
    ),
    refuses("index_fill", IndexError, "index_fill_(): Expected dtype int64 for index.", V, 0, V, 1.0),
    refuses("index_fill", IndexError, "index_fill_(): Expected dtype int64 for index.", V, 0, INT32, 1.0),
    refuses("index_select", RuntimeError, "index_select(): Expected dtype int32 or int64 for index", V, 0, V),
]

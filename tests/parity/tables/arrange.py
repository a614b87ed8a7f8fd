"""Splitting at places, and arranging to larger tensors."""

from tests.parity.harness import case, edge, ints, refuses, s, t, torch

case("unsafe_split_with_sizes", s(t(6, 2), [1, 2, 3]), s(t(2, 6), [4, 2], 1))
case("split_with_sizes", s(t(6, 2), [1, 2, 3]), s(t(2, 6), [4, 2], 1), s(t(2, 6), [0, 6], dim=-1))
case(
    "tensor_split",
    s(t(7, 2), 3),
    s(t(2, 7), 4, 1),
    s(t(3), 5),
    s(t(7), [2, 4]),
    s(t(7), [1, -1]),
    s(t(7, 2), [4, 2, 9], dim=0),
    s(t(0, 3), 2),
)
case("hsplit", s(t(4), 2), s(t(3, 4), 2), s(t(3, 4), [1, 3]))
case("vsplit", s(t(4, 2), 2), s(t(4, 2), [1, 3]))
case("dsplit", s(t(2, 2, 4), 2), s(t(2, 2, 4), [1, 3]))
case("diagflat", s(t(3)), s(t(2, 2), 1), s(t(2), -2), s(t()), s(t(0)))
case(
    "block_diag",
    s([t(2, 3), t(3), t()]),
    s([t(2, 2)]),
    s([t(0, 2), t(2, 2)]),
    edge([t(2), t(2, dtype="float32"), ints(1, 2)]),
    torch=lambda tensors: torch.block_diag(*tensors),
)
case(
    "cartesian_prod",
    s([t(2), t(3)]),
    s([t(3)]),
    s([t(2), t(0), t(2)]),
    torch=lambda tensors: torch.cartesian_prod(*tensors),
    node=False,
)
case(
    "combinations",
    s(t(4)),
    s(t(3), 3),
    s(t(3), with_replacement=True),
    s(t(3), 0),
    s(t(2), 3),
    s(t(3), 1),
    node=False,
)
case(
    "index_reduce",
    [s(t(4, 3), 0, ints(0, 2, 0), t(3, 3), way) for way in ("prod", "mean", "amax", "amin")],
    [s(t(3, 4), 1, ints(0, 2, 0), t(3, 3), way, include_self=False) for way in ("prod", "mean", "amax", "amin")],
    s(t(4), -1, ints(3, 3), t(2), "mean"),
    edge(ints(5, 6), 0, ints(0, 0), ints(3, 3), "mean"),
    order=1,
    node=False,
)
case(
    "put",
    s(t(3, 4), ints(0, 5, 11), t(3)),
    s(t(3, 4), ints([0, -1], [3, 4]), t(2, 2)),
    s(t(4), ints(1, 1), t(2), accumulate=True),
    s(t(4), ints(1, 1), t(2), True),
    node=False,
)

REFUSALS = [
    refuses("tensor_split", RuntimeError, "number of sections must be larger than 0", t(3), 0),
    refuses("tensor_split", RuntimeError, "at least a 1-dimensional tensor", t(), 2),
    refuses("hsplit", RuntimeError, "is not divisible by the split_size", t(2, 4), 3),
    refuses("vsplit", RuntimeError, "requires a tensor with at least 2 dimension", t(3), 3),
    refuses("dsplit", RuntimeError, "requires a tensor with at least 3 dimension", t(3, 3), 3),
    refuses("split_with_sizes", RuntimeError, "expects split_sizes to sum exactly to 3", t(3), [1, 1]),
    refuses(
        "block_diag",
        RuntimeError,
        "must have 2 or fewer dimensions",
        [t(2, 2, 2)],
        torch=lambda tensors: torch.block_diag(*tensors),
    ),
    refuses("combinations", RuntimeError, "Expect a 1D vector", t(2, 2)),
    refuses("combinations", RuntimeError, "Expect a non-negative number", t(2), -1),
    refuses("put", IndexError, "out of", t(3), ints(3), t(1)),
    refuses("put", IndexError, "same number of elements", t(3), ints(0, 1), t(1)),
    refuses("put", RuntimeError, "same dtype", t(3), ints(0), t(1, dtype="float64")),
    refuses("index_reduce", RuntimeError, "Expected reduce to be one of", t(3), 0, ints(0), t(1), "sum"),
    refuses("index_reduce", IndexError, "index out of range in self", t(3), 0, ints(3), t(1), "prod"),
    refuses("index_reduce", RuntimeError, "should be equal to source.size(dim)", t(3), 0, ints(0), t(2), "prod"),
]

"""Views, shapes, joining, repeating, triangles, conversion."""

import importlib
from typing import Any

from tests.parity.harness import COMPLEX, D, case, complexes, edge, in_dtype, ints, of, refuses, s, t

F = t(4, 3, layout="F")
X = t(2, 3, 4)


def method(name: str) -> Any:
    """A method of PyTorch's tensors that is no function."""
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def attribute(name: str) -> Any:
    """An attribute of PyTorch's tensors."""
    return lambda x: getattr(x, name)


def spread(name: str) -> Any:
    """A function of PyTorch's that takes a list's tensors one by one."""
    return lambda tensors, **kwargs: getattr(importlib.import_module("torch"), name)(*tensors, **kwargs)


case(
    "reshape",
    s(X, (6, 4)),
    s(X, (-1,)),
    s(X, (2, -1)),
    s(t(), (1, 1)),
    s(t(1), ()),
    s(t(0, 3), (3, 0)),
    s(F, (12,)),
    s(t(3, 1, layout="F"), (3,)),
)
case("view", s(X, (6, 4)), s(X, (-1,)), s(t(), (1,)), s(t(0, 3), (0, 5)))
case("view_as", s(X, t(6, 4, grad=False)))
case("reshape_as", s(F, t(12, grad=False)))
case("flatten", s(X), s(X, 1), s(X, 0, 1), s(t()), s(F), s(t(3)))
case("ravel", s(X), s(F))
case("unflatten", s(X, 2, (2, 2)), s(X, -1, (2, -1)), torch=method("unflatten"))
case(
    "expand",
    s(t(3, 1), (3, 4)),
    s(t(3), (2, 3)),
    s(t(1, 3), (2, -1)),
    s(t(), (2, 2)),
    s(t(3, 1), (-1, 0)),
    torch=method("expand"),
)
case("broadcast_to", s(t(3, 1), (2, 3, 4)))
case("expand_as", s(t(3, 1), t(2, 3, 4, grad=False)))
case("sum_to_size", s(X, (3, 1)), s(X, (2, 1, 4)), s(X, (1,)), torch=method("sum_to_size"), node=False)
case("squeeze", s(t(1, 3, 1)), s(t(1, 3, 1), 0), s(t(1, 3, 1), 1), s(t(1, 3, 1), (0, -1)), s(t()), s(t(), 0))
case("unsqueeze", s(t(3, 4), 0), s(t(3, 4), -1), s(t(3, 4), 2), s(t(), 0))
case("permute", s(X, (2, 0, 1)), s(X, (-1, 0, 1)), s(t(), ()))
case("transpose", s(X, 0, 2), s(X, -1, 0), s(t(), 0, -1))
case("swapaxes", s(X, 0, 2))
case("swapdims", s(X, 0, 2))
case("t", s(t(3, 4)), s(t(3)), s(t()))
case("T", s(t(3, 4)), torch=attribute("T"))
case("mT", s(X), torch=attribute("mT"))
case("mH", s(X), in_dtype("float64", t(2, 3, dtype=COMPLEX)), torch=attribute("mH"), node=False)
case("H", s(t(3, 4)), in_dtype("float64", t(2, 3, dtype=COMPLEX)), torch=attribute("H"), node=False)
case("movedim", s(X, 0, 2), s(X, (0, 1), (2, 0)), s(X, -1, 0))
case("moveaxis", s(X, 0, 2))
case("select", s(X, 1, 2), s(X, -1, -1), s(t(3), 0, 1))
case("narrow", s(X, 1, 1, 2), s(X, -1, -3, 2), s(X, 0, 0, 0))
case("split", s(X, 2, 1), s(X, 3), s(X, (1, 3), 2), s(X, 3, -1), s(t(0, 2), 2), half=False)
case("chunk", s(X, 2), s(X, 3, 2), s(X, 5, 1))
case("unsafe_chunk", s(X, 2), s(X, 3, 2), s(X, 5, 1))
case("unsafe_split", s(X, 2), s(X, 3, 2))
case("unbind", s(X), s(X, -1), s(t(3)))
case("diagonal", s(t(3, 4)), s(t(3, 4), 1), s(X, -1, 0, 2), s(t(3, 3), 5))
case("diag", s(t(3)), s(t(3), -1), s(t(3, 4)), s(t(3, 4), 1))
case("diag_embed", s(t(3)), s(t(2, 3), 1), s(t(2, 3), -1, 0, 2))
case("tril", s(t(3, 4)), s(X, 1), s(t(3, 4), -1))
case("triu", s(t(3, 4)), s(X, 1), s(t(3, 4), -1))
case("clone", s(X), s(F), s(t()))
case("contiguous", s(F), s(X), s(t(2, 3, 2, 4)), s(t(1, 2, 2, 3, 2)), torch=method("contiguous"))
case("detach", s(X))
case("positive", s(X))

case(
    "cat",
    s([t(2, 3), t(1, 3)]),
    s([t(2, 3), t(2, 1)], 1),
    s([t(2, 3), t(2, 3)], -1),
    s([t(0), t(2, 3)]),
    edge([t(2), t(2, dtype="float64")]),
    in_dtype("float32", [ints(1, 2), t(2)]),
)
case("stack", s([t(2, 3), t(2, 3)]), s([t(2, 3), t(2, 3)], 1), s([t(2, 3), t(2, 3)], -1), s([t(), t()]))
case("hstack", s([t(2), t(3)]), s([t(2, 3), t(2, 1)]), s([t(), t()]), node=False)
case("vstack", s([t(3), t(2, 3)]), node=False)
case("dstack", s([t(2, 3), t(2, 3)]), s([t(3), t(3)]), node=False)
case("column_stack", s([t(3), t(3, 2)]), node=False)
case("broadcast_tensors", s([t(3, 1), t(4)]), torch=spread("broadcast_tensors"))
for _indexing in ("ij", "xy"):
    case(
        "meshgrid",
        s([t(2), t(3)], indexing=_indexing),
        s([t(2), t(3), t()], indexing=_indexing),
        node=False,
        torch=spread("meshgrid"),
    )
for _name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    case(_name, s(t()), s(t(3)), s(t(2, 3)), s(X), node=False)
case("flip", s(X, (0,)), s(X, (0, -1)), s(X, ()))
case("fliplr", s(t(2, 3)))
case("flipud", s(t(2, 3)))
case("roll", s(X, 1, 0), s(X, (1, -2), (0, 2)), s(X, 5), s(t(), 1))
case("rot90", s(t(2, 3)), s(t(2, 3), 2), s(t(2, 3), 3), s(X, -1, (0, 2)), s(t(2, 3), 4), node=False)
case("repeat", s(t(2, 3), (2, 1)), s(t(3), (2, 2, 1)), s(t(), (2,)), s(t(2, 3), (0, 1)), torch=method("repeat"))
case("tile", s(t(2, 3), (2,)), s(t(3), (2, 2)))
case("repeat_interleave", s(t(3, 2), 2), s(t(3, 2), 2, 1), s(t(3, 2), ints(1, 0, 2), 0), s(t(3), ints(2)), node=False)
case("one_hot", s(ints(0, 2, 1), 3), s(ints(0, 2, 1)), s(ints([0, 1], [2, 0]), 4), half=False)

case(
    "to",
    s(X),
    edge(t(3, dtype="float32"), D("float64")),
    edge(t(3), D("int64")),
    edge(t(3), D("float16")),
    torch=lambda x, dtype=None: x.to(dtype),
)
case("to", s(X, copy=True), torch=method("to"))
case("type_as", edge(t(3, dtype="float32"), t(3, dtype="float64", grad=False)))
C = t(3, dtype=COMPLEX)
case("real", in_dtype("float64", C), s(t(3)), half=False)
case("imag", in_dtype("float64", C), half=False)
case("conj", complexes(), s(t(3)), half=False, node=False)
case("resolve_conj", complexes(), half=False)
case("complex", s(t(3), t(3)), half=False)
case("polar", s(t(3, low=0.5), t(3)), half=False, node=False)
case("angle", complexes(), s(t(3)), edge(of(0.0, -1.0, float("nan"))), half=False)
case("view_as_real", complexes(), half=False)
case("view_as_complex", s(t(3, 2)), half=False)

EXCEPTIONS = dict.fromkeys(
    ("make_dual", "dual_primal", "dual_tangent", "exit_dual_level"),
    "forward mode: tests/client/test_forward_ad.py and tests/parity/test_tangents.py compare what is made of it",
) | {"take_geometry": "has no counterpart in PyTorch: tests/client/test_in_place_views.py compares what is made of it"}

REFUSALS = [
    refuses("reshape", RuntimeError, "shape '[2, 3]' is invalid for input of size 5", t(5), (2, 3)),
    refuses("reshape", RuntimeError, "only one dimension can be inferred", t(6), (-1, -1)),
    refuses("reshape", RuntimeError, "cannot reshape tensor of 0 elements into shape [0, -1]", t(0), (0, -1)),
    refuses("view", RuntimeError, "view size is not compatible with input tensor's size and stride", F, (12,)),
    refuses("expand", RuntimeError, "must match the existing size", t(3), (4,), torch=method("expand")),
    refuses("permute", RuntimeError, "is not equal to len(dims)", X, (0, 1)),
    refuses("permute", RuntimeError, "duplicate dims are not allowed", X, (0, 1, 1)),
    refuses("transpose", IndexError, "Dimension out of range (expected to be in range of [-3, 2], but got 3)", X, 0, 3),
    refuses("t", RuntimeError, "t() expects a tensor with <= 2 dimensions, but self is 3D", X),
    refuses("squeeze", IndexError, "Dimension out of range", X, 3),
    refuses("unsqueeze", IndexError, "Dimension out of range (expected to be in range of [-4, 3], but got 4)", X, 4),
    refuses("flatten", RuntimeError, "start_dim cannot come after end_dim", X, 2, 1),
    refuses(
        "unflatten",
        RuntimeError,
        "don't multiply up to the size of dim 2 (4) in the input tensor",
        X,
        2,
        (3, 2),
        torch=method("unflatten"),
    ),
    refuses(
        "unflatten",
        RuntimeError,
        "unflatten got an unexpected error:\nDimension specified as 0 but tensor has no dimensions",
        t(),
        0,
        (1,),
        torch=method("unflatten"),
    ),
    refuses("diag_embed", IndexError, "Dimension out of range (expected to be in range of [-1, 0], but got -2)", t()),
    refuses("diag_embed", RuntimeError, "diagonal dimensions cannot be identical 0, -1", t(), 0, 0, -1),
    refuses("select", IndexError, "out of", X, 1, 3),
    refuses("narrow", RuntimeError, "exceeds dimension size (3)", X, 1, 1, 3),
    refuses("narrow", RuntimeError, "length must be non-negative", X, 1, 1, -1),
    refuses("split", RuntimeError, "split_with_sizes expects split_sizes to sum exactly to 3", X, (1, 1), 1),
    refuses("chunk", RuntimeError, "to be greater than 0, got: 0", X, 0),
    refuses(
        "cat",
        RuntimeError,
        "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4 for tensor number 1 in the",
        [t(2, 3), t(2, 4)],
    ),
    refuses("cat", RuntimeError, "Tensors must have same number of dimensions: got 2 and 1", [t(2, 3), t(3)]),
    refuses("cat", RuntimeError, "zero-dimensional tensor (at position 0) cannot be concatenated", [t(), t()]),
    refuses(
        "stack",
        RuntimeError,
        "stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at entry 1",
        [t(2), t(3)],
    ),
    refuses("diagonal", RuntimeError, "diagonal dimensions cannot be identical", X, 0, 1, 1),
    refuses(
        "repeat",
        RuntimeError,
        "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
        X,
        (2,),
        torch=method("repeat"),
    ),
    refuses(
        "repeat", RuntimeError, "Trying to create tensor with negative dimension", t(3), (-1,), torch=method("repeat")
    ),
    refuses("tril", RuntimeError, "must have at least 2 dimensions", t(3)),
    refuses("one_hot", RuntimeError, "Class values must be smaller than num_classes", ints(0, 3), 3),
    refuses("one_hot", RuntimeError, "Class values must be non-negative", ints(0, -1), 3),
    refuses("imag", RuntimeError, "imag is not implemented for tensors with non-complex dtypes", t(3)),
    refuses(
        "meshgrid",
        RuntimeError,
        'indexing must be one of "xy" or "ij"',
        [t(2), t(2)],
        indexing="ji",
        torch=spread("meshgrid"),
    ),
    refuses(
        "split",
        RuntimeError,
        "sum exactly to 5 (input tensor's size at dimension 0), but got split_sizes=[1, 1]",
        t(5),
        [1, 1],
    ),
    refuses(
        "split", RuntimeError, "split_sizes have only non-negative entries, but got split_sizes=[6, -1]", t(5), [6, -1]
    ),
    refuses("split", TypeError, "argument 'split_sizes' (position 2) must be tuple of ints, not float", t(5), 2.5),
    refuses("split", TypeError, "argument 'split_sizes' failed to unpack the object at pos 2", t(5), [4, 1.0]),
]

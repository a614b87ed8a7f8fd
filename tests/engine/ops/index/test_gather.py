"""Taking and putting along one dimension: repeated places add up, wrong ones are named."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.ops.index import gather
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch

X, WHERE = normal(3, 4), integers(0, 3, 2, 4)
LINE = given([2, 0, 2], "int64", False)
DISTINCT = given([[0, 2, 1, 0], [1, 0, 2, 2]], "int64", False)
SAME = [
    same(gather.index_select, torch.index_select, X, 1, LINE),
    same(gather.index_select, torch.index_select, X, -2, given([1], "int32", False)),
    same(gather.index_select, torch.index_select, normal(), 0, given([0], "int64", False)),
    same(gather.index_add, torch.index_add, X, 0, LINE, normal(3, 4), alpha=-2.0),
    same(gather.index_copy, torch.index_copy, X, 1, given([3, 1], "int64", False), normal(3, 2)),
    same(gather.index_fill, torch.index_fill, X, 1, LINE, 7.0),
    same(gather.index_fill, torch.index_fill, X, 1, LINE, normal()),
    same(gather.gather, torch.gather, X, 0, WHERE),
    same(gather.gather, torch.gather, X, 1, integers(0, 4, 3, 6)),
    same(gather.gather, torch.gather, normal(4), 0, integers(0, 4, 0)),
    same(gather.scatter, torch.scatter, X, 0, DISTINCT, normal(2, 4)),
    same(gather.scatter, torch.scatter, X, 0, DISTINCT, value=2.0),
    same(gather.scatter, torch.scatter, X, 0, DISTINCT, normal(5, 6).constant),
    same(gather.scatter_add, torch.scatter_add, X, 0, WHERE, normal(2, 4)),
    same(gather.take_along_dim, torch.take_along_dim, X, integers(0, 4, 1, 3), 1),
    same(gather.take_along_dim, torch.take_along_dim, X, integers(0, 12, 5)),
    same(gather.take, torch.take, X, integers(-12, 12, 2, 3)),
    same(gather.masked_select, torch.masked_select, X, bools(4)),
    same(gather.nonzero, torch.nonzero, bools(3, 4)),
    same(gather.nonzero, torch.nonzero, bools(3, 4), as_tuple=True),
    same(gather.argwhere, torch.argwhere, integers(0, 2, 4)),
    same(gather.repeat_interleave, torch.repeat_interleave, X, 2),
    same(gather.repeat_interleave, torch.repeat_interleave, X, given([0, 3, 1], "int64", False), 0),
]
FAR = given([3], "int64", False)
REFUSED = [
    refused(
        gather.gather,
        Reason.RUNTIME,
        "index -1 is out of bounds for dimension 0 with size 1",
        normal(),
        0,
        given(-1, "int64", False),
        theirs=torch.gather,
    ),
    refused(
        gather.index_select,
        Reason.INDEX_OUT_OF_RANGE,
        "index 4 is out of bounds for dimension 1 with size 4",
        X,
        1,
        given([4], "int64"),
        theirs=torch.index_select,
    ),
    refused(
        gather.index_select,
        Reason.INDEX_OUT_OF_RANGE,
        "index out of range",
        X,
        1,
        given([-1], "int64"),
        theirs=torch.index_select,
    ),
    refused(gather.index_select, Reason.RUNTIME, "int32 or int64", X, 1, normal(1), theirs=torch.index_select),
    refused(
        gather.index_select,
        Reason.INDEX_OUT_OF_RANGE,
        "supposed to be a vector",
        X,
        1,
        integers(0, 1, 1, 1),
        theirs=torch.index_select,
    ),
    refused(gather.index_select, Reason.DIM_OUT_OF_RANGE, "but got 2", X, 2, LINE, theirs=torch.index_select),
    refused(
        gather.index_add,
        Reason.RUNTIME,
        "Number of indices (3) should be equal to source.size(dim): (2)",
        X,
        0,
        LINE,
        normal(2, 4),
        theirs=torch.index_add,
    ),
    refused(
        gather.index_add,
        Reason.RUNTIME,
        "same scalar type",
        X,
        0,
        LINE,
        normal(3, 4, dtype="float32"),
        theirs=torch.index_add,
    ),
    refused(gather.index_copy, Reason.RUNTIME, "same slice shapes", X, 0, LINE, normal(3, 5), theirs=torch.index_copy),
    refused(gather.index_fill, Reason.RUNTIME, "1 dimension(s)", X, 0, LINE, normal(2), theirs=torch.index_fill),
    refused(
        gather.gather,
        Reason.RUNTIME,
        "index 3 is out of bounds for dimension 0 with size 3",
        X,
        0,
        integers(3, 4, 1, 4),
        theirs=torch.gather,
    ),
    refused(gather.gather, Reason.RUNTIME, "same number of dimensions", X, 0, FAR, theirs=torch.gather),
    refused(gather.gather, Reason.RUNTIME, "apart from dimension 0", X, 0, integers(0, 1, 1, 5), theirs=torch.gather),
    refused(gather.scatter, Reason.ARGUMENT_TYPE, "'src'", X, 0, DISTINCT),
    refused(
        gather.scatter,
        Reason.RUNTIME,
        "equal to src.dtype",
        X,
        0,
        DISTINCT,
        normal(2, 4, dtype="float32"),
        theirs=torch.scatter,
    ),
    refused(
        gather.scatter_add,
        Reason.RUNTIME,
        "no larger than src [1, 4]",
        X,
        0,
        WHERE,
        normal(1, 4),
        theirs=torch.scatter_add,
    ),
    refused(
        gather.take,
        Reason.RUNTIME,
        "Expected a long tensor for index, but got Int",
        X,
        given([1], "int32"),
        theirs=torch.take,
    ),
    refused(
        gather.take_along_dim,
        Reason.RUNTIME,
        "should be Long but got Int",
        X,
        given([[1]], "int32"),
        1,
        theirs=torch.take_along_dim,
    ),
    refused(gather.masked_select, Reason.RUNTIME, "BoolTensor", X, integers(0, 2, 3, 4), theirs=torch.masked_select),
    refused(
        gather.repeat_interleave,
        Reason.RUNTIME,
        "can not be negative",
        X,
        given([-1, 1, 1], "int64"),
        0,
        theirs=torch.repeat_interleave,
    ),
    refused(
        gather.repeat_interleave,
        Reason.RUNTIME,
        "same size as input along dim",
        X,
        given([1, 1], "int64"),
        0,
        theirs=torch.repeat_interleave,
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_the_adjoint_of_gather_adds_what_falls_on_one_place() -> None:
    found = gather.gather_backward(np.array([1.0, 2.0, 4.0]), 0, np.array([1, 1, 0]), (3,))
    assert found.tolist() == [4.0, 3.0, 0.0]
    assert gather.put_along(np.array([1.0, 2.0]), 0, np.array([2, 0]), (3,)).tolist() == [2.0, 0.0, 1.0]


def test_flat_places_are_those_of_the_flattened_tensor() -> None:
    index = np.array([[2, 0, 1, 1]])
    places = gather.flat_places(np, "gather", (3, 4), 0, index)
    flat = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(places, np.take_along_axis(flat, index, 0))


def test_a_source_larger_than_its_index_is_cut_to_it() -> None:
    src, index = tensor(np.arange(6.0).reshape(2, 3)), tensor(np.zeros((1, 2), np.int64))
    assert gather.source_part(src, index).array.tolist() == [[0.0, 1.0]]
    assert gather.source_part(src, tensor(np.zeros((2, 3), np.int64))) is src
    assert gather.source_part(5.0, index) == 5.0

"""Views and shapes: what shares memory, what is copied, and gradients that undo the view."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.shape import shape
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

X, Z = normal(2, 3, 4), normal(2, 3, dtype="complex128")
RUN, OUT = Reason.RUNTIME, Reason.INDEX_OUT_OF_RANGE
T = torch.Tensor
SAME = [
    same(shape.reshape, torch.reshape, X, (4, -1)),
    same(lambda x: shape.reshape(shape.transpose(x, 0, 2), (-1,)), lambda x: x.transpose(0, 2).reshape(-1), X),
    same(shape.view, T.view, X, (6, 4)),
    same(shape.view, T.view, normal(0, 3), (3, 0, 2)),
    same(shape.view_as, T.view_as, X, normal(6, 4).constant),
    same(shape.reshape_as, T.reshape_as, X, normal(24).constant),
    same(shape.flatten, torch.flatten, X, 1),
    same(shape.flatten, torch.flatten, normal()),
    same(shape.ravel, torch.ravel, X),
    same(shape.unflatten, torch.unflatten, X, -1, (2, -1)),
    same(shape.broadcast_to, torch.broadcast_to, normal(3, 1), (2, 3, 4)),
    same(shape.expand_as, T.expand_as, normal(3, 1), X.constant),
    same(shape.squeeze, torch.squeeze, normal(1, 3, 1)),
    same(shape.squeeze, torch.squeeze, normal(1, 3, 1), -1),
    same(shape.squeeze, torch.squeeze, normal(1, 3, 1), (0, 1)),
    same(shape.unsqueeze, torch.unsqueeze, X, -1),
    same(shape.permute, torch.permute, X, (2, -3, 1)),
    same(shape.transpose, torch.transpose, X, 0, -1),
    same(shape.t, torch.t, normal(2, 3)),
    same(shape.t, torch.t, normal(3)),
    same(shape.swapaxes, torch.swapaxes, X, 1, 2),
    same(shape.swapdims, torch.swapdims, X, 1, 2),
    same(shape.T, lambda x: x.T, normal(2, 3)),
    same(shape.mT, lambda x: x.mT, X),
    same(shape.mH, lambda x: x.mH, Z),
    same(shape.H, lambda x: x.H, Z),
    same(shape.movedim, torch.movedim, X, (0, 1), (-1, 0)),
    same(shape.moveaxis, torch.moveaxis, X, 2, 0),
    same(shape.select, torch.select, X, 1, -1),
    same(shape.slice_, lambda x, dim, a, b, step: x[:, a:b:step], X, 1, 0, 3, 2),
    same(shape.narrow, torch.narrow, X, 2, -3, 2),
    same(shape.split, torch.split, X, 3, 2),
    same(shape.split, torch.split, X, [1, 0, 3], -1),
    same(shape.chunk, torch.chunk, normal(5, 2), 3),
    same(shape.chunk, torch.chunk, normal(2), 5),
    same(shape.unbind, torch.unbind, X, 1),
    same(shape.diagonal, torch.diagonal, X, 1, 1, 2),
    same(shape.diagonal, torch.diagonal, X, -9),
    same(shape.clone, torch.clone, X),
    same(shape.contiguous, lambda x: x.contiguous(), X),
    same(shape.view_as_real, torch.view_as_real, Z),
    same(shape.view_as_complex, torch.view_as_complex, normal(3, 2)),
    same(shape.view_dtype, lambda x, dtype: x.view(dtype), given([1.0, -2.0], "float32", False), dtypes.int32),
    same(shape.view_dtype, lambda x, dtype: x.view(dtype), integers(0, 255, 2, 8, dtype="uint8"), dtypes.int64),
    same(shape.view_dtype, lambda x, dtype: x.view(dtype), integers(0, 255, 2, 3), dtypes.int16),
]
REFUSED = [
    refused(shape.squeeze, Reason.RUNTIME, "appears multiple times", normal(1, 3), (0, -2), theirs=torch.squeeze),
    refused(shape.reshape, Reason.SHAPE, "'[5, 5]' is invalid for input of size 24", X, (5, 5), theirs=torch.reshape),
    refused(shape.reshape, Reason.SHAPE, "only one dimension can be inferred", X, (-1, -1), theirs=torch.reshape),
    refused(shape.reshape, Reason.SHAPE, "ambiguous", normal(0), (-1, 0), theirs=torch.reshape),
    refused(shape.reshape, Reason.SHAPE, "invalid shape dimension -2", X, (-2, 2), theirs=torch.reshape),
    refused(
        lambda x: shape.view(shape.transpose(x, 0, 2), (24,)),
        RUN,
        "stride",
        X,
        theirs=lambda x: x.transpose(0, 2).view(24),
    ),
    refused(
        shape.view_dtype, RUN, "divisible by 4", given([1, 2], "int16"), dtypes.int64, theirs=lambda x, d: x.view(d)
    ),
    refused(shape.view_dtype, RUN, "cannot be 0", given(1, "int16"), dtypes.int64, theirs=lambda x, d: x.view(d)),
    refused(shape.flatten, RUN, "start_dim cannot come after", X, 2, 1, theirs=torch.flatten),
    refused(
        shape.unflatten, RUN, "[2, 3] don't multiply up to the size of dim 2 (4)", X, 2, (2, 3), theirs=torch.unflatten
    ),
    refused(shape.permute, RUN, "duplicate dims", X, (0, 0, 1), theirs=torch.permute),
    refused(shape.permute, RUN, "length of the desired order", X, (0, 1), theirs=torch.permute),
    refused(shape.transpose, Reason.DIM_OUT_OF_RANGE, "but got 3", X, 0, 3, theirs=torch.transpose),
    refused(shape.t, RUN, "self is 3D", X, theirs=torch.t),
    refused(shape.H, RUN, "Got 3-D", X, theirs=lambda x: x.H),
    refused(shape.mT, RUN, "Got 1-D", normal(2), theirs=lambda x: x.mT),
    refused(shape.movedim, RUN, "repeated dim", X, (0, 0), (1, 2), theirs=torch.movedim),
    refused(shape.select, OUT, "index 3 is out of bounds for dimension 1 with size 3", X, 1, 3, theirs=torch.select),
    refused(shape.select, OUT, "0-dim", normal(), 0, 0, theirs=torch.select),
    refused(shape.slice_, Reason.ARGUMENT_VALUE, "greater than zero", X, 0, 0, 2, -1),
    refused(shape.narrow, RUN, "start (1) + length (4) exceeds dimension size (4)", X, 2, 1, 4, theirs=torch.narrow),
    refused(shape.narrow, OUT, "range of [-4, 4], but got 5", X, 2, 5, 0, theirs=torch.narrow),
    refused(shape.split, RUN, "sum exactly to 4", X, [1, 2], 2, theirs=torch.split),
    refused(shape.split, RUN, "split_size=-1", X, -1, theirs=torch.split),
    refused(shape.chunk, RUN, "got: 0", X, 0, theirs=torch.chunk),
    refused(shape.unbind, OUT, "no dimensions", normal(), theirs=torch.unbind),
    refused(shape.diagonal, RUN, "identical 1, 1", X, 0, 1, 1, theirs=torch.diagonal),
    refused(shape.view_as_real, RUN, "complex", X, theirs=torch.view_as_real),
    refused(shape.view_as_complex, RUN, "last dimension of size 2", X, theirs=torch.view_as_complex),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


VIEWS = {
    "reshape": lambda x: shape.reshape(x, (4, 6)),
    "permute": lambda x: shape.permute(x, (2, 0, 1)),
    "select": lambda x: shape.select(x, 1, 1),
    "slice": lambda x: shape.slice_(x, 2, 1, 3, 1),
    "diagonal": lambda x: shape.diagonal(x, 0, 1, 2),
    "unsqueeze": lambda x: shape.unsqueeze(x, 0),
    "alias": shape.alias,
    "split": lambda x: shape.split(x, 2, 2)[1],
    "detach": shape.detach,
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shares_memory_and_storage_with_its_base(name: str) -> None:
    x = tensor(np.zeros((2, 3, 4)))
    view = VIEWS[name](x)
    view.array[...] = 1.0
    assert x.array.any()
    assert view.storage is x.storage


def test_what_need_not_change_is_returned_itself_and_a_clone_never() -> None:
    x = tensor(np.zeros((2, 3)))
    assert shape.contiguous(x) is x
    assert not np.shares_memory(shape.contiguous(shape.transpose(x, 0, 1)).array, x.array)
    assert not np.shares_memory(shape.clone(x).array, x.array)


@pytest.mark.parametrize(("size", "found"), [((2, -1), (2, 6)), (12, (12,)), ((3, 4), (3, 4)), ((-1,), (12,))])
def test_the_open_size_follows_from_the_count(size, found: tuple) -> None:
    assert shape.infer_size(size, 12) == found


def test_a_detached_tensor_has_left_the_graph_and_in_place_the_tensor_itself() -> None:
    x = tensor(np.ones(2), True) * 2.0
    assert not shape.detach(x).requires_grad
    assert x.requires_grad
    shape.detach.in_place((x,))
    assert (x.requires_grad, x.grad_fn) == (False, None)


def test_an_index_past_the_end_is_refused_and_a_slice_past_it_is_cut() -> None:
    array = np.arange(4.0)
    assert shape.slice_(array, 0, 2, 99, 1).tolist() == [2, 3]
    assert shape.slice_(array, 0, 9, 12, 1).tolist() == []
    with pytest.raises(EngineError):
        shape.select(array, 0, 4)
    assert shape.at(np.arange(6).reshape(2, 3), 1, 2).tolist() == [2, 5]


def test_the_gradient_of_a_part_is_zero_elsewhere() -> None:
    x = tensor(np.ones((2, 3)), True)
    (found,), _ = gradients([shape.select(x, 1, 2)], [x], [tensor(np.array([5.0, 7.0]))])
    assert found.array.tolist() == [[0, 0, 5], [0, 0, 7]]
    assert shape.diagonal_backward(np.array([1.0, 2.0]), (2, 3), 1, 0, 1).tolist() == [[0, 1, 0], [0, 0, 2]]

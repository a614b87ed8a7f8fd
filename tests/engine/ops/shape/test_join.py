"""Tensors joined, repeated, turned and cut to triangles."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.ops.shape import join
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch

X = normal(3, 4)
STACKS = ("hstack", "vstack", "dstack", "column_stack")
SAME = [
    same(join.cat, torch.cat, [X, normal(2, 4)]),
    same(join.cat, torch.cat, [X, normal(3, 1), normal(3, 0)], -1),
    same(join.cat, torch.cat, [normal(0).constant, X]),
    same(join.cat, torch.cat, [integers(0, 3, 2), normal(2)]),
    same(join.stack, torch.stack, [X, X, X], -1),
    same(join.stack, torch.stack, [normal(), normal()]),
    same(join.flip, torch.flip, X, (0, -1)),
    same(join.fliplr, torch.fliplr, X),
    same(join.flipud, torch.flipud, normal(4)),
    same(join.roll, torch.roll, X, (1, -2), (0, 1)),
    same(join.roll, torch.roll, X, 5),
    *(same(join.rot90, torch.rot90, X, k) for k in range(-1, 5)),
    same(join.rot90, torch.rot90, normal(2, 3, 4), 1, (2, 0)),
    same(join.repeat, torch.Tensor.repeat, X, (2, 1, 3)),
    same(join.repeat, torch.Tensor.repeat, X, (0, 2)),
    same(join.tile, torch.tile, X, (2,)),
    same(join.tile, torch.tile, X, (2, 1, 2)),
    *(
        same(getattr(join, name), getattr(torch, name), normal(2, 3, 4), k)
        for name in ("tril", "triu")
        for k in (-1, 0, 2)
    ),
    same(join.diag_embed, torch.diag_embed, normal(2, 3)),
    same(join.diag_embed, torch.diag_embed, normal(2, 3), -1, 0, 2),
    same(join.diag, torch.diag, normal(3), 1),
    same(join.diag, torch.diag, X, -1),
    same(join.broadcast_tensors, lambda parts: torch.broadcast_tensors(*parts), [normal(3, 1), normal(4), normal()]),
    same(
        join.meshgrid,
        lambda parts, **more: torch.meshgrid(*parts, **more),
        [normal(2), normal(3), normal()],
        indexing="ij",
    ),
    same(join.meshgrid, lambda parts, **more: torch.meshgrid(*parts, **more), [normal(2), normal(3)], indexing="xy"),
    *(
        same(getattr(join, f"atleast_{n}d"), getattr(torch, f"atleast_{n}d"), normal(*shape))
        for n in (1, 2, 3)
        for shape in ((), (2,), (2, 3), (2, 3, 4))
    ),
    *(same(getattr(join, name), getattr(torch, name), [normal(3), normal(3)]) for name in STACKS),
    *(same(getattr(join, name), getattr(torch, name), [normal(2, 3), normal(2, 3)]) for name in STACKS),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(join.cat, RUN, "Expected size 4 but got size 5 for tensor number 1", [X, normal(2, 5)], theirs=torch.cat),
    refused(join.cat, RUN, "got 2 and 1", [X, normal(4)], theirs=torch.cat),
    refused(join.cat, RUN, "(at position 1)", [normal(2), normal()], theirs=torch.cat),
    refused(join.cat, Reason.ARGUMENT_VALUE, "non-empty list", [], theirs=torch.cat),
    refused(join.cat, Reason.DIM_OUT_OF_RANGE, "but got 2", [X, X], 2, theirs=torch.cat),
    refused(join.stack, RUN, "[3, 4] at entry 0 and [4] at entry 1", [X, normal(4)], theirs=torch.stack),
    refused(join.stack, RUN, "non-empty", [], theirs=torch.stack),
    refused(join.fliplr, RUN, ">= 2-d", normal(2), theirs=torch.fliplr),
    refused(join.roll, RUN, "shifts: 2, dims:1", X, (1, 2), (0,), theirs=torch.roll),
    refused(join.rot90, RUN, "dims = 3", X, 1, (0, 1, 1), theirs=torch.rot90),
    refused(join.rot90, RUN, "to be different", X, 1, (0, 0), theirs=torch.rot90),
    refused(join.repeat, RUN, "can not be smaller", X, (2,), theirs=torch.Tensor.repeat),
    refused(join.repeat, RUN, "negative dimension -3: [-3, 8]", X, (-1, 2), theirs=torch.Tensor.repeat),
    refused(join.tril, RUN, "at least 2 dimensions", normal(3), theirs=torch.tril),
    refused(join.diag, RUN, "Got 3D", normal(1, 1, 1), theirs=torch.diag),
    refused(join.diag_embed, RUN, "identical 0, 0", normal(3), 0, 0, 0, theirs=torch.diag_embed),
    refused(join.meshgrid, RUN, "but received: yx", [normal(2)], indexing="yx"),
    refused(join.meshgrid, RUN, "0D or 1D", [X]),
    refused(join.hstack, RUN, "non-empty", [], theirs=torch.hstack),
    refused(join.vstack, RUN, "non-empty", [], theirs=torch.vstack),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("function", [join.tril, join.triu])
def test_triangles_in_place_write_into_the_tensor(function) -> None:
    x = tensor(np.ones((2, 2)))
    array = x.array
    function.in_place((x, 0))
    assert array.sum() == 3


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)], ids=str)
def test_dimensions_are_added_by_pytorchs_nodes(shape: tuple[int, ...], dims: int) -> None:
    theirs = getattr(torch, f"atleast_{dims}d")(torch.ones(shape, requires_grad=True))
    ours = getattr(join, f"atleast_{dims}d")(tensor(np.ones(shape), True))
    assert (None if ours.grad_fn is None else ours.grad_fn.name) == (
        None if theirs.grad_fn is None else theirs.grad_fn.name()
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(3, 4), (5,), (0, 2), (1,)])
def test_a_stack_of_matrices_is_row_major_whatever_they_are(dtype: type, shape: tuple[int, ...]) -> None:
    drawn = np.random.default_rng(0).standard_normal((4, *shape)).astype(dtype)
    for given in (list(drawn), [np.asfortranarray(each) for each in drawn], [drawn[0], np.asfortranarray(drawn[1])]):
        made, expected = join.stack([tensor(each) for each in given]).array, np.stack(given).copy(order="C")
        assert made.tobytes() == expected.tobytes()
        assert (made.dtype, made.shape, made.strides) == (expected.dtype, expected.shape, expected.strides)
        assert made.base is None


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1), (3, 1, 0, 2)], ids=str)
def test_columns_are_joined_row_by_row(order) -> None:
    part = tensor(np.arange(120.0).reshape(2, 3, 4, 5)[(0,) * (4 - len(order))].transpose(order))
    for dim in range(len(order)):
        assert join.cat([part, part], dim).array.flags.c_contiguous
        assert join.stack([part, part], dim).array.flags.c_contiguous


def test_images_with_channels_last_are_joined_as_such() -> None:
    part = tensor(np.arange(120.0).reshape(2, 3, 4, 5).transpose(0, 3, 1, 2))
    for dim in range(4):
        assert join.cat([part, part], dim).array.transpose(0, 2, 3, 1).flags.c_contiguous

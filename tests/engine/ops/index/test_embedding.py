"""Rows looked up in a table, their gradients added up, and one-hot rows."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, tensor
from gradwire_engine.ops.base import index_accumulation
from gradwire_engine.ops.index import embedding
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

F = torch.nn.functional
ROWS = integers(0, 5, 3, 4)
SAME = [
    same(embedding.embedding, F.embedding, ROWS, normal(5, 3)),
    same(embedding.embedding, F.embedding, given([1, 1, 2, 0], "int64", False), normal(5, 3), 1, smooth=False),
    same(embedding.embedding, F.embedding, given([1, 4, 2, 1], "int32", False), normal(5, 3), -1, smooth=False),
    same(
        embedding.embedding,
        F.embedding,
        given([1, 1, 1, 0], "int64", False),
        normal(5, 3),
        scale_grad_by_freq=True,
        smooth=False,
    ),
    same(embedding.embedding, F.embedding, integers(0, 5, 0), normal(5, 3)),
    same(embedding.one_hot, F.one_hot, integers(0, 4, 2, 3)),
    same(embedding.one_hot, F.one_hot, integers(0, 4, 2, 3), 6),
    same(embedding.one_hot, F.one_hot, integers(0, 4, 0), 3),
]
REFUSED = [
    refused(
        embedding.embedding,
        Reason.INDEX_OUT_OF_RANGE,
        "the table has 5 rows",
        given([5], "int64"),
        normal(5, 3),
        theirs=F.embedding,
    ),
    refused(
        embedding.embedding,
        Reason.INDEX_OUT_OF_RANGE,
        "the table has 5 rows",
        given([-1], "int64"),
        normal(5, 3),
        theirs=F.embedding,
    ),
    refused(embedding.embedding, Reason.RUNTIME, "'weight' must be 2-D", ROWS, normal(5), theirs=F.embedding),
    refused(
        embedding.embedding, Reason.RUNTIME, "Long, Int; but got Double", normal(2), normal(5, 3), theirs=F.embedding
    ),
    refused(embedding.embedding, Reason.ARGUMENT_VALUE, "within num_embeddings", ROWS, normal(5, 3), 5),
    refused(embedding.embedding, Reason.NOT_SUPPORTED, "use sparse=False", ROWS, normal(5, 3), sparse=True),
    refused(embedding.one_hot, Reason.RUNTIME, "LongTensor", normal(2), theirs=F.one_hot),
    refused(embedding.one_hot, Reason.RUNTIME, "smaller than num_classes", given([3], "int64"), 3, theirs=F.one_hot),
    refused(embedding.one_hot, Reason.RUNTIME, "non-negative", given([-1], "int64"), 3, theirs=F.one_hot),
    refused(embedding.one_hot, Reason.RUNTIME, "empty tensor", integers(0, 1, 0), theirs=F.one_hot),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("norm_type", [1.0, 2.0])
def test_rows_that_are_looked_up_are_shortened_in_place_and_no_others(norm_type: float) -> None:
    array = np.random.default_rng(2).standard_normal((4, 3)) * 3
    table, expected = tensor(array.copy()), torch.tensor(array)
    found = embedding.embedding(tensor(np.array([2, 0, 2])), table, max_norm=1.5, norm_type=norm_type)
    theirs = F.embedding(torch.tensor([2, 0, 2]), expected, max_norm=1.5, norm_type=norm_type)
    np.testing.assert_allclose(found.array, theirs.numpy(), rtol=1e-9)
    np.testing.assert_allclose(table.array, expected.numpy(), rtol=1e-9)
    assert (table.array[1] == array[1]).all()


def test_an_index_out_of_range_shortens_nothing() -> None:
    table = tensor(np.full((2, 2), 9.0))
    with pytest.raises(EngineError, match="the table has 2 rows"):
        embedding.embedding(tensor(np.array([0, 2])), table, max_norm=1.0)
    assert (table.array == 9.0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_rows_are_added_as_scipy_adds_them(dtype, monkeypatch):
    rng = np.random.default_rng(0)
    rows, places = rng.standard_normal((600, 9)).astype(dtype), rng.integers(0, 40, 600)
    weights = rng.random(600).astype(dtype)
    added = index_accumulation.add_weighted_rows(rows[:, ::2], places, weights, 40)
    monkeypatch.setattr(index_accumulation, "_sparse_product", lambda: None)
    expected = index_accumulation.add_weighted_rows(np.ascontiguousarray(rows[:, ::2]), places, weights, 40)
    np.testing.assert_array_equal(added, expected)
    one_hot = np.eye(40, dtype=dtype)[places] * weights[:, None]
    np.testing.assert_allclose(added, one_hot.T @ rows[:, ::2], rtol=1e-3, atol=1e-4)


def test_an_index_of_the_gradient_out_of_range_is_refused():
    grad = np.ones((2, 3), np.float32)
    with pytest.raises(EngineError, match="out of range"):
        embedding._embedding_backward.forward(np, grad, np.array([0, 4]), 4, -1, False)

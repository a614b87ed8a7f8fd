"""A node lists the edges that PyTorch's node has."""

from typing import Any

import numpy as np
import pytest

from gradwire_engine import REGISTRY, Tensor, tensor
from gradwire_engine.autograd.listed_edges import edges_of, listed_edges


def _node(name: str, *args: Any) -> Any:
    op = REGISTRY[name]
    return op.apply(op.bind(args, {})).node


def _leaf(*shape: int) -> Tensor:
    return tensor(np.ones(shape), requires_grad=True)


def test_an_index_and_a_number_with_a_form_of_its_own_are_not_listed() -> None:
    x, index = _leaf(3), tensor(np.array([0, 1]))
    assert list(listed_edges(_node("index_select", x, 0, index))) == [0]
    assert list(listed_edges(_node("pow", x, 2.0))) == [0]
    assert list(listed_edges(_node("pow", 2.0, x))) == [1]
    assert list(listed_edges(_node("pow", x, tensor(np.ones(3))))) == [0, 1]
    assert list(listed_edges(_node("mul", x, 2.0))) == [0, 1]


@pytest.mark.parametrize("count", [1, 3])
def test_a_list_has_an_edge_per_item(count: int) -> None:
    node = _node("cat", [_leaf(2) for _ in range(count)], 0)
    assert list(edges_of(node, 0)) == list(listed_edges(node)) == list(range(count))

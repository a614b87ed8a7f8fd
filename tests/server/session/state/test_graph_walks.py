"""Graph walks: nearest nodes first, pages of one walk, numbers that stay, and no node kept alive."""

import gc

import numpy as np
import pytest

from gradwire_engine import Tensor, tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.session.state import graph_walks as graphs


def _leaf() -> Tensor:
    return tensor(np.ones(2), True)


def _names(walk: graphs.GraphWalk) -> list[str]:
    return [node.name for node in (reference() for reference in walk.nodes) if node is not None]


def test_a_walk_lists_each_node_once_nearest_first() -> None:
    x = _leaf()
    y = x * 2.0
    z = y + y * y
    _, walk = graphs.GraphWalks().take([z])
    nodes = [reference() for reference in walk.nodes]
    assert [nodes[0], nodes[-1]] == [z.grad_fn, y.grad_fn.edges[0][0]]
    assert set(nodes[1:3]) == {edge[0] for edge in z.grad_fn.edges}
    assert len(nodes) == 4


def test_roots_are_the_nodes_of_the_tensors_and_zero_for_none() -> None:
    graph_walks = graphs.GraphWalks()
    x = _leaf()
    y = x * 2.0
    _, walk = graph_walks.take([y, tensor(np.ones(1)), y])
    number = graph_walks.node_id(y.grad_fn)
    assert walk.roots == [number, 0, number]


def test_a_node_keeps_its_number_and_leaves_are_numbered_above_all_others() -> None:
    graph_walks = graphs.GraphWalks()
    x = _leaf()
    y = x * 2.0
    leaf = y.grad_fn.edges[0][0]
    first = graph_walks.node_id(leaf)
    graph_walks.take([y])
    assert graph_walks.node_id(leaf) == first >= 1 << 52
    assert graph_walks.node_id(y.grad_fn) == y.grad_fn.seq + 1


def test_a_page_token_finds_its_walk_and_place() -> None:
    graph_walks = graphs.GraphWalks()
    y = _leaf() * 2.0
    key, walk = graph_walks.take([y])
    assert graph_walks.find(f"{key}.1") == (key, walk, 1)


@pytest.mark.parametrize("token", ["", "1", "1.", "9.0", "1.-1", "1.999", "1.٣", "1.1.1", "1." + "9" * 30])
def test_another_token_is_refused(token: str) -> None:
    graph_walks = graphs.GraphWalks()
    y = _leaf() * 2.0
    graph_walks.take([y])
    with pytest.raises(Refusal, match="ask for the first page again") as refusal:
        graph_walks.find(token)
    assert (refusal.value.reason, refusal.value.metadata["argument"]) == ("ARGUMENT_VALUE", "page_token")


def test_only_the_newest_walks_are_held() -> None:
    graph_walks = graphs.GraphWalks()
    y = _leaf() * 2.0
    keys = [graph_walks.take([y])[0] for _ in range(graphs.MAX_GRAPH_WALKS + 2)]
    assert list(graph_walks.held) == keys[2:]
    graph_walks.clear()
    assert not graph_walks.held


def test_a_walk_keeps_no_node_alive() -> None:
    graph_walks = graphs.GraphWalks()
    y = _leaf() * 2.0
    _, walk = graph_walks.take([y])
    del y
    gc.collect()
    assert _names(walk) == []

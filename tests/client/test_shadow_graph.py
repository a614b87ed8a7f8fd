"""The client's copy of the reverse graph: what a backward reaches, and what is left of it afterwards."""

import pytest

import gradwire
from gradwire._proxy.shadow_graph import GradientNode, NodeHooks, OpNode, ReachableNodes, UnknownNode, unneeded_edge

pytestmark = pytest.mark.usefixtures("session")


class Keeper:
    """Hooks that an unknown node holds."""

    def __init__(self, *hooks):
        self.hooks = hooks


def leaf():
    """A leaf's tensor and its edge."""
    tensor = gradwire.ones(1, requires_grad=True)
    return tensor, tensor._edge


def test_each_leaf_and_node_is_reached_once():
    (x, one), (y, other) = leaf(), leaf()
    shared = OpNode([one])
    root = [shared, OpNode([shared, other, one])]
    reach = ReachableNodes([root, shared])
    assert reach.known
    assert sorted(map(id, reach.owners())) == sorted(map(id, [x, y]))
    assert sorted(map(id, reach.nodes)) == sorted(map(id, [root, shared, root[1]]))


def test_a_long_chain_is_freed_node_by_node():
    x, edge = leaf()
    nodes = []
    for _ in range(10_000):
        edge = OpNode([edge])
        nodes.append(edge)
    reach = ReachableNodes([edge])
    reach.mark_freed()
    assert reach.owners() == [x]
    assert not any(nodes)
    assert not ReachableNodes([edge]).known


@pytest.mark.parametrize("unknown", [list, lambda: OpNode(()), lambda: UnknownNode(Keeper())])
def test_behind_an_empty_node_only_the_server_knows(unknown):
    _, one = leaf()
    reach = ReachableNodes([OpNode([one, unknown()])])
    assert not reach.known
    assert reach.leaves == [one]


def test_the_edges_of_a_gradient_are_not_followed_but_freed():
    _, one = leaf()
    inner = OpNode([one])
    gradient = GradientNode([inner])
    reach = ReachableNodes([[gradient]])
    assert (reach.known, reach.gradients, reach.leaves) == (False, [gradient], [])
    reach.mark_freed()
    assert not gradient
    assert not inner


def test_hooks_stay_on_freed_nodes():
    _, one = leaf()
    held = unneeded_edge()
    held.hooks = object()
    by_node, by_several, unknown = NodeHooks([held]), OpNode([one]), UnknownNode(Keeper(1))
    by_several += [by_node, unknown]
    root = OpNode([by_several])
    reach = ReachableNodes([root])
    assert reach.held == [held]
    reach.mark_freed()
    assert held in root[1]
    assert any(each is by_node for each in by_several)
    assert any(each is unknown for each in by_several)

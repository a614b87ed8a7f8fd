"""A graph folds by the calls of modules that made its nodes, and never into a cycle."""

import re
import threading
from xml.etree import ElementTree

import pytest

import gradwire
from gradwire import nn
from gradwire._graph.graph import Graph, GraphLeaf, GraphNode
from gradwire._session.module_calls import ModuleCall, attribute, new_log

pytestmark = pytest.mark.usefixtures("deferring")
SVG = "{http://www.w3.org/2000/svg}"


def encoder(layers=6):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), layers)


def loss_of(net):
    return net(gradwire.randn(3, 2, 8)).pow(2).mean()


def words(graph):
    return [text.text for text in ElementTree.fromstring(graph.svg()).iter(f"{SVG}text")]


def height(graph):
    return float(ElementTree.fromstring(graph.svg()).get("height"))


def paths(graph):
    return {graph.calls[node.call].path for node in graph.nodes if node.call >= 0}


def test_equal_layers_are_one_card_of_a_large_graph():
    drawn = gradwire.graph(loss_of(net := encoder()))
    assert "layers.0 … layers.5" in words(drawn)
    assert "TransformerEncoderLayer × 6" in words(drawn)
    assert height(drawn) < 500 < 5000 < height(gradwire.graph(loss_of(net), fold=False))


def test_a_node_names_the_innermost_module_that_made_it():
    drawn = gradwire.graph(loss_of(net := encoder(2)))
    assert {"layers.0.self_attn", "layers.1.linear2", "layers.1.norm2"} <= paths(drawn)
    names = {name for name, _ in net.named_modules()}
    assert paths(drawn) <= names
    outside = [node.name for node in drawn.nodes if node.call < 0 and node.leaf is None]
    assert sorted(outside) == ["MeanBackward0", "PowBackward0"]


def test_a_small_graph_is_drawn_whole_unless_the_caller_says_otherwise():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    loss = net(gradwire.randn(3, 4)).sum()
    assert "Sequential" not in words(gradwire.graph(loss))
    assert "Sequential" in words(gradwire.graph(loss, fold=0))
    assert {"0", "2"} <= set(words(gradwire.graph(loss, fold=1)))
    assert words(gradwire.graph(loss, fold=False)) == words(gradwire.graph(loss))
    assert words(gradwire.graph(loss, fold=9)) == words(gradwire.graph(loss))


def test_every_node_is_in_one_card_and_edges_join_cards():
    drawn = gradwire.graph(loss_of(encoder(2)), fold=2)
    inside = [each for _, nodes in drawn._folded.groups.values() for each in nodes]
    assert len(inside) == len(set(inside)) > 0
    assert set(drawn._folded.cards(node.id for node in drawn.nodes)) == set(drawn._cards)
    ends = [(source, target) for source, target, _ in drawn._edges]
    assert all(source != target and {source, target} <= set(drawn._cards) for source, target in ends)


def test_the_names_stay_when_the_model_is_gone():
    def made():
        return gradwire.graph(loss_of(encoder()))

    assert any("TransformerEncoderLayer" in word for word in words(made()))


def test_calls_in_containers_hooks_and_with_keywords_are_noted():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})

        def forward(self, *, given):
            return self.parts["b"](self.parts["a"](given))

    net = Net()
    net.parts["a"].register_forward_hook(lambda module, args, result: result * 2)
    drawn = gradwire.graph(net(given=gradwire.ones(1, 2)).sum())
    assert {"parts.a", "parts.b"} <= paths(drawn)
    doubled = [node for node in drawn.nodes if node.name == "MulBackward0"]
    assert [drawn.calls[node.call].path for node in doubled] == ["parts.a"]


def test_an_argument_that_looks_like_a_tensor_is_passed_on():
    class Request:
        _session = "of another library"

    class Net(nn.Module):
        def forward(self, given):
            return given._session

    assert Net()(Request()) == "of another library"


def test_a_call_of_a_compiled_function_is_one_card_with_its_name():
    net = encoder(2)

    @gradwire.compile
    def hidden(x):
        return net(x)

    x = gradwire.randn(3, 2, 8)
    for _ in range(3):
        loss = hidden(x).pow(2).mean()
    drawn = gradwire.graph(loss)
    assert {"MeanBackward0", "PowBackward0", "hidden"} <= set(words(drawn))
    assert len(drawn._cards) < 5


def test_two_networks_in_one_graph_stay_apart():
    first, second = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    drawn = gradwire.graph(second(first(gradwire.ones(1, 2))).sum(), fold=0)
    assert words(drawn).count("Sequential") == 2


def test_a_name_with_markup_is_text():
    net = nn.Module()
    net.add_module("<script>alert(1)</script>", nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)))
    net.forward = lambda x: net._modules["<script>alert(1)</script>"](x)
    drawn = gradwire.graph(net(gradwire.ones(1, 2)).sum(), fold=1)
    assert "<script>alert(1)</script>" in words(drawn)
    assert "<script" not in drawn.svg()


def node(id_, *targets, call=-1):
    leaf = None if targets else GraphLeaf(f"w{id_}", (2,), "float32", True)
    return GraphNode(id_, f"Op{id_}Backward0", tuple((each, 0) for each in targets), leaf, 0, False, call=call)


def test_a_call_that_would_make_a_cycle_is_not_folded():
    # 1 and 3 are of the call, 2 between them is of none.
    nodes = (node(1, 2, call=0), node(2, 3), node(3, 4, call=0), node(4))
    drawn = Graph(nodes, (1,), (ModuleCall("cell", "Cell", -1),), fold=0)
    assert set(drawn._cards) == {1, 2, 3, 4}
    ElementTree.fromstring(drawn.svg())


def test_equal_calls_with_other_work_between_them_are_not_joined():
    calls = (ModuleCall("a", "Cell", -1), ModuleCall("b", "Cell", -1))
    nodes = (node(1, 2, call=1), node(2, 3, call=1), node(3, 4), node(4, 5, call=0), node(5, 6, call=0), node(6))
    drawn = Graph(nodes, (1,), calls, fold=0)
    assert set(drawn._cards) == {1, 3, 4}


@pytest.mark.parametrize("fold", [None, True, False, 0, 1, 2, 5])
def test_no_depth_of_a_random_nest_makes_a_cycle(fold):
    calls = tuple(ModuleCall(f"m{i}", "M", (i - 1) // 2) for i in range(15))
    nodes = [node(i, i + 1, *([i + 5] if i % 3 == 0 else []), call=(i * 7) % 17 - 2) for i in range(1, 80)]
    nodes += [node(i) for i in range(80, 85)]
    ElementTree.fromstring(Graph(tuple(nodes), (1,), calls, fold).svg())


def test_calls_of_several_threads_that_overlap_claim_no_command():
    log = new_log()
    log.append((1, 10, 1, None, "Linear"))
    log.append((5, 8, 2, None, "Tanh"))
    calls, inner = attribute(log, range(12))
    assert set(inner) == {1, 2, 3, 4, 8, 9}
    assert {calls[each].kind for each in inner.values()} == {"Linear"}


def test_a_caller_with_the_same_commands_encloses_its_callee():
    log = new_log()
    log.append((3, 5, 1, None, "Linear"))
    log.append((3, 5, 1, None, "Sequential"))
    calls, inner = attribute(log, [3, 4])
    assert [call.kind for call in calls] == ["Sequential", "Linear"]
    assert [call.parent for call in calls] == [-1, 0]
    assert set(inner.values()) == {1}


def test_the_log_of_calls_is_bounded():
    log = new_log()
    assert log.maxlen
    assert log.maxlen <= 1 << 16


def test_modules_called_by_two_threads_draw_a_graph():
    results = []

    def work():
        results.append(loss_of(encoder(1)))

    with gradwire.current_session():
        threads = [threading.Thread(target=work) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    for each in results:
        assert re.search(r"<svg", gradwire.graph(each).svg())

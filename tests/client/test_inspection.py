"""Inspection of tensors, graphs, sessions and models: sentences, tables and pictures."""

import re

import pytest

import gradwire as gw
from gradwire import nn

pytestmark = pytest.mark.usefixtures("session")


def test_explain_says_of_each_kind_of_tensor_whether_it_is_a_leaf_and_what_to_call():
    net = nn.Linear(3, 2)
    x = gw.ones(4, 3)
    y = net(x)
    kept = y * 2
    kept.retain_grad()
    assert "requires_grad_()" in gw.explain(x) and "leaf, by convention" in gw.explain(x)
    assert "It can receive no gradient" in gw.explain(gw.tensor([1]))
    assert "weight: a parameter" in gw.explain(net.weight) and "no gradient yet" in gw.explain(net.weight)
    told = gw.explain(y)
    assert "AddmmBackward0 made it" in told and "retain_grad() before" in told
    assert "2 leaves" in told and "bias (2,)" in told and "needs gradient=" in told
    assert "keeps its gradient" in gw.explain(kept)
    loss = kept.pow(2).sum()
    assert "is a scalar" in gw.explain(loss)
    loss.backward()
    assert "retain_graph=True" in gw.explain(loss)
    assert "has a gradient of shape (2, 3)" in gw.explain(net.weight)
    with gw.no_grad():
        assert "Grad mode is off" in gw.explain(y)
    with gw.inference_mode():
        assert "inference_mode()" in gw.explain(x + 1)
    with pytest.raises(TypeError, match="takes a tensor"):
        gw.explain(3)


def test_explain_names_the_line_that_made_a_tensor():
    w = gw.ones(2, requires_grad=True)
    y = w * 3  # this line
    assert "# this line" in gw.explain(y)


def test_a_graph_marks_retained_gradients_and_tells_what_is_saved_when_asked():
    w = gw.ones(2, 3, requires_grad=True)
    h = (w * w).exp()
    h.retain_grad()
    loss = h.sum()
    plain, told = gw.graph(loss), gw.graph(loss, saved=True)
    assert [node.name for node in plain.nodes if node.retains_grad] == ["ExpBackward0"]
    saved = {node.name: node.saved for node in told.nodes}
    assert saved["MulBackward0"] == ("other float32 (2, 3)", "self float32 (2, 3)") or len(saved["MulBackward0"]) == 2
    assert all(node.saved == () for node in plain.nodes)
    for text in (told.dot(), told.svg()):
        assert "retains its gradient" in text and "float32 (2, 3)" in text
    with pytest.raises(TypeError, match="takes tensors"):
        gw.graph()


def test_a_session_tells_its_tensors_bytes_graphs_and_lines(session):
    session.remember_lines()
    big = gw.ones(100, 50)  # the large one
    w = gw.ones(3, requires_grad=True)
    y = w * 2  # with a graph
    told = session.summary()
    assert told.tensors >= 3 and told.bytes >= 20_000 and told.nodes == 2
    first = told.rows[0]
    assert (first.count, first.shape, first.bytes) == (1, (100, 50), 20_000) and "# the large one" in first.made_at
    assert any(row.what == "MulBackward0" and "# with a graph" in row.made_at for row in told.rows)
    assert any(row.what == "leaf, requires grad" for row in told.rows)
    assert "100×50" in repr(told) and "<table>" in told._repr_html_()
    del big, y


def test_a_model_summary_shows_shapes_and_parameters_and_leaves_the_model_as_it_was():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.norm = nn.BatchNorm2d(4)
            self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
            self.head[1].weight.requires_grad_(False)

        def forward(self, x):
            return self.head(self.norm(self.conv(x)))

    net = Net()
    before = {name: value.tolist() for name, value in net.state_dict().items()}
    table = gw.summary(net, (1, 3, 6, 6))
    text = repr(table)
    assert re.search(r"Conv2d \(conv\): 1-1\s+\[1, 4, 4, 4\]\s+112", text)
    assert re.search(r"Linear \(1\): 2-2\s+\[1, 2\]\s+130", text)
    assert "Total params: 250" in text and "Non-trainable params: 128" in text
    assert net.training and {name: value.tolist() for name, value in net.state_dict().items()} == before
    assert "<table>" in table._repr_html_()
    assert "--" in repr(gw.summary(net))
    with pytest.raises(RuntimeError, match="in conv"):
        gw.summary(net, (1, 2, 6, 6))
    with pytest.raises(TypeError, match="takes a module"):
        gw.summary(3)


def test_an_error_inside_a_module_names_it_what_it_expects_and_what_it_got():
    net = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"deep": nn.Sequential(nn.Linear(5, 2))}))
    net.forward = lambda x: net[1]["deep"](net[0](x))
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied") as caught:
        net(gw.ones(3, 4))
    assert "in 1.deep.0 (Linear): expected input of shape (*, 5), got (3, 4) float32" in str(caught.value)
    assert str(caught.value).count("  in ") == 1
    with pytest.raises(ValueError, match=r"expected 4D input.*\n.*in BatchNorm2d: expected input of shape \(N, 3, …\)"):
        nn.BatchNorm2d(3)(gw.ones(2, 3))
    with pytest.raises(RuntimeError, match=r"expected input.*\n.*Conv2d.*\(N, 3, H, W\)"):
        nn.Conv2d(3, 2, 3)(gw.ones(1, 4, 8, 8))

    class Own(nn.Module):
        def forward(self, x):
            raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        Own()(gw.ones(1))


def test_a_bar_shows_how_far_a_large_tensor_is(capsys):
    pytest.importorskip("tqdm", reason="bars are drawn by tqdm")
    with gw.progress():
        made = gw.zeros(1 << 19) + 1.0
        assert made.numpy().sum() == 1 << 19
    shown = capsys.readouterr().err
    assert "download" in shown and "100%" in shown

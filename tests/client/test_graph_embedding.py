"""A graph as a document of its own: complete, self-contained, and no name in it becomes markup."""

import json
import re
import webbrowser
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gradwire
from gradwire import nn
from gradwire._graph.embedding import MOST_NODES
from gradwire._graph.graph import Graph, GraphLeaf, GraphNode

pytestmark = pytest.mark.usefixtures("deferring")
EVIL = "</script><script>alert(1)</script><!--'\"&"


class Reader(HTMLParser):
    """Collects the tags of a document and the texts of its scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.attributes = [], {}, {}
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes[tag] = dict(attrs)

    def handle_data(self, data):
        if self.tags[-1] == "script":
            self.texts[self.attributes["script"].get("id", "")] = data


def graph_of(name):
    leaf = GraphLeaf(name, (2, 3), "float32", True, "cpu", 4, True)
    return Graph(
        (GraphNode(1, "SumBackward0", ((2, 0),), None, 24, False), GraphNode(2, "AccumulateGrad", (), leaf, 0, False)),
        (1,),
    )


def document_of(graph, tmp_path):
    graph.save(tmp_path / "graph.html")
    return (tmp_path / "graph.html").read_text(encoding="utf-8")


def test_the_document_has_the_graphs_data(tmp_path):
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    drawn = gradwire.graph(net(gradwire.ones(1, 2)).sum())
    data = json.loads(Reader(document_of(drawn, tmp_path)).texts["data"])
    assert [node["id"] for node in data["nodes"]] == [node.id for node in drawn.nodes]
    assert {node["leaf"]["name"] for node in data["nodes"] if node["leaf"]} == {"0.weight", "0.bias"}
    assert [call["kind"] for call in data["calls"]] == ["Sequential", "Linear", "Tanh"]
    assert data["roots"] == list(drawn.roots)


def test_a_leaf_tells_its_gradient_version_and_device():
    w = gradwire.ones(2, requires_grad=True)
    (w * w).sum().backward()
    with gradwire.no_grad():
        w += 1
    (leaf,) = [node.leaf for node in gradwire.graph((w * w).sum()).nodes if node.leaf]
    assert (leaf.has_grad, leaf.version, leaf.device) == (True, 1, "cpu")


def test_names_never_become_markup(tmp_path):
    read = Reader(document_of(graph_of(EVIL), tmp_path))
    assert read.tags.count("script") == 2
    assert json.loads(read.texts["data"])["nodes"][1]["leaf"]["name"] == EVIL


def test_a_notebook_gets_a_frame_without_an_origin_and_the_picture():
    bundle = graph_of(EVIL)._repr_mimebundle_()
    assert bundle.keys() == {"text/html", "image/svg+xml", "text/plain"}
    read = Reader(bundle["text/html"])
    assert read.tags == ["iframe", "details", "summary", "img"]
    assert read.attributes["iframe"]["sandbox"] == "allow-scripts"
    inner = Reader(read.attributes["iframe"]["srcdoc"])
    assert json.loads(inner.texts["data"])["nodes"][1]["leaf"]["name"] == EVIL
    assert len(bundle["text/html"]) < 130_000


def test_the_document_asks_for_nothing(tmp_path):
    read = Reader(document_of(graph_of("w"), tmp_path))
    assert read.attributes["meta"]
    text = document_of(graph_of("w"), tmp_path)
    assert "default-src 'none'" in text
    assert not re.findall(r"<(?:link|img|script)[^>]* (?:src|href)=", text)


def test_a_graph_too_large_for_a_notebook_is_a_picture():
    nodes = tuple(GraphNode(i, "Op", ((i + 1, 0),), None, 0, False) for i in range(1, MOST_NODES + 2))
    assert "<iframe" not in Graph(nodes, (1,))._repr_mimebundle_()["text/html"]


def test_open_writes_a_file_and_shows_it(monkeypatch):
    shown = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    path = Path(graph_of("w").open())
    try:
        assert shown == [path.as_uri()]
        assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    finally:
        path.unlink()

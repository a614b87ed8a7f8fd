"""A reverse graph is drawn completely and legibly, as SVG without other programs, and as Graphviz text."""

import itertools
import random
import re
from collections import Counter
from xml.etree import ElementTree

import pytest

from gradwire._graph.graph import Graph, GraphLeaf, GraphNode
from gradwire._graph.graph_layout import lay_out

SVG = "{http://www.w3.org/2000/svg}"


def node(id_, *targets, name=None, leaf=None, saved=0, freed=False):
    edges = tuple(target if isinstance(target, tuple) else (target, 0) for target in targets)
    name = name or ("AccumulateGrad" if leaf is not None else f"Op{id_}Backward0")
    return GraphNode(id_, name, edges, leaf, saved, freed)


def leaf(name, *shape, dtype="float32", requires_grad=True):
    return GraphLeaf(name, shape, dtype, requires_grad)


def from_pairs(pairs, count):
    """Builds a graph of nodes 1 to count; those without edges are leaves."""
    targets = {id_: [] for id_ in range(1, count + 1)}
    for source, target in pairs:
        targets[source].append(target)
    nodes = [node(id_, *to, leaf=None if to else leaf(f"w{id_}", 3, 4)) for id_, to in targets.items()]
    return Graph(tuple(nodes), (1,))


LAYER = Graph(
    (
        node(1, 2, name="MeanBackward0", saved=8),
        node(2, 3, 0, (4, 1), name="AddmmBackward0", saved=2048),
        node(3, leaf=leaf("fc.bias", 10)),
        node(4, 5, name="TBackward0"),
        node(5, leaf=leaf("fc.weight", 10, 64)),
    ),
    (1,),
)


def random_pairs(count, *, reach, fan, seed):
    draw = random.Random(seed)
    return [(i, min(count, i + draw.randint(1, reach))) for i in range(1, count) for _ in range(draw.randint(1, fan))]


GRAPHS = {
    "one node": ([], 1),
    "chain": ([(i, i + 1) for i in range(1, 30)], 30),
    "a square": ([(1, 2), (1, 2)], 2),
    "tree": ([(i // 2, i) for i in range(2, 64)], 63),
    "residual": ([(i, i + 1) for i in range(1, 40)] + [(i, i + 3) for i in range(1, 37, 3)], 40),
    "recurrent": ([(i, i + 1) for i in range(1, 36)] + [(i, 37 + i % 4) for i in range(1, 36)], 40),
    "every to every": ([(i, j) for i in range(1, 9) for j in range(9, 17)], 16),
    "near": (random_pairs(200, reach=6, fan=3, seed=1), 200),
    "far": (random_pairs(120, reach=100, fan=2, seed=2), 120),
    "beyond the sweeps": (random_pairs(900, reach=20, fan=2, seed=3), 900),
}


@pytest.fixture(params=GRAPHS, ids=str)
def drawn(request):
    pairs, count = GRAPHS[request.param]
    graph = from_pairs(pairs, count)
    return graph, ElementTree.fromstring(graph.svg())


def boxes(picture):
    """Answers {node id: (left, top, right, bottom)} of a picture."""
    found = {}
    for group in picture.iter(f"{SVG}g"):
        if "data-node" in group.attrib:
            rect = group.find(f"{SVG}rect")
            x, y, width, height = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
            assert int(group.get("data-node")) not in found
            found[int(group.get("data-node"))] = (x, y, x + width, y + height)
    return found


def edges(picture):
    paths = (path for path in picture.iter(f"{SVG}path") if "data-from" in path.attrib)
    return [(int(path.get("data-from")), int(path.get("data-to")), path.get("d")) for path in paths]


def texts(picture, id_):
    """Answers what is written on a node, and its hint."""
    group = next(group for group in picture.iter(f"{SVG}g") if group.get("data-node") == str(id_))
    return [text.text for text in group.iter(f"{SVG}text")], group.find(f"{SVG}title").text


def test_every_node_and_every_edge_is_drawn_once(drawn):
    graph, picture = drawn
    assert set(boxes(picture)) == {node.id for node in graph.nodes}
    wanted = Counter((node.id, target) for node in graph.nodes for target, _ in node.edges)
    assert Counter((source, target) for source, target, _ in edges(picture)) == wanted


def test_boxes_do_not_overlap(drawn):
    _, picture = drawn
    by_layer = {}
    for left, top, right, bottom in boxes(picture).values():
        by_layer.setdefault((top + bottom) / 2, []).append((left, top, right, bottom))
    for row in by_layer.values():
        row.sort()
        assert all(a[2] < b[0] for a, b in itertools.pairwise(row))
    spans = sorted((min(box[1] for box in row), max(box[3] for box in row)) for row in by_layer.values())
    assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))


def test_gradients_flow_down_the_page(drawn):
    graph, picture = drawn
    places = boxes(picture)
    for item in graph.nodes:
        for target, _ in item.edges:
            assert places[item.id][3] < places[target][1]


def test_everything_is_inside_the_picture(drawn):
    _, picture = drawn
    width, height = float(picture.get("width")), float(picture.get("height"))
    assert picture.get("viewBox") == f"0 0 {picture.get('width')} {picture.get('height')}"
    for left, top, right, bottom in boxes(picture).values():
        assert 0 < left < right < width
        assert 0 < top < bottom < height
    for _, _, path in edges(picture):
        for x, _ in curve_points(path):
            assert 0 < x < width


def curve_points(path):
    """Answers the points a path goes through."""
    points = []
    for command, numbers in re.findall(r"([MVC])([^MVC]*)", path):
        values = [float(number) for number in numbers.split()]
        points.append((points[-1][0], values[0]) if command == "V" else (values[-2], values[-1]))
    return points


def test_an_edge_starts_at_its_node_and_ends_at_its_target_or_in_a_trunk_that_does(drawn):
    _, picture = drawn
    places = boxes(picture)
    ends = Counter()
    for source, target, path in edges(picture):
        (start_x, start_y), *_, (end_x, end_y) = curve_points(path)
        left, _, right, bottom = places[source]
        assert left < start_x < right
        assert start_y == pytest.approx(bottom, abs=0.11)
        left, top, right, _ = places[target]
        arrived = left < end_x < right and end_y == pytest.approx(top - 6, abs=0.11)
        ends[target] += arrived
        if not arrived:
            assert any(passes(other, (end_x, end_y)) for s, t, other in edges(picture) if t == target and other != path)
    assert all(ends[target] >= 1 for _, target, _ in edges(picture))


def passes(path, point):
    x, y = point
    return any(
        abs(a[0] - x) < 0.11 and abs(b[0] - x) < 0.11 and a[1] - 0.11 <= y <= b[1] + 0.11
        for a, b in itertools.pairwise(curve_points(path))
    )


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "beyond the sweeps"])
def test_no_edge_runs_through_a_box(name):
    pairs, count = GRAPHS[name]
    sizes = [(60.0 + 17 * (i % 5), 30.0 + 14 * (i % 2)) for i in range(count)]
    layout = lay_out(sizes, [(source - 1, target - 1) for source, target in pairs])
    rows = {}
    for (x, y), (width, height) in zip(layout.centres, sizes, strict=True):
        rows.setdefault(y, []).append((x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    bands = [(min(box[1] for box in row), max(box[3] for box in row), row) for row in rows.values()]
    for route in layout.routes:
        for (x, y), (next_x, next_y) in itertools.pairwise(route.points):
            for top, bottom, row in bands:
                if abs(x - next_x) > 0.05:  # a curve has the space between two layers to itself
                    assert next_y <= top + 0.01 or y >= bottom - 0.01
                else:
                    assert not any(box[0] < x < box[2] and y < box[3] - 0.01 and next_y > box[1] + 0.01 for box in row)


def test_a_chain_is_a_straight_line():
    graph = from_pairs(*GRAPHS["chain"])
    assert (
        len({round(left + right, 1) for left, _, right, _ in boxes(ElementTree.fromstring(graph.svg())).values()}) == 1
    )


def test_a_tree_is_drawn_without_crossings():
    pairs, count = GRAPHS["tree"]
    shuffled = random.Random(0).sample(pairs, len(pairs))
    layout = lay_out([(60.0, 30.0)] * count, [(source - 1, target - 1) for source, target in shuffled])
    rows = {}
    for source, target in shuffled:
        x, y = layout.centres[source - 1]
        rows.setdefault(y, []).append((x, layout.centres[target - 1][0]))
    for row in rows.values():
        children = [child for _, child in sorted(row)]
        assert children == sorted(children)


def test_parallel_edges_stay_apart():
    picture = ElementTree.fromstring(from_pairs(*GRAPHS["a square"]).svg())
    first, second = (path for _, _, path in edges(picture))
    assert first != second


def test_operations_are_round_and_leaves_are_boxes_with_name_shape_and_dtype():
    picture = ElementTree.fromstring(LAYER.svg())
    assert texts(picture, 2) == (["AddmmBackward0", "saves 2 KiB"], "AddmmBackward0\nsaves 2 KiB for backward")
    assert texts(picture, 5)[0] == ["fc.weight", "(10, 64) float32"]
    assert texts(picture, 3)[0] == ["fc.bias", "(10,) float32"]
    corners = {
        int(group.get("data-node")): float(group.find(f"{SVG}rect").get("rx"))
        for group in picture.iter(f"{SVG}g")
        if "data-node" in group.attrib
    }
    assert min(corners[1], corners[2], corners[4]) >= 15
    assert max(corners[3], corners[5]) <= 4


def test_a_leaf_without_a_name_and_a_frozen_one_say_so():
    nodes = (node(1, 2, 3), node(2, leaf=leaf(None)), node(3, leaf=leaf("w", 2, dtype="float64", requires_grad=False)))
    picture = ElementTree.fromstring(Graph(nodes, (1,)).svg())
    assert texts(picture, 2)[0] == ["leaf", "() float32"]
    assert texts(picture, 3)[1].endswith("no longer requires grad")


def test_a_freed_node_is_marked():
    graph = Graph((node(1, 2, saved=64, freed=True), node(2, 3, saved=64), node(3, leaf=leaf("w"))), (1,))
    picture = ElementTree.fromstring(graph.svg())
    dashed = {
        int(group.get("data-node"))
        for group in picture.iter(f"{SVG}g")
        if "data-node" in group.attrib and group.find(f"{SVG}rect").get("stroke-dasharray")
    }
    assert dashed == {1}
    assert texts(picture, 1)[0][1] == "freed"
    assert re.findall(r"n(\d+) \[label.*dashed", graph.dot()) == ["1"]


def test_an_edge_to_another_than_the_first_output_is_numbered():
    outputs = [
        text.text
        for text in ElementTree.fromstring(LAYER.svg()).iter(f"{SVG}text")
        if text.get("y") and text.text == "1"
    ]
    assert outputs == ["1"]
    assert 'n2 -> n4 [headlabel="1"];' in LAYER.dot()


def test_a_node_that_was_not_given_is_drawn_as_unknown():
    graph = Graph((node(1, 2, 7), node(2, 7)), (1,))
    picture = ElementTree.fromstring(graph.svg())
    assert set(boxes(picture)) == {1, 2, 7}
    assert texts(picture, 7) == (["…"], "a node that was not fetched")


@pytest.mark.parametrize(
    "name", ["<b>&\"'</b>", "a\\N\\", "zero\0bell\a", "lone \ud800 surrogate", "重み.0", "]]>", "a\nb"]
)
def test_any_name_is_escaped(name):
    graph = Graph((node(1, 2, name=name), node(2, leaf=leaf(name, 3))), (1,))
    picture = ElementTree.fromstring(graph.svg().encode("utf-8"))
    written = re.sub("[\0\a\ud800]", "\ufffd", name)
    assert texts(picture, 1)[0] == [written]
    assert texts(picture, 2)[0][0] == written
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', graph.dot())
    assert written.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") in strings
    assert graph.dot().count("\n") == 8


def test_a_long_name_is_shortened_on_the_card_and_whole_in_the_hint():
    name = "encoder." + "layers.0." * 20 + "weight"
    picture = ElementTree.fromstring(Graph((node(1, leaf=leaf(name, 3)),), (1,)).svg())
    (label, _), hint = texts(picture, 1)
    assert len(label) < 60
    assert label.startswith("encoder.layers")
    assert label.endswith("weight")
    assert name in hint


def test_dot_names_every_node_and_edge():
    dot = LAYER.dot()
    assert dot.startswith("digraph")
    assert dot.count("{") == dot.count("}") == 1
    assert re.findall(r"n(\d+) \[label", dot) == ["1", "2", "3", "4", "5"]
    assert re.findall(r"n(\d+) -> n(\d+)", dot) == [("1", "2"), ("2", "3"), ("2", "4"), ("4", "5")]
    assert r'"fc.weight\n(10, 64) float32"' in dot
    assert str(LAYER) == dot


def test_saves_by_suffix(tmp_path):
    for suffix, text in ((".svg", LAYER.svg()), (".dot", LAYER.dot()), (".gv", LAYER.dot()), (".SVG", LAYER.svg())):
        LAYER.save(tmp_path / f"graph{suffix}")
        assert (tmp_path / f"graph{suffix}").read_text(encoding="utf-8") == text
    for name in ("graph.png", "graph"):
        with pytest.raises(ValueError, match=r"saved as \.svg, \.dot, \.gv or \.html"):
            LAYER.save(str(tmp_path / name))
        assert not (tmp_path / name).exists()


def test_a_notebook_shows_the_picture():
    assert LAYER._repr_svg_() == LAYER.svg()
    assert LAYER.svg() in LAYER._repr_html_()
    assert ElementTree.fromstring(LAYER._repr_html_()).tag == "div"
    assert repr(LAYER) == "Graph(5 nodes, 2 leaves)"


def test_no_graph_is_a_picture_too():
    empty = Graph((), (0,))
    assert "no gradient graph" in "".join(ElementTree.fromstring(empty.svg()).itertext())
    assert "->" not in empty.dot()


def test_a_cycle_is_refused():
    with pytest.raises(ValueError, match="cycle"):
        from_pairs([(1, 2), (2, 3), (3, 2)], 3).svg()


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([(i, i + 1) for i in range(1, 5000)], id="deep"),
        pytest.param([(1, i) for i in range(2, 5001)], id="wide"),
        pytest.param(
            [(i, i + 1) for i in range(1, 4996)] + [(i, 5000 - i % 4) for i in range(1, 4996)], id="recurrent"
        ),
        pytest.param([(i, i + 1) for i in range(1, 5000)] + [(i, 5001 - i) for i in range(1, 2499)], id="nested"),
    ],
)
def test_five_thousand_nodes_are_drawn_without_recursion_and_in_proportion(pairs):
    graph = from_pairs(pairs, 5000)
    text = graph.svg()
    picture = ElementTree.fromstring(text)
    assert len(boxes(picture)) == 5000
    assert len(edges(picture)) == len(pairs)
    assert len(text) < 1500 * 5000
    assert graph.dot().count("->") == len(pairs)


@pytest.mark.parametrize(
    "name", ["W" * 20, "@m%M" * 8, "layers.0.self_attn.in_proj_weight", "Шифр", "iiii.llll", "重み"]
)
def test_text_stays_inside_its_node_in_the_widest_font(name):
    font = pytest.importorskip("PIL.ImageFont")
    try:
        bold = font.truetype("DejaVuSans-Bold.ttf", 200)
    except OSError:
        pytest.skip("the font DejaVu Sans is not installed")
    picture = ElementTree.fromstring(Graph((node(1, 2, name="MeanBackward0"), node(2, leaf=leaf(name, 3))), (1,)).svg())
    left, _, right, _ = boxes(picture)[2]
    assert bold.getlength(texts(picture, 2)[0][0]) / 200 * 13 < right - left


def test_lines_stay_inside_their_node_however_many():
    saves = tuple(f"value{i} float32 (3, 4)" for i in range(7))
    graph = Graph(
        (GraphNode(1, "AddmmBackward0", ((2, 0),), None, 48, False, saved=saves), node(2, leaf=leaf("w", 3))), (1,)
    )
    picture = ElementTree.fromstring(graph.svg())
    _, top, _, bottom = boxes(picture)[1]
    group = next(group for group in picture.iter(f"{SVG}g") if group.get("data-node") == "1")
    lines = [float(text.get("y")) for text in group.iter(f"{SVG}text")]
    assert len(lines) == 8
    assert all(top + 9 < y < bottom - 3 for y in lines)
    assert all(below - above >= 12 for above, below in itertools.pairwise(lines))

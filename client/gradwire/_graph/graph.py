"""Graph: a reverse graph as data, drawn as Graphviz text or SVG.

Gradients flow from the roots at the top to the leaves at the bottom. Operations are round. Leaves that require grad are
square, and show name, shape and dtype. A node with freed saved values is dashed and grey. Constants have no edge and
are not drawn. The drawing needs no other program or library: `graph_layout` computes the positions.
"""

from __future__ import annotations

import os
import re
import tempfile
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from pathlib import Path

from gradwire._base.printing import bytes_text
from gradwire._graph.embedding import MOST_NODES, document, frame
from gradwire._graph.folding import Folded, folded
from gradwire._graph.graph_layout import EdgePath, Layout, lay_out
from gradwire._graph.text_width import text_width
from gradwire._session.module_calls import ModuleCall

_FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_LONGEST_LABEL = 48


@dataclass(frozen=True)
class GraphLeaf:
    """The tensor of an AccumulateGrad node, which receives a gradient. `name` is its parameter name, if known."""

    name: str | None
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool
    device: str = ""
    version: int = 0
    has_grad: bool = False


@dataclass(frozen=True)
class GraphNode:
    """A node of a reverse graph.

    `edges` has a (node id, output number) per tensor input of the operation; id 0 means that no gradient is needed.
    `leaf` is set for AccumulateGrad. `saved_bytes` are the bytes saved for backward, until `freed`.
    """

    id: int
    name: str
    edges: tuple[tuple[int, int], ...]
    leaf: GraphLeaf | None
    saved_bytes: int
    freed: bool
    #: Whether a tensor made by the node retains its gradient.
    retains_grad: bool = False
    #: The values saved for backward, if requested: "input float32 (3, 4)".
    saved: tuple[str, ...] = ()
    #: The line of the program that made the node, if known.
    made_at: str | None = None
    #: The index in `Graph.calls` of the call of a module that made the node; -1 if none is known.
    call: int = -1


@dataclass(frozen=True)
class _Style:
    """The colours and the outline of a kind of node. Cards are opaque, for light and dark pages."""

    fill: str
    line: str
    ink: str
    faint: str
    round: bool = True
    dashed: bool = False
    stacked: bool = False


_ROOT = _Style(fill="#4f56d3", line="#4f56d3", ink="#ffffff", faint="#d5d8ff")
_OPERATION = _Style(fill="#f4f5ff", line="#7b83eb", ink="#1f2350", faint="#666c9e")
_LEAF = _Style(fill="#e8f8f0", line="#2fa36b", ink="#0e3d27", faint="#3f7a5e", round=False)
_FREED = _Style(fill="#f1f2f4", line="#9a9fab", ink="#5d6370", faint="#7b818d", dashed=True)
_RETAINED = _Style(fill="#fff6e5", line="#d98e04", ink="#4a3103", faint="#86611a")
_GROUP = _Style(fill="#e7e9fb", line="#7b83eb", ink="#1f2350", faint="#565c8c", round=False, stacked=True)
_FREED_GROUP = _Style(
    fill="#f1f2f4", line="#9a9fab", ink="#5d6370", faint="#6c727e", round=False, dashed=True, stacked=True
)
_UNKNOWN = _Style(fill="#ffffff", line="#9a9fab", ink="#5d6370", faint="#7b818d", dashed=True)
_EDGE = "#8a90a2"


@dataclass(frozen=True)
class _Card:
    """The text lines, the style and the tooltip of a node."""

    lines: tuple[str, ...]
    style: _Style
    hint: str

    @property
    def size(self) -> tuple[float, float]:
        widths = [text_width(line, 13.0 if i == 0 else 11.0, bold=i == 0) for i, line in enumerate(self.lines)]
        return round(max(54.0, max(widths) + 34.0)), 16.0 + 15.0 * len(self.lines)


@dataclass(frozen=True, repr=False)
class Graph:
    """The reverse graph behind some tensors. A notebook shows it; `save` writes it as SVG or Graphviz text.

    `roots` are the ids of the tensors' nodes, 0 for a tensor without history. An edge to a node outside `nodes` leads
    to a placeholder. `calls` are the calls of modules that made the nodes. `fold` says which of them are drawn as one
    card: those deeper than a number (0: the outermost), none for False. None folds a graph above 40 nodes.
    """

    nodes: tuple[GraphNode, ...]
    roots: tuple[int, ...]
    calls: tuple[ModuleCall, ...] = ()
    fold: int | bool | None = None

    def dot(self) -> str:
        """The graph as Graphviz text."""
        lines = [
            "digraph autograd {",
            '  graph [rankdir=TB, bgcolor="transparent", nodesep=0.3, ranksep=0.4];',
            '  node [shape=box, fontname="Helvetica", fontsize=11, height=0.3];',
            f'  edge [color="{_EDGE}", fontname="Helvetica", fontsize=9, arrowsize=0.7];',
        ]
        for id_, card in self._cards.items():
            style = card.style
            flags = ",".join(["filled", *(["rounded"] if style.round else []), *(["dashed"] if style.dashed else [])])
            outlines = ", peripheries=2" if style.stacked else ""
            lines.append(
                f'  n{id_} [label={_quoted(chr(10).join(card.lines))}, tooltip={_quoted(card.hint)}, style="{flags}", '
                f'fillcolor="{style.fill}", color="{style.line}", fontcolor="{style.ink}"{outlines}];'
            )
        for source, target, output in self._edges:
            lines.append(f"  n{source} -> n{target}" + (f' [headlabel="{output}"];' if output else ";"))
        return "\n".join([*lines, "}", ""])

    def svg(self) -> str:
        """The graph as SVG. Raises ValueError for a cycle, which no recorded graph has."""
        index = {id_: i for i, id_ in enumerate(self._cards)}
        cards = list(self._cards.values())
        sizes = [card.size for card in cards]
        layout = lay_out(sizes, [(index[source], index[target]) for source, target, _ in self._edges])
        if not cards:
            return _frame(220, 40, '<text x="110" y="25" text-anchor="middle" fill="#8a90a2">no gradient graph</text>')
        body = [_drawn_edges(self._edges, layout)]
        for id_, card, size, (x, y) in zip(self._cards, cards, sizes, layout.centres, strict=True):
            body.append(_drawn_card(id_, card, size, x, y))
        return _frame(layout.width, layout.height, "\n".join(body))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a file: SVG for .svg, Graphviz text for .dot and .gv, the interactive drawing for .html.

        Raises ValueError for any other suffix.
        """
        suffix = Path(path).suffix.lower()
        writers: dict[str, Callable[[], str]] = {
            ".svg": self.svg,
            ".dot": self.dot,
            ".gv": self.dot,
            ".html": partial(document, self),
        }
        if suffix not in writers:
            raise ValueError(
                f"a graph is saved as .svg, .dot, .gv or .html, not as {suffix or 'a file without a suffix'!r}"
            )
        Path(path).write_text(writers[suffix](), encoding="utf-8")

    def open(self) -> str:
        """Open the interactive drawing in the browser; return the path of its file, which needs no server."""
        handle, path = tempfile.mkstemp(prefix="gradwire-graph-", suffix=".html")
        os.close(handle)
        self.save(path)
        webbrowser.open(Path(path).as_uri())
        return path

    def __str__(self) -> str:
        return self.dot()

    def __repr__(self) -> str:
        leaves = sum(_is_leaf(node) for node in self.nodes)
        return f"Graph({len(self.nodes)} nodes, {leaves} leaves)"

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return f'<div style="max-width:100%;max-height:720px;overflow:auto">{self.svg()}</div>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The interactive drawing, and the picture for where a notebook is not trusted."""
        html = frame(self) if len(self.nodes) <= MOST_NODES else self._repr_html_()
        return {"text/html": html, "image/svg+xml": self.svg(), "text/plain": repr(self)}

    @cached_property
    def _cards(self) -> dict[int, _Card]:
        roots = set(self.roots)
        by_id = {node.id: node for node in self.nodes}
        cards = {}
        for id_ in self._folded.cards(by_id):
            calls, members = self._folded.groups.get(id_, ((), ()))
            cards[id_] = (
                _group_card([self.calls[call] for call in calls], [by_id[each] for each in members])
                if members
                else _card(by_id[id_], id_ in roots)
            )
        unknown = dict.fromkeys(target for node in self.nodes for target, _ in node.edges if target not in by_id)
        unknown.pop(0, None)
        return cards | {id_: _Card(("…",), _UNKNOWN, "a node that was not fetched") for id_ in unknown}

    @cached_property
    def _edges(self) -> list[tuple[int, int, int]]:
        """The edges as (from, to, output number), constants left out. Groups have one edge per neighbour."""
        head = self._folded.head
        found: list[tuple[int, int, int]] = []
        seen: set[tuple[int, int]] = set()
        for node in self.nodes:
            for target, output in node.edges:
                ends = (head.get(node.id, node.id), head.get(target, target))
                if target == 0 or ends[0] == ends[1] or ends in seen:
                    continue
                if node.id in head or target in head:
                    seen.add(ends)
                    output = 0
                found.append((*ends, output))
        return found

    @cached_property
    def _folded(self) -> Folded:
        return folded(self.nodes, self.calls, self.fold)


def _is_leaf(node: GraphNode) -> bool:
    return node.leaf is not None or node.name == "AccumulateGrad"


def _card(node: GraphNode, is_root: bool) -> _Card:
    hint = [node.name, *([node.made_at] if node.made_at else [])]
    if node.leaf is not None:
        leaf = node.leaf
        spec = f"({', '.join(map(str, leaf.shape))}{',' if len(leaf.shape) == 1 else ''}) {leaf.dtype}"
        hint += [leaf.name or "a leaf without a name", spec]
        if not leaf.requires_grad:
            hint.append("no longer requires grad")
        return _Card((_shortened(leaf.name or "leaf"), spec), _LEAF, "\n".join(hint))
    saved = bytes_text(node.saved_bytes)
    if node.freed:
        return _Card(
            (_shortened(node.name), "freed"), _FREED, f"{node.name}\nits saved values were freed by a backward"
        )
    lines = [_shortened(node.name)]
    if node.retains_grad:
        lines.append("retains its gradient")
    if node.saved:
        lines.extend(_shortened(f"saves {each}") for each in node.saved)
    elif node.saved_bytes:
        lines.append(f"saves {saved}")
    style = _LEAF if _is_leaf(node) else _RETAINED if node.retains_grad else _ROOT if is_root else _OPERATION
    return _Card(tuple(lines), style, "\n".join([node.name, f"saves {saved} for backward", *hint[1:]]))


def _group_card(calls: list[ModuleCall], nodes: list[GraphNode]) -> _Card:
    """The card of one call of a module, or of several equal ones."""
    first, last = calls[0], calls[-1]
    kind = first.kind if len(calls) == 1 else f"{first.kind} × {len(calls)}"
    paths = first.path if first.path == last.path else f"{first.path} … {last.path}"
    leaves = sum(_is_leaf(node) for node in nodes)
    operations = len(nodes) - leaves
    count = f"{operations} operation{'s' * (operations != 1)}"
    if leaves:
        count += f", {leaves} {'leaf' if leaves == 1 else 'leaves'}"
    freed = sum(node.freed for node in nodes)
    saved = bytes_text(sum(node.saved_bytes for node in nodes))
    hint = (
        f"{kind} {paths}".rstrip()
        + f"\n{count}\n"
        + ("freed by a backward" if freed else f"saves {saved} for backward")
    )
    lines = [_shortened(paths), _shortened(kind)] if paths else [_shortened(kind)]
    return _Card((*lines, count), _FREED_GROUP if freed else _GROUP, hint)


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_LABEL:
        return text
    half = _LONGEST_LABEL // 2
    return text[:half] + "…" + text[-half:]


def _frame(width: float, height: float, body: str) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="reverse autograd graph" '
        f'font-family="{_FONT}" font-size="13">\n{body}\n</svg>\n'
    )


def _drawn_edges(edges: list[tuple[int, int, int]], layout: Layout) -> str:
    lines, heads, outputs = [], [], []
    for (source, target, output), route in zip(edges, layout.routes, strict=True):
        lines.append(f'<path data-from="{source}" data-to="{target}" d="{_path(route)}"/>')
        if not route.arrives:
            continue
        x, y = route.points[-1]
        heads.append(f"M{x:.1f} {y - 0.5:.1f}l-4-7.5q4 2 8 0z")
        if output:
            outputs.append(f'<text x="{x + 7:.1f}" y="{y - 4:.1f}">{output}</text>')
    return (
        f'<g fill="none" stroke="{_EDGE}" stroke-width="1.4" stroke-linecap="round">\n' + "\n".join(lines) + "\n</g>\n"
        f'<path fill="{_EDGE}" d="{"".join(heads)}"/>\n'
        f'<g fill="{_EDGE}" font-size="9">{"".join(outputs)}</g>'
    )


def _path(route: EdgePath) -> str:
    (x, y), *rest = route.points
    path = f"M{x:.1f} {y:.1f}"
    for i, (next_x, next_y) in enumerate(rest):
        if route.arrives and i == len(rest) - 1:
            next_y -= 6  # the arrowhead covers the rest
        if abs(next_x - x) < 0.05:
            path += f"V{next_y:.1f}"
        else:
            middle = (y + next_y) / 2
            path += f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}"
        x, y = next_x, next_y
    return path


def _drawn_card(id_: int, card: _Card, size: tuple[float, float], x: float, y: float) -> str:
    (width, height), style = size, card.style
    corner = height / 2 if style.round else 3
    dashes = ' stroke-dasharray="4 3"' if style.dashed else ""
    behind = (
        f'<path d="M{x - width / 2 + 4:.1f} {y + height / 2 + 2:.1f}v2h{width:.0f}v-{height:.0f}h-2" fill="none" '
        f'stroke="{style.line}" stroke-width="1.3"/>'
        if style.stacked
        else ""
    )
    parts = [
        f'<g data-node="{id_}"><title>{_clean(card.hint)}</title>{behind}'
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.0f}" height="{height:.0f}" '
        f'rx="{corner:.0f}" fill="{style.fill}" stroke="{style.line}" stroke-width="1.3"{dashes}/>'
    ]
    first = y - height / 2 + 19
    parts.append(
        f'<text x="{x:.1f}" y="{first:.1f}" text-anchor="middle" font-weight="600" fill="{style.ink}">'
        f"{_clean(card.lines[0])}</text>"
    )
    for i, line in enumerate(card.lines[1:], 1):
        parts.append(
            f'<text x="{x:.1f}" y="{first + 15 * i:.1f}" text-anchor="middle" font-size="11" fill="{style.faint}">'
            f"{_clean(line)}</text>"
        )
    return "".join(parts) + "</g>"


def _clean(text: str) -> str:
    """Escape a text for XML."""
    return escape(_printable(text))


def _quoted(text: str) -> str:
    """Quote a text for Graphviz, which has its own escapes: a backslash before an N means the node's name."""
    return '"' + _printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _printable(text: str) -> str:
    """Replace characters that XML cannot contain: most control characters and lone surrogates."""
    return re.sub("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)

"""Embedding: a reverse graph as a document of its own, with the interactive drawing of Studio and the graph's data.

The script, with its style, is built from client/studio by `make studio-pages`. The document asks for nothing: its
policy allows what is in it. A notebook shows it in a frame without an origin, so it can touch neither the notebook
nor its server.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradwire._graph.graph import Graph, GraphNode

_SCRIPT = Path(__file__).parent / "embedded" / "graph.js"
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
_HEIGHT = 560
#: A graph with more nodes is shown as a picture: its data would fill the notebook.
MOST_NODES = 5000


def document(graph: Graph) -> str:
    """The graph as an HTML document that needs no server and no other file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Reverse graph</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="color-scheme" content="light dark"><meta name="viewport" content="width=device-width">'
        f'</head><body><main id="graph"></main><script type="application/json" id="data">{_json(_data(graph))}</script>'
        f"<script>{_script()}</script></body></html>"
    )


def frame(graph: Graph) -> str:
    """The document in a frame for a notebook, with the picture for where frames are not trusted."""
    picture = base64.b64encode(graph.svg().encode()).decode()
    # In apostrophes, because the data is full of quotation marks, which would be escaped.
    inside = document(graph).replace("&", "&amp;").replace("'", "&#39;")
    return (
        f'<iframe sandbox="allow-scripts" srcdoc=\'{inside}\' title="reverse autograd graph" '
        f'style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'
        '<details><summary>As a picture</summary><img alt="reverse autograd graph" '
        f'src="data:image/svg+xml;base64,{picture}" style="max-width:100%"></details>'
    )


@cache
def _script() -> str:
    text = _SCRIPT.read_text(encoding="utf-8")
    # Inside of HTML a script ends at this text, wherever it stands.
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _data(graph: Graph) -> dict[str, Any]:
    return {
        "roots": list(graph.roots),
        "calls": [{"path": call.path, "kind": call.kind, "parent": call.parent} for call in graph.calls],
        "nodes": [_node(node) for node in graph.nodes],
    }


def _node(node: GraphNode) -> dict[str, Any]:
    leaf = node.leaf
    return {
        "id": node.id,
        "name": node.name,
        "edges": node.edges,
        "leaf": leaf
        and {
            "name": leaf.name,
            "shape": leaf.shape,
            "dtype": leaf.dtype,
            "device": leaf.device,
            "version": leaf.version,
            "requiresGrad": leaf.requires_grad,
            "hasGrad": leaf.has_grad,
        },
        "savedBytes": node.saved_bytes,
        "saved": node.saved,
        "freed": node.freed,
        "retainsGrad": node.retains_grad,
        "line": node.made_at,
        "call": node.call,
    }

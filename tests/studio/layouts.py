"""Layouts: graphs as Python's client lays them out, for the tests of Studio's layout."""

import json
import random
from pathlib import Path
from typing import Any

from gradwire._graph.graph_layout import Edge, lay_out


def write(path: Path) -> None:
    """Write graphs of several sizes and forms as JSON."""
    path.write_text(json.dumps([_laid_out(name, count, edges) for name, count, edges in _graphs()]))


def _graphs() -> list[tuple[str, int, list[Edge]]]:
    return [
        ("nothing", 0, []),
        ("one box", 1, []),
        ("a diamond", 4, [(0, 1), (0, 2), (1, 3), (2, 3)]),
        ("one input twice", 3, [(0, 1), (0, 1), (1, 2)]),
        ("a chain with skips", 60, [(i, i + 1) for i in range(59)] + [(i, i + 7) for i in range(0, 50, 5)]),
        *((f"a net of {count} boxes", count, _net(count)) for count in (30, 400, 1000, 5000)),
    ]


def _net(count: int) -> list[Edge]:
    drawn = random.Random(count)
    edges = [(max(0, i - 1 - drawn.randrange(3)), i) for i in range(1, count)]
    return edges + [(i - 15, i) for i in range(20, count, 17)]


def _laid_out(name: str, count: int, edges: list[Edge]) -> dict[str, Any]:
    drawn = random.Random(name)
    sizes = [(float(drawn.randrange(54, 200)), float(drawn.choice((30, 46, 61)))) for _ in range(count)]
    found = lay_out(sizes, edges)
    routes = [{"points": route.points, "arrives": route.arrives} for route in found.routes]
    layout = {
        "centres": found.centres,
        "layers": found.layers,
        "routes": routes,
        "width": found.width,
        "height": found.height,
    }
    return {"name": name, "sizes": sizes, "edges": edges, "layout": layout}

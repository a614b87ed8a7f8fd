"""Graph layout: places the boxes of a directed acyclic graph in layers, and routes the edges between them.

Four steps, each iterative and about linear in boxes and edges. A box's layer is the longest path to it. An edge that
passes layers is given a bend in each; edges to the same box share these bends, as a trunk that they join. The order
within a layer comes from the mean of the neighbours' places, swept up and down while crossings fall. Positions move
towards the neighbours' by least squares, with the order and the gaps kept. Edges are vertical inside a layer, so they
run beside the boxes there. The layout is independent of the boxes' meaning.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]
Edge = tuple[int, int]

MARGIN = 12.0
_BOX_GAP = 24.0
_BEND_GAP = 16.0
_PORT_GAP = 14.0
# Beyond this size a better order is no longer visible, and finding it would not be linear.
_SWEEP_LIMIT = 500
_ORDER_SWEEPS = 12
# So many bends a box may cost on average; a longer trunk is not built, and its edges run straight, behind the boxes.
_BENDS_PER_BOX = 6


@dataclass(frozen=True)
class EdgePath:
    """The points of an edge: straight down for equal x, else a smooth S-curve.

    `arrives` is False if the edge ends in the trunk of another edge to the same box, which has the arrowhead.
    """

    points: list[Point]
    arrives: bool


@dataclass(frozen=True)
class Layout:
    """The centre and the layer of every box, the route of every edge, and the size of the whole."""

    centres: list[Point]
    layers: list[int]
    routes: list[EdgePath]
    width: float
    height: float


def lay_out(sizes: Sequence[Point], edges: Sequence[Edge]) -> Layout:
    """Lay out boxes of the given (width, height), joined by (from, to) pairs of their indices.

    Raises ValueError where the edges form a cycle.
    """
    net = _Net(sizes, edges, _layers(len(sizes), edges))
    small = len(sizes) <= _SWEEP_LIMIT
    _order(net, sweeps=_ORDER_SWEEPS if small else 0)
    xs = _positions(net, rounds=24 if small else 4)
    left = min((x - width / 2 for x, width in zip(xs, net.widths, strict=True)), default=0.0) - MARGIN
    xs = [x - left for x in xs]
    right = max((x + width / 2 for x, width in zip(xs, net.widths, strict=True)), default=0.0)
    bands = _bands(net, xs)
    middles = [(top + bottom) / 2 for top, bottom in bands]
    centres = [(xs[box], middles[layer]) for box, layer in enumerate(net.layers)]
    bottom = bands[-1][1] if bands else 0.0
    return Layout(centres, net.layers, _routes(net, xs, bands), right + MARGIN, bottom + MARGIN)


@dataclass
class _Net:
    """The boxes and, numbered after them, the bends of the long edges, linked from layer to layer."""

    sizes: Sequence[Point]
    edges: Sequence[Edge]
    layers: list[int]
    widths: list[float] = field(init=False)
    rows: list[list[int]] = field(init=False)
    above: list[list[int]] = field(init=False)
    below: list[list[int]] = field(init=False)
    # For a box with long edges: the layer of its trunk's first bend, and the bends.
    trunks: dict[int, tuple[int, list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.widths = [width for width, _ in self.sizes]
        self.rows = [[] for _ in range(max(self.layers, default=-1) + 1)]
        for box, layer in enumerate(self.layers):
            self.rows[layer].append(box)
        self._build_trunks()
        self.above = [[] for _ in self.widths]
        self.below = [[] for _ in self.widths]
        for source, target in self.edges:
            step = self.first_step(source, target)
            if step is not None:
                self._link(source, step)
        for target, (_, bends) in self.trunks.items():
            for upper, lower in itertools.pairwise([*bends, target]):
                self._link(upper, lower)

    def first_step(self, source: int, target: int) -> int | None:
        """The box or bend of the next layer that an edge leads to; None for a long edge without bends."""
        if self.layers[target] == self.layers[source] + 1:
            return target
        if target not in self.trunks:
            return None
        start, bends = self.trunks[target]
        return bends[self.layers[source] + 1 - start]

    def is_bend(self, vertex: int) -> bool:
        return vertex >= len(self.sizes)

    def distance(self, left: int, right: int) -> float:
        """The minimum distance between the centres of two neighbours in a row."""
        air = _BEND_GAP if self.is_bend(left) or self.is_bend(right) else _BOX_GAP
        return (self.widths[left] + self.widths[right]) / 2 + air

    def _link(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)

    def _build_trunks(self) -> None:
        starts: dict[int, int] = {}
        for source, target in self.edges:
            below = self.layers[source] + 1
            if below < self.layers[target]:
                starts[target] = min(below, starts.get(target, below))
        left = max(2000, _BENDS_PER_BOX * len(self.sizes))
        for target, start in sorted(starts.items(), key=lambda item: self.layers[item[0]] - item[1]):
            length = self.layers[target] - start
            left -= length
            if left < 0:
                return
            bends = list(range(len(self.widths), len(self.widths) + length))
            self.widths.extend([0.0] * length)
            for row, bend in zip(self.rows[start:], bends, strict=False):
                row.append(bend)
            self.trunks[target] = (start, bends)


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    waiting = [0] * count
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        waiting[target] += 1
        targets[source].append(target)
    layers = [0] * count
    ready = [box for box in range(count) if waiting[box] == 0]
    for box in ready:  # `ready` grows during the loop
        for target in targets[box]:
            layers[target] = max(layers[target], layers[box] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    if len(ready) < count:
        raise ValueError("the graph has a cycle, so it has no layers to be drawn in")
    return layers


def _order(net: _Net, *, sweeps: int) -> None:
    """Order the rows from the top, then sweep up and down and keep the order with the fewest crossings."""
    place = [0] * len(net.widths)
    for upper, row in itertools.pairwise([[], *net.rows]):
        found = dict.fromkeys(lower for vertex in upper for lower in net.below[vertex])
        row[:] = [*found, *(vertex for vertex in row if vertex not in found)]
        _sort(row, net.above, place)
    best = [list(row) for row in net.rows]
    fewest = _crossings(net, place) if sweeps else 0
    for turn in range(sweeps):
        if fewest == 0:
            break
        rows, towards = (reversed(net.rows), net.below) if turn % 2 == 0 else (iter(net.rows), net.above)
        for row in rows:
            _sort(row, towards, place)
        crossings = _crossings(net, place)
        if crossings < fewest:
            best, fewest = [list(row) for row in net.rows], crossings
    net.rows = best


def _sort(row: list[int], towards: list[list[int]], place: list[int]) -> None:
    """Sort a row by the mean place of the neighbours on one side. Vertices without neighbours keep their place."""
    moving = [vertex for vertex in row if towards[vertex]]
    means = {vertex: sum(place[end] for end in towards[vertex]) / len(towards[vertex]) for vertex in moving}
    moving.sort(key=means.__getitem__)
    in_turn = iter(moving)
    for i, vertex in enumerate(row):
        row[i] = next(in_turn) if vertex in means else vertex
        place[row[i]] = i


def _crossings(net: _Net, place: list[int]) -> int:
    total = 0
    for row in net.rows:
        seen: list[int] = []
        for vertex in row:
            ends = sorted(place[end] for end in net.below[vertex])
            total += sum(len(seen) - bisect.bisect_right(seen, end) for end in ends)
            for end in ends:
                bisect.insort(seen, end)
    return total


def _positions(net: _Net, *, rounds: int) -> list[float]:
    """The x of every box and bend: near the mean of its neighbours, in order and without overlap."""
    xs = [0.0] * len(net.widths)
    for row in net.rows:
        steps = [0.0, *(net.distance(a, b) for a, b in itertools.pairwise(row))]
        places = list(itertools.accumulate(steps))
        for vertex, place in zip(row, places, strict=True):
            xs[vertex] = place - places[-1] / 2
    for _ in range(rounds):
        for row in net.rows:
            _place_row(net, row, xs, [_wish(net, vertex, xs, net.above) for vertex in row])
        for row in reversed(net.rows):
            _place_row(net, row, xs, [_wish(net, vertex, xs, net.below) for vertex in row])
    for _ in range(rounds):
        _straighten(net, xs)
    return xs


def _straighten(net: _Net, xs: list[float]) -> None:
    """Move the bends of each trunk towards one line, with little change to the boxes."""
    lines: dict[int, float] = {}
    for _, bends in net.trunks.values():
        lines.update(dict.fromkeys(bends, sum(xs[bend] for bend in bends) / len(bends)))
    for row in net.rows:
        _place_row(net, row, xs, [(lines[v], 1.0) if v in lines else (xs[v], 4.0) for v in row])


def _place_row(net: _Net, row: list[int], xs: list[float], wishes: list[tuple[float, float]]) -> None:
    """Place a row by least squares of its (place, weight) wishes. Vertices that would be too close are pooled."""
    # Pools of (weight, mean of the wished place less the room needed to the left, members); their means only rise.
    pools: list[tuple[float, float, int]] = []
    rooms = list(itertools.accumulate([0.0, *(net.distance(a, b) for a, b in itertools.pairwise(row))]))
    for (wish, weight), room in zip(wishes, rooms, strict=True):
        mean, members = wish - room, 1
        while pools and pools[-1][1] >= mean:
            other_weight, other_mean, others = pools.pop()
            mean = (weight * mean + other_weight * other_mean) / (weight + other_weight)
            weight, members = weight + other_weight, members + others
        pools.append((weight, mean, members))
    shifts = itertools.chain.from_iterable(itertools.repeat(mean, members) for _, mean, members in pools)
    for vertex, room, shift in zip(row, rooms, shifts, strict=True):
        xs[vertex] = shift + room


def _wish(net: _Net, vertex: int, xs: list[float], towards: list[list[int]]) -> tuple[float, float]:
    ends = towards[vertex]
    if not ends:
        return xs[vertex], 0.1
    if net.is_bend(vertex):
        bends = [end for end in ends if net.is_bend(end)]
        if bends:
            return xs[bends[0]], 8.0  # a trunk is straight before anything else
    return sum(xs[end] for end in ends) / len(ends), float(len(ends))


def _bands(net: _Net, xs: list[float]) -> list[Point]:
    """The top and bottom of every layer. Wide steps get more height between layers, for smooth curves."""
    bands: list[Point] = []
    top = MARGIN
    for row in net.rows:
        bottom = top + max(net.sizes[v][1] for v in row if not net.is_bend(v))
        bands.append((top, bottom))
        reach = max((abs(xs[v] - xs[end]) for v in row for end in net.below[v]), default=0.0)
        top = bottom + min(110.0, 30.0 + 0.1 * reach)
    return bands


def _routes(net: _Net, xs: list[float], bands: list[Point]) -> list[EdgePath]:
    steps = [net.first_step(source, target) for source, target in net.edges]
    leave = _leaving_ports(net, xs, steps)
    owners: dict[int, int] = {}
    for e, (source, target) in enumerate(net.edges):
        if target in net.trunks and net.layers[source] + 1 == net.trunks[target][0]:
            owners.setdefault(target, e)
    arrive = _arriving_ports(net, xs, steps, leave, owners)

    routes = []
    for e, (source, target) in enumerate(net.edges):
        step = steps[e]
        layer = net.layers[source]
        points = [(leave[e], sum(bands[layer]) / 2 + net.sizes[source][1] / 2), (leave[e], bands[layer][1])]
        if step is not None and net.is_bend(step):
            if owners[target] != e:
                points.append((xs[step], bands[layer + 1][0]))
                routes.append(EdgePath(_simplified(points), arrives=False))
                continue
            start, bends = net.trunks[target]
            points.extend((xs[bend], y) for i, bend in enumerate(bends) for y in bands[start + i])
        top, bottom = bands[net.layers[target]]
        points += [(arrive[e], top), (arrive[e], (top + bottom) / 2 - net.sizes[target][1] / 2)]
        routes.append(EdgePath(_simplified(points), arrives=True))
    return routes


def _leaving_ports(net: _Net, xs: list[float], steps: list[int | None]) -> list[float]:
    """Spread a box's edges along its lower side, in the order of their targets."""
    leaving: list[list[int]] = [[] for _ in net.sizes]
    for e, (source, _) in enumerate(net.edges):
        leaving[source].append(e)
    ports = [0.0] * len(net.edges)
    for box, group in enumerate(leaving):
        group.sort(key=lambda e: xs[net.edges[e][1] if (step := steps[e]) is None else step])
        for e, offset in zip(group, _spread(len(group), net.widths[box]), strict=True):
            ports[e] = xs[box] + offset
    return ports


def _arriving_ports(
    net: _Net, xs: list[float], steps: list[int | None], leave: list[float], owners: dict[int, int]
) -> dict[int, float]:
    """Spread the edges that arrive at a box along its upper side. A trunk counts as one edge."""
    arriving: list[list[tuple[float, int]]] = [[] for _ in net.sizes]
    for e, (_, target) in enumerate(net.edges):
        step = steps[e]
        if step is None or not net.is_bend(step):
            arriving[target].append((leave[e], e))
    for target, e in owners.items():
        arriving[target].append((xs[net.trunks[target][1][-1]], e))
    ports: dict[int, float] = {}
    for box, group in enumerate(arriving):
        group.sort()
        if len(group) == 1 and abs(group[0][0] - xs[box]) < net.widths[box] / 2 - _PORT_GAP:
            ports[group[0][1]] = group[0][0]  # straight down rather than to the middle
            continue
        for (_, e), offset in zip(group, _spread(len(group), net.widths[box]), strict=True):
            ports[e] = xs[box] + offset
    return ports


def _spread(count: int, width: float) -> list[float]:
    gap = min(_PORT_GAP, 0.7 * width / max(1, count - 1))
    return [(i - (count - 1) / 2) * gap for i in range(count)]


def _simplified(points: list[Point]) -> list[Point]:
    """Drop the points inside straight runs."""
    kept: list[Point] = []
    for point in points:
        if len(kept) > 1 and abs(kept[-2][0] - point[0]) < 0.05 and abs(kept[-1][0] - point[0]) < 0.05:
            kept.pop()
        kept.append(point)
    return kept

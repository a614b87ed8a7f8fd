"""Checkpoints: drop the saved values of a region of the graph, and recompute them when backward reaches it.

A region is the nodes made between two moments, by sequence number. Recomputation makes the same nodes in the same
order; their saved values are moved into the original nodes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.callbacks import hooks_of
from gradwire_engine.graph.graph import Node
from gradwire_engine.graph.hooks import ExternalCallback
from gradwire_engine.graph.saved import Saved

if TYPE_CHECKING:
    from gradwire_engine.core.random import Generator
    from gradwire_engine.graph.tensor import Tensor


class RegionStart:
    """Start of a region: the first sequence number, and the random generator's state."""

    def __init__(self, generator: Generator, region: Region | None = None, keeps_random: bool = True) -> None:
        """Begin a region, or the recomputation of `region` with its original random numbers."""
        self.first = CURRENT.get().nodes.take()
        self.generator = generator
        self.outer = generator.get_state() if keeps_random else None
        self.random: bytes | None = self.outer if region is None else region.random
        if self.random is not None and region is not None:
            generator.set_state(self.random)

    def end(self, again: bool) -> None:
        """End the region; after a recomputation the generator continues as if there had been none."""
        if again and self.outer is not None:
            self.generator.set_state(self.outer)


class Region:
    """A region whose nodes keep no values; `callback` recomputes it. The nodes refer to the region."""

    __slots__ = ("__weakref__", "behind", "callback", "kinds", "nodes", "offsets", "random", "saving")
    random: bytes | None

    def __init__(self, callback: ExternalCallback, moment: RegionStart, outputs: Iterable[Tensor]) -> None:
        """Drop the saved values of the nodes behind `outputs` that were made since `moment`."""
        self.callback = callback
        self.random = moment.random
        made = made_since(moment.first, outputs)
        self.kinds = [_kind(node) for node in made]
        self.offsets = [node.seq - moment.first for node in made]
        self.behind = [_behind(node, moment.first) for node in made]
        #: Indices of the nodes that need values back.
        self.saving: list[int] = []
        # Several nodes may wait for one recomputed node, if a region is nested in another checkpointed region.
        self.nodes: list[list[weakref.ref[Node]]] = [[weakref.ref(node)] for node in made]
        for place, node in enumerate(made):
            hollow = node.hooks is not None and node.hooks.again is not None
            if hollow or any(_tensors(node.saved)):
                self.saving.append(place)
                node.saved = ()
                hooks_of(node).again = self

    def refill(self, moment: RegionStart, outputs: Iterable[Tensor]) -> None:
        """Move the saved values of recomputed nodes (behind `outputs`, since `moment`) into the region's nodes.

        Raises EngineError: RUNTIME if the recomputed nodes differ in number, name, shapes or dtypes.
        """
        fresh = made_since(moment.first, outputs)
        pairs = self._partly(moment, fresh) or self._all(fresh)
        inner: dict[int, dict[int, int]] = {}
        for waiting, new in pairs:
            for reference in waiting:
                old = reference()
                if old is None or old.freed or old.hooks is None or old.hooks.again is not self:
                    continue
                old.saved = new.saved
                region: Region | None = None if new.hooks is None else new.hooks.again
                old.hooks.again = region
                if region is not None:
                    region._await(old, new, inner)

    def _all(self, fresh: list[Node]) -> list[tuple[list[weakref.ref[Node]], Node]]:
        """The region's nodes with the recomputed ones, in order."""
        kinds = [_kind(node) for node in fresh]
        if len(kinds) != len(self.kinds):
            raise EngineError(
                Reason.RUNTIME,
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation. Nodes in the original forward: {len(self.kinds)}. In the recomputation: {len(kinds)}.",
            )
        for place, (before, now) in enumerate(zip(self.kinds, kinds, strict=True)):
            if before != now:
                raise EngineError(
                    Reason.RUNTIME,
                    "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                    f"during the forward pass: node {place} was {before[0]} with {before[1]}, now it is {now[0]} with "
                    f"{now[1]}.",
                )
        return list(zip(self.nodes, fresh, strict=True))

    def _partly(self, moment: RegionStart, fresh: list[Node]) -> list[tuple[list[weakref.ref[Node]], Node]]:
        """The nodes that need values, with the recomputed ones, if the recomputation ended early. Empty if it did not.

        The recomputed nodes may include some that lead to no result of the region. So numbers tell which is which. They
        must agree along the edges, too: other commands, made in another order, may have shifted them.
        """
        if len(fresh) == len(self.kinds):
            return []
        found = {node.seq - moment.first: node for node in fresh}
        pairs: list[tuple[list[weakref.ref[Node]], Node]] = []
        for place in self.saving:
            node = found.get(self.offsets[place])
            if node is None or self._differs(place, node, moment.first):
                return []
            pairs.append((self.nodes[place], node))
        return pairs

    def _differs(self, place: int, node: Node, first: int) -> bool:
        return _kind(node) != self.kinds[place] or _behind(node, first) != self.behind[place]

    def drop(self) -> None:
        """Drop again what a recomputation gave to nodes that no backward has passed since."""
        for waiting in self.nodes:
            for reference in waiting:
                node = reference()
                if node is None or node.freed or node.hooks is None or node.hooks.again is not None:
                    continue
                if any(_tensors(node.saved)):
                    node.saved = ()
                    node.hooks.again = self

    def _await(self, old: Node, new: Node, places: dict[int, dict[int, int]]) -> None:
        """Let `old` wait for the same values as `new`, a node of this region. places: cache of nodes' indices."""
        known = places.setdefault(id(self), {})
        if not known:
            for place, waiting in enumerate(self.nodes):
                known.update({id(node): place for reference in waiting if (node := reference()) is not None})
        self.nodes[known[id(new)]].append(weakref.ref(old))


def made_since(first: int, outputs: Iterable[Tensor]) -> list[Node]:
    """Nodes behind the tensors with sequence number `first` or later, in order of creation."""
    found: dict[Node, None] = {}
    waiting: list[Any] = [output.grad_fn for output in outputs]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Node) and node.seq >= first and node not in found:
            found[node] = None
            waiting.extend(edge[0] for edge in node.edges if edge is not None)
    return sorted(found, key=lambda node: node.seq)


def _behind(node: Node, first: int) -> list[int | None]:
    """The numbers, since `first`, of the nodes to which the edges lead. None for what was made before, and leaves."""
    targets = [None if edge is None else edge[0] for edge in node.edges]
    return [each.seq - first if isinstance(each, Node) and each.seq >= first else None for each in targets]


def _kind(node: Node) -> tuple[str, list[tuple[tuple[int, ...], Any]]]:
    """Name, and shapes and dtypes of saved values; recomputation must reproduce them."""
    return node.name, [(each.array.shape, each.array.dtype) for each in _tensors(node.saved)]


def _tensors(saved: Sequence[Any]) -> list[Saved]:
    found: list[Saved] = []
    for value in saved:
        if type(value) is Saved:
            found.append(value)
        elif type(value) is list:
            found.extend(_tensors(value))
    return found

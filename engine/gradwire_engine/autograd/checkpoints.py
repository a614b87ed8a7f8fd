"""Checkpoints: what the nodes of a part of the graph saved is let go, and computed again when backward comes there.

The part is what was made between two moments: nodes are numbered as they are made. When it is computed again the same
nodes are made in the same order, and what the new ones saved is put into the old ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph import graph
from gradwire_engine.graph.graph import Node, Saved
from gradwire_engine.graph.hooks import Ask, hooks_of

if TYPE_CHECKING:
    from gradwire_engine.core.random import Generator
    from gradwire_engine.graph.tensor import Tensor


class Moment:
    """When a part begins: which nodes come after it, and what the random generator was like."""

    def __init__(self, generator: Generator, region: Region | None = None, keeps_random: bool = True) -> None:
        """Begin a part, or with `region` begin to compute that one again, with the random numbers of the first time."""
        self.first = graph.next_seq()
        self.generator = generator
        self.outer = generator.get_state() if keeps_random else None
        self.random: bytes | None = self.outer if region is None else region.random
        if self.random is not None:
            if region is not None:
                generator.set_state(self.random)
            self.diverted = generator.divert(self.random)

    def end(self, again: bool) -> None:
        """The part is made: what comes next draws what it would have drawn."""
        if self.outer is None:
            return
        if again:
            self.generator.set_state(self.outer)
        self.generator.undivert(self.diverted)


class Region:
    """A part whose nodes keep nothing; `ask` stands for what computes it again. The nodes hold the region."""

    __slots__ = ("__weakref__", "ask", "kinds", "nodes", "random")
    random: bytes | None

    def __init__(self, ask: Ask, moment: Moment, outputs: Iterable[Tensor]) -> None:
        """Take from the nodes behind `outputs` that were made since `moment` what they saved."""
        self.ask = ask
        self.random = moment.random
        made = made_since(moment.first, outputs)
        self.kinds = [_kind(node) for node in made]
        # Several nodes may be waiting for what one computes again: where a part lies in another that was, too.
        self.nodes: list[list[weakref.ref[Node]]] = [[weakref.ref(node)] for node in made]
        for node in made:
            hollow = node.hooks is not None and node.hooks.again is not None
            if hollow or any(_tensors(node.saved)):
                node.saved = ()
                hooks_of(node).again = self

    def refill(self, moment: Moment, outputs: Iterable[Tensor]) -> None:
        """Give the nodes what those behind `outputs`, made since `moment`, saved. Raises EngineError: RUNTIME."""
        fresh = made_since(moment.first, outputs)
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
        inner: dict[int, dict[int, int]] = {}
        for waiting, new in zip(self.nodes, fresh, strict=True):
            for reference in waiting:
                old = reference()
                if old is None or old.freed or old.hooks is None or old.hooks.again is not self:
                    continue
                old.saved = new.saved
                region: Region | None = None if new.hooks is None else new.hooks.again
                old.hooks.again = region
                if region is not None:
                    region._await(old, new, inner)

    def _await(self, old: Node, new: Node, places: dict[int, dict[int, int]]) -> None:
        """Let another node wait with one of this region's."""
        known = places.setdefault(id(self), {})
        if not known:
            for place, waiting in enumerate(self.nodes):
                known.update({id(node): place for reference in waiting if (node := reference()) is not None})
        self.nodes[known[id(new)]].append(weakref.ref(old))


def made_since(first: int, outputs: Iterable[Tensor]) -> list[Node]:
    """The nodes behind tensors that have been made since a moment, in the order in which they were."""
    found: dict[Node, None] = {}
    waiting: list[Any] = [output.grad_fn for output in outputs]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Node) and node.seq >= first and node not in found:
            found[node] = None
            waiting.extend(edge[0] for edge in node.edges if edge is not None)
    return sorted(found, key=lambda node: node.seq)


def _kind(node: Node) -> tuple[str, list[tuple[tuple[int, ...], Any]]]:
    """What must be the same when it is made again: its name, shapes and dtypes of what it saved."""
    return node.name, [(each.array.shape, each.array.dtype) for each in _tensors(node.saved)]


def _tensors(saved: Sequence[Any]) -> list[Saved]:
    found: list[Saved] = []
    for value in saved:
        if type(value) is Saved:
            found.append(value)
        elif type(value) is list:
            found.extend(_tensors(value))
    return found

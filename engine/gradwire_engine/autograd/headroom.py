"""What a backward may still make: gradients on their way belong to no tensor, so no storage counts them.

Along the way each node takes from what is left by a bound that is quick to tell; only when nothing is left are the
gradients that are alive counted, each array once. So a node costs one subtraction, and the count's cost is spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from gradwire_engine.core.dtypes import is_half

if TYPE_CHECKING:
    from gradwire_engine.core.context import Account
    from gradwire_engine.graph.graph import Node

# Between two counts this part of the limit may be made, or a backward at its limit would do nothing but count.
_GRAIN = 64
_HALF = 2  # bytes of a half type's element


class Room:
    """The bytes `left` until the next count, of one backward without create_graph."""

    __slots__ = ("account", "left", "roots")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.left = account.limit - account.bytes
        #: What the backward begins with, by place: arrays that a tensor counts already.
        self.roots: Sequence[tuple[Any, Any]] = ()

    @staticmethod
    def of(account: Account, create_graph: bool) -> Room | None:
        """None where nothing is limited, and with create_graph, where every gradient is a tensor that counts."""
        return Room(account) if account.limit and not create_graph else None

    def enter(self, node: Node, gradients: list[Any], alive: Callable[[], Iterator[Any]]) -> None:
        """A node's formulas are about to run, on these gradients. Raises EngineError: MEMORY_LIMIT."""
        self.left = left = self.left - needed(node, gradients)
        if left < 0:
            self.look(node, gradients, alive)

    def look(self, node: Node, gradients: list[Any], alive: Callable[[], Iterator[Any]]) -> None:
        """Count what is alive, and what the node needs. Raises EngineError: MEMORY_LIMIT."""
        account = self.account
        owners = {id(owner): owner for owner in map(_owner, (*alive(), *gradients)) if owner is not None}
        given = {id(_owner(gradient)) for _, gradient in self.roots}
        held = sum(int(owner.nbytes) for key, owner in owners.items() if key not in given)
        more = needed(node, gradients)
        account.admit(held + more)
        self.left = max(account.limit - account.bytes - held - more, account.limit // _GRAIN)


def needed(node: Node, gradients: list[Any]) -> int:
    """At most the bytes that a node's formulas take at once: what they make, and what they give back."""
    op = node.op
    largest, half = 0, False
    for one in gradients:
        if one is not None:
            size = one.nbytes
            if size > largest:
                largest = size
            half = half or one.dtype.itemsize == _HALF
    made = 0
    if op.grows_back:
        for edge, meta in zip(node.edges, node.metas, strict=True):
            if edge is not None and meta is not None:
                made += prod(meta[0]) * meta[1].itemsize
    else:
        made = largest * (1 if op.list_place >= 0 else sum(edge is not None for edge in node.edges))
    times = op.work_back
    if half and op.grows_back and any(is_half(one.dtype) for one in gradients if one is not None):
        times = 2 * (times + 1)  # computed in float32
    return made + int(times * max(largest, made))


def _owner(gradient: Any) -> Any:
    """The array behind an array; None of nothing."""
    while getattr(gradient, "base", None) is not None:
        gradient = gradient.base
    return gradient if hasattr(gradient, "nbytes") else None

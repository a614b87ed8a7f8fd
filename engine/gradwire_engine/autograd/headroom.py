"""Headroom: memory that a backward may still allocate, because its pending gradients are counted by no storage.

Each node subtracts a cheap upper bound from the remaining bytes. Only when they are used up are the live gradients
counted, each array once. So a node costs one subtraction, and the cost of counting is amortized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from gradwire_engine.core.dtypes import is_half

if TYPE_CHECKING:
    from gradwire_engine.core.context import Account
    from gradwire_engine.graph.graph import Node

# At least limit / _GRAIN bytes lie between two counts, or a backward near its limit would count at every node.
_GRAIN = 64
_HALF = 2  # bytes of a half type's element


class Headroom:
    """Bytes `left` until the next count, for one backward without create_graph."""

    __slots__ = ("account", "left", "roots")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.left = account.limit - account.bytes
        #: The roots' gradients, with their edges: arrays that a tensor's storage already counts.
        self.roots: Sequence[tuple[Any, Any]] = ()

    @staticmethod
    def of(account: Account, create_graph: bool) -> Headroom | None:
        """Make a Headroom; None without a limit, and with create_graph, where storages count every gradient."""
        return Headroom(account) if account.limit and not create_graph else None

    def reserve(self, node: Node, gradients: list[Any], alive: Callable[[], Iterator[Any]]) -> None:
        """Reserve memory for a node's formulas before they run. Raises EngineError: MEMORY_LIMIT."""
        self.left = left = self.left - needed(node, gradients)
        if left < 0:
            self.count(node, gradients, alive)

    def count(self, node: Node, gradients: list[Any], alive: Callable[[], Iterator[Any]]) -> None:
        """Count the live gradients, and what the node needs. Raises EngineError: MEMORY_LIMIT."""
        account = self.account
        owners = {id(owner): owner for owner in map(_owner, (*alive(), *gradients)) if owner is not None}
        given = {id(_owner(gradient)) for _, gradient in self.roots}
        held = sum(int(owner.nbytes) for key, owner in owners.items() if key not in given)
        more = needed(node, gradients)
        account.admit(held + more)
        self.left = max(account.limit - account.bytes - held - more, account.limit // _GRAIN)


def needed(node: Node, gradients: list[Any]) -> int:
    """Upper bound of the peak bytes of a node's formulas: results and temporary memory."""
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
    elif op.list_position >= 0:
        made = largest
    else:
        for edge in node.edges:
            if edge is not None:
                made += largest
    times = op.work_back
    if half and op.grows_back and any(is_half(one.dtype) for one in gradients if one is not None):
        times = 2 * (times + 1)  # computed in float32
    return made + int(times * max(largest, made))


def _owner(gradient: Any) -> Any:
    """The array that owns the memory of a gradient; None if there is no gradient."""
    while getattr(gradient, "base", None) is not None:
        gradient = gradient.base
    return gradient if hasattr(gradient, "nbytes") else None

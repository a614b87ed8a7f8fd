"""Open levels of forward-mode differentiation, as the client knows them: which proxies have tangents there.

Tangents are on the server. A proxy's Spec tells at which depths its tensor has one, and describes each. When a level
closes, the server drops its tangents, and here the proxies' specs lose them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle
    from gradwire._proxy.shadow_graph import Edge

#: The open levels of this thread, outermost first.
DUAL_LEVELS: ContextVar[tuple[DualLevel, ...]] = ContextVar("gradwire_dual_levels", default=())


class DualLevel:
    """One level. depth: 1 for the outermost. tokens: per session, the tensor that stands for the level there.

    nests: whether other levels may be inside, as inside a transform's.
    """

    def __init__(self, depth: int, nests: bool = False) -> None:
        self.depth = depth
        self.nests = nests
        self.tokens: dict[Any, Any] = {}
        self._duals: dict[int, weakref.ref[Handle]] = {}

    def note(self, dual: Handle) -> None:
        """Note a proxy whose tensor has a tangent at this level."""
        key = id(dual)
        self._duals[key] = weakref.ref(dual, lambda _: self._duals.pop(key, None))

    def forget(self) -> None:
        """Take this level's tangents out of the proxies' specs."""
        for reference in list(self._duals.values()):
            dual = reference()
            if dual is not None:
                dual._spec = dual._spec.without_tangent(self.depth)
        self._duals.clear()


def note_dual(dual: Handle) -> None:
    """Note a proxy with tangents at the open levels, so that it loses them with these."""
    depths = {depth for depth, _ in dual._spec.tangents}
    for level in DUAL_LEVELS.get():
        if level.depth in depths:
            level.note(dual)


def note_changed_dual(changed: Handle, edges: Sequence[Edge], args: Iterable[Any]) -> None:
    """Note a proxy that got tangents by an in-place op with these arguments."""
    note_dual(changed)
    set_tangent_edges(changed, edges, args)


def set_tangent_edges(made: Handle, edges: Sequence[Edge], args: Iterable[Any]) -> None:
    """Give a dual the edges of all it was computed from: its tangents' history may lead to any of them."""
    made.__dict__["_tangent_edges"] = [*edges, *_tangent_edges(args)]


def _tangent_edges(values: Iterable[Any]) -> list[Edge]:
    found: list[Edge] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _tangent_edges(value)
        elif (given := getattr(value, "__dict__", {}).get("_tangent_edges")) is not None:
            found.append(given)
    return found

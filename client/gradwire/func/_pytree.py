"""Nested tuples, lists and dicts of tensors, which transforms take and return as one value: flattened and rebuilt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Structure(NamedTuple):
    """The form of a nested value: a container's type and the data to rebuild it, or a leaf (kind None)."""

    kind: type[Any] | None
    keys: tuple[Any, ...]
    children: tuple[Structure, ...]

    @property
    def leaves(self) -> int:
        """How many leaves it holds."""
        return 1 if self.kind is None else sum(child.leaves for child in self.children)


LEAF = Structure(None, (), ())


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """The leaves from left to right, a dict's in its own order, and the structure. None is a leaf."""
    if isinstance(value, (dict, OrderedDict)):
        keys, items = tuple(value), list(value.values())
    elif type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        keys, items = (), list(value)
    else:
        return [value], LEAF
    leaves: list[Any] = []
    children = []
    for item in items:
        found, structure = flatten(item)
        leaves.extend(found)
        children.append(structure)
    return leaves, Structure(type(value), keys, tuple(children))


def rebuild(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The nested value of that structure with these leaves."""
    if structure.kind is None:
        return leaves[0]
    items = []
    at = 0
    for child in structure.children:
        items.append(rebuild(child, leaves[at : at + child.leaves]))
        at += child.leaves
    if structure.keys or issubclass(structure.kind, dict):
        return structure.kind(zip(structure.keys, items, strict=True))
    if hasattr(structure.kind, "_fields"):
        return structure.kind(*items)
    return structure.kind(items)


def tree_map(function: Callable[[Any], Any], value: Any) -> Any:
    """The nested value with the function applied to each leaf."""
    leaves, structure = flatten(value)
    return rebuild(structure, [function(leaf) for leaf in leaves])

"""Node: a node of the engine's graph as PyTorch's `grad_fn` shows it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from gradwire_engine.autograd.backward_pass import refuse_freed
from gradwire_engine.autograd.saved_tensor_hooks import Packed
from gradwire_engine.graph.hooks import CallbackKind
from tests.engine.torch_like.hooks import Handle, on_node, unpacked
from tests.engine.torch_like.tensors import wrap
from tests.refusals import as_python

_NAMESPACED = ("AccumulateGrad", "CopyBackwards", "CopySlices", "NotImplemented")
_FORMULAS_NAMES = {"self": "input", "result": "out"}  # by PyTorch's names
_KNOWN: weakref.WeakValueDictionary[Any, Node] = weakref.WeakValueDictionary()


class Node:
    """A node. There is one such object for an engine's node."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def name(self) -> str:
        name: str = self.inner.name
        return f"torch::autograd::{name}" if name in _NAMESPACED else name

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        return tuple((None, 0) if edge is None else (node_of(edge[0]), edge[1]) for edge in self.inner.edges)

    @property
    def variable(self) -> Any:
        return wrap(self.inner.variable)

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        return on_node(self.inner, CallbackKind.AFTER, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        return on_node(self.inner, CallbackKind.BEFORE, hook)

    def __getattr__(self, name: str) -> Any:
        """`_saved_<name>`: the value that was saved under that name."""
        wanted = name.removeprefix("_saved_")
        wanted = _FORMULAS_NAMES.get(wanted, wanted)
        node = self.inner
        if not name.startswith("_saved_") or wanted not in node.saving_plan.names:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with as_python():
            if node.freed:
                refuse_freed(node)
            value = node.saved[node.saving_plan.names.index(wanted)]
            if isinstance(value, Packed):
                value = value.unpacked(node, unpacked(value.callback))
            return wrap(value.tensor(node, wanted))


@cache
def _class_of(name: str) -> type[Node]:
    return type(name, (Node,), {})


def node_of(inner: Any) -> Any:
    """The node as PyTorch shows it; None for none."""
    if inner is None:
        return None
    found = _KNOWN.get(inner)
    if found is None:
        found = _KNOWN[inner] = _class_of(inner.name)(inner)
    return found

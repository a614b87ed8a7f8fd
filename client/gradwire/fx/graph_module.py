"""Modules whose `forward` is the code of a graph (torch.fx.graph_module)."""

from __future__ import annotations

import copy
import linecache
from importlib import import_module
from itertools import count
from typing import Any

from gradwire._base.wiring import names_of_paths, wired
from gradwire._proxy.handle import Handle
from gradwire.fx.code import PythonCode
from gradwire.fx.graph import Graph
from gradwire.nn import Module, Parameter

__all__ = ["GraphModule"]

__getattr__ = names_of_paths(__name__)

_numbers = count()


class _Trees:
    """What the code of a graph calls to flatten arguments."""

    @staticmethod
    def tree_flatten_spec(values: Any, spec: Any) -> list[Any]:
        """The leaves of arguments of a known structure."""
        leaves, found = wired("tree_flatten")(tuple(values))
        if found != spec:
            raise ValueError(f"the arguments have the structure {found}, not the traced one, {spec}")
        return list(leaves)

    @staticmethod
    def tree_unflatten(leaves: Any, spec: Any) -> Any:
        """A result of its leaves."""
        return wired("tree_unflatten")(leaves, spec)


class GraphModule(Module):
    """A module that runs a graph. `recompile` makes its code anew after a change of the graph."""

    _graph: Graph
    _code: str

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        """An object of a class of its own, whose `forward` is compiled."""
        base = cls if "_is_own" not in cls.__dict__ else cls.__mro__[1]
        made: GraphModule = Module.__new__(type(cls.__name__, (base,), {"_is_own": True}))
        return made

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        attributes = root if isinstance(root, dict) else None
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                value = attributes[node.target] if attributes is not None else _attribute(root, node.target)
                _assign(self, node.target, value)
        if isinstance(root, Module):
            self.training = root.training
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph. Another one may be set."""
        return self._graph

    @graph.setter
    def graph(self, value: Graph) -> None:
        object.__setattr__(self, "_graph", value)
        value.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The code of `forward`."""
        return self._code

    def recompile(self) -> PythonCode:
        """Compile the graph's code."""
        made: PythonCode = self._graph.python_code("self")
        object.__setattr__(self, "_code", made.src)
        if self._graph._pytree is not None:
            object.__setattr__(self, "_in_spec", self._graph._pytree.in_spec)
            object.__setattr__(self, "_out_spec", self._graph._pytree.out_spec)
        names = {"torch": import_module("gradwire"), "fx_pytree": _Trees, "pytree": _Trees, **made.globals}
        file = f"<eval_with_key>.{next(_numbers)}"
        linecache.cache[file] = (len(made.src), None, made.src.splitlines(True), file)
        names["NoneType"] = type(None)
        exec(compile(made.src, file, "exec"), names)
        type(self).forward = names["forward"]
        return made

    def print_readable(self, print_output: bool = True, **_: Any) -> str:
        """The code with the sizes of its values; printed unless `print_output` is False."""
        body = self._graph.python_code("self", verbose=True).src.strip()
        lines = [f"class {type(self).__name__}(torch.nn.Module):", *(f"    {each}" for each in body.splitlines())]
        made = "\n".join(lines) + "\n"
        if print_output:
            print(made)
        return made

    def __deepcopy__(self, memo: Any) -> GraphModule:
        return GraphModule(
            {node.target: copy.deepcopy(_attribute(self, node.target), memo) for node in _reading(self._graph)},
            copy.deepcopy(self._graph),
            type(self).__name__,
        )

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return f"{super().__str__()}\n\n{self._code}\n\n{hint}"


def _reading(graph: Graph) -> list[Any]:
    return [each for each in graph.nodes if each.op in ("get_attr", "call_module")]


def _attribute(root: Any, path: str) -> Any:
    for each in path.split("."):
        root = getattr(root, each)
    return root


def _assign(module: Any, path: str, value: Any) -> None:
    *outer, name = path.split(".")
    for each in outer:
        if not hasattr(module, each):
            setattr(module, each, Module())
        module = getattr(module, each)
    if isinstance(value, Handle) and not isinstance(value, Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)

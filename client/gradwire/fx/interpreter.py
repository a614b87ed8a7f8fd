"""Runs a graph node by node, each by a method that a subclass may change (torch.fx.Interpreter)."""

from __future__ import annotations

from typing import Any

from gradwire.fx.graph_module import _Trees
from gradwire.fx.node import Node, map_arg

__all__ = ["Interpreter"]


class Interpreter:
    """Runs the graph of a module."""

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Any = None) -> None:
        self.module, self.graph = module, graph if graph is not None else module.graph
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self._args: Any = iter(())

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The graph's result for these arguments."""
        self.env = dict(initial_env or {})
        pytree = self.graph._pytree if enable_io_processing else None
        given = args if pytree is None else self._flattened(args, pytree)
        self._args = iter(given)
        left = {node: len(node.users) for node in self.graph.nodes}
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                made = self.env[node]
                return made if pytree is None else self._rebuilt(made, pytree)
            for each in node.all_input_nodes if self.garbage_collect_values else ():
                left[each] -= 1
                if not left[each]:
                    del self.env[each]
        return None

    def _flattened(self, args: Any, pytree: Any) -> Any:
        return _Trees.tree_flatten_spec(args, pytree.in_spec)

    def _rebuilt(self, made: Any, pytree: Any) -> Any:
        return _Trees.tree_unflatten(made, pytree.out_spec)

    def run_node(self, n: Node) -> Any:
        """One node's value."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """A node's arguments, with the values of the nodes among them."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """A value with those of the nodes in it."""
        return map_arg(args, lambda each: self.env[each])

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument, or the default. Raises RuntimeError if there is none."""
        try:
            return next(self._args)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def fetch_attr(self, target: str) -> Any:
        """The attribute of a path."""
        found = self.module
        for each in target.split("."):
            found = getattr(found, each)
        return found

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A function's result."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A method's result."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A module's result."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The graph's result."""
        return args[0]

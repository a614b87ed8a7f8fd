"""Graphs: nodes in the order in which they run (torch.fx.graph)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.wiring import names_of_paths
from gradwire.fx.code import PythonCode, Pytree, python_code
from gradwire.fx.names import Names, snake_case
from gradwire.fx.node import Node, map_arg
from gradwire.library import OpOverload, OpOverloadPacket

__all__ = ["Graph", "PythonCode"]

__getattr__ = names_of_paths(__name__)


class Graph:
    """A list of nodes. New ones come at the end, or where `inserting_before` says."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self.owning_module = owning_module
        self._nodes: list[Node] = []
        self._names = Names()
        self._place: int | None = None
        self._pytree: Pytree | None = None

    @property
    def nodes(self) -> list[Node]:
        """The nodes in their order: a copy, so that they may be changed meanwhile."""
        return list(self._nodes)

    def create_node(
        self,
        op: str,
        target: Any,
        args: Any = None,
        kwargs: Any = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node. Its name is made of `name`, or of its target."""
        candidate = name if name is not None else _candidate(op, target)
        node = Node(self, "", op, target, args or (), kwargs or {}, type_expr)
        node.name = self._names.make(candidate, node)
        if self._place is None:
            self._nodes.append(node)
        else:
            self._nodes.insert(self._place, node)
            self._place += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Add a parameter."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, name=name, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add a node that reads an attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(self, the_function: Any, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """Add the call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """Add the call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """Add the call of a module by its path."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Add the result."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def output_node(self) -> Node:
        """The node of the result."""
        return next(each for each in reversed(self._nodes) if each.op == "output")

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, and of a target if one is given."""
        return [each for each in self._nodes if each.op == op and (target is None or each.target == target)]

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda each: each) -> Node:
        """Add a copy of a node of another graph, whose arguments `arg_transform` translates."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Add copies of all nodes of a graph; return what its output is here."""
        for node in g._nodes:
            if node in val_map:
                continue
            if node.op == "output":
                made = map_arg(node.args[0], lambda each: val_map[each])
                return (made, node) if return_output_node else made
            val_map[node] = self.node_copy(node, lambda each: val_map[each])
        return None

    def erase_node(self, to_erase: Node) -> None:
        """Take a node without users away. Raises RuntimeError for one that has users."""
        if to_erase.users:
            raise refuse(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase._erased:
            return
        place = self._nodes.index(to_erase)
        del self._nodes[place]
        if self._place is not None and place < self._place:
            self._place -= 1
        to_erase._set((), {})
        to_erase._erased = True
        self._names.free(to_erase.name)

    @contextmanager
    def _inserting(self, place: int | None) -> Iterator[None]:
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    def inserting_before(self, n: Node | None = None) -> Any:
        """Inside, new nodes come before that node, or at the beginning."""
        return self._inserting(0 if n is None else self._nodes.index(n))

    def inserting_after(self, n: Node | None = None) -> Any:
        """Inside, new nodes come behind that node, or at the end."""
        return self._inserting(None if n is None else self._nodes.index(n) + 1)

    def _beside(self, node: Node, step: int) -> Node:
        place = self._nodes.index(node) + step
        return self._nodes[place] if 0 <= place < len(self._nodes) else Node(self, "", "root", "", (), {})

    def _move(self, node: Node, beside: Node, behind: int) -> None:
        self._nodes.remove(node)
        self._nodes.insert(self._nodes.index(beside) + behind, node)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take away nodes without users that only make a value; return whether there was one."""
        impure = is_impure_node if is_impure_node is not None else Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """Raise RuntimeError for a node that takes a later one, or one of another graph, and for a name used twice."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self._nodes:
            for each in node.all_input_nodes:
                if each not in seen:
                    raise refuse(f"Argument '{each}' of Node '{node}' was used before it has been defined!")
            if node.name in names:
                raise refuse(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)

    def python_code(self, root_module: str, *, verbose: bool = False, **_: Any) -> PythonCode:
        """The code of the graph, as a function `forward` of the module's name and the placeholders."""
        return python_code(self, root_module, verbose)

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [tuple(map(str, (n.op, n.name, n.target, n.args, n.kwargs))) for n in self._nodes]  # type: ignore[misc]
        widths = [max(len(row[at]) for row in rows) for at in range(5)]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *(str(each.format_node()) for each in self._nodes)])

    __repr__ = object.__repr__

    def __deepcopy__(self, memo: Any = None) -> Graph:
        made = Graph()
        known: dict[Node, Node] = {}
        for node in self._nodes:
            known[node] = made.node_copy(node, lambda each: known[each])
        made._pytree = self._pytree
        return made


def _candidate(op: str, target: Any) -> str:
    if isinstance(target, OpOverload):
        return str(target.overloadpacket.__name__)
    if isinstance(target, OpOverloadPacket):
        return target.__name__
    if op == "call_function":
        return snake_case(getattr(target, "__name__", "call"))
    return str(target).replace(".", "_")

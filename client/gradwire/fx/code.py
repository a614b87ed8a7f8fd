"""A graph as Python code: one line a node, and each value is dropped behind its last use."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Sequence
from math import inf, nan
from typing import TYPE_CHECKING, Any, NamedTuple

from gradwire.fx.node import Node, map_arg, target_name
from gradwire.library import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from gradwire.fx.graph import Graph

_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
}
_KINDS = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "b8",
}


class PythonCode(NamedTuple):
    """The code of a graph's `forward`, and the names that it uses."""

    src: str
    globals: dict[str, Any]


class Pytree(NamedTuple):
    """How a function's arguments and result are flattened: its parameters' names, and the structures."""

    names: Sequence[str]
    in_spec: Any
    out_spec: Any


class _Writer:
    def __init__(self, graph: Graph, verbose: bool) -> None:
        self.graph, self.verbose = graph, verbose
        self.globals: dict[str, Any] = {"inf": inf, "nan": nan}
        self._nodes = {each.name for each in graph._nodes}
        self._dropped: dict[Node, list[Node]] = {}
        known: set[Node] = set()
        for node in reversed(graph._nodes):

            def note(each: Node, user: Node = node) -> Node:
                if each not in known:
                    known.add(each)
                    self._dropped.setdefault(user, []).append(each)
                return each

            map_arg(node.args, note)
            map_arg(node.kwargs, note)

    def value(self, value: Any) -> str:
        """An argument as code."""
        if isinstance(value, Node):
            return value.name
        if isinstance(value, (OpOverload, OpOverloadPacket)):
            return target_name(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            name = self.named(type(value).__name__, type(value))
            return f"{name}({', '.join(map(self.value, value))})"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.value, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {self.value(each)}' for key, each in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"
        if isinstance(value, type):
            return self.named(value.__name__, value)
        if type(value).__name__ == "device":
            self.named("device", type(value))
        return repr(value)

    def named(self, name: str, value: Any) -> str:
        """A global name for a value, which no node and no other value has."""
        while name in self._nodes or self.globals.get(name, value) is not value:
            name = f"{name}_"
        self.globals[name] = value
        return name

    def call(self, node: Node) -> str:
        """The right side of a call."""
        values = [self.value(each) for each in node.args]
        given = [*values, *(f"{name} = {self.value(each)}" for name, each in node.kwargs.items())]
        if node.op == "call_method":
            return f"{values[0]}.{node.target}({', '.join(given[1:])})"
        if node.op == "call_module":
            return f"self.{node.target}({', '.join(given)})"
        if node.target is operator.getitem:
            return f"{values[0]}[{values[1]}]"
        if node.target in _INFIX and len(values) == 2:
            return f"{values[0]} {_INFIX[node.target]} {values[1]}"
        name = target_name(node.target)
        path, _, last = name.rpartition(".")
        if keyword.iskeyword(last):  # random_.from
            name = f"getattr({path}, {last!r})"
        elif not isinstance(node.target, (OpOverload, OpOverloadPacket)) and not name.startswith("torch."):
            name = self.named(name.replace(".", "_"), node.target)
        return f"{name}({', '.join(given)})"

    def ending(self, node: Node) -> str:
        """The end of a node's line: values that are not used behind it are dropped."""
        if node.op in ("placeholder", "output"):
            return ""
        names = [each.name for each in self._dropped.get(node, [])]
        if not node.users:
            names.append(node.name)
        return f";  {' = '.join([*names, 'None'])}" if names else ""

    def line(self, node: Node) -> str:
        """One node."""
        mark = f": {_described(node)}" if self.verbose and _described(node) else ""
        if node.op == "get_attr":
            return f"{node.name}{mark} = self.{node.target}{self.ending(node)}"
        return f"{node.name}{mark} = {self.call(node)}{self.ending(node)}"


def python_code(graph: Graph, root: str = "self", verbose: bool = False) -> PythonCode:
    """The code of a graph. verbose: with the sizes of its values as annotations."""
    writer = _Writer(graph, verbose)
    pytree: Pytree | None = graph._pytree
    placeholders = [each for each in graph._nodes if each.op == "placeholder"]
    parameters = [
        each.name
        + (f": {_described(each)}" if verbose and _described(each) else "")
        + (f" = {writer.value(each.args[0])}" if each.args else "")
        for each in placeholders
    ]
    lines: list[str] = []
    if pytree is not None:
        names = [each.name for each in placeholders]
        flat = f"fx_pytree.tree_flatten_spec([{', '.join(pytree.names)}], {root}._in_spec)"
        lines.append(f"{', '.join(names)}, = {flat}" if names else flat)
        parameters = list(pytree.names)
    if verbose:
        lines.append("# No stacktrace found for following nodes")
    returns = ""
    for node in graph._nodes:
        if node.op == "output":
            value = writer.value(node.args[0])
            value = value if pytree is None else f"pytree.tree_unflatten({value}, {root}._out_spec)"
            lines.append(f"return {value}")
            returns = "" if node.type is None else f" -> {_type_name(node.type, writer)}"
        elif node.op != "placeholder":
            lines.append(writer.line(node))
    body = "".join(f"    {each}\n" for each in lines) or "    pass\n"
    head = f"def forward({', '.join([root, *parameters])}){returns}:\n"
    return PythonCode(f"\n\n\n{head}{body}    ", writer.globals)


def _type_name(kind: Any, writer: _Writer) -> str:
    if getattr(kind, "__name__", "") == "Tensor":
        return "torch.Tensor"
    if isinstance(kind, str):
        return kind
    if isinstance(kind, type):
        return writer.named(kind.__name__, kind)
    return writer.named(getattr(kind, "_name", None) or "annotation", kind)


def _described(node: Node) -> str:
    """Dtype and sizes of a node's value in quotes, as "f32[2, 3]"."""
    known = node.meta.get("tensor_meta")
    if known is None or not hasattr(known, "shape"):
        return ""
    kind = _KINDS.get(known.dtype.name, known.dtype.name)
    return f'"{kind}[{", ".join(map(str, known.shape))}]"'

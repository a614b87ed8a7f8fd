"""One step of a graph: a placeholder, a call, an attribute or the output (torch.fx.node)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradwire._base.wiring import names_of_paths
from gradwire.library import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from gradwire.fx.graph import Graph

__all__ = ["Node", "map_aggregate", "map_arg"]

__getattr__ = names_of_paths(__name__)

_OPS = ("placeholder", "call_function", "call_method", "call_module", "get_attr", "output", "root")


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """A value whose leaves are `fn` of it: tuples, lists, dictionaries and slices are entered."""
    if isinstance(a, tuple):
        made = [map_aggregate(each, fn) for each in a]
        return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
    if isinstance(a, list):
        return [map_aggregate(each, fn) for each in a]
    if isinstance(a, dict):
        return {key: map_aggregate(value, fn) for key, value in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(each, fn) for each in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """A value with `fn` of each node in it."""
    return map_aggregate(a, lambda each: fn(each) if isinstance(each, Node) else each)


class Node:
    """A step of a graph, which names the nodes that it takes in `args` and `kwargs`, and knows its users."""

    def __init__(
        self, graph: Graph, name: str, op: str, target: Any, args: Any, kwargs: Any, return_type: Any = None
    ) -> None:
        if op not in _OPS:
            raise AssertionError(f"unknown op of a node: {op}")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.meta: dict[str, Any] = {}
        #: Nodes that take this one, in order, as keys.
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._erased = False
        self._set(args, kwargs)

    def _set(self, args: Any, kwargs: Any) -> None:
        for each in self._input_nodes:
            each.users.pop(self, None)
        self._input_nodes = {}
        self._args, self._kwargs = tuple(args), dict(kwargs)

        def note(each: Node) -> Node:
            self._input_nodes[each] = None
            each.users[self] = None
            return each

        map_arg((self._args, self._kwargs), note)

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments: nodes, values, and containers of them."""
        return self._args

    @args.setter
    def args(self, value: Any) -> None:
        self._set(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: Any) -> None:
        self._set(self._args, value)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    @property
    def next(self) -> Node:
        """The node behind this one."""
        return self.graph._beside(self, 1)

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self.graph._beside(self, -1)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace a positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Replace a keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Put a positional argument before that of an index."""
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Take another node wherever this one takes `old_input`."""

        def swap(each: Node) -> Node:
            return new_input if each is old_input else each

        self._set(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, **_: Any
    ) -> list[Node]:
        """Let the users take another node; return those that changed."""
        changed = [each for each in self.users if delete_user_cb(each)]
        for each in changed:
            each.replace_input_with(self, replace_with)
        return changed

    def append(self, x: Node) -> None:
        """Move a node directly behind this one."""
        self.graph._move(x, self, 1)

    def prepend(self, x: Node) -> None:
        """Move a node directly before this one."""
        self.graph._move(x, self, 0)

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does more than make a value: it may not be left out."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "_qualname", "")
            return bool(name.endswith("_") and not name.endswith("__"))
        return self.op == "call_module"

    def format_node(self, *_: Any, **__: Any) -> str | None:
        """One line that describes the node, as in `str(graph)`."""
        count = f"[num_users={len(self.users)}]"
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : {count} = {self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : {count} = {self.op}[target={self.target}]"
        if self.op == "output":
            return f"return {self.args[0]}"
        given = f"(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"
        return f"%{self.name} : {count} = {self.op}[target={target_name(self.target)}]{given}"

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __lt__(self, other: Node) -> bool:
        order = self.graph._nodes
        return order.index(self) < order.index(other)


def _shown(value: Any) -> str:
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(each)}' for key, each in value.items())}}}"
    return str(value)


def target_name(target: Any) -> str:
    """A function's name in code: "torch.ops.aten.add.Tensor", "operator.getitem"."""
    if isinstance(target, str):
        return target
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return f"torch.ops.{target}"
    module = (getattr(target, "__module__", None) or "").replace("_operator", "operator")
    name = getattr(target, "__name__", repr(target))
    if module == "gradwire._functions.backward":
        return f"torch.autograd.{name}"
    if module == "gradwire" or module.startswith("gradwire."):
        return f"torch.{name}"
    return f"{module}.{name}" if module else str(name)
